//! A flow that a server accepted, and the server's reports about it.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::peer::Peer;
use super::protocol::{Report, Token};
use super::{Delivered, DeliveredLog, LoadFlow};
use crate::clock::RunClock;
use crate::network::{SocketSource, is_temporary};

pub(super) struct FlowContext {
    pub flow: LoadFlow,
    pub server: SocketAddr,
    pub network: Arc<dyn SocketSource>,
    pub clock: RunClock,
    pub stop: Arc<AtomicBool>,
    pub delivered: Arc<DeliveredLog>,
    /// Payload bytes that this end has sent.
    pub sent: Arc<AtomicU64>,
    pub duration_max: Duration,
    pub token: Token,
}

pub(super) struct Opened {
    pub peer: Peer,
    /// When the server accepted the flow, estimated on the run's clock.
    pub accepted_ns: u64,
    pub udp_port: u16,
    pub cookie: u64,
}

impl FlowContext {
    /// Stores a server's report on an upload, unless it counts more than this end has sent.
    pub(super) fn note_arrived(&self, arrived: Delivered) {
        let sent = self.sent.load(Ordering::Relaxed);
        // A datagram can arrive before it is counted here.
        if arrived.bytes <= sent.saturating_add(u64::from(u16::MAX)) {
            self.delivered.note(arrived);
        }
    }
}

/// Splits a byte stream into reports.
#[derive(Default)]
pub(super) struct ReportReader {
    partial: Vec<u8>,
}

impl ReportReader {
    /// Reads the reports that have arrived, without waiting.
    pub(super) fn read(
        &mut self,
        opened: &Opened,
        mut found: impl FnMut(Delivered),
    ) -> io::Result<()> {
        let mut bytes = [0; 40 * Report::LEN];
        match (&opened.peer.stream).read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
            Err(error) if is_temporary(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        let (whole, rest) = self.partial.as_chunks::<{ Report::LEN }>();
        for report in whole.iter().map(Report::decode) {
            let time_ns = opened.accepted_ns.saturating_add(report.elapsed_ns);
            found(Delivered { time_ns, bytes: report.bytes, packets: report.packets });
        }
        self.partial = rest.to_vec();
        Ok(())
    }
}
