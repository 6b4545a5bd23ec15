//! Sweeps: many settings of a scenario, stored in a directory while they are computed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use underload_run::cache::module_identity;
use underload_run::sweep::{self, SweepEnd, SweepProgress, SweepSettings};
use underload_scenario::source::Source;
use underload_store::sweep::{SweepDir, SweepUnit};

use crate::errors::{self, OrRaise, raise};
use crate::frame::Frame;
use crate::interruptible::{follow, run_interruptible};
use crate::scenario::{Scenario, keys};

/// A scenario and its varied settings.
#[pyclass(frozen, module = "underload._underload")]
pub struct Sweep(Arc<sweep::Sweep>);

/// The progress of a sweep.
enum Event {
    Start { stored: u64, units: u64 },
    Computed(u64),
    Say(String),
}

struct EventSender(Sender<Event>);

impl SweepProgress for EventSender {
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
        Self::parse(py, name, &text, scenario, scenario_text, BTreeMap::new())
    }

    /// Parses the text of a sweep and of its scenario. `files` has files that the texts name and
    /// this machine lacks.
    #[staticmethod]
    fn parse(
        py: Python<'_>,
        name: &str,
        text: &str,
        scenario: String,
        scenario_text: String,
        files: BTreeMap<String, Vec<u8>>,
    ) -> PyResult<Self> {
        let source = Source { name: scenario, text: scenario_text };
        let program = sweep::program(identity(py)?).or_raise(py, "StoreError")?;
        let parse = || sweep::Sweep::parse_with(text, name, Some(source), &program, files);
        let made = py.detach(parse);
        let made = made.map_err(|error| errors::scenario(py, &error))?;
        Ok(Self(Arc::new(made)))
    }

    /// Returns the sweep's name and text, and the scenario's name and text, as [`Sweep::parse`]
    /// takes them.
    #[getter]
    fn texts(&self) -> (String, String, String, String) {
        let manifest = self.0.manifest();
        (manifest.name, manifest.text, manifest.scenario, manifest.scenario_text)
    }

    /// Returns the files that the texts name, as [`Sweep::parse`] takes them.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> BTreeMap<String, Bound<'py, PyBytes>> {
        let files = py.detach(|| self.0.files());
        files.into_iter().map(|(name, content)| (name, PyBytes::new(py, &content))).collect()
    }

    /// Returns the identity of the program that computes the sweep: the version, and the commit or
    /// a digest of the module.
    #[getter]
    fn program(&self) -> String {
        self.0.manifest().program
    }

    /// Returns the numbers of cells, of trials (at most), and of units of work.
    #[getter]
    fn size(&self) -> (u64, u64, u64) {
        (self.0.cells(), self.0.trials(), self.0.units())
    }

    /// Returns a digest of the sweep and of the program that computes it.
    #[getter]
    fn identity(&self, py: Python<'_>) -> PyResult<String> {
        let json = serde_json::to_vec(&self.0.manifest()).or_raise(py, "Error")?;
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
        let broken = follow(py, receiver, &stop, |event| tell(listener, event), |_| true);
        let fault = || raise(py, "RunError", ("the sweep ended by a fault of this program",));
        let ended = py.detach(|| worker.join()).map_err(|_| fault())?.or_raise(py, "StoreError")?;
        broken.map_or(Ok(ended == SweepEnd::Complete), Err)
    }

    /// Computes some units on a worker. Returns them as JSON, which [`SweepFolder::append`] stores.
    fn compute<'py>(&self, py: Python<'py>, first: u64, end: u64) -> PyResult<Bound<'py, PyBytes>> {
        let stop = AtomicBool::new(false);
        let units = || serde_json::to_vec(&self.0.compute(first..end, &stop));
        let units = run_interruptible(py, &stop, units)?.or_raise(py, "StoreError")?;
        Ok(PyBytes::new(py, &units))
    }

    /// Opens a directory for rows of other workers. Returns also notes about its files.
    fn open(&self, py: Python<'_>, directory: PathBuf) -> PyResult<(SweepFolder, Vec<String>)> {
        let (folder, notes) = py
            .detach(|| SweepDir::open(&directory, self.0.manifest()))
            .or_raise(py, "StoreError")?;
        Ok((SweepFolder { folder: Some(folder) }, notes))
    }
}

fn tell(listener: &Bound<'_, PyAny>, event: Event) -> PyResult<()> {
    match event {
        Event::Start { stored, units } => listener.call1(("start", (stored, units))),
        Event::Computed(units) => listener.call1(("computed", units)),
        Event::Say(line) => listener.call1(("say", line)),
    }
    .map(drop)
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
    /// Returns the number of stored units.
    #[getter]
    fn stored(&mut self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.folder(py)?.units().count())
    }

    /// Returns the next missing range of units, from `first` on.
    fn missing(&mut self, py: Python<'_>, first: u64) -> PyResult<Option<(u64, u64)>> {
        Ok(self.folder(py)?.next_missing(first).map(|units| (units.start, units.end)))
    }

    /// Adds units that a worker computed. The next [`Self::flush`] writes them.
    fn append(&mut self, py: Python<'_>, units: &[u8]) -> PyResult<()> {
        let folder = self.folder(py)?;
        let units: Vec<SweepUnit> =
            py.detach(|| serde_json::from_slice(units)).or_raise(py, "StoreError")?;
        py.detach(|| folder.append(&units)).or_raise(py, "StoreError")
    }

    /// Writes the units to the disk.
    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let folder = self.folder(py)?;
        py.detach(|| folder.flush()).or_raise(py, "StoreError")
    }

    /// Unlocks the directory. Units that were not flushed are lost.
    fn close(&mut self) {
        self.folder = None;
    }

    /// Returns a row per cell, of the units stored up to now.
    fn cells(&mut self, py: Python<'_>) -> PyResult<Frame> {
        let folder = self.folder(py)?;
        let (layout, columns) = py.detach(|| folder.cell_columns()).or_raise(py, "StoreError")?;
        Frame::of_columns(py, &layout, vec![columns])
    }
}
