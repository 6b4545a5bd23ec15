//! The server: control connections, each with a thread and at most one session.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::ServiceError;
use super::control::{
    CONVERSATION_MAX, LOOK_INTERVAL, is_temporary, prepare, read_message, write_message,
};
use super::identity::{Fingerprint, Identity};
use super::ledger::{Ask, Denial, Limits};
use super::message::{Answer, PROTOCOL, Question, to_hex};
use super::sessions::{Granted, Sessions};
use crate::endpoint::{Reflector, ReflectorConfig, ReflectorCounts};
use crate::load::{LoadServer, LoadServerConfig, Token};
use crate::network::current_network;

/// Where a server listens and what it allows. Not printable: it holds secrets.
pub struct ServiceConfig {
    /// Where control connections come.
    pub control: SocketAddr,
    /// Where load flows come, over TCP.
    pub load: SocketAddr,
    /// Where probes come, over UDP.
    pub probe: SocketAddr,
    /// What sessions may have.
    pub limits: Limits,
    /// Without it nobody gets a session; `None` lets everybody ask.
    pub secret: Option<String>,
    /// Who the server is.
    pub identity: Identity,
}

impl ServiceConfig {
    /// Default TCP port of control connections and UDP port of probes.
    pub const PORT: u16 = 4862;
    /// Default TCP port of load flows.
    pub const LOAD_PORT: u16 = 4863;

    /// Loopback only, default ports and limits, no secret.
    pub fn on_loopback(identity: Identity) -> Self {
        let at = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self {
            control: at(Self::PORT),
            load: at(Self::LOAD_PORT),
            probe: at(Self::PORT),
            limits: Limits::default(),
            secret: None,
            identity,
        }
    }
}

/// What became of control connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Sessions granted.
    pub granted: u64,
    /// Told to come back later.
    pub busy: u64,
    /// Told no.
    pub refused: u64,
    /// Connections that never asked properly, or one too many.
    pub dropped: u64,
}

/// A running server. Dropping it ends all sessions and joins all threads.
#[derive(Debug)]
pub struct Service {
    control: SocketAddr,
    fingerprint: Fingerprint,
    sessions: Arc<Sessions>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    // Held for their lives; dropped after the sessions are over.
    reflector: Reflector,
    load_server: LoadServer,
}

#[derive(Debug, Default)]
struct Counters {
    granted: AtomicU64,
    busy: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    connections: AtomicUsize,
}

/// Control connections without a session at most, beside those with one.
const WAITING_MAX: usize = 16;

impl Service {
    /// Binds everything and serves.
    ///
    /// # Errors
    /// [`ServiceError`]: an address in use or not ours, no threads, an unusable certificate.
    pub fn start(config: ServiceConfig) -> Result<Self, ServiceError> {
        let failed = |step| move |source| ServiceError::Socket { step, source };
        let control_listener =
            TcpListener::bind(config.control).map_err(failed("binding the control port"))?;
        let load_listener =
            TcpListener::bind(config.load).map_err(failed("binding the load port"))?;
        let probe_socket =
            UdpSocket::bind(config.probe).map_err(failed("binding the probe port"))?;
        let control = control_listener.local_addr().map_err(failed("reading the control port"))?;
        let probe = probe_socket.local_addr().map_err(failed("reading the probe port"))?;
        control_listener.set_nonblocking(true).map_err(failed("not blocking"))?;

        let sessions = Arc::new(Sessions::new(config.limits));
        let known = Arc::clone(&sessions);
        let reflector =
            Reflector::start_for(vec![probe_socket], ReflectorConfig::default(), move |address| {
                known.knows(unmapped(address))
            })?;
        let load_config = LoadServerConfig {
            duration_max: config.limits.duration_max,
            ..LoadServerConfig::default()
        };
        let load_server = LoadServer::start_for_sessions(
            load_listener,
            current_network(),
            load_config,
            Arc::clone(&sessions),
        )?;
        let fingerprint = config.identity.fingerprint();
        let counters = Arc::new(Counters::default());
        let stop = Arc::new(AtomicBool::new(false));
        let host = Host {
            tls: config.identity.server_config()?,
            secret: config.secret,
            connections_max: config.limits.sessions_max + WAITING_MAX,
            load_port: load_server.address().port(),
            probe_port: probe.port(),
            sessions: Arc::clone(&sessions),
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
        };
        let host = Arc::new(host);
        let thread = Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&host, &control_listener))
            .map_err(failed("starting the control thread"))?;
        Ok(Self {
            control,
            fingerprint,
            sessions,
            counters,
            stop,
            thread: Some(thread),
            reflector,
            load_server,
        })
    }

    /// Where control connections come.
    pub fn address(&self) -> SocketAddr {
        self.control
    }

    /// What clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Sessions under way.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Load flows under way, all sessions.
    pub fn flows(&self) -> usize {
        self.load_server.flows()
    }

    /// What became of probes so far.
    pub fn probes(&self) -> ReflectorCounts {
        self.reflector.counts()
    }

    /// What became of control connections so far.
    pub fn counts(&self) -> ServiceCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServiceCounts {
            granted: read(&self.counters.granted),
            busy: read(&self.counters.busy),
            refused: read(&self.counters.refused),
            dropped: read(&self.counters.dropped),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Host {
    tls: Arc<ServerConfig>,
    secret: Option<String>,
    connections_max: usize,
    load_port: u16,
    probe_port: u16,
    sessions: Arc<Sessions>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

/// A place among the connections, given back whichever way its thread ends.
struct Place(Arc<Counters>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(host: &Arc<Host>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !host.stop.load(Ordering::Relaxed) {
        threads.retain(|thread| !thread.is_finished());
        let mut descriptors = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // An early end of the wait costs one more turn.
        let _ = poll(&mut descriptors, PollTimeout::from(LOOK_INTERVAL.as_millis() as u8));
        match listener.accept() {
            Ok((socket, from)) => threads.extend(welcome(host, socket, from)),
            Err(error) if is_temporary(&error) => {}
            // Out of descriptors, or a connection that died before it was accepted.
            Err(_) => std::thread::sleep(LOOK_INTERVAL),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn welcome(host: &Arc<Host>, socket: TcpStream, from: SocketAddr) -> Option<JoinHandle<()>> {
    let place = Place(Arc::clone(&host.counters));
    if host.counters.connections.fetch_add(1, Ordering::Relaxed) >= host.connections_max {
        host.counters.dropped.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let host = Arc::clone(host);
    let body = move || {
        let _place = place;
        if host.converse(socket, unmapped(from.ip())).is_err() {
            host.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    };
    Builder::new().name("control-session".to_owned()).spawn(body).ok()
}

type Secured = StreamOwned<ServerConnection, TcpStream>;

impl Host {
    fn converse(&self, socket: TcpStream, from: IpAddr) -> Result<(), ServiceError> {
        let step = "preparing a control connection";
        prepare(&socket).map_err(|source| ServiceError::Socket { step, source })?;
        let connection = ServerConnection::new(Arc::clone(&self.tls))
            .map_err(|error| ServiceError::Tls(error.to_string()))?;
        let mut stream = StreamOwned::new(connection, socket);
        let until = Instant::now() + CONVERSATION_MAX;
        let question: Question = read_message(&mut stream, until)?;
        let (answer, granted) = self.decide(&question, from)?;
        let counter = match answer {
            Answer::Granted { .. } => &self.counters.granted,
            Answer::Busy { .. } => &self.counters.busy,
            Answer::Refused { .. } => &self.counters.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        // A client that is gone before it got its answer is no failure of the conversation.
        if write_message(&mut stream, &answer, until).is_ok()
            && let Some(granted) = granted
        {
            self.hold(&mut stream, &granted);
        }
        stream.conn.send_close_notify();
        let _ = stream.conn.complete_io(&mut stream.sock);
        Ok(())
    }

    fn decide(
        &self,
        question: &Question,
        from: IpAddr,
    ) -> Result<(Answer, Option<Granted>), ServiceError> {
        let refused = |reason: &str| (Answer::Refused { reason: reason.to_owned() }, None);
        if question.protocol != PROTOCOL {
            return Ok(refused(&format!("protocol {PROTOCOL} is spoken here")));
        }
        if self.secret.as_ref().is_some_and(|secret| !is_same(secret, question.secret.as_deref())) {
            return Ok(refused("the secret is wrong or missing"));
        }
        let ask = Ask {
            up_bit_per_s: question.up_bit_per_s,
            down_bit_per_s: question.down_bit_per_s,
            duration: Duration::from_millis(question.duration_ms),
        };
        let token = Token(random()?);
        match self.sessions.open(ask, from, token) {
            Ok(granted) => {
                let answer = Answer::Granted {
                    token: to_hex(&token.0),
                    load_port: self.load_port,
                    probe_port: self.probe_port,
                    lease_ms: granted.left().as_millis() as u64,
                };
                Ok((answer, Some(granted)))
            }
            Err(Denial::TooMuch(reason)) => Ok(refused(&reason)),
            Err(Denial::Busy(retry_after)) => {
                // Up to a second more by chance: those who wait must not all come back at once.
                let [low, high] = random::<2>()?;
                let chance_ms = u64::from(u16::from_be_bytes([low, high])) % 1_000;
                let retry_after_ms = retry_after.as_millis() as u64 + chance_ms;
                Ok((Answer::Busy { retry_after_ms }, None))
            }
        }
    }

    /// Until the client closes, the session is over, or the server stops. The client has nothing
    /// more to say.
    fn hold(&self, stream: &mut Secured, granted: &Granted) {
        while !granted.share.is_over() && !self.stop.load(Ordering::Relaxed) {
            match stream.read(&mut [0; 64]) {
                Err(error) if is_temporary(&error) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// An IPv4 client of a dual-stack socket is an IPv4 client.
fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Compares digests, so that the time it takes says nothing about the secret.
fn is_same(secret: &str, offered: Option<&str>) -> bool {
    let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let offered = digest(offered.unwrap_or_default());
    let wanted = digest(secret);
    let pairs = wanted.as_ref().iter().zip(offered.as_ref());
    std::hint::black_box(pairs.fold(0, |sum, (a, b)| sum | (a ^ b))) == 0
}

fn random<const N: usize>() -> Result<[u8; N], ServiceError> {
    let mut octets = [0; N];
    let filled = SystemRandom::new().fill(&mut octets);
    filled.map_err(|_| ServiceError::Tls("no randomness".to_owned()))?;
    Ok(octets)
}
