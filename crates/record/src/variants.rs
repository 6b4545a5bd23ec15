//! Metrics of a variant by name, and selections from its summary.

use crate::fold::{ShareWithin, VariantFold, percent};
use crate::link::merge_sanction;
use crate::metric_names::{
    OF_SENT, VARIATION, closest_metric, latency_names, metric_names, metric_unit,
};
use crate::schema::{
    Direction, Interval, Judged, LatencyMeasure, LatencySummary, Phase, Quantile, RunRecord,
    Sanction, TrialRecord, VariantBottleneck, VariantInside, VariantLatency, VariantSummary,
    VariantThroughput,
};
use crate::shares::Ratio;
use crate::summarise::LatencyPools;

/// Returns any metric of a variant that an expectation lists; `None` as for [`metric`].
pub fn metric_of(run: &RunRecord, variant: &str, name: &str) -> Option<f64> {
    let summary = run.summaries.iter().find(|summary| summary.variant == variant)?;
    metric_of_summary(run, summary, name)
}

/// As [`metric_of`], of a variant whose summary the caller has.
pub(crate) fn metric_of_summary(
    run: &RunRecord,
    summary: &VariantSummary,
    name: &str,
) -> Option<f64> {
    metric(summary, name)
        .or_else(|| share_of_trials(summary, &run.trials, name))
        .or_else(|| ratio_of_flows(summary, &run.trials, name))
        .or_else(|| run.study.as_ref()?.cut(&summary.variant, name))
}

/// Describes why `name` is not a metric of a variant; `None` if it is a metric, measured or not.
pub fn unknown_metric(run: &RunRecord, variant: &str, name: &str) -> Option<String> {
    let is_of_study = run.study.is_some() && name.starts_with("cut");
    if metric_unit(name).is_some() || Ratio::parse(name).is_some() || is_of_study {
        return None;
    }
    let mut known: Vec<String> = metric_names().into_iter().map(|(name, _)| name).collect();
    for summary in run.summaries.iter().filter(|summary| summary.variant == variant) {
        for latency in summary.latencies.iter().map(|latency| &latency.probe) {
            known.extend(latency_names().into_iter().map(|(name, _)| format!("{latency}/{name}")));
        }
        let own = summary.metrics.iter().map(|metric| format!("{}/{}", metric.flow, metric.name));
        known.extend(own);
    }
    for flow in valid_trials(&run.trials, variant).flat_map(|trial| &trial.flows) {
        known.extend(flow.metrics.iter().map(|metric| format!("{}/{}", flow.name, metric.name)));
    }
    if known.iter().any(|known| known == name) {
        return None;
    }
    let meant = closest_metric(name, known.iter().map(String::as_str));
    let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}"));
    Some(format!(
        "no metric `{name}`; expected one such as load.rtt.p99, load.sojourn.up.p99, goodput.up or \
         FLOW/METRIC{meant}"
    ))
}

/// Returns a metric in each valid trial of a variant; `None` for a trial without the metric. A
/// percentile of all probes sent is infinite if it falls on a lost probe.
pub fn metric_over_trials(run: &RunRecord, variant: &str, name: &str) -> Vec<Option<f64>> {
    valid_trials(&run.trials, variant).map(|trial| metric_of_trial(trial, name)).collect()
}

/// Returns a metric of one trial. A percentile of all probes sent is infinite if it falls on a lost
/// probe.
pub(crate) fn metric_of_trial(trial: &TrialRecord, name: &str) -> Option<f64> {
    let Some(plain) = name.strip_suffix(OF_SENT) else {
        let trials = std::slice::from_ref(trial);
        let alone = alone(trial);
        return metric(&alone, name)
            .or_else(|| share_of_trials(&alone, trials, name))
            .or_else(|| ratio_of_flows(&alone, trials, name));
    };
    let (probe, plain) = match plain.split_once('/') {
        Some((probe, plain)) => (Some(probe), plain),
        None => (None, plain),
    };
    let (phase, quantile) = plain.split_once(".rtt.")?;
    let (phase, quantile) = (Phase::from_name(phase)?, Quantile::from_name(quantile)?);
    let is_wanted = |latency: &&LatencySummary| {
        latency.measure == LatencyMeasure::RoundTrip
            && latency.window.phase == phase
            && probe.map_or(!latency.closed_loop, |probe| latency.probe == probe)
    };
    let latency = trial.latencies.iter().find(is_wanted)?;
    latency.judged(quantile).map(|judged| judged.as_ns() / 1e6)
}

/// Returns metrics of one trial, as if it were the only one of its variant.
pub fn metrics_of_trial(trial: &TrialRecord, names: &[String]) -> Vec<Option<f64>> {
    names.iter().map(|name| metric_of_trial(trial, name).filter(|it| it.is_finite())).collect()
}

/// Returns the summary of a variant with one trial, without its samples.
fn alone(trial: &TrialRecord) -> VariantSummary {
    let mut fold = VariantFold::default();
    fold.add(trial);
    fold.summary(&trial.variant, &LatencyPools::default())
}

impl VariantLatency {
    /// Returns a statistic of the pooled samples, ns, or the mean over trials if the run stored no
    /// samples. `None` if no probe was answered.
    pub fn value_ns(&self, quantile: Quantile) -> Option<i64> {
        let over_repeats = || self.over_repeats.get(&quantile).map(|interval| interval.mean as i64);
        self.pooled.map(|pooled| quantile.of(&pooled)).or_else(over_repeats)
    }

    /// As [`Self::value_ns`], but `None` with fewer samples than [`Quantile::fewest_samples`].
    pub fn told_ns(&self, quantile: Quantile) -> Option<i64> {
        let samples = self.pooled.map_or_else(|| self.samples_per_trial(), |pooled| pooled.count);
        self.value_ns(quantile).filter(|_| quantile.is_told_by(samples))
    }

    /// Returns the highest percentile of [`Quantile::HIGHEST_FIRST`] with enough samples, and its
    /// value, ns; `None` if no probe was answered.
    pub fn highest_told(&self) -> Option<(Quantile, i64)> {
        let mut told = Quantile::HIGHEST_FIRST.into_iter();
        told.find_map(|quantile| Some((quantile, self.told_ns(quantile)?)))
    }

    /// Returns the quantile of all probes sent that judges the variant; `None` as [`Self::told_ns`].
    pub fn judged(&self, quantile: Quantile) -> Option<Judged> {
        let answered_ns = self.told_ns(quantile)?;
        Some(Judged::new(quantile, answered_ns, (self.sent, self.lost), &self.of_sent_ns))
    }

    /// Returns the highest percentile of [`Quantile::HIGHEST_FIRST`] by which the variant can be
    /// judged: the highest that does not fall on a lost probe; `None` if all do.
    pub fn highest_judged(&self) -> Option<(Quantile, Judged)> {
        let all = || {
            let told = Quantile::HIGHEST_FIRST.into_iter();
            told.filter_map(|quantile| Some((quantile, self.judged(quantile)?)))
        };
        all().find(|(_, value)| *value != Judged::Lost).or_else(|| all().next())
    }

    /// Returns a statistic over the trials, if each of them has enough samples for it.
    pub fn told_over_repeats(&self, quantile: Quantile) -> Option<&Interval> {
        let interval = self.over_repeats.get(&quantile)?;
        quantile.is_told_by(self.samples_per_trial()).then_some(interval)
    }

    fn samples_per_trial(&self) -> u64 {
        let trials = self.over_repeats.values().next().map_or(1, |interval| interval.repeats);
        self.sent.saturating_sub(self.lost) / u64::from(trials.max(1))
    }

    pub fn lost_percent(&self) -> f64 {
        percent(self.lost, self.sent).unwrap_or(0.0)
    }
}

impl VariantSummary {
    /// Returns the headline latency of a phase: the round trip of the first open-loop probe.
    pub fn headline(&self, phase: Phase) -> Option<&VariantLatency> {
        self.latency(None, LatencyMeasure::RoundTrip, phase)
    }

    /// Returns the latency of a probe, or of the first open-loop probe if `probe` is `None`.
    pub fn latency(
        &self,
        probe: Option<&str>,
        measure: LatencyMeasure,
        phase: Phase,
    ) -> Option<&VariantLatency> {
        self.latencies.iter().find(|latency| {
            let wanted = match probe {
                Some(probe) => latency.probe == probe,
                None => !latency.closed_loop,
            };
            wanted && latency.measure == measure && latency.phase == phase
        })
    }

    /// Returns the queue of a direction in a phase; the last hop's if there are several.
    pub fn bottleneck(&self, direction: Direction, phase: Phase) -> Option<&VariantBottleneck> {
        let mut all = self.bottlenecks.iter().rev();
        all.find(|queue| queue.direction == direction && queue.phase == phase)
    }

    /// Returns the queue of every hop of a direction in the load phase, in path order.
    pub fn hops(&self, direction: Direction) -> Vec<&VariantBottleneck> {
        let here =
            |queue: &&VariantBottleneck| queue.direction == direction && queue.phase == Phase::Load;
        self.bottlenecks.iter().filter(here).collect()
    }

    /// Returns the sanctions of each flow at a hop, over all phases; most packets first.
    pub fn sanctions(&self, direction: Direction, hop: &str) -> Vec<Sanction> {
        let mut all = Vec::new();
        let here = self.bottlenecks.iter();
        let here = here.filter(|queue| queue.direction == direction && queue.hop == hop);
        here.flat_map(|queue| &queue.sanctions).for_each(|one| merge_sanction(&mut all, one));
        all.sort_by_key(|sanction| std::cmp::Reverse(sanction.packets));
        all
    }

    /// Returns the round trips of the connections that load a direction.
    pub fn inside(&self, direction: Direction) -> Option<&VariantInside> {
        self.inside.iter().find(|inside| inside.direction == direction)
    }

    pub fn throughput(&self, direction: Direction) -> Option<&VariantThroughput> {
        self.throughputs.iter().find(|throughput| throughput.direction == direction)
    }
}

/// Returns a metric named as in [`crate::schema::Expectation`], in its usual unit; `None` if the
/// name is unknown or the variant has no such metric.
pub fn metric(summary: &VariantSummary, name: &str) -> Option<f64> {
    if let Some((flow, rest)) = name.split_once('/') {
        let mut metrics = summary.metrics.iter();
        let application = metrics.find(|metric| metric.flow == flow && metric.name == rest);
        return application
            .map(|metric| metric.value.mean)
            .or_else(|| variation_of_flow(summary, flow, rest))
            .or_else(|| latency_metric(summary, Some(flow), rest));
    }
    latency_metric(summary, None, name)
        .or_else(|| waiting_metric(summary, name))
        .or_else(|| inside_metric(summary, name))
        .or_else(|| rate_metric(summary, name))
        .or_else(|| queue_metric(summary, name))
}

/// Returns `FLOW/NAME_variation`: `NAME_p99` minus `NAME_p50`.
fn variation_of_flow(summary: &VariantSummary, flow: &str, name: &str) -> Option<f64> {
    let name = name.strip_suffix(VARIATION)?;
    let value = |quantile: &str| metric(summary, &format!("{flow}/{name}{quantile}"));
    Some(value("p99")? - value("p50")?)
}

fn latency_metric(summary: &VariantSummary, probe: Option<&str>, name: &str) -> Option<f64> {
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
    if let Some(statistic) = statistic.strip_suffix(OF_SENT) {
        let is_round_trip = measure == LatencyMeasure::RoundTrip;
        let quantile = Quantile::from_name(statistic).filter(|_| is_round_trip)?;
        return latency.judged(quantile).map(|judged| judged.as_ns() / 1e6);
    }
    let value = |quantile| Some(latency.value_ns(quantile)? as f64 / 1e6);
    if statistic == VARIATION {
        return Some(value(Quantile::P99)? - value(Quantile::P50)?);
    }
    value(Quantile::from_name(statistic)?)
}

/// Returns [`ShareWithin`] of the first open-loop probe, percent.
fn share_of_trials(summary: &VariantSummary, trials: &[TrialRecord], name: &str) -> Option<f64> {
    let mut share = ShareWithin::parse(name)?;
    let headline = summary.headline(share.phase)?;
    valid_trials(trials, &summary.variant).for_each(|trial| share.add(trial));
    share.percent(&headline.probe)
}

/// Returns `FLOW/ratio.OTHER`: one entry's goodput over another's, mean over valid trials.
fn ratio_of_flows(summary: &VariantSummary, trials: &[TrialRecord], name: &str) -> Option<f64> {
    let mut ratio = Ratio::parse(name)?;
    valid_trials(trials, &summary.variant).for_each(|trial| ratio.add(trial));
    ratio.interval().map(|ratio| ratio.mean)
}

pub(crate) fn valid_trials<'a>(
    trials: &'a [TrialRecord],
    variant: &str,
) -> impl Iterator<Item = &'a TrialRecord> {
    trials.iter().filter(move |trial| trial.variant == variant && trial.validity.is_valid())
}

/// Returns `PHASE.sojourn.DIRECTION.STAT` or `PHASE.queuing.DIRECTION.STAT`, ms.
fn waiting_metric(summary: &VariantSummary, name: &str) -> Option<f64> {
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

/// Returns `load.inside.DIRECTION.STAT`, ms.
fn inside_metric(summary: &VariantSummary, name: &str) -> Option<f64> {
    let (direction, statistic) = name.strip_prefix("load.inside.")?.split_once('.')?;
    let inside = summary.inside(direction_named(direction)?)?;
    Some(inside.over_repeats.get(&Quantile::from_name(statistic)?)?.mean / 1e6)
}

fn rate_metric(summary: &VariantSummary, name: &str) -> Option<f64> {
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

fn queue_metric(summary: &VariantSummary, name: &str) -> Option<f64> {
    let (what, direction) = name.split_once('.')?;
    let queue = summary.bottleneck(direction_named(direction)?, Phase::Load)?;
    match what {
        "drops" => percent(queue.dropped_packets(), queue.offered.packets),
        "marks" => percent(queue.marked_packets(), queue.offered.packets),
        _ => None,
    }
}

fn direction_named(name: &str) -> Option<Direction> {
    [Direction::Up, Direction::Down].into_iter().find(|direction| direction.name() == name)
}
