//! The TCP port of control connections and load flows, which their first bytes distinguish.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use underload_probe::RunClock;
use underload_probe::control::{LOOK_INTERVAL, prepare};
use underload_probe::load::MAGIC;
use underload_probe::network::{CustomerNetwork, is_temporary};

use super::host::Host;
use super::strangers::STRANGERS_PER_NETWORK_MAX;
use crate::admission::LineMeter;

/// Maximum number of connections without a session from a network with a session: its flows arrive
/// all at once.
const GUESTS_PER_NETWORK_MAX: usize = 96;

const FIRST_BYTES_MAX: Duration = Duration::from_secs(5);
/// The first byte of a TLS handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// Connections accepted in a row before the server checks anything else.
const ACCEPTED_MAX: usize = 64;
/// Interval at which the sessions' use of their rates is measured.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts connections on all listeners until the server stops.
pub(crate) fn serve(host: &Arc<Host>, listeners: &[TcpListener], mut line: LineMeter) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let wait = PollTimeout::from(LOOK_INTERVAL.as_millis() as u8);
    let clock = RunClock::start();
    let mut next_update_ns = 0;
    while !host.is_stopped() {
        threads.retain(|thread| !thread.is_finished());
        if clock.now_ns() >= next_update_ns {
            next_update_ns = clock.now_ns() + UPDATE_INTERVAL.as_nanos() as u64;
            host.sessions.update(line.measure(clock.now_ns()));
        }
        let mut descriptors: Vec<PollFd<'_>> =
            listeners.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
        // If the wait ends early, the loop waits again.
        let _ = poll(&mut descriptors, wait);
        for listener in listeners {
            for _ in 0..ACCEPTED_MAX {
                match listener.accept() {
                    Ok((socket, from)) => threads.extend(welcome(host, socket, from)),
                    Err(error) if is_temporary(&error) => break,
                    // The process is out of descriptors, or the connection closed before it was
                    // accepted.
                    Err(_) => {
                        std::thread::sleep(LOOK_INTERVAL / 10);
                        break;
                    }
                }
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn welcome(host: &Arc<Host>, socket: TcpStream, from: SocketAddr) -> Option<JoinHandle<()>> {
    let address = from.ip().to_canonical();
    let place = socket.try_clone().ok().and_then(|same| {
        let counters = Arc::clone(&host.counters);
        let evict = move || {
            counters.update(|counts| counts.crowded += 1);
            // The thread that reads from the connection sees its end.
            let _ = same.shutdown(Shutdown::Both);
        };
        let has_session = host.sessions.knows(address);
        let most = if has_session { GUESTS_PER_NETWORK_MAX } else { STRANGERS_PER_NETWORK_MAX };
        let network = CustomerNetwork::of(address);
        host.strangers.take_of(most, Instant::now(), network, Some(Box::new(evict)))
    });
    let Some(place) = place else {
        host.counters.update(|counts| counts.crowded += 1);
        return None;
    };
    let host = Arc::clone(host);
    let body = move || match first_bytes(&socket, || host.is_stopped()) {
        Some(bytes) if bytes == MAGIC => host.flows.carry(socket, from, place),
        Some([TLS_HANDSHAKE, ..]) => host.converse(socket, from, place),
        _ => host.counters.update(|counts| counts.dropped += 1),
    };
    Builder::new().name("connection".to_owned()).spawn(body).ok()
}

/// Returns the connection's first bytes without consuming them; `None` if they do not arrive in
/// time or the connection closes.
fn first_bytes(socket: &TcpStream, is_stopped: impl Fn() -> bool) -> Option<[u8; 4]> {
    prepare(socket).ok()?;
    let until = Instant::now() + FIRST_BYTES_MAX;
    let mut bytes = [0; 4];
    while Instant::now() < until && !is_stopped() {
        match socket.peek(&mut bytes) {
            Ok(4) => return Some(bytes),
            Ok(0) => return None,
            // Too few bytes have arrived, and another peek would return at once.
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return None,
        }
    }
    None
}
