//! Computes the rows of units of work.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use underload_record::schema::TrialRecord;
use underload_record::stats::RunningMean;
use underload_record::{CONFIDENCE, metrics_of_trial};
use underload_scenario::own::Own;
use underload_scenario::source;
use underload_scenario::vary::Varied;
use underload_scenario::{Conditions, Variant};
use underload_store::sweep::{AxisValue, SweepRow, SweepUnit};

use super::{Digests, StopKeys, Sweep};
use crate::cache::digest_text;
use crate::error::{RunError, chain};
use crate::trial::{Setting, Trial, repeat_seed};
use crate::world::sim::simulate;

/// Increased with every change of the meaning of a row.
const LAYOUT: u32 = 1;

impl Sweep {
    /// Computes units, in order. They depend on the sweep and the numbers alone. If `stop` is set on
    /// the way, returns the finished units.
    ///
    /// A trial that fails has a row with the error; so has each of a cell without a valid variant.
    pub fn compute(&self, units: Range<u64>, stop: &AtomicBool) -> Vec<SweepUnit> {
        let mut computed = Vec::new();
        let mut open: Option<Cell<'_>> = None;
        for number in units.start..units.end.min(self.units()) {
            let cell_number = self.cell_of(number);
            let cell = match open.take() {
                Some(cell) if cell.number == cell_number => cell,
                _ => self.open(cell_number),
            };
            let rows = match &self.file.stop {
                Some(when) => cell.trials_until(when, stop),
                None => cell.trial(number % self.repeats, stop).map(|row| vec![row]),
            };
            let Some(rows) = rows else { break };
            computed.push(SweepUnit { number, rows });
            open = Some(cell);
        }
        computed
    }

    fn open(&self, number: u64) -> Cell<'_> {
        let (levels, variant) = self.place(number);
        let load = &mut |file: &str| self.files.load(&self.scenario.name, file);
        let varied = self.varied(&levels, variant).map_err(|fault| fault.to_string());
        let fixed = match &varied {
            Ok(varied) if !self.scenario.draws() => {
                Some(varied.variant(&self.scenario, 0, load).map_err(|fault| fault.to_string()))
            }
            _ => None,
        };
        let values: Vec<AxisValue> = levels.into_iter().map(|level| level.value).collect();
        let id = self.id(&values, variant, &varied, fixed.as_ref());
        Cell { sweep: self, number, values, variant, varied, fixed, id }
    }

    /// Returns a cell's identity: a digest of all that its trials depend on, program included.
    fn id(
        &self,
        values: &[AxisValue],
        variant: &str,
        varied: &Result<Varied, String>,
        fixed: Option<&Result<(Variant, Conditions), String>>,
    ) -> String {
        let said = match (varied, fixed) {
            (_, Some(Ok((variant, _)))) => variant.wording.clone(),
            // The distributions are in the scenario's text.
            (Ok(varied), _) => format!("{}\n{}", varied.settings(), self.scenario.text),
            (Err(_), _) => format!("{values:?}\n{}", self.scenario.text),
        };
        let drawn_for = if self.scenario.draws() { variant } else { "" };
        let seed = self.scenario.seed;
        let content = format!("{LAYOUT}\n{}\n{seed}\n{drawn_for}\n{said}", self.program);
        HEXLOWER.encode(&digest(&SHA256, content.as_bytes()).as_ref()[..16])
    }
}

struct Cell<'a> {
    sweep: &'a Sweep,
    number: u64,
    values: Vec<AxisValue>,
    variant: &'a str,
    varied: Result<Varied, String>,
    /// The variant of all its trials; `None` if conditions are drawn for each.
    fixed: Option<Result<(Variant, Conditions), String>>,
    id: String,
}

impl Cell<'_> {
    /// Computes trials until the mean is precise enough, one fails, or all are computed; `None` if
    /// it was stopped.
    fn trials_until(&self, when: &StopKeys, stop: &AtomicBool) -> Option<Vec<SweepRow>> {
        let metric = self.sweep.columns.metrics.iter().position(|name| *name == when.metric);
        let mut mean = RunningMean::default();
        let mut rows = Vec::new();
        for repeat in 0..self.sweep.repeats {
            let row = self.trial(repeat, stop)?;
            let value = metric.and_then(|metric| *row.metrics.get(metric)?);
            if let Some(value) = value {
                mean.push(value);
            }
            let is_last =
                row.error.is_some() || (repeat + 1 >= when.least && is_narrow(when, &mean));
            rows.push(row);
            if is_last {
                break;
            }
        }
        Some(rows)
    }

    /// Computes one trial; `None` if it was stopped.
    fn trial(&self, repeat: u64, stop: &AtomicBool) -> Option<SweepRow> {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let sweep = self.sweep;
        let index = (self.number * sweep.repeats + repeat) as u32;
        let seed = repeat_seed(sweep.scenario.seed, repeat as u32);
        // A trial that panics must not lose a million others.
        let computed = catch_unwind(AssertUnwindSafe(|| self.record(repeat, (index, seed), stop)));
        let computed = computed.unwrap_or_else(|panic| Err(panic_message(panic.as_ref())));
        let (record, metrics, error) = match computed.transpose()? {
            Ok(record) => {
                let metrics = metrics_of_trial(&record, &sweep.columns.metrics);
                (record, metrics, None)
            }
            Err(error) => {
                let (variant, repeat) = (self.variant.to_owned(), repeat as u32);
                let record = TrialRecord { index, variant, repeat, seed, ..TrialRecord::default() };
                (record, vec![None; sweep.columns.metrics.len()], Some(error))
            }
        };
        Some(SweepRow::new((self.number, &self.id), &self.values, &record, metrics, error))
    }

    /// Returns the record of one trial; `None` if it was stopped.
    fn record(
        &self,
        repeat: u64,
        (index, seed): (u32, u64),
        stop: &AtomicBool,
    ) -> Result<Option<TrialRecord>, String> {
        let sweep = self.sweep;
        let repeat = repeat as u32;
        let drawn;
        let (variant, conditions) = match &self.fixed {
            Some(Ok(fixed)) => fixed,
            Some(Err(error)) => return Err(error.clone()),
            None => {
                let varied = self.varied.as_ref().map_err(Clone::clone)?;
                let load = &mut |file: &str| sweep.files.load(&sweep.scenario.name, file);
                drawn =
                    varied.variant(&sweep.scenario, repeat, load).map_err(|it| it.to_string())?;
                &drawn
            }
        };
        let trial = Trial { index, variant, repeat, seed, keeps_curves: false };
        let own = Own::default();
        let setting = Setting { stop, directory: None, captures: &[], threads: None, own: &own };
        let simulated = simulate(&trial, setting).map_err(|error: RunError| chain(&error));
        let Some(data) = simulated? else { return Ok(None) };
        Ok(Some(TrialRecord { conditions: conditions.clone(), ..data.record }))
    }
}

/// Whether the interval of the mean is as narrow as required.
fn is_narrow(when: &StopKeys, mean: &RunningMean) -> bool {
    let Some(interval) = mean.interval(CONFIDENCE) else { return false };
    let (Some(low), Some(high)) = (interval.low, interval.high) else { return false };
    let half = (high - low) / 2.0;
    let of_mean = when.within_percent.map(|percent| interval.mean.abs() * percent / 100.0);
    [when.within, of_mean].into_iter().flatten().any(|within| half <= within)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the trial panicked: {}", text.unwrap_or("for an unknown reason"))
}

/// Files that a scenario or an axis names, each read once.
#[derive(Debug, Default)]
pub(super) struct Files {
    read: Mutex<BTreeMap<String, Vec<u8>>>,
    digests: Mutex<Digests>,
}

/// Bytes of files in memory, at most; other files are read again for each cell.
const MOST_BYTES: usize = 256 << 20;

impl Files {
    /// Returns files with known contents, which are not read.
    pub(super) fn of(contents: BTreeMap<String, Vec<u8>>) -> Self {
        Self { read: Mutex::new(contents), digests: Mutex::default() }
    }

    /// Returns the files in memory.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn load(&self, scenario: &str, file: &str) -> Result<Vec<u8>, String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = read.get(file) {
            return Ok(bytes.clone());
        }
        let bytes = source::load_file(scenario, file)?;
        let kept: usize = read.values().map(Vec::len).sum();
        if kept + bytes.len() <= MOST_BYTES {
            read.insert(file.to_owned(), bytes.clone());
        }
        Ok(bytes)
    }

    /// As [`Files::load`], and stores the digest of the file.
    pub(super) fn note(&self, scenario: &str, file: &str) -> Result<Vec<u8>, String> {
        let bytes = self.load(scenario, file)?;
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.insert(file.to_owned(), digest_text(&bytes));
        Ok(bytes)
    }

    pub(super) fn digests(&self) -> Digests {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
