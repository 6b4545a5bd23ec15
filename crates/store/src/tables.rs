//! Exports tables of a run in memory, as Parquet or CSV.

use std::io::{self, Write};

use underload_record::schema::TrialRecord;

use crate::rows::{self, Points, SampleRow, Samples};
use crate::run_data::RunData;
use crate::table::{Column, Layout, Table as _};
use crate::trials::{self, Trials};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Trials,
    /// A row per probe packet.
    Samples,
    /// A row per point of a series.
    Series,
}

/// Returns names and kinds of a table's columns, which are those of the file in a run directory.
pub fn table_columns(table: Table) -> &'static Layout {
    match table {
        Table::Trials => Trials::LAYOUT,
        Table::Samples => Samples::LAYOUT,
        Table::Series => Points::LAYOUT,
    }
}

/// Returns the row groups of a table, one at a time, as a table needs several times the memory of
/// its trials. A group with inconsistent data is an error.
pub fn table_groups(
    table: Table,
    data: &RunData,
) -> impl Iterator<Item = Result<Vec<Column>, String>> {
    let all = &data.record.trials;
    // Samples and series have a group per trial that has any, trials have large groups.
    let (each, many) = match table {
        Table::Trials => (&[][..], &all[..]),
        Table::Samples | Table::Series => (&all[..], &[][..]),
    };
    let of_trials =
        many.chunks(trials::GROUP_ROWS).map(|trials| Ok(Trials::columns(trials.iter())));
    of_trials.chain(each.iter().filter_map(move |trial| of_trial(table, data, trial)))
}

/// Returns the group of a trial, if it has rows.
fn of_trial(
    table: Table,
    data: &RunData,
    trial: &TrialRecord,
) -> Option<Result<Vec<Column>, String>> {
    if table == Table::Samples {
        let samples = data.samples_of(trial.index);
        return (!samples.is_empty()).then(|| rows::from_samples(trial, samples));
    }
    let series = data.series_of_trial(trial.index);
    let has_points = series.iter().any(|series| !series.points.is_empty());
    has_points.then(|| rows::from_series(trial, series))
}

/// Writes every sample as CSV (RFC 4180), with the columns of `samples.parquet`. Lost and unknown
/// values are empty fields.
pub fn write_samples_csv(out: &mut impl Write, data: &RunData) -> io::Result<()> {
    let rows = data.samples.iter().map(|sample| {
        let trial = data.record.trials.get(sample.trial as usize);
        let flow = trial.and_then(|trial| trial.flows.get(usize::from(sample.flow)));
        SampleRow { variant: variant(trial), flow: flow.map_or("", |flow| &flow.name), sample }
    });
    Samples::write_csv(out, rows)
}

/// Writes every point of every series as CSV, with the columns of `series.parquet`.
pub fn write_series_csv(out: &mut impl Write, data: &RunData) -> io::Result<()> {
    let of_trial = |index: u32| variant(data.record.trials.get(index as usize));
    let all = data.series.iter();
    Points::write_csv(out, all.flat_map(|series| rows::points(of_trial(series.trial), series)))
}

/// Writes a row per trial as CSV, with the columns of `trials.parquet`.
pub fn write_trials_csv(out: &mut impl Write, trials: &[TrialRecord]) -> io::Result<()> {
    Trials::write_csv(out, trials.iter())
}

fn variant(trial: Option<&TrialRecord>) -> &str {
    trial.map_or("", |trial| &trial.variant)
}
