//! Two runs of one scenario held against each other: how well the simulated one foretells the
//! measured one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use underload_record::metric;
use underload_record::schema::{ArmSummary, Phase, Quantile, RunRecord};

use crate::words::{plain_text, significant};

/// What is compared: metric, unit, and how far the two may differ.
const COMPARED: [(&str, &str, Allowed); 5] = [
    ("load.rtt.p50", "ms", Allowed::Percent(15.0)),
    ("load.rtt.p99", "ms", Allowed::Percent(15.0)),
    ("load.loss", "%", Allowed::Apart(1.0)),
    ("goodput.up", "Mbit/s", Allowed::Percent(5.0)),
    ("goodput.down", "Mbit/s", Allowed::Percent(5.0)),
];

/// How far two numbers may be from each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allowed {
    /// Percent of the reference.
    Percent(f64),
    /// In the metric's own unit: of a share of next to nothing no percentage says anything.
    Apart(f64),
}

/// One number of an arm in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// The arm, which both runs have.
    pub arm: String,
    /// The metric's name, as expectations use it.
    pub metric: &'static str,
    /// Unit of the metric.
    pub unit: &'static str,
    /// What the run that is examined has; `None`: nothing valid, or too few samples to tell it.
    pub value: Option<f64>,
    /// The metric's value in the reference run, likewise.
    pub reference: Option<f64>,
    /// By how much the value is larger, in percent of the reference or in `unit`, as `allowed`
    /// has it; `None` when either is missing, or the reference is nothing to take percents of.
    pub difference: Option<f64>,
    /// Largest difference that meets it.
    pub allowed: Allowed,
}

impl Agreement {
    fn of(
        arm: &str,
        compared: (&'static str, &'static str, Allowed),
        (value, reference): (Option<f64>, Option<f64>),
    ) -> Self {
        let (metric, unit, allowed) = compared;
        let difference = value.zip(reference).and_then(|(value, reference)| match allowed {
            Allowed::Percent(_) if reference > 0.0 => Some(100.0 * (value - reference) / reference),
            Allowed::Percent(_) => None,
            Allowed::Apart(_) => Some(value - reference),
        });
        Self { arm: arm.to_owned(), metric, unit, value, reference, difference, allowed }
    }

    /// Whether the two agree: a number that the reference has and the run has not is missed.
    /// `None` when the reference has none.
    pub fn is_met(&self) -> Option<bool> {
        let (Allowed::Percent(most) | Allowed::Apart(most)) = self.allowed;
        self.reference?;
        Some(self.difference.is_some_and(|difference| difference.abs() <= most))
    }

    fn words(&self) -> (String, String) {
        match self.allowed {
            Allowed::Percent(most) => {
                let difference = self.difference.map(|percent| format!("{percent:+.1} %"));
                (difference.unwrap_or_default(), format!("{most:.0} %"))
            }
            Allowed::Apart(most) => {
                let difference = self.difference.map(|apart| format!("{apart:+.2}"));
                (difference.unwrap_or_default(), format!("{most:.2}"))
            }
        }
    }
}

/// Working latency, loss of probes and goodput of every arm that both runs have, in the order of
/// `run`. Latency may differ by 15 %, loss by 1 in 100 probes, goodput by 5 %.
pub fn agreements(run: &RunRecord, reference: &RunRecord) -> Vec<Agreement> {
    let mut rows = Vec::new();
    for summary in &run.summaries {
        let other = reference.summaries.iter().find(|other| other.arm == summary.arm);
        let Some(other) = other else { continue };
        for compared in COMPARED {
            let both = (told(summary, compared.0), told(other, compared.0));
            // A direction without load has no goodput, or next to none.
            let is_nothing = |value: Option<f64>| value.is_none_or(|value| value <= 0.0);
            if !(is_nothing(both.0) && is_nothing(both.1)) {
                rows.push(Agreement::of(&summary.arm, compared, both));
            }
        }
    }
    rows
}

/// A metric, where there are enough samples to tell it.
fn told(summary: &ArmSummary, name: &str) -> Option<f64> {
    let quantile = name.strip_prefix("load.rtt.").and_then(Quantile::from_name);
    let is_told = |quantile| summary.headline(Phase::Load)?.told_ns(quantile);
    let is_guess = quantile.is_some_and(|quantile| is_told(quantile).is_none());
    metric(summary, name).filter(|_| !is_guess)
}

/// The comparison for a terminal: a line per number, then how many are met, then the arms that only
/// one run has. The run that is examined is the first, its reference the second.
pub fn agreement_table(run: &RunRecord, reference: &RunRecord) -> String {
    let rows = agreements(run, reference);
    let mut text =
        format!("{}: {} against {}\n", run.scenario.name, run.world.name(), reference.world.name());
    let width = rows.iter().map(|row| row.arm.chars().count()).max().unwrap_or(0);
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "  {:<width$}  {:<12}  {:>7}  {:>7} {:<6}  {:>8} {:>7}",
            "arm", "metric", "first", "second", "", "differs", "allowed"
        );
    }
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
    for row in &rows {
        let (difference, allowed) = row.words();
        let verdict = match row.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let _ = writeln!(
            text,
            "  {:<width$}  {:<12}  {:>7}  {:>7} {:<6}  {:>8} {:>7}  {}",
            row.arm,
            row.metric,
            number(row.value),
            number(row.reference),
            row.unit,
            difference,
            allowed,
            verdict
        );
    }
    let met = rows.iter().filter(|row| row.is_met() == Some(true)).count();
    let _ = writeln!(text, "  {met} of {} met", rows.len());
    let lonely = [("first", lonely(run, reference)), ("second", lonely(reference, run))];
    for (which, arms) in lonely.into_iter().filter(|(_, arms)| !arms.is_empty()) {
        let _ = writeln!(text, "  only in the {which}: {}", arms.join(", "));
    }
    plain_text(&text)
}

/// The arms that the other run does not have.
fn lonely<'a>(run: &'a RunRecord, other: &RunRecord) -> Vec<&'a str> {
    let known: BTreeSet<&str> = other.summaries.iter().map(|it| it.arm.as_str()).collect();
    let own = run.summaries.iter().map(|summary| summary.arm.as_str());
    own.filter(|arm| !known.contains(arm)).collect()
}
