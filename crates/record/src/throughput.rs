//! The throughput of a variant's trials in a direction.

use crate::schema::{
    BottleneckSummary, Direction, FlowRecord, Phase, TrialRecord, VariantThroughput,
};
use crate::shares::{self, Ratio, goodput};
use crate::stats::{CONFIDENCE, RunningMean, jain_index};

pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// A direction of a variant's trials.
#[derive(Debug, Default)]
pub(crate) struct ThroughputFold {
    goodput_bit_per_s: RunningMean,
    link_bit_per_s: RunningMean,
    utilisation_percent: RunningMean,
    jain_index: RunningMean,
    /// The ratios between the entries of the first trial; `None` before it.
    ratios: Option<Vec<Ratio>>,
}

impl ThroughputFold {
    /// Adds a valid trial.
    pub(crate) fn add(&mut self, trial: &TrialRecord, direction: Direction) {
        let rates = |is_wanted: fn(&FlowRecord) -> bool| -> Vec<f64> {
            let flows = trial.flows.iter().filter(|flow| is_wanted(flow));
            flows.filter_map(|flow| goodput(flow, direction)).collect()
        };
        let all = rates(|_| true);
        if !all.is_empty() {
            self.goodput_bit_per_s.push(all.iter().sum());
        }
        if let Some(link) = load_bottleneck(trial, direction) {
            if let Some(rate) = link_bit_per_s(link) {
                self.link_bit_per_s.push(rate);
            }
            if let Some(percent) = utilisation(link) {
                self.utilisation_percent.push(percent);
            }
        }
        let bulk = rates(|flow| flow.congestion_control.is_some());
        if bulk.len() >= 2
            && let Some(index) = jain_index(&bulk)
        {
            self.jain_index.push(index);
        }
        let ratios = self.ratios.get_or_insert_with(|| shares::ratios(trial, direction));
        for ratio in ratios {
            ratio.add(trial);
        }
    }

    /// Returns `None` if the direction has neither goodput nor link rate.
    pub(crate) fn summary(&self, direction: Direction) -> Option<VariantThroughput> {
        let of = |mean: &RunningMean| mean.interval(CONFIDENCE);
        let ratios = self.ratios.iter().flatten();
        let result = VariantThroughput {
            direction,
            goodput_bit_per_s: of(&self.goodput_bit_per_s),
            link_bit_per_s: of(&self.link_bit_per_s),
            utilisation_percent: of(&self.utilisation_percent),
            jain_index: of(&self.jain_index),
            ratios: ratios.filter_map(Ratio::summary).collect(),
        };
        let known = result.goodput_bit_per_s.is_some() || result.link_bit_per_s.is_some();
        known.then_some(result)
    }
}

/// Returns the direction's last bottleneck in the load phase.
fn load_bottleneck(trial: &TrialRecord, direction: Direction) -> Option<&BottleneckSummary> {
    let mut bottlenecks = trial.bottlenecks.iter().rev();
    bottlenecks.find(|link| link.direction == direction && link.window.phase == Phase::Load)
}

/// Returns the share of a link's capacity that it used, percent; `None` as [`link_bit_per_s`].
pub(crate) fn utilisation(link: &BottleneckSummary) -> Option<f64> {
    let capacity = link.capacity_bit_per_s.filter(|capacity| *capacity > 0)?;
    Some(link_bit_per_s(link)? * 100.0 / capacity as f64)
}

/// Returns the rate on a link; `None` if its window is too short for its capacity. A packet counts
/// where its transmission begins, also for the part after the window.
pub(crate) fn link_bit_per_s(link: &BottleneckSummary) -> Option<f64> {
    let seconds = link.window.end_ns.saturating_sub(link.window.start_ns) as f64 / 1e9;
    let is_short = |capacity: u64| capacity > 0 && (capacity as f64 * seconds) < LEAST_WINDOW_BITS;
    let is_known = !link.capacity_bit_per_s.is_some_and(is_short);
    is_known.then_some(link.throughput_bit_per_s as f64)
}

/// The least capacity of a window with a link rate: 20 packets of 1,500 bytes, so that the part of
/// one packet outside the window is at most 5 %.
const LEAST_WINDOW_BITS: f64 = 20.0 * 1_500.0 * 8.0;
