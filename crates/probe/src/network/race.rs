//! Connects to the first of several addresses that answers (RFC 8305, "Happy Eyeballs"): a name
//! with a dead IPv6 address costs a quarter of a second and not a time limit.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::SocketSource;
use crate::system::{AsFd as _, PollFlags, is_connecting, poll};

/// Delay between two connection attempts (RFC 8305 section 5, "Connection Attempt Delay").
const HEAD_START: Duration = Duration::from_millis(250);
/// Longest wait before the time limit and `is_stopped` are checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const ADDRESSES_MAX: usize = 16;

/// No address answered: the first that failed, and its error.
#[derive(Debug)]
pub struct Silence {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Connects to `addresses`, IPv6 and IPv4 in turn, each a little after the one before; the first
/// that answers wins.
///
/// # Errors
/// Returns [`Silence`] if no address answers within `allowed` or before `is_stopped` returns true;
/// `None` without any address.
pub fn connect_first(
    addresses: &[SocketAddr],
    network: &dyn SocketSource,
    allowed: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(TcpStream, SocketAddr), Option<Silence>> {
    let Some(first) = addresses.first().copied() else { return Err(None) };
    let mut race = Race { waiting: interleaved(addresses), running: Vec::new(), failed: None };
    let (until, mut next) = (Instant::now() + allowed, Instant::now());
    loop {
        let now = Instant::now();
        if is_stopped() || now >= until {
            let kind =
                if is_stopped() { io::ErrorKind::Interrupted } else { io::ErrorKind::TimedOut };
            let late = Silence { address: first, source: kind.into() };
            return Err(Some(race.failed.unwrap_or(late)));
        }
        if race.running.is_empty() || now >= next {
            next = now + HEAD_START;
            if race.start_one(network) {
                continue;
            }
            if race.running.is_empty() {
                return Err(race.failed);
            }
        }
        let running_before = race.running.len();
        if let Some(won) = race.wait(LOOK_INTERVAL.min(next.saturating_duration_since(now))) {
            return Ok(won);
        }
        if race.running.len() < running_before {
            next = now;
        }
    }
}

struct Race {
    waiting: VecDeque<SocketAddr>,
    running: Vec<(Socket, SocketAddr)>,
    failed: Option<Silence>,
}

impl Race {
    /// Starts an attempt with the next address; returns false if none is left.
    fn start_one(&mut self, network: &dyn SocketSource) -> bool {
        let Some(address) = self.waiting.pop_front() else { return false };
        let begun = network.socket(Domain::for_address(address), Type::STREAM).and_then(|socket| {
            socket.set_nonblocking(true)?;
            match socket.connect(&address.into()) {
                Err(error) if !is_connecting(&error) => Err(error),
                _ => Ok(socket),
            }
        });
        match begun {
            Ok(socket) => self.running.push((socket, address)),
            Err(source) => self.note(address, source),
        }
        true
    }

    /// Waits until an attempt succeeds and returns its connection; `None` after `timeout`.
    fn wait(&mut self, timeout: Duration) -> Option<(TcpStream, SocketAddr)> {
        let waited: Vec<_> =
            self.running.iter().map(|(socket, _)| (socket.as_fd(), PollFlags::POLLOUT)).collect();
        // If the wait ends early or fails, the caller waits again.
        let flags = poll(&waited, timeout + Duration::from_millis(1)).unwrap_or_default();
        drop(waited);
        for index in (0..flags.len()).rev().filter(|index| !flags[*index].is_empty()) {
            let (socket, address) = self.running.swap_remove(index);
            let outcome = match socket.take_error() {
                Ok(Some(error)) | Err(error) => Err(error),
                Ok(None) => socket.set_nonblocking(false),
            };
            match outcome {
                Ok(()) => return Some((TcpStream::from(socket), address)),
                Err(source) => self.note(address, source),
            }
        }
        None
    }

    fn note(&mut self, address: SocketAddr, source: io::Error) {
        self.failed.get_or_insert(Silence { address, source });
    }
}

/// Returns the addresses with their families in turn, first the one that the resolver prefers;
/// within a family in the resolver's order (RFC 8305 section 4).
fn interleaved(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut these, mut others): (VecDeque<_>, VecDeque<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv6() == preferred);
    let mut turns = VecDeque::new();
    while turns.len() < ADDRESSES_MAX && !(these.is_empty() && others.is_empty()) {
        turns.extend(these.pop_front());
        turns.extend(others.pop_front());
    }
    turns.truncate(ADDRESSES_MAX);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Mutex;

    use crate::network::current_network;

    const LONG: Duration = Duration::from_mins(1);

    /// Returns a port where connections are never answered: its queue is full.
    fn silent() -> (TcpListener, Vec<Socket>, SocketAddr) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let fillers = (0..8)
            .map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&address.into());
                socket
            })
            .collect();
        (listener, fillers, address)
    }

    #[test]
    fn families_take_turns_and_no_more_than_a_few_are_tried() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = [parse("[::1]:1"), parse("[::2]:1"), parse("1.1.1.1:1"), parse("[::3]:1")];
        let turns: Vec<_> = interleaved(&found).into_iter().collect();
        assert_eq!(turns, [found[0], found[2], found[1], found[3]]);
        assert_eq!(interleaved(&vec![found[0]; 100]).len(), ADDRESSES_MAX);
    }

    #[test]
    fn an_address_that_never_answers_does_not_keep_the_next_one_waiting() {
        let (_listener, _fillers, dead) = silent();
        let alive = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = alive.local_addr().unwrap();
        // Premise: this address alone never answers.
        let alone = connect_first(&[dead], &*current_network(), HEAD_START, &|| false);
        assert_eq!(alone.unwrap_err().unwrap().source.kind(), io::ErrorKind::TimedOut);
        let tried = Mutex::new(0);
        let network = |domain, kind| {
            *tried.lock().unwrap() += 1;
            Socket::new(domain, kind, None)
        };
        let (stream, won) = connect_first(&[dead, address], &network, LONG, &|| false).unwrap();
        assert_eq!((won, stream.peer_addr().unwrap()), (address, address));
        assert_eq!(*tried.lock().unwrap(), 2, "the preferred address was tried as well");
    }

    #[test]
    fn refusals_and_a_stop_end_the_race_and_name_the_first_address() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let silence = connect_first(&[closed, closed], &*current_network(), LONG, &|| false);
        let silence = silence.unwrap_err().unwrap();
        assert_eq!(silence.address, closed);
        assert_eq!(silence.source.kind(), io::ErrorKind::ConnectionRefused);
        let (_listener, _fillers, dead) = silent();
        let stopped = connect_first(&[dead], &*current_network(), LONG, &|| true);
        assert_eq!(stopped.unwrap_err().unwrap().source.kind(), io::ErrorKind::Interrupted);
        assert!(connect_first(&[], &*current_network(), LONG, &|| false).unwrap_err().is_none());
    }
}
