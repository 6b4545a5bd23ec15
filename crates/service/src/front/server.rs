//! The server: one TCP port for control and load, one UDP port for probes and load.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use socket2::{Domain, Socket, Type};

use underload_probe::RunClock;
use underload_probe::control::{Fingerprint, SERVER_PORT, ServiceError, in_full};
use underload_probe::endpoint::{Gate, Reflector, ReflectorConfig, ReflectorCounts};
use underload_probe::load::{FlowHost, LoadServerConfig, UdpFlows, UdpPort};
use underload_probe::network::{Line, current_network};
use underload_probe::wire::MarkingPolicy;

use super::counters::{Counters, ServiceCounts, ServiceState};
use super::door::{Door, is_join};
use super::host::Host;
use super::listener::serve;
use super::openings::Openings;
use super::strangers::strangers;
use crate::admission::{CompatLedger, Limits, LineMeter, ProbeIndex, Sessions};
use crate::identity::{Identity, PemFiles};
use crate::random::{random, unix_seconds};
use crate::tokens::{LeaseDesk, Leases, TokenDesk};

/// Where a server listens and what it allows. Not printable: it holds secrets.
pub struct ServiceConfig {
    /// Addresses to listen at, at least one.
    pub addresses: Vec<IpAddr>,
    /// TCP port of control and load; 0 for any.
    pub tcp_port: u16,
    /// UDP port of probes and load; 0 for any.
    pub udp_port: u16,
    /// What sessions may have.
    pub limits: Limits,
    /// Which markings it sends on request.
    pub policy: MarkingPolicy,
    /// Who may have a session.
    pub access: Access,
    /// Who the server is.
    pub identity: Identity,
    /// Which line it is at, if its traffic is to count.
    pub line: Line,
    /// Who reads leases; `None` where there are none.
    pub leases: Option<Arc<dyn Leases>>,
    /// The directory of what has to outlive a restart: uses of tokens and of leases. Without one
    /// they are forgotten when the server ends.
    pub state: Option<PathBuf>,
}

/// Who may have a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Everybody,
    /// Who shows a token that is signed with a key of this file.
    Tokens(PathBuf),
    /// The same, and whoever shows none, with a quota of its own.
    TokensOrAnonymous(PathBuf),
    /// Who shows a lease; others may probe, and load nothing.
    Leases,
}

impl ServiceConfig {
    /// Default TCP and UDP port.
    pub const PORT: u16 = SERVER_PORT;

    /// Loopback only, default ports, everybody, what one machine can do.
    pub fn on_loopback(identity: Identity) -> Self {
        Self {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            tcp_port: Self::PORT,
            udp_port: Self::PORT,
            limits: Limits::generous(),
            policy: MarkingPolicy::PUBLIC,
            access: Access::Everybody,
            identity,
            line: Line::Ignored,
            leases: None,
            state: None,
        }
    }
}

/// A running server. Dropping it ends all sessions and joins all threads.
pub struct Service {
    addresses: Vec<SocketAddr>,
    udp_port: u16,
    host: Arc<Host>,
    renewal: Mutex<Renewal>,
    limits: Limits,
    sessions: Arc<Sessions>,
    counters: Arc<Counters>,
    flows: Arc<FlowHost<Sessions>>,
    stop: Arc<AtomicBool>,
    drains: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    reflector: Reflector,
}

/// What clients pin, and the files that may change it.
#[derive(Debug)]
struct Renewal {
    fingerprint: Fingerprint,
    files: Option<PemFiles>,
}

impl Service {
    /// Binds everything and serves.
    ///
    /// # Errors
    /// [`ServiceError`]: an address in use or not ours, no threads, an unusable certificate, keys
    /// that others can read.
    pub fn start(config: ServiceConfig) -> Result<Self, ServiceError> {
        let (listeners, addresses) = bind_tcp(&config.addresses, config.tcp_port)?;
        let (sockets, udp_port) = bind_udp(&config.addresses, config.udp_port)?;
        let (fingerprint, files) = (config.identity.fingerprint(), config.identity.files());
        let (tokens, admits_anonymous) = match &config.access {
            Access::Everybody => (None, true),
            Access::Tokens(path) => (Some(path), false),
            Access::TokensOrAnonymous(path) => (Some(path), true),
            Access::Leases => (None, false),
        };
        let (names, state) = (config.identity.names(), config.state.as_deref());
        let tokens = tokens.map(|path| TokenDesk::open(path, names, state)).transpose()?;
        let open = |source: &_| LeaseDesk::open(Arc::clone(source), state, unix_seconds());
        let (leases, warning) = config.leases.as_ref().map(open).transpose()?.unzip();

        let sessions = Arc::new(Sessions::new(config.limits));
        let udp_flows = Arc::new(UdpFlows::default());
        let reflector = start_reflector(sockets, &config, &sessions, &udp_flows)?;
        let (load, shared_port) = (load_config(&config), UdpPort::Shared(udp_port, udp_flows));
        let flows = FlowHost::new(current_network(), load, Arc::clone(&sessions), shared_port);
        let flows = Arc::new(flows);
        let (stop, drains) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let counters = Arc::new(Counters::default());
        let host = Arc::new(Host {
            tls: Mutex::new(config.identity.server_config()?),
            tokens: tokens.map(Mutex::new),
            leases: leases.map(Mutex::new),
            warnings: Mutex::new(warning.flatten().into_iter().collect()),
            admits_anonymous,
            dscp_allowed: config.policy.dscp_allowed,
            udp_port,
            sessions: Arc::clone(&sessions),
            flows: Arc::clone(&flows),
            strangers: strangers(),
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
            drains: Arc::clone(&drains),
        });
        let failed =
            |source| ServiceError::Socket { step: "starting the accepting thread", source };
        let accepting = Arc::clone(&host);
        let thread = Builder::new()
            .name("accept".to_owned())
            .spawn(move || serve(&accepting, &listeners, LineMeter::new(config.line)))
            .map_err(failed)?;
        Ok(Self {
            addresses,
            udp_port,
            host,
            renewal: Mutex::new(Renewal { fingerprint, files }),
            limits: config.limits,
            sessions,
            counters,
            flows,
            stop,
            drains,
            thread: Some(thread),
            reflector,
        })
    }

    /// Where TCP connections come; the first of [`Service::addresses`].
    pub fn address(&self) -> SocketAddr {
        self.addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)))
    }

    /// Where TCP connections come.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The UDP port, at the same addresses.
    pub fn udp_port(&self) -> u16 {
        self.udp_port
    }

    /// What clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.renewal().fingerprint
    }

    /// Takes up keys of tokens, and a certificate, that were replaced on disk; to be called every
    /// second or so. What the operator should know of it, in words.
    pub fn tend(&self) -> Vec<String> {
        let mut news = self.host.news();
        let mut renewal = self.renewal();
        if let Some(renewed) = renewal.files.as_mut().and_then(PemFiles::renewed) {
            news.push(match renewed.and_then(|identity| self.host.serve_as(identity)) {
                Ok(key) if key == renewal.fingerprint => {
                    "the certificate was replaced; its key is the same".to_owned()
                }
                Ok(key) => {
                    renewal.fingerprint = key;
                    format!(
                        "the certificate was replaced by one with another key, {key}: clients that \
                         know the old one will refuse it, and tokens that name it are void"
                    )
                }
                Err(error) => {
                    format!(
                        "the old certificate stays, the new one is no good: {}",
                        in_full(&error)
                    )
                }
            });
        }
        news
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants nothing more, so that the server can stop when the last session is over.
    pub fn drain(&self) {
        self.sessions.drains.store(true, Ordering::Relaxed);
        self.drains.store(true, Ordering::Relaxed);
    }

    /// Ends the sessions that have leases: who gave them may have given the room to others.
    pub fn end_leased(&self) {
        self.sessions.end_leased();
    }

    /// For servers beside this one, whose clients take from the same capacity and quotas.
    pub fn compat(&self) -> CompatLedger {
        CompatLedger::new(&self.sessions)
    }

    /// Sessions under way.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Load flows under way, all sessions.
    pub fn flows(&self) -> usize {
        self.flows.flows()
    }

    /// What became of probes so far.
    pub fn probes(&self) -> ReflectorCounts {
        self.reflector.counts()
    }

    /// What became of connections so far.
    pub fn counts(&self) -> ServiceCounts {
        self.counters.read()
    }

    /// All there is to know, for a monitoring system.
    pub fn state(&self) -> ServiceState {
        ServiceState {
            counts: self.counts(),
            probes: self.probes(),
            sessions: self.sessions() as u64,
            flows: self.flows() as u64,
            granted_bit_per_s: self.sessions.granted(),
            capacity_bit_per_s: (self.limits.up_bit_per_s, self.limits.down_bit_per_s),
            moved_bytes: self.sessions.traffic().moved(),
            probed_bytes: self.sessions.probed(),
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sessions.stopped.store(true, Ordering::Relaxed);
        self.flows.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Flows at once over all sessions.
const FLOWS_MAX: usize = 512;
/// Answers per second at each address, all sessions together.
const ANSWERS_PER_SECOND: u32 = 200_000;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

fn start_reflector(
    sockets: Vec<UdpSocket>,
    config: &ServiceConfig,
    sessions: &Arc<Sessions>,
    flows: &Arc<UdpFlows>,
) -> Result<Reflector, ServiceError> {
    let (sessions, flows) = (Arc::clone(sessions), Arc::clone(flows));
    let (door, clock) = (Arc::new(Door::new(&random()?)), RunClock::start());
    let openings = Arc::new(Openings::new());
    let index = RefCell::new(ProbeIndex::new(&sessions));
    let gate = move |datagram: &[u8], from: SocketAddr, answer: &mut [u8]| {
        if flows.offer(datagram, from) {
            return Gate::Taken;
        }
        let address = from.ip().to_canonical();
        let admitted = index.borrow_mut().admits(address, datagram.len());
        if is_join(datagram) {
            let now_ns = clock.now_ns();
            if !admitted.unwrap_or_else(|| openings.admits(now_ns, address)) {
                return Gate::Limit;
            }
            let join = |session: &_, address| sessions.join(session, address);
            let answered = door.answer(datagram, from, now_ns, answer, join);
            return answered.map_or(Gate::Ignore, Gate::Answer);
        }
        match admitted {
            Some(true) => Gate::Reflect,
            Some(false) => Gate::Limit,
            None => Gate::Ignore,
        }
    };
    let limits = ReflectorConfig {
        packets_per_second_max: ANSWERS_PER_SECOND,
        policy: config.policy,
        ..ReflectorConfig::default()
    };
    Ok(Reflector::start_for(sockets, limits, gate)?)
}

fn load_config(config: &ServiceConfig) -> LoadServerConfig {
    LoadServerConfig {
        flows_max: FLOWS_MAX,
        duration_max: config.limits.duration_max,
        udp_rate_max_bit_per_s: config.limits.session_bit_per_s,
        policy: config.policy,
        token: None,
    }
}

fn bind_tcp(
    addresses: &[IpAddr],
    port: u16,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), ServiceError> {
    let (mut listeners, mut bound) = (Vec::new(), Vec::new());
    let mut port = port;
    for address in addresses {
        let at = SocketAddr::new(*address, port);
        let failed = |source| ServiceError::Bind { transport: "TCP", address: at, source };
        let socket = socket_at(at, Type::STREAM).map_err(failed)?;
        socket.set_reuse_address(true).map_err(failed)?;
        socket.bind(&at.into()).and_then(|()| socket.listen(BACKLOG)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from(socket);
        let local = listener.local_addr().map_err(failed)?;
        port = local.port();
        bound.push(local);
        listeners.push(listener);
    }
    Ok((listeners, bound))
}

fn bind_udp(addresses: &[IpAddr], port: u16) -> Result<(Vec<UdpSocket>, u16), ServiceError> {
    let mut sockets = Vec::new();
    let mut port = port;
    for address in addresses {
        let at = SocketAddr::new(*address, port);
        let failed = |source| ServiceError::Bind { transport: "UDP", address: at, source };
        let socket = socket_at(at, Type::DGRAM).map_err(failed)?;
        // A flow's own socket will be at the same port.
        socket.set_reuse_port(true).map_err(failed)?;
        socket.bind(&at.into()).map_err(failed)?;
        let socket = UdpSocket::from(socket);
        port = socket.local_addr().map_err(failed)?.port();
        sockets.push(socket);
    }
    Ok((sockets, port))
}

fn socket_at(address: SocketAddr, kind: Type) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        // IPv4 has sockets of its own, so that addresses are what they seem.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}
