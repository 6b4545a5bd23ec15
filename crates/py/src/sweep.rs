//! Sweeps: many settings of a scenario, kept in a directory while they are computed.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use underload_run::cache::module_identity;
use underload_run::scenario::ScenarioErrors;
use underload_run::source::Source;
use underload_run::sweep::{self, SweepEnd, SweepProgress, SweepSettings};
use underload_store::sweep::{SweepDir, SweepRows};

use crate::attend::{BETWEEN_SIGNALS, attend};
use crate::errors::{self, raise, raise_words};
use crate::frame::Frame;
use crate::run::COMMIT;
use crate::scenario::{Scenario, keys};

/// A scenario and what is varied in it.
#[pyclass(frozen, module = "underload._underload")]
pub struct Sweep(Arc<sweep::Sweep>);

/// What a sweep tells while it goes on.
enum Event {
    Start { stored: u64, units: u64 },
    Computed(u64),
    Say(String),
}

struct Told(Sender<Event>);

impl SweepProgress for Told {
    fn start(&mut self, stored: u64, units: u64) {
        let _ = self.0.send(Event::Start { stored, units });
    }

    fn computed(&mut self, units: u64, _trials: u64) {
        let _ = self.0.send(Event::Computed(units));
    }

    fn say(&mut self, line: &str) {
        let _ = self.0.send(Event::Say(line.to_owned()));
    }
}

#[pymethods]
impl Sweep {
    /// The keys of a sweep file, over a scenario.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        name: &str,
        scenario: &Scenario,
        file: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let text = keys(file)?.text();
        Self::parse(py, name, &text, scenario.0.name.clone(), scenario.0.text.clone())
    }

    /// A sweep's text, over a scenario's.
    #[staticmethod]
    fn parse(
        py: Python<'_>,
        name: &str,
        text: &str,
        scenario: String,
        scenario_text: String,
    ) -> PyResult<Self> {
        let source = Source { name: scenario, text: scenario_text };
        let program = sweep::program(identity(py)?);
        let program = program.map_err(|error| raise_words(py, "StoreError", &error))?;
        let made = py.detach(|| sweep::Sweep::parse(text, name, Some(source), &program));
        let made = made.map_err(|error| errors::scenario(py, &ScenarioErrors(vec![error])))?;
        Ok(Self(Arc::new(made)))
    }

    /// Its text, its scenario's name, and the scenario's text: what [`Sweep::parse`] takes.
    #[getter]
    fn texts(&self) -> (String, String, String) {
        let manifest = self.0.manifest();
        (manifest.text, manifest.scenario, manifest.scenario_text)
    }

    /// Cells, trials (at most), and units of work.
    #[getter]
    fn size(&self) -> (u64, u64, u64) {
        (self.0.cells(), self.0.trials(), self.0.units())
    }

    /// What distinguishes it, with the program that computes it, from every other sweep.
    #[getter]
    fn identity(&self, py: Python<'_>) -> PyResult<String> {
        let json = serde_json::to_vec(&self.0.manifest());
        let json = json.map_err(|error| raise_words(py, "Error", &error))?;
        Ok(underload_run::cache::digest_text(&json))
    }

    /// Computes what the directory lacks. True: all of it is there.
    fn run(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        threads: Option<NonZeroUsize>,
        hear: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let stop = Arc::new(AtomicBool::new(false));
        let settings = SweepSettings { directory, workers: threads, stop: Arc::clone(&stop) };
        let (sender, mut receiver) = mpsc::channel();
        let own = Arc::clone(&self.0);
        let work = move || sweep::run(&own, &settings, &mut Told(sender), &mut |_| {});
        let worker = thread::Builder::new().name("underload".to_owned()).spawn(work)?;
        let mut broken: Option<PyErr> = None;
        loop {
            let events = &mut receiver;
            let heard = match py.detach(move || events.recv_timeout(BETWEEN_SIGNALS)) {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => py.check_signals(),
                Ok(event) if broken.is_none() => tell(hear, event),
                Ok(_) => Ok(()),
            };
            if let Err(error) = heard
                && broken.is_none()
            {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                broken = Some(error);
            }
        }
        let fault = || raise(py, "RunError", ("the sweep ended by a fault of this program",));
        let ended = py.detach(|| worker.join()).map_err(|_| fault())?;
        let ended = ended.map_err(|error| raise_words(py, "StoreError", &error))?;
        broken.map_or(Ok(ended == SweepEnd::Complete), Err)
    }

    /// Rows of some units, as a Parquet file's bytes: what other workers compute.
    fn compute<'py>(&self, py: Python<'py>, first: u64, end: u64) -> PyResult<Bound<'py, PyBytes>> {
        let stop = AtomicBool::new(false);
        let rows = attend(py, &stop, || self.0.compute(first..end, &stop).to_parquet())?;
        let rows = rows.map_err(|problem| raise(py, "StoreError", (problem,)))?;
        Ok(PyBytes::new(py, &rows))
    }

    /// A directory that rows of other workers are put into.
    fn open(&self, py: Python<'_>, directory: PathBuf) -> PyResult<SweepFolder> {
        let opened = py.detach(|| SweepDir::open(&directory, self.0.manifest()));
        let (folder, _) = opened.map_err(|error| raise_words(py, "StoreError", &error))?;
        Ok(SweepFolder { sweep: Arc::clone(&self.0), folder })
    }
}

fn tell(hear: &Bound<'_, PyAny>, event: Event) -> PyResult<()> {
    match event {
        Event::Start { stored, units } => hear.call1(("start", (stored, units))),
        Event::Computed(units) => hear.call1(("computed", units)),
        Event::Say(line) => hear.call1(("say", line)),
    }
    .map(drop)
}

/// What computes: the commit, or this module's own bytes where that is not known. A program that is
/// Python's interpreter says nothing.
pub fn identity(py: Python<'_>) -> PyResult<&'static str> {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return Ok(known);
    }
    let module: PathBuf = py.import("underload._underload")?.getattr("__file__")?.extract()?;
    let made = py.detach(|| module_identity(COMMIT, &module));
    let made = made.map_err(|error| raise_words(py, "StoreError", &error))?;
    Ok(IDENTITY.get_or_init(|| made))
}

/// The directory of a sweep.
#[pyclass(module = "underload._underload")]
pub struct SweepFolder {
    sweep: Arc<sweep::Sweep>,
    folder: SweepDir,
}

#[pymethods]
impl SweepFolder {
    /// Whether its tables are there.
    #[getter]
    fn is_complete(&self) -> bool {
        self.folder.is_complete()
    }

    /// Units that are stored.
    #[getter]
    fn stored(&self) -> u64 {
        self.folder.units().count()
    }

    /// The next units that it lacks, from this one on: the first, and the one after the last.
    fn missing(&self, first: u64) -> Option<(u64, u64)> {
        self.folder.next_missing(first).map(|units| (units.start, units.end))
    }

    /// Takes rows that a worker computed.
    fn append(&mut self, py: Python<'_>, rows: Vec<u8>) -> PyResult<()> {
        let columns = self.sweep.columns();
        let rows = SweepRows::from_parquet(columns, rows);
        let rows = rows.map_err(|problem| raise(py, "StoreError", (problem,)))?;
        let appended = self.folder.append(rows).and_then(|()| self.folder.flush());
        appended.map_err(|error| raise_words(py, "StoreError", &error))
    }

    /// Writes the tables, once nothing is missing.
    fn finish(&mut self, py: Python<'_>) -> PyResult<bool> {
        let stop = AtomicBool::new(false);
        self.folder.finish(&stop).map_err(|error| raise_words(py, "StoreError", &error))
    }

    /// A row per cell, of what is stored so far.
    fn cells(&self, py: Python<'_>) -> PyResult<Frame> {
        let table = self.folder.cell_columns(&AtomicBool::new(false));
        let (layout, columns) = table.map_err(|error| raise_words(py, "StoreError", &error))?;
        Frame::of_columns(py, &layout, vec![columns])
    }
}
