//! Sweeps: many settings of a scenario, kept in a directory while they are computed.

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
use underload_run::source::Source;
use underload_run::sweep::{self, FlushTimes, SweepEnd, SweepProgress, SweepSettings};
use underload_store::sweep::{SweepDir, SweepRows};

use crate::attend::{attend, follow};
use crate::errors::{self, OrRaise, raise};
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
        let (scenario, scenario_text) = (scenario.0.name.clone(), scenario.0.text.clone());
        Self::parse(py, name, &text, scenario, scenario_text, BTreeMap::new())
    }

    /// A sweep's text, over a scenario's; and the files that they name, where those are not here.
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

    /// Its name, its text, its scenario's name, and the scenario's text: what [`Sweep::parse`]
    /// takes.
    #[getter]
    fn texts(&self) -> (String, String, String, String) {
        let manifest = self.0.manifest();
        (manifest.name, manifest.text, manifest.scenario, manifest.scenario_text)
    }

    /// The files that it names, and [`Sweep::parse`] takes.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> BTreeMap<String, Bound<'py, PyBytes>> {
        let files = py.detach(|| self.0.files());
        files.into_iter().map(|(name, content)| (name, PyBytes::new(py, &content))).collect()
    }

    /// What computes it: the version, and the commit or the module's own bytes.
    #[getter]
    fn program(&self) -> String {
        self.0.manifest().program
    }

    /// The cells that some units are of: the first, and the one after the last.
    fn cells_of(&self, first: u64, end: u64) -> (u64, u64) {
        let cells = self.0.cells_of(first..end);
        (cells.start, cells.end)
    }

    /// Where a cell lies: its value of each axis, by name, and its arm.
    fn place(&self, cell: u64) -> (Vec<(String, String)>, String) {
        let place = self.0.cell(cell.min(self.0.cells().saturating_sub(1)));
        let names = self.0.axes().map(|(name, _)| name.to_owned());
        (names.zip(place.values.into_iter().map(|value| value.text)).collect(), place.arm)
    }

    /// Cells, trials (at most), and units of work.
    #[getter]
    fn size(&self) -> (u64, u64, u64) {
        (self.0.cells(), self.0.trials(), self.0.units())
    }

    /// What distinguishes it, with the program that computes it, from every other sweep.
    #[getter]
    fn identity(&self, py: Python<'_>) -> PyResult<String> {
        let json = serde_json::to_vec(&self.0.manifest()).or_raise(py, "Error")?;
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
        let (sender, receiver) = mpsc::channel();
        let own = Arc::clone(&self.0);
        let work = move || sweep::run(&own, &settings, &mut Told(sender), &mut |_| {});
        let worker = thread::Builder::new().name("underload".to_owned()).spawn(work)?;
        let broken = follow(py, receiver, &stop, |event| tell(hear, event), |_| true);
        let fault = || raise(py, "RunError", ("the sweep ended by a fault of this program",));
        let ended = py.detach(|| worker.join()).map_err(|_| fault())?.or_raise(py, "StoreError")?;
        broken.map_or(Ok(ended == SweepEnd::Complete), Err)
    }

    /// Rows of some units, as a Parquet file's bytes: what other workers compute.
    fn compute<'py>(&self, py: Python<'py>, first: u64, end: u64) -> PyResult<Bound<'py, PyBytes>> {
        let stop = AtomicBool::new(false);
        let rows = attend(py, &stop, || self.0.compute(first..end, &stop).to_parquet())?;
        let rows = rows.map_err(|problem| raise(py, "StoreError", (problem,)))?;
        Ok(PyBytes::new(py, &rows))
    }

    /// A directory that rows of other workers are put into, and what is to be said of its files.
    fn open(&self, py: Python<'_>, directory: PathBuf) -> PyResult<(SweepFolder, Vec<String>)> {
        let (folder, notes) = py
            .detach(|| SweepDir::open(&directory, self.0.manifest()))
            .or_raise(py, "StoreError")?;
        let sweep = Arc::clone(&self.0);
        Ok((SweepFolder { sweep, folder: Some(folder), times: FlushTimes::default() }, notes))
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
    let made = py.detach(|| module_identity(COMMIT, &module)).or_raise(py, "StoreError")?;
    Ok(IDENTITY.get_or_init(|| made))
}

/// The directory of a sweep. Nobody else can use it until it is closed.
#[pyclass(module = "underload._underload")]
pub struct SweepFolder {
    sweep: Arc<sweep::Sweep>,
    folder: Option<SweepDir>,
    times: FlushTimes,
}

impl SweepFolder {
    fn folder(&mut self, py: Python<'_>) -> PyResult<&mut SweepDir> {
        let closed = || raise(py, "StoreError", ("the sweep's directory was closed",));
        self.folder.as_mut().ok_or_else(closed)
    }
}

#[pymethods]
impl SweepFolder {
    /// Whether its tables are there.
    #[getter]
    fn is_complete(&mut self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.folder(py)?.is_complete())
    }

    /// Units that are stored.
    #[getter]
    fn stored(&mut self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.folder(py)?.units().count())
    }

    /// The next units that it lacks, from this one on: the first, and the one after the last.
    fn missing(&mut self, py: Python<'_>, first: u64) -> PyResult<Option<(u64, u64)>> {
        Ok(self.folder(py)?.next_missing(first).map(|units| (units.start, units.end)))
    }

    /// Takes rows that a worker computed. They are on the disk after the next [`Self::flush`], or
    /// [`Self::tick`] when it is time.
    fn append(&mut self, py: Python<'_>, rows: &[u8]) -> PyResult<()> {
        let sweep = Arc::clone(&self.sweep);
        let folder = self.folder(py)?;
        py.detach(|| {
            let rows = SweepRows::from_parquet(sweep.columns(), rows.to_vec())?;
            folder.append(rows).map_err(|error| errors::chain(&error))
        })
        .map_err(|problem| raise(py, "StoreError", (problem,)))
    }

    /// Brings what was taken to the disk if it has waited for long enough.
    fn tick(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.times.is_due() { self.flush(py) } else { Ok(()) }
    }

    /// Brings what was taken to the disk.
    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let folder = self.folder(py)?;
        py.detach(|| folder.flush()).or_raise(py, "StoreError")
    }

    /// Leaves the directory to others. What was not flushed is lost.
    fn close(&mut self) {
        self.folder = None;
    }

    /// A row per cell, of what is stored so far.
    fn cells(&mut self, py: Python<'_>) -> PyResult<Frame> {
        let folder = self.folder(py)?;
        let (layout, columns) = py
            .detach(|| folder.cell_columns(&AtomicBool::new(false)))
            .or_raise(py, "StoreError")?;
        Frame::of_columns(py, &layout, vec![columns])
    }
}
