//! A test: more and more connections load one direction, probes watch.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Method;
use hyper::client::conn::http2::SendRequest;
use socket2::SockRef;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use underload_probe::load::{acknowledged_bytes, set_congestion_control};
use underload_probe::network::{connect_first, current_network};
use underload_probe::rpm::{Responsiveness, RoundTrips};
use underload_record::schema::Direction;

use super::answer::{Content, Lease};
use super::config::{NqConfig, NqTarget, WELL_KNOWN};
use super::connection::{Connection, FreshProbe, Peer, STEP_MAX};
use super::stability::{INTERVALS, Stability};
use super::{NqError, NqTrust};

/// How a test is done. The defaults are the draft's, but for its interval of 5 s: with that, a test
/// of both directions takes minutes; 1 s was its value up to version 08.
#[derive(Clone, Debug)]
pub struct NqOptions {
    /// The direction that is loaded.
    pub direction: Direction,
    /// The draft's ID: from one decision to the next.
    pub interval: Duration,
    /// The draft's MNP: load connections at most.
    pub connections_max: usize,
    /// Probes of each kind per second; the draft's MPS is 100 of both together.
    pub probes_per_s: u32,
    /// The test ends then, settled or not.
    pub duration_max: Duration,
    /// The congestion control of the way up; `None` leaves it to the system. Of the way down the
    /// server decides.
    pub congestion_control: Option<String>,
    /// Ends the test within an interval once it is raised.
    pub cancelled: Arc<AtomicBool>,
}

impl NqOptions {
    /// The defaults for a direction.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            interval: Duration::from_secs(1),
            connections_max: 16,
            probes_per_s: 10,
            duration_max: Duration::from_secs(20),
            congestion_control: None,
            cancelled: Arc::default(),
        }
    }
}

/// Throughput and responsiveness that a test measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NqResult {
    /// Round trips per minute by each formula; `None` unless both kinds of probes came back.
    pub responsiveness: Option<Responsiveness>,
    /// Payload moved in the last intervals, bit/s. Upwards it counts what the server's TCP has
    /// acknowledged (with TLS's and HTTP's framing, 0.3 %), not what waits in buffers here.
    pub goodput_bit_per_s: f64,
    /// Load connections at the end.
    pub connections: usize,
    /// Intervals that ran.
    pub intervals: usize,
    /// Whether goodput settled within the time.
    pub goodput_is_stable: bool,
    /// Whether responsiveness settled within the time.
    pub responsiveness_is_stable: bool,
    /// The probes of the intervals that count.
    pub round_trips: RoundTrips,
    /// Probes that failed or did not come back in time.
    pub failed: u64,
}

impl NqResult {
    /// The draft's words: low if fewer than [`super::INTERVALS`] intervals ran, high if goodput and
    /// responsiveness settled, else medium.
    pub fn confidence(&self) -> &'static str {
        if self.intervals < INTERVALS {
            "low"
        } else if self.goodput_is_stable && self.responsiveness_is_stable {
            "high"
        } else {
            "medium"
        }
    }
}

/// A client of one server.
pub struct NqClient {
    peer: Peer,
    config: NqConfig,
    runtime: tokio::runtime::Runtime,
}

/// State that the tasks of a test share.
struct Shared {
    peer: Peer,
    config: NqConfig,
    direction: Direction,
    congestion_control: Option<String>,
    received: AtomicU64,
    uploads: Mutex<Uploads>,
    senders: Mutex<Vec<SendRequest<Content>>>,
    probes: Mutex<RoundTrips>,
    failed: AtomicU64,
}

/// Connections that load upwards.
#[derive(Default)]
struct Uploads {
    open: Vec<Arc<Upload>>,
    /// Bytes that connections which have ended moved.
    ended_bytes: u64,
}

struct Upload {
    socket: OwnedFd,
    /// Bytes that were acknowledged before the upload began.
    acknowledged_before: u64,
    /// Bytes that were handed to the connection.
    written: Arc<AtomicU64>,
}

impl Upload {
    fn bytes(&self) -> u64 {
        let acknowledged = acknowledged_bytes(&self.socket).unwrap_or(0);
        let since = acknowledged.saturating_sub(self.acknowledged_before);
        // Requests of probes share the connection: payload is at most what was handed over.
        since.min(self.written.load(Ordering::Relaxed))
    }
}

/// An upload that is counted while it is under way, and once at its end.
struct Counted<'a> {
    shared: &'a Shared,
    upload: Arc<Upload>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut uploads = self.shared.uploads();
        uploads.ended_bytes += self.upload.bytes();
        uploads.open.retain(|upload| !Arc::ptr_eq(upload, &self.upload));
    }
}

/// Throughput and probes of one interval of the test.
struct Interval {
    goodput_bit_per_s: f64,
    probes: RoundTrips,
}

/// A load connection that ended is opened again after this.
const RETRY: Duration = Duration::from_millis(200);
/// One request for payload; a server may end it sooner.
const UPLOAD_BYTES: u64 = 8 << 30;
/// A probe that takes longer is lost.
const PROBE_MAX: Duration = Duration::from_secs(5);

impl NqClient {
    /// Asks `url` for its configuration. Without a path, the well-known one is taken.
    ///
    /// # Errors
    /// [`NqError`].
    pub fn open(url: &str, trust: NqTrust) -> Result<Self, NqError> {
        let mut target = NqTarget::parse(url)?;
        if target.path == "/" {
            WELL_KNOWN.clone_into(&mut target.path);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("nq-client")
            .enable_all()
            .build()
            .map_err(|source| connect("starting threads for", &target, source))?;
        let tls = trust.client_config(b"h2")?;
        let peer = Peer { address: resolve(&target)?, target: target.clone(), tls };
        let config = runtime.block_on(async {
            let mut connection = peer.connect().await?;
            let json = peer.fetch(&mut connection.sender, &target.path).await?;
            let host = target.authority();
            NqConfig::decode(&json).map_err(|what| NqError::Config { host, what })
        })?;
        let target = config.small.clone();
        let peer = Peer { address: resolve(&target)?, target, ..peer };
        Ok(Self { peer, config, runtime })
    }

    /// Loads and probes until both goodput and responsiveness have settled, or the time is up.
    ///
    /// # Errors
    /// [`NqError`]: no load connection could be opened, or no probe came back.
    pub fn measure(&self, options: &NqOptions) -> Result<NqResult, NqError> {
        let shared = Arc::new(Shared {
            peer: self.peer.clone(),
            config: self.config.clone(),
            direction: options.direction,
            congestion_control: options.congestion_control.clone(),
            received: AtomicU64::new(0),
            uploads: Mutex::default(),
            senders: Mutex::default(),
            probes: Mutex::default(),
            failed: AtomicU64::new(0),
        });
        self.runtime.block_on(run(shared, options))
    }
}

/// The first address of the server that answers: a family that leads nowhere costs little.
fn resolve(target: &NqTarget) -> Result<SocketAddr, NqError> {
    let found = (target.host.as_str(), target.port).to_socket_addrs();
    let found = found.map_err(|source| connect("resolving", target, source))?;
    let found: Vec<SocketAddr> = found.collect();
    if let [only] = found.as_slice() {
        return Ok(*only);
    }
    match connect_first(&found, &*current_network(), STEP_MAX, &|| false) {
        Ok((_, address)) => Ok(address),
        Err(Some(silence)) => Err(connect("connecting to", target, silence.source)),
        Err(None) => Err(NqError::Nothing("the server's name has no address")),
    }
}

fn connect(step: &'static str, target: &NqTarget, source: std::io::Error) -> NqError {
    NqError::Connect { step, host: target.authority(), source }
}

async fn run(shared: Arc<Shared>, options: &NqOptions) -> Result<NqResult, NqError> {
    // The first connection tells at once whether the server can be loaded at all.
    shared.send_as_asked(&shared.peer.connect().await?)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&shared).probe_for_ever(options.probes_per_s.max(1)));
    let start = Instant::now();
    let (mut goodput, mut responsiveness) = (Stability::default(), Stability::default());
    let mut intervals: Vec<Interval> = Vec::new();
    let mut result = NqResult::default();
    let is_cancelled = || options.cancelled.load(Ordering::Relaxed);
    while start.elapsed() + options.interval <= options.duration_max && !is_cancelled() {
        if result.connections < options.connections_max && !result.goodput_is_stable {
            result.connections += 1;
            tasks.spawn(Arc::clone(&shared).load_for_ever());
        }
        let interval = shared.watch(options.interval).await;
        result.goodput_is_stable |= goodput.push(interval.goodput_bit_per_s);
        let rpm = interval.probes.responsiveness();
        let is_settled = rpm.is_some_and(|rpm| responsiveness.push(rpm.draft_09));
        intervals.push(interval);
        result.responsiveness_is_stable = is_settled && result.goodput_is_stable;
        if result.responsiveness_is_stable {
            break;
        }
    }
    tasks.abort_all();
    result.failed = shared.failed.load(Ordering::Relaxed);
    result.intervals = intervals.len();
    let counted = &intervals[intervals.len().saturating_sub(INTERVALS)..];
    result.goodput_bit_per_s =
        counted.iter().map(|interval| interval.goodput_bit_per_s).sum::<f64>()
            / counted.len().max(1) as f64;
    for interval in counted {
        let (all, more) = (&mut result.round_trips, &interval.probes);
        all.foreign_tcp_ns.extend(&more.foreign_tcp_ns);
        all.foreign_tls_ns.extend(&more.foreign_tls_ns);
        all.foreign_http_ns.extend(&more.foreign_http_ns);
        all.loaded_http_ns.extend(&more.loaded_http_ns);
    }
    if result.round_trips == RoundTrips::default() {
        return Err(NqError::Nothing("no probe came back"));
    }
    result.responsiveness = result.round_trips.responsiveness();
    Ok(result)
}

impl Shared {
    /// One interval: what moved in it, which probes came back in it.
    async fn watch(&self, interval: Duration) -> Interval {
        let (start, before) = (Instant::now(), self.moved_bytes());
        sleep_until((start + interval).into()).await;
        let bytes = self.moved_bytes().saturating_sub(before);
        let goodput_bit_per_s = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        Interval { goodput_bit_per_s, probes: take(probes) }
    }

    fn moved_bytes(&self) -> u64 {
        let uploads = self.uploads();
        let under_way: u64 = uploads.open.iter().map(|upload| upload.bytes()).sum();
        self.received.load(Ordering::Relaxed) + uploads.ended_bytes + under_way
    }

    fn count(&self, upload: Upload) -> Counted<'_> {
        let upload = Arc::new(upload);
        self.uploads().open.push(Arc::clone(&upload));
        Counted { shared: self, upload }
    }

    fn uploads(&self) -> std::sync::MutexGuard<'_, Uploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one connection loaded.
    async fn load_for_ever(self: Arc<Self>) {
        loop {
            // A failure shows in the goodput; the next try may do better.
            let _ = self.load().await;
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The congestion control of what this end sends.
    fn send_as_asked(&self, connection: &Connection) -> Result<(), NqError> {
        match (&self.congestion_control, self.direction) {
            (Some(name), Direction::Up) => {
                Ok(set_congestion_control(&SockRef::from(&connection.socket), name)?)
            }
            _ => Ok(()),
        }
    }

    async fn load(&self) -> Result<(), NqError> {
        let mut connection = self.peer.connect().await?;
        self.send_as_asked(&connection)?;
        self.senders().push(connection.sender.clone());
        match self.direction {
            Direction::Down => {
                let path = &self.config.large.path;
                let none = Content::Ready(None);
                let response =
                    self.peer.ask(&mut connection.sender, Method::GET, path, none).await?;
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    let frame = frame.map_err(|source| self.peer.http("loading", source))?;
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    self.received.fetch_add(bytes, Ordering::Relaxed);
                }
            }
            Direction::Up => {
                let path = &self.config.upload.path;
                let lease = Lease::new(Duration::from_hours(1), UPLOAD_BYTES);
                let socket = connection.socket.try_clone();
                let socket =
                    socket.map_err(|source| connect("loading", &self.peer.target, source))?;
                let acknowledged_before = acknowledged_bytes(&socket).unwrap_or(0);
                let written: Arc<AtomicU64> = Arc::default();
                let body = Content::generated(UPLOAD_BYTES, lease.enter(), Arc::clone(&written));
                let _counted = self.count(Upload { socket, acknowledged_before, written });
                self.peer.ask(&mut connection.sender, Method::POST, path, body).await?;
            }
        }
        Ok(())
    }

    /// Two probes at a time, one of each kind, at a fixed rate whatever comes back.
    async fn probe_for_ever(self: Arc<Self>, per_s: u32) {
        let mut ticks = interval(Duration::from_secs(1) / per_s);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probes = JoinSet::new();
        for turn in 0usize.. {
            ticks.tick().await;
            while probes.try_join_next().is_some() {}
            let shared = Arc::clone(&self);
            probes.spawn(async move { shared.probe_afresh().await });
            let shared = Arc::clone(&self);
            probes.spawn(async move { shared.probe_loaded(turn).await });
        }
    }

    async fn probe_afresh(&self) {
        let probe = self.peer.probe_afresh(&self.config.small.path);
        match tokio::time::timeout(PROBE_MAX, probe).await {
            Ok(Ok(FreshProbe(tcp_ns, tls_ns, http_ns))) => self.note(|probes| {
                probes.foreign_tcp_ns.push(tcp_ns);
                probes.foreign_tls_ns.push(tls_ns);
                probes.foreign_http_ns.push(http_ns);
            }),
            _ => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// On the loaded connections in turn.
    async fn probe_loaded(&self, turn: usize) {
        let sender = {
            let mut senders = self.senders();
            senders.retain(|sender| !sender.is_closed());
            let count = senders.len().max(1);
            senders.get(turn % count).cloned()
        };
        let Some(mut sender) = sender else { return };
        let probe = self.peer.probe(&mut sender, &self.config.small.path);
        match tokio::time::timeout(PROBE_MAX, probe).await {
            Ok(Ok(ns)) => self.note(|probes| probes.loaded_http_ns.push(ns)),
            _ => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn note(&self, change: impl FnOnce(&mut RoundTrips)) {
        change(&mut self.probes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn senders(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Content>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(mut probes: std::sync::MutexGuard<'_, RoundTrips>) -> RoundTrips {
    std::mem::take(&mut *probes)
}
