//! The TCP port: control connections and load flows, told apart by their first octets.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::control::{LOOK_INTERVAL, is_temporary, prepare};
use super::host::Host;
use super::quota::Payer;
use crate::load::MAGIC;

/// Connections that have not yet shown a session, from everywhere.
const STRANGERS_MAX: usize = 256;
/// The same from one network that has no session.
const STRANGERS_PER_NETWORK_MAX: usize = 16;
/// How long a connection may take to say what it is.
const FIRST_OCTETS_MAX: Duration = Duration::from_secs(5);
/// The first octet of a TLS handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Connections whose right to be here is not known yet.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    per_network: Mutex<BTreeMap<Payer, usize>>,
    all: AtomicUsize,
}

/// A place among the strangers, given back when it is dropped.
#[derive(Debug)]
pub(super) struct StrangerPlace {
    strangers: Arc<Strangers>,
    network: Payer,
}

impl Strangers {
    /// A place for one from `from`, or `None` if there are too many; `is_known` addresses only
    /// count towards all.
    fn admit(self: &Arc<Self>, from: SocketAddr, is_known: bool) -> Option<StrangerPlace> {
        let network = Payer::of(from.ip());
        let mut per_network = self.per_network.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network = per_network.get(&network).copied().unwrap_or(0);
        let is_full = self.all.load(Ordering::Relaxed) >= STRANGERS_MAX
            || !is_known && of_network >= STRANGERS_PER_NETWORK_MAX;
        if is_full {
            return None;
        }
        *per_network.entry(network).or_insert(0) += 1;
        self.all.fetch_add(1, Ordering::Relaxed);
        Some(StrangerPlace { strangers: Arc::clone(self), network })
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.strangers.all.fetch_sub(1, Ordering::Relaxed);
        let lock = &self.strangers.per_network;
        let mut per_network = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = per_network.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                per_network.remove(&self.network);
            }
        }
    }
}

/// Accepts on all listeners until the server stops.
pub(super) fn serve(host: &Arc<Host>, listeners: &[TcpListener]) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let wait = PollTimeout::from(LOOK_INTERVAL.as_millis() as u8);
    while !host.is_stopped() {
        threads.retain(|thread| !thread.is_finished());
        let mut descriptors: Vec<PollFd<'_>> =
            listeners.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
        // An early end of the wait costs one more turn.
        let _ = poll(&mut descriptors, wait);
        for listener in listeners {
            match listener.accept() {
                Ok((socket, from)) => threads.extend(welcome(host, socket, from)),
                Err(error) if is_temporary(&error) => {}
                // Out of descriptors, or a connection that died before it was accepted.
                Err(_) => std::thread::sleep(LOOK_INTERVAL / 10),
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn welcome(host: &Arc<Host>, socket: TcpStream, from: SocketAddr) -> Option<JoinHandle<()>> {
    let is_known = host.sessions.knows(from.ip().to_canonical());
    let Some(place) = host.strangers.admit(from, is_known) else {
        host.counters.crowded.add(1);
        return None;
    };
    let host = Arc::clone(host);
    let body = move || match first_octets(&socket, || host.is_stopped()) {
        Some(octets) if octets == MAGIC => {
            drop(place);
            host.flows.carry(socket, from);
        }
        Some([TLS_HANDSHAKE, ..]) => host.converse(socket, from, place),
        _ => host.counters.dropped.add(1),
    };
    Builder::new().name("connection".to_owned()).spawn(body).ok()
}

/// What the connection begins with, left in place for whoever reads it; `None` if it takes too
/// long, or closes.
fn first_octets(socket: &TcpStream, is_stopped: impl Fn() -> bool) -> Option<[u8; 4]> {
    prepare(socket).ok()?;
    let until = Instant::now() + FIRST_OCTETS_MAX;
    let mut octets = [0; 4];
    while Instant::now() < until && !is_stopped() {
        match socket.peek(&mut octets) {
            Ok(4) => return Some(octets),
            Ok(0) => return None,
            // Some, but not enough to tell: peeking would not wait for more.
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_of_one_network_leave_room_for_others() {
        let strangers = Arc::new(Strangers::default());
        let from = |text: &str| text.parse::<SocketAddr>().unwrap();
        let one = from("192.0.2.1:1");
        let places: Vec<_> =
            (0..STRANGERS_PER_NETWORK_MAX).map(|_| strangers.admit(one, false).unwrap()).collect();
        assert!(strangers.admit(from("192.0.2.77:1"), false).is_none(), "the same network");
        assert!(strangers.admit(one, true).is_some(), "it has a session");
        assert!(strangers.admit(from("198.51.100.1:1"), false).is_some());
        drop(places);
        assert!(strangers.admit(one, false).is_some());
        assert!(strangers.per_network.lock().unwrap().is_empty());
        assert_eq!(strangers.all.load(Ordering::Relaxed), 0);
    }
}
