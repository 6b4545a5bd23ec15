//! Runs: start, progress, stop, load and output.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use underload_record::comparison::compare_two;
use underload_record::schema::{Phase, Quantile, RunRecord, TrialRecord, VariantLatency};
use underload_record::text::in_full;
use underload_record::{metric_of, metric_over_trials, unknown_metric};
use underload_run::{Destination, Progress, Remains, RunError, Settings, WorldChoice};
use underload_scenario as scenario;
use underload_scenario::own::Own;
use underload_store::{RunData, RunDir, Table};

use crate::errors::{OrRaise, raise, raise_words};
use crate::frame::Frame;
use crate::interruptible::follow;
use crate::own::{PythonAlgorithm, Watch, ecn_use};
use crate::scenario::Scenario;

/// The progress of a run.
enum Event {
    World(String),
    Start(usize),
    Say(String),
    Finished { variant: String, repeat: u32 },
}

/// Sends the progress of a run; after a stop the receiver is gone.
struct EventSender(Sender<Event>);

impl Progress for EventSender {
    fn world(&mut self, _scenario: &scenario::Scenario, world: &str) {
        let _ = self.0.send(Event::World(world.to_owned()));
    }

    fn start(&mut self, trials: usize, _estimate: Option<Duration>) {
        let _ = self.0.send(Event::Start(trials));
    }

    fn say(&mut self, line: &str) {
        let _ = self.0.send(Event::Say(line.to_owned()));
    }

    fn finished(&mut self, trial: &TrialRecord) {
        let _ =
            self.0.send(Event::Finished { variant: trial.variant.clone(), repeat: trial.repeat });
    }
}

/// The settings of a run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RunArguments {
    world: String,
    out: Option<PathBuf>,
    resume: bool,
    cache: bool,
    threads: Option<NonZeroUsize>,
}

/// Runs a scenario on a separate thread. `listener` is called with each event: its kind, and a text or
/// a number.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    scenario: &Scenario,
    overrides: RunArguments,
    own: Algorithms,
    listener: &Bound<'_, PyAny>,
) -> PyResult<Run> {
    let stop = Arc::new(AtomicBool::new(false));
    let (watch, is_own) = (Watch::new(&stop), !(own.0.is_empty() && own.1.is_empty()));
    let settings = Settings { own: brought(py, own, &watch)?, ..settings(py, overrides, &stop)? };
    let (sender, receiver) = mpsc::channel();
    let scenario = Arc::clone(&scenario.0);
    let work = move || underload_run::run(&scenario, &settings, &mut EventSender(sender));
    let work = move || if is_own { Watch::hosts(work) } else { work() };
    let worker = thread::Builder::new().name("underload".to_owned()).spawn(work)?;
    let mut is_left_behind = false;
    // A class whose method does not return is interrupted, and finally left behind.
    let waits = |stopped: Duration| {
        if is_own && stopped > PATIENCE {
            watch.interrupt(py);
        }
        is_left_behind = is_own && stopped > MOST_PATIENCE;
        !is_left_behind
    };
    let broken = follow(py, receiver, &stop, |event| tell(listener, event), waits);
    if is_left_behind && let Some(broken) = broken {
        return Err(interrupted(py, None, broken));
    }
    let outcome = py.detach(|| worker.join());
    let Ok(outcome) = outcome else {
        return Err(raise(py, "RunError", ("the run ended by a fault of this program",)));
    };
    if let (Some(fault), None) = (watch.fault(), &broken) {
        let rest = match outcome {
            Ok(run) => Some(Run::of_finished(py, run)?),
            Err(RunError::Interrupted { remains, .. } | RunError::Failed { remains, .. }) => {
                Run::of_remains(remains)
            }
            Err(_) => None,
        };
        return Err(fault.raised(py, rest));
    }
    match (outcome, broken) {
        (Ok(run), None) => Run::of_finished(py, run),
        (Ok(run), Some(broken)) => Err(interrupted(py, Some(Run::of_finished(py, run)?), broken)),
        (Err(error), broken) => Err(failed(py, error, broken)),
    }
}

/// Time from a signal to the interruption of a class in Python.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time from a signal after which the call returns although the class still runs.
const MOST_PATIENCE: Duration = Duration::from_secs(3);

/// Queues, and congestion controls with their use of ECN.
pub type Algorithms = (Vec<PythonAlgorithm>, Vec<(PythonAlgorithm, Option<String>)>);

/// Returns the algorithms written in Python.
pub fn brought(
    py: Python<'_>,
    (queues, controls): Algorithms,
    watch: &Arc<Watch>,
) -> PyResult<Own> {
    let queues = queues.into_iter().try_fold(Own::default(), |all, brought| {
        let (spec, make) = brought.queues(watch);
        all.queue(&spec, make).or_raise(py, "SpecError")
    })?;
    controls.into_iter().try_fold(queues, |all, (brought, ecn)| {
        let (name, make) = brought.controls(watch);
        Ok(all.control(&name, make, ecn_use(ecn.as_deref())?))
    })
}

fn settings(py: Python<'_>, overrides: RunArguments, stop: &Arc<AtomicBool>) -> PyResult<Settings> {
    let world = match overrides.world.as_str() {
        "sim" => WorldChoice::Sim,
        "live" => WorldChoice::Live,
        "auto" => WorldChoice::Auto,
        other => {
            let problem = format!("world: `{other}`; expected sim, live or auto");
            return Err(raise(py, "RunError", (problem,)));
        }
    };
    Ok(Settings {
        world,
        destination: match overrides.out {
            None => Destination::Caller,
            Some(path) if overrides.resume => Destination::Resume(path),
            Some(path) => Destination::Directory(path),
        },
        uses_cache: overrides.cache,
        threads: overrides.threads,
        stop: Arc::clone(stop),
        commit: crate::sweep::identity(py)?,
        ..Settings::default()
    })
}

fn tell(listener: &Bound<'_, PyAny>, event: Event) -> PyResult<()> {
    match event {
        Event::World(world) => listener.call1(("world", world)),
        Event::Start(trials) => listener.call1(("start", trials)),
        Event::Say(line) => listener.call1(("say", line)),
        Event::Finished { variant, repeat } => {
            listener.call1(("finished", format!("{variant} {repeat}")))
        }
    }
    .map(drop)
}

/// Converts the error of a run that ended early, with its finished trials.
fn failed(py: Python<'_>, error: RunError, broken: Option<PyErr>) -> PyErr {
    match error {
        RunError::Interrupted { remains, .. } => {
            let rest = Run::of_remains(remains);
            match broken {
                Some(broken) => interrupted(py, rest, broken),
                None => raise(py, "RunError", ("the run was stopped",)),
            }
        }
        RunError::Failed { source, remains } => {
            let rest = Run::of_remains(remains);
            raise(py, "RunError", (in_full(&source), rest))
        }
        RunError::Scenario(error) => {
            crate::errors::scenario(py, &scenario::ScenarioErrors(vec![error]))
        }
        RunError::Store(error) => raise_words(py, "StoreError", &error),
        error => raise_words(py, "RunError", &error),
    }
}

/// Returns the exception that stopped a run. Ctrl-C carries the finished trials.
fn interrupted(py: Python<'_>, run: Option<Run>, broken: PyErr) -> PyErr {
    if !broken.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
        return broken;
    }
    raise(py, "Interrupted", (run,))
}

/// Name, title, caption and SVG.
type Plot = (String, String, String, String);

/// A run: in memory, or in its directory until its tables are requested.
#[pyclass(frozen, module = "underload._underload")]
pub struct Run {
    record: Arc<RunRecord>,
    directory: Option<PathBuf>,
    data: OnceLock<Arc<RunData>>,
}

/// Reads a run directory, or a file of another tool. If `is_temporary`, all tables are read at
/// once.
#[pyfunction]
pub fn load(py: Python<'_>, path: PathBuf, is_temporary: bool) -> PyResult<Run> {
    if path.is_file() {
        let data = py.detach(|| underload_report::load(&[&path]));
        let data = data.or_raise(py, "FormatError")?.pop();
        return data.map(Run::of_data).ok_or_else(|| raise(py, "FormatError", ("no run",)));
    }
    let wrong = |error| raise_words(py, "StoreError", &error);
    if is_temporary {
        return Ok(Run::of_data(py.detach(|| RunDir::read(&path)).map_err(wrong)?));
    }
    let record = py.detach(|| RunDir::read_record(&path)).map_err(wrong)?;
    Ok(Run::of_directory(record, path))
}

#[pymethods]
impl Run {
    /// Returns the record as JSON, as in `run.json`.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let json = py.detach(|| serde_json::to_string(&*self.record));
        json.or_raise(py, "Error")
    }

    /// Returns name, world, seed, completeness, and the number of trials.
    fn facts(&self) -> (String, String, u64, bool, usize) {
        let record = &self.record;
        let (name, world) = (record.scenario.name.clone(), record.world.name().to_owned());
        (name, world, record.seed, record.complete, record.trials.len())
    }

    /// Returns the run directory; `None` for a run in memory.
    #[getter]
    fn directory(&self) -> Option<PathBuf> {
        self.directory.clone()
    }

    /// Returns the name and label of each variant, in the scenario's order.
    fn variants(&self) -> Vec<(String, String)> {
        self.record
            .variants
            .iter()
            .map(|variant| (variant.name.clone(), variant.label.clone()))
            .collect()
    }

    /// Returns a metric of a variant; `None` if the run has no value of it.
    fn metric(&self, variant: &str, name: &str) -> Option<f64> {
        metric_of(&self.record, variant, name)
    }

    /// Returns a statistic of the round trips of a variant's first open-loop probe in a phase, ms;
    /// `None` if no probe was answered, or too few for the statistic.
    fn round_trip(&self, variant: &str, phase: &str, statistic: &str) -> Option<f64> {
        let latency = self.headline(variant, phase)?;
        Some(latency.told_ns(Quantile::from_name(statistic)?)? as f64 / 1e6)
    }

    /// Returns the name of the highest percentile that has enough samples.
    fn highest_told(&self, variant: &str, phase: &str) -> Option<&'static str> {
        self.headline(variant, phase)?.highest_told().map(|(quantile, _)| quantile.name())
    }

    /// Returns a metric of each valid trial of the variant; `None` for a trial without it.
    fn metric_over_trials(&self, py: Python<'_>, variant: &str, name: &str) -> Vec<Option<f64>> {
        py.detach(|| metric_over_trials(&self.record, variant, name))
    }

    /// Returns the comparison of a variant with a baseline as JSON; `None` if there is no such
    /// variant.
    fn compare(&self, py: Python<'_>, variant: &str, baseline: &str, name: &str) -> Option<String> {
        let run = &self.record;
        let compared = py.detach(|| compare_two((run, variant), (run, baseline), name))?;
        serde_json::to_string(&compared).ok()
    }

    /// Returns what is wrong with the name of a metric; `None` if it is valid, measured or not.
    fn unknown_metric(&self, py: Python<'_>, variant: &str, name: &str) -> Option<String> {
        py.detach(|| unknown_metric(&self.record, variant, name))
    }

    /// Returns a table: `trials`, `samples` or `series`.
    fn frame(&self, py: Python<'_>, table: &str) -> PyResult<Frame> {
        let table = match table {
            "trials" => Table::Trials,
            "samples" => Table::Samples,
            _ => Table::Series,
        };
        Frame::of_run(py, table, &*self.data(py)?)
    }

    /// Returns the damaged parts of an incomplete run, which are left out.
    fn left_out(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.data(py)?.left_out.clone())
    }

    /// Writes the run as a run directory.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let data = self.data(py)?;
        let written = py.detach(|| RunDir::write(path, &data));
        written.or_raise(py, "StoreError")
    }

    /// Returns the table that the program prints.
    fn table(&self, py: Python<'_>) -> PyResult<String> {
        self.shown(py, |runs| Ok(underload_report::table(runs)))
    }

    /// Returns the sentences that the program prints below the table.
    fn sentences(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shown(py, |runs| Ok(underload_report::summary_lines(runs)))
    }

    /// Returns the scenario's published numbers beside the measured ones.
    fn published(&self) -> String {
        underload_report::published_table(&self.record.expectations)
    }

    /// Returns the reasons why the numbers are doubtful.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shown(py, |runs| Ok(underload_report::warnings(runs)))
    }

    /// Returns name, title, caption and SVG of each plot of the report.
    fn plots(&self, py: Python<'_>) -> PyResult<Vec<Plot>> {
        let plots = |runs: &[RunData]| {
            let plots = underload_report::plots(runs);
            let plot = |plot: underload_report::Plot| {
                let svg = plot.svg();
                (plot.name, plot.title, plot.caption, svg)
            };
            Ok(plots.into_iter().map(plot).collect())
        };
        self.shown(py, plots)
    }

    /// Writes the report as one page.
    fn report(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.shown(py, |runs| {
            underload_report::write_page(&path, runs).map_err(|error| in_full(&error))
        })
    }
}

impl Run {
    fn headline(&self, variant: &str, phase: &str) -> Option<&VariantLatency> {
        let mut summaries = self.record.summaries.iter();
        summaries.find(|summary| summary.variant == variant)?.headline(Phase::from_name(phase)?)
    }

    fn of_data(data: RunData) -> Self {
        let record = Arc::new(data.record.clone());
        Self { record, directory: None, data: OnceLock::from(Arc::new(data)) }
    }

    pub fn of_directory(record: RunRecord, directory: PathBuf) -> Self {
        let record = Arc::new(record);
        Self { record, directory: Some(directory), data: OnceLock::new() }
    }

    fn of_finished(py: Python<'_>, run: underload_run::Run) -> PyResult<Self> {
        let Some(directory) = run.directory.clone() else {
            return Ok(Self::of_data(run.into_data()));
        };
        let record = match run.record {
            // The record of a large run is only in its directory.
            record if record.trials.is_empty() => {
                let read = py.detach(|| RunDir::read_record(&directory));
                read.or_raise(py, "StoreError")?
            }
            record => record,
        };
        Ok(Self::of_directory(record, directory))
    }

    fn of_remains(remains: Remains) -> Option<Self> {
        let of_directory = |path: PathBuf| {
            let record = RunDir::read_record(&path).ok()?;
            Some(Self::of_directory(record, path))
        };
        match remains.data {
            Some(data) => Some(Self::of_data(*data)),
            None => of_directory(remains.directory?),
        }
    }

    /// Returns all data of the run, read from its directory on the first call.
    fn data(&self, py: Python<'_>) -> PyResult<Arc<RunData>> {
        if let Some(data) = self.data.get() {
            return Ok(Arc::clone(data));
        }
        let path = self.directory.as_deref().unwrap_or(Path::new(""));
        let data = py.detach(|| RunDir::read(path)).or_raise(py, "StoreError")?;
        Ok(Arc::clone(self.data.get_or_init(|| Arc::new(data))))
    }

    /// Calls `show` with the run. A large run in a directory is loaded only as far as a report
    /// shows it.
    fn shown<T: Send>(
        &self,
        py: Python<'_>,
        show: impl FnOnce(&[RunData]) -> Result<T, String> + Send,
    ) -> PyResult<T> {
        let shown = py.detach(|| match (&self.directory, self.data.get()) {
            (Some(directory), None) => {
                let runs = underload_report::load_to_show(&[directory]);
                show(&runs.map_err(|error| in_full(&error))?)
            }
            (_, data) => show(data.map_or(&[][..], |data| std::slice::from_ref(data))),
        });
        shown.map_err(|problem| raise(py, "ReportError", (problem,)))
    }
}
