//! The summary of each arm, and the published numbers held against it.

use std::collections::BTreeMap;

use crate::link::merge_sanction;
use crate::schema::{
    ArmBottleneck, ArmLatency, ArmMetric, ArmSummary, ArmThroughput, BottleneckSummary, Direction,
    Expectation, FlowDirection, FlowRecord, Interval, LatencyHistogram, LatencyMeasure, Phase,
    Quantile, RunRecord, Sanction, TrialRecord,
};
use crate::shares;
use crate::stats::{jain_index, mean_interval};
use crate::summarise::{CONFIDENCE, LatencyPools, quantile_intervals};

/// Fills in `summaries` from the trials and the pooled samples, then judges every expectation.
pub fn conclude(run: &mut RunRecord, pools: &LatencyPools) {
    let mut trials: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
    for trial in &run.trials {
        trials.entry(&trial.arm).or_default().push(trial);
    }
    let of = |arm: &str| trials.get(arm).map_or(&[][..], Vec::as_slice);
    let arms = run.arms.iter();
    run.summaries = arms.map(|arm| summary(&arm.name, of(&arm.name), pools)).collect();
    if let Some(study) = &mut run.study {
        pools.conclude_study(study);
    }
    let measured: Vec<Option<f64>> =
        run.expectations.iter().map(|expected| measured(run, expected)).collect();
    for (expected, value) in run.expectations.iter_mut().zip(measured) {
        expected.judge(value);
    }
}

/// The run's value of an expectation's metric.
fn measured(run: &RunRecord, expected: &Expectation) -> Option<f64> {
    let arms: Vec<&str> = run.summaries.iter().map(|summary| summary.arm.as_str()).collect();
    expected.measure(&arms, |arm| metric_of(run, arm, &expected.metric))
}

/// The value of any metric of an arm that [`crate::schema::Expectation`] lists; `None` as for
/// [`metric`].
pub fn metric_of(run: &RunRecord, arm: &str, name: &str) -> Option<f64> {
    let summary = run.summaries.iter().find(|summary| summary.arm == arm)?;
    metric(summary, name)
        .or_else(|| share_of_trials(summary, &run.trials, name))
        .or_else(|| ratio_of_flows(summary, &run.trials, name))
        .or_else(|| run.study.as_ref()?.cut(arm, name))
}

/// A metric of each valid trial of an arm, as if it were the only one.
pub fn metric_over_trials(run: &RunRecord, arm: &str, name: &str) -> Vec<f64> {
    let trials = run.trials.iter();
    let own = trials.filter(|trial| trial.arm == arm && trial.validity.is_valid());
    let value = |trial: &TrialRecord| {
        let alone = summary(arm, &[trial], &LatencyPools::default());
        metric(&alone, name)
    };
    own.filter_map(value).collect()
}

/// These metrics of one trial, as if it were the only one of its arm.
pub fn metrics_of_trial(trial: &TrialRecord, names: &[String]) -> Vec<Option<f64>> {
    let alone = summary(&trial.arm, &[trial], &LatencyPools::default());
    let trials = std::slice::from_ref(trial);
    let value = |name: &String| {
        metric(&alone, name)
            .or_else(|| share_of_trials(&alone, trials, name))
            .or_else(|| ratio_of_flows(&alone, trials, name))
            .filter(|value| value.is_finite())
    };
    names.iter().map(value).collect()
}

/// Summarises the trials of an arm.
fn summary(arm: &str, trials: &[&TrialRecord], pools: &LatencyPools) -> ArmSummary {
    let of_arm = trials.iter().copied();
    let valid: Vec<&TrialRecord> = of_arm.filter(|trial| trial.validity.is_valid()).collect();
    ArmSummary {
        arm: arm.to_owned(),
        trials_valid: valid.len() as u32,
        trials_invalid: (trials.len() - valid.len()) as u32,
        latencies: pools.arm_latencies(arm, &valid),
        throughputs: [Direction::Up, Direction::Down]
            .into_iter()
            .filter_map(|direction| throughput(direction, &valid))
            .collect(),
        bottlenecks: bottlenecks(&valid),
        metrics: metrics(&valid),
    }
}

fn over<'a>(
    trials: &[&'a TrialRecord],
    value: impl Fn(&'a TrialRecord) -> Option<f64>,
) -> Option<Interval> {
    let values: Vec<f64> = trials.iter().filter_map(|trial| value(trial)).collect();
    mean_interval(&values, CONFIDENCE)
}

fn throughput(direction: Direction, trials: &[&TrialRecord]) -> Option<ArmThroughput> {
    let goodputs = |trial: &TrialRecord| -> Vec<f64> {
        trial.flows.iter().filter_map(|flow| goodput(flow, direction)).collect()
    };
    let result = ArmThroughput {
        direction,
        goodput_bit_per_s: over(trials, |trial| {
            let goodputs = goodputs(trial);
            (!goodputs.is_empty()).then(|| goodputs.iter().sum())
        }),
        link_bit_per_s: over(trials, |trial| {
            load_bottleneck(trial, direction).map(|link| link.throughput_bit_per_s as f64)
        }),
        utilisation_percent: over(trials, |trial| {
            load_bottleneck(trial, direction).and_then(utilisation)
        }),
        jain_index: over(trials, |trial| {
            let bulk: Vec<f64> = trial
                .flows
                .iter()
                .filter(|flow| flow.congestion_control.is_some())
                .filter_map(|flow| goodput(flow, direction))
                .collect();
            if bulk.len() < 2 { None } else { jain_index(&bulk) }
        }),
        ratios: shares::ratios(trials, direction),
    };
    let known = result.goodput_bit_per_s.is_some() || result.link_bit_per_s.is_some();
    known.then_some(result)
}

/// Payload of a flow in a direction. A flow that sends one way only has no goodput in the other,
/// whatever its acknowledgements carry.
pub(crate) fn goodput(flow: &FlowRecord, direction: Direction) -> Option<f64> {
    let rate = match (direction, flow.direction) {
        (Direction::Up, FlowDirection::Up | FlowDirection::Both) => flow.goodput_up_bit_per_s,
        (Direction::Down, FlowDirection::Down | FlowDirection::Both) => flow.goodput_down_bit_per_s,
        _ => None,
    };
    rate.map(|rate| rate as f64)
}

/// The last bottleneck of the direction in the load phase, or over the trial where no phase was
/// recorded.
fn load_bottleneck(trial: &TrialRecord, direction: Direction) -> Option<&BottleneckSummary> {
    let of = |phase| {
        let mut candidates = trial.bottlenecks.iter().rev();
        candidates.find(|link| link.direction == direction && link.window.phase == phase)
    };
    of(Phase::Load).or_else(|| of(Phase::Whole))
}

fn utilisation(link: &BottleneckSummary) -> Option<f64> {
    let capacity = link.capacity_bit_per_s.filter(|capacity| *capacity > 0)?;
    Some(link.throughput_bit_per_s as f64 * 100.0 / capacity as f64)
}

fn bottlenecks(trials: &[&TrialRecord]) -> Vec<ArmBottleneck> {
    let all = || trials.iter().flat_map(|trial| &trial.bottlenecks);
    let mut result: Vec<ArmBottleneck> = Vec::new();
    for first in all() {
        let same = |link: &&BottleneckSummary| {
            link.hop == first.hop
                && link.direction == first.direction
                && link.window.phase == first.window.phase
        };
        let (hop, direction, phase) = (&first.hop, first.direction, first.window.phase);
        let known = result
            .iter()
            .any(|known| known.hop == *hop && known.direction == direction && known.phase == phase);
        if known {
            continue;
        }
        let mean = |value: &dyn Fn(&BottleneckSummary) -> Option<f64>| {
            let values: Vec<f64> = all().filter(same).filter_map(value).collect();
            mean_interval(&values, CONFIDENCE)
        };
        let mut total = ArmBottleneck {
            hop: hop.clone(),
            direction,
            phase,
            queue: first.queue.clone(),
            link: first.link.clone(),
            link_bit_per_s: mean(&|link| Some(link.throughput_bit_per_s as f64)),
            utilisation_percent: mean(&utilisation),
            sojourn: quantile_intervals(
                all().filter(same).filter_map(|link| link.sojourn.as_ref()),
            ),
            queuing_delay: quantile_intervals(
                all().filter(same).filter_map(|link| link.queuing_delay.as_ref()),
            ),
            ..ArmBottleneck::default()
        };
        all().filter(same).for_each(|link| add_counters(&mut total, link));
        result.push(total);
    }
    result
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

fn metrics(trials: &[&TrialRecord]) -> Vec<ArmMetric> {
    let mut values: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
    let mut order = Vec::new();
    for flow in trials.iter().flat_map(|trial| &trial.flows) {
        for metric in &flow.metrics {
            let key = (flow.name.as_str(), metric.name.as_str(), metric.unit.as_str());
            let known = values.entry(key).or_insert_with(|| {
                order.push(key);
                Vec::new()
            });
            known.extend(metric.value.filter(|value| value.is_finite()));
        }
    }
    let summary = |key: (&str, &str, &str)| {
        let value = mean_interval(values.get(&key)?, CONFIDENCE)?;
        let (flow, name, unit) = (key.0.to_owned(), key.1.to_owned(), key.2.to_owned());
        Some(ArmMetric { flow, name, unit, value })
    };
    order.into_iter().filter_map(summary).collect()
}

impl ArmLatency {
    /// A statistic of all samples pooled, ns; where a run kept no samples to pool, the mean over
    /// its trials. `None` when nothing came back.
    pub fn value_ns(&self, quantile: Quantile) -> Option<u64> {
        let over_repeats = || self.over_repeats.get(&quantile).map(|interval| interval.mean as u64);
        self.pooled.map(|pooled| quantile.of(&pooled)).or_else(over_repeats)
    }

    /// The same for people: `None` also where there are too few samples to tell it, see
    /// [`Quantile::fewest_samples`].
    pub fn told_ns(&self, quantile: Quantile) -> Option<u64> {
        let samples = self.pooled.map_or_else(|| self.samples_per_trial(), |pooled| pooled.count);
        self.value_ns(quantile).filter(|_| samples >= quantile.fewest_samples())
    }

    /// A statistic over the trials, where each of them has enough samples to tell it.
    pub fn told_over_repeats(&self, quantile: Quantile) -> Option<&Interval> {
        let interval = self.over_repeats.get(&quantile)?;
        (self.samples_per_trial() >= quantile.fewest_samples()).then_some(interval)
    }

    fn samples_per_trial(&self) -> u64 {
        let trials = self.over_repeats.values().next().map_or(1, |interval| interval.repeats);
        self.sent.saturating_sub(self.lost) / u64::from(trials.max(1))
    }

    /// Probes that were lost, percent.
    pub fn lost_percent(&self) -> f64 {
        percent(self.lost, self.sent).unwrap_or(0.0)
    }
}

impl ArmSummary {
    /// The headline latency of a phase: the round trip of the first open-loop probe.
    pub fn headline(&self, phase: Phase) -> Option<&ArmLatency> {
        self.latency(None, LatencyMeasure::RoundTrip, phase)
    }

    /// Latency of a probe, or of the first open-loop probe when none is named.
    pub fn latency(
        &self,
        probe: Option<&str>,
        measure: LatencyMeasure,
        phase: Phase,
    ) -> Option<&ArmLatency> {
        self.latencies.iter().find(|latency| {
            let wanted = match probe {
                Some(probe) => latency.probe == probe,
                None => !latency.closed_loop,
            };
            wanted && latency.measure == measure && latency.phase == phase
        })
    }

    /// The queue of a direction in a phase; the last hop's when there are several.
    pub fn bottleneck(&self, direction: Direction, phase: Phase) -> Option<&ArmBottleneck> {
        let mut all = self.bottlenecks.iter().rev();
        all.find(|queue| queue.direction == direction && queue.phase == phase)
    }

    /// The queue of a direction over its widest window: the whole trial, else the load phase.
    pub fn widest_bottleneck(&self, direction: Direction) -> Option<&ArmBottleneck> {
        self.bottleneck(direction, Phase::Whole).or_else(|| self.bottleneck(direction, Phase::Load))
    }

    /// The queue of every hop of a direction, in the order of its packets, each over its widest
    /// window.
    pub fn hops(&self, direction: Direction) -> Vec<&ArmBottleneck> {
        let phase = self.widest_bottleneck(direction).map(|queue| queue.phase);
        let here =
            |queue: &&ArmBottleneck| queue.direction == direction && Some(queue.phase) == phase;
        self.bottlenecks.iter().filter(here).collect()
    }

    /// What queue protection did to each flow at the hop of that name, over all phases; most
    /// packets first.
    pub fn sanctions(&self, direction: Direction, hop: &str) -> Vec<Sanction> {
        let mut all = Vec::new();
        let here = self.bottlenecks.iter();
        let here = here.filter(|queue| queue.direction == direction && queue.hop == hop);
        here.flat_map(|queue| &queue.sanctions).for_each(|one| merge_sanction(&mut all, one));
        all.sort_by_key(|sanction| std::cmp::Reverse(sanction.packets));
        all
    }

    /// Throughput of one direction.
    pub fn throughput(&self, direction: Direction) -> Option<&ArmThroughput> {
        self.throughputs.iter().find(|throughput| throughput.direction == direction)
    }
}

/// The value of a metric named as in [`crate::schema::Expectation`], in the unit given there;
/// `None` when the name is unknown or the arm has no such number.
pub fn metric(summary: &ArmSummary, name: &str) -> Option<f64> {
    if let Some((flow, rest)) = name.split_once('/') {
        let mut metrics = summary.metrics.iter();
        let application = metrics.find(|metric| metric.flow == flow && metric.name == rest);
        return application
            .map(|metric| metric.value.mean)
            .or_else(|| latency_metric(summary, Some(flow), rest));
    }
    latency_metric(summary, None, name)
        .or_else(|| waiting_metric(summary, name))
        .or_else(|| rate_metric(summary, name))
        .or_else(|| queue_metric(summary, name))
}

fn latency_metric(summary: &ArmSummary, probe: Option<&str>, name: &str) -> Option<f64> {
    let (phase, rest) = name.split_once('.')?;
    let phase = Phase::from_name(phase)?;
    if rest == "loss" {
        let latency = summary.latency(probe, LatencyMeasure::RoundTrip, phase)?;
        return percent(latency.lost, latency.sent);
    }
    let (measure, statistic) = rest.split_once('.')?;
    let measure = match measure {
        "rtt" => LatencyMeasure::RoundTrip,
        "up" => LatencyMeasure::OneWayUp,
        "down" => LatencyMeasure::OneWayDown,
        _ => return None,
    };
    let latency = summary.latency(probe, measure, phase)?;
    Some(latency.value_ns(Quantile::from_name(statistic)?)? as f64 / 1e6)
}

/// `PHASE.rtt.STAT.within.LOW-HIGH`: of the arm's valid trials, those whose own statistic of the
/// first open-loop probe lies from LOW up to HIGH ms, in percent.
fn share_of_trials(summary: &ArmSummary, trials: &[TrialRecord], name: &str) -> Option<f64> {
    let (statistic, band) = name.split_once(".within.")?;
    let (low, high) = band.split_once('-')?;
    let (low, high) = (low.parse::<f64>().ok()? * 1e6, high.parse::<f64>().ok()? * 1e6);
    let (phase, statistic) = statistic.split_once(".rtt.")?;
    let headline = summary.headline(Phase::from_name(phase)?)?;
    let quantile = Quantile::from_name(statistic)?;
    let own = |trial: &TrialRecord| {
        let latency = trial.latencies.iter().find(|latency| {
            latency.probe == headline.probe
                && latency.measure == headline.measure
                && latency.window.phase == headline.phase
        });
        latency.and_then(|latency| latency.distribution).map(|all| quantile.of(&all) as f64)
    };
    let of_arm = |trial: &&TrialRecord| trial.arm == summary.arm && trial.validity.is_valid();
    let values: Vec<f64> = trials.iter().filter(of_arm).filter_map(own).collect();
    let inside = values.iter().filter(|value| (low..high).contains(*value)).count();
    percent(inside as u64, values.len() as u64)
}

/// `FLOW/ratio.OTHER`: what an entry's flows got over what another's did, mean over valid trials.
fn ratio_of_flows(summary: &ArmSummary, trials: &[TrialRecord], name: &str) -> Option<f64> {
    let of_arm = |trial: &&TrialRecord| trial.arm == summary.arm && trial.validity.is_valid();
    let trials: Vec<&TrialRecord> = trials.iter().filter(of_arm).collect();
    shares::ratio_named(&trials, name).map(|ratio| ratio.mean)
}

/// `PHASE.sojourn.DIRECTION.STAT` and `PHASE.queuing.DIRECTION.STAT`, ms.
fn waiting_metric(summary: &ArmSummary, name: &str) -> Option<f64> {
    let (phase, rest) = name.split_once('.')?;
    let (what, rest) = rest.split_once('.')?;
    let (direction, statistic) = rest.split_once('.')?;
    let queue = summary.bottleneck(direction_named(direction)?, Phase::from_name(phase)?)?;
    let statistics = match what {
        "sojourn" => &queue.sojourn,
        "queuing" => &queue.queuing_delay,
        _ => return None,
    };
    Some(statistics.get(&Quantile::from_name(statistic)?)?.mean / 1e6)
}

fn rate_metric(summary: &ArmSummary, name: &str) -> Option<f64> {
    let (what, direction) = name.split_once('.')?;
    let direction = direction_named(direction)?;
    let carried = summary.throughput(direction)?;
    let mbit = |rate: Option<Interval>| rate.map(|rate| rate.mean / 1e6);
    match what {
        "goodput" => mbit(carried.goodput_bit_per_s),
        "throughput" => mbit(carried.link_bit_per_s),
        "power" => {
            let queue = summary.bottleneck(direction, Phase::Load)?;
            let p99_s = queue.queuing_delay.get(&Quantile::P99)?.mean / 1e9;
            Some(mbit(carried.link_bit_per_s)? / p99_s)
        }
        "utilisation" => carried.utilisation_percent.map(|share| share.mean),
        "fairness" => carried.jain_index.map(|index| index.mean),
        _ => None,
    }
}

fn queue_metric(summary: &ArmSummary, name: &str) -> Option<f64> {
    let (what, direction) = name.split_once('.')?;
    let queue = summary.widest_bottleneck(direction_named(direction)?)?;
    match what {
        "drops" => percent(queue.dropped_packets(), queue.offered.packets),
        "marks" => percent(queue.marked_packets(), queue.offered.packets),
        _ => None,
    }
}

fn direction_named(name: &str) -> Option<Direction> {
    [Direction::Up, Direction::Down].into_iter().find(|direction| direction.name() == name)
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}
