//! The listener: control connections become tests, data connections find theirs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use underload_probe::network::{CustomerNetwork, POLL_INTERVAL, is_temporary, wait_for};
use underload_service::{CompatLedger, CompatShare};

use super::control::{Control, Cookie, Ended};
use super::test::{Arrived, Test};
use super::udp::UdpHub;
use super::{Iperf3Limits, state};
use crate::{CompatError, Place, Places, places};

/// A running iperf3 server. Dropping it ends all tests and joins all threads.
#[derive(Debug)]
pub struct Iperf3Server {
    address: SocketAddr,
    host: Arc<Host>,
    threads: Vec<JoinHandle<()>>,
}

/// Counts of tests that were run, refused and broken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iperf3Counts {
    /// Tests that ran to their results.
    pub finished: u64,
    /// Told to come back later, or closed because there was no place.
    pub busy: u64,
    /// Parameters that are not allowed.
    pub refused: u64,
    /// Ended by the server: overtime, idle, too fast, no threads left, or because it stops.
    pub terminated: u64,
    /// Whose client went away, or never spoke the protocol.
    pub abandoned: u64,
    /// Tests under way.
    pub running: usize,
}

#[derive(Debug)]
struct Host {
    limits: Iperf3Limits,
    ledger: CompatLedger,
    places: Places,
    hub: Arc<UdpHub>,
    /// Of connections that did not say yet which test they belong to, and of the tests' control
    /// connections.
    connections: Places,
    tests: Mutex<BTreeMap<Cookie, Registered>>,
    stop: Arc<AtomicBool>,
    finished: AtomicU64,
    busy: AtomicU64,
    refused: AtomicU64,
    terminated: AtomicU64,
    abandoned: AtomicU64,
}

/// A test under way: the address it belongs to, and where its data connections are handed to.
#[derive(Debug)]
struct Registered {
    address: IpAddr,
    arrivals: SyncSender<Arrived>,
}

/// How long a connection may take to send its cookie.
const COOKIE_MAX: Duration = Duration::from_secs(5);
/// What a test takes beside its time: opening and closing, each step at its longest.
const ENTRY_GRACE: Duration = Duration::from_mins(1);

impl Iperf3Server {
    /// Serves on `listener` and on `socket`, which the caller bound, to the same port, as much as
    /// `ledger` has.
    ///
    /// # Errors
    /// [`CompatError`]: a socket option refused, no thread.
    pub fn start(
        listener: TcpListener,
        socket: UdpSocket,
        limits: Iperf3Limits,
        ledger: CompatLedger,
    ) -> Result<Self, CompatError> {
        let failed = |step| move |source| CompatError::Socket { protocol: "iperf3", step, source };
        let address = listener.local_addr().map_err(failed("reading its address"))?;
        listener.set_nonblocking(true).map_err(failed("making its socket non-blocking"))?;
        let hub = Arc::new(UdpHub::new(socket).map_err(failed("preparing the UDP socket"))?);
        // The streams of a test come one after the other, and leave their places as soon as they
        // have said whose they are.
        let of_one_test = limits.streams_max as usize * 2 + 1;
        let host = Arc::new(Host {
            limits,
            ledger,
            connections: places(of_one_test * (limits.tests_max + 1), of_one_test),
            places: places(limits.tests_max, limits.tests_per_network_max),
            hub,
            tests: Mutex::default(),
            stop: Arc::new(AtomicBool::new(false)),
            finished: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            terminated: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        });
        let mut server = Self { address, host, threads: Vec::new() };
        let host = Arc::clone(&server.host);
        let receiving = move || host.hub.serve(&host.stop);
        server.spawn("iperf3-udp", receiving).map_err(failed("starting a thread"))?;
        let host = Arc::clone(&server.host);
        let accepting = move || serve(&host, &listener);
        server.spawn("iperf3", accepting).map_err(failed("starting a thread"))?;
        Ok(server)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(Builder::new().name(name.to_owned()).spawn(body)?);
        Ok(())
    }

    /// The address and port that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server has counted so far.
    pub fn counts(&self) -> Iperf3Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Iperf3Counts {
            finished: read(&self.host.finished),
            busy: read(&self.host.busy),
            refused: read(&self.host.refused),
            terminated: read(&self.host.terminated),
            abandoned: read(&self.host.abandoned),
            running: self.host.places.taken(),
        }
    }
}

impl Drop for Iperf3Server {
    fn drop(&mut self) {
        self.host.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(host: &Arc<Host>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut index = 0;
    while !host.stop.load(Ordering::Relaxed) {
        threads.retain(|thread| !thread.is_finished());
        // An early end of the wait costs one more turn.
        let _ = wait_for(listener.as_fd(), PollFlags::POLLIN, POLL_INTERVAL);
        match listener.accept() {
            Ok((stream, from)) => {
                index += 1;
                threads.extend(welcome(host, index, stream, from.ip()));
            }
            Err(error) if is_temporary(&error) => {}
            // Out of descriptors, or a connection that died before it was accepted.
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
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
            evicting.busy.fetch_add(1, Ordering::Relaxed);
            // Whoever reads from it finds its end.
            let _ = same.shutdown(Shutdown::Both);
        };
        let network = CustomerNetwork::of(address);
        host.connections.take(Instant::now(), network, Some(Box::new(evict)))
    });
    let Some(place) = place else {
        host.busy.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let host = Arc::clone(host);
    let body = move || {
        host.greet(index, stream, address.to_canonical(), &place);
    };
    Builder::new().name("iperf3-test".to_owned()).spawn(body).ok()
}

/// A test that data connections find by its cookie, until this is dropped, however it ends.
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
            self.abandoned.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some(registered) = self.lock().get(&cookie) {
            if registered.address == address {
                // More streams than were declared find the channel full, and are closed.
                let stream = control.into_stream();
                let _ = registered.arrivals.try_send(Arrived { index, stream });
            }
            return;
        }
        // A test under way ends by its limits of time and volume, not for others.
        connection.keep();
        let network = CustomerNetwork::of(address);
        let Some(_place) = self.places.take(Instant::now(), network, None) else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            let _ = control.say(state::ACCESS_DENIED);
            return;
        };
        let Ok(share) = self.ledger.enter(address, self.limits.duration_max + ENTRY_GRACE) else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            let _ = control.say(state::ACCESS_DENIED);
            return;
        };
        let counter = match self.test(index, (control, share), address, cookie) {
            Ok(()) => &self.finished,
            Err(Ended::Refused(_)) => &self.refused,
            Err(Ended::Lease | Ended::Stopped | Ended::Overloaded) => &self.terminated,
            Err(Ended::Client) => &self.abandoned,
        };
        counter.fetch_add(1, Ordering::Relaxed);
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
            // Two control connections with one cookie, within an instant: the first has it.
            Entry::Occupied(_) => return Err(Ended::Client),
        };
        Ok(Registration { host: self, cookie })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Cookie, Registered>> {
        // Nothing that holds the lock can panic half-way through a change.
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
            finished: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            terminated: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
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
