//! Two runs of one scenario compared: how well the simulated run predicts the measured one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use underload_record::metric;
use underload_record::schema::{Phase, Quantile, RunRecord, VariantSummary};

use crate::words::{plain_text, significant};

/// Heading of the column of names.
const VARIANT: &str = "variant";
/// Compared metrics, their units, and how far two runs may differ.
const COMPARED: [(&str, &str, Allowed); 5] = [
    ("load.rtt.p50", "ms", Allowed::Percent(15.0)),
    ("load.rtt.p99", "ms", Allowed::Percent(15.0)),
    ("load.loss", "%", Allowed::Apart(1.0)),
    ("goodput.up", "Mbit/s", Allowed::Percent(5.0)),
    ("goodput.down", "Mbit/s", Allowed::Percent(5.0)),
];

/// The largest accepted difference of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allowed {
    /// Percent of the reference.
    Percent(f64),
    /// Absolute, in the metric's unit: percentages of a loss near zero mean nothing.
    Apart(f64),
}

/// A metric of a variant as each of two runs has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    pub variant: String,
    /// Name of the metric, as in expectations.
    pub metric: &'static str,
    pub unit: &'static str,
    /// Value in the examined run; `None` without valid trials or with too few samples.
    pub value: Option<f64>,
    /// Value in the reference run; `None` as for `value`.
    pub reference: Option<f64>,
    /// `value` minus `reference`, in percent of the reference or in `unit`, as for
    /// `allowed`; `None` if either is missing or the reference is 0.
    pub difference: Option<f64>,
    pub allowed: Allowed,
}

impl Agreement {
    fn of(
        variant: &str,
        compared: (&'static str, &'static str, Allowed),
        (value, reference): (Option<f64>, Option<f64>),
    ) -> Self {
        let (metric, unit, allowed) = compared;
        let difference = value.zip(reference).and_then(|(value, reference)| match allowed {
            Allowed::Percent(_) if reference > 0.0 => Some(100.0 * (value - reference) / reference),
            Allowed::Percent(_) => None,
            Allowed::Apart(_) => Some(value - reference),
        });
        Self { variant: variant.to_owned(), metric, unit, value, reference, difference, allowed }
    }

    /// Whether the two agree; false if only the reference has a number. `None` if the reference has
    /// none.
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

/// Compares working latency, loss of probes and goodput of every variant that both runs have, in the
/// order of `run`. Latency may differ by 15 %, loss by 1 in 100 probes, goodput by 5 %.
pub fn agreements(run: &RunRecord, reference: &RunRecord) -> Vec<Agreement> {
    let mut rows = Vec::new();
    for summary in &run.summaries {
        let other = reference.summaries.iter().find(|other| other.variant == summary.variant);
        let Some(other) = other else { continue };
        for compared in COMPARED {
            let both = (told(summary, compared.0), told(other, compared.0));
            // Skips a direction without load.
            let is_nothing = |value: Option<f64>| value.is_none_or(|value| value <= 0.0);
            if !(is_nothing(both.0) && is_nothing(both.1)) {
                rows.push(Agreement::of(&summary.variant, compared, both));
            }
        }
    }
    rows
}

/// Returns a metric; `None` if a quantile has too few samples.
fn told(summary: &VariantSummary, name: &str) -> Option<f64> {
    let quantile = name.strip_prefix("load.rtt.").and_then(Quantile::from_name);
    let is_told = |quantile| summary.headline(Phase::Load)?.told_ns(quantile);
    let is_guess = quantile.is_some_and(|quantile| is_told(quantile).is_none());
    metric(summary, name).filter(|_| !is_guess)
}

/// Formats the comparison for a terminal: a line per number, how many are met, and the variants that
/// only one run has. `run` is the examined run.
pub fn agreement_table(run: &RunRecord, reference: &RunRecord) -> String {
    let rows = agreements(run, reference);
    let mut text =
        format!("{}: {} against {}\n", run.scenario.name, run.world.name(), reference.world.name());
    let names = rows.iter().map(|row| row.variant.chars().count());
    let width = names.fold(VARIANT.len(), usize::max);
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "  {:<width$}  {:<12}  {:>7}  {:>7} {:<6}  {:>8} {:>7}",
            VARIANT, "metric", "first", "second", "", "differs", "allowed"
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
            row.variant,
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
    for (which, variants) in lonely.into_iter().filter(|(_, variants)| !variants.is_empty()) {
        let _ = writeln!(text, "  only in the {which}: {}", variants.join(", "));
    }
    plain_text(&text)
}

/// Returns the variants that the other run lacks.
fn lonely<'a>(run: &'a RunRecord, other: &RunRecord) -> Vec<&'a str> {
    let known: BTreeSet<&str> = other.summaries.iter().map(|it| it.variant.as_str()).collect();
    let own = run.summaries.iter().map(|summary| summary.variant.as_str());
    own.filter(|variant| !known.contains(variant)).collect()
}
