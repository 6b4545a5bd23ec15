//! Summarises the trials of a variant one by one. No trial is stored, so a million trials need no more
//! memory than fifty.

use std::collections::BTreeMap;

use crate::judgement::suitability;
use crate::link::merge_sanction;
use crate::schema::{
    BottleneckSummary, Distribution, FlowRecord, InsideLatency, Interval, LatencyHistogram,
    LatencyMeasure, LatencySummary, Metric, Phase, Quantile, TrialRecord, VariantBottleneck,
    VariantInside, VariantLatency, VariantMetric, VariantSummary,
};
use crate::stats::{CONFIDENCE, RunningMean};
use crate::summarise::LatencyPools;
use crate::throughput::{DIRECTIONS, ThroughputFold, link_bit_per_s, utilisation};

#[derive(Debug, Default)]
pub(crate) struct VariantFold {
    valid: u32,
    invalid: u32,
    latencies: Vec<LatencyFold>,
    inside: Vec<InsideFold>,
    throughputs: [ThroughputFold; 2],
    bottlenecks: Vec<BottleneckFold>,
    metrics: Vec<MetricFold>,
}

impl VariantFold {
    /// Adds a trial; an invalid trial is only counted.
    pub(crate) fn add(&mut self, trial: &TrialRecord) {
        let is_valid = trial.validity.is_valid();
        *(if is_valid { &mut self.valid } else { &mut self.invalid }) += 1;
        if !is_valid {
            return;
        }
        let mut hint = 0;
        for latency in &trial.latencies {
            let is_same = |known: &LatencyFold| known.matches(latency);
            entry(&mut self.latencies, &mut hint, is_same, || LatencyFold::new(latency))
                .add(latency);
        }
        hint = 0;
        for inside in &trial.inside {
            let is_same = |known: &InsideFold| known.total.direction == inside.direction;
            entry(&mut self.inside, &mut hint, is_same, || InsideFold::new(inside)).add(inside);
        }
        for (fold, direction) in self.throughputs.iter_mut().zip(DIRECTIONS) {
            fold.add(trial, direction);
        }
        hint = 0;
        for link in &trial.bottlenecks {
            let is_same = |known: &BottleneckFold| known.matches(link);
            entry(&mut self.bottlenecks, &mut hint, is_same, || BottleneckFold::new(link))
                .add(link);
        }
        hint = 0;
        for flow in &trial.flows {
            for metric in &flow.metrics {
                let is_same = |known: &MetricFold| known.matches(flow, metric);
                let fold =
                    entry(&mut self.metrics, &mut hint, is_same, || MetricFold::new(flow, metric));
                if let Some(value) = metric.value.filter(|value| value.is_finite()) {
                    fold.value.push(value);
                    fold.largest = fold.largest.max(value);
                }
            }
        }
    }

    /// Returns the summary of the trials.
    pub(crate) fn summary(&self, variant: &str, pools: &LatencyPools) -> VariantSummary {
        let directions = self.throughputs.iter().zip(DIRECTIONS);
        VariantSummary {
            variant: variant.to_owned(),
            trials_valid: self.valid,
            trials_invalid: self.invalid,
            latencies: self
                .latencies
                .iter()
                .map(|latency| latency.summary(variant, pools))
                .collect(),
            inside: self.inside.iter().map(InsideFold::summary).collect(),
            throughputs: directions.filter_map(|(fold, way)| fold.summary(way)).collect(),
            bottlenecks: self.bottlenecks.iter().map(BottleneckFold::summary).collect(),
            metrics: self.metrics.iter().filter_map(MetricFold::summary).collect(),
        }
    }

    /// Returns the probe of [`VariantSummary::headline`], of the trials so far.
    pub(crate) fn headline_probe(&self, phase: Phase) -> Option<&str> {
        let mut totals = self.latencies.iter().map(|latency| &latency.total);
        let headline = totals.find(|total| {
            !total.closed_loop && total.measure == LatencyMeasure::RoundTrip && total.phase == phase
        });
        Some(headline?.probe.as_str())
    }
}

/// Returns the entry for which `is_same` is true, or appends a new one. All trials list their
/// entries in one order, so `hint` is the position at which the next is likely to be.
fn entry<'a, T>(
    list: &'a mut Vec<T>,
    hint: &mut usize,
    is_same: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &'a mut T {
    let position = match list.get(*hint) {
        Some(likely) if is_same(likely) => *hint,
        _ => list.iter().position(is_same).unwrap_or(list.len()),
    };
    if position == list.len() {
        list.push(make());
    }
    *hint = position + 1;
    &mut list[position]
}

/// The mean of each statistic over distributions.
#[derive(Debug, Default)]
struct Quantiles([RunningMean; Quantile::ALL.len()]);

impl Quantiles {
    fn add(&mut self, distribution: Option<&Distribution>) {
        let Some(distribution) = distribution else { return };
        for (mean, quantile) in self.0.iter_mut().zip(Quantile::ALL) {
            mean.push(quantile.of(distribution) as f64);
        }
    }

    fn intervals(&self) -> BTreeMap<Quantile, Interval> {
        let means = Quantile::ALL.into_iter().zip(&self.0);
        means.filter_map(|(quantile, mean)| Some((quantile, mean.interval(CONFIDENCE)?))).collect()
    }
}

/// A probe in a phase.
#[derive(Debug)]
struct LatencyFold {
    /// Starts without pooled quantiles and without intervals over repeats.
    total: VariantLatency,
    over_repeats: Quantiles,
    time_weighted: Quantiles,
}

impl LatencyFold {
    fn new(first: &LatencySummary) -> Self {
        let (probe, measure, phase) = (first.probe.clone(), first.measure, first.window.phase);
        let total = VariantLatency { probe, measure, phase, ..VariantLatency::default() };
        Self { total, over_repeats: Quantiles::default(), time_weighted: Quantiles::default() }
    }

    fn matches(&self, latency: &LatencySummary) -> bool {
        let total = &self.total;
        total.measure == latency.measure
            && total.phase == latency.window.phase
            && total.probe == latency.probe
    }

    fn add(&mut self, latency: &LatencySummary) {
        self.total.closed_loop |= latency.closed_loop;
        self.total.window_ns += latency.window.length_ns();
        self.total.sent += latency.sent;
        self.total.lost += latency.lost;
        self.total.trials_all_lost += u32::from(latency.is_all_lost());
        self.over_repeats.add(latency.distribution.as_ref());
        self.time_weighted.add(latency.time_weighted.as_ref());
    }

    fn summary(&self, variant: &str, pools: &LatencyPools) -> VariantLatency {
        let mut latency = self.total.clone();
        // An interval over the other trials alone would show a variant that lost all of a trial's
        // probes as better than one that delayed them.
        if latency.trials_all_lost == 0 {
            latency.over_repeats = self.over_repeats.intervals();
            latency.time_weighted = self.time_weighted.intervals();
        }
        pools.pool(variant, &mut latency);
        latency
    }
}

/// The loading connections of one direction.
#[derive(Debug)]
struct InsideFold {
    /// Quantiles are missing until [`InsideFold::summary`].
    total: VariantInside,
    over_repeats: Quantiles,
}

impl InsideFold {
    fn new(first: &InsideLatency) -> Self {
        let total = VariantInside { direction: first.direction, ..VariantInside::default() };
        Self { total, over_repeats: Quantiles::default() }
    }

    fn add(&mut self, inside: &InsideLatency) {
        self.total.values += inside.distribution.count;
        self.over_repeats.add(Some(&inside.distribution));
    }

    fn summary(&self) -> VariantInside {
        VariantInside { over_repeats: self.over_repeats.intervals(), ..self.total.clone() }
    }
}

/// A queue in a phase.
#[derive(Debug)]
struct BottleneckFold {
    /// The summary; intervals over repeats are computed at the end.
    total: VariantBottleneck,
    link_bit_per_s: RunningMean,
    utilisation_percent: RunningMean,
    sojourn: Quantiles,
    queuing_delay: Quantiles,
}

impl BottleneckFold {
    fn new(first: &BottleneckSummary) -> Self {
        let total = VariantBottleneck {
            hop: first.hop.clone(),
            direction: first.direction,
            phase: first.window.phase,
            queue: first.queue.clone(),
            link: first.link.clone(),
            ..VariantBottleneck::default()
        };
        let (link_bit_per_s, utilisation_percent, sojourn, queuing_delay) = Default::default();
        Self { total, link_bit_per_s, utilisation_percent, sojourn, queuing_delay }
    }

    fn matches(&self, link: &BottleneckSummary) -> bool {
        let total = &self.total;
        total.direction == link.direction
            && total.phase == link.window.phase
            && total.hop == link.hop
    }

    fn add(&mut self, link: &BottleneckSummary) {
        add_counters(&mut self.total, link);
        if let Some(rate) = link_bit_per_s(link) {
            self.link_bit_per_s.push(rate);
        }
        if let Some(percent) = utilisation(link) {
            self.utilisation_percent.push(percent);
        }
        self.sojourn.add(link.sojourn.as_ref());
        self.queuing_delay.add(link.queuing_delay.as_ref());
    }

    fn summary(&self) -> VariantBottleneck {
        VariantBottleneck {
            link_bit_per_s: self.link_bit_per_s.interval(CONFIDENCE),
            utilisation_percent: self.utilisation_percent.interval(CONFIDENCE),
            sojourn: self.sojourn.intervals(),
            queuing_delay: self.queuing_delay.intervals(),
            ..self.total.clone()
        }
    }
}

fn add_counters(total: &mut VariantBottleneck, link: &BottleneckSummary) {
    total.offered.packets += link.offered.packets;
    total.offered.bytes += link.offered.bytes;
    total.sent.packets += link.sent.packets;
    total.sent.bytes += link.sent.bytes;
    for (reason, dropped) in &link.drops {
        let count = total.drops.entry(reason.clone()).or_default();
        count.packets += dropped.packets;
        count.bytes += dropped.bytes;
    }
    for (reason, marked) in &link.marks {
        *total.marks.entry(reason.clone()).or_default() += marked;
    }
    for (rule, changed) in &link.remarked {
        *total.remarked.entry(rule.clone()).or_default() += changed;
    }
    for sanction in &link.sanctions {
        merge_sanction(&mut total.sanctions, sanction);
    }
    for histogram in &link.latency_histograms {
        add_histogram(&mut total.latency_histograms, histogram);
    }
}

/// Adds the counts to the histogram of the same service flow and bins, or appends the histogram:
/// trials with other bins have a histogram each.
fn add_histogram(all: &mut Vec<LatencyHistogram>, other: &LatencyHistogram) {
    let is_same = |known: &&mut LatencyHistogram| {
        known.service_flow == other.service_flow && known.edges_ns == other.edges_ns
    };
    let Some(known) = all.iter_mut().find(is_same) else { return all.push(other.clone()) };
    for (count, more) in known.packets.iter_mut().zip(&other.packets) {
        *count = count.saturating_add(*more);
    }
}

/// A number of an application.
#[derive(Debug)]
struct MetricFold {
    flow: String,
    name: String,
    unit: String,
    value: RunningMean,
    largest: f64,
}

impl MetricFold {
    fn new(flow: &FlowRecord, metric: &Metric) -> Self {
        let (flow, name, unit) = (flow.name.clone(), metric.name.clone(), metric.unit.clone());
        Self { flow, name, unit, value: RunningMean::default(), largest: f64::NEG_INFINITY }
    }

    fn matches(&self, flow: &FlowRecord, metric: &Metric) -> bool {
        self.name == metric.name && self.unit == metric.unit && self.flow == flow.name
    }

    /// Returns `None` if no trial has a value.
    fn summary(&self) -> Option<VariantMetric> {
        let value = self.value.interval(CONFIDENCE)?;
        let (flow, name, unit) = (self.flow.clone(), self.name.clone(), self.unit.clone());
        let found = VariantMetric { flow, name, unit, value, largest: self.largest, suits: None };
        Some(VariantMetric { suits: suitability(&found), ..found })
    }
}

/// `PHASE.rtt.STAT.within.LOW-HIGH`: the share of a variant's valid trials in which the statistic of a
/// probe is at least LOW and below HIGH, ms.
#[derive(Debug)]
pub(crate) struct ShareWithin {
    pub(crate) phase: Phase,
    quantile: Quantile,
    low_ns: f64,
    high_ns: f64,
    /// By probe: the number of trials within the range, and of all trials. Which probe is the
    /// headline is known only after the last trial.
    probes: BTreeMap<String, (u64, u64)>,
}

impl ShareWithin {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (statistic, band) = name.split_once(".within.")?;
        let (low, high) = band.split_once('-')?;
        let ns = |text: &str| text.parse::<f64>().ok().map(|ms| ms * 1e6);
        let (phase, statistic) = statistic.split_once(".rtt.")?;
        Some(Self {
            phase: Phase::from_name(phase)?,
            quantile: Quantile::from_name(statistic)?,
            low_ns: ns(low)?,
            high_ns: ns(high)?,
            probes: BTreeMap::new(),
        })
    }

    /// Adds a trial to the shares of the probes that it sent in the phase. A trial that lost all probes
    /// is not within any range.
    pub(crate) fn add(&mut self, trial: &TrialRecord) {
        let in_phase = trial.latencies.iter().filter(|latency| {
            latency.measure == LatencyMeasure::RoundTrip && latency.window.phase == self.phase
        });
        for latency in in_phase {
            let value = latency.distribution.map(|all| self.quantile.of(&all) as f64);
            let is_inside = value.is_some_and(|ns| (self.low_ns..self.high_ns).contains(&ns));
            let (inside, trials) = self.probes.entry(latency.probe.clone()).or_default();
            *inside += u64::from(is_inside);
            *trials += u64::from(value.is_some() || latency.is_all_lost());
        }
    }

    pub(crate) fn percent(&self, probe: &str) -> Option<f64> {
        let (inside, trials) = self.probes.get(probe)?;
        percent(*inside, *trials)
    }
}

/// Returns `part` of `whole` in percent; `None` if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Expectation, RunRecord};
    use crate::schema::{Validity, World};
    use crate::stats::mean_interval;
    use crate::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};

    /// Two variants, each with one invalid trial.
    fn run() -> RunRecord {
        let queues = [BUFFER_CONTROL, DOCSIS_PIE];
        let mut run = synthetic::record(World::Sim, &queues);
        let trials = synthetic::trials(&queues, 6, 50_000_000);
        run.trials = trials.into_iter().map(|trial| trial.record).collect();
        run.trials[4].validity = synthetic::late();
        run.trials[7].validity = synthetic::late();
        crate::conclude(&mut run, &LatencyPools::default());
        run
    }

    fn over(values: impl Iterator<Item = Option<f64>>) -> Option<Interval> {
        mean_interval(&values.flatten().collect::<Vec<_>>(), CONFIDENCE)
    }

    #[test]
    fn folded_numbers_equal_those_of_stored_trials() {
        let run = run();
        for summary in &run.summaries {
            let own = |trial: &&TrialRecord| trial.variant == summary.variant;
            let valid = |trial: &&TrialRecord| trial.validity.is_valid();
            let trials: Vec<&TrialRecord> = run.trials.iter().filter(own).filter(valid).collect();
            assert_eq!((summary.trials_valid, summary.trials_invalid), (5, 1), "the premise");
            assert!(!summary.latencies.is_empty() && !summary.bottlenecks.is_empty());
            for latency in &summary.latencies {
                let same = |it: &&LatencySummary| {
                    (&it.probe, it.measure, it.window.phase)
                        == (&latency.probe, latency.measure, latency.phase)
                };
                let of = |trial: &&TrialRecord| trial.latencies.iter().find(same).cloned();
                let all: Vec<LatencySummary> = trials.iter().filter_map(of).collect();
                for quantile in Quantile::ALL {
                    let values = all.iter().map(|it| it.distribution.as_ref());
                    let want = over(values.map(|it| it.map(|it| quantile.of(it) as f64)));
                    assert_eq!(latency.over_repeats.get(&quantile), want.as_ref());
                }
                assert_eq!(latency.sent, all.iter().map(|it| it.sent).sum::<u64>());
            }
            for queue in &summary.bottlenecks {
                let same = |it: &&BottleneckSummary| {
                    (it.direction, it.window.phase) == (queue.direction, queue.phase)
                };
                let all: Vec<&BottleneckSummary> =
                    trials.iter().filter_map(|trial| trial.bottlenecks.iter().find(same)).collect();
                assert_eq!(queue.utilisation_percent, over(all.iter().map(|it| utilisation(it))));
                let mut short = all[0].clone();
                short.window.end_ns = short.window.start_ns + 20_000_000;
                assert_eq!(utilisation(&short), None, "25 kB are 17 packets");
                let p99 = all.iter().map(|it| it.sojourn.map(|it| it.p99_ns as f64));
                assert_eq!(queue.sojourn.get(&Quantile::P99), over(p99).as_ref());
                let dropped: u64 = all.iter().map(|it| it.dropped_packets()).sum();
                assert_eq!(queue.dropped_packets(), dropped, "counted once, and not twice");
            }
        }
    }

    /// The variant of three trials with these medians, ms; `None` for a trial that lost every probe.
    fn variant(medians_ms: [Option<i64>; 3]) -> VariantSummary {
        let mut fold = VariantFold::default();
        for p50 in medians_ms {
            let distribution = p50.map(|ms| Distribution {
                count: 9,
                p50_ns: ms * 1_000_000,
                ..Distribution::default()
            });
            let lost = if distribution.is_some() { 0 } else { 9 };
            let latency =
                LatencySummary { sent: 9, lost, distribution, ..LatencySummary::default() };
            fold.add(&TrialRecord { latencies: vec![latency], ..TrialRecord::default() });
        }
        fold.summary("", &LatencyPools::default())
    }

    #[test]
    fn a_variant_with_a_trial_without_answers_has_no_interval() {
        let answered = variant([Some(10), Some(12), Some(14)]).latencies.remove(0);
        assert_eq!(answered.over_repeats[&Quantile::P50].mean.to_bits(), 12e6_f64.to_bits());
        assert_eq!(answered.trials_all_lost, 0);
        let lost = variant([Some(10), Some(12), None]).latencies.remove(0);
        assert_eq!((lost.trials_all_lost, lost.over_repeats.len()), (1, 0));
        assert_eq!((lost.sent, lost.lost), (27, 9));
    }

    #[test]
    fn a_trial_without_answers_is_outside_every_range() {
        let mut share = ShareWithin::parse("idle.rtt.p50.within.0-20").expect("a share");
        for (distribution, lost) in [(Some(Distribution::default()), 0), (None, 9), (None, 0)] {
            let latency = LatencySummary { sent: 9, lost, distribution, ..Default::default() };
            share.add(&TrialRecord { latencies: vec![latency], ..Default::default() });
        }
        assert_eq!(share.percent(""), Some(50.0), "a trial without any such delay is left out");
    }

    #[test]
    fn histograms_of_other_bins_stay_apart() {
        let histogram = |edges_ns: &[u64], packets: &[u64]| LatencyHistogram {
            service_flow: "classic".to_owned(),
            edges_ns: edges_ns.to_vec(),
            packets: packets.to_vec(),
        };
        let mut all = Vec::new();
        for (edges_ns, packets) in [([5], [1, 2]), ([7], [10, 20]), ([5], [3, 4])] {
            add_histogram(&mut all, &histogram(&edges_ns, &packets));
        }
        assert_eq!(all, [histogram(&[5], &[4, 6]), histogram(&[7], &[10, 20])]);
    }

    #[test]
    fn a_share_uses_the_headline_probe_of_all_trials() {
        let latency = |probe: &str, closed_loop, p50_ns| LatencySummary {
            probe: probe.to_owned(),
            closed_loop,
            window: crate::schema::PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 9 },
            distribution: Some(Distribution { count: 9, p50_ns, ..Distribution::default() }),
            ..LatencySummary::default()
        };
        // Only in the last trial is the first probe closed-loop.
        let trial = |index, own, closed| TrialRecord {
            index,
            variant: "a".to_owned(),
            validity: Validity::Valid,
            latencies: vec![latency("first", closed, 1), latency("second", false, own)],
            ..TrialRecord::default()
        };
        let ms = |ms: i64| ms * 1_000_000;
        let expected = Expectation {
            metric: "load.rtt.p50.within.10-20".to_owned(),
            variant: "a".to_owned(),
            ..Expectation::default()
        };
        let mut run = RunRecord {
            variants: vec![crate::schema::VariantRecord {
                name: "a".to_owned(),
                ..Default::default()
            }],
            expectations: vec![expected],
            trials: vec![
                trial(0, ms(10), false),
                trial(1, ms(20), false),
                trial(2, ms(19), false),
                trial(3, ms(1), true),
            ],
            ..RunRecord::default()
        };
        crate::conclude(&mut run, &LatencyPools::default());
        assert_eq!(run.expectations[0].measured, Some(50.0), "10 and 19, and neither 20 nor 1");
        let asked = crate::metric_of(&run, "a", "load.rtt.p50.within.10-20");
        assert_eq!(asked, Some(50.0));
    }
}
