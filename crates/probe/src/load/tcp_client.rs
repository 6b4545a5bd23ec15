//! The client's end of a TCP flow.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;

use nix::poll::PollFlags;
use socket2::SockRef;

use super::congestion::congestion_control_of;
use super::opened::{FlowContext, Opened, ReportReader};
use super::protocol::{BLOCK_BYTES, BlockHeader, payload};
use super::tcp_info::TcpInfo;
use super::{Delivered, FlowLog, RECORD_INTERVAL, RECORDS_MAX, TcpSample};
use crate::network::is_temporary;

/// Bytes per system call: enough to make the cost of calls negligible, and a multiple of the block.
const CHUNK_BYTES: usize = 256 << 10;

/// Sends until stopped, and records the server's reports of what arrived.
pub(super) fn send(context: &FlowContext, opened: &Opened, log: &mut FlowLog) -> io::Result<()> {
    let peer = &opened.peer;
    log.congestion_control = Some(congestion_control_of(&SockRef::from(&peer.stream))?);
    let payload = payload(CHUNK_BYTES);
    let mut reports = ReportReader::default();
    let mut next_record_ns = peer.clock.now_ns();
    while !peer.is_stopped() {
        let ready = peer.wait(PollFlags::POLLIN | PollFlags::POLLOUT, next_record_ns)?;
        if ready.contains(PollFlags::POLLOUT) {
            match (&peer.stream).write(&payload) {
                Ok(count) => drop(context.sent.fetch_add(count as u64, Ordering::Relaxed)),
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if ready.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
            reports.read(opened, |delivered| context.delivered.note(delivered))?;
        }
        let now_ns = peer.clock.now_ns();
        if now_ns >= next_record_ns {
            next_record_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
            if log.tcp.len() < RECORDS_MAX {
                let info = TcpInfo::if_supported(&peer.stream)?;
                log.tcp.extend(info.map(|info| TcpSample { time_ns: now_ns, info }));
            }
        }
    }
    peer.check_connected()
}

/// Receives until stopped, counts the payload, and records the server's state of the connection.
pub(super) fn receive(context: &FlowContext, opened: &Opened, log: &mut FlowLog) -> io::Result<()> {
    let peer = &opened.peer;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut blocks = BlockReader::default();
    let mut bytes = 0;
    let mut next_record_ns = 0;
    while !peer.is_stopped() {
        let now_ns = peer.clock.now_ns();
        if now_ns >= next_record_ns {
            next_record_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
            context.delivered.note(Delivered { time_ns: now_ns, bytes, packets: 0 });
        }
        peer.wait(PollFlags::POLLIN, next_record_ns)?;
        match (&peer.stream).read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes += count as u64;
                blocks.read(&chunk[..count], |header| {
                    let time_ns = opened.accepted_ns.saturating_add(header.elapsed_ns);
                    let is_new = log.tcp.last().is_none_or(|sample| sample.time_ns < time_ns);
                    if is_new && log.tcp.len() < RECORDS_MAX {
                        log.tcp.push(TcpSample { time_ns, info: header.info });
                    }
                });
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let time_ns = peer.clock.now_ns();
    context.delivered.note(Delivered { time_ns, bytes, packets: 0 });
    peer.check_connected()
}

/// Finds the header at the start of every block of a stream.
#[derive(Default)]
struct BlockReader {
    /// Bytes of the current block that were read.
    position: usize,
    partial: Vec<u8>,
}

impl BlockReader {
    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(BlockHeader)) {
        while !bytes.is_empty() {
            let in_header = BlockHeader::LEN.saturating_sub(self.position);
            let wanted = if in_header > 0 { in_header } else { BLOCK_BYTES - self.position };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            if in_header > 0 {
                self.partial.extend_from_slice(now);
                if let Some(header) = self.partial.first_chunk::<{ BlockHeader::LEN }>() {
                    found(BlockHeader::decode(header));
                    self.partial.clear();
                }
            }
            self.position = (self.position + now.len()) % BLOCK_BYTES;
            bytes = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use underload_record::schema::{Direction, Marking};

    use super::*;
    use crate::clock::RunClock;
    use crate::load::peer::Peer;
    use crate::load::protocol::Report;
    use crate::load::protocol::Token;
    use crate::load::{LoadFlow, Transport};

    /// Returns a flow that is already stopped. `end` receives the other end of its connection.
    fn stopped_flow(direction: Direction, end: impl FnOnce(TcpStream)) -> (FlowContext, Opened) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let stream = TcpStream::connect(server).unwrap();
        let clock = RunClock::start();
        let stop = Arc::new(AtomicBool::new(true));
        let peer = Peer::new(stream, "bulk", clock, Arc::clone(&stop)).unwrap();
        end(listener.accept().unwrap().0);
        // Wait until the other end's last data has arrived.
        let words = PollFlags::POLLIN | PollFlags::POLLHUP;
        let waited = crate::network::wait_for(
            std::os::fd::AsFd::as_fd(&peer.stream),
            words,
            Duration::from_secs(10),
        );
        waited.unwrap();
        let context = FlowContext {
            flow: LoadFlow {
                name: "bulk".to_owned(),
                direction,
                transport: Transport::Tcp { congestion_control: "reno".to_owned() },
                marking: Marking::default(),
                start_after: Duration::ZERO,
            },
            server,
            network: crate::network::current_network(),
            clock,
            stop,
            delivered: Arc::default(),
            sent: Arc::default(),
            duration_max: Duration::from_secs(1),
            token: Token([0; 16]),
        };
        (context, Opened { peer, accepted_ns: 0, udp_port: 0, cookie: 0 })
    }

    #[test]
    fn a_flow_that_is_stopped_after_its_server_vanished_has_failed() {
        let vanish = |stream: TcpStream| drop(stream);
        let reset = |stream: TcpStream| {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        };
        let speak_and_reset = |mut stream: TcpStream| {
            stream.write_all(&[0; 10 * Report::LEN]).unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        };
        let ends: [fn(TcpStream); 3] = [vanish, reset, speak_and_reset];
        for end in ends {
            let (context, opened) = stopped_flow(Direction::Up, end);
            assert!(send(&context, &opened, &mut FlowLog::default()).is_err());
            let (context, opened) = stopped_flow(Direction::Down, end);
            assert!(receive(&context, &opened, &mut FlowLog::default()).is_err());
        }
    }

    #[test]
    fn a_flow_that_is_stopped_with_its_server_there_has_not_failed() {
        let mut kept = None;
        let keep = |mut stream: TcpStream| {
            stream.write_all(&[0; Report::LEN]).unwrap();
            kept = Some(stream);
        };
        let (context, opened) = stopped_flow(Direction::Up, keep);
        assert!(send(&context, &opened, &mut FlowLog::default()).is_ok());
        drop(kept);
    }

    #[test]
    fn block_headers_are_found_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for index in 0..5_u64 {
            let header = BlockHeader { elapsed_ns: index, info: TcpInfo::default() };
            stream.extend_from_slice(&header.encode());
            stream.resize(BLOCK_BYTES * (index as usize + 1), 0xff);
        }
        for piece in [1, 7, 47, 48, 49, 1_000, BLOCK_BYTES, stream.len()] {
            let mut blocks = BlockReader::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                blocks.read(bytes, |header| found.push(header.elapsed_ns));
            }
            assert_eq!(found, [0, 1, 2, 3, 4], "in pieces of {piece}");
        }
    }
}
