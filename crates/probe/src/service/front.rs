//! The TCP port: control connections and load flows, told apart by their first bytes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::control::{LOOK_INTERVAL, prepare};
use super::host::Host;
use super::line::LineMeter;
use crate::clock::RunClock;
use crate::load::MAGIC;
use crate::network::{CustomerNetwork, is_temporary};

/// Connections that have not yet shown a session, from everywhere.
const STRANGERS_MAX: usize = 256;
/// The most connections without a session from one network.
const STRANGERS_PER_NETWORK_MAX: usize = 16;
/// The same where an address of the network has a session: its flows come all at once.
const GUESTS_PER_NETWORK_MAX: usize = 96;
/// A stranger is left in peace by its neighbours for so long.
const GRACE: Duration = Duration::from_secs(1);
/// How long a connection may take to say what it is.
const FIRST_BYTES_MAX: Duration = Duration::from_secs(5);
/// The first byte of a TLS handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// Connections accepted in a row before anything else is looked at.
const ACCEPTED_MAX: usize = 64;
/// From one look at what the sessions use to the next.
const SESSIONS_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Connections whose right to be here is not known yet, by the order in which they came.
///
/// Each network has so many places. Who finds none of its network's left takes the oldest one's, if
/// that had its time; where all places are taken, the oldest of the network that has the most goes.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    came: u64,
    places: BTreeMap<u64, Stranger>,
}

struct Stranger {
    network: CustomerNetwork,
    since: Duration,
    /// Ends its connection.
    evict: Box<dyn FnOnce() + Send>,
}

/// A place among the strangers, given back when it is dropped.
#[derive(Debug)]
pub(super) struct StrangerPlace {
    strangers: Arc<Strangers>,
    number: u64,
}

impl std::fmt::Debug for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stranger").field("network", &self.network).finish_non_exhaustive()
    }
}

impl Strangers {
    /// A place for one from `from`, who came at `now`, or `None` if there is none; `has_session`
    /// if its address has one. `evict` ends its connection.
    fn admit(
        self: &Arc<Self>,
        now: Duration,
        from: IpAddr,
        has_session: bool,
        evict: impl FnOnce() + Send + 'static,
    ) -> Option<StrangerPlace> {
        let network = CustomerNetwork::of(from);
        let mut waiting = self.lock();
        let evicted = waiting.make_room(now, network, has_session).ok()?;
        let number = waiting.came;
        waiting.came += 1;
        waiting.places.insert(number, Stranger { network, since: now, evict: Box::new(evict) });
        drop(waiting);
        if let Some(evicted) = evicted {
            (evicted.evict)();
        }
        Some(StrangerPlace { strangers: Arc::clone(self), number })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no place.
struct Crowded;

impl Waiting {
    /// Who has to go so that one more of `network` may come, if anybody has to.
    fn make_room(
        &mut self,
        now: Duration,
        network: CustomerNetwork,
        has_session: bool,
    ) -> Result<Option<Stranger>, Crowded> {
        let mut counts: BTreeMap<CustomerNetwork, usize> = BTreeMap::new();
        for stranger in self.places.values() {
            *counts.entry(stranger.network).or_insert(0) += 1;
        }
        let own = counts.get(&network).copied().unwrap_or(0);
        let most = if has_session { GUESTS_PER_NETWORK_MAX } else { STRANGERS_PER_NETWORK_MAX };
        let fullest = counts.values().copied().max().unwrap_or(0);
        let is_full = self.places.len() >= STRANGERS_MAX;
        let victim = if own >= most || is_full && own >= fullest {
            let oldest = self.places.iter().find(|(_, it)| it.network == network);
            let had_its_time = |it: &Stranger| now.saturating_sub(it.since) >= GRACE;
            Some(oldest.filter(|(_, it)| had_its_time(it)).ok_or(Crowded)?)
        } else if is_full {
            self.places.iter().find(|(_, it)| counts.get(&it.network) == Some(&fullest))
        } else {
            None
        };
        let number = victim.map(|(number, _)| *number);
        Ok(number.and_then(|number| self.places.remove(&number)))
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.strangers.lock().places.remove(&self.number);
    }
}

/// Accepts on all listeners until the server stops.
pub(super) fn serve(host: &Arc<Host>, listeners: &[TcpListener], mut line: LineMeter) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let wait = PollTimeout::from(LOOK_INTERVAL.as_millis() as u8);
    let clock = RunClock::start();
    let mut next_look_ns = 0;
    while !host.is_stopped() {
        threads.retain(|thread| !thread.is_finished());
        if clock.now_ns() >= next_look_ns {
            next_look_ns = clock.now_ns() + SESSIONS_LOOK_INTERVAL.as_nanos() as u64;
            host.sessions.look(line.look(clock.now_ns()));
        }
        let mut descriptors: Vec<PollFd<'_>> =
            listeners.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
        // An early end of the wait costs one more turn.
        let _ = poll(&mut descriptors, wait);
        for listener in listeners {
            for _ in 0..ACCEPTED_MAX {
                match listener.accept() {
                    Ok((socket, from)) => threads.extend(welcome(host, socket, from, clock)),
                    Err(error) if is_temporary(&error) => break,
                    // Out of descriptors, or a connection that died before it was accepted.
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

fn welcome(
    host: &Arc<Host>,
    socket: TcpStream,
    from: SocketAddr,
    clock: RunClock,
) -> Option<JoinHandle<()>> {
    let address = from.ip().to_canonical();
    let now = Duration::from_nanos(clock.now_ns());
    let place = socket.try_clone().ok().and_then(|same| {
        let counters = Arc::clone(&host.counters);
        let evict = move || {
            counters.crowded.add(1);
            // Whoever reads from it finds its end.
            let _ = same.shutdown(Shutdown::Both);
        };
        host.strangers.admit(now, address, host.sessions.knows(address), evict)
    });
    let Some(place) = place else {
        host.counters.crowded.add(1);
        return None;
    };
    let host = Arc::clone(host);
    let body = move || match first_bytes(&socket, || host.is_stopped()) {
        Some(bytes) if bytes == MAGIC => host.flows.carry(socket, from, place),
        Some([TLS_HANDSHAKE, ..]) => host.converse(socket, from, place),
        _ => host.counters.dropped.add(1),
    };
    Builder::new().name("connection".to_owned()).spawn(body).ok()
}

/// What the connection begins with, left in place for whoever reads it; `None` if it takes too
/// long, or closes.
fn first_bytes(socket: &TcpStream, is_stopped: impl Fn() -> bool) -> Option<[u8; 4]> {
    prepare(socket).ok()?;
    let until = Instant::now() + FIRST_BYTES_MAX;
    let mut bytes = [0; 4];
    while Instant::now() < until && !is_stopped() {
        match socket.peek(&mut bytes) {
            Ok(4) => return Some(bytes),
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

    /// Strangers, and the numbers of those who had to go.
    #[derive(Default)]
    struct Door {
        strangers: Arc<Strangers>,
        evicted: Arc<Mutex<Vec<u32>>>,
    }

    impl Door {
        fn admit(
            &self,
            ms: u64,
            network: u8,
            has_session: bool,
            number: u32,
        ) -> Option<StrangerPlace> {
            let evicted = Arc::clone(&self.evicted);
            let evict = move || evicted.lock().unwrap().push(number);
            let from = IpAddr::from([198, 51, network, 1]);
            self.strangers.admit(Duration::from_millis(ms), from, has_session, evict)
        }
    }

    #[test]
    fn strangers_of_one_network_leave_room_for_others() {
        let door = Door::default();
        let held: Vec<_> = (0..16).map(|number| door.admit(0, 1, false, number).unwrap()).collect();
        assert!(door.admit(999, 1, false, 99).is_none(), "the same network");
        let more: Vec<_> = (16..96).map(|number| door.admit(0, 1, true, number).unwrap()).collect();
        assert!(door.admit(999, 1, true, 99).is_none(), "a session is no pass for any number");
        assert!(door.admit(0, 2, false, 100).is_some());
        assert_eq!(*door.evicted.lock().unwrap(), Vec::<u32>::new());
        let late = door.admit(1_000, 1, false, 101);
        assert!(late.is_some(), "a neighbour that came later finds a place");
        assert_eq!(*door.evicted.lock().unwrap(), [0], "of the one who had its time");
        drop((held, more, late));
        assert!(door.strangers.lock().places.is_empty());
    }

    #[test]
    fn where_all_places_are_taken_the_oldest_of_the_fullest_network_goes() {
        let door = Door::default();
        let place = |number: u32| door.admit(0, (number / 16) as u8, false, number).unwrap();
        let mut held: Vec<_> = (0..256).map(place).collect();
        // Network 0 has one less than the others.
        held.remove(5);
        held.push(door.admit(1, 100, false, 1_000).unwrap());
        held.push(door.admit(1, 101, false, 1_001).unwrap());
        assert_eq!(*door.evicted.lock().unwrap(), [16]);
        for number in 0..150 {
            held.extend(door.admit(2, 102 + number, false, 2_000 + u32::from(number)));
        }
        let evicted = door.evicted.lock().unwrap();
        assert_eq!(door.strangers.lock().places.len(), STRANGERS_MAX);
        let honest = |number: &&u32| **number >= 1_000;
        assert_eq!(evicted.iter().filter(honest).count(), 0, "{evicted:?}");
    }
}
