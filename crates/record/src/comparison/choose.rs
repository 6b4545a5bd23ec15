//! Which variants are compared, with which baseline, and by which metric.

use std::collections::{BTreeMap, BTreeSet};

use super::indexed::Indexed;
use super::{Both, Comparison, SettingChange};
use crate::metric_names::{OF_SENT, metric_unit};
use crate::schema::{
    Headline, LatencyMeasure, Phase, Quantile, RunRecord, VariantLatency, VariantRecord,
    VariantSummary,
};
use crate::variants::metric_of_trial;

/// Every variant that is compared, with its baseline.
pub(super) struct Partners<'a> {
    pub(super) pairs: Vec<(&'a str, &'a str)>,
    /// Number of the first pairs, which the scenario declares.
    pub(super) declared: usize,
}

impl<'a> Partners<'a> {
    /// Pairs first the variants that the scenario declares, then every other variant: with the variant
    /// that has its settings and the base's queues, or else with the base. So a queue is compared
    /// with another on the same line, and a line with another line behind the same queue.
    pub(super) fn of(run: &'a RunRecord) -> Self {
        let names: Vec<&str> = run.variants.iter().map(|variant| variant.name.as_str()).collect();
        let headline = run.scenario.headline.as_ref();
        let declared = headline.filter(|headline| !headline.metric.is_empty());
        let mut pairs: Vec<(&str, &str)> = declared
            .map(|headline| headline.pairs(&names))
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(variant, baseline)| Some((variant, baseline?)))
            .collect();
        let count = pairs.len();
        let partners = |pairs| Self { pairs, declared: count };
        let is_base = |variant: &&VariantRecord| match headline {
            Some(Headline { metric, baseline, .. }) if metric.is_empty() => {
                variant.name == *baseline
            }
            _ => true,
        };
        // The baseline may be left out of this run.
        let base = run.variants.iter().find(is_base).or(run.variants.first());
        let Some(base) = base else { return partners(pairs) };
        let known: BTreeSet<&str> = pairs.iter().flat_map(|(own, other)| [*own, *other]).collect();
        let others = run.variants.iter().filter(|other| !known.contains(other.name.as_str()));
        let others: Vec<(&str, &str)> = match declared {
            // Compares two metrics of the same variant, such as loaded and idle latency.
            Some(headline) if !headline.baseline_metric.is_empty() => {
                others.map(|other| (other.name.as_str(), other.name.as_str())).collect()
            }
            Some(headline) if headline.baseline.is_empty() => Vec::new(),
            _ => {
                let by_settings = by_settings(&run.variants);
                others.filter_map(|other| baseline_of(other, base, &by_settings)).collect()
            }
        };
        pairs.extend(others);
        partners(pairs)
    }
}

fn baseline_of<'a>(
    variant: &'a VariantRecord,
    base: &'a VariantRecord,
    by_settings: &BTreeMap<(Settings<'a>, Settings<'a>), &'a VariantRecord>,
) -> Option<(&'a str, &'a str)> {
    let (queues, line) = queues_and_line(variant);
    let (base_queues, _) = queues_and_line(base);
    let wanted = (base_queues, line);
    let counterpart = by_settings.get(&wanted).filter(|_| queues != wanted.0);
    let baseline = counterpart.copied().unwrap_or(base);
    let differs = !SettingChange::between(baseline, variant).is_empty();
    differs.then_some((variant.name.as_str(), baseline.name.as_str()))
}

type Settings<'a> = BTreeMap<&'a str, &'a str>;

/// Returns the first variant with each combination of queues and other settings.
fn by_settings(all: &[VariantRecord]) -> BTreeMap<(Settings<'_>, Settings<'_>), &VariantRecord> {
    all.iter().rev().map(|variant| (queues_and_line(variant), variant)).collect()
}

/// Returns the settings of a variant's queues, and all others.
fn queues_and_line(variant: &VariantRecord) -> (Settings<'_>, Settings<'_>) {
    let of = |(key, value)| (String::as_str(key), String::as_str(value));
    variant.factors.iter().map(of).partition(|(key, _)| key.ends_with("queue"))
}

/// The metric of all comparisons of a run, or of two.
pub(super) struct Statistic<'a> {
    pub(super) run: &'a Indexed<'a>,
    /// The run of the baselines.
    pub(super) other: &'a Indexed<'a>,
    pub(super) metric: String,
    pub(super) baseline_metric: String,
    pub(super) unit: String,
}

/// The metric of the headline probe's latency without its statistic.
const LATENCY: &str = "load.rtt.";

impl<'a> Statistic<'a> {
    /// Returns the metric that the scenario declares, else the latency under load of the probe whose
    /// variants differ most, else the first number of the first application. Of a latency it is the
    /// highest quantile of all probes sent that every variant has, in each of its trials.
    pub(super) fn of(run: &'a Indexed<'a>, partners: &Partners<'_>) -> Option<Self> {
        let declared = run.record.scenario.headline.as_ref().filter(|it| !it.metric.is_empty());
        if let Some(Headline { metric, baseline_metric, .. }) = declared {
            let other = if baseline_metric.is_empty() { metric } else { baseline_metric };
            return Some(Self::known((run, run), (metric, other), partners));
        }
        let first = run.record.summaries.iter().find(|it| it.headline(Phase::Load).is_some());
        let probes = first.map(open_loop).unwrap_or_default();
        let of_probe = |(position, probe): (usize, &VariantLatency)| {
            let name = match position {
                0 => format!("{LATENCY}p99"),
                _ => format!("{}/{LATENCY}p99", probe.probe),
            };
            Self::known((run, run), (&name, &name), partners)
        };
        let all = probes.into_iter().enumerate().map(of_probe);
        // The first of equal effects wins, and the headline probe is the first.
        let size = |statistic: &Self| {
            let sizes =
                partners.pairs.iter().map(|(variant, other)| statistic.size(variant, other));
            sizes.fold(0.0, f64::max)
        };
        let probe = all.reduce(|most, next| if size(&next) > size(&most) { next } else { most });
        probe.or_else(|| Self::of_application(run))
    }

    /// Returns the metric of a comparison.
    pub(super) fn stored(
        run: &'a Indexed<'a>,
        other: &'a Indexed<'a>,
        comparison: &Comparison,
    ) -> Self {
        let metric = comparison.metric.clone();
        let own = &comparison.baseline_metric;
        let baseline_metric = if own.is_empty() { metric.clone() } else { own.clone() };
        Self { run, other, metric, baseline_metric, unit: comparison.unit.clone() }
    }

    /// Returns a metric that is given, for variants of two runs.
    pub(super) fn declared(
        (run, variant): (&'a Indexed<'a>, &str),
        (other, baseline): (&'a Indexed<'a>, &str),
        metric: &str,
    ) -> Self {
        let partners = Partners { pairs: vec![(variant, baseline)], declared: 1 };
        Self::known((run, other), (metric, metric), &partners)
    }

    /// Returns the first number of the first application; in place of a median its p99, if every variant
    /// has one.
    fn of_application(run: &'a Indexed<'a>) -> Option<Self> {
        let metric = run.record.summaries.iter().flat_map(|summary| &summary.metrics).next()?;
        let median = format!("{}/{}", metric.flow, metric.name);
        let high = median.strip_suffix("_p50").map(|stem| format!("{stem}_p99"));
        let is_known = |name: &String| {
            run.record.variants.iter().all(|variant| run.value(&variant.name, name).is_some())
        };
        let metric_name = high.filter(is_known).unwrap_or(median);
        let (baseline_metric, unit) = (metric_name.clone(), metric.unit.clone());
        Some(Self { run, other: run, metric: metric_name, baseline_metric, unit })
    }

    /// Lowers the quantile of a latency until all variants have it.
    fn known(
        (run, other): (&'a Indexed<'a>, &'a Indexed<'a>),
        (metric, baseline_metric): (&str, &str),
        partners: &Partners<'_>,
    ) -> Self {
        let unit = unit_of(run.record, metric);
        let of = |metric: String, baseline_metric: String| Self {
            run,
            other,
            metric,
            baseline_metric,
            unit: unit.clone(),
        };
        let (stem, declared) = statistic(metric);
        let (baseline_stem, _) = statistic(baseline_metric);
        let Some(declared) = declared.filter(|it| stem.ends_with(".rtt.") && it.share().is_some())
        else {
            return of(metric.to_owned(), baseline_metric.to_owned());
        };
        let lower = Quantile::HIGHEST_FIRST.into_iter().filter(|quantile| *quantile <= declared);
        let at = |quantile: Quantile| {
            let name = |stem: &str| format!("{stem}{}{OF_SENT}", quantile.name());
            of(name(stem), name(baseline_stem))
        };
        let (mut candidates, median) = (lower.map(at), at(Quantile::P50));
        // A variant whose median probe was lost has no known quantile, and does not lower the
        // quantile of the others.
        let compared = partners.pairs.iter().filter(|(own, base)| median.knows(own, base));
        let compared: Vec<&(&str, &str)> = compared.collect();
        let known = candidates
            .find(|candidate| compared.iter().all(|(own, base)| candidate.knows_all(own, base)));
        // Without a pair that has a median there is no reason for another quantile.
        known.filter(|_| partners.pairs.is_empty() || !compared.is_empty()).unwrap_or(median)
    }

    fn knows(&self, variant: &str, baseline: &str) -> bool {
        self.run.value(variant, &self.metric).is_some()
            && self.other.value(baseline, &self.baseline_metric).is_some()
    }

    /// Whether the variant and the baseline have a value, both over all trials and in each trial.
    fn knows_all(&self, variant: &str, baseline: &str) -> bool {
        let in_trials = |run: &Indexed<'_>, name: &str, metric: &str| {
            run.valid_trials(name).iter().all(|trial| metric_of_trial(trial, metric).is_some())
        };
        self.knows(variant, baseline)
            && in_trials(self.run, variant, &self.metric)
            && in_trials(self.other, baseline, &self.baseline_metric)
    }

    fn size(&self, variant: &str, baseline: &str) -> f64 {
        let own = self.run.value(variant, &self.metric);
        let other = self.other.value(baseline, &self.baseline_metric);
        own.zip(other).map_or(0.0, |(own, other)| (own / other).ln().abs())
    }

    /// Returns the share of probes that each lost, if the metric is a latency.
    pub(super) fn lost_percent(&self, variant: &str, baseline: &str) -> Option<Both> {
        let lost = |run: &Indexed<'_>, name: &str, metric: &str| {
            Some(latency_of(run.summary(name)?, statistic(metric).0)?.lost_percent())
        };
        Some(Both {
            variant: lost(self.run, variant, &self.metric)?,
            baseline: lost(self.other, baseline, &self.baseline_metric)?,
        })
    }
}

/// Returns the open-loop probes of a variant under load, the headline first.
fn open_loop(summary: &VariantSummary) -> Vec<&VariantLatency> {
    let is_wanted = |latency: &&VariantLatency| {
        latency.phase == Phase::Load
            && latency.measure == LatencyMeasure::RoundTrip
            && !latency.closed_loop
    };
    summary.latencies.iter().filter(is_wanted).collect()
}

/// Returns the latency of a metric without its statistic, `PROBE/load.rtt.`.
fn latency_of<'a>(summary: &'a VariantSummary, stem: &str) -> Option<&'a VariantLatency> {
    let (probe, rest) = match stem.split_once('/') {
        Some((probe, rest)) => (Some(probe), rest),
        None => (None, stem),
    };
    let phase = Phase::from_name(rest.strip_suffix(".rtt.")?)?;
    summary.latency(probe, LatencyMeasure::RoundTrip, phase)
}

/// Splits `load.rtt.` and p99 of `load.rtt.p99` or `load.rtt.p99_of_sent`.
pub fn statistic(name: &str) -> (&str, Option<Quantile>) {
    let plain = name.strip_suffix(OF_SENT).unwrap_or(name);
    let start = plain.rfind(['.', '_']).map_or(0, |at| at + 1);
    // `p99.9` contains a `.`, at which the search above splits the name.
    let start = if plain.ends_with("p99.9") { plain.len() - "p99.9".len() } else { start };
    match Quantile::from_name(&plain[start..]) {
        Some(quantile) => (&name[..start], Some(quantile)),
        None => (name, None),
    }
}

/// Returns the unit of a metric as used in sentences; empty for a plain number.
fn unit_of(run: &RunRecord, name: &str) -> String {
    if let Some((flow, own)) = name.split_once('/') {
        let mut metrics = run.summaries.iter().flat_map(|summary| &summary.metrics);
        if let Some(known) = metrics.find(|known| known.flow == flow && known.name == own) {
            return known.unit.clone();
        }
        if own.starts_with("ratio.") {
            return String::new();
        }
    }
    let unit = metric_unit(name.rsplit('/').next().unwrap_or(name)).unwrap_or("ms");
    if unit == "1" { String::new() } else { unit.to_owned() }
}

/// The values of a metric that a scenario declares without a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredValues {
    pub metric: String,
    pub unit: String,
    /// Variants with a value, in the order of the scenario.
    pub values: Vec<(String, f64)>,
    /// Variants without a value, for example because most probes were lost.
    pub missing: Vec<String>,
}

/// Returns the values of the scenario's metric; `None` if the scenario declares none, or compares
/// variants by it.
pub fn declared_values(run: &RunRecord) -> Option<DeclaredValues> {
    let headline = run.scenario.headline.as_ref().filter(|it| !it.metric.is_empty())?;
    let names: Vec<&str> = run.variants.iter().map(|variant| variant.name.as_str()).collect();
    let pairs = headline.pairs(&names);
    let alone: Vec<(&str, &str)> =
        pairs.iter().filter(|(_, other)| other.is_none()).map(|(own, _)| (*own, *own)).collect();
    if alone.len() < pairs.len() {
        return None;
    }
    let partners = Partners { pairs: alone, declared: 0 };
    let metric = &headline.metric;
    let run = Indexed::of(run);
    let statistic = Statistic::known((&run, &run), (metric, metric), &partners);
    let (mut values, mut missing) = (Vec::new(), Vec::new());
    for (name, _) in &partners.pairs {
        match run.value(name, &statistic.metric) {
            Some(value) => values.push(((*name).to_owned(), value)),
            None => missing.push((*name).to_owned()),
        }
    }
    Some(DeclaredValues { metric: statistic.metric, unit: statistic.unit, values, missing })
}
