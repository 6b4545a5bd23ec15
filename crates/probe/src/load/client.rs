//! The client's end of a flow: the request to the server, and the flow's thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use underload_record::schema::Direction;

use super::opened::{FlowContext, Opened};
use super::pace::{Pace, header_bytes};
use super::peer::{connect, set_marking};
use super::protocol::{FlowKind, Request, Response, Token};
use super::tcp_info::TcpInfo;
use super::{
    DeliveredLog, FlowLog, HANDSHAKE_MAX, LoadError, LoadFlow, Transport, set_congestion_control,
    tcp_client, udp_client,
};
use crate::clock::RunClock;
use crate::network::{POLL_INTERVAL, SocketSource};

/// A running flow. Dropping it ends the flow and joins its thread.
#[derive(Debug)]
pub struct FlowHandle {
    stop: Arc<AtomicBool>,
    delivered: Arc<DeliveredLog>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<FlowLog, LoadError>>>,
}

/// Starts `flow` to the load server at `server`, with sockets from `network`. Checks the parameters
/// and opens the socket; the flow's thread then connects.
///
/// The server ends the flow after `duration_max`, even if this client fails.
///
/// # Errors
/// Returns an error if the kernel lacks the congestion control, a parameter is out of range, or the
/// socket or the thread cannot be created.
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
    /// Returns the payload bytes known to be delivered so far.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered.last().map_or(0, |record| record.bytes)
    }

    /// Returns the payload bytes sent so far, including those that the server has not reported as
    /// arrived.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the payload bytes delivered by `time_ns`, interpolated; `None` while that is
    /// unknown.
    pub fn bytes_at(&self, time_ns: u64) -> Option<u64> {
        self.delivered.bytes_at(time_ns)
    }

    /// Returns true if the flow has ended; a flow that ends before [`FlowHandle::stop`] has failed.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Signals the flow to end, without waiting.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the flow within 100 ms and returns its log.
    ///
    /// # Errors
    /// Returns an error if the flow could not connect or the server refused it.
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
    let range = |is_valid: bool, name, value: u64, accepted| {
        let error = || LoadError::Parameter { name, value: value.to_string(), accepted };
        is_valid.then_some(()).ok_or_else(error)
    };
    let is_valid = (64..=1500).contains(&packet_bytes);
    range(is_valid, "UDP packet size", packet_bytes.into(), "64 to 1500 bytes")?;
    range(burst_packets > 0, "UDP burst", burst_packets.into(), "1 packet and more")?;
    range(rate_bit_per_s > 0, "UDP rate", rate_bit_per_s, "1 bit/s and more")
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
        // Stopped before it began.
        Err(LoadError::Cancelled) => return Ok(FlowLog::default()),
        opened => opened?,
    };
    let mut log = FlowLog::default();
    let outcome = match (&context.flow.transport, context.flow.direction) {
        (Transport::Tcp { .. }, Direction::Up) => tcp_client::send(context, &opened, &mut log),
        (Transport::Tcp { .. }, Direction::Down) => tcp_client::receive(context, &opened, &mut log),
        (&Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets }, Direction::Up) => {
            let socket = udp_client::open_socket(context, &opened)?;
            let (header_bytes, cookie) = (header_bytes(context.server), opened.cookie);
            let pace = Pace { rate_bit_per_s, packet_bytes, burst_packets, header_bytes, cookie };
            udp_client::send(context, &opened, &socket, pace, &mut log)
        }
        (Transport::Udp { .. }, Direction::Down) => {
            let socket = udp_client::open_socket(context, &opened)?;
            udp_client::receive(context, &opened, &socket, &mut log)
        }
    };
    log.failure = outcome.err().map(|error| error.to_string());
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
        // Connecting replaces the congestion control by the route's (`congctl` of `ip route`).
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
            let round_trip_us = TcpInfo::read(&peer.stream).map_or(0, |info| info.rtt_min_us);
            let half_ns = u64::from(round_trip_us) * 1_000 / 2;
            let accepted_ns = answered_ns.saturating_sub(half_ns);
            Ok(Opened { peer, accepted_ns, udp_port, cookie })
        }
    }
}

fn request(context: &FlowContext) -> Request {
    let flow = &context.flow;
    let is_up = flow.direction == Direction::Up;
    let (kind, udp, congestion_control) = match &flow.transport {
        Transport::Tcp { congestion_control } => {
            let kind = if is_up { FlowKind::TcpUp } else { FlowKind::TcpDown };
            (kind, (0, 0, 0), congestion_control.clone())
        }
        &Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets } => {
            let kind = if is_up { FlowKind::UdpUp } else { FlowKind::UdpDown };
            (kind, (rate_bit_per_s, packet_bytes, burst_packets), String::new())
        }
    };
    Request {
        kind,
        marking: flow.marking,
        rate_bit_per_s: udp.0,
        packet_bytes: udp.1,
        burst_packets: udp.2,
        duration_max_ms: u32::try_from(context.duration_max.as_millis()).unwrap_or(u32::MAX),
        congestion_control,
        token: context.token,
    }
}
