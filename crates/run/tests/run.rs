//! Runs as a library call: their results, what remains after an early end, and what is refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underload_record::metric;
use underload_record::schema::{RunRecord, TrialRecord, World};
use underload_run::packets::Point;
use underload_run::{Destination, Progress, RunError, Settings, WorldChoice, run};
use underload_scenario::{Keys, Scenario};
use underload_store::RunDir;

fn two_queues() -> Scenario {
    two_queues_often(2)
}

fn two_queues_often(repeats: i64) -> Scenario {
    Scenario::build("two queues")
        .set("title", "Two queues")
        .set("repeats", repeats)
        .path(Keys::new().set("up", "10mbit").set("rtt", "20ms"))
        .phases(Keys::new().set("idle", "500ms").set("ramp", "2s").set("load", "2s"))
        .flow("upload", "tcp", Keys::new().set("congestion_control", "cubic"))
        .flow("probe", "probe", Keys::new().set("interval", "10ms"))
        .variant("fifo", Keys::new().set("path.up_queue", "fifo:limit=256KiB"))
        .variant("pie", Keys::new().set("path.up_queue", "pie"))
        .finish()
        .expect("a scenario")
}

fn into(directory: &Path) -> Settings {
    Settings { destination: Destination::Directory(directory.to_owned()), ..Settings::default() }
}

/// Removes from a record what depends on the machine and the time of the run.
fn timeless(mut record: RunRecord) -> RunRecord {
    record.host = underload_record::schema::HostFacts::default();
    record
}

#[test]
fn the_record_is_the_same_in_memory_and_on_disk() {
    let scenario = two_queues();
    let memory = run(&scenario, &Settings::default(), &mut ()).expect("a run");
    assert_eq!(memory.directory, None);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    let disk = run(&scenario, &into(&path), &mut ()).expect("a run");
    assert_eq!(disk.directory, Some(path.clone()));
    let read = RunDir::read(&path).expect("a run directory").record;
    let [memory, disk, read] = [memory.record, disk.record, read].map(timeless);
    assert_eq!(memory, disk);
    assert_eq!(disk, read);
    assert!(memory.complete && memory.world == World::Sim && memory.trials.len() == 4);
    assert_eq!(memory.scenario.text, scenario.text);
    let [fifo, pie] = [0, 1].map(|variant| metric(&memory.summaries[variant], "load.rtt.p50"));
    assert!(fifo.expect("fifo") > 2.0 * pie.expect("pie"), "{fifo:?} {pie:?}");
}

#[test]
fn a_run_in_memory_equals_its_directory() {
    let settings = Settings { destination: Destination::Caller, ..Settings::default() };
    let whole = run(&two_queues(), &settings, &mut ()).expect("a run");
    assert_eq!(whole.directory, None);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    run(&two_queues(), &into(&path), &mut ()).expect("a run");
    let read = RunDir::read(&path).expect("a run directory");
    assert!(!read.samples.is_empty() && !read.series.is_empty());
    assert!(whole.samples == read.samples && whole.series == read.series);

    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings { stop: Arc::clone(&stop), ..settings };
    let mut listener = Listener { stops: Some(stop), ..Listener::default() };
    let many = two_queues_often(10_000);
    let error = run(&many, &settings, &mut listener).expect_err("stopped");
    let remains = error.remains().expect("trials");
    let data = remains.data.as_ref().expect("the trials");
    assert_eq!(data.record.trials.len(), remains.trials);
    assert!(!data.record.complete && data.record.summaries.len() == 2);
}

/// Receives all events, and stops the run after a trial.
#[derive(Default)]
struct Listener {
    heard: Vec<String>,
    stops: Option<Arc<AtomicBool>>,
}

impl Progress for Listener {
    fn world(&mut self, scenario: &Scenario, world: &str) {
        self.heard.push(format!("{}, {world}", scenario.name));
    }

    fn start(&mut self, trials: usize, estimate: Option<Duration>) {
        self.heard.push(format!("{trials} trials, {estimate:?}"));
    }

    fn finished(&mut self, trial: &TrialRecord) {
        self.heard.push(format!("{} #{}", trial.variant, trial.repeat));
        if let Some(stop) = &self.stops {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn end(&mut self) {
        self.heard.push("end".to_owned());
    }
}

#[test]
fn progress_is_reported_in_the_order_of_trials() {
    let mut listener = Listener::default();
    run(&two_queues(), &Settings::default(), &mut listener).expect("a run");
    let trials = ["fifo #0", "pie #0", "fifo #1", "pie #1"];
    let world = "two queues, sim: simulated in virtual time, as requested";
    let expected = [&[world, "4 trials, None"], &trials[..], &["end"]].concat();
    assert_eq!(listener.heard, expected);
}

#[test]
fn a_stopped_run_returns_its_finished_trials_if_it_has_any() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    let stop = Arc::new(AtomicBool::new(true));
    let settings = Settings { stop: Arc::clone(&stop), ..into(&path) };
    let error = run(&two_queues(), &settings, &mut ()).expect_err("stopped at once");
    assert_eq!(error.to_string(), "interrupted after 0 of 4 trials");
    let remains = error.remains().expect("it began");
    assert!(remains.directory.is_none() && remains.unremoved.is_none());
    assert!(!path.exists());

    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings { stop: Arc::clone(&stop), ..into(&path) };
    let mut listener = Listener { stops: Some(stop), ..Listener::default() };
    // More trials than any machine runs side by side at first.
    let mut scenario = two_queues();
    scenario.repeats = 10_000;
    let error = run(&scenario, &settings, &mut listener).expect_err("stopped");
    let RunError::Interrupted { of: 20_000, remains } = error else { panic!("{error}") };
    assert!(remains.trials > 0 && remains.directory.as_deref() == Some(&path));
    let kept = RunDir::read(&path).expect("a run directory").record;
    assert_eq!((kept.trials.len(), kept.complete), (remains.trials, false));
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    let mut scenario = two_queues();
    // More trials than the first batch has.
    scenario.repeats = 2 * std::thread::available_parallelism().map_or(1, usize::from) as u32 + 5;
    let whole = run(&scenario, &Settings::default(), &mut ()).expect("a run").record;
    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings { stop: Arc::clone(&stop), ..into(&path) };
    let mut listener = Listener { stops: Some(stop), ..Listener::default() };
    run(&scenario, &settings, &mut listener).expect_err("stopped");
    let there = RunDir::read(&path).expect("what is left").record.trials.len();
    assert!(there > 0 && there < whole.trials.len(), "{there} of {}", whole.trials.len());

    let resume = Settings { destination: Destination::Resume(path.clone()), ..Settings::default() };
    let mut other = two_queues();
    other.text.push_str("# --set path.rtt=30ms");
    let error = run(&other, &resume, &mut ()).expect_err("another scenario");
    assert!(error.is_refusal() && error.to_string().contains("cannot be resumed"), "{error}");
    let mut listener = Listener::default();
    let resumed = run(&scenario, &resume, &mut listener).expect("the rest of the run");
    assert_eq!(resumed.directory, Some(path.clone()));
    let done = listener.heard.iter().filter(|heard| heard.contains(" #")).count();
    assert_eq!(done, whole.trials.len() - there, "none is done twice");
    assert_eq!(resumed.record.host.resumed.len(), 1);
    assert_eq!(timeless(resumed.record), timeless(whole));
    let error = run(&scenario, &resume, &mut ()).expect_err("it is complete");
    assert!(error.is_refusal() && error.to_string().contains("complete"), "{error}");
}

#[test]
fn impossible_requests_are_refused_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let occupied = folder.path().join("run");
    std::fs::create_dir(&occupied).expect("a folder");
    std::fs::write(occupied.join("mine.txt"), "mine").expect("a file");
    let captures = vec![Point::Client];
    let live = WorldChoice::Live;
    let cases = [
        (into(&occupied), "not a run directory"),
        (Settings { captures: captures.clone(), ..Settings::default() }, "run directory"),
        (Settings { captures, world: live, ..into(&folder.path().join("new")) }, "simulator only"),
    ];
    for (settings, words) in cases {
        let error = run(&two_queues(), &settings, &mut ()).expect_err(words);
        assert!(error.is_refusal() && error.remains().is_none(), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
    assert_eq!(left.len(), 1);
}
