//! Two runs of one scenario held against each other: how well the simulated one foretells the
//! measured one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use underload_record::metric;
use underload_record::schema::RunRecord;

use crate::words::{plain_text, significant};

/// What is compared: metric, unit, and how far the two may differ, percent of the reference.
const COMPARED: [(&str, &str, f64); 4] = [
    ("load.rtt.p50", "ms", 15.0),
    ("load.rtt.p99", "ms", 15.0),
    ("goodput.up", "Mbit/s", 5.0),
    ("goodput.down", "Mbit/s", 5.0),
];

/// One number of an arm in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// The arm, which both runs have.
    pub arm: String,
    /// The metric's name, as expectations use it.
    pub metric: &'static str,
    /// Unit of the metric.
    pub unit: &'static str,
    /// What the run that is examined has; `None`: nothing valid.
    pub value: Option<f64>,
    /// The metric's value in the reference run.
    pub reference: Option<f64>,
    /// Difference in percent of the reference; `None` when either is missing.
    pub difference_percent: Option<f64>,
    /// Largest difference that meets it, percent.
    pub tolerance_percent: f64,
}

impl Agreement {
    /// Whether the difference is within the tolerance; `None` when there is none to judge.
    pub fn is_met(&self) -> Option<bool> {
        self.difference_percent.map(|difference| difference.abs() <= self.tolerance_percent)
    }
}

/// Working latency and goodput of every arm that both runs have, in the order of `run`. Latency may
/// differ by 15 %, goodput by 5 %.
pub fn agreements(run: &RunRecord, reference: &RunRecord) -> Vec<Agreement> {
    let mut rows = Vec::new();
    for summary in &run.summaries {
        let other = reference.summaries.iter().find(|other| other.arm == summary.arm);
        let Some(other) = other else { continue };
        for (name, unit, tolerance_percent) in COMPARED {
            let (value, expected) = (metric(summary, name), metric(other, name));
            // A direction without load has no goodput, or next to none.
            let is_idle = |value: Option<f64>| value.is_none_or(|value| value <= 0.0);
            if is_idle(value) && is_idle(expected) {
                continue;
            }
            let difference = |(value, expected): (f64, f64)| 100.0 * (value - expected) / expected;
            rows.push(Agreement {
                arm: summary.arm.clone(),
                metric: name,
                unit,
                value,
                reference: expected,
                difference_percent: value.zip(expected.filter(|e| *e > 0.0)).map(difference),
                tolerance_percent,
            });
        }
    }
    rows
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
        let difference = row.difference_percent.map_or(String::new(), |d| format!("{d:+.1} %"));
        let verdict = match row.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let _ = writeln!(
            text,
            "  {:<width$}  {:<12}  {:>7}  {:>7} {:<6}  {:>8} {:>5.0} %  {}",
            row.arm,
            row.metric,
            number(row.value),
            number(row.reference),
            row.unit,
            difference,
            row.tolerance_percent,
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
