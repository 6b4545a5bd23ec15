//! The load server: a listener, and a thread with a lease per flow.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Type};
use underload_record::schema::Direction;

use super::admission::{Admission, Everybody, FlowShare};
use super::congestion::check_present;
use super::lease::Lease;
use super::pace::{Pace, header_bytes};
use super::peer::{Peer, set_marking};
use super::protocol::{DatagramHeader, FlowKind, Request, Response, Token};
use super::udp_port::{SharedEnd, UdpEnd, UdpFlows};
use super::{HANDSHAKE_MAX, LoadError, set_congestion_control};
use crate::clock::RunClock;
use crate::network::{self, SocketSource};
use crate::wire::MarkingPolicy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadServerConfig {
    pub flows_max: usize,
    /// Longest duration that a flow may request; the server's clock then ends the flow.
    pub duration_max: Duration,
    /// Highest rate of a UDP flow down, bit/s.
    pub udp_rate_max_bit_per_s: u64,
    /// DSCP and ECN values that clients may request for the server's packets.
    pub policy: MarkingPolicy,
    /// A flow needs this token; `None` admits every flow.
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
    /// Returns the configuration for a lab: every marking, 1024 flows of two hours.
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
    host: Arc<FlowHost<Everybody>>,
    thread: Option<JoinHandle<()>>,
}

impl LoadServer {
    /// Serves on `listener`. UDP flows use sockets from `network` on the same address.
    ///
    /// # Errors
    /// Returns [`LoadError::Socket`] if the listener cannot be configured or the thread not
    /// started.
    pub fn start(
        listener: TcpListener,
        network: Arc<dyn SocketSource>,
        config: LoadServerConfig,
    ) -> Result<Self, LoadError> {
        let error =
            |step| move |source| LoadError::Socket { flow: "load server".to_owned(), step, source };
        let address = listener.local_addr().map_err(error("reading its address"))?;
        listener.set_nonblocking(true).map_err(error("making its socket non-blocking"))?;
        let everybody = Arc::new(Everybody { token: config.token });
        let host = Arc::new(FlowHost::new(network, config, everybody, UdpPort::Own));
        let serving = Arc::clone(&host);
        let thread = Builder::new()
            .name("load-server".to_owned())
            .spawn(move || serve(&serving, &listener))
            .map_err(error("starting its thread"))?;
        Ok(Self { address, host, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn flows(&self) -> usize {
        self.host.flows()
    }
}

impl Drop for LoadServer {
    fn drop(&mut self) {
        self.host.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state that the threads of all flows of a server share.
pub struct FlowHost<A> {
    network: Arc<dyn SocketSource>,
    config: LoadServerConfig,
    admission: Arc<A>,
    udp: UdpPort,
    clock: RunClock,
    stop: Arc<AtomicBool>,
    flows: Arc<AtomicUsize>,
}

/// The port to which a client sends the datagrams of its UDP flows.
pub enum UdpPort {
    /// Each flow has a separate port.
    Own,
    /// All flows use this port, whose reader passes on their first datagrams.
    Shared(u16, Arc<UdpFlows>),
}

/// A flow's place among [`LoadServerConfig::flows_max`], freed when the flow's thread ends.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<A> std::fmt::Debug for FlowHost<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowHost").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<A: Admission> FlowHost<A> {
    pub fn new(
        network: Arc<dyn SocketSource>,
        config: LoadServerConfig,
        admission: Arc<A>,
        udp: UdpPort,
    ) -> Self {
        let (stop, flows) = (Arc::default(), Arc::default());
        Self { network, config, admission, udp, clock: RunClock::start(), stop, flows }
    }

    pub fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Serves the flow that arrives on `stream`, in the calling thread, until it ends. Drops
    /// `stranger` as soon as the flow is admitted.
    pub fn carry(&self, stream: TcpStream, from: SocketAddr, stranger: impl Sized) {
        // The client notices an error: its connection closes.
        let _ = self.run_flow(stream, from, None, stranger);
    }

    /// Reserves a place for one more flow, or returns the reason of a refusal.
    fn take_place(&self) -> Result<Place, String> {
        let place = Place(Arc::clone(&self.flows));
        if self.flows.fetch_add(1, Ordering::Relaxed) < self.config.flows_max {
            return Ok(place);
        }
        Err(format!("busy with {} flows, try again later", self.config.flows_max))
    }

    /// `place` is `None` if it is reserved after the flow is admitted.
    fn run_flow(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        place: Option<Place>,
        stranger: impl Sized,
    ) -> Result<(), LoadError> {
        let peer = Peer::new(stream, "served", self.clock, Arc::clone(&self.stop))?;
        let until_ns = self.clock.now_ns() + HANDSHAKE_MAX.as_nanos() as u64;
        let mut bytes = [0; Request::LEN];
        peer.read_exact(&mut bytes, until_ns)?;
        let request = Request::decode(&bytes)?;
        let begun = self.admit(&request, from.ip()).and_then(|claimed| {
            let place = place.map_or_else(|| self.take_place(), Ok)?;
            let (share, flow_place) = claimed;
            let (response, task) = self.begin(&peer, &request, from, &share)?;
            Ok((response, task, share, (place, flow_place)))
        });
        match begun {
            Err(reason) => {
                // Closes without a reset, so that the client can read the reason.
                let _ = SockRef::from(&peer.stream).set_linger(None);
                peer.write_all(&Response::Refused { reason }.encode(), until_ns)
            }
            Ok((response, task, share, _places)) => {
                drop(stranger);
                peer.write_all(&response.encode(), until_ns)?;
                let accepted_ns = self.clock.now_ns();
                let lease_ns = u64::from(request.duration_max_ms) * 1_000_000;
                let end_ns = accepted_ns + lease_ns;
                let lease = Lease { peer: &peer, accepted_ns, end_ns, share };
                let run = match task {
                    Task::TcpSink => lease.sink_tcp(),
                    Task::TcpSource => lease.source_tcp(),
                    Task::UdpSink(end) => lease.sink_udp(end),
                    Task::UdpSource(end, pace) => lease.source_udp(end, pace),
                };
                run.map_err(peer.error("carrying the flow"))
            }
        }
    }

    /// Checks the request against the limits. Returns a refusal in words for the client.
    fn admit(&self, request: &Request, from: IpAddr) -> Result<(A::Share, A::Place), String> {
        let config = &self.config;
        let (share, place) = self.admission.admit(&request.token, from.to_canonical())?;
        let direction = match request.kind {
            FlowKind::TcpUp | FlowKind::UdpUp => Direction::Up,
            FlowKind::TcpDown | FlowKind::UdpDown => Direction::Down,
        };
        if share.bit_per_s(direction) == 0 {
            return Err(format!("the session was granted nothing {direction}"));
        }
        let duration_max_ms = config.duration_max.as_millis();
        if u128::from(request.duration_max_ms) > duration_max_ms {
            let asked = request.duration_max_ms;
            return Err(format!("{asked} ms is too long, at most {duration_max_ms} ms"));
        }
        if !config.policy.allows_dscp(request.marking.dscp) {
            return Err(format!("this server does not send DSCP {}", request.marking.dscp));
        }
        if request.marking.ecn.bits() == 3 && !config.policy.congestion_experienced_allowed {
            return Err("this server does not send CE".to_owned());
        }
        if !request.kind.is_tcp() && !(64..=1500).contains(&request.packet_bytes) {
            return Err("packets must have 64 to 1500 bytes".to_owned());
        }
        let rate_max = config.udp_rate_max_bit_per_s;
        if request.kind == FlowKind::UdpDown && request.rate_bit_per_s > rate_max {
            return Err(format!("the rate is too high, at most {rate_max} bit/s"));
        }
        Ok((share, place))
    }

    fn begin(
        &self,
        peer: &Peer,
        request: &Request,
        from: SocketAddr,
        share: &A::Share,
    ) -> Result<(Response, Task), String> {
        let domain = Domain::for_address(from);
        match request.kind {
            FlowKind::TcpUp => {
                let socket = SockRef::from(&peer.stream);
                keep_window_small(&socket, share);
                if !A::ADMITS_STRANGERS {
                    // Marks are echoed as the receiver's congestion control does: DCTCP reports
                    // each of them (RFC 8257, section 3.2), others repeat one (RFC 3168).
                    set_congestion_control(&socket, &request.congestion_control)
                        .map_err(|error| error.to_string())?;
                }
                Ok((Response::Accepted { udp_port: 0, cookie: 0 }, Task::TcpSink))
            }
            FlowKind::TcpDown => {
                let socket = SockRef::from(&peer.stream);
                if A::ADMITS_STRANGERS {
                    check_present(&request.congestion_control)?;
                }
                set_congestion_control(&socket, &request.congestion_control)
                    .map_err(|error| error.to_string())?;
                set_marking(&socket, domain, request.marking)
                    .map_err(|error| format!("DSCP: {error}"))?;
                Ok((Response::Accepted { udp_port: 0, cookie: 0 }, Task::TcpSource))
            }
            FlowKind::UdpUp | FlowKind::UdpDown => {
                let cookie =
                    random_cookie().map_err(|error| format!("no random cookie: {error}"))?;
                let mut addresses = vec![from.ip().to_canonical()];
                addresses.extend(share.joined());
                let opened = self.open_udp(peer, request, from, cookie, addresses);
                let (end, udp_port) = opened.map_err(|error| format!("UDP: {error}"))?;
                let pace = Pace {
                    rate_bit_per_s: granted_rate(request, share),
                    packet_bytes: request.packet_bytes,
                    burst_packets: request.burst_packets.max(1),
                    header_bytes: header_bytes(from),
                    cookie,
                };
                let task = match request.kind {
                    FlowKind::UdpDown => Task::UdpSource(end, pace),
                    _ => Task::UdpSink(end),
                };
                Ok((Response::Accepted { udp_port, cookie }, task))
            }
        }
    }

    fn open_udp(
        &self,
        peer: &Peer,
        request: &Request,
        from: SocketAddr,
        cookie: u64,
        addresses: Vec<IpAddr>,
    ) -> io::Result<(UdpEnd, u16)> {
        // Bind the address that the client reached, so that answers come from there.
        let mut local = peer.stream.local_addr()?;
        let marking = request.marking;
        if let UdpPort::Shared(port, flows) = &self.udp {
            local.set_port(*port);
            let network = &self.network;
            let end = SharedEnd::new(flows, network, local, marking, cookie, addresses);
            return Ok((UdpEnd::Shared(Some(end)), *port));
        }
        let domain = Domain::for_address(local);
        let socket = self.network.socket(domain, Type::DGRAM)?;
        set_marking(&SockRef::from(&socket), domain, marking)?;
        let _ = socket.set_recv_buffer_size(4 << 20);
        local.set_port(0);
        socket.bind(&local.into())?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr()?.port();
        Ok((UdpEnd::Own { socket, cookie, from: from.ip() }, port))
    }
}

/// Accepts connections until stopped, and starts a thread per flow.
fn serve<A: Admission>(host: &Arc<FlowHost<A>>, listener: &TcpListener) {
    network::serve(listener, &host.stop, |stream, from| welcome(host, stream, from));
}

/// Starts a flow's thread. Refuses a flow above the limit from this thread, without waiting.
fn welcome<A: Admission>(
    host: &Arc<FlowHost<A>>,
    stream: TcpStream,
    from: SocketAddr,
) -> Option<JoinHandle<()>> {
    let place = match host.take_place() {
        Ok(place) => place,
        Err(reason) => {
            let _ = stream.set_nonblocking(true);
            let _ = (&stream).write(&Response::Refused { reason }.encode());
            return None;
        }
    };
    let host = Arc::clone(host);
    let body = move || {
        let _ = host.run_flow(stream, from, Some(place), ());
    };
    Builder::new().name("load-flow".to_owned()).spawn(body).ok()
}

/// Limits the receive buffer of a slow session: what the kernel receives before the server reads it
/// has already used the line. A high rate needs the window that the kernel finds by itself.
fn keep_window_small(socket: &SockRef<'_>, share: &impl FlowShare) {
    let half_second_bytes = share.bit_per_s(Direction::Up) / 16;
    if half_second_bytes < u64::from(WINDOW_BYTES.1) {
        // If the kernel refuses, the window is unchanged.
        let bytes = (half_second_bytes as usize).max(WINDOW_BYTES.0 as usize);
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

/// The smallest window that is set, and the size from which no window is set. Every kernel allows
/// both.
const WINDOW_BYTES: (u32, u32) = (16 << 10, 200 << 10);

/// Returns the rate of a UDP flow down: the requested one, or the share's if that is lower.
fn granted_rate(request: &Request, share: &impl FlowShare) -> u64 {
    let granted = share.bit_per_s(Direction::Down);
    if request.kind == FlowKind::UdpDown && request.rate_bit_per_s > granted {
        share.note_limited(Direction::Down);
    }
    request.rate_bit_per_s.min(granted)
}

enum Task {
    TcpSink,
    TcpSource,
    UdpSink(UdpEnd),
    UdpSource(UdpEnd, Pace),
}

/// Returns an unpredictable cookie, so that only the TCP peer can name the flow in a datagram.
fn random_cookie() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(DatagramHeader::cookie(u64::from_be_bytes(bytes)))
}
