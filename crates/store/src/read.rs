//! Reads a run directory, complete or not, and checks everything in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use underload_disk::Lines;
use underload_record::comparison;
use underload_record::schema::{FORMAT_VERSION, RunRecord, Sample, Series, TrialRecord};
use underload_record::{LatencyPools, conclude};

use crate::error::{Result, StoreError};
use crate::files::{
    JOURNAL, PARTS, RECORD, SAMPLES, SERIES, SWEEP, TEXT_LIMIT, part, read_text, trial_of_line,
};
use crate::records::{self, TrialsIn};
use crate::rows::{Points, Samples, to_samples, to_series};
use crate::run_data::{RunData, check_trial, variant_names};
use crate::run_dir::RunDir;
use crate::table::{Column, Table as _};
use crate::table_file;

/// Maximum number of rows of a table that are read: about 2 GB of samples in memory.
const ROW_LIMIT: u64 = 16_000_000;

/// Maximum number of bytes of trials in `trials.parquet` that are read if each is reduced: four
/// million trials.
const REDUCED_TEXT_LIMIT: u64 = 16 << 30;

impl RunDir {
    /// Reads a run directory with all samples and series. An incomplete run is read as the trials
    /// that it finished, with new summaries, without damaged trials, which [`RunData::left_out`]
    /// describes.
    pub fn read(path: impl AsRef<Path>) -> Result<RunData> {
        RunDir::read_trials(path, |_| true)
    }

    /// Reads the record without samples and series.
    pub fn read_record(path: impl AsRef<Path>) -> Result<RunRecord> {
        RunDir::read_trials(path, |_| false).map(|data| data.record)
    }

    /// Reads the record, and samples and series of the trials that `wanted` accepts; of all trials
    /// if the run is incomplete, because its summaries need them.
    pub fn read_trials(
        path: impl AsRef<Path>,
        wanted: impl Fn(&TrialRecord) -> bool,
    ) -> Result<RunData> {
        RunDir::read_chosen(path, |run| {
            let wanted = run.record.trials.iter().filter(|trial| wanted(trial));
            wanted.map(|trial| trial.index).collect()
        })
    }

    /// As [`RunDir::read_trials`], of the trials whose indices `choose` returns for the run without
    /// samples and series.
    pub fn read_chosen(
        path: impl AsRef<Path>,
        choose: impl FnOnce(&RunData) -> BTreeSet<u32>,
    ) -> Result<RunData> {
        read_with(path.as_ref(), None, choose)
    }

    /// Replaces the samples and series of `data`, of this directory, by those of one trial.
    pub fn read_trial(path: impl AsRef<Path>, trial: u32, data: &mut RunData) -> Result<()> {
        let path = path.as_ref();
        (data.samples, data.series) = (Vec::new(), Vec::new());
        if data.record.complete {
            return read_tables(path, &BTreeSet::from([trial]), data);
        }
        let mut trials = data.record.trials.iter();
        if let Some(trial) = trials.find(|known| known.index == trial) {
            (data.samples, data.series) = parts(path, trial, false)?;
        }
        Ok(())
    }

    /// As [`RunDir::read_chosen`], with less memory: if a run has more than 2,000 trials without
    /// samples and series, calls `reduce` with the record without trials and each trial as it is
    /// read.
    pub fn read_reduced(
        path: impl AsRef<Path>,
        mut reduce: impl FnMut(&RunRecord, &mut TrialRecord),
        choose: impl FnOnce(&RunData) -> BTreeSet<u32>,
    ) -> Result<RunData> {
        read_with(path.as_ref(), Some(&mut reduce), choose)
    }
}

type Reduce<'a> = &'a mut dyn FnMut(&RunRecord, &mut TrialRecord);

fn read_with(
    path: &Path,
    reduce: Option<Reduce<'_>>,
    choose: impl FnOnce(&RunData) -> BTreeSet<u32>,
) -> Result<RunData> {
    let record_path = path.join(RECORD);
    let (mut record, trials_in) = parse(&record_path, &record_text(path)?)?;
    if !record.complete {
        return incomplete(path, record);
    }
    if let Some(trials_in) = trials_in {
        let variants = variant_names(&record.variants);
        let trials = match reduce {
            Some(reduce) if is_empty(path, SAMPLES) && is_empty(path, SERIES) => {
                let reduce = &mut |trial: &mut TrialRecord| reduce(&record, trial);
                records::read(path, &trials_in, &variants, REDUCED_TEXT_LIMIT, reduce)
            }
            _ => records::read(path, &trials_in, &variants, TEXT_LIMIT, &mut |_| {}),
        };
        record.trials = trials?;
        // Such a run was concluded without its trials in memory, and has no comparisons in its record.
        comparison::conclude(&mut record);
    }
    let (samples, series) = (Vec::new(), Vec::new());
    let mut data = RunData { record, samples, series, left_out: Vec::new() };
    let kept = choose(&data);
    read_tables(path, &kept, &mut data)?;
    Ok(data)
}

/// Whether a table of the run exists and has no rows.
fn is_empty(path: &Path, name: &str) -> bool {
    let layout = if name == SAMPLES { Samples::LAYOUT } else { Points::LAYOUT };
    let table = table_file::open(&path.join(name), layout, |_| false);
    table.is_ok_and(|table| table.rows_left() == 0)
}

/// Reads `run.json`, which has no trials if the run is incomplete or has too many.
pub(super) fn head(path: &Path) -> Result<RunRecord> {
    parse(&path.join(RECORD), &record_text(path)?).map(|(record, _)| record)
}

/// Parses any bytes as a `run.json`.
///
/// # Errors
/// Returns [`StoreError::Inconsistent`] if the trials are in a table instead, and other errors if
/// the text is not a record.
pub fn parse_run_json(text: &[u8]) -> Result<RunRecord> {
    let path = Path::new(RECORD);
    match parse(path, text)? {
        (record, None) => Ok(record),
        (_, Some(_)) => {
            let reason = "its trials are in a table; expected the directory";
            Err(StoreError::inconsistent(path, reason))
        }
    }
}

/// Parses a record, and returns the table with its trials if there is one.
fn parse(path: &Path, text: &[u8]) -> Result<(RunRecord, Option<TrialsIn>)> {
    #[derive(serde::Deserialize)]
    struct Head {
        format_version: u64,
        trials_in: Option<serde_json::Value>,
    }
    // The version is checked first, because another format may lack the other fields.
    let head: Head = serde_json::from_slice(text).map_err(StoreError::json(path))?;
    if head.format_version != u64::from(FORMAT_VERSION) {
        return Err(StoreError::Version { path: path.to_owned(), found: head.format_version });
    }
    let record: RunRecord = serde_json::from_slice(text).map_err(StoreError::json(path))?;
    check(&record).map_err(|reason| StoreError::inconsistent(path, reason))?;
    let Some(trials_in) = head.trials_in else { return Ok((record, None)) };
    let trials_in = serde_json::from_value(trials_in).map_err(StoreError::json(path))?;
    if !record.trials.is_empty() {
        return Err(StoreError::inconsistent(path, "has trials, and names a table of trials"));
    }
    Ok((record, Some(trials_in)))
}

/// Checks that indices equal positions, and that names are known and unique.
fn check(record: &RunRecord) -> Result<(), String> {
    let names = variant_names(&record.variants);
    if names.len() != record.variants.len() {
        return Err("two variants with equal names".to_owned());
    }
    for (position, trial) in record.trials.iter().enumerate() {
        if trial.index as usize != position {
            return Err(format!("trial {} is at position {position}", trial.index));
        }
        check_trial(trial, &names)?;
    }
    match record.summaries.iter().find(|summary| !names.contains(&summary.variant)) {
        Some(summary) => Err(format!("a summary of the unknown variant {:?}", summary.variant)),
        None => Ok(()),
    }
}

/// Reads an incomplete run: the trials whose lines and parts are complete.
fn incomplete(path: &Path, mut record: RunRecord) -> Result<RunData> {
    let (trials, mut left_out) = journal(&path.join(JOURNAL), &variant_names(&record.variants))?;
    let keeps_samples = trials.iter().any(|trial| part_of(path, trial, SAMPLES).exists());
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    let mut pools = LatencyPools::default();
    for trial in trials {
        match parts(path, &trial, keeps_samples) {
            Ok((of_trial, curves)) => {
                pools.add(&trial, &of_trial);
                samples.extend(of_trial);
                series.extend(curves);
                record.trials.push(trial);
            }
            Err(error @ StoreError::TooLarge { .. }) => return Err(error),
            Err(error) => left_out.push(format!("trial {}: {}", trial.index, in_line(&error))),
        }
        if samples.len() as u64 > ROW_LIMIT {
            return Err(StoreError::TooLarge { path: path.join(PARTS), row_limit: ROW_LIMIT });
        }
    }
    conclude(&mut record, &pools);
    Ok(RunData { record, samples, series, left_out })
}

/// Returns an error with its cause, in one line.
fn in_line(error: &StoreError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Reads samples and series of one trial of an incomplete run.
fn parts(
    path: &Path,
    trial: &TrialRecord,
    keeps_samples: bool,
) -> Result<(Vec<Sample>, Vec<Series>)> {
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    let trials = std::slice::from_ref(trial);
    let file = part_of(path, trial, SAMPLES);
    if file.exists() {
        let mut take = |columns: &[Column]| to_samples(columns, trials, &mut samples);
        table_file::read(&file, Samples::LAYOUT, ROW_LIMIT, &|_| true, &mut take)?;
    } else if keeps_samples && trial.latencies.iter().any(|latency| latency.sent > 0) {
        return Err(StoreError::damaged(&file, "it is missing"));
    }
    let file = part_of(path, trial, SERIES);
    if file.exists() {
        let mut take = |columns: &[Column]| to_series(columns, trials, &mut series);
        table_file::read(&file, Points::LAYOUT, ROW_LIMIT, &|_| true, &mut take)?;
    }
    Ok((samples, series))
}

fn part_of(path: &Path, trial: &TrialRecord, name: &str) -> PathBuf {
    part(path, trial.index as usize, name)
}

/// Reads the finished trials of an incomplete run, and the errors of other lines. Ignores a last
/// line without its end, which was being written when the run was cut short.
fn journal(path: &Path, variants: &BTreeSet<String>) -> Result<(Vec<TrialRecord>, Vec<String>)> {
    // A run may be cut short before it has a journal.
    let lines = Lines::from(read_text(path)?.unwrap_or_default());
    let (mut trials, mut wrong) = (Vec::<TrialRecord>::new(), Vec::new());
    for (number, line) in lines.iter().enumerate() {
        let parsed = trial_of_line(line.strip_suffix(b"\n").unwrap_or(line))
            .map_err(|error| error.to_string());
        let least = trials.last().map_or(0, |last| last.index + 1);
        let checked = parsed.and_then(|trial| {
            check_trial(&trial, variants)?;
            if trial.index < least {
                return Err(format!("trial {}; expected trial {least}", trial.index));
            }
            Ok(trial)
        });
        match checked {
            Ok(trial) => trials.push(trial),
            Err(reason) => wrong.push(format!("{}:{}: {reason}", path.display(), number + 1)),
        }
    }
    Ok((trials, wrong))
}

/// Reads a directory's `run.json`.
fn record_text(path: &Path) -> Result<Vec<u8>> {
    let text = read_text(&path.join(RECORD))?;
    text.ok_or_else(|| StoreError::NoRun { path: path.to_owned(), why: why_no_run(path) })
}

fn why_no_run(path: &Path) -> &'static str {
    if !path.exists() {
        "there is no such file or directory"
    } else if path.join(SWEEP).exists() {
        "a sweep and not a run: its results are the tables trials.parquet and cells.parquet"
    } else {
        "not a run directory: it has no run.json"
    }
}

fn read_tables(path: &Path, kept: &BTreeSet<u32>, data: &mut RunData) -> Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    let RunData { record, samples, series, .. } = data;
    let trials = &record.trials;
    let wanted = |trial: i64| u32::try_from(trial).is_ok_and(|trial| kept.contains(&trial));
    let mut take = |columns: &[Column]| to_samples(columns, trials, samples);
    table_file::read(&path.join(SAMPLES), Samples::LAYOUT, ROW_LIMIT, &wanted, &mut take)?;
    let mut take = |columns: &[Column]| to_series(columns, trials, series);
    table_file::read(&path.join(SERIES), Points::LAYOUT, ROW_LIMIT, &wanted, &mut take)?;
    samples.retain(|sample| kept.contains(&sample.trial));
    series.retain(|series| kept.contains(&series.trial));
    // Files of this program are in this order; files of other programs may not be.
    samples.sort_by_key(|sample| sample.trial);
    series.sort_by_key(|series| series.trial);
    Ok(())
}
