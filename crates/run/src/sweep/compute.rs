//! Computes the rows of trials.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use underload_record::metrics_of_trial;
use underload_record::schema::TrialRecord;
use underload_record::text::in_full;
use underload_scenario::keys::Fault;
use underload_scenario::own::Own;
use underload_scenario::simulation::repeat_seed;
use underload_scenario::source;
use underload_scenario::vary::Varied;
use underload_scenario::{Conditions, Variant};
use underload_store::sweep::{AxisValue, SweepRow};

use super::Sweep;
use crate::cache::digest_text;
use crate::trial::{Setting, Trial};
use crate::world::sim::simulate;

/// Increased with every change of the meaning of a row.
const LAYOUT: u32 = 1;

impl Sweep {
    /// Computes trials, in order, until `stop` is set. Their rows depend on the sweep and the numbers
    /// alone.
    ///
    /// A trial that fails has a row with the error, as has each trial of a cell whose variant is
    /// invalid.
    pub fn compute(&self, trials: Range<u64>, stop: &AtomicBool) -> impl Iterator<Item = SweepRow> {
        let repeats = self.manifest.repeats;
        let mut open: Option<Cell<'_>> = None;
        (trials.start..trials.end.min(self.manifest.trials())).map_while(move |trial| {
            let number = trial / repeats;
            let cell = match open.take() {
                Some(cell) if cell.number == number => cell,
                _ => self.open(number),
            };
            open.insert(cell).trial(trial % repeats, stop)
        })
    }

    fn open(&self, number: u64) -> Cell<'_> {
        let (levels, variant) = self.place(number);
        let varied = self.varied(&levels, variant);
        let fixed = match &varied {
            Ok(varied) if !self.scenario.draws() => Some(self.variant(varied, 0)),
            _ => None,
        };
        let values: Vec<AxisValue> = levels.into_iter().map(|level| level.value).collect();
        let id = self.id(&values, variant, &varied, fixed.as_ref());
        Cell { sweep: self, number, values, variant, varied, fixed, id }
    }

    /// Returns the variant of a trial, and the conditions that were drawn for it.
    fn variant(&self, varied: &Varied, repeat: u32) -> Result<(Variant, Conditions), Fault> {
        let load = &mut |file: &str| self.files.load(&self.scenario.name, file);
        varied.variant(&self.scenario, repeat, load)
    }

    /// Returns a cell's identity: a digest of all that its trials depend on, program included.
    fn id(
        &self,
        values: &[AxisValue],
        variant: &str,
        varied: &Result<Varied, Fault>,
        fixed: Option<&Result<(Variant, Conditions), Fault>>,
    ) -> String {
        let said = match (varied, fixed) {
            (_, Some(Ok((variant, _)))) => variant.wording.clone(),
            // The distributions are in the scenario's text.
            (Ok(varied), _) => format!("{}\n{}", varied.settings(), self.scenario.text),
            (Err(_), _) => format!("{values:?}\n{}", self.scenario.text),
        };
        let drawn_for = if self.scenario.draws() { variant } else { "" };
        let seed = self.scenario.seed;
        let content = format!("{LAYOUT}\n{}\n{seed}\n{drawn_for}\n{said}", self.manifest.program);
        HEXLOWER.encode(&digest(&SHA256, content.as_bytes()).as_ref()[..16])
    }
}

struct Cell<'a> {
    sweep: &'a Sweep,
    number: u64,
    values: Vec<AxisValue>,
    variant: &'a str,
    varied: Result<Varied, Fault>,
    /// The variant of all its trials; `None` if conditions are drawn for each.
    fixed: Option<Result<(Variant, Conditions), Fault>>,
    id: String,
}

impl Cell<'_> {
    /// Computes one trial; `None` if it was stopped.
    fn trial(&self, repeat: u64, stop: &AtomicBool) -> Option<SweepRow> {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let sweep = self.sweep;
        let names = &sweep.manifest.columns.metrics;
        let (index, repeat) =
            ((self.number * sweep.manifest.repeats + repeat) as u32, repeat as u32);
        let seed = repeat_seed(sweep.scenario.seed, repeat);
        // A trial that panics must not lose a million others.
        let computed = catch_unwind(AssertUnwindSafe(|| self.record(repeat, (index, seed), stop)));
        let computed = computed.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let (record, metrics, error) = match computed.transpose()? {
            Ok(record) => {
                let metrics = metrics_of_trial(&record, names);
                (record, metrics, None)
            }
            Err(fault) => {
                let variant = self.variant.to_owned();
                let record = TrialRecord { index, variant, repeat, seed, ..TrialRecord::default() };
                (record, vec![None; names.len()], Some(fault.to_string()))
            }
        };
        Some(SweepRow::new((self.number, &self.id), &self.values, &record, metrics, error))
    }

    /// Returns the record of one trial; `None` if it was stopped.
    fn record(
        &self,
        repeat: u32,
        (index, seed): (u32, u64),
        stop: &AtomicBool,
    ) -> Result<Option<TrialRecord>, Fault> {
        let drawn;
        let (variant, conditions) = match &self.fixed {
            Some(fixed) => fixed.as_ref().map_err(Fault::clone)?,
            None => {
                drawn = self.sweep.variant(self.varied.as_ref().map_err(Fault::clone)?, repeat)?;
                &drawn
            }
        };
        let trial = Trial { index, variant, repeat, seed, keeps_curves: false };
        let own = Own::default();
        let setting = Setting { stop, directory: None, captures: &[], threads: None, own: &own };
        let data = simulate(&trial, setting).map_err(|error| Fault::new("", in_full(&error)))?;
        Ok(data.map(|data| TrialRecord { conditions: conditions.clone(), ..data.record }))
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Fault::new("", format!("the trial panicked: {}", text.unwrap_or("for an unknown reason")))
}

/// Files that a scenario or an axis names, by name.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<BTreeMap<String, LoadedFile>>);

#[derive(Debug)]
struct LoadedFile {
    digest: String,
    /// `None` for a file that does not fit in [`MOST_BYTES`].
    content: Option<Vec<u8>>,
}

/// Maximum size of all files in memory, bytes; other files are read again for each cell.
const MOST_BYTES: usize = 256 << 20;

impl Files {
    /// Returns files with known contents, which are not read.
    pub(super) fn of(contents: BTreeMap<String, Vec<u8>>) -> Self {
        let file = |(name, bytes): (String, Vec<u8>)| {
            (name, LoadedFile { digest: digest_text(&bytes), content: Some(bytes) })
        };
        Self(Mutex::new(contents.into_iter().map(file).collect()))
    }

    pub(super) fn load(&self, scenario: &str, name: &str) -> Result<Vec<u8>, String> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = files.get(name).and_then(|file| file.content.as_ref()) {
            return Ok(bytes.clone());
        }
        let bytes = source::load_file(scenario, name)?;
        let in_memory: usize = files.values().flat_map(|file| &file.content).map(Vec::len).sum();
        let content = (in_memory + bytes.len() <= MOST_BYTES).then(|| bytes.clone());
        files.insert(name.to_owned(), LoadedFile { digest: digest_text(&bytes), content });
        Ok(bytes)
    }

    /// Returns the contents of the files in memory.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.collect(|file| file.content.clone())
    }

    pub(super) fn digests(&self) -> BTreeMap<String, String> {
        self.collect(|file| Some(file.digest.clone()))
    }

    fn collect<T>(&self, of: fn(&LoadedFile) -> Option<T>) -> BTreeMap<String, T> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(|(name, file)| Some((name.clone(), of(file)?))).collect()
    }
}
