//! `trials.parquet`: a row per trial.

use std::collections::BTreeMap;
use std::path::Path;

use underload_record::judgement::{Grade, LoadedStep};
use underload_record::schema::{
    BottleneckSummary, Direction, Distribution, FlowRecord, Phase, TrialRecord, Validity,
};

use crate::error::StoreError;
use crate::table;
use crate::table::Table as _;
use crate::table_file::NewTable;

type TrialRow<'a> = &'a TrialRecord;

table! {
    /// The columns of `trials.parquet`.
    pub(crate) struct Trials of row: TrialRow {
        trial: Long = row.index;
        variant: Text = &row.variant;
        repeat: Long = row.repeat;
        /// A text, because a seed may exceed 63 bits.
        seed: Text = row.seed.to_string();
        valid: Boolean = row.validity.is_valid();
        invalid_because: OptionalText = reasons(&row.validity);
        conditions: Text = json(&row.conditions);
        probe: OptionalText = row.headline_probe();
        idle_p50_ns: OptionalLong = quantile(row, Phase::Idle, |it| it.p50_ns);
        idle_p99_ns: OptionalLong = quantile(row, Phase::Idle, |it| it.p99_ns);
        load_p50_ns: OptionalLong = quantile(row, Phase::Load, |it| it.p50_ns);
        load_p99_ns: OptionalLong = quantile(row, Phase::Load, |it| it.p99_ns);
        load_mean_ns: OptionalLong = quantile(row, Phase::Load, |it| it.mean_ns);
        load_sent: OptionalLong = row.headline(Phase::Load).map(|it| it.sent);
        load_lost: OptionalLong = row.headline(Phase::Load).map(|it| it.lost);
        grade: OptionalText = grade(row).map(Grade::name);
        goodput_up_bit_per_s: OptionalLong = of_flows(row, |it| it.goodput_up_bit_per_s);
        goodput_down_bit_per_s: OptionalLong = of_flows(row, |it| it.goodput_down_bit_per_s);
        retransmits: OptionalLong = of_flows(row, |it| it.retransmits);
        drops_up: OptionalLong = drops(row, Direction::Up);
        drops_down: OptionalLong = drops(row, Direction::Down);
        marks_up: OptionalLong = marks(row, Direction::Up);
        marks_down: OptionalLong = marks(row, Direction::Down);
        sojourn_p99_up_ns: OptionalLong = sojourn(row, Direction::Up);
        sojourn_p99_down_ns: OptionalLong = sojourn(row, Direction::Down);
        metrics: Text = json(&metrics(row));
    }
}

pub(crate) const GROUP_ROWS: usize = 1 << 16;

fn quantile(trial: &TrialRecord, phase: Phase, value: fn(&Distribution) -> i64) -> Option<i64> {
    trial.headline(phase)?.distribution.as_ref().map(value)
}

fn grade(trial: &TrialRecord) -> Option<Grade> {
    LoadedStep::from(trial.finding.as_deref()?).judge().grade
}

fn of_flows(trial: &TrialRecord, value: fn(&FlowRecord) -> Option<u64>) -> Option<u64> {
    sum(trial.flows.iter().filter_map(value))
}

/// Returns the sum; `None` without values.
fn sum(values: impl Iterator<Item = u64>) -> Option<u64> {
    values.reduce(u64::saturating_add)
}

/// Returns the queues of a direction in the load phase.
fn queues(trial: &TrialRecord, way: Direction) -> impl Iterator<Item = &BottleneckSummary> {
    let is_of_load =
        move |it: &&BottleneckSummary| it.direction == way && it.window.phase == Phase::Load;
    trial.bottlenecks.iter().filter(is_of_load)
}

fn drops(trial: &TrialRecord, way: Direction) -> Option<u64> {
    sum(queues(trial, way).map(BottleneckSummary::dropped_packets))
}

fn marks(trial: &TrialRecord, way: Direction) -> Option<u64> {
    sum(queues(trial, way).map(BottleneckSummary::marked_packets))
}

fn sojourn(trial: &TrialRecord, way: Direction) -> Option<i64> {
    let p99s = queues(trial, way).filter_map(|it| Some(it.sojourn.as_ref()?.p99_ns));
    p99s.max()
}

fn reasons(validity: &Validity) -> Option<String> {
    (!validity.is_valid()).then(|| validity.reasons_in_words().join("; "))
}

/// Returns the metrics of all applications by `FLOW.METRIC`.
fn metrics(trial: &TrialRecord) -> BTreeMap<String, Option<f64>> {
    let of_flow = trial.flows.iter().flat_map(|flow| {
        let named = move |it: &underload_record::schema::Metric| {
            (format!("{}.{}", flow.name, it.name), it.value)
        };
        flow.metrics.iter().map(named)
    });
    of_flow.collect()
}

/// Writes a map of texts and numbers, which cannot fail.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Writes the table of trials to a file that must not exist.
pub(crate) fn write(path: &Path, trials: &[TrialRecord]) -> Result<(), StoreError> {
    let mut table = NewTable::begin(path, Trials::LAYOUT)?;
    trials.iter().try_for_each(|trial| table.push(Trials::cells(&trial)))?;
    table.claim()
}

#[cfg(test)]
mod tests {
    use underload_record::judgement::judge_findings;
    use underload_record::schema::{Finding, LatencySummary, PhaseWindow};

    use super::*;
    use crate::table::Column;

    #[test]
    fn a_trial_has_equal_columns_and_csv_fields() {
        let trial = TrialRecord { index: 3, seed: u64::MAX, ..TrialRecord::default() };
        let columns = Trials::columns([&trial, &trial].into_iter());
        assert_eq!(columns[0], Column::Long(vec![3, 3]));
        let mut csv = Vec::new();
        Trials::write_csv(&mut csv, [&trial].into_iter()).expect("memory takes it");
        let csv = String::from_utf8(csv).expect("text");
        let row = csv.lines().nth(1).expect("a row");
        assert!(row.starts_with("3,,0,18446744073709551615,true,,{},,"), "{csv}");
    }

    #[test]
    fn a_measured_step_has_the_grade_of_its_judgement() {
        let latency = |phase, count, p99_ns| LatencySummary {
            window: PhaseWindow { phase, ..PhaseWindow::default() },
            sent: count,
            distribution: Some(Distribution { count, p99_ns, ..Distribution::default() }),
            ..LatencySummary::default()
        };
        let latencies = vec![latency(Phase::Idle, 1, 0), latency(Phase::Load, 500, 50_000_000)];
        let finding = Finding { valid: true, latencies, ..Finding::default() };
        let steps = judge_findings(std::slice::from_ref(&finding)).steps;
        assert_eq!(steps[0].grade, Some(Grade::B));
        let finding = Some(Box::new(finding));
        let trial = TrialRecord { finding, ..TrialRecord::default() };
        let position = Trials::LAYOUT.iter().position(|(name, _)| *name == "grade").unwrap();
        assert_eq!(Trials::cells(&&trial).nth(position), Some(Some("B").into()));
    }
}
