//! What a gateway did, in the terms of `underload-record`.

use underload_aqm::histogram::Histogram;
use underload_aqm::link::RateProcess;
use underload_aqm::qdisc::Backlog;
use underload_aqm::time::Span;
use underload_record::link::{LinkName, distribution, packets};
use underload_record::schema::{BottleneckSummary, Direction, Distribution, Phase, Series};

use super::config::Threads;
use super::lane::IoStats;
use super::recorder::{Recording, Window};
use crate::machine::Realtime;

/// Everything that a gateway recorded from start to stop.
#[derive(Clone, Debug)]
pub struct GatewayReport {
    /// Both directions.
    pub lanes: Vec<(Direction, LaneReport)>,
    /// Real-time scheduling that the system granted.
    pub realtime: Realtime,
    /// How often the threads slept while waiting for a deadline.
    pub sleeps: u64,
    /// Time that the threads spent spinning on the clock.
    pub spun: Span,
    /// Number of threads.
    pub threads: Threads,
}

/// What one direction recorded.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// Name of the link in records.
    pub name: LinkName,
    /// The link's rate by itself, from the gateway's start on: what it offered.
    pub offer: RateProcess,
    /// Packets that waited when the gateway stopped.
    pub left_in_queue: Backlog,
    /// Counts of reads, writes and batches.
    pub io: IoStats,
    /// Fates, times and curves.
    pub recording: Recording,
}

impl GatewayReport {
    /// The report of a direction.
    pub fn lane(&self, direction: Direction) -> Option<&LaneReport> {
        self.lanes.iter().find(|(of, _)| *of == direction).map(|(_, lane)| lane)
    }

    /// How late packets left, both directions and all phases together. `None`: none left. Above
    /// the limit of [`underload_record::schema::ValidityLimits`] a trial is invalid.
    pub fn lateness(&self) -> Option<Distribution> {
        let mut all = Histogram::new();
        for (_, lane) in &self.lanes {
            all.merge(&lane.recording.whole.gateway.lateness);
        }
        distribution(&all)
    }

    /// What each bottleneck did, in each phase. What passed before the first one belongs to none.
    pub fn bottlenecks(&self) -> Vec<BottleneckSummary> {
        let summaries = self.lanes.iter().flat_map(|(_, lane)| {
            let phases = lane.recording.windows.iter().filter(|w| w.phase != Phase::Whole);
            phases.map(|window| lane.bottleneck(window))
        });
        summaries.collect()
    }

    /// What each bottleneck did from start to stop.
    pub fn whole(&self) -> Vec<BottleneckSummary> {
        self.lanes.iter().map(|(_, lane)| lane.bottleneck(&lane.recording.whole)).collect()
    }

    /// The curves over time of trial number `trial`.
    pub fn series(&self, trial: u32) -> Vec<Series> {
        self.lanes.iter().flat_map(|(_, lane)| lane.series(trial)).collect()
    }
}

impl LaneReport {
    fn bottleneck(&self, window: &Window) -> BottleneckSummary {
        let (start, end) = (window.link.start, window.link.end);
        let capacity_bytes = self.offer.clone().offered_bytes(start, end);
        let names = &self.recording.flow_names;
        let name = |flow| names.get(&flow).cloned().unwrap_or_else(|| format!("flow {flow:08x}"));
        let mut summary = self.name.summarise(window.phase, &window.link, capacity_bytes, &name);
        let outside = window.gateway.input_drops.iter();
        summary.drops.extend(outside.map(|(why, count)| (why.name().to_owned(), packets(*count))));
        summary
    }

    fn series(&self, trial: u32) -> Vec<Series> {
        self.name.series(&self.recording.curves, self.recording.whole.link.start, trial)
    }
}
