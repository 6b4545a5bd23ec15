//! A flow that the server accepted, until its time or volume ends or its client leaves.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::SockRef;
use underload_record::schema::Direction;

use super::RECORD_INTERVAL;
use super::admission::FlowShare;
use super::pace::{Pace, PacedCounts, header_bytes, send_paced};
use super::peer::Peer;
use super::protocol::{BLOCK_BYTES, BlockHeader, BlockReadings, DatagramHeader, Report, payload};
use super::round_trips::{READ_INTERVAL, RoundTripLog};
use super::tcp_info::TcpInfo;
use super::udp_port::{Meeting, SharedEnd, UdpEnd};
use crate::network::{is_temporary, is_transient};
use crate::system::PollFlags;

pub(super) struct Lease<'a, S> {
    pub peer: &'a Peer,
    pub accepted_ns: u64,
    pub end_ns: u64,
    pub share: S,
}

impl<S: FlowShare> Lease<'_, S> {
    fn is_over(&self) -> bool {
        self.peer.is_stopped() || self.peer.clock.now_ns() >= self.end_ns || self.share.is_over()
    }

    /// Consumes bytes of the flow's share before they are transferred. Returns false after a short
    /// wait if none are available; meanwhile a report may have become due.
    fn take(&self, direction: Direction, bytes: usize) -> bool {
        let taken = self.share.take(direction, bytes as u64);
        if let Err(wait) = taken {
            std::thread::sleep(wait.min(HELD_UP_MAX));
        }
        taken.is_ok()
    }

    /// Returns the unused rest of `taken` bytes, of which `moved` were transferred.
    fn give_back_rest(&self, direction: Direction, taken: usize, moved: &io::Result<usize>) {
        let moved = moved.as_ref().map_or(0, |count| *count);
        self.share.give_back(direction, (taken - moved) as u64);
    }

    /// Counts the payload that arrives and reports it every 100 ms.
    pub(super) fn sink_tcp(&self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut reporter = Reporter::new(self);
        let mut bytes = 0;
        while !self.is_over() {
            reporter.report_if_due(bytes, 0)?;
            if self.peer.wait(PollFlags::POLLIN, reporter.next_ns)?.is_empty() {
                continue;
            }
            let taken = self.share.take_bytes(Direction::Up).min(CHUNK_BYTES);
            if !self.take(Direction::Up, taken) {
                continue;
            }
            let read = (&self.peer.stream).read(&mut chunk[..taken]);
            self.give_back_rest(Direction::Up, taken, &read);
            match read {
                Ok(0) => return Ok(()),
                Ok(count) => bytes += count as u64,
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends blocks. The first block of every write has the connection's latest state at its start,
    /// and the round trips read since the previous one.
    pub(super) fn source_tcp(&self) -> io::Result<()> {
        let mut blocks = payload(CHUNK_BYTES);
        let mut written = 0;
        let mut state = SenderState::default();
        blocks.chunks_exact_mut(BLOCK_BYTES).for_each(|block| state.write_to(block));
        while !self.is_over() {
            state.read_if_due(self)?;
            if self.peer.wait(PollFlags::POLLOUT, state.next_ns.min(self.end_ns))?.is_empty() {
                continue;
            }
            let taken = self.share.take_bytes(Direction::Down).min(blocks.len() - written);
            if !self.take(Direction::Down, taken) {
                continue;
            }
            // Blocks behind this one repeat an older state, which clients ignore.
            let next_block = written.next_multiple_of(BLOCK_BYTES);
            if let Some(block) = blocks.get_mut(next_block..) {
                state.write_to(block);
            }
            let sent = (&self.peer.stream).write(&blocks[written..written + taken]);
            self.give_back_rest(Direction::Down, taken, &sent);
            match sent {
                Ok(count) => written += count,
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
            if written > next_block {
                state.round_trips.clear();
            }
            if written == blocks.len() {
                written = 0;
            }
        }
        Ok(())
    }

    /// Counts the datagrams from the client that carry the cookie. Every datagram is charged to the
    /// share, because it has used the line.
    pub(super) fn sink_udp(&self, end: UdpEnd) -> io::Result<()> {
        let mut reporter = Reporter::new(self);
        let header_bytes = u64::from(header_bytes(self.peer.stream.peer_addr()?));
        let Some(Meeting { socket, cookie, mut bytes, mut packets, early }) =
            self.meet(end, Some(&mut reporter))?
        else {
            return Ok(());
        };
        let mut datagram = [0; 2048];
        while !self.is_over() {
            let (more_bytes, more_packets) = early.as_ref().map_or((0, 0), SharedEnd::take_early);
            self.share.charge(Direction::Up, more_bytes + more_packets * header_bytes);
            bytes += more_bytes;
            packets += more_packets;
            reporter.report_if_due(bytes, packets)?;
            self.check_alive()?;
            match socket.recv(&mut datagram) {
                Ok(len) => {
                    self.share.charge(Direction::Up, len as u64 + header_bytes);
                    let header = DatagramHeader::decode(&datagram[..len]);
                    if header.is_some_and(|header| header.cookie == cookie) {
                        bytes += len as u64;
                        packets += 1;
                    }
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the client's first datagram; `None` if the lease ends before.
    fn meet(
        &self,
        mut end: UdpEnd,
        mut reporter: Option<&mut Reporter<'_, S>>,
    ) -> io::Result<Option<Meeting>> {
        while !self.is_over() {
            if let Some(reporter) = reporter.as_deref_mut() {
                reporter.report_if_due(0, 0)?;
            }
            self.check_alive()?;
            if let Some(meeting) = end.meet()? {
                return Ok(Some(meeting));
            }
        }
        Ok(None)
    }

    /// Sends at the granted rate, after a datagram with the cookie has arrived from the client.
    pub(super) fn source_udp(&self, end: UdpEnd, pace: Pace) -> io::Result<()> {
        let Some(meeting) = self.meet(end, None)? else { return Ok(()) };
        self.send_udp(&meeting.socket, pace)
    }

    fn send_udp(&self, socket: &UdpSocket, pace: Pace) -> io::Result<()> {
        let counts = PacedCounts::default();
        let client_gone = AtomicBool::new(false);
        let over = || client_gone.load(Ordering::Relaxed) || self.is_over();
        let admits = |bytes: u16| self.share.take(Direction::Down, u64::from(bytes));
        std::thread::scope(|scope| {
            let sender = Builder::new().name("paced-sender".to_owned());
            sender.spawn_scoped(scope, || {
                send_paced(socket, pace, self.peer.clock, self.end_ns, over, admits, &counts);
            })?;
            let outcome = self.report_sending(&counts);
            client_gone.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// Reports every 100 ms how much was sent, until the lease ends or the client leaves.
    fn report_sending(&self, counts: &PacedCounts) -> io::Result<()> {
        let mut reporter = Reporter::new(self);
        while !self.is_over() {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            reporter.report_if_due(count(&counts.bytes), count(&counts.packets))?;
            self.check_alive()?;
            std::thread::sleep(HELD_UP_MAX);
        }
        Ok(())
    }

    /// Fails once the client has closed the connection. Anything that it sends is ignored.
    fn check_alive(&self) -> io::Result<()> {
        match (&self.peer.stream).read(&mut [0; 16]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Maximum number of bytes of one read or write.
const CHUNK_BYTES: usize = 16 * BLOCK_BYTES;
/// Longest sleep of a flow that is ahead of its session's rate.
const HELD_UP_MAX: Duration = Duration::from_millis(20);

/// TCP information of a connection, as the sender reports it.
struct SenderState {
    latest: BlockHeader,
    /// Since the last block that had them. Times are relative to the start of the flow.
    round_trips: RoundTripLog,
    next_ns: u64,
}

impl Default for SenderState {
    fn default() -> Self {
        let round_trips = RoundTripLog::with_capacity(BlockReadings::MAX);
        Self { latest: BlockHeader::default(), round_trips, next_ns: 0 }
    }
}

impl SenderState {
    /// Reads the kernel's state every 10 ms.
    fn read_if_due<S: FlowShare>(&mut self, lease: &Lease<'_, S>) -> io::Result<()> {
        let now_ns = lease.peer.clock.now_ns();
        if now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns + READ_INTERVAL.as_nanos() as u64;
        // Zeros if this system does not report the state.
        let info = TcpInfo::if_supported(&lease.peer.stream)?.unwrap_or_default();
        let elapsed_ns = now_ns - lease.accepted_ns;
        self.latest = BlockHeader { elapsed_ns, info };
        self.round_trips.note(elapsed_ns, info.rtt_us);
        Ok(())
    }

    /// Writes the state to the start of a block; does nothing if it has no space.
    fn write_to(&self, block: &mut [u8]) {
        let Some((head, rest)) = block.split_first_chunk_mut::<{ BlockHeader::LEN }>() else {
            return;
        };
        *head = self.latest.encode();
        if let Some(list) = rest.first_chunk_mut() {
            BlockReadings::encode(&self.round_trips.readings, self.latest.elapsed_ns, list);
        }
    }
}

/// Sends a report every 100 ms.
struct Reporter<'a, S> {
    lease: &'a Lease<'a, S>,
    next_ns: u64,
}

impl<'a, S> Reporter<'a, S> {
    fn new(lease: &'a Lease<'a, S>) -> Self {
        Self { lease, next_ns: lease.accepted_ns }
    }

    fn report_if_due(&mut self, bytes: u64, packets: u64) -> io::Result<()> {
        let now_ns = self.lease.peer.clock.now_ns();
        if now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns + RECORD_INTERVAL.as_nanos() as u64;
        let elapsed_ns = now_ns - self.lease.accepted_ns;
        let report = Report { elapsed_ns, bytes, packets }.encode();
        // If the client does not read its reports and its window is full, the flow ends: after a
        // truncated report, no later one could be parsed.
        match (&self.lease.peer.stream).write(&report) {
            Ok(Report::LEN) => {
                acknowledge_as_a_receiver(&self.lease.peer.stream);
                Ok(())
            }
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Ends the delay of acknowledgements that Linux begins after each report: Linux takes an end that
/// sends data for one side of a dialogue (`inet_csk_enter_pingpong_mode`). An upload to a server
/// without reports has no such delay, and BBR keeps a longer queue with it.
fn acknowledge_as_a_receiver(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    // A connection that has ended is found by the next read or write.
    let _ = SockRef::from(stream).set_tcp_quickack(true);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}
