//! `underload run`: every trial of a scenario, recorded and reported.
//!
//! - [`source`]: the file or built-in scenario.
//! - [`world`]: what executes it, and why.
//! - [`mod@execute`]: the trials, one after the other, into the run directory.
//! - [`cache`]: simulated trials kept from earlier runs.
//! - [`packets`]: records and captures of simulated packets.
//! - [`progress`], [`interrupt`], [`host`]: what the user sees meanwhile, Ctrl-C, provenance.

mod cache;
mod execute;
pub mod host;
mod interrupt;
pub mod packets;
pub mod progress;
pub mod source;
mod world;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use underload_aqm::rng::Rng;
use underload_record::schema::{ArmRecord, FORMAT_VERSION, RunRecord, ScenarioRecord};
use underload_report::{RunDir, StoreError, one_line};
use underload_run::scenario::{Options, Scenario};

use crate::exit::OrBadInput;
use crate::present;
use cache::Cache;
use execute::{End, Plan, execute};
use packets::Wanted;
use packets::point::Point;
use source::Source;
use world::World;

pub use execute::{Output, Trial, TrialData, keep_bottlenecks};
pub use interrupt::Interrupt;

/// What executes the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorldChoice {
    /// Live where the machine allows it, else simulated; says which and why.
    Auto,
    /// Virtual time.
    Sim,
    /// Network namespaces, the kernel's own TCP, real time.
    Live,
}

/// The command line of `underload run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Arguments {
    /// A scenario file, or the name of a built-in one (see `underload scenarios`).
    pub scenario: String,
    /// What executes it.
    #[arg(long, value_enum, default_value_t = WorldChoice::Auto)]
    pub world: WorldChoice,
    /// Only these arms; may be given several times.
    #[arg(long = "arm", value_name = "NAME")]
    pub arms: Vec<String>,
    /// How often each arm runs, instead of the scenario's own number.
    #[arg(long = "repeat", value_name = "N")]
    pub repeats: Option<u32>,
    /// The run's seed, instead of the scenario's own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The run directory, which must be new or empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overrides a key of the scenario, for example `--set path.up=20mbit`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Recorded links in Mahimahi's format, plain or .gz, instead of the links that the scenario
    /// sweeps over: one arm each, named after the file.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub traces: Vec<String>,
    /// Prints the run as one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// The scenario's short form: fewer and shorter trials.
    #[arg(long)]
    pub short: bool,
    /// Computes every simulated trial, also those that an earlier run kept in the cache.
    #[arg(long)]
    pub no_cache: bool,
    /// Runs even more than a million trials.
    #[arg(long)]
    pub yes: bool,
    /// Simulates so many trials side by side; the result is the same [default: one per core].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Records every simulated packet in packets.parquet, at these points or at all.
    #[arg(
        long,
        value_name = "POINT,...",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ','
    )]
    pub packets: Option<Vec<Point>>,
    /// Captures simulated packets for Wireshark in captures/TRIAL-POINT.pcapng. A point is client,
    /// server, or up or down with arrival, mark, drop, departure or delivery: up.departure.
    #[arg(long, value_name = "POINT,...", value_delimiter = ',')]
    pub pcap: Vec<Point>,
}

/// Runs the scenario.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match perform(arguments)? {
        Ended::Complete { path, record } => {
            present::run(&path, arguments.json)?;
            let valid = record.trials.iter().filter(|trial| trial.validity.is_valid()).count();
            if valid == 0 {
                bail!(
                    "no trial is valid: this machine was too late or too busy, and its numbers \
                     would say nothing about the queues; see the reasons above"
                );
            }
            Ok(())
        }
        Ended::Interrupted { directory, done, of } => {
            keep_what_exists(*directory, arguments.json)?;
            Err(interrupted(done, of))
        }
        Ended::Failed { directory, error } => {
            let keeping = keep_what_exists(*directory, arguments.json);
            keeping.unwrap_or_else(|second| eprintln!("no report of it: {second:#}"));
            Err(error)
        }
    }
}

/// Runs the scenario for its record alone: no report, nothing on stdout.
pub fn record(arguments: &Arguments) -> anyhow::Result<RunRecord> {
    match perform(arguments)? {
        Ended::Complete { record, .. } => Ok(*record),
        Ended::Interrupted { done, of, .. } => Err(interrupted(done, of)),
        Ended::Failed { error, .. } => Err(error),
    }
}

fn interrupted(done: usize, of: usize) -> anyhow::Error {
    anyhow!("interrupted after {done} of {of} trials")
}

/// How a run that began ended.
enum Ended {
    Complete { path: PathBuf, record: Box<RunRecord> },
    Interrupted { directory: Box<RunDir>, done: usize, of: usize },
    Failed { directory: Box<RunDir>, error: anyhow::Error },
}

/// Runs every trial into the run directory.
fn perform(arguments: &Arguments) -> anyhow::Result<Ended> {
    // Before anything that takes time, or that could fail with something already written.
    if let Some(out) = &arguments.out {
        refuse_occupied(RunDir::check_vacant(out))?;
    }
    let source = Source::find(&arguments.scenario)?;
    let options = arguments.options().or_bad_input()?;
    let load = &mut |name: &str| source.load_file(name);
    let scenario =
        Scenario::parse_with(&source.text, &source.name, &options, load).or_bad_input()?;
    check_size(scenario.trials(), arguments.yes).or_bad_input()?;
    if let Some(note) = memory_note(scenario.trials()) {
        eprintln!("{note}");
    }
    let packets = arguments.wanted();
    // Before anything starts a thread: a user namespace can only be entered by one.
    let mut world = World::choose(arguments.world_choice()?, &scenario)?;
    if !packets.is_empty() {
        packets.check(&scenario.arms, scenario.trials())?;
    }
    eprintln!("{}: {}", scenario.name, one_line(&scenario.title));
    eprintln!("{}", world.reason());
    let interrupt = Interrupt::watch()?;
    let record = arguments.record(&source, &scenario, &world);
    let mut directory = refuse_occupied(match &arguments.out {
        Some(out) => RunDir::create(out, record),
        None => RunDir::create_unused(&default_directory(&source, &record), &record),
    })?;
    let keeps_curves = scenario.cohort.is_none() && scenario.trials() <= MOST_WITH_CURVES;
    if !keeps_curves {
        directory = directory.summaries_only();
    }
    let cache = arguments.cache(&scenario, &world);
    let threads = arguments.threads;
    let plan = Plan { scenario: &scenario, load, cache, keeps_curves, packets, threads };
    Ok(match execute(plan, &mut world, &mut directory, &interrupt) {
        Ok(End::Complete { duration_s }) => {
            let path = directory.path().to_owned();
            let record = directory.finish(duration_s).context("finishing the run")?;
            Ended::Complete { path, record: Box::new(record) }
        }
        Ok(End::Interrupted { done, of }) => {
            Ended::Interrupted { directory: Box::new(directory), done, of }
        }
        Err(error) => Ended::Failed { directory: Box::new(directory), error },
    })
}

/// A directory that is taken is the command line's fault.
pub fn refuse_occupied<T>(made: Result<T, StoreError>) -> anyhow::Result<T> {
    match made {
        Err(error) if error.is_occupied() => Err(error).or_bad_input(),
        made => Ok(made?),
    }
}

/// Trials of which every sample and curve is kept on disk, at most.
const MOST_WITH_CURVES: usize = 2_000;
/// Trials that are run without being asked twice, at most.
const MOST_TRIALS: usize = 1_000_000;
/// Trials from which on an interrupted run is worth resuming.
const WORTH_CACHING: usize = 32;

/// Memory that a trial's record takes at the end of a run, with its share of the report, about.
const TRIAL_BYTES: usize = 40_000;

/// What a run of so many trials needs, where that is worth knowing before it starts.
fn memory_note(trials: usize) -> Option<String> {
    const WORTH_SAYING: usize = 2_000_000_000;
    let bytes = trials.saturating_mul(TRIAL_BYTES);
    let gigabytes = bytes.div_ceil(1_000_000_000);
    let note = || format!("{trials} trials: their record will take about {gigabytes} GB of memory");
    (bytes >= WORTH_SAYING).then(note)
}

fn check_size(trials: usize, yes: bool) -> anyhow::Result<()> {
    if trials > MOST_TRIALS && !yes {
        bail!(
            "{trials} trials are more than {MOST_TRIALS}: give --yes if you mean it, or fewer \
             with --repeat or --arm"
        );
    }
    Ok(())
}

impl Arguments {
    /// All of a scenario in virtual time, into `out`, with nothing on stdout.
    pub fn simulation(scenario: &str, out: &std::path::Path) -> Self {
        Self {
            scenario: scenario.to_owned(),
            world: WorldChoice::Sim,
            arms: Vec::new(),
            repeats: None,
            seed: None,
            out: Some(out.to_owned()),
            overrides: Vec::new(),
            traces: Vec::new(),
            json: false,
            short: false,
            no_cache: false,
            yes: false,
            threads: None,
            packets: None,
            pcap: Vec::new(),
        }
    }

    /// The cache, for a run that can use one. Without one the run only takes longer.
    fn cache(&self, scenario: &Scenario, world: &World) -> Option<Cache> {
        let is_simulated = world.name() == underload_record::schema::World::Sim;
        // A trial out of the cache has no packets to record.
        let is_unusable = self.no_cache || !self.wanted().is_empty() || !is_simulated;
        if is_unusable || scenario.trials() < WORTH_CACHING {
            return None;
        }
        let unusable = |error: &anyhow::Error| eprintln!("without a cache: {error:#}");
        Cache::open().inspect_err(unusable).ok()
    }

    fn wanted(&self) -> Wanted {
        Wanted { rows: self.packets.clone(), captures: self.pcap.clone() }
    }

    /// The world as asked for; packets are recorded in virtual time only.
    fn world_choice(&self) -> anyhow::Result<WorldChoice> {
        match self.world {
            _ if self.wanted().is_empty() => Ok(self.world),
            WorldChoice::Auto | WorldChoice::Sim => Ok(WorldChoice::Sim),
            WorldChoice::Live => Err(anyhow!(
                "--packets and --pcap record simulated packets: expected --world sim; for live \
                 ones, `underload link --log DIR` logs what its links do"
            ))
            .or_bad_input(),
        }
    }

    fn options(&self) -> anyhow::Result<Options> {
        let links = self.traces.iter().map(|file| recorded_link(file));
        Ok(Options {
            short: self.short,
            set: self.overrides.clone(),
            links: links.collect::<anyhow::Result<_>>()?,
            arms: self.arms.clone(),
            repeats: self.repeats,
            seed: self.seed,
        })
    }

    fn record(&self, source: &Source, scenario: &Scenario, world: &World) -> RunRecord {
        let arm = |arm: &underload_run::scenario::Arm| ArmRecord {
            name: arm.name.clone(),
            label: match scenario.cohort {
                Some(_) => format!("typically {}", arm.label()),
                None => arm.label(),
            },
            factors: arm.factors.clone(),
        };
        RunRecord {
            format_version: FORMAT_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("UNDERLOAD_COMMIT").to_owned(),
            scenario: ScenarioRecord {
                name: scenario.name.clone(),
                title: scenario.title.clone(),
                text: self.effective_text(&source.text),
            },
            seed: scenario.seed,
            world: world.name(),
            complete: false,
            arms: scenario.arms.iter().map(arm).collect(),
            trials: Vec::new(),
            summaries: Vec::new(),
            expectations: scenario.published.clone(),
            host: host::facts(world.name()),
        }
    }

    /// The file, headed by what the command line changed, so that the record alone repeats it.
    fn effective_text(&self, text: &str) -> String {
        let mut changes = Vec::new();
        if self.short {
            changes.push("--short".to_owned());
        }
        changes.extend(self.overrides.iter().map(|set| format!("--set {set:?}")));
        if !self.traces.is_empty() {
            changes.push("--traces".to_owned());
            changes.extend(self.traces.iter().map(|file| format!("{file:?}")));
        }
        changes.extend(self.arms.iter().map(|arm| format!("--arm {arm:?}")));
        changes.extend(self.repeats.map(|repeats| format!("--repeat {repeats}")));
        changes.extend(self.seed.map(|seed| format!("--seed {seed}")));
        if changes.is_empty() {
            return text.to_owned();
        }
        format!("# underload run with {}\n{text}", changes.join(" "))
    }
}

/// Name and SPEC of a recording: the name is the file's without folders and endings that say
/// nothing.
fn recorded_link(file: &str) -> anyhow::Result<(String, String)> {
    if file.contains(['[', ']', ',', '=']) {
        bail!("--traces {file}: a file whose name has none of [ ] , = is expected");
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let name = [".trace", ".pps"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    Ok((name.chars().map(plain).collect(), format!("trace:{file},profile=mahimahi")))
}

/// `runs/comcast-upstream-20261121T013500Z`; the time makes it new.
fn default_directory(source: &Source, record: &RunRecord) -> PathBuf {
    let time: String = record.host.started.chars().filter(|c| !"-:".contains(*c)).collect();
    PathBuf::from("runs").join(format!("{}-{time}", source.slug()))
}

/// After an early end: the report of the trials that were completed, or nothing at all where none
/// was. What the run did not make stays in any case.
fn keep_what_exists(directory: RunDir, json: bool) -> anyhow::Result<()> {
    let (path, done) = (directory.path().to_owned(), directory.record().trials.len());
    if done == 0 {
        let gone = directory.abandon();
        return gone.context("removing the files of a run without a trial");
    }
    eprintln!("{done} completed trials are kept in {}", path.display());
    drop(directory);
    present::run(&path, json)
}

/// The seed of a repeat, a child stream of the run's. All arms share it: what they differ in is
/// then the arm, not the luck of a random link.
pub fn repeat_seed(run_seed: u64, repeat: u32) -> u64 {
    Rng::new(run_seed).child("repeat").child(&repeat.to_string()).next_u64()
}
