//! What one direction did: every packet's fate, counted and timed, without allocation or locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{Backlog, Count, DropReason, MarkReason, Observer};
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Distribution, Phase};

use super::journal::{Event, Journal};
use crate::packet::{Handle, Pool, segment_length};

/// Why a packet never reached the queue, or never left the gateway after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputDrop {
    /// Not an IP packet, or shorter than its header states.
    NotAPacket,
    /// A super-packet that cannot be cut.
    BadSuperPacket,
    /// All buffers hold packets.
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
    /// What the caller did then.
    pub phase: Phase,
    /// First instant inside.
    pub start: Time,
    /// First instant after.
    pub end: Time,
    /// Offered to the queue.
    pub offered: Count,
    /// Transmission begun.
    pub sent: Count,
    /// Dropped by queue or link.
    pub drops: BTreeMap<DropReason, Count>,
    /// Lost outside of both; packets of unknown length count as zero bytes.
    pub input_drops: BTreeMap<InputDrop, Count>,
    /// Changed from ECT to CE.
    pub marks: BTreeMap<MarkReason, u64>,
    /// Start of transmission minus end of enqueue, ns.
    pub sojourn: Histogram<u64>,
    /// Return of the write to the device minus the instant at which the packet was due, ns.
    pub lateness: Histogram<u64>,
}

/// One hour, in three significant digits: longer sojourns count as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

impl Window {
    fn new(phase: Phase, start: Time) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS)
                .expect("these bounds are valid")
        };
        Self {
            phase,
            start,
            end: start,
            offered: Count::default(),
            sent: Count::default(),
            drops: BTreeMap::new(),
            input_drops: BTreeMap::new(),
            marks: BTreeMap::new(),
            sojourn: histogram(),
            lateness: histogram(),
        }
    }

    /// Adds another window's counts to this one's; the times become those of both together.
    pub fn add(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        let add = |into: &mut Count, count: &Count| {
            into.packets += count.packets;
            into.bytes += count.bytes;
        };
        add(&mut self.offered, &other.offered);
        add(&mut self.sent, &other.sent);
        for (reason, count) in &other.drops {
            add(self.drops.entry(*reason).or_default(), count);
        }
        for (reason, count) in &other.input_drops {
            add(self.input_drops.entry(*reason).or_default(), count);
        }
        for (reason, count) in &other.marks {
            *self.marks.entry(*reason).or_default() += count;
        }
        self.sojourn.add(&other.sojourn).expect("all windows have the same bounds");
        self.lateness.add(&other.lateness).expect("all windows have the same bounds");
    }
}

/// The quantiles of a histogram of nanoseconds; `None` if it is empty.
pub fn distribution(histogram: &Histogram<u64>) -> Option<Distribution> {
    let quantile = |q| histogram.value_at_quantile(q);
    (!histogram.is_empty()).then(|| Distribution {
        count: histogram.len(),
        min_ns: histogram.min(),
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p95_ns: quantile(0.95),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: histogram.max(),
        mean_ns: histogram.mean() as u64,
    })
}

/// The state at one instant, and what happened since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub time: Time,
    /// In the queue.
    pub backlog: Backlog,
    /// The longest since the row before.
    pub sojourn_max: Span,
    /// Since the row before.
    pub sent: Count,
    /// Packets, since the row before.
    pub drops: u64,
    /// Packets, since the row before.
    pub marks: u64,
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
}

/// What [`Live`] counters said at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Transmitted since the start.
    pub sent: Count,
    /// Packets dropped since the start, for whatever reason.
    pub dropped: u64,
    /// Packets marked since the start.
    pub marked: u64,
    /// In the queue now.
    pub backlog: Backlog,
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
        }
    }
}

/// Records one direction, and owns its buffers: a dropped packet's buffer is free again at once.
#[derive(Debug)]
pub struct Recorder {
    /// Where the packets are.
    pub pool: Pool,
    windows: Vec<Window>,
    rows: Vec<Row>,
    row: Row,
    gauges: BTreeMap<&'static str, Vec<(Time, f64)>>,
    live: Arc<Live>,
    total: Reading,
    journal: Option<Journal>,
}

impl Recorder {
    /// A recorder whose first phase starts now.
    pub fn new(pool: Pool, live: Arc<Live>, journal: Option<Journal>, now: Time) -> Self {
        Self {
            pool,
            windows: vec![Window::new(Phase::Whole, now)],
            rows: Vec::new(),
            row: Row::default(),
            gauges: BTreeMap::new(),
            live,
            total: Reading::default(),
            journal,
        }
    }

    /// From `now` on the caller does something else.
    pub fn begin(&mut self, phase: Phase, now: Time) {
        self.window().end = now;
        self.windows.push(Window::new(phase, now));
    }

    /// A packet is about to be offered to the queue.
    pub fn offered(&mut self, now: Time, bytes: u32) {
        self.window().offered.add(bytes);
        self.log(now, Event::Arrival { bytes });
    }

    /// A packet, or what was none, is lost outside of the queue.
    pub fn input_dropped(&mut self, reason: InputDrop, bytes: u32) {
        self.window().input_drops.entry(reason).or_default().add(bytes);
        self.total.dropped += 1;
        self.row.drops += 1;
    }

    /// A packet was written that was due at `due`.
    pub fn delivered(&mut self, due: Time, written: Time) {
        let lateness = written.since(due).as_nanos();
        self.window().lateness.saturating_record(lateness);
    }

    /// Publishes the counters.
    pub fn publish(&mut self, backlog: Backlog) {
        self.total.backlog = backlog;
        self.live.sent_packets.store(self.total.sent.packets, Relaxed);
        self.live.sent_bytes.store(self.total.sent.bytes, Relaxed);
        self.live.dropped.store(self.total.dropped, Relaxed);
        self.live.marked.store(self.total.marked, Relaxed);
        self.live.backlog_packets.store(u64::from(backlog.packets), Relaxed);
        self.live.backlog_bytes.store(backlog.bytes, Relaxed);
    }

    /// Ends a row of the time series.
    pub fn sample(
        &mut self,
        now: Time,
        backlog: Backlog,
        gauges: impl FnOnce(&mut dyn FnMut(&'static str, f64)),
    ) {
        if self.rows.len() >= ROWS_MAX {
            return;
        }
        self.rows.push(Row { time: now, backlog, ..self.row });
        self.row = Row::default();
        gauges(&mut |name, value| self.gauges.entry(name).or_default().push((now, value)));
        if let Some(journal) = &mut self.journal {
            journal.flush();
        }
    }

    /// Ends the recording.
    pub fn finish(mut self, now: Time) -> Recording {
        self.window().end = now;
        let lost_events = self.journal.take().map_or(0, Journal::finish);
        Recording {
            windows: self.windows,
            rows: self.rows,
            gauges: self.gauges,
            lost_events,
            buffer_bytes: self.pool.allocated_bytes(),
        }
    }

    fn window(&mut self) -> &mut Window {
        self.windows.last_mut().expect("there is a first window")
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

/// All that one direction recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The phases in order; the first, before any was named, is [`Phase::Whole`].
    pub windows: Vec<Window>,
    /// The time series.
    pub rows: Vec<Row>,
    /// The queue's own state over time, by name.
    pub gauges: BTreeMap<&'static str, Vec<(Time, f64)>>,
    /// Events that the log could not take in time.
    pub lost_events: u64,
    /// Bytes of buffers that were needed.
    pub buffer_bytes: usize,
}

impl Recording {
    /// All phases together.
    pub fn whole(&self) -> Window {
        let start = self.windows.first().map_or(Time::ZERO, |window| window.start);
        let mut whole = Window::new(Phase::Whole, start);
        for window in &self.windows {
            whole.add(window);
        }
        whole
    }
}

impl Observer<Handle> for Recorder {
    fn dropped(&mut self, now: Time, packet: Packet<Handle>, reason: DropReason) {
        self.window().drops.entry(reason).or_default().add(packet.meta.len);
        self.total.dropped += 1;
        self.row.drops += 1;
        if self.journal.is_some() {
            let bytes = self.ip_length(packet.payload);
            self.log(now, Event::Drop { bytes });
        }
        self.pool.release(packet.payload, 1);
    }

    fn marked(&mut self, _now: Time, _packet: &Packet<Handle>, reason: MarkReason) {
        *self.window().marks.entry(reason).or_default() += 1;
        self.total.marked += 1;
        self.row.marks += 1;
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<Handle>) {
        let sojourn = start.since(packet.meta.arrived);
        let window = self.window();
        window.sent.add(packet.meta.len);
        window.sojourn.saturating_record(sojourn.as_nanos());
        self.total.sent.add(packet.meta.len);
        self.row.sent.add(packet.meta.len);
        self.row.sojourn_max = self.row.sojourn_max.max(sojourn);
        if self.journal.is_some() {
            let bytes = self.ip_length(packet.payload);
            self.log(end, Event::Departure { bytes, waited: end.since(packet.meta.arrived) });
        }
    }
}
