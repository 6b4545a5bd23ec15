//! `underload run`: runs a scenario, records it and writes a report.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use underload_run::packets::Point;
use underload_run::{Destination, Remains, Run, RunError, Settings, WorldChoice, keeps_samples};
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario};
use underload_store::RunDir;
use underload_terminal::console::{self, detail, note, shell_word, warning};
use underload_terminal::exit::{OrBadInput, bad_input, refuse};
use underload_terminal::interrupt::Interrupt;
use underload_terminal::{VERSION, quantity};

use crate::fail::{self, FailOn};
use crate::live_page::LivePage;
use crate::present::{Show, refuse_occupied};
use crate::progress::Terminal;
use crate::report::show_run;

pub use underload_terminal::COMMIT;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "command-line switches")]
#[command(after_help = "\
Exit status: 0 done, 1 failed or no trial is valid, 2 bad input, 130 stopped by Ctrl-C, 143 by
SIGTERM: finished trials are stored and shown.

Examples:
  underload run comcast/upstream
  underload run comcast/upstream --short --world live
  underload run my.toml --variant codel --variant docsis-pie --repeat 10 --out runs/first
  underload run bode/figure-01-call --set path.up=20mbit --json
  underload run my.toml --resume runs/first")]
pub struct Arguments {
    /// A scenario file, or the name of a built-in one (see `underload scenarios`).
    pub scenario: String,
    /// Where the scenario runs.
    #[arg(long, default_value = "auto", value_parser = world())]
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
    /// The run directory, which must be new or empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Continues the interrupted run in this directory; the other options must be the same as then.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Overrides a key of the scenario, such as `--set path.up=20mbit`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Recorded links in Mahimahi's format, plain or .gz, which replace the links that the scenario
    /// sweeps over: one variant per file, named after it.
    #[arg(long, value_name = "FILE", num_args = 1.., hide_short_help = true)]
    pub traces: Vec<String>,
    /// Prints the run as one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Opens the report in a browser.
    #[arg(long)]
    pub open: bool,
    /// Rewrites the report while the run goes on, at most once a second; the page reloads itself.
    /// With --open it is opened after the first trial.
    #[arg(long)]
    pub watch: bool,
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

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // An occupied directory is refused before anything takes time or writes a file.
    if let Some(out) = &arguments.out {
        refuse_occupied(RunDir::check_vacant(out))?;
    }
    let scenario = arguments.scenario()?;
    check_size(scenario.trials(), arguments.yes)?;
    let settings = arguments.settings();
    let outcome = Outcome {
        show: Show { json: arguments.json, open: arguments.open },
        fail_on: arguments.fail_on,
        watch: arguments.watch,
    };
    run_and_show(&scenario, settings, outcome)
}

/// Runs a scenario with progress on stderr, and prints its result.
pub fn run_and_show(
    scenario: &Scenario,
    settings: Settings,
    mut outcome: Outcome,
) -> anyhow::Result<()> {
    print_details(scenario, &settings);
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    let mut progress = Terminal::default();
    if outcome.watch {
        progress.live_page = Some(LivePage::new(outcome.show.open));
    }
    let result = underload_run::run(scenario, &settings, &mut progress);
    // The browser that shows the page of the run under way will show the final one.
    outcome.show.open &= !progress.live_page.is_some_and(|page| page.is_written);
    match result {
        Ok(run) => outcome.present(&run),
        Err(error) => Err(outcome.present_rest(error, keeps_samples(scenario), &interrupt)),
    }
}

/// Runs a scenario, with progress on stderr and without a report.
pub fn run_only(scenario: &Scenario, settings: Settings) -> anyhow::Result<Run> {
    check_size(scenario.trials(), false)?;
    let interrupt = Interrupt::watch()?;
    let settings = Settings { stop: interrupt.shared(), ..settings };
    let run = underload_run::run(scenario, &settings, &mut Terminal::default());
    run.map_err(|error| marked(error, &interrupt))
}

/// Returns where a run is stored, by the options `--resume` and `--out`.
pub fn destination(resume: Option<&PathBuf>, out: Option<&PathBuf>) -> Destination {
    match (resume, out) {
        (Some(path), _) => Destination::Resume(path.clone()),
        (None, Some(path)) => Destination::Directory(path.clone()),
        (None, None) => Destination::NewIn("runs".into()),
    }
}

fn world() -> impl TypedValueParser<Value = WorldChoice> {
    let value =
        |(_, name, about): (_, &'static str, &'static str)| PossibleValue::new(name).help(about);
    let values = PossibleValuesParser::new(WorldChoice::ALL.map(value));
    values.map(|name| WorldChoice::named(&name).unwrap_or_default())
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
    let repeats = console::count(scenario.repeats as usize, "repeat");
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

/// More trials need --yes.
const MOST_TRIALS: usize = 1_000_000;
/// Largest memory per trial, for the report at the end of a run.
const TRIAL_BYTES: usize = 3_000;

/// Refuses too many trials without --yes. Prints a note if the report will need much memory.
fn check_size(trials: usize, yes: bool) -> anyhow::Result<()> {
    const NOTE_BYTES: usize = 2_000_000_000;
    if trials > MOST_TRIALS && !yes {
        refuse!(
            "{trials} trials are more than {MOST_TRIALS}: confirm with --yes, or run fewer with \
             --repeat or --variant"
        );
    }
    let bytes = trials.saturating_mul(TRIAL_BYTES);
    if bytes >= NOTE_BYTES {
        let gigabytes = bytes.div_ceil(1_000_000_000);
        note!("{trials} trials: their report will need about {gigabytes} GB of memory");
    }
    Ok(())
}

impl Arguments {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let source = Source::find(&self.scenario).or_bad_input()?;
        let options = self.options().or_bad_input()?;
        source.scenario(&options, &self.traces).or_bad_input()
    }

    fn settings(&self) -> Settings {
        Settings {
            world: self.world,
            destination: destination(self.resume.as_ref(), self.out.as_ref()),
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
    /// Whether the report is written during the run, too.
    pub watch: bool,
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
        bail!(
            "no trial is valid: this machine was too late or too busy, so its numbers would say \
             nothing about the queues; see the reasons above"
        )
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
