//! The client's end of a TCP flow.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;

use socket2::SockRef;

use super::congestion::congestion_control_of;
use super::opened::{FlowContext, Opened, ReportReader};
use super::protocol::{BLOCK_BYTES, BlockHeader, BlockReadings, payload};
use super::round_trips::{READ_INTERVAL, RoundTrip};
use super::tcp_info::{TcpInfo, part};
use super::{Delivered, FlowLog, RECORD_INTERVAL, RECORDS_MAX, TcpSample};
use crate::network::is_temporary;
use crate::system::PollFlags;

/// Bytes per system call: enough to make the cost of calls negligible, and a multiple of the block.
const CHUNK_BYTES: usize = 256 << 10;

/// Sends until stopped, and records the server's reports of what arrived.
pub(super) fn send(context: &FlowContext, opened: &Opened, log: &mut FlowLog) -> io::Result<()> {
    let peer = &opened.peer;
    log.congestion_control = Some(congestion_control_of(&SockRef::from(&peer.stream))?);
    let payload = payload(CHUNK_BYTES);
    let mut reports = ReportReader::default();
    let mut next_record_ns = peer.clock.now_ns();
    let mut next_read_ns = next_record_ns;
    while !peer.is_stopped() {
        let ready = peer.wait(PollFlags::POLLIN | PollFlags::POLLOUT, next_read_ns)?;
        if ready.contains(PollFlags::POLLOUT) {
            match (&peer.stream).write(&payload) {
                Ok(count) => drop(context.sent.fetch_add(count as u64, Ordering::Relaxed)),
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if ready.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
            reports.read(opened, |arrived| context.note_arrived(arrived))?;
        }
        let now_ns = peer.clock.now_ns();
        if now_ns >= next_read_ns {
            next_read_ns = now_ns + READ_INTERVAL.as_nanos() as u64;
            let Some(info) = TcpInfo::if_supported(&peer.stream)? else { continue };
            log.round_trips.note(now_ns, info.rtt_us);
            if now_ns >= next_record_ns && log.tcp.len() < RECORDS_MAX {
                next_record_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
                log.tcp.push(TcpSample { time_ns: now_ns, info });
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
                blocks.read(&chunk[..count], |head| note_block(opened, head, log));
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let time_ns = peer.clock.now_ns();
    context.delivered.note(Delivered { time_ns, bytes, packets: 0 });
    peer.check_connected()
}

/// Bytes at the start of a block that are not payload.
const HEAD_BYTES: usize = BlockHeader::LEN + BlockReadings::LEN;

/// Records the server's state and its round trips. Blocks that the server did not renew since the
/// last one repeat older times, which are ignored.
fn note_block(opened: &Opened, head: &[u8; HEAD_BYTES], log: &mut FlowLog) {
    let on_clock = |elapsed_ns: u64| opened.accepted_ns.saturating_add(elapsed_ns);
    let header = BlockHeader::decode(&part(head, 0));
    let time_ns = on_clock(header.elapsed_ns);
    for RoundTrip { time_ns, rtt_us } in
        BlockReadings::decode(&part(head, BlockHeader::LEN), header.elapsed_ns)
    {
        log.round_trips.note(on_clock(time_ns), rtt_us);
    }
    let interval_ns = RECORD_INTERVAL.as_nanos() as u64;
    let next_ns = log.tcp.last().map(|last| last.time_ns.saturating_add(interval_ns / 2));
    if next_ns.is_none_or(|next| next <= time_ns) && log.tcp.len() < RECORDS_MAX {
        log.tcp.push(TcpSample { time_ns, info: header.info });
    }
}

/// Finds the head of every block of a stream.
#[derive(Default)]
struct BlockReader {
    /// Bytes of the current block that were read.
    position: usize,
    partial: Vec<u8>,
}

impl BlockReader {
    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(&[u8; HEAD_BYTES])) {
        while !bytes.is_empty() {
            let in_head = HEAD_BYTES.saturating_sub(self.position);
            let wanted = if in_head > 0 { in_head } else { BLOCK_BYTES - self.position };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            if in_head > 0 {
                self.partial.extend_from_slice(now);
                if let Some(head) = self.partial.first_chunk::<HEAD_BYTES>() {
                    found(head);
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
            crate::system::AsFd::as_fd(&peer.stream),
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
    fn a_server_that_counts_more_than_was_sent_is_not_believed() {
        let (context, _) = stopped_flow(Direction::Up, drop);
        context.sent.store(1_000_000, Ordering::Relaxed);
        let arrived = |time_ns, bytes| Delivered { time_ns, bytes, packets: 0 };
        context.note_arrived(arrived(1, 900_000));
        context.note_arrived(arrived(2, u64::MAX));
        context.note_arrived(arrived(3, 1_000_000));
        let log: Vec<u64> = context.delivered.take().iter().map(|it| it.bytes).collect();
        assert_eq!(log, [900_000, 1_000_000]);
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
    fn a_flow_that_is_stopped_while_its_server_is_reachable_has_not_failed() {
        let mut kept = None;
        let keep = |mut stream: TcpStream| {
            stream.write_all(&[0; Report::LEN]).unwrap();
            kept = Some(stream);
        };
        let (context, opened) = stopped_flow(Direction::Up, keep);
        assert!(send(&context, &opened, &mut FlowLog::default()).is_ok());
        drop(kept);
    }

    /// The head of a block.
    fn head(elapsed_ms: u64, readings: &[RoundTrip]) -> [u8; HEAD_BYTES] {
        let mut bytes = [0x55; HEAD_BYTES];
        let elapsed_ns = elapsed_ms * 1_000_000;
        let info = TcpInfo { rtt_us: 9_000, ..TcpInfo::default() };
        bytes[..BlockHeader::LEN].copy_from_slice(&BlockHeader { elapsed_ns, info }.encode());
        BlockReadings::encode(readings, elapsed_ns, bytes.last_chunk_mut().unwrap());
        bytes
    }

    #[test]
    fn the_round_trips_of_every_block_are_recorded_once() {
        let (_, mut opened) = stopped_flow(Direction::Down, |_| ());
        opened.accepted_ns = 5_000_000_000;
        let at = |ms: u64| RoundTrip { time_ns: ms * 1_000_000, rtt_us: 8_000 + ms as u32 };
        let mut log = FlowLog::default();
        note_block(&opened, &head(130, &[at(100), at(110), at(120)]), &mut log);
        // The first block is stale; the second repeats and reorders its readings.
        note_block(&opened, &head(130, &[at(100), at(110)]), &mut log);
        note_block(&opened, &head(150, &[at(140), at(110), at(140)]), &mut log);
        let times: Vec<u64> =
            log.round_trips.readings.iter().map(|it| it.time_ns / 1_000_000 - 5_000).collect();
        assert_eq!(times, [100, 110, 120, 140]);
        let mut log = FlowLog::default();
        for elapsed_ms in [100, 200, 200, 300] {
            note_block(&opened, &head(elapsed_ms, &[]), &mut log);
        }
        assert_eq!((log.round_trips.readings.len(), log.tcp.len()), (0, 3));
    }

    #[test]
    fn block_headers_are_found_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for index in 0..5_u64 {
            let header = BlockHeader { elapsed_ns: index, info: TcpInfo::default() };
            stream.extend_from_slice(&header.encode());
            stream.resize(BLOCK_BYTES * (index as usize + 1), 0xff);
        }
        for piece in [1, 7, 47, 48, 49, HEAD_BYTES, 1_000, BLOCK_BYTES, stream.len()] {
            let mut blocks = BlockReader::default();
            let mut found = Vec::new();
            let mut note = |head: &[u8; HEAD_BYTES]| {
                found.push(BlockHeader::decode(&part(head, 0)).elapsed_ns);
            };
            for bytes in stream.chunks(piece) {
                blocks.read(bytes, &mut note);
            }
            assert_eq!(found, [0, 1, 2, 3, 4], "in pieces of {piece}");
        }
    }
}
