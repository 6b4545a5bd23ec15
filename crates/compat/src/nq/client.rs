//! A responsiveness test: it loads one direction with more and more connections and sends probes.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Method;
use hyper::client::conn::http2::SendRequest;
use socket2::SockRef;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use underload_probe::load::{acknowledged_bytes, set_congestion_control};
use underload_probe::network::{connect_first, current_network};
use underload_probe::rpm::{Responsiveness, RoundTrips};
use underload_record::schema::Direction;

use super::answer::{Content, InFlight};
use super::config::{NqConfig, NqTarget, WELL_KNOWN};
use super::connection::{Connection, Peer, STEP_MAX, connect_error};
use super::lease::Lease;
use super::stability::{INTERVALS, Stability};
use super::{NqError, NqTrust};
use crate::https;

/// Options of a test. The defaults are the draft's, except for its interval of 5 s, which makes a
/// test of both directions take minutes; up to version 08 it was 1 s, as here.
#[derive(Clone, Debug)]
pub struct NqOptions {
    pub direction: Direction,
    /// Time between two decisions about load (the draft's ID).
    pub interval: Duration,
    /// Largest number of load connections (the draft's MNP).
    pub connections_max: usize,
    /// Probes of each of the two kinds per second; the draft's MPS allows 100 of both kinds
    /// together. The intervals that count have 60 of each by default, enough for a p90.
    pub probes_per_s: u32,
    /// The test ends after this time, stable or not.
    pub duration_max: Duration,
    /// Congestion control of uploads; `None` keeps the system's. For downloads the server decides.
    pub congestion_control: Option<String>,
    /// Ends the test within an interval once it becomes true.
    pub cancelled: Arc<AtomicBool>,
}

impl NqOptions {
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            interval: Duration::from_secs(1),
            connections_max: 16,
            probes_per_s: 15,
            duration_max: Duration::from_secs(20),
            congestion_control: None,
            cancelled: Arc::default(),
        }
    }
}

/// Throughput and responsiveness that a test measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NqResult {
    /// Round trips per minute by each formula; `None` unless both kinds of probes returned.
    pub responsiveness: Option<Responsiveness>,
    /// Goodput of the last [`INTERVALS`] intervals, bit/s. For uploads these are bytes acknowledged
    /// by the server's TCP, with the framing of TLS and HTTP (0.3 %), not bytes in buffers here.
    pub goodput_bit_per_s: f64,
    pub connections: usize,
    pub intervals: usize,
    pub goodput_is_stable: bool,
    pub responsiveness_is_stable: bool,
    /// Probes of the last [`INTERVALS`] intervals.
    pub round_trips: RoundTrips,
    /// Probes that failed or did not return in time.
    pub failed: u64,
    /// The smallest TCP handshake of all measurements of the client, the one before the load included.
    pub smallest_tcp_ns: Option<u64>,
    /// Payload that all load connections moved, ramp included.
    pub moved_bytes: u64,
}

impl NqResult {
    /// The draft's confidence: low if fewer than [`INTERVALS`] intervals ran, high if goodput and
    /// responsiveness are stable, else medium.
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

pub struct NqClient {
    peer: Peer,
    config: NqConfig,
    /// The server that the user chose.
    chosen: NqTarget,
    runtime: tokio::runtime::Runtime,
    moved_bytes: AtomicU64,
    smallest_tcp_ns: AtomicU64,
}

struct Shared {
    peer: Peer,
    config: NqConfig,
    direction: Direction,
    congestion_control: Option<String>,
    received: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    uploads: Vec<Arc<Upload>>,
    ended_bytes: u64,
    senders: Vec<SendRequest<Content>>,
    round_trips: RoundTrips,
    /// Probes that failed or did not return in time.
    failed: u64,
}

struct Upload {
    socket: OwnedFd,
    acknowledged_before: u64,
    /// Bytes passed to the connection.
    written: Arc<AtomicU64>,
}

impl Upload {
    fn bytes(&self) -> u64 {
        let acknowledged = acknowledged_bytes(&self.socket).unwrap_or(0);
        let since = acknowledged.saturating_sub(self.acknowledged_before);
        // Requests of probes share the connection, so `since` can exceed the payload.
        since.min(self.written.load(Ordering::Relaxed))
    }
}

/// Moves an upload from the open ones to the ended ones when it is dropped.
struct OpenUpload<'a> {
    shared: &'a Shared,
    upload: Arc<Upload>,
}

impl Drop for OpenUpload<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended_bytes += self.upload.bytes();
        state.uploads.retain(|upload| !Arc::ptr_eq(upload, &self.upload));
    }
}

struct Interval {
    goodput_bit_per_s: f64,
    round_trips: RoundTrips,
}

/// Pause before a load connection that ended is opened again.
const RETRY: Duration = Duration::from_millis(200);
/// Payload of one upload request; a server may end it sooner.
const UPLOAD_BYTES: u64 = 8 << 30;
/// A probe without an answer after this time counts as failed.
const PROBE_MAX: Duration = Duration::from_secs(5);

impl NqClient {
    /// Requests the configuration at `url`, or at the well-known path if `url` has none.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or trusted, or its configuration is
    /// unusable.
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
            .map_err(|source| connect_error("starting threads for", &target, source))?;
        let tls = trust.client_config(b"h2")?;
        let found = addresses(&target)?;
        let peer = Peer { address: fastest(&target, &found)?, target: target.clone(), tls };
        let config = runtime.block_on(async {
            let mut connection = peer.connect().await?;
            let fetched = timeout(STEP_MAX, peer.fetch(&mut connection.sender, &target.path));
            let late = |late: Elapsed| connect_error("asking", &target, late.into());
            let json = fetched.await.map_err(late)??;
            let host = target.authority();
            NqConfig::decode(&json).map_err(|what| NqError::Config { host, what })
        })?;
        let (chosen, target) = (target, config.small.clone());
        let by: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        let found = https::allowed(addresses(&target)?, &by)
            .map_err(|source| connect_error("connecting to", &target, source))?;
        let peer = Peer { address: fastest(&target, &found)?, target, ..peer };
        let (moved_bytes, smallest_tcp_ns) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Ok(Self { peer, config, chosen, runtime, moved_bytes, smallest_tcp_ns })
    }

    /// Returns the server that is measured if it is another one than the user chose: the chosen
    /// server's configuration names it.
    pub fn named(&self) -> Option<String> {
        let named = self.peer.target.authority();
        (named != self.chosen.authority()).then_some(named)
    }

    /// Loads and probes until goodput and responsiveness are stable or the time is up.
    ///
    /// # Errors
    /// Returns an error if no load connection can be opened or no probe returned.
    pub fn measure(&self, options: &NqOptions) -> Result<NqResult, NqError> {
        let shared = Arc::new(Shared {
            peer: self.peer.clone(),
            config: self.config.clone(),
            direction: options.direction,
            congestion_control: options.congestion_control.clone(),
            received: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let outcome = self.runtime.block_on(run(Arc::clone(&shared), options));
        let moved_bytes = shared.moved_bytes();
        self.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        outcome.map(|result| {
            let own_ns = result.smallest_tcp_ns.unwrap_or(u64::MAX);
            let smallest_ns = self.smallest_tcp_ns.fetch_min(own_ns, Ordering::Relaxed).min(own_ns);
            NqResult { moved_bytes, smallest_tcp_ns: Some(smallest_ns), ..result }
        })
    }

    /// Returns the payload that all measurements moved, failed ones included.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }
}

fn addresses(target: &NqTarget) -> Result<Vec<SocketAddr>, NqError> {
    let found = (target.host.as_str(), target.port).to_socket_addrs();
    Ok(found.map_err(|source| connect_error("resolving", target, source))?.collect())
}

/// Returns the address that answers first, so that a broken IPv4 or IPv6 path costs little.
fn fastest(target: &NqTarget, found: &[SocketAddr]) -> Result<SocketAddr, NqError> {
    if let [only] = found {
        return Ok(*only);
    }
    match connect_first(found, &*current_network(), STEP_MAX, &|| false) {
        Ok((_, address)) => Ok(address),
        Err(Some(silence)) => Err(connect_error("connecting to", target, silence.source)),
        Err(None) => Err(NqError::Nothing("the server's name has no address")),
    }
}

async fn run(shared: Arc<Shared>, options: &NqOptions) -> Result<NqResult, NqError> {
    // Fails immediately if no connection to the server can be opened. Its handshake is idle.
    let idle = shared.peer.connect().await?;
    shared.set_congestion_control(&idle)?;
    let idle_ns = idle.tcp_ns();
    drop(idle);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&shared).send_probes(options.probes_per_s.max(1)));
    let start = Instant::now();
    let (mut goodput, mut responsiveness) = (Stability::default(), Stability::default());
    let mut intervals: Vec<Interval> = Vec::new();
    let mut result = NqResult::default();
    let is_cancelled = || options.cancelled.load(Ordering::Relaxed);
    while start.elapsed() + options.interval <= options.duration_max && !is_cancelled() {
        if result.connections < options.connections_max && !result.goodput_is_stable {
            result.connections += 1;
            tasks.spawn(Arc::clone(&shared).keep_loaded());
        }
        let interval = shared.watch(options.interval).await;
        result.goodput_is_stable |= goodput.push(interval.goodput_bit_per_s);
        let rpm = interval.round_trips.responsiveness();
        let is_settled = rpm.is_some_and(|rpm| responsiveness.push(rpm.draft_09));
        intervals.push(interval);
        result.responsiveness_is_stable = is_settled && result.goodput_is_stable;
        if result.responsiveness_is_stable {
            break;
        }
    }
    tasks.abort_all();
    result.failed = shared.state().failed;
    let handshakes = intervals.iter().flat_map(|it| &it.round_trips.foreign_tcp_ns).copied();
    result.smallest_tcp_ns = handshakes.chain([idle_ns]).min();
    result.intervals = intervals.len();
    let counted = &intervals[intervals.len().saturating_sub(INTERVALS)..];
    result.goodput_bit_per_s =
        counted.iter().map(|interval| interval.goodput_bit_per_s).sum::<f64>()
            / counted.len().max(1) as f64;
    for interval in counted {
        let (all, more) = (&mut result.round_trips, &interval.round_trips);
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
    /// Waits for one interval and returns its goodput and the probes that returned in it.
    async fn watch(&self, interval: Duration) -> Interval {
        let (start, before) = (Instant::now(), self.moved_bytes());
        sleep_until((start + interval).into()).await;
        let bytes = self.moved_bytes().saturating_sub(before);
        let goodput_bit_per_s = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
        let round_trips = std::mem::take(&mut self.state().round_trips);
        Interval { goodput_bit_per_s, round_trips }
    }

    fn moved_bytes(&self) -> u64 {
        let state = self.state();
        let open_bytes: u64 = state.uploads.iter().map(|upload| upload.bytes()).sum();
        self.received.load(Ordering::Relaxed) + state.ended_bytes + open_bytes
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one connection loaded until the task is aborted.
    async fn keep_loaded(self: Arc<Self>) {
        loop {
            // A failure shows as less goodput; the next attempt may succeed.
            let _ = self.load().await;
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Sets the congestion control of an upload's connection, if one is given.
    fn set_congestion_control(&self, connection: &Connection) -> Result<(), NqError> {
        match (&self.congestion_control, self.direction) {
            (Some(name), Direction::Up) => {
                Ok(set_congestion_control(&SockRef::from(&connection.socket), name)?)
            }
            _ => Ok(()),
        }
    }

    async fn load(&self) -> Result<(), NqError> {
        let mut connection = self.peer.connect().await?;
        self.set_congestion_control(&connection)?;
        self.state().senders.push(connection.sender.clone());
        match self.direction {
            Direction::Down => {
                let path = &self.config.large.path;
                let none = Content::Ready(None);
                let response =
                    self.peer.request(&mut connection.sender, Method::GET, path, none).await?;
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    let frame = frame.map_err(|source| self.peer.http_error("loading", source))?;
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    self.received.fetch_add(bytes, Ordering::Relaxed);
                }
            }
            Direction::Up => {
                let path = &self.config.upload.path;
                let lease = Lease::new(Duration::from_hours(1), UPLOAD_BYTES);
                let socket = connection.socket.try_clone();
                let socket =
                    socket.map_err(|source| connect_error("loading", &self.peer.target, source))?;
                let acknowledged_before = acknowledged_bytes(&socket).unwrap_or(0);
                let written: Arc<AtomicU64> = Arc::default();
                let body =
                    Content::generated(UPLOAD_BYTES, InFlight::new(&lease), Arc::clone(&written));
                let upload = Arc::new(Upload { socket, acknowledged_before, written });
                self.state().uploads.push(Arc::clone(&upload));
                let _open = OpenUpload { shared: self, upload };
                self.peer.request(&mut connection.sender, Method::POST, path, body).await?;
            }
        }
        Ok(())
    }

    /// Starts two probes at a time, one of each kind, at a fixed rate regardless of their results.
    async fn send_probes(self: Arc<Self>, per_s: u32) {
        let mut ticks = interval(Duration::from_secs(1) / per_s);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probes = JoinSet::new();
        for turn in 0usize.. {
            ticks.tick().await;
            while probes.try_join_next().is_some() {}
            let shared = Arc::clone(&self);
            probes.spawn(async move { shared.probe_new_connection().await });
            let shared = Arc::clone(&self);
            probes.spawn(async move { shared.probe_loaded(turn).await });
        }
    }

    async fn probe_new_connection(&self) {
        let probe = self.peer.probe_new_connection(&self.config.small.path);
        let outcome = timeout(PROBE_MAX, probe).await;
        let mut state = self.state();
        let Ok(Ok([tcp_ns, tls_ns, http_ns])) = outcome else {
            state.failed += 1;
            return;
        };
        state.round_trips.foreign_tcp_ns.push(tcp_ns);
        state.round_trips.foreign_tls_ns.push(tls_ns);
        state.round_trips.foreign_http_ns.push(http_ns);
    }

    /// Probes one of the loaded connections, another one at each `turn`.
    async fn probe_loaded(&self, turn: usize) {
        let sender = {
            let senders = &mut self.state().senders;
            senders.retain(|sender| !sender.is_closed());
            let count = senders.len().max(1);
            senders.get(turn % count).cloned()
        };
        let Some(mut sender) = sender else { return };
        let probe = self.peer.probe(&mut sender, &self.config.small.path);
        match timeout(PROBE_MAX, probe).await {
            Ok(Ok(ns)) => self.state().round_trips.loaded_http_ns.push(ns),
            _ => self.state().failed += 1,
        }
    }
}
