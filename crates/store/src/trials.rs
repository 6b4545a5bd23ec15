//! `trials.parquet`: a row per trial, for whoever compares trials and not packets.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use parquet::data_type::ByteArray;
use underload_record::schema::{
    BottleneckSummary, Direction, LatencyMeasure, LatencySummary, Phase, TrialRecord, Validity,
};

use super::StoreError;
use super::columns::{Column, Kind, Layout, NewTable};

/// Columns of `trials.parquet`.
pub(super) const TRIALS: &Layout = &[
    ("trial", Kind::Long),
    ("arm", Kind::Text),
    ("repeat", Kind::Long),
    ("seed", Kind::Text),
    ("valid", Kind::Boolean),
    ("invalid_because", Kind::OptionalText),
    ("conditions", Kind::Text),
    ("probe", Kind::OptionalText),
    ("idle_p50_ns", Kind::OptionalLong),
    ("idle_p99_ns", Kind::OptionalLong),
    ("load_p50_ns", Kind::OptionalLong),
    ("load_p99_ns", Kind::OptionalLong),
    ("load_mean_ns", Kind::OptionalLong),
    ("load_sent", Kind::OptionalLong),
    ("load_lost", Kind::OptionalLong),
    ("goodput_up_bit_per_s", Kind::OptionalLong),
    ("goodput_down_bit_per_s", Kind::OptionalLong),
    ("retransmits", Kind::OptionalLong),
    ("drops_up", Kind::OptionalLong),
    ("drops_down", Kind::OptionalLong),
    ("marks_up", Kind::OptionalLong),
    ("marks_down", Kind::OptionalLong),
    ("sojourn_p99_up_ns", Kind::OptionalLong),
    ("sojourn_p99_down_ns", Kind::OptionalLong),
    ("metrics", Kind::Text),
];

/// Rows of a row group.
pub(super) const GROUP_ROWS: usize = 1 << 16;

/// A cell of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Long(i64),
    Text(String),
    Boolean(bool),
    OptionalLong(Option<i64>),
    OptionalDouble(Option<f64>),
    OptionalText(Option<String>),
}

/// The rows of some trials as columns.
pub(super) fn from_trials(trials: &[TrialRecord]) -> Vec<Column> {
    let mut columns: Vec<Column> = TRIALS.iter().map(|(_, kind)| Column::empty(*kind)).collect();
    for trial in trials {
        push(&mut columns, row(trial));
    }
    columns
}

/// Adds a row to columns of the same kinds.
pub(super) fn push(columns: &mut [Column], cells: Vec<Cell>) {
    for (column, cell) in columns.iter_mut().zip(cells) {
        match (column, cell) {
            (Column::Long(values), Cell::Long(value)) => values.push(value),
            (Column::Text(values), Cell::Text(value)) => {
                values.push(ByteArray::from(value.as_str()));
            }
            (Column::Boolean(values), Cell::Boolean(value)) => values.push(value),
            (Column::OptionalLong(values), Cell::OptionalLong(value)) => values.push(value),
            (Column::OptionalDouble(values), Cell::OptionalDouble(value)) => values.push(value),
            (Column::OptionalText(values), Cell::OptionalText(value)) => {
                values.push(value.map(|value| ByteArray::from(value.as_str())));
            }
            _ => debug_assert!(false, "a row's cells are those of the layout"),
        }
    }
}

/// Writes a row per trial as CSV (RFC 4180), with the columns of `trials.parquet`.
///
/// # Errors
///
/// The error of the writer.
pub fn write_trials_csv(out: &mut impl Write, trials: &[TrialRecord]) -> io::Result<()> {
    super::csv::header(out, TRIALS)?;
    for trial in trials {
        let cells = row(trial).into_iter().map(|cell| match cell {
            Cell::Long(value) => value.to_string(),
            Cell::Text(text) => super::csv::field(&text).into_owned(),
            Cell::Boolean(value) => value.to_string(),
            Cell::OptionalLong(value) => value.map(|value| value.to_string()).unwrap_or_default(),
            Cell::OptionalDouble(value) => value.map(|value| value.to_string()).unwrap_or_default(),
            Cell::OptionalText(text) => {
                text.map(|text| super::csv::field(&text).into_owned()).unwrap_or_default()
            }
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// A trial's cells, in the order of the columns.
pub(super) fn row(trial: &TrialRecord) -> Vec<Cell> {
    let probe = headline_probe(trial);
    let summary = |phase| latency(trial, probe?, phase);
    let of = |phase, quantile: fn(&underload_record::schema::Distribution) -> i64| {
        let distribution = summary(phase)?.distribution.as_ref()?;
        Some(quantile(distribution))
    };
    let count = |value: fn(&LatencySummary) -> u64| summary(Phase::Load).map(|it| long(value(it)));
    let sum = |values: &mut dyn Iterator<Item = Option<u64>>| {
        let known: Vec<u64> = values.flatten().collect();
        (!known.is_empty()).then(|| long(known.iter().fold(0, |sum, it| sum.saturating_add(*it))))
    };
    let flows = || trial.flows.iter();
    let queues = |direction: Direction| {
        let of_load = move |it: &&BottleneckSummary| {
            it.direction == direction && it.window.phase == Phase::Load
        };
        trial.bottlenecks.iter().filter(of_load)
    };
    let drops = |way| sum(&mut queues(way).map(|it| Some(it.dropped_packets())));
    let marks = |way| sum(&mut queues(way).map(|it| Some(it.marked_packets())));
    let sojourn = |way| {
        let of_queue = |it: &BottleneckSummary| it.sojourn.as_ref().map(|sojourn| sojourn.p99_ns);
        queues(way).filter_map(of_queue).max()
    };
    vec![
        Cell::Long(trial.index.into()),
        Cell::Text(trial.arm.clone()),
        Cell::Long(trial.repeat.into()),
        // Beyond the largest number of the table's kind.
        Cell::Text(trial.seed.to_string()),
        Cell::Boolean(trial.validity.is_valid()),
        Cell::OptionalText(reasons(&trial.validity)),
        Cell::Text(json(&trial.conditions)),
        Cell::OptionalText(probe.map(str::to_owned)),
        Cell::OptionalLong(of(Phase::Idle, |it| it.p50_ns)),
        Cell::OptionalLong(of(Phase::Idle, |it| it.p99_ns)),
        Cell::OptionalLong(of(Phase::Load, |it| it.p50_ns)),
        Cell::OptionalLong(of(Phase::Load, |it| it.p99_ns)),
        Cell::OptionalLong(of(Phase::Load, |it| it.mean_ns)),
        Cell::OptionalLong(count(|it| it.sent)),
        Cell::OptionalLong(count(|it| it.lost)),
        Cell::OptionalLong(sum(&mut flows().map(|flow| flow.goodput_up_bit_per_s))),
        Cell::OptionalLong(sum(&mut flows().map(|flow| flow.goodput_down_bit_per_s))),
        Cell::OptionalLong(sum(&mut flows().map(|flow| flow.retransmits))),
        Cell::OptionalLong(drops(Direction::Up)),
        Cell::OptionalLong(drops(Direction::Down)),
        Cell::OptionalLong(marks(Direction::Up)),
        Cell::OptionalLong(marks(Direction::Down)),
        Cell::OptionalLong(sojourn(Direction::Up)),
        Cell::OptionalLong(sojourn(Direction::Down)),
        Cell::Text(json(&metrics(trial))),
    ]
}

/// The first probe whose percentiles hide no load.
fn headline_probe(trial: &TrialRecord) -> Option<&str> {
    let is_open = |it: &&LatencySummary| !it.closed_loop && it.measure == LatencyMeasure::RoundTrip;
    trial.latencies.iter().find(is_open).map(|it| it.probe.as_str())
}

fn latency<'a>(trial: &'a TrialRecord, probe: &str, phase: Phase) -> Option<&'a LatencySummary> {
    trial.latencies.iter().find(|it| {
        it.probe == probe
            && it.measure == LatencyMeasure::RoundTrip
            && it.window.phase == phase
            && !it.closed_loop
    })
}

fn reasons(validity: &Validity) -> Option<String> {
    (!validity.is_valid()).then(|| validity.reasons_in_words().join("; "))
}

/// The numbers of all applications, by flow and metric.
fn metrics(trial: &TrialRecord) -> BTreeMap<String, Option<f64>> {
    let of_flow = trial.flows.iter().flat_map(|flow| {
        let named = move |it: &underload_record::schema::Metric| {
            (format!("{}.{}", flow.name, it.name), it.value)
        };
        flow.metrics.iter().map(named)
    });
    of_flow.collect()
}

/// Maps of texts and numbers: JSON has words for all of them.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn long(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Writes the table of some trials, where no file of its name is.
pub(super) fn write(path: &Path, trials: &[TrialRecord]) -> Result<(), StoreError> {
    let mut table = NewTable::begin(path, TRIALS)?;
    trials.chunks(GROUP_ROWS).try_for_each(|trials| table.write(&from_trials(trials)))?;
    table.claim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_page_names_every_column() {
        let page = include_str!("../../../docs/run-format.md");
        for (name, _) in TRIALS {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let trial = TrialRecord { index: 3, seed: u64::MAX, ..TrialRecord::default() };
        let cells = row(&trial);
        assert_eq!(cells.len(), TRIALS.len());
        assert_eq!(cells[3], Cell::Text(u64::MAX.to_string()));
        let columns = from_trials(&[trial.clone(), trial.clone()]);
        assert_eq!(columns[0], Column::Long(vec![3, 3]));
        let mut csv = Vec::new();
        write_trials_csv(&mut csv, &[trial]).expect("memory takes it");
        let csv = String::from_utf8(csv).expect("text");
        let row = csv.lines().nth(1).expect("a row");
        assert!(row.starts_with("3,,0,18446744073709551615,true,,{},,"), "{csv}");
    }
}
