//! Echoes to several hops at the same times, whatever comes back.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use underload_record::schema::PathHop;

use super::{HopProbes, PathProbe};
use crate::clock::RunClock;
use crate::survey::Echoes;

#[derive(Clone, Debug)]
pub struct EchoTarget {
    pub hop: PathHop,
    /// `None` sends nothing: the hop is unknown.
    pub address: Option<SocketAddr>,
    /// The address as records show it.
    pub shown: String,
    pub distance: Option<u8>,
}

/// A thread that sends an echo to each hop in each interval, until the prober is finished or
/// dropped.
#[derive(Debug)]
pub struct RouteProber {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<HopProbes>>>,
}

const INTERVAL: Duration = Duration::from_millis(20);
/// An echo without an answer within this time is lost.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Maximum number of echoes to each hop: three hours.
const ECHOES_MAX: usize = 540_000;

impl RouteProber {
    /// Opens the sockets, which use the network interface `device` alone if one is named, and
    /// starts the thread. Times count from the start of `clock`.
    ///
    /// # Errors
    /// Returns an error without a socket, for example [`io::ErrorKind::PermissionDenied`] if this
    /// user may not send echoes.
    pub fn start(
        targets: Vec<EchoTarget>,
        device: Option<&str>,
        clock: RunClock,
    ) -> io::Result<Self> {
        let open = |target: EchoTarget| {
            let start = |address| Echoes::start_through(address, device);
            let echoes = target.address.map(start).transpose()?;
            Ok(Course { target, echoes, sent: BTreeMap::new() })
        };
        let courses = targets.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let sender = Sender { courses, clock, stop: Arc::clone(&stop) };
        let thread = thread::Builder::new().name("route".to_owned()).spawn(move || sender.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops at once, without waiting for answers, and returns the probes of each hop.
    pub fn finish(mut self) -> Vec<HopProbes> {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has no probes: the hops then count as silent.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for RouteProber {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Course {
    target: EchoTarget,
    echoes: Option<Echoes>,
    /// Round trip of each echo by time of sending, ns on the run's clock.
    sent: BTreeMap<u64, Option<u64>>,
}

struct Sender {
    courses: Vec<Course>,
    clock: RunClock,
    stop: Arc<AtomicBool>,
}

impl Sender {
    fn run(mut self) -> Vec<HopProbes> {
        let (epoch, epoch_ns) = (Instant::now(), self.clock.now_ns());
        let on_clock = |at: Instant| {
            epoch_ns.saturating_add(at.saturating_duration_since(epoch).as_nanos() as u64)
        };
        let mut due_ns = epoch_ns;
        for _ in 0..ECHOES_MAX {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.courses.iter_mut().for_each(|course| course.send(on_clock));
            due_ns += INTERVAL.as_nanos() as u64;
            // A late thread skips slots, as the prober of the far end does.
            due_ns = due_ns.max(self.clock.now_ns());
            self.clock.sleep_until(due_ns);
            self.courses.iter_mut().for_each(|course| course.read(on_clock));
        }
        self.courses.into_iter().map(Course::finish).collect()
    }
}

impl Course {
    fn send(&mut self, on_clock: impl Fn(Instant) -> u64) {
        // An echo that the kernel refuses is not lost: nothing was sent.
        if let Some(Ok(sent)) = self.echoes.as_mut().map(Echoes::send) {
            self.sent.insert(on_clock(sent), None);
        }
    }

    fn read(&mut self, on_clock: impl Fn(Instant) -> u64) {
        for echo in self.echoes.iter_mut().flat_map(Echoes::answered) {
            if echo.round_trip <= ANSWER_MAX {
                let round_trip_ns = echo.round_trip.as_nanos() as u64;
                self.sent.insert(on_clock(echo.sent), Some(round_trip_ns));
            }
        }
    }

    fn finish(self) -> HopProbes {
        let probe = |(sent_ns, round_trip_ns)| PathProbe { sent_ns, round_trip_ns };
        HopProbes {
            hop: self.target.hop,
            address: self.target.shown,
            distance: self.target.distance,
            probes: self.sent.into_iter().map(probe).collect(),
        }
    }
}
