//! The server: one TCP port for control and load, one UDP port for probes and load.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use socket2::{Domain, SockAddr, Socket, Type};
use underload_probe::control::{Fingerprint, Result, SERVER_PORT, ServiceError, in_full};
use underload_probe::endpoint::{Gate, Reflector, ReflectorConfig, ReflectorCounts};
use underload_probe::load::{FlowHost, LoadServerConfig, UdpFlows, UdpPort};
use underload_probe::network::{Line, current_network};
use underload_probe::wire::MarkingPolicy;
use underload_probe::{Counters, RunClock};

use super::address_proof::{AddressProof, is_join};
use super::counters::{ServiceCounts, ServiceState};
use super::host::Host;
use super::listener::serve;
use super::openings::Openings;
use super::strangers::strangers;
use crate::admission::{CompatLedger, Limits, LineMeter, ProbeIndex, Sessions};
use crate::identity::{Identity, PemFiles};
use crate::random::{random, unix_seconds};
use crate::tokens::{LeaseDesk, Leases, TokenDesk};

/// Addresses and limits of a server. Not printable, because it contains secrets.
pub struct ServiceConfig {
    /// At least one address to listen at.
    pub addresses: Vec<IpAddr>,
    /// TCP port of control and load; 0 for any.
    pub tcp_port: u16,
    /// UDP port of probes and load; 0 for any.
    pub udp_port: u16,
    pub limits: Limits,
    pub policy: MarkingPolicy,
    pub access: Access,
    pub identity: Identity,
    /// The interfaces whose traffic counts against the capacity.
    pub line: Line,
    /// Parses leases; `None` if the server accepts none.
    pub leases: Option<Arc<dyn Leases>>,
    /// The directory that stores the uses of tokens and leases. `None` keeps them in memory, until
    /// the server ends.
    pub state: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Everybody,
    /// Clients with a token that is signed with a key of this file.
    Tokens(PathBuf),
    /// Clients with a token, and clients without one, which have a separate quota.
    TokensOrAnonymous(PathBuf),
    /// Clients with a lease; others may probe, but send no load.
    Leases,
}

impl ServiceConfig {
    /// Default TCP and UDP port.
    pub const PORT: u16 = SERVER_PORT;

    /// Returns a configuration for loopback: default ports, every client, generous limits.
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
    pub addresses: Vec<SocketAddr>,
    udp_port: u16,
    host: Arc<Host>,
    renewal: Mutex<Renewal>,
    limits: Limits,
    sessions: Arc<Sessions>,
    counters: Arc<Counters<ServiceCounts>>,
    flows: Arc<FlowHost<Sessions>>,
    stop: Arc<AtomicBool>,
    drains: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    reflector: Reflector,
}

/// The fingerprint that clients pin, and the files that may change it.
struct Renewal {
    fingerprint: Fingerprint,
    files: Option<PemFiles>,
}

impl Service {
    /// Binds all ports and starts to serve.
    ///
    /// # Errors
    /// Returns an error if an address is in use or not this machine's, a thread cannot be started,
    /// the certificate is unusable, or others can read the keys.
    pub fn start(config: ServiceConfig) -> Result<Self> {
        let (listeners, addresses) = bind_tcp(&config.addresses, config.tcp_port)?;
        let (sockets, udp_port) = bind_udp(&config.addresses, config.udp_port)?;
        let (fingerprint, files) = (config.identity.fingerprint(), config.identity.files());
        let (tokens, admits_anonymous) = match &config.access {
            Access::Everybody => (None, true),
            Access::Tokens(path) => (Some(path), false),
            Access::TokensOrAnonymous(path) => (Some(path), true),
            Access::Leases => (None, false),
        };
        let state = config.state.as_deref();
        let tokens = tokens.map(|path| TokenDesk::open(path, fingerprint, state)).transpose()?;
        let open = |source: &_| LeaseDesk::open(Arc::clone(source), state, unix_seconds());
        let (leases, warning) = config.leases.as_ref().map(open).transpose()?.unzip();

        let sessions = Arc::new(Sessions::new(config.limits));
        let udp_flows = Arc::new(UdpFlows::default());
        let reflector = start_reflector(sockets, &config, &sessions, &udp_flows)?;
        let (load, shared_port) = (load_config(&config), UdpPort::Shared(udp_port, udp_flows));
        let flows = FlowHost::new(current_network(), load, Arc::clone(&sessions), shared_port);
        let flows = Arc::new(flows);
        let (stop, drains) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let counters = Arc::new(Counters::<ServiceCounts>::default());
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
        let error = |source| ServiceError::Socket { step: "starting the accepting thread", source };
        let accepting = Arc::clone(&host);
        let thread = Builder::new()
            .name("accept".to_owned())
            .spawn(move || serve(&accepting, &listeners, LineMeter::new(config.line)))
            .map_err(error)?;
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

    /// Returns the first of [`Service::addresses`].
    pub fn address(&self) -> SocketAddr {
        self.addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)))
    }

    /// Returns the UDP port at the same addresses.
    pub fn udp_port(&self) -> u16 {
        self.udp_port
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.renewal().fingerprint
    }

    /// Loads token keys and a certificate that were replaced on disk; to be called every second.
    /// Returns messages for the operator.
    pub fn reload_files(&self) -> Vec<String> {
        let mut news = self.host.news();
        let mut renewal = self.renewal();
        if let Some(renewed) = renewal.files.as_mut().and_then(PemFiles::renewed) {
            news.push(match renewed.and_then(|identity| self.host.serve_as(&identity)) {
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
                        "the old certificate stays in use, the new one is unusable: {}",
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

    /// Stops granting sessions, so that the server can stop when the last session has ended.
    pub fn drain(&self) {
        self.sessions.drains.store(true, Ordering::Relaxed);
        self.drains.store(true, Ordering::Relaxed);
    }

    /// Ends the sessions with leases, whose capacity may be reserved for others by now.
    pub fn end_leased(&self) {
        self.sessions.end_leased();
    }

    /// Returns the ledger for servers of other tools, which share the capacity and the quotas.
    pub fn compat(&self) -> CompatLedger {
        CompatLedger::new(&self.sessions)
    }

    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    pub fn flows(&self) -> usize {
        self.flows.flows()
    }

    pub fn probes(&self) -> ReflectorCounts {
        self.reflector.counts()
    }

    pub fn counts(&self) -> ServiceCounts {
        self.counters.read()
    }

    /// Returns the whole state, for a monitoring system.
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

const FLOWS_MAX: usize = 512;
/// Maximum number of answers per second at each address, all sessions together.
const ANSWERS_PER_SECOND: u32 = 200_000;
const BACKLOG: i32 = 256;

fn start_reflector(
    sockets: Vec<UdpSocket>,
    config: &ServiceConfig,
    sessions: &Arc<Sessions>,
    flows: &Arc<UdpFlows>,
) -> Result<Reflector> {
    let (sessions, flows) = (Arc::clone(sessions), Arc::clone(flows));
    let (proof, clock) = (Arc::new(AddressProof::new(&random()?)), RunClock::start());
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
            let answered = proof.answer(datagram, from, now_ns, answer, join);
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

fn bind_tcp(addresses: &[IpAddr], mut port: u16) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let (mut listeners, mut bound) = (Vec::new(), Vec::new());
    for address in addresses {
        let (socket, local) = bind(SocketAddr::new(*address, port), Type::STREAM, |socket, at| {
            socket.set_reuse_address(true)?;
            socket.bind(at).and_then(|()| socket.listen(BACKLOG))?;
            socket.set_nonblocking(true)
        })?;
        port = local.port();
        bound.push(local);
        listeners.push(socket.into());
    }
    Ok((listeners, bound))
}

fn bind_udp(addresses: &[IpAddr], mut port: u16) -> Result<(Vec<UdpSocket>, u16)> {
    let mut sockets = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        // Only a socket that does not share its port notices another server there.
        drop(bind(address, Type::DGRAM, Socket::bind)?);
        let (socket, local) = bind(address, Type::DGRAM, |socket, at| {
            // Each UDP flow opens a separate socket at the same port.
            socket.set_reuse_port(true)?;
            socket.bind(at)
        })?;
        port = local.port();
        sockets.push(socket.into());
    }
    Ok((sockets, port))
}

/// Opens a socket that `bind` binds to `address`. Returns it and its local address.
fn bind(
    address: SocketAddr,
    kind: Type,
    bind: impl FnOnce(&Socket, &SockAddr) -> std::io::Result<()>,
) -> Result<(Socket, SocketAddr)> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), kind, None)?;
        if address.is_ipv6() {
            // IPv4 has separate sockets, so that no address is an IPv4-mapped one.
            socket.set_only_v6(true)?;
        }
        bind(&socket, &address.into())?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((socket, local))
    };
    let transport = if kind == Type::STREAM { "TCP" } else { "UDP" };
    open().map_err(|source| ServiceError::Bind { transport, address, source })
}
