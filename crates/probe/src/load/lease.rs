//! A flow that the server accepted: what it does until its time, its volume or its client is over.

use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::PollFlags;
use underload_report::schema::Direction;

use super::pace::{Pace, PacedCounts, send_paced};
use super::peer::{Peer, is_temporary};
use super::protocol::{BLOCK_OCTETS, BlockHeader, DatagramHeader, Report, payload};
use super::tcp_info::TcpInfo;
use super::udp_port::{Meeting, UdpEnd};
use super::{POLL_INTERVAL, RECORD_INTERVAL};
use crate::service::Share;

/// An accepted flow and its time limit.
pub(super) struct Lease<'a> {
    pub peer: &'a Peer,
    pub accepted_ns: u64,
    pub end_ns: u64,
    /// Of the session that the flow belongs to, where there are sessions.
    pub share: Option<Share>,
}

impl Lease<'_> {
    fn is_over(&self) -> bool {
        self.peer.is_stopped()
            || self.peer.clock.now_ns() >= self.end_ns
            || self.share.as_ref().is_some_and(Share::is_over)
    }

    /// Takes octets off the session's volume, and waits while they are ahead of its rate.
    fn spend(&self, direction: Direction, octets: usize) {
        let Some(share) = &self.share else { return };
        let mut pause = share.spend(direction, octets as u64);
        while !pause.is_zero() && !self.is_over() {
            let step = pause.min(POLL_INTERVAL);
            std::thread::sleep(step);
            pause -= step;
        }
    }

    /// Counts what arrives and says so every 100 ms.
    pub(super) fn sink_tcp(&self) -> io::Result<()> {
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
                    self.spend(Direction::Up, count);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends blocks, each with the connection's state of the last 100 ms in front.
    pub(super) fn source_tcp(&self) -> io::Result<()> {
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
                    self.spend(Direction::Down, count);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts the datagrams that carry the cookie and come from the client.
    pub(super) fn sink_udp(&self, end: UdpEnd) -> io::Result<()> {
        let mut reporter = Reporter::new(self);
        let Some(Meeting { socket, cookie, mut octets, mut packets, early }) =
            self.meet(end, Some(&mut reporter))?
        else {
            return Ok(());
        };
        let mut datagram = [0; 2048];
        while !self.is_over() {
            let (more_octets, more_packets) = early.take();
            octets += more_octets;
            packets += more_packets;
            reporter.report_if_due(octets, packets)?;
            self.check_alive()?;
            match socket.recv(&mut datagram) {
                Ok(len) => {
                    self.spend(Direction::Up, len);
                    let header = DatagramHeader::decode(&datagram[..len]);
                    if header.is_some_and(|header| header.cookie == cookie) {
                        octets += len as u64;
                        packets += 1;
                    }
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the client's first datagram; `None` if the lease is over before.
    fn meet(
        &self,
        mut end: UdpEnd,
        mut reporter: Option<&mut Reporter<'_>>,
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

    /// Sends at the rate agreed, once a datagram with the cookie has come from the client.
    pub(super) fn source_udp(&self, end: UdpEnd, pace: Pace) -> io::Result<()> {
        let Some(meeting) = self.meet(end, None)? else { return Ok(()) };
        self.send_udp(&meeting.socket, pace)
    }

    fn send_udp(&self, socket: &UdpSocket, pace: Pace) -> io::Result<()> {
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
                self.spend(Direction::Down, (octets - spent) as usize);
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
