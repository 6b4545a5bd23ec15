//! Tables of trials that were read, as Parquet again: for exports.

use underload_record::schema::{Sample, Series};

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

/// A table of a run's trials as the bytes of a Parquet file, with the columns of the run
/// directory's own.
///
/// # Errors
///
/// What of the data does not fit together.
pub fn parquet_table(table: Table, data: &RunData) -> Result<Vec<u8>, String> {
    let mut groups = Vec::new();
    for trial in &data.record.trials {
        match table {
            Table::Trials => break,
            Table::Samples => {
                let samples: &[Sample] = data.samples_of(trial.index);
                if !samples.is_empty() {
                    groups.push(rows::from_samples(trial, samples)?);
                }
            }
            Table::Series => {
                let of_trial = data.series.iter().filter(|series| series.trial == trial.index);
                let series: Vec<Series> = of_trial.cloned().collect();
                if !series.is_empty() {
                    groups.push(rows::from_series(trial, &series)?);
                }
            }
        }
    }
    match table {
        Table::Trials => trials::table(&data.record.trials),
        Table::Samples => columns::bytes(rows::SAMPLES, groups.into_iter()),
        Table::Series => columns::bytes(rows::SERIES, groups.into_iter()),
    }
}
