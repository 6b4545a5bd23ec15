//! The near end of constant-rate UDP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::PollFlags;
use socket2::{Domain, SockRef, Type};

use super::opened::{FlowContext, Opened, ReportReader};
use super::pace::{Pace, PacedCounts, send_paced};
use super::peer::set_marking;
use super::protocol::DatagramHeader;
use super::{Delivered, FlowLog, LoadError, RECORD_INTERVAL, Transport};
use crate::network::is_temporary;

/// Sends at the flow's rate until told to stop, and notes what the server says arrived.
pub(super) fn send(context: &FlowContext, opened: &Opened) -> Result<FlowLog, LoadError> {
    let socket = open_socket(context, opened)?;
    let Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets } = context.flow.transport
    else {
        return Err(LoadError::Protocol { what: "a TCP flow was sent as UDP" });
    };
    let header_bytes = super::pace::header_bytes(context.server);
    let cookie = opened.cookie;
    let pace = Pace { rate_bit_per_s, packet_bytes, burst_packets, header_bytes, cookie };
    let counts = PacedCounts::default();
    let over = AtomicBool::new(false);
    let mut log = FlowLog::default();
    let is_stopped = || over.load(Ordering::Relaxed) || opened.peer.is_stopped();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let admits = |_| Ok(());
            send_paced(&socket, pace, context.clock, u64::MAX, is_stopped, admits, &counts);
        });
        let failure = follow_reports(context, opened);
        log.failure = failure.err().map(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
    });
    log.packets_sent = Some(counts.packets.load(Ordering::Relaxed));
    Ok(log)
}

fn follow_reports(context: &FlowContext, opened: &Opened) -> io::Result<()> {
    let mut reports = ReportReader::default();
    while !opened.peer.is_stopped() {
        let ready = opened.peer.wait(PollFlags::POLLIN, u64::MAX)?;
        if !ready.is_empty() {
            reports.read(opened, |delivered| context.delivered.note(delivered))?;
        }
    }
    opened.peer.check_connected()
}

/// Asks for the flow's datagrams and counts them until told to stop.
pub(super) fn receive(context: &FlowContext, opened: &Opened) -> Result<FlowLog, LoadError> {
    let socket = open_socket(context, opened)?;
    let mut log = FlowLog::default();
    log.failure =
        receive_into(context, opened, &socket, &mut log).err().map(|error| error.to_string());
    Ok(log)
}

/// From one request for the flow to the next, until its first datagram arrives.
const ASK_INTERVAL_NS: u64 = 200_000_000;

fn receive_into(
    context: &FlowContext,
    opened: &Opened,
    socket: &UdpSocket,
    log: &mut FlowLog,
) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let clock = context.clock;
    let mut reports = ReportReader::default();
    let mut arrived = Delivered::default();
    let (mut next_record_ns, mut next_ask_ns) = (0, 0);
    let mut datagram = [0; 2048];
    while !opened.peer.is_stopped() {
        arrived.time_ns = clock.now_ns();
        if arrived.packets == 0 && arrived.time_ns >= next_ask_ns {
            next_ask_ns = arrived.time_ns + ASK_INTERVAL_NS;
            let header = DatagramHeader { cookie: opened.cookie, sequence: 0 };
            let _ = socket.send(&header.encode());
        }
        if arrived.time_ns >= next_record_ns {
            next_record_ns = arrived.time_ns + RECORD_INTERVAL.as_nanos() as u64;
            context.delivered.note(arrived);
            reports.read(opened, |sent| log.packets_sent = Some(sent.packets))?;
        }
        match socket.recv(&mut datagram) {
            Ok(len) => {
                let header = DatagramHeader::decode(&datagram[..len]);
                if header.is_some_and(|header| header.cookie == opened.cookie) {
                    arrived.packets += 1;
                    arrived.bytes += len as u64;
                }
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    arrived.time_ns = clock.now_ns();
    context.delivered.note(arrived);
    opened.peer.check_connected()
}

/// A socket that is connected to the port that the server named.
fn open_socket(context: &FlowContext, opened: &Opened) -> Result<UdpSocket, LoadError> {
    let flow = &context.flow;
    let failed = |step| move |source| LoadError::Socket { flow: flow.name.clone(), step, source };
    let domain = Domain::for_address(context.server);
    let socket = context.network.socket(domain, Type::DGRAM).map_err(failed("opening a socket"))?;
    set_marking(&SockRef::from(&socket), domain, flow.marking).map_err(failed("setting DSCP"))?;
    // A smaller buffer than asked for is no failure: the kernel caps it by its own limit.
    let _ = socket.set_recv_buffer_size(4 << 20);
    let target = SocketAddr::new(context.server.ip(), opened.udp_port);
    socket.connect(&target.into()).map_err(failed("connecting to the UDP port"))?;
    Ok(socket.into())
}
