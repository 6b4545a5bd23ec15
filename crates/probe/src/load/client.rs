//! The near end of a flow: what to ask the server for, and the thread that then runs it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use underload_record::schema::Direction;

use super::opened::{FlowContext, Opened};
use super::peer::{connect, set_marking};
use super::protocol::{FlowKind, Request, Response, Token};
use super::tcp_info::TcpInfo;
use super::{
    DeliveredLog, FlowLog, HANDSHAKE_MAX, LoadError, LoadFlow, Transport, set_congestion_control,
    tcp_client, udp_client,
};
use crate::clock::RunClock;
use crate::network::{POLL_INTERVAL, SocketSource};

/// A running flow. Dropping it ends and joins it.
#[derive(Debug)]
pub struct FlowHandle {
    stop: Arc<AtomicBool>,
    delivered: Arc<DeliveredLog>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<FlowLog, LoadError>>>,
}

/// Starts `flow` towards the load server at `server`, with sockets from `network`. The connection
/// is made by the flow's own thread; what can be refused without it is refused here.
///
/// `duration_max` is what the server is told: it ends the flow then, whatever happened to us.
///
/// # Errors
/// [`LoadError`]: a congestion control that the kernel lacks, a parameter out of range, no socket,
/// no thread.
pub fn start_flow(
    flow: &LoadFlow,
    server: SocketAddr,
    network: &Arc<dyn SocketSource>,
    clock: RunClock,
    duration_max: Duration,
    token: Token,
) -> Result<FlowHandle, LoadError> {
    check(flow)?;
    let socket = open_socket(flow, server, network.as_ref())?;
    let stop = Arc::new(AtomicBool::new(false));
    let delivered = Arc::new(DeliveredLog::default());
    let sent = Arc::<AtomicU64>::default();
    let context = FlowContext {
        flow: flow.clone(),
        server,
        network: Arc::clone(network),
        clock,
        stop: Arc::clone(&stop),
        delivered: Arc::clone(&delivered),
        sent: Arc::clone(&sent),
        duration_max,
        token,
    };
    let thread = Builder::new()
        .name(format!("load-{}", flow.name))
        .spawn(move || run(&context, socket))
        .map_err(|source| socket_error(flow, "starting its thread", source))?;
    Ok(FlowHandle { stop, delivered, sent, thread: Some(thread) })
}

impl FlowHandle {
    /// Payload bytes known to be delivered so far.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered.last().map_or(0, |record| record.bytes)
    }

    /// Returns the payload bytes written to the TCP connection so far, including those that the
    /// server has not reported as arrived; 0 for UDP.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Payload bytes delivered by `time_ns`, interpolated; `None` while that is not known yet.
    pub fn bytes_at(&self, time_ns: u64) -> Option<u64> {
        self.delivered.bytes_at(time_ns)
    }

    /// True if it ended by itself, which no flow should.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells it to end, without waiting.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends it within a tenth of a second and gives what it recorded.
    ///
    /// # Errors
    /// [`LoadError`] if it never began: no connection, refused by the server.
    pub fn finish(mut self) -> Result<FlowLog, LoadError> {
        self.stop();
        let Some(thread) = self.thread.take() else { return Ok(FlowLog::default()) };
        let panicked = |_| LoadError::Protocol { what: "a flow's thread panicked" };
        thread.join().map_err(panicked)?
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn check(flow: &LoadFlow) -> Result<(), LoadError> {
    let Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets } = flow.transport else {
        return Ok(());
    };
    if !(64..=1500).contains(&packet_bytes) {
        return Err(LoadError::Parameter {
            name: "UDP packet size",
            value: packet_bytes.to_string(),
            accepted: "64 to 1500 bytes",
        });
    }
    if burst_packets == 0 {
        return Err(LoadError::Parameter {
            name: "UDP burst",
            value: "0".to_owned(),
            accepted: "1 packet and more",
        });
    }
    if rate_bit_per_s == 0 {
        return Err(LoadError::Parameter {
            name: "UDP rate",
            value: "0".to_owned(),
            accepted: "1 bit/s and more",
        });
    }
    Ok(())
}

fn open_socket(
    flow: &LoadFlow,
    server: SocketAddr,
    network: &dyn SocketSource,
) -> Result<Socket, LoadError> {
    let domain = Domain::for_address(server);
    let socket = network
        .socket(domain, Type::STREAM)
        .map_err(|source| socket_error(flow, "opening a socket", source))?;
    if let Transport::Tcp { congestion_control } = &flow.transport {
        set_congestion_control(&SockRef::from(&socket), congestion_control)?;
        set_marking(&SockRef::from(&socket), domain, flow.marking)
            .map_err(|source| socket_error(flow, "setting its DSCP", source))?;
    }
    Ok(socket)
}

fn socket_error(flow: &LoadFlow, step: &'static str, source: std::io::Error) -> LoadError {
    LoadError::Socket { flow: flow.name.clone(), step, source }
}

fn run(context: &FlowContext, socket: Socket) -> Result<FlowLog, LoadError> {
    let start_ns = context.clock.now_ns() + context.flow.start_after.as_nanos() as u64;
    while context.clock.now_ns() < start_ns {
        if context.stop.load(Ordering::Relaxed) {
            return Ok(FlowLog::default());
        }
        let next_look_ns = context.clock.now_ns() + POLL_INTERVAL.as_nanos() as u64;
        context.clock.sleep_until(start_ns.min(next_look_ns));
    }
    let opened = match open(context, socket) {
        // Told to end before it began: nothing happened.
        Err(LoadError::Cancelled) => return Ok(FlowLog::default()),
        opened => opened?,
    };
    let mut log = match (&context.flow.transport, context.flow.direction) {
        (Transport::Tcp { .. }, Direction::Up) => tcp_client::send(context, &opened),
        (Transport::Tcp { .. }, Direction::Down) => tcp_client::receive(context, &opened),
        (Transport::Udp { .. }, Direction::Up) => udp_client::send(context, &opened)?,
        (Transport::Udp { .. }, Direction::Down) => udp_client::receive(context, &opened)?,
    };
    log.delivered = context.delivered.take();
    log.bytes_sent = context.sent.load(Ordering::Relaxed);
    Ok(log)
}

fn open(context: &FlowContext, socket: Socket) -> Result<Opened, LoadError> {
    let FlowContext { flow, clock, .. } = context;
    let until_ns = clock.now_ns() + HANDSHAKE_MAX.as_nanos() as u64;
    let stop = Arc::clone(&context.stop);
    let peer = connect(socket, context.server, &flow.name, *clock, stop, until_ns)?;
    if let Transport::Tcp { congestion_control } = &flow.transport {
        // Connecting takes the route's own over what was set before (`congctl` of `ip route`).
        set_congestion_control(&SockRef::from(&peer.stream), congestion_control)?;
    }
    peer.write_all(&request(context).encode()?, until_ns)?;
    let mut head = [0; Response::HEAD_LEN];
    peer.read_exact(&mut head, until_ns)?;
    let answered_ns = clock.now_ns();
    let mut reason = vec![0; Response::reason_len(&head)?];
    peer.read_exact(&mut reason, until_ns)?;
    match Response::decode(&head, &reason)? {
        Response::Refused { reason } => Err(LoadError::Refused { flow: flow.name.clone(), reason }),
        Response::Accepted { udp_port, cookie } => {
            let round_trip_us = TcpInfo::of(&peer.stream).map_or(0, |info| info.rtt_min_us);
            let half_ns = u64::from(round_trip_us) * 1_000 / 2;
            let accepted_ns = answered_ns.saturating_sub(half_ns);
            Ok(Opened { peer, accepted_ns, udp_port, cookie })
        }
    }
}

fn request(context: &FlowContext) -> Request {
    let flow = &context.flow;
    let mut request = Request {
        kind: FlowKind::TcpUp,
        marking: flow.marking,
        rate_bit_per_s: 0,
        packet_bytes: 0,
        burst_packets: 0,
        duration_max_ms: u32::try_from(context.duration_max.as_millis()).unwrap_or(u32::MAX),
        congestion_control: String::new(),
        token: context.token,
    };
    match &flow.transport {
        Transport::Tcp { congestion_control } => {
            request.congestion_control.clone_from(congestion_control);
            if flow.direction == Direction::Down {
                request.kind = FlowKind::TcpDown;
            }
        }
        Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets } => {
            request.rate_bit_per_s = *rate_bit_per_s;
            request.packet_bytes = *packet_bytes;
            request.burst_packets = *burst_packets;
            request.kind = match flow.direction {
                Direction::Up => FlowKind::UdpUp,
                Direction::Down => FlowKind::UdpDown,
            };
        }
    }
    request
}
