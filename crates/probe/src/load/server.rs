//! The far end of the load: a listener, and a thread per flow with a lease.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::poll::PollFlags;
use socket2::{Domain, SockRef, Type};

use super::pace::{Pace, PacedCounts, header_octets, send_paced};
use super::peer::{Peer, is_temporary, set_marking, wait_for};
use super::protocol::{
    BLOCK_OCTETS, BlockHeader, DatagramHeader, FlowKind, Report, Request, Response, Token, payload,
};
use super::tcp_info::TcpInfo;
use super::{HANDSHAKE_MAX, LoadError, POLL_INTERVAL, RECORD_INTERVAL, set_congestion_control};
use crate::clock::RunClock;
use crate::network::SocketSource;
use crate::service::{Sessions, Share};
use crate::wire::MarkingPolicy;

/// What a load server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadServerConfig {
    /// Flows at once; more are refused.
    pub flows_max: usize,
    /// The longest that a flow may ask for; it is ended then, by this machine's clock.
    pub duration_max: Duration,
    /// The highest rate of a UDP flow down, bit/s.
    pub udp_rate_max_bit_per_s: u64,
    /// Which markings it sends on request.
    pub policy: MarkingPolicy,
    /// Without this token a flow is refused; `None` lets everyone in.
    pub token: Option<Token>,
}

impl Default for LoadServerConfig {
    /// 64 flows of two minutes, UDP up to 1 Gbit/s, harmless markings, no token.
    fn default() -> Self {
        Self {
            flows_max: 64,
            duration_max: Duration::from_mins(2),
            udp_rate_max_bit_per_s: 1_000_000_000,
            policy: MarkingPolicy::PUBLIC,
            token: None,
        }
    }
}

impl LoadServerConfig {
    /// For a network that is ours: every marking, 1024 flows of two hours.
    pub fn lab() -> Self {
        Self {
            flows_max: 1024,
            duration_max: Duration::from_hours(2),
            policy: MarkingPolicy::LAB,
            ..Self::default()
        }
    }
}

/// A running load server. Dropping it ends its flows and joins its threads.
#[derive(Debug)]
pub struct LoadServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    flows: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl LoadServer {
    /// Serves on `listener`, which the caller bound; UDP flows get sockets from `network` on the
    /// same address.
    ///
    /// # Errors
    /// [`LoadError::Socket`]: what the kernel says about the listener or the thread.
    pub fn start(
        listener: TcpListener,
        network: Arc<dyn SocketSource>,
        config: LoadServerConfig,
    ) -> Result<Self, LoadError> {
        Self::serve_at(listener, network, config, None)
    }

    /// As [`LoadServer::start`], but every flow has to carry the token of a running session and
    /// ends with it.
    pub(crate) fn start_for_sessions(
        listener: TcpListener,
        network: Arc<dyn SocketSource>,
        config: LoadServerConfig,
        sessions: Arc<Sessions>,
    ) -> Result<Self, LoadError> {
        Self::serve_at(listener, network, config, Some(sessions))
    }

    fn serve_at(
        listener: TcpListener,
        network: Arc<dyn SocketSource>,
        config: LoadServerConfig,
        sessions: Option<Arc<Sessions>>,
    ) -> Result<Self, LoadError> {
        let failed =
            |step| move |source| LoadError::Socket { flow: "load server".to_owned(), step, source };
        let address = listener.local_addr().map_err(failed("reading its address"))?;
        listener.set_nonblocking(true).map_err(failed("not blocking"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let flows = Arc::new(AtomicUsize::new(0));
        let host = Host {
            address,
            network,
            config,
            sessions,
            clock: RunClock::start(),
            stop: Arc::clone(&stop),
            flows: Arc::clone(&flows),
        };
        let thread = Builder::new()
            .name("load-server".to_owned())
            .spawn(move || host.serve(&listener))
            .map_err(failed("starting its thread"))?;
        Ok(Self { address, stop, flows, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Flows under way.
    pub fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }
}

impl Drop for LoadServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What every flow's thread shares.
#[derive(Clone)]
struct Host {
    address: SocketAddr,
    network: Arc<dyn SocketSource>,
    config: LoadServerConfig,
    sessions: Option<Arc<Sessions>>,
    clock: RunClock,
    stop: Arc<AtomicBool>,
    flows: Arc<AtomicUsize>,
}

/// A flow's place among [`LoadServerConfig::flows_max`], given back whichever way its thread ends.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Host {
    fn serve(&self, listener: &TcpListener) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            threads.retain(|thread| !thread.is_finished());
            if wait_for(listener.as_fd(), PollFlags::POLLIN, POLL_INTERVAL).is_err() {
                std::thread::sleep(POLL_INTERVAL);
            }
            match listener.accept() {
                Ok((stream, from)) => threads.extend(self.welcome(stream, from)),
                Err(error) if is_temporary(&error) => {}
                // Out of descriptors, or a connection that died before it was accepted.
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Starts a flow's thread; one too many is told so by this thread, which never waits for it.
    fn welcome(&self, stream: TcpStream, from: SocketAddr) -> Option<JoinHandle<()>> {
        let place = Place(Arc::clone(&self.flows));
        if self.flows.fetch_add(1, Ordering::Relaxed) >= self.config.flows_max {
            let reason = format!("busy with {} flows, try again later", self.config.flows_max);
            let _ = stream.set_nonblocking(true);
            let _ = (&stream).write(&Response::Refused { reason }.encode());
            return None;
        }
        let host = self.clone();
        let body = move || {
            let _place = place;
            // What goes wrong here is the client's to notice: it sees the connection close.
            let _ = host.run_flow(stream, from);
        };
        Builder::new().name("load-flow".to_owned()).spawn(body).ok()
    }

    fn run_flow(&self, stream: TcpStream, from: SocketAddr) -> Result<(), LoadError> {
        let peer = Peer::new(stream, "served", self.clock, Arc::clone(&self.stop))?;
        let until_ns = self.clock.now_ns() + HANDSHAKE_MAX.as_nanos() as u64;
        let mut octets = [0; Request::LEN];
        peer.read_exact(&mut octets, until_ns)?;
        let request = Request::decode(&octets)?;
        let begun = self.admit(&request, from.ip()).and_then(|share| {
            let (response, task) = self.begin(&peer, &request, from)?;
            Ok((response, task, share))
        });
        match begun {
            Err(reason) => {
                // Sent before the reset: an orderly close, so that the client can read why.
                let _ = SockRef::from(&peer.stream).set_linger(None);
                peer.write_all(&Response::Refused { reason }.encode(), until_ns)
            }
            Ok((response, task, share)) => {
                peer.write_all(&response.encode(), until_ns)?;
                let accepted_ns = self.clock.now_ns();
                let lease_ns = u64::from(request.duration_max_ms) * 1_000_000;
                let end_ns = accepted_ns + lease_ns;
                let lease = Lease { peer: &peer, accepted_ns, end_ns, share };
                let run = match task {
                    Task::TcpSink => lease.sink_tcp(),
                    Task::TcpSource => lease.source_tcp(),
                    Task::UdpSink(socket, cookie) => lease.sink_udp(&socket, cookie, from.ip()),
                    Task::UdpSource(socket, pace) => lease.source_udp(&socket, pace, from.ip()),
                };
                run.map_err(peer.failed("carrying the flow"))
            }
        }
    }

    /// The limits, in words for the client.
    fn admit(&self, request: &Request, from: IpAddr) -> Result<Option<Share>, String> {
        let config = &self.config;
        let share = match &self.sessions {
            None => None,
            Some(sessions) => {
                let claimed = sessions.claim(&request.token, from.to_canonical());
                Some(claimed.ok_or("no session has this token at this address")?)
            }
        };
        if config.token.is_some_and(|token| !token.matches(&request.token)) {
            return Err("the token is wrong or missing".to_owned());
        }
        let duration_max_ms = config.duration_max.as_millis();
        if u128::from(request.duration_max_ms) > duration_max_ms {
            let asked = request.duration_max_ms;
            return Err(format!("{asked} ms is too long, at most {duration_max_ms} ms"));
        }
        if !config.policy.allows_dscp(request.marking.dscp) {
            return Err(format!("DSCP {} is not sent from here", request.marking.dscp));
        }
        if request.marking.ecn.bits() == 3 && !config.policy.congestion_experienced_allowed {
            return Err("CE is not sent from here".to_owned());
        }
        let over_udp = matches!(request.kind, FlowKind::UdpUp | FlowKind::UdpDown);
        if over_udp && !(64..=1500).contains(&request.packet_octets) {
            return Err("packets must have 64 to 1500 octets".to_owned());
        }
        let rate_max = config.udp_rate_max_bit_per_s;
        if request.kind == FlowKind::UdpDown && request.rate_bit_per_s > rate_max {
            return Err(format!("the rate is too high, at most {rate_max} bit/s"));
        }
        Ok(share)
    }

    fn begin(
        &self,
        peer: &Peer,
        request: &Request,
        from: SocketAddr,
    ) -> Result<(Response, Task), String> {
        let domain = Domain::for_address(self.address);
        match request.kind {
            FlowKind::TcpUp => Ok((Response::Accepted { udp_port: 0, cookie: 0 }, Task::TcpSink)),
            FlowKind::TcpDown => {
                let options = SockRef::from(&peer.stream);
                set_congestion_control(&options, &request.congestion_control)
                    .map_err(|error| error.to_string())?;
                set_marking(&SockRef::from(&peer.stream), domain, request.marking)
                    .map_err(|error| format!("DSCP: {error}"))?;
                Ok((Response::Accepted { udp_port: 0, cookie: 0 }, Task::TcpSource))
            }
            FlowKind::UdpUp | FlowKind::UdpDown => {
                let opened = self.open_udp(peer, request, domain);
                let (socket, udp_port) = opened.map_err(|error| format!("UDP: {error}"))?;
                let cookie = random_cookie().map_err(|error| format!("no cookie: {error}"))?;
                let pace = Pace {
                    rate_bit_per_s: request.rate_bit_per_s,
                    packet_octets: request.packet_octets,
                    burst_packets: request.burst_packets.max(1),
                    header_octets: header_octets(from),
                    cookie,
                };
                let task = match request.kind {
                    FlowKind::UdpDown => Task::UdpSource(socket, pace),
                    _ => Task::UdpSink(socket, cookie),
                };
                Ok((Response::Accepted { udp_port, cookie }, task))
            }
        }
    }

    fn open_udp(
        &self,
        peer: &Peer,
        request: &Request,
        domain: Domain,
    ) -> io::Result<(UdpSocket, u16)> {
        let socket = self.network.socket(domain, Type::DGRAM)?;
        set_marking(&SockRef::from(&socket), domain, request.marking)?;
        let _ = socket.set_recv_buffer_size(4 << 20);
        // The address that the client reached, so that answers come from there.
        let mut address = peer.stream.local_addr()?;
        address.set_port(0);
        socket.bind(&address.into())?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr()?.port();
        Ok((socket, port))
    }
}

enum Task {
    TcpSink,
    TcpSource,
    UdpSink(UdpSocket, u64),
    UdpSource(UdpSocket, Pace),
}

/// Unpredictable, so that only the TCP peer can name the flow in a datagram.
fn random_cookie() -> io::Result<u64> {
    let mut octets = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(u64::from_be_bytes(octets))
}

/// An accepted flow and its time limit.
struct Lease<'a> {
    peer: &'a Peer,
    accepted_ns: u64,
    end_ns: u64,
    /// Of the session that the flow belongs to, where there are sessions.
    share: Option<Share>,
}

impl Lease<'_> {
    fn is_over(&self) -> bool {
        self.peer.is_stopped()
            || self.peer.clock.now_ns() >= self.end_ns
            || self.share.as_ref().is_some_and(Share::is_over)
    }

    fn spend(&self, octets: usize) {
        if let Some(share) = &self.share {
            share.spend(octets as u64);
        }
    }

    /// Counts what arrives and says so every 100 ms.
    fn sink_tcp(&self) -> io::Result<()> {
        let mut chunk = vec![0; 256 << 10];
        let mut reporter = Reporter::new(self);
        let mut octets = 0;
        while !self.is_over() {
            reporter.report_if_due(octets, 0)?;
            self.peer.wait(PollFlags::POLLIN, reporter.next_ns)?;
            match (&self.peer.stream).read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    octets += count as u64;
                    self.spend(count);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends blocks, each with the connection's state of the last 100 ms in front.
    fn source_tcp(&self) -> io::Result<()> {
        let mut blocks = payload(16 * BLOCK_OCTETS);
        let mut written = blocks.len();
        let mut next_header_ns = 0;
        while !self.is_over() {
            if written == blocks.len() {
                written = 0;
                let now_ns = self.peer.clock.now_ns();
                if now_ns >= next_header_ns {
                    next_header_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
                    let info = TcpInfo::of(&self.peer.stream)?;
                    let elapsed_ns = now_ns - self.accepted_ns;
                    let header = BlockHeader { elapsed_ns, info }.encode();
                    for block in blocks.chunks_exact_mut(BLOCK_OCTETS) {
                        block[..BlockHeader::LEN].copy_from_slice(&header);
                    }
                }
            }
            self.peer.wait(PollFlags::POLLOUT, self.end_ns)?;
            match (&self.peer.stream).write(&blocks[written..]) {
                Ok(count) => {
                    written += count;
                    self.spend(count);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts the datagrams that carry the cookie and come from the TCP peer's address.
    fn sink_udp(&self, socket: &UdpSocket, cookie: u64, from: IpAddr) -> io::Result<()> {
        let mut reporter = Reporter::new(self);
        let (mut octets, mut packets) = (0, 0);
        let mut datagram = [0; 2048];
        while !self.is_over() {
            reporter.report_if_due(octets, packets)?;
            self.check_alive()?;
            match socket.recv_from(&mut datagram) {
                Ok((len, sender)) => {
                    self.spend(len);
                    let header = DatagramHeader::decode(&datagram[..len]);
                    if sender.ip() == from && header.is_some_and(|header| header.cookie == cookie) {
                        octets += len as u64;
                        packets += 1;
                    }
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends at the rate agreed, once a datagram with the cookie has come from the TCP peer's
    /// address.
    fn source_udp(&self, socket: &UdpSocket, pace: Pace, from: IpAddr) -> io::Result<()> {
        let mut datagram = [0; 2048];
        loop {
            if self.is_over() {
                return Ok(());
            }
            self.check_alive()?;
            match socket.recv_from(&mut datagram) {
                Ok((len, sender)) => {
                    let header = DatagramHeader::decode(&datagram[..len]);
                    let asked = header.is_some_and(|header| header.cookie == pace.cookie);
                    if sender.ip() == from && asked {
                        socket.connect(sender)?;
                        break;
                    }
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let counts = PacedCounts::default();
        let client_gone = AtomicBool::new(false);
        let over = || client_gone.load(Ordering::Relaxed) || self.peer.is_stopped();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send_paced(socket, pace, self.peer.clock, self.end_ns, over, &counts);
            });
            let mut reporter = Reporter::new(self);
            let mut spent = 0;
            let outcome = loop {
                if self.is_over() {
                    break Ok(());
                }
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let octets = count(&counts.octets);
                self.spend((octets - spent) as usize);
                spent = octets;
                let reported = reporter.report_if_due(octets, count(&counts.packets));
                if let Err(error) = reported.and_then(|()| self.check_alive()) {
                    break Err(error);
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            client_gone.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// Fails once the client has closed the connection; it has nothing to say on it.
    fn check_alive(&self) -> io::Result<()> {
        match (&self.peer.stream).read(&mut [0; 16]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Says every 100 ms what was counted.
struct Reporter<'a> {
    lease: &'a Lease<'a>,
    next_ns: u64,
}

impl<'a> Reporter<'a> {
    fn new(lease: &'a Lease<'a>) -> Self {
        Self { lease, next_ns: lease.accepted_ns }
    }

    fn report_if_due(&mut self, octets: u64, packets: u64) -> io::Result<()> {
        let now_ns = self.lease.peer.clock.now_ns();
        if now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
        let elapsed_ns = now_ns - self.lease.accepted_ns;
        let report = Report { elapsed_ns, octets, packets }.encode();
        // A client that does not read its reports fills its own window: the flow ends, because a
        // report cut in the middle would make all later ones unreadable.
        match (&self.lease.peer.stream).write(&report) {
            Ok(Report::LEN) => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
