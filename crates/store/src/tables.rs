//! Tables of trials that were read, as Parquet again: for exports.

use underload_record::schema::TrialRecord;

use super::columns::{Column, Kind};
use super::read::RunData;
use super::{columns, rows, trials};

/// A table of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A row per trial.
    Trials,
    /// A row per probe packet.
    Samples,
    /// A row per point of a curve.
    Series,
}

/// Names and kinds of a table's columns, in order: those of the file in the run directory.
pub fn table_columns(table: Table) -> &'static [(&'static str, Kind)] {
    match table {
        Table::Trials => trials::TRIALS,
        Table::Samples => rows::SAMPLES,
        Table::Series => rows::SERIES,
    }
}

/// The rows of a table in groups, of which the file in the run directory is made. One at a time: a
/// table takes several times the room of the trials that it comes from.
///
/// Each group is an error where its data does not fit together.
pub fn table_groups(
    table: Table,
    data: &RunData,
) -> impl Iterator<Item = Result<Vec<Column>, String>> {
    let all = &data.record.trials;
    // Of samples and series a group per trial that has any, of trials many in one.
    let (each, many) = match table {
        Table::Trials => (&[][..], &all[..]),
        Table::Samples | Table::Series => (&all[..], &[][..]),
    };
    let of_trials = many.chunks(trials::GROUP_ROWS).map(|trials| Ok(trials::from_trials(trials)));
    of_trials.chain(each.iter().filter_map(move |trial| of_trial(table, data, trial)))
}

/// The group of a trial, if it has rows.
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

/// A table of a run's trials as the bytes of a Parquet file, with the columns of the run
/// directory's own.
///
/// # Errors
///
/// What of the data does not fit together.
pub fn parquet_table(table: Table, data: &RunData) -> Result<Vec<u8>, String> {
    let groups: Result<Vec<_>, String> = table_groups(table, data).collect();
    columns::bytes(table_columns(table), groups?.into_iter())
}
