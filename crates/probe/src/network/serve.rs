//! Accepting connections, each in a separate thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::{POLL_INTERVAL, is_temporary, wait_for};
use crate::system::{AsFd as _, PollFlags};

/// Accepts connections until `stop`, then waits for their threads. `welcome` starts the thread of a
/// connection; it returns `None` if it refuses the connection.
pub fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    mut welcome: impl FnMut(TcpStream, SocketAddr) -> Option<JoinHandle<()>>,
) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        threads.retain(|thread| !thread.is_finished());
        if wait_for(listener.as_fd(), PollFlags::POLLIN, POLL_INTERVAL).is_err() {
            std::thread::sleep(POLL_INTERVAL);
        }
        match listener.accept() {
            Ok((stream, from)) => threads.extend(welcome(stream, from)),
            Err(error) if is_temporary(&error) => {}
            // The process is out of descriptors, or the connection closed before it was accepted.
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}
