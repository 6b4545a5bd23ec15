//! The client's end of a UDP flow at a constant rate.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, SockRef, Type};

use super::opened::{FlowContext, Opened, ReportReader};
use super::pace::{Pace, PacedCounts, send_paced};
use super::peer::set_marking;
use super::protocol::DatagramHeader;
use super::{Delivered, FlowLog, LoadError, RECORD_INTERVAL};
use crate::network::{is_transient, with_port};
use crate::system::PollFlags;

/// Sends at the flow's rate until stopped, and records the server's reports of what arrived.
pub(super) fn send(
    context: &FlowContext,
    opened: &Opened,
    socket: &UdpSocket,
    pace: Pace,
    log: &mut FlowLog,
) -> io::Result<()> {
    let counts = PacedCounts { bytes: Arc::clone(&context.sent), ..PacedCounts::default() };
    let over = AtomicBool::new(false);
    let is_stopped = || over.load(Ordering::Relaxed) || opened.peer.is_stopped();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let admits = |_| Ok(());
            send_paced(socket, pace, context.clock, u64::MAX, is_stopped, admits, &counts);
        });
        let outcome = follow_reports(context, opened);
        over.store(true, Ordering::Relaxed);
        outcome
    });
    log.packets_sent = Some(counts.packets.load(Ordering::Relaxed));
    outcome
}

fn follow_reports(context: &FlowContext, opened: &Opened) -> io::Result<()> {
    let mut reports = ReportReader::default();
    while !opened.peer.is_stopped() {
        let ready = opened.peer.wait(PollFlags::POLLIN, u64::MAX)?;
        if !ready.is_empty() {
            reports.read(opened, |arrived| context.note_arrived(arrived))?;
        }
    }
    opened.peer.check_connected()
}

/// Interval between requests for the flow's datagrams, until the first one arrives.
const REQUEST_INTERVAL_NS: u64 = 200_000_000;

/// Requests the flow's datagrams and counts them until stopped.
pub(super) fn receive(
    context: &FlowContext,
    opened: &Opened,
    socket: &UdpSocket,
    log: &mut FlowLog,
) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let clock = context.clock;
    let mut reports = ReportReader::default();
    let mut arrived = Delivered::default();
    let (mut next_record_ns, mut next_request_ns) = (0, 0);
    let mut datagram = [0; 2048];
    while !opened.peer.is_stopped() {
        arrived.time_ns = clock.now_ns();
        if arrived.packets == 0 && arrived.time_ns >= next_request_ns {
            next_request_ns = arrived.time_ns + REQUEST_INTERVAL_NS;
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
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    arrived.time_ns = clock.now_ns();
    context.delivered.note(arrived);
    opened.peer.check_connected()
}

/// Opens a socket that is connected to the server's port for the flow.
pub(super) fn open_socket(context: &FlowContext, opened: &Opened) -> Result<UdpSocket, LoadError> {
    let flow = &context.flow;
    let error = |step| move |source| LoadError::Socket { flow: flow.name.clone(), step, source };
    let domain = Domain::for_address(context.server);
    let socket = context.network.socket(domain, Type::DGRAM).map_err(error("opening a socket"))?;
    set_marking(&SockRef::from(&socket), domain, flow.marking).map_err(error("setting DSCP"))?;
    // The kernel may cap the buffer at its own limit.
    let _ = socket.set_recv_buffer_size(4 << 20);
    let target = with_port(context.server, opened.udp_port);
    socket.connect(&target.into()).map_err(error("connecting to the UDP port"))?;
    Ok(socket.into())
}
