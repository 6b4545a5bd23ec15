//! `underload run`: every trial of a scenario, recorded and reported.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use underload_record::schema::RunRecord;
use underload_run::packets::{Point, Wanted};
use underload_run::scenario::{Options, Scenario};
use underload_run::source::Source;
use underload_run::{Destination, Remains, Run, RunError, Settings, WorldChoice, keeps_samples};
use underload_store::RunDir;
use underload_terminal::console::{self, detail, note, warning};
use underload_terminal::exit::{OrBadInput, bad_input};
use underload_terminal::interrupt::Interrupt;

use crate::fail::{self, FailOn};
use crate::present::{self, Show, refuse_occupied};
use crate::progress::Terminal;

/// What executes the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum World {
    /// Live where the machine allows it, else simulated; says which and why.
    Auto,
    /// Virtual time.
    Sim,
    /// Network namespaces, the kernel's own TCP, real time.
    Live,
    /// As live, in the virtual time of a kernel of its own: the same seed, the same bytes. See
    /// `underload kernel`.
    Kernel,
}

/// The command line of `underload run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(after_help = "\
Exit status: 0 done, 1 failed or no trial is valid, 2 bad input, 130 stopped by Ctrl-C, 143 by
SIGTERM: what was finished is kept and shown.

Examples:
  underload run comcast/upstream
  underload run comcast/upstream --short --world live
  underload run my.toml --arm codel --arm docsis-pie --repeat 10 --out runs/first
  underload run bode/figure-01-call --set path.up=20mbit --json
  underload run my.toml --resume runs/first")]
pub struct Arguments {
    /// A scenario file, or the name of a built-in one (see `underload scenarios`).
    pub scenario: String,
    /// What executes it.
    #[arg(long, value_enum, default_value_t = World::Auto)]
    pub world: World,
    /// Only these arms; may be given several times.
    #[arg(long = "arm", value_name = "NAME")]
    pub arms: Vec<String>,
    /// How often each arm runs, instead of the scenario's own number.
    #[arg(long = "repeat", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: Option<u32>,
    /// The run's seed, instead of the scenario's own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The run directory, which must be new or empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Goes on with the run in this directory, which was cut short: what was given then, and this
    /// instead of --out.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
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
    /// Opens the report in a browser.
    #[arg(long)]
    pub open: bool,
    /// Ends with status 1 on this, as well as where no trial is valid.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FailOn::Never)]
    pub fail_on: FailOn,
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
    // Before anything that takes time, or that could fail with something already written.
    if let Some(out) = &arguments.out {
        refuse_occupied(RunDir::check_vacant(out))?;
    }
    let scenario = arguments.scenario()?;
    check_size(scenario.trials(), arguments.yes).or_bad_input()?;
    if let Some(note) = memory_note(scenario.trials()) {
        note!("{note}");
    }
    let settings = arguments.settings()?;
    tell_details(&scenario, &settings);
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    match underload_run::run(&scenario, &settings, &mut Terminal::default()) {
        Ok(run) => arguments.present(&run),
        Err(error) => Err(arguments.broken_off(error, keeps_samples(&scenario), &interrupt)),
    }
}

/// Runs a scenario for its record alone: progress on stderr, no report, nothing on stdout.
pub fn record(scenario: &Scenario, settings: Settings) -> anyhow::Result<RunRecord> {
    check_size(scenario.trials(), false).or_bad_input()?;
    if let Some(note) = memory_note(scenario.trials()) {
        note!("{note}");
    }
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    let run = underload_run::run(scenario, &settings, &mut Terminal::default());
    run.map(|run| run.record).map_err(|error| marked(error, &interrupt))
}

pub use underload_terminal::COMMIT;

/// What the command line has to change is marked as its fault, and what it asked to stop as
/// stopped.
fn marked(error: RunError, interrupt: &Interrupt) -> anyhow::Error {
    match error {
        RunError::Failed { source, .. } => (*source).into(),
        RunError::Interrupted { .. } => interrupt.stopped(error.into()),
        error if error.is_refusal() => bad_input(error),
        error => error.into(),
    }
}

/// What a record would tell later, before the run begins.
fn tell_details(scenario: &Scenario, settings: &Settings) {
    detail!("underload {}", crate::VERSION);
    let arms = console::count(scenario.arms.len(), "arm");
    let repeats = console::count(scenario.repeats as usize, "repeat");
    detail!("{}: {arms}, {repeats}, seed {}", scenario.name, scenario.seed);
    for arm in &scenario.arms {
        detail!("  {}: {}", arm.name, arm.label());
    }
    match &settings.destination {
        Destination::Directory(path) | Destination::Resume(path) => {
            detail!("run directory: {}", path.display());
        }
        Destination::NewIn(folder) => detail!("a new run directory in {}", folder.display()),
        Destination::Memory | Destination::Caller => {}
    }
}

/// Trials that are run without being asked twice, at most.
const MOST_TRIALS: usize = 1_000_000;
/// Memory that a trial takes at the end of a run, where the report is made, at most.
const TRIAL_BYTES: usize = 3_000;

/// What a run of so many trials needs, where that is worth knowing before it starts.
fn memory_note(trials: usize) -> Option<String> {
    const WORTH_SAYING: usize = 2_000_000_000;
    let bytes = trials.saturating_mul(TRIAL_BYTES);
    let gigabytes = bytes.div_ceil(1_000_000_000);
    let note = || format!("{trials} trials: their report will take about {gigabytes} GB of memory");
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
    /// The scenario as the command line wants it.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let source = Source::find(&self.scenario).or_bad_input()?;
        let options = self.options().or_bad_input()?;
        source.scenario(&options, &self.traces).or_bad_input()
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let packets = Wanted { rows: self.packets.clone(), captures: self.pcap.clone() };
        Ok(Settings {
            world: self.world(&packets)?,
            destination: match (&self.resume, &self.out) {
                (Some(path), _) => Destination::Resume(path.clone()),
                (None, Some(path)) => Destination::Directory(path.clone()),
                (None, None) => Destination::NewIn("runs".into()),
            },
            uses_cache: !self.no_cache,
            threads: self.threads,
            packets,
            commit: COMMIT,
            ..Settings::default()
        })
    }

    /// The world as asked for; packets are recorded in virtual time only.
    fn world(&self, packets: &Wanted) -> anyhow::Result<WorldChoice> {
        match self.world {
            World::Auto if packets.is_empty() => Ok(WorldChoice::Auto),
            World::Live if packets.is_empty() => Ok(WorldChoice::Live),
            World::Kernel if packets.is_empty() => Ok(WorldChoice::Kernel),
            World::Auto | World::Sim => Ok(WorldChoice::Sim),
            World::Live | World::Kernel => Err(anyhow!(
                "--packets and --pcap record simulated packets: expected --world sim; for live \
                 ones, `underload link --log DIR` logs what its links do"
            ))
            .or_bad_input(),
        }
    }

    fn show(&self) -> Show {
        Show { json: self.json, open: self.open }
    }

    /// Prints a run that is complete; one without a valid trial has failed.
    fn present(&self, run: &Run) -> anyhow::Result<()> {
        if let Some(directory) = &run.directory {
            present::run(directory, self.show())?;
        }
        if run.record.summaries.iter().any(|summary| summary.trials_valid > 0) {
            return fail::judge(self.fail_on, run.record.expectations.iter());
        }
        bail!(
            "no trial is valid: this machine was too late or too busy, and its numbers would say \
             nothing about the queues; see the reasons above"
        )
    }

    /// Shows what is left of a run that ended early; returns what ended it.
    fn broken_off(&self, error: RunError, can_go_on: bool, interrupt: &Interrupt) -> anyhow::Error {
        match error {
            RunError::Interrupted { of, remains } => {
                let trials = remains.trials;
                let shown = self.show_what_is_left(remains, can_go_on);
                let remains = Remains { trials, ..Remains::default() };
                let interrupted = RunError::Interrupted { of, remains };
                interrupt.stopped(shown.err().unwrap_or_else(|| interrupted.into()))
            }
            RunError::Failed { source, remains } => {
                if let Err(second) = self.show_what_is_left(remains, can_go_on) {
                    warning!("no report of it: {second:#}");
                }
                (*source).into()
            }
            error => marked(error, interrupt),
        }
    }

    /// The report of the trials that were completed.
    fn show_what_is_left(&self, remains: Remains, can_go_on: bool) -> anyhow::Result<()> {
        if let Some(error) = remains.unremoved {
            return Err(error).context("removing the files of a run without a trial");
        }
        let Some(path) = remains.directory else { return Ok(()) };
        let kept = console::count(remains.trials, "completed trial");
        note!("{kept} kept in {}", path.display());
        if can_go_on {
            note!("the same command with --resume {} goes on", path.display());
        }
        present::run(&path, Show { open: false, ..self.show() })
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
            keeps_tables: false,
        })
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
