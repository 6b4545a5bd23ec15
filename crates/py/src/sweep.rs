//! Sweeps: many settings of a scenario, stored in a directory while they are computed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use underload_report::{SweepOutcome, write_sweep_report};
use underload_run::cache::{self, module_identity};
use underload_run::sweep::{self, SweepProgress, SweepSettings};
use underload_scenario::source::Source;
use underload_store::StoreError;
use underload_store::sweep::{SweepDir, SweepManifest, SweepRow};

use crate::errors::{self, OrRaise, raise};
use crate::frame::Frame;
use crate::interruptible::{follow, run_interruptible};
use crate::scenario::{Scenario, keys};

/// A scenario and its varied settings.
#[pyclass(frozen, module = "underload._underload")]
pub struct Sweep(Arc<sweep::Sweep>);

type Parts<'py> = (String, String, String, String, BTreeMap<String, Bound<'py, PyBytes>>);

/// Calls a listener with an event of a sweep.
type Event = Box<dyn FnOnce(&Bound<'_, PyAny>) -> PyResult<Py<PyAny>> + Send>;

struct EventSender(Sender<Event>);

impl EventSender {
    /// After a stop the receiver is gone.
    fn send(&self, kind: &'static str, value: impl for<'py> IntoPyObject<'py> + Send + 'static) {
        let call = move |listener: &Bound<'_, PyAny>| Ok(listener.call1((kind, value))?.unbind());
        let _ = self.0.send(Box::new(call));
    }
}

impl SweepProgress for EventSender {
    fn start(&mut self, stored: u64, trials: u64) {
        self.send("start", (stored, trials));
    }

    fn computed(&mut self) {
        self.send("computed", 1);
    }

    fn say(&mut self, line: &str) {
        self.send("say", line.to_owned());
    }
}

#[pymethods]
impl Sweep {
    /// Builds a sweep of the keys of a sweep file, over a scenario.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        name: &str,
        scenario: &Scenario,
        file: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let text = keys(file)?.text();
        let (scenario, scenario_text) = (scenario.0.name.clone(), scenario.0.text.clone());
        Self::parse(py, name, &text, scenario, scenario_text, BTreeMap::new(), None)
    }

    /// Parses the text of a sweep and of its scenario. `files` has files that the texts name and
    /// this machine lacks; `program` identifies the program that computed it, by default this one.
    #[staticmethod]
    #[pyo3(signature = (name, text, scenario, scenario_text, files, program=None))]
    fn parse(
        py: Python<'_>,
        name: &str,
        text: &str,
        scenario: String,
        scenario_text: String,
        files: BTreeMap<String, Vec<u8>>,
        program: Option<String>,
    ) -> PyResult<Self> {
        let source = Source { name: scenario, text: scenario_text };
        let program = match program {
            Some(program) => program,
            None => cache::program(identity(py)?).or_raise(py, "StoreError")?,
        };
        let made = py.detach(|| sweep::Sweep::parse(text, name, Some(source), &program, files));
        Ok(Self(Arc::new(made.map_err(|error| errors::scenario(py, &error))?)))
    }

    /// Returns the arguments of [`Sweep::parse`]: the sweep's name and text, the scenario's name and
    /// text, and the files that the texts name.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> Parts<'py> {
        let SweepManifest { name, text, scenario, scenario_text, .. } = self.0.manifest.clone();
        let files = py.detach(|| self.0.files()).into_iter();
        let files = files.map(|(name, content)| (name, PyBytes::new(py, &content))).collect();
        (name, text, scenario, scenario_text, files)
    }

    /// Returns the numbers of cells and of trials.
    #[getter]
    fn size(&self) -> (u64, u64) {
        (self.0.manifest.cells, self.0.manifest.trials())
    }

    /// Returns a digest of the sweep and of the program that computes it.
    #[getter]
    fn identity(&self, py: Python<'_>) -> PyResult<String> {
        let json = serde_json::to_vec(&self.0.manifest).or_raise(py, "Error")?;
        Ok(underload_run::cache::digest_text(&json))
    }

    /// Computes the missing rows of the directory. Returns whether it is complete.
    fn run(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        threads: Option<NonZeroUsize>,
        listener: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let stop = Arc::new(AtomicBool::new(false));
        let settings = SweepSettings { directory, workers: threads, stop: Arc::clone(&stop) };
        let (sender, receiver) = mpsc::channel();
        let own = Arc::clone(&self.0);
        let work = move || sweep::run(&own, &settings, &mut EventSender(sender), &mut |_| {});
        let worker = thread::Builder::new().name("underload".to_owned()).spawn(work)?;
        let broken =
            follow(py, receiver, &stop, |event: Event| event(listener).map(drop), |_| true);
        let fault = || raise(py, "RunError", ("the sweep ended by a fault of this program",));
        let ended = py.detach(|| worker.join()).map_err(|_| fault())?.or_raise(py, "StoreError")?;
        broken.map_or(Ok(ended), Err)
    }

    /// Computes trials on a worker, from `first` on, until `end` or for some seconds. Returns their
    /// rows as JSON, which [`SweepFolder::append`] stores.
    fn compute<'py>(
        &self,
        py: Python<'py>,
        first: u64,
        end: u64,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (stop, begun) = (AtomicBool::new(false), Instant::now());
        let rows = || {
            let mut rows: Vec<SweepRow> = Vec::new();
            for row in self.0.compute(first..end, &stop) {
                rows.push(row);
                if begun.elapsed().as_secs_f64() >= seconds {
                    break;
                }
            }
            serde_json::to_vec(&rows)
        };
        let rows = run_interruptible(py, &stop, rows)?.or_raise(py, "StoreError")?;
        Ok(PyBytes::new(py, &rows))
    }

    /// Writes the report of the cells in a directory.
    fn report(&self, py: Python<'_>, directory: PathBuf) -> PyResult<PathBuf> {
        let sweep = &self.0;
        let outcome = py.detach(|| {
            let (folder, _) = SweepDir::open(&directory, &sweep.manifest)?;
            let bins = sweep.bins();
            let mut outcome = SweepOutcome::new(sweep.subject(&bins));
            folder.cells(&mut |cell| outcome.add(&cell, &bins.parts_of(&cell)))?;
            Ok::<_, StoreError>(outcome)
        });
        let outcome = outcome.or_raise(py, "StoreError")?;
        py.detach(|| write_sweep_report(&directory, &outcome)).or_raise(py, "ReportError")
    }

    /// Opens a directory for rows of other workers. Also returns a note about its files.
    fn open(&self, py: Python<'_>, directory: PathBuf) -> PyResult<(SweepFolder, Option<String>)> {
        let opened = py.detach(|| SweepDir::open(&directory, &self.0.manifest));
        let (folder, note) = opened.or_raise(py, "StoreError")?;
        Ok((SweepFolder { folder: Some(folder) }, note))
    }
}

/// The commit that the package was built from.
pub const COMMIT: &str = env!("UNDERLOAD_COMMIT");

/// Identifies the program that computes results: by the commit, or by a digest of this module if
/// the commit is unknown. The running program is Python's interpreter, which would not identify it.
pub fn identity(py: Python<'_>) -> PyResult<&'static str> {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return Ok(known);
    }
    let module: PathBuf = py.import("underload._underload")?.getattr("__file__")?.extract()?;
    let made = py.detach(|| module_identity(COMMIT, &module)).or_raise(py, "StoreError")?;
    Ok(IDENTITY.get_or_init(|| made))
}

/// The directory of a sweep, locked until it is closed.
#[pyclass(module = "underload._underload")]
pub struct SweepFolder {
    folder: Option<SweepDir>,
}

impl SweepFolder {
    fn folder(&mut self, py: Python<'_>) -> PyResult<&mut SweepDir> {
        let closed = || raise(py, "StoreError", ("the sweep's directory was closed",));
        self.folder.as_mut().ok_or_else(closed)
    }
}

#[pymethods]
impl SweepFolder {
    /// Returns the ranges of trials that are missing.
    fn missing(&mut self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        let missing = self.folder(py)?.missing().into_iter();
        Ok(missing.map(|trials| (trials.start, trials.end)).collect())
    }

    /// Adds rows that a worker computed, and returns their number. The next [`Self::flush`] writes
    /// them.
    fn append(&mut self, py: Python<'_>, rows: &[u8]) -> PyResult<usize> {
        let folder = self.folder(py)?;
        let rows: Vec<SweepRow> = serde_json::from_slice(rows).or_raise(py, "StoreError")?;
        let appended = py.detach(|| rows.iter().try_for_each(|row| folder.append(row)));
        appended.or_raise(py, "StoreError")?;
        Ok(rows.len())
    }

    /// Writes the rows to the disk.
    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let folder = self.folder(py)?;
        py.detach(|| folder.flush()).or_raise(py, "StoreError")
    }

    /// Unlocks the directory. Rows that were not flushed are lost.
    fn close(&mut self) {
        self.folder = None;
    }

    /// Returns a row per cell, of the trials stored up to now.
    fn cells(&mut self, py: Python<'_>) -> PyResult<Frame> {
        let folder = self.folder(py)?;
        let (layout, columns) = py.detach(|| folder.cell_columns()).or_raise(py, "StoreError")?;
        Frame::of_columns(py, &layout, vec![columns])
    }
}
