//! What the trials of a run come to, from one trial after the other: they come twice and are never
//! held, so that a million of them need no more room than ten.

use std::collections::BTreeMap;

use crate::link::merge_sanction;
use crate::schema::{
    ArmBottleneck, ArmLatency, ArmMetric, ArmSummary, BottleneckSummary, Distribution, FlowRecord,
    Interval, LatencyHistogram, LatencyMeasure, LatencySummary, Metric, Phase, Quantile,
    TrialRecord,
};
use crate::stats::{CONFIDENCE, MeanInTwoPasses, Pass};
use crate::summarise::LatencyPools;
use crate::throughput::{DIRECTIONS, ThroughputFold, utilisation};

/// The trials of one arm.
#[derive(Debug, Default)]
pub(crate) struct ArmFold {
    valid: u32,
    invalid: u32,
    latencies: Vec<LatencyFold>,
    throughputs: [ThroughputFold; 2],
    bottlenecks: Vec<BottleneckFold>,
    metrics: Vec<MetricFold>,
}

impl ArmFold {
    /// Adds a trial; of an invalid one only that there was one.
    pub(crate) fn add(&mut self, trial: &TrialRecord, pass: Pass) {
        let is_valid = trial.validity.is_valid();
        if pass == Pass::Sums {
            *(if is_valid { &mut self.valid } else { &mut self.invalid }) += 1;
        }
        if !is_valid {
            return;
        }
        let mut hint = 0;
        for latency in &trial.latencies {
            let same = |known: &LatencyFold| known.is_of(latency);
            entry(&mut self.latencies, &mut hint, same, || LatencyFold::of(latency))
                .add(latency, pass);
        }
        for (fold, direction) in self.throughputs.iter_mut().zip(DIRECTIONS) {
            fold.add(trial, direction, pass);
        }
        hint = 0;
        for link in &trial.bottlenecks {
            let same = |known: &BottleneckFold| known.is_of(link);
            entry(&mut self.bottlenecks, &mut hint, same, || BottleneckFold::of(link))
                .add(link, pass);
        }
        hint = 0;
        for flow in &trial.flows {
            for metric in &flow.metrics {
                let same = |known: &MetricFold| known.is_of(flow, metric);
                let known =
                    entry(&mut self.metrics, &mut hint, same, || MetricFold::of(flow, metric));
                if let Some(value) = metric.value.filter(|value| value.is_finite()) {
                    known.value.push(value, pass);
                }
            }
        }
    }

    /// The summary, after both passes.
    pub(crate) fn summary(&self, arm: &str, pools: &LatencyPools) -> ArmSummary {
        let directions = self.throughputs.iter().zip(DIRECTIONS);
        ArmSummary {
            arm: arm.to_owned(),
            trials_valid: self.valid,
            trials_invalid: self.invalid,
            latencies: self.latencies.iter().map(|latency| latency.summary(arm, pools)).collect(),
            throughputs: directions.filter_map(|(fold, way)| fold.summary(way)).collect(),
            bottlenecks: self.bottlenecks.iter().map(BottleneckFold::summary).collect(),
            metrics: self.metrics.iter().filter_map(MetricFold::summary).collect(),
        }
    }

    /// The probe of [`ArmSummary::headline`], as soon as the first pass is over.
    pub(crate) fn headline_probe(&self, phase: Phase) -> Option<&str> {
        let mut totals = self.latencies.iter().map(|latency| &latency.total);
        let first = totals.find(|total| {
            !total.closed_loop && total.measure == LatencyMeasure::RoundTrip && total.phase == phase
        });
        first.map(|total| total.probe.as_str())
    }
}

/// The entry of a list that is the same, or a new one at its end. Trials have theirs in one order:
/// `hint` is where the next is likely to be.
fn entry<'a, T>(
    list: &'a mut Vec<T>,
    hint: &mut usize,
    is_same: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &'a mut T {
    let at = match list.get(*hint) {
        Some(likely) if is_same(likely) => *hint,
        _ => list.iter().position(is_same).unwrap_or(list.len()),
    };
    if at == list.len() {
        list.push(make());
    }
    *hint = at + 1;
    &mut list[at]
}

/// Each statistic of distributions, over them.
#[derive(Debug, Default)]
struct Quantiles([MeanInTwoPasses; Quantile::ALL.len()]);

impl Quantiles {
    fn add(&mut self, distribution: Option<&Distribution>, pass: Pass) {
        let Some(distribution) = distribution else { return };
        for (mean, quantile) in self.0.iter_mut().zip(Quantile::ALL) {
            mean.push(quantile.of(distribution) as f64, pass);
        }
    }

    fn intervals(&self) -> BTreeMap<Quantile, Interval> {
        let both = Quantile::ALL.into_iter().zip(&self.0);
        both.filter_map(|(quantile, mean)| Some((quantile, mean.interval(CONFIDENCE)?))).collect()
    }
}

/// One probe in one phase.
#[derive(Debug)]
struct LatencyFold {
    /// Without what is pooled and what is over repeats.
    total: ArmLatency,
    over_repeats: Quantiles,
    time_weighted: Quantiles,
}

impl LatencyFold {
    fn of(first: &LatencySummary) -> Self {
        let (measure, phase) = (first.measure, first.window.phase);
        let total =
            ArmLatency { probe: first.probe.clone(), measure, phase, ..ArmLatency::default() };
        let (over_repeats, time_weighted) = Default::default();
        Self { total, over_repeats, time_weighted }
    }

    fn is_of(&self, latency: &LatencySummary) -> bool {
        let total = &self.total;
        total.measure == latency.measure
            && total.phase == latency.window.phase
            && total.probe == latency.probe
    }

    fn add(&mut self, latency: &LatencySummary, pass: Pass) {
        if pass == Pass::Sums {
            self.total.closed_loop |= latency.closed_loop;
            self.total.window_ns += latency.window.length_ns();
            self.total.sent += latency.sent;
            self.total.lost += latency.lost;
        }
        self.over_repeats.add(latency.distribution.as_ref(), pass);
        self.time_weighted.add(latency.time_weighted.as_ref(), pass);
    }

    fn summary(&self, arm: &str, pools: &LatencyPools) -> ArmLatency {
        let mut latency = ArmLatency {
            over_repeats: self.over_repeats.intervals(),
            time_weighted: self.time_weighted.intervals(),
            ..self.total.clone()
        };
        pools.pool(arm, &mut latency);
        latency
    }
}

/// One queue in one phase.
#[derive(Debug)]
struct BottleneckFold {
    /// Without what is over repeats.
    total: ArmBottleneck,
    link_bit_per_s: MeanInTwoPasses,
    utilisation_percent: MeanInTwoPasses,
    sojourn: Quantiles,
    queuing_delay: Quantiles,
}

impl BottleneckFold {
    fn of(first: &BottleneckSummary) -> Self {
        let total = ArmBottleneck {
            hop: first.hop.clone(),
            direction: first.direction,
            phase: first.window.phase,
            queue: first.queue.clone(),
            link: first.link.clone(),
            ..ArmBottleneck::default()
        };
        let (link_bit_per_s, utilisation_percent, sojourn, queuing_delay) = Default::default();
        Self { total, link_bit_per_s, utilisation_percent, sojourn, queuing_delay }
    }

    fn is_of(&self, link: &BottleneckSummary) -> bool {
        let total = &self.total;
        total.direction == link.direction
            && total.phase == link.window.phase
            && total.hop == link.hop
    }

    fn add(&mut self, link: &BottleneckSummary, pass: Pass) {
        if pass == Pass::Sums {
            add_counters(&mut self.total, link);
        }
        self.link_bit_per_s.push(link.throughput_bit_per_s as f64, pass);
        let share = utilisation(link).into_iter();
        share.for_each(|share| self.utilisation_percent.push(share, pass));
        self.sojourn.add(link.sojourn.as_ref(), pass);
        self.queuing_delay.add(link.queuing_delay.as_ref(), pass);
    }

    fn summary(&self) -> ArmBottleneck {
        ArmBottleneck {
            link_bit_per_s: self.link_bit_per_s.interval(CONFIDENCE),
            utilisation_percent: self.utilisation_percent.interval(CONFIDENCE),
            sojourn: self.sojourn.intervals(),
            queuing_delay: self.queuing_delay.intervals(),
            ..self.total.clone()
        }
    }
}

fn add_counters(total: &mut ArmBottleneck, link: &BottleneckSummary) {
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
        let same = |known: &&mut LatencyHistogram| known.service_flow == histogram.service_flow;
        match total.latency_histograms.iter_mut().find(same) {
            Some(known) => known.add(histogram),
            None => total.latency_histograms.push(histogram.clone()),
        }
    }
}

/// One number of one application.
#[derive(Debug)]
struct MetricFold {
    flow: String,
    name: String,
    unit: String,
    value: MeanInTwoPasses,
}

impl MetricFold {
    fn of(flow: &FlowRecord, metric: &Metric) -> Self {
        let (flow, name, unit) = (flow.name.clone(), metric.name.clone(), metric.unit.clone());
        Self { flow, name, unit, value: MeanInTwoPasses::default() }
    }

    fn is_of(&self, flow: &FlowRecord, metric: &Metric) -> bool {
        self.name == metric.name && self.unit == metric.unit && self.flow == flow.name
    }

    /// `None` where no trial has a value.
    fn summary(&self) -> Option<ArmMetric> {
        let value = self.value.interval(CONFIDENCE)?;
        let (flow, name, unit) = (self.flow.clone(), self.name.clone(), self.unit.clone());
        Some(ArmMetric { flow, name, unit, value })
    }
}

/// `PHASE.rtt.STAT.within.LOW-HIGH`: of an arm's valid trials, those whose own statistic of a probe
/// lies from LOW up to HIGH ms.
#[derive(Debug)]
pub(crate) struct ShareWithin {
    pub(crate) phase: Phase,
    quantile: Quantile,
    low_ns: f64,
    high_ns: f64,
    inside: u64,
    trials: u64,
}

impl ShareWithin {
    /// The share of that name, of no trial so far.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (statistic, band) = name.split_once(".within.")?;
        let (low, high) = band.split_once('-')?;
        let ns = |text: &str| text.parse::<f64>().ok().map(|ms| ms * 1e6);
        let (phase, statistic) = statistic.split_once(".rtt.")?;
        Some(Self {
            phase: Phase::from_name(phase)?,
            quantile: Quantile::from_name(statistic)?,
            low_ns: ns(low)?,
            high_ns: ns(high)?,
            inside: 0,
            trials: 0,
        })
    }

    /// Adds a trial's round trips of a probe, where it has any.
    pub(crate) fn add(&mut self, trial: &TrialRecord, probe: &str) {
        let latency = trial.latencies.iter().find(|latency| {
            latency.probe == probe
                && latency.measure == LatencyMeasure::RoundTrip
                && latency.window.phase == self.phase
        });
        let Some(all) = latency.and_then(|latency| latency.distribution) else { return };
        let value = self.quantile.of(&all) as f64;
        self.trials += 1;
        self.inside += u64::from((self.low_ns..self.high_ns).contains(&value));
    }

    pub(crate) fn percent(&self) -> Option<f64> {
        percent(self.inside, self.trials)
    }
}

/// `part` of `whole` in percent; `None` if there is nothing.
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

    /// Two arms, and a trial in each that does not count.
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
    fn each_number_is_that_of_a_list_of_the_trials() {
        let run = run();
        for summary in &run.summaries {
            let own = |trial: &&TrialRecord| trial.arm == summary.arm;
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
                let p99 = all.iter().map(|it| it.sojourn.map(|it| it.p99_ns as f64));
                assert_eq!(queue.sojourn.get(&Quantile::P99), over(p99).as_ref());
                let dropped: u64 = all.iter().map(|it| it.dropped_packets()).sum();
                assert_eq!(queue.dropped_packets(), dropped, "counted once, and not twice");
            }
        }
    }

    #[test]
    fn a_share_is_of_the_probe_that_all_trials_tell_to_stand_for_the_arm() {
        let latency = |probe: &str, closed_loop, p50_ns| LatencySummary {
            probe: probe.to_owned(),
            closed_loop,
            window: crate::schema::PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 9 },
            distribution: Some(Distribution { count: 9, p50_ns, ..Distribution::default() }),
            ..LatencySummary::default()
        };
        // Only the last trial tells that the first probe is closed-loop.
        let trial = |index, own, closed| TrialRecord {
            index,
            arm: "a".to_owned(),
            validity: Validity::Valid,
            latencies: vec![latency("first", closed, 1), latency("second", false, own)],
            ..TrialRecord::default()
        };
        let ms = |ms: i64| ms * 1_000_000;
        let expected = Expectation {
            metric: "load.rtt.p50.within.10-20".to_owned(),
            arm: "a".to_owned(),
            ..Expectation::default()
        };
        let mut run = RunRecord {
            arms: vec![crate::schema::ArmRecord { name: "a".to_owned(), ..Default::default() }],
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
