//! The listener: control connections become tests, data connections are passed to their tests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use underload_probe::Counters;
use underload_probe::network::{self, CustomerNetwork};
use underload_service::{CompatLedger, CompatShare};

use super::control::{Control, Cookie, Ended};
use super::test::{Arrived, Test};
use super::udp::UdpHub;
use super::{Iperf3Limits, state};
use crate::{CompatError, Place, Places, Threads, places};

/// A running iperf3 server. Dropping it ends all tests and joins all threads.
#[derive(Debug)]
pub struct Iperf3Server {
    address: SocketAddr,
    host: Arc<Host>,
    _threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iperf3Counts {
    /// Tests that ran to their results.
    pub finished: u64,
    /// Clients that were rejected with "busy", or closed because no place was free.
    pub busy: u64,
    pub refused: u64,
    /// Tests that the server ended: overtime, idle, too fast, no thread, or because it stops.
    pub terminated: u64,
    /// Tests whose client left or violated the protocol.
    pub abandoned: u64,
    pub running: usize,
}

#[derive(Debug)]
struct Host {
    limits: Iperf3Limits,
    ledger: CompatLedger,
    places: Places,
    hub: Arc<UdpHub>,
    /// Places of connections that have not sent their cookie yet, and of the tests' control
    /// connections.
    connections: Places,
    tests: Mutex<BTreeMap<Cookie, Registered>>,
    stop: Arc<AtomicBool>,
    counters: Counters<Iperf3Counts>,
}

/// A running test: its address, and the channel for its data connections.
#[derive(Debug)]
struct Registered {
    address: IpAddr,
    arrivals: SyncSender<Arrived>,
}

/// Longest time for a connection to send its cookie.
const COOKIE_MAX: Duration = Duration::from_secs(5);
/// Longest time of a test beside its duration, for opening and closing.
const ENTRY_GRACE: Duration = Duration::from_mins(1);

impl Iperf3Server {
    /// Serves on `listener` and on `socket`, which have the same port, within the limits of
    /// `ledger`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option or a thread.
    pub fn start(
        listener: TcpListener,
        socket: UdpSocket,
        limits: Iperf3Limits,
        ledger: CompatLedger,
    ) -> Result<Self, CompatError> {
        let error = |step| move |source| CompatError::Socket { protocol: "iperf3", step, source };
        let address = listener.local_addr().map_err(error("reading its address"))?;
        listener.set_nonblocking(true).map_err(error("making its socket non-blocking"))?;
        let hub = Arc::new(UdpHub::new(socket).map_err(error("preparing the UDP socket"))?);
        let mut threads = Threads::default();
        // The streams of a test arrive one after the other, and free their places as soon as they
        // have sent their cookie.
        let connections = limits.streams_max as usize * 2 + 1;
        let host = Arc::new(Host {
            limits,
            ledger,
            connections: places(connections * (limits.tests_max + 1), connections),
            places: places(limits.tests_max, limits.tests_per_network_max),
            hub: Arc::clone(&hub),
            tests: Mutex::default(),
            stop: Arc::clone(&threads.stop),
            counters: Counters::default(),
        });
        threads.spawn("iperf3", "iperf3-udp", move |stop| hub.serve(stop))?;
        let accepting = Arc::clone(&host);
        threads.spawn("iperf3", "iperf3", move |_| serve(&accepting, &listener))?;
        Ok(Self { address, host, _threads: threads })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> Iperf3Counts {
        Iperf3Counts { running: self.host.places.taken(), ..self.host.counters.read() }
    }
}

fn serve(host: &Arc<Host>, listener: &TcpListener) {
    let mut index = 0;
    network::serve(listener, &host.stop, |stream, from| {
        index += 1;
        welcome(host, index, stream, from.ip())
    });
}

fn welcome(
    host: &Arc<Host>,
    index: u64,
    stream: TcpStream,
    address: IpAddr,
) -> Option<JoinHandle<()>> {
    let place = stream.try_clone().ok().and_then(|same| {
        let evicting = Arc::clone(host);
        let evict = move || {
            evicting.counters.update(|counts| counts.busy += 1);
            // The thread that reads from the connection sees its end.
            let _ = same.shutdown(Shutdown::Both);
        };
        let network = CustomerNetwork::of(address);
        host.connections.take(Instant::now(), network, Some(Box::new(evict)))
    });
    let Some(place) = place else {
        host.counters.update(|counts| counts.busy += 1);
        return None;
    };
    let host = Arc::clone(host);
    let body = move || {
        host.greet(index, stream, address.to_canonical(), &place);
    };
    Builder::new().name("iperf3-test".to_owned()).spawn(body).ok()
}

/// The registration of a test by its cookie; dropping it removes the registration, even after a
/// panic.
struct Registration<'a> {
    host: &'a Host,
    cookie: Cookie,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.host.lock().remove(&self.cookie);
    }
}

impl Host {
    fn greet(&self, index: u64, stream: TcpStream, address: IpAddr, connection: &Place) {
        let Ok(mut control) = Control::new(stream, Arc::clone(&self.stop)) else { return };
        let mut cookie: Cookie = [0; 37];
        if control.read(&mut cookie, Instant::now() + COOKIE_MAX).is_err() {
            self.counters.update(|counts| counts.abandoned += 1);
            return;
        }
        if let Some(registered) = self.lock().get(&cookie) {
            if registered.address == address {
                // Streams above the declared number find the channel full and are closed.
                let stream = control.stream;
                let _ = registered.arrivals.try_send(Arrived { index, stream });
            }
            return;
        }
        // A running test must not be evicted: only its limits of time and volume end it.
        connection.keep();
        let network = CustomerNetwork::of(address);
        let place = self.places.take(Instant::now(), network, None);
        let allowed = self.limits.duration_max + ENTRY_GRACE;
        let share = place.as_ref().and_then(|_| self.ledger.enter(address, allowed).ok());
        let Some(share) = share else {
            self.counters.update(|counts| counts.busy += 1);
            let _ = control.send_state(state::ACCESS_DENIED);
            return;
        };
        let outcome = self.test(index, (control, share), address, cookie);
        self.counters.update(|counts| match outcome {
            Ok(()) => counts.finished += 1,
            Err(Ended::Refused(_)) => counts.refused += 1,
            Err(Ended::Lease | Ended::Stopped | Ended::Overloaded) => counts.terminated += 1,
            Err(Ended::Client) => counts.abandoned += 1,
        });
    }

    fn test(
        &self,
        id: u64,
        (control, share): (Control, CompatShare),
        address: IpAddr,
        cookie: Cookie,
    ) -> Result<(), Ended> {
        let (sender, arrivals) = sync_channel(self.limits.streams_max as usize * 2);
        let _registration = self.register(cookie, Registered { address, arrivals: sender })?;
        let (limits, hub) = (self.limits, Arc::clone(&self.hub));
        Test { id, address, control, share, limits, arrivals, hub }.run()
    }

    fn register(&self, cookie: Cookie, test: Registered) -> Result<Registration<'_>, Ended> {
        match self.lock().entry(cookie) {
            Entry::Vacant(vacant) => vacant.insert(test),
            // Another control connection registered the same cookie an instant before.
            Entry::Occupied(_) => return Err(Ended::Client),
        };
        Ok(Registration { host: self, cookie })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Cookie, Registered>> {
        // No code panics half-way through a change under this lock.
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_free_again_after_a_test_that_panics_and_the_first_test_keeps_it() {
        let host = Host {
            limits: Iperf3Limits::default(),
            ledger: CompatLedger::unlimited(),
            places: places(1, 1),
            hub: Arc::new(UdpHub::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap()),
            connections: places(1, 1),
            tests: Mutex::default(),
            stop: Arc::default(),
            counters: Counters::default(),
        };
        let test = || Registered { address: [127, 0, 0, 1].into(), arrivals: sync_channel(1).0 };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _registration = host.register([1; 37], test());
            assert!(host.register([1; 37], test()).is_err(), "it is taken");
            assert!(host.lock().contains_key(&[1; 37]), "and stays with the first");
            panic!("as a thread that cannot be started once did");
        }));
        assert!(outcome.is_err() && host.lock().is_empty());
    }
}
