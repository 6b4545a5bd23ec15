//! The recorder of one direction, which counts every packet's fate without allocation or locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use underload_aqm::link::Link;
use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{Count, DropReason, MarkReason, Observer, Qdisc, Stats};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Phase, ValidityLimits};
use underload_record::stats::Histogram;
use underload_record::tally::{self, Curves, Sanctions, Tally};

use super::journal::{Event, Journal};
use crate::packet::{Handle, Pool, flow_name, segment_length};

underload_aqm::named! {
    /// Why a packet did not reach the queue, or was lost after the link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum InputDrop {
        /// Not an IP packet, or shorter than its header states.
        NotAPacket = "not-a-packet",
        /// A super-packet that cannot be cut.
        BadSuperPacket = "bad-super-packet",
        /// All packet buffers were in use.
        NoBuffer = "no-buffer",
        /// The device at the far end refused the packet.
        DeviceRefused = "device-refused",
    }
}

/// Counters and distributions of one phase.
#[derive(Clone, Debug)]
pub struct Window {
    pub phase: Phase,
    /// Counts of the queue and the link.
    pub link: tally::Window,
    /// Counts of the gateway outside of queue and link.
    pub gateway: Outside,
}

/// Counts of a gateway outside of its links.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Packets lost outside of queue and link; those of unknown length count as zero bytes.
    pub input_drops: BTreeMap<InputDrop, Count>,
    /// Time from the instant at which the packet was due to the return of the write, ns.
    pub lateness: Histogram,
}

impl Window {
    /// Adds the counts of another window and extends the times to both.
    pub fn merge(&mut self, other: &Self) {
        self.link.merge(&other.link);
        for (reason, count) in &other.gateway.input_drops {
            let known = self.gateway.input_drops.entry(*reason).or_default();
            *known = *known + *count;
        }
        self.gateway.lateness.merge(&other.gateway.lateness);
    }
}

/// Maximum number of rows of the time series: at 10 ms, three hours.
const ROWS_MAX: usize = 1 << 20;

/// Counters that other threads can read while the gateway runs.
#[derive(Debug, Default)]
pub struct Live(Mutex<Reading>);

/// The counters of a direction at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes transmitted since the start.
    pub sent_bytes: u64,
    /// Packets written to the far device since the start.
    pub delivered: u64,
    /// Delivered packets later than the limit of a valid trial, which allows one in a hundred.
    pub late: u64,
}

impl Live {
    pub fn read(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records one direction and owns its buffers: the buffer of a dropped packet is free at once.
#[derive(Debug)]
pub struct Recorder {
    pub pool: Pool,
    windows: Vec<Window>,
    phase: Phase,
    tally: Tally,
    /// Counts of the present phase.
    outside: Outside,
    curves: Curves,
    /// Names of the flows that queue protection sanctioned.
    flow_names: BTreeMap<u32, String>,
    /// Packets lost outside of queue and link since the last row of the time series.
    row_input_drops: u64,
    /// Packets written in total, and those of them that were too late.
    delivered: u64,
    late: u64,
    late_from_ns: u64,
    live: Arc<Live>,
    journal: Option<Journal>,
}

impl Recorder {
    /// Returns a recorder whose first phase starts now. `varying`: whether the link's rate varies.
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
            row_input_drops: 0,
            delivered: 0,
            late: 0,
            late_from_ns: ValidityLimits::default().lateness_p99_ns,
            live,
            journal,
        }
    }

    pub fn begin(&mut self, phase: Phase, now: Time, queue: &dyn Qdisc<Handle>) {
        let link = self.tally.end_window(now, queue.stats());
        let gateway = std::mem::take(&mut self.outside);
        let phase = std::mem::replace(&mut self.phase, phase);
        self.windows.push(Window { phase, link, gateway });
    }

    /// Records a packet that is about to be offered to the queue.
    pub fn arrived(&mut self, now: Time, bytes: u32) {
        self.log(now, Event::Arrival { bytes });
    }

    /// Counts a packet, or malformed bytes, lost outside of the queue.
    pub fn input_dropped(&mut self, reason: InputDrop, bytes: u32) {
        self.outside.input_drops.entry(reason).or_default().add(bytes);
        self.row_input_drops += 1;
    }

    /// Records a packet that was due at `due` and has been written.
    pub fn delivered(&mut self, due: Time, written: Time) {
        let late_ns = written.since(due).as_nanos();
        self.outside.lateness.record(late_ns);
        self.delivered += 1;
        self.late += u64::from(late_ns > self.late_from_ns);
    }

    /// Publishes the counters, unless another thread is reading them: the next call does so then.
    pub fn publish(&self) {
        if let Ok(mut reading) = self.live.0.try_lock() {
            let sent_bytes = self.tally.total().sent.bytes;
            *reading = Reading { sent_bytes, delivered: self.delivered, late: self.late };
        }
    }

    /// Appends a row to the time series.
    pub fn sample(&mut self, now: Time, link: &Link<Handle>) {
        let mut row = self.tally.end_row(now, link.queue().backlog());
        row.drops += std::mem::take(&mut self.row_input_drops);
        if self.curves.rows.len() < ROWS_MAX {
            self.curves.push(row, link);
        }
        if let Some(journal) = &mut self.journal {
            journal.flush();
        }
    }

    /// Closes the last phase and returns the recording.
    pub fn finish(mut self, now: Time, queue: &dyn Qdisc<Handle>) -> Recording {
        self.begin(Phase::Whole, now, queue);
        let start = self.windows.first().map_or(now, |window| window.link.start);
        let varying = self.tally.delays().queuing_delay.is_some();
        let link = Tally::new(start, varying).end_window(start, Stats::default());
        let mut whole = Window { phase: Phase::Whole, link, gateway: Outside::default() };
        self.windows.iter().for_each(|window| whole.merge(window));
        let lost_events = self.journal.take().map_or(0, Journal::finish);
        Recording {
            whole,
            windows: self.windows,
            curves: self.curves,
            flow_names: self.flow_names,
            lost_events,
            buffer_bytes: self.pool.allocated_bytes,
        }
    }

    /// The packet's length without the overhead of the link.
    fn ip_length(&mut self, handle: Handle) -> u32 {
        segment_length(self.pool.frame(handle), handle.segment)
    }

    fn log(&mut self, time: Time, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.write(time, event);
        }
    }
}

#[derive(Clone, Debug)]
pub struct Recording {
    pub whole: Window,
    /// The phases in order; the first, before any was begun, is [`Phase::Whole`].
    pub windows: Vec<Window>,
    pub curves: Curves,
    /// Names of the flows that queue protection sanctioned, by their hashes.
    pub flow_names: BTreeMap<u32, String>,
    /// Events that the log was too slow for.
    pub lost_events: u64,
    /// Size of all buffers.
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
