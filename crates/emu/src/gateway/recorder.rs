//! What one direction did: every packet's fate, counted and timed, without allocation or locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use underload_aqm::histogram::Histogram;
use underload_aqm::link::tally::{self, Curves, Sanctions, Tally};
use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{Backlog, Count, DropReason, MarkReason, Observer, Qdisc};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Phase, ValidityLimits};

use super::journal::{Event, Journal};
use crate::packet::{Handle, Pool, flow_name, segment_length};

/// Why a packet never reached the queue, or never left the gateway after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputDrop {
    /// Not an IP packet, or shorter than its header states.
    NotAPacket,
    /// A super-packet that cannot be cut.
    BadSuperPacket,
    /// Every packet buffer was in use.
    NoBuffer,
    /// The device at the far end refused it.
    DeviceRefused,
}

impl InputDrop {
    /// The name in files, beside those of [`DropReason`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAPacket => "not-a-packet",
            Self::BadSuperPacket => "bad-super-packet",
            Self::NoBuffer => "no-buffer",
            Self::DeviceRefused => "device-refused",
        }
    }
}

/// Counters and distributions of one phase.
#[derive(Clone, Debug)]
pub struct Window {
    /// The trial's phase.
    pub phase: Phase,
    /// What the queue and the link counted in that phase.
    pub link: tally::Window,
    /// What the gateway counted outside of both.
    pub gateway: Outside,
}

/// What a gateway counts beside its links.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Packets lost outside of queue and link; those of unknown length count as zero bytes.
    pub input_drops: BTreeMap<InputDrop, Count>,
    /// Return of the write to the device minus the instant at which the packet was due, ns.
    pub lateness: Histogram,
}

impl Window {
    /// Adds another window's counts to this one's; the times become those of both together.
    pub fn merge(&mut self, other: &Self) {
        self.link.merge(&other.link);
        for (reason, count) in &other.gateway.input_drops {
            let known = self.gateway.input_drops.entry(*reason).or_default();
            *known = *known + *count;
        }
        self.gateway.lateness.merge(&other.gateway.lateness);
    }
}

/// Rows kept at most: at 10 ms, three hours.
const ROWS_MAX: usize = 1 << 20;

/// Counters that can be read while the gateway runs.
#[derive(Debug, Default)]
pub struct Live {
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
    dropped: AtomicU64,
    marked: AtomicU64,
    backlog_packets: AtomicU64,
    backlog_bytes: AtomicU64,
    delivered: AtomicU64,
    late: AtomicU64,
}

/// The counters of a direction at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Transmitted since the start.
    pub sent: Count,
    /// Packets dropped since the start, for whatever reason.
    pub dropped: u64,
    /// Packets marked since the start.
    pub marked: u64,
    /// What waits in the queue now.
    pub backlog: Backlog,
    /// Packets that were handed over since the start.
    pub delivered: u64,
    /// Of these, packets that were so late that a trial with one in a hundred of them is invalid.
    pub late: u64,
}

impl Live {
    /// The counters, each from (nearly) the same instant.
    pub fn read(&self) -> Reading {
        Reading {
            sent: Count {
                packets: self.sent_packets.load(Relaxed),
                bytes: self.sent_bytes.load(Relaxed),
            },
            dropped: self.dropped.load(Relaxed),
            marked: self.marked.load(Relaxed),
            backlog: Backlog {
                packets: self.backlog_packets.load(Relaxed) as u32,
                bytes: self.backlog_bytes.load(Relaxed),
            },
            delivered: self.delivered.load(Relaxed),
            late: self.late.load(Relaxed),
        }
    }
}

/// Records one direction, and owns its buffers: a dropped packet's buffer is free again at once.
#[derive(Debug)]
pub struct Recorder {
    /// The buffers that hold the packets.
    pub pool: Pool,
    /// The phases that are over.
    windows: Vec<Window>,
    phase: Phase,
    tally: Tally,
    /// Counts of the present phase.
    outside: Outside,
    curves: Curves,
    /// Of those that queue protection sent away.
    flow_names: BTreeMap<u32, String>,
    /// Packets lost outside of queue and link, ever and since the last row of the curves.
    input_drops: u64,
    row_input_drops: u64,
    /// Packets that were handed over, ever, and those of them that were too late.
    delivered: u64,
    late: u64,
    late_from_ns: u64,
    live: Arc<Live>,
    journal: Option<Journal>,
}

impl Recorder {
    /// A recorder whose first phase starts now. `varying`: the link's rate is not constant.
    pub fn new(
        pool: Pool,
        live: Arc<Live>,
        journal: Option<Journal>,
        now: Time,
        varying: bool,
    ) -> Self {
        Self {
            pool,
            windows: Vec::new(),
            phase: Phase::Whole,
            tally: Tally::new(now, varying),
            outside: Outside::default(),
            curves: Curves::default(),
            flow_names: BTreeMap::new(),
            input_drops: 0,
            row_input_drops: 0,
            delivered: 0,
            late: 0,
            late_from_ns: ValidityLimits::default().lateness_p99_ns,
            live,
            journal,
        }
    }

    /// From `now` on the caller does something else.
    pub fn begin(&mut self, phase: Phase, now: Time, queue: &dyn Qdisc<Handle>) {
        let link = self.tally.end_window(now, queue.stats().offered);
        let gateway = std::mem::take(&mut self.outside);
        let phase = std::mem::replace(&mut self.phase, phase);
        self.windows.push(Window { phase, link, gateway });
    }

    /// A packet is about to be offered to the queue.
    pub fn arrived(&mut self, now: Time, bytes: u32) {
        self.log(now, Event::Arrival { bytes });
    }

    /// A packet, or what was none, is lost outside of the queue.
    pub fn input_dropped(&mut self, reason: InputDrop, bytes: u32) {
        self.outside.input_drops.entry(reason).or_default().add(bytes);
        self.input_drops += 1;
        self.row_input_drops += 1;
    }

    /// A packet was written that was due at `due`.
    pub fn delivered(&mut self, due: Time, written: Time) {
        let late_ns = written.since(due).as_nanos();
        self.outside.lateness.record(late_ns);
        self.delivered += 1;
        self.late += u64::from(late_ns > self.late_from_ns);
    }

    /// Publishes the counters.
    pub fn publish(&mut self, backlog: Backlog) {
        let total = self.tally.total();
        self.live.sent_packets.store(total.sent.packets, Relaxed);
        self.live.sent_bytes.store(total.sent.bytes, Relaxed);
        self.live.dropped.store(total.dropped_packets() + self.input_drops, Relaxed);
        self.live.marked.store(total.marked_packets(), Relaxed);
        self.live.backlog_packets.store(u64::from(backlog.packets), Relaxed);
        self.live.backlog_bytes.store(backlog.bytes, Relaxed);
        self.live.delivered.store(self.delivered, Relaxed);
        self.live.late.store(self.late, Relaxed);
    }

    /// Appends a row to the time series.
    pub fn sample(&mut self, now: Time, queue: &dyn Qdisc<Handle>) {
        if self.curves.rows.len() >= ROWS_MAX {
            return;
        }
        let mut row = self.tally.end_row(now, queue.backlog());
        row.drops += std::mem::take(&mut self.row_input_drops);
        self.curves.push(row, queue);
        if let Some(journal) = &mut self.journal {
            journal.flush();
        }
    }

    /// Closes the last phase and gives all that was recorded.
    pub fn finish(mut self, now: Time, queue: &dyn Qdisc<Handle>) -> Recording {
        self.begin(Phase::Whole, now, queue);
        let start = self.windows.first().map_or(now, |window| window.link.start);
        let varying = self.tally.delays().queuing_delay.is_some();
        let link = Tally::new(start, varying).end_window(start, Count::default());
        let mut whole = Window { phase: Phase::Whole, link, gateway: Outside::default() };
        self.windows.iter().for_each(|window| whole.merge(window));
        let lost_events = self.journal.take().map_or(0, Journal::finish);
        Recording {
            whole,
            windows: self.windows,
            curves: self.curves,
            flow_names: self.flow_names,
            lost_events,
            buffer_bytes: self.pool.allocated_bytes(),
        }
    }

    /// The packet's length without what the link charges on top.
    fn ip_length(&mut self, handle: Handle) -> u32 {
        segment_length(self.pool.frame(handle), handle.segment)
    }

    fn log(&mut self, time: Time, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.write(time, event);
        }
    }
}

/// Everything that one direction recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// All phases together.
    pub whole: Window,
    /// The phases in order; the first, before any was named, is [`Phase::Whole`].
    pub windows: Vec<Window>,
    /// The time series.
    pub curves: Curves,
    /// Names of the flows that queue protection sent away, by the hash of each.
    pub flow_names: BTreeMap<u32, String>,
    /// Events that the log could not take in time.
    pub lost_events: u64,
    /// Most bytes of buffers that were in use at once.
    pub buffer_bytes: usize,
}

impl Observer<Handle> for Recorder {
    fn dropped(&mut self, now: Time, packet: Packet<Handle>, reason: DropReason) {
        self.tally.dropped(&packet.meta, reason);
        if self.journal.is_some() {
            let bytes = self.ip_length(packet.payload);
            self.log(now, Event::Drop { bytes });
        }
        self.pool.release(packet.payload, 1);
    }

    fn marked(&mut self, _now: Time, _packet: &Packet<Handle>, reason: MarkReason) {
        self.tally.marked(reason);
    }

    fn sanctioned(&mut self, now: Time, packet: &Packet<Handle>, score: Span) {
        if self.flow_names.len() < Sanctions::MOST {
            let frame = self.pool.frame(packet.payload);
            let name = || flow_name(frame.packet(), &frame.layout);
            self.flow_names.entry(packet.meta.flow).or_insert_with(name);
        }
        self.tally.sanctioned(now, packet.meta.flow, score);
    }

    fn binned(&mut self, side: Side, bin: usize) {
        self.tally.binned(side, bin);
    }

    fn remarked(&mut self, _now: Time, _packet: &Packet<Handle>, rule: usize) {
        self.tally.remarked(rule);
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<Handle>) {
        self.tally.transmitted(start, end, &packet.meta);
        if self.journal.is_some() {
            let bytes = self.ip_length(packet.payload);
            self.log(end, Event::Departure { bytes, waited: end.since(packet.meta.arrived) });
        }
    }
}
