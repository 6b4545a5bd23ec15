//! The report of a gateway, in the terms of `underload-record`.

use underload_aqm::link::RateProcess;
use underload_aqm::qdisc::Backlog;
use underload_aqm::time::Span;
use underload_record::link::{LinkName, distribution, packets};
use underload_record::schema::{BottleneckSummary, Direction, Distribution, Phase, Series};
use underload_record::stats::Histogram;

use super::lane::IoStats;
use super::recorder::{Recording, Window};

/// The report of a gateway from start to stop.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    pub lanes: Vec<(Direction, LaneReport)>,
    /// Time that the thread spun.
    pub spun: Span,
}

#[derive(Clone, Debug)]
pub struct LaneReport {
    /// Name of the link in records.
    pub name: LinkName,
    /// The link's rate from the gateway's start on, regardless of traffic.
    pub offer: RateProcess,
    /// Packets in the queue when the gateway stopped.
    pub left_in_queue: Backlog,
    pub io: IoStats,
    pub recording: Recording,
}

impl GatewayReport {
    pub fn lane(&self, direction: Direction) -> Option<&LaneReport> {
        self.lanes.iter().find(|(of, _)| *of == direction).map(|(_, lane)| lane)
    }

    /// Lateness of packets in both directions and all phases; `None` if none left. Above the limit
    /// of [`underload_record::schema::ValidityLimits`] a trial is invalid.
    pub fn lateness(&self) -> Option<Distribution> {
        let mut all = Histogram::new();
        for (_, lane) in &self.lanes {
            all.merge(&lane.recording.whole.gateway.lateness);
        }
        distribution(&all)
    }

    /// Summaries of each bottleneck and phase, except for the time before the first phase.
    pub fn bottlenecks(&self) -> Vec<BottleneckSummary> {
        let summaries = self.lanes.iter().flat_map(|(_, lane)| {
            let phases = lane.recording.windows.iter().filter(|w| w.phase != Phase::Whole);
            phases.map(|window| lane.bottleneck(window))
        });
        summaries.collect()
    }

    /// Summaries of each bottleneck from start to stop.
    pub fn whole(&self) -> Vec<BottleneckSummary> {
        self.lanes.iter().map(|(_, lane)| lane.bottleneck(&lane.recording.whole)).collect()
    }

    /// Time series of trial number `trial`.
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
