//! What a gateway did, in the terms of `underload-record`.

use hdrhistogram::Histogram;

use underload_aqm::link::RateProcess;
use underload_aqm::qdisc::{Backlog, Count};
use underload_aqm::time::{Span, Time};
use underload_record::schema::{
    BottleneckSummary, Direction, Distribution, PacketCount, Phase, PhaseWindow, Series,
    SeriesKind, SeriesPoint,
};

use super::config::Threads;
use super::lane::IoStats;
use super::recorder::{Recording, Row, Window, distribution};
use crate::machine::Realtime;

/// Everything that a gateway recorded from start to stop.
#[derive(Clone, Debug)]
pub struct GatewayReport {
    /// Up and down.
    pub lanes: Vec<(Direction, LaneReport)>,
    /// What the machine granted.
    pub realtime: Realtime,
    /// How often the threads slept.
    pub sleeps: u64,
    /// How long they spun.
    pub spun: Span,
    /// How many there were.
    pub threads: Threads,
}

/// One direction.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// The queue's SPEC in full.
    pub queue: String,
    /// The link's SPEC in full.
    pub link: String,
    /// The link's rate by itself, from the gateway's start on: what it offered.
    pub offer: RateProcess,
    /// What waited when the gateway stopped.
    pub left_in_queue: Backlog,
    /// How the data path worked.
    pub io: IoStats,
    /// Fates, times and curves.
    pub recording: Recording,
}

impl GatewayReport {
    /// One direction.
    pub fn lane(&self, direction: Direction) -> Option<&LaneReport> {
        self.lanes.iter().find(|(of, _)| *of == direction).map(|(_, lane)| lane)
    }

    /// How late packets left, both directions and all phases together. `None`: none left. Above
    /// the limit of [`underload_record::schema::ValidityLimits`] a trial is invalid.
    pub fn lateness(&self) -> Option<Distribution> {
        let mut all: Option<Histogram<u64>> = None;
        for (_, lane) in &self.lanes {
            let lateness = lane.recording.whole().lateness;
            match &mut all {
                Some(all) => all.add(&lateness).expect("all windows have the same bounds"),
                None => all = Some(lateness),
            }
        }
        all.as_ref().and_then(distribution)
    }

    /// What each bottleneck did, in each phase and on the whole.
    pub fn bottlenecks(&self) -> Vec<BottleneckSummary> {
        let summaries = self.lanes.iter().flat_map(|(direction, lane)| {
            let whole = lane.recording.whole();
            let phases = lane.recording.windows.iter().filter(|w| w.phase != Phase::Whole);
            phases
                .map(|window| lane.bottleneck(*direction, window))
                .chain([lane.bottleneck(*direction, &whole)])
                .collect::<Vec<_>>()
        });
        summaries.collect()
    }

    /// The curves over time of trial number `trial`.
    pub fn series(&self, trial: u32) -> Vec<Series> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|(direction, lane)| lane.series(trial, *direction)).collect()
    }
}

impl LaneReport {
    fn bottleneck(&self, direction: Direction, window: &Window) -> BottleneckSummary {
        let length = window.end.since(window.start);
        let offered_bytes = self.offer.clone().offered_bytes(window.start, window.end);
        let drops = window.drops.iter().map(|(reason, count)| (reason.name(), count));
        let inputs = window.input_drops.iter().map(|(reason, count)| (reason.name(), count));
        let drops = drops.chain(inputs).map(|(name, count)| (name.to_owned(), packets(*count)));
        let marks = window.marks.iter().map(|(reason, count)| (reason.name().to_owned(), *count));
        BottleneckSummary {
            hop: String::new(),
            direction,
            queue: self.queue.clone(),
            link: self.link.clone(),
            window: PhaseWindow {
                phase: window.phase,
                start_ns: window.start.as_nanos(),
                end_ns: window.end.as_nanos(),
            },
            offered: packets(window.offered),
            sent: packets(window.sent),
            drops: drops.collect(),
            marks: marks.collect(),
            sojourn: distribution(&window.sojourn),
            queuing_delay: None,
            throughput_bit_per_s: bits_per_second(window.sent.bytes, length),
            capacity_bit_per_s: offered_bytes.map(|bytes| bits_per_second(bytes, length)),
        }
    }

    fn series(&self, trial: u32, direction: Direction) -> Vec<Series> {
        let mut curves: Vec<Series> =
            SeriesKind::ALL.iter().map(|kind| self.curve(*kind, trial, direction)).collect();
        for (name, points) in &self.recording.gauges {
            let points = points.iter().map(|(time, value)| point(*time, *value)).collect();
            let (name, unit) = (format!("{direction}.{name}"), String::new());
            curves.push(Series { trial, name, unit, points });
        }
        curves
    }

    fn curve(&self, kind: SeriesKind, trial: u32, direction: Direction) -> Series {
        let start = self.recording.windows.first().map_or(Time::ZERO, |window| window.start);
        let mut before = start;
        let mut value = |row: &Row| {
            let passed = row.time.since(std::mem::replace(&mut before, row.time));
            match kind {
                SeriesKind::Backlog => row.backlog.bytes as f64,
                SeriesKind::Sojourn => row.sojourn_max.as_nanos() as f64,
                SeriesKind::Throughput => bits_per_second(row.sent.bytes, passed) as f64,
                SeriesKind::Drops => row.drops as f64,
                SeriesKind::Marks => row.marks as f64,
            }
        };
        let rows = self.recording.rows.iter();
        let points = rows.map(|row| point(row.time, value(row))).collect();
        Series { points, ..kind.series(trial, direction) }
    }
}

fn point(time: Time, value: f64) -> SeriesPoint {
    SeriesPoint { time_ns: time.as_nanos(), value }
}

fn packets(count: Count) -> PacketCount {
    PacketCount { packets: count.packets, bytes: count.bytes }
}

fn bits_per_second(bytes: u64, span: Span) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    bits.checked_div(u128::from(span.as_nanos())).unwrap_or(0) as u64
}
