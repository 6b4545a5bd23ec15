//! Computes the latencies of trials and variants from their samples.

use std::collections::BTreeMap;

use crate::schema::{
    Distribution, FlowRecord, LatencyMeasure, LatencySummary, Phase, PhaseWindow, Quantile, Sample,
    StudyRecord, TrialRecord, VariantLatency,
};
use crate::stats::{self, SignedHistogram};
use crate::study::StudyPools;

/// Maximum number of samples that a pool stores exactly; more are counted in a histogram.
const EXACT_SAMPLES: usize = 1 << 20;

/// Returns the latency of one probe in one window, from the samples whose scheduled time lies
/// inside. All `samples` must be of that probe, in the order in which they were sent.
pub fn summarise(
    samples: &[Sample],
    probe: &str,
    window: PhaseWindow,
    measure: LatencyMeasure,
) -> LatencySummary {
    let inside = || samples.iter().filter(|sample| window.contains(sample.scheduled_ns));
    let mut delays: Vec<i64> = inside().filter_map(|sample| measure.of(sample)).collect();
    let distribution = stats::distribution(&mut delays);
    let sent = inside().count() as u64;
    let of_sent_ns = match measure {
        LatencyMeasure::RoundTrip => stats::of_sent(&delays, sent),
        // An answered probe may lack the one-way delay.
        LatencyMeasure::OneWayUp | LatencyMeasure::OneWayDown => BTreeMap::new(),
    };
    let closed_loop = inside().any(|sample| sample.closed_loop);
    let time_weighted = closed_loop.then(|| time_weighted(samples, window, measure)).flatten();
    LatencySummary {
        probe: probe.to_owned(),
        measure,
        closed_loop,
        window,
        sent,
        lost: inside().filter(|sample| sample.rtt_ns.is_none()).count() as u64,
        distribution,
        of_sent_ns,
        time_weighted,
    }
}

/// Returns the delays weighted by the time until the next probe of the same flow. A fast answer is
/// followed by the next request at once, so one window may have thousands of idle samples and a
/// dozen loaded ones; weighted by time both halves of the window count alike.
fn time_weighted(
    samples: &[Sample],
    window: PhaseWindow,
    measure: LatencyMeasure,
) -> Option<Distribution> {
    let mut pairs = Vec::new();
    for (position, sample) in samples.iter().enumerate() {
        if !window.contains(sample.scheduled_ns) {
            continue;
        }
        let next = samples.get(position + 1).map_or(window.end_ns, |next| next.sent_ns);
        let weight = next.min(window.end_ns).saturating_sub(sample.sent_ns);
        pairs.extend(measure.of(sample).map(|delay| (delay, weight)));
    }
    stats::weighted_distribution(&mut pairs)
}

/// Returns the latency of every probe in every phase of a trial: the round trip first, then the
/// one-way delays if any sample has them. Windows in which nothing was sent are omitted.
pub fn trial_latencies(
    samples: &[Sample],
    flows: &[FlowRecord],
    phases: &[PhaseWindow],
) -> Vec<LatencySummary> {
    let mut by_flow: BTreeMap<u16, Vec<Sample>> = BTreeMap::new();
    for sample in samples {
        by_flow.entry(sample.flow).or_default().push(*sample);
    }
    let mut summaries = Vec::new();
    for (flow, samples) in &by_flow {
        let probe = flows.get(usize::from(*flow)).map_or("", |flow| flow.name.as_str());
        for measure in LatencyMeasure::ALL {
            let measured = samples.iter().any(|sample| measure.of(sample).is_some());
            if !measured && measure != LatencyMeasure::RoundTrip {
                continue;
            }
            let per_phase = phases.iter().map(|window| summarise(samples, probe, *window, measure));
            summaries.extend(per_phase.filter(|summary| summary.sent > 0));
        }
    }
    summaries
}

impl LatencyMeasure {
    /// Returns the sample's delay of this kind, in ns. A one-way delay is negative if the clocks
    /// differ by more than the path takes.
    pub fn of(self, sample: &Sample) -> Option<i64> {
        match self {
            LatencyMeasure::RoundTrip => {
                sample.rtt_ns.map(|rtt_ns| i64::try_from(rtt_ns).unwrap_or(i64::MAX))
            }
            LatencyMeasure::OneWayUp => sample.one_way_up_ns,
            LatencyMeasure::OneWayDown => sample.one_way_down_ns,
        }
    }
}

/// The delays of the valid trials of each variant, pooled trial by trial in bounded memory.
#[derive(Debug, Default)]
pub struct LatencyPools {
    pools: BTreeMap<PoolKey, Pool>,
    study: StudyPools,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PoolKey {
    variant: String,
    probe: String,
    measure: LatencyMeasure,
    phase: Phase,
}

#[derive(Debug)]
enum Pool {
    Exact(Vec<i64>),
    Counted(Box<SignedHistogram>),
}

impl LatencyPools {
    /// Computes the groups of a study from the runs of its lines.
    pub fn conclude_study(&self, study: &mut StudyRecord) {
        self.study.conclude(study);
    }

    /// Adds the samples of one trial unless the trial is invalid.
    pub fn add(&mut self, trial: &TrialRecord, samples: &[Sample]) {
        if !trial.validity.is_valid() {
            return;
        }
        self.study.add(trial, samples);
        for summary in &trial.latencies {
            let Some(flow) = trial.flows.iter().position(|flow| flow.name == summary.probe) else {
                continue;
            };
            let key = PoolKey {
                variant: trial.variant.clone(),
                probe: summary.probe.clone(),
                measure: summary.measure,
                phase: summary.window.phase,
            };
            let pool = self.pools.entry(key).or_insert_with(|| Pool::Exact(Vec::new()));
            let inside = samples.iter().filter(|sample| {
                usize::from(sample.flow) == flow && summary.window.contains(sample.scheduled_ns)
            });
            inside.filter_map(|sample| summary.measure.of(sample)).for_each(|ns| pool.push(ns));
        }
    }

    /// Sets the quantiles of a latency over all samples of a variant.
    pub(crate) fn pool(&self, variant: &str, latency: &mut VariantLatency) {
        let (measure, phase) = (latency.measure, latency.phase);
        let (variant, probe) = (variant.to_owned(), latency.probe.clone());
        let Some(pool) = self.pools.get(&PoolKey { variant, probe, measure, phase }) else {
            return;
        };
        let sent = if measure == LatencyMeasure::RoundTrip { latency.sent } else { 0 };
        (latency.pooled, latency.of_sent_ns) = pool.quantiles(sent);
    }
}

impl Pool {
    fn push(&mut self, ns: i64) {
        match self {
            Pool::Exact(values) if values.len() < EXACT_SAMPLES => values.push(ns),
            Pool::Exact(values) => {
                let mut counted = Box::<SignedHistogram>::default();
                for value in &*values {
                    counted.record(*value);
                }
                counted.record(ns);
                *self = Pool::Counted(counted);
            }
            Pool::Counted(counted) => counted.record(ns),
        }
    }

    /// Returns the quantiles of the answered probes, and the quantiles of all probes `sent`.
    fn quantiles(&self, sent: u64) -> (Option<Distribution>, BTreeMap<Quantile, Option<i64>>) {
        match self {
            Pool::Exact(values) => {
                let mut sorted = values.clone();
                (stats::distribution(&mut sorted), stats::of_sent(&sorted, sent))
            }
            Pool::Counted(counted) => (counted.distribution(), counted.of_sent(sent)),
        }
    }
}
