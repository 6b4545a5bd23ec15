//! `underload run`: runs a scenario, records it and writes a report.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use underload_record::schema::Validity;
use underload_run::packets::Point;
use underload_run::{Destination, Remains, Run, RunError, Settings, WorldChoice, keeps_samples};
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario};
use underload_store::{RunDir, StoreError};
use underload_terminal::console::{self, detail, note, shell_word, warning};
use underload_terminal::exit::{OrBadInput, bad_input, refuse};
use underload_terminal::help::choices;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::{VERSION, quantity};

use crate::fail::{self, FailOn};
use crate::present::Show;
use crate::progress::Terminal;
use crate::report::show_run;

pub use underload_terminal::COMMIT;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 failed or no trial is valid, 2 bad input, 130 stopped by Ctrl-C, 143 by
SIGTERM: finished trials are stored and shown.

Examples:
  underload run comcast/upstream
  underload run comcast/upstream --short --world live
  underload run my.toml --variant codel --variant docsis-pie --repeat 10 --out runs/first
  underload run bode/figure-01-call --set path.up=20mbit --json
  underload run my.toml --variant codel --variant docsis-pie --repeat 10 --resume runs/first")]
pub struct Arguments {
    /// A scenario file, or the name of a built-in one (see `underload scenarios`).
    pub scenario: String,
    /// Where the scenario runs.
    #[arg(long, default_value = "auto", value_parser = choices(WorldChoice::ALL))]
    pub world: WorldChoice,
    /// Runs only this variant; may be given several times.
    #[arg(long = "variant", value_name = "NAME")]
    pub variants: Vec<String>,
    /// Trials of each variant [default: that of the scenario].
    #[arg(long = "repeat", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: Option<u32>,
    /// Seed of the random numbers [default: that of the scenario].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub stored: Stored,
    /// Overrides a key of the scenario, such as `--set path.up=20mbit`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Recorded links in Mahimahi's format, plain or .gz, which replace the links that the scenario
    /// sweeps over: one variant per file, named after it.
    #[arg(long, value_name = "FILE", num_args = 1.., hide_short_help = true)]
    pub traces: Vec<String>,
    #[command(flatten)]
    pub show: Show,
    /// When to exit with status 1, besides a run without a valid trial.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FailOn::Never)]
    #[arg(hide_short_help = true)]
    pub fail_on: FailOn,
    /// Runs the scenario's short form: fewer and shorter trials.
    #[arg(long)]
    pub short: bool,
    /// Computes every simulated trial, even if the cache has it: runs of 32 trials or more store
    /// theirs in $XDG_CACHE_HOME/underload (~/.cache/underload), at most 4 GiB.
    #[arg(long, hide_short_help = true)]
    pub no_cache: bool,
    /// Runs more than a million trials.
    #[arg(long, hide_short_help = true)]
    pub yes: bool,
    /// Trials to simulate in parallel; does not change the result [default: one per core].
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = quantity::threads)]
    pub threads: Option<NonZeroUsize>,
    /// Captures simulated packets for Wireshark in captures/TRIAL-POINT.pcapng. A point is client,
    /// server, or up or down with arrival, mark, drop, departure or delivery: up.departure.
    #[arg(long, value_name = "POINT,...", value_delimiter = ',', hide_short_help = true)]
    pub pcap: Vec<Point>,
}

/// The directory that stores a run: options of every command that runs a scenario.
#[derive(Debug, Args)]
pub struct Stored {
    /// The run directory, which must be new or empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continues the interrupted run in this directory; the other options must be the same as then.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before anything that takes time or writes a file.
    let destination = arguments.stored.destination()?;
    let scenario = arguments.scenario()?;
    check_size(scenario.trials(), arguments.yes)?;
    let settings = arguments.settings(destination);
    let outcome = Outcome { show: arguments.show, fail_on: arguments.fail_on };
    run_and_show(&scenario, settings, outcome)
}

/// Runs a scenario with progress on stderr, and prints its result.
pub fn run_and_show(
    scenario: &Scenario,
    settings: Settings,
    outcome: Outcome,
) -> anyhow::Result<()> {
    print_details(scenario, &settings);
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    match underload_run::run(scenario, &settings, &mut Terminal::new()) {
        Ok(run) => outcome.present(&run),
        Err(error) => Err(outcome.present_rest(error, keeps_samples(scenario), &interrupt)),
    }
}

/// Runs a scenario, with progress on stderr and without a report.
pub fn run_only(scenario: &Scenario, settings: Settings) -> anyhow::Result<Run> {
    check_size(scenario.trials(), false)?;
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    let run = underload_run::run(scenario, &settings, &mut Terminal::new());
    run.map_err(|error| marked(error, &interrupt))
}

impl Stored {
    /// Returns where the run is stored. Refuses an occupied directory.
    pub fn destination(&self) -> anyhow::Result<Destination> {
        Ok(match (&self.resume, &self.out) {
            (Some(path), _) => Destination::Resume(path.clone()),
            (None, Some(path)) => {
                RunDir::check_vacant(path).bad_input_if(StoreError::is_occupied)?;
                Destination::Directory(path.clone())
            }
            (None, None) => Destination::NewIn("runs".into()),
        })
    }
}

/// Marks refusals as bad input, and interruptions as stopped.
fn marked(error: RunError, interrupt: &Interrupt) -> anyhow::Error {
    match error {
        RunError::Failed { source, .. } => (*source).into(),
        RunError::Interrupted { .. } => interrupt.stopped(error.into()),
        error if error.is_refusal() => bad_input(error),
        error => error.into(),
    }
}

/// Prints, with --verbose, what the record will contain.
fn print_details(scenario: &Scenario, settings: &Settings) {
    detail!("underload {VERSION}");
    let variants = console::count(scenario.variants.len(), "variant");
    let repeats = console::count(scenario.repeats, "repeat");
    detail!("{}: {variants}, {repeats}, seed {}", scenario.name, scenario.seed);
    for variant in &scenario.variants {
        detail!("  {}: {}", variant.name, variant.label());
    }
    match &settings.destination {
        Destination::Directory(path) | Destination::Resume(path) => {
            detail!("run directory: {}", path.display());
        }
        Destination::NewIn(folder) => detail!("a new run directory in {}", folder.display()),
        Destination::Memory | Destination::Caller => {}
    }
}

/// More trials need --yes: the report at the end of a run needs up to 3 kB of memory for each.
const MOST_TRIALS: usize = 1_000_000;

/// Refuses too many trials without --yes.
fn check_size(trials: usize, yes: bool) -> anyhow::Result<()> {
    if trials > MOST_TRIALS && !yes {
        refuse!(
            "{trials} trials are more than {MOST_TRIALS}: confirm with --yes, or run fewer with \
             --repeat or --variant"
        );
    }
    Ok(())
}

impl Arguments {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let source = Source::find(&self.scenario).or_bad_input()?;
        let options = self.options().or_bad_input()?;
        source.scenario(&options, &self.traces).or_bad_input()
    }

    fn settings(&self, destination: Destination) -> Settings {
        Settings {
            world: self.world,
            destination,
            uses_cache: !self.no_cache,
            threads: self.threads,
            captures: self.pcap.clone(),
            commit: COMMIT,
            ..Settings::default()
        }
    }

    fn options(&self) -> anyhow::Result<Options> {
        let links = self.traces.iter().map(|file| recorded_link(file));
        Ok(Options {
            short: self.short,
            set: self.overrides.clone(),
            links: links.collect::<anyhow::Result<_>>()?,
            variants: self.variants.clone(),
            repeats: self.repeats,
            seed: self.seed,
            ..Options::default()
        })
    }
}

/// How the result of a run is printed and judged.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub show: Show,
    pub fail_on: FailOn,
}

impl Outcome {
    /// Prints a complete run. Fails if it has no valid trial.
    fn present(self, run: &Run) -> anyhow::Result<()> {
        if let Some(directory) = &run.directory {
            show_run(directory, self.show)?;
        }
        if run.record.summaries.iter().any(|summary| summary.trials_valid > 0) {
            return fail::judge(self.fail_on, run.record.expectations.iter());
        }
        let invalid = || run.record.trials.iter().map(|trial| &trial.validity);
        if invalid().all(Validity::is_busy_machine) {
            bail!(
                "no trial is valid: this machine was too late or too busy, so its numbers would \
                 say nothing about the queues; see the reasons above"
            );
        }
        let reason = invalid().flat_map(Validity::reasons_in_words).next().unwrap_or_default();
        bail!("no trial is valid: {reason}; see the reasons above")
    }

    /// Shows the finished trials of a run that ended early. Returns the error of the run.
    fn present_rest(
        self,
        error: RunError,
        can_resume: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Error {
        match error {
            RunError::Interrupted { of, remains } => {
                let trials = remains.trials;
                let shown = self.show_remains(remains, can_resume);
                let remains = Remains { trials, ..Remains::default() };
                let interrupted = RunError::Interrupted { of, remains };
                interrupt.stopped(shown.err().unwrap_or_else(|| interrupted.into()))
            }
            RunError::Failed { source, remains } => {
                if let Err(second) = self.show_remains(remains, can_resume) {
                    warning!("no report of the finished trials: {second:#}");
                }
                (*source).into()
            }
            error => marked(error, interrupt),
        }
    }

    fn show_remains(self, remains: Remains, can_resume: bool) -> anyhow::Result<()> {
        if let Some(error) = remains.unremoved {
            return Err(error).context("removing the files of a run without a trial");
        }
        let Some(path) = remains.directory else { return Ok(()) };
        let trials = console::count(remains.trials, "completed trial");
        note!("{trials} stored in {}", path.display());
        if can_resume {
            note!("the same command with --resume {} continues", shell_word(&path));
        }
        show_run(&path, Show { open: false, ..self.show })
    }
}

/// Returns name and SPEC of a recording: its file's name without directories and endings.
fn recorded_link(file: &str) -> anyhow::Result<(String, String)> {
    if file.contains(['[', ']', ',', '=']) {
        bail!("--traces {file}: expected a file name without [ ] , =");
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let name = [".trace", ".pps"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    Ok((name.chars().map(plain).collect(), format!("trace:{file},profile=mahimahi")))
}
