//! The `underload-fleet` program, which `underload fleet` runs: measures many lines by a plan.
//!
//! A library, so that the test of the documentation can read its command line.

mod audit;
mod backup;
mod certificate;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(not(target_os = "linux"))]
#[path = "no_demo.rs"]
mod demo;
mod lines;
mod operate;
mod orchestrator;
mod print;
mod rollout;
mod service;
mod study;
mod token;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use underload_agent::device::{self, End};
use underload_aqm::time::Span;
use underload_disk as disk;
use underload_fleet::admission::Rules;
use underload_fleet::plan::{
    BUILT_IN, BYTES_MAX, Excess, LINES_MAX, Load, Plan, SERVERS_MAX, servers_for,
};
use underload_fleet::simulate::{DAYS_MAX, Settings, simulate};
use underload_terminal::console::{self, warning};
use underload_terminal::exit::{OrBadInput, bad_input};
use underload_terminal::help::{asks_for_all, with_help, with_rare_options};
use underload_terminal::interrupt::Interrupt;
use underload_terminal::manual::{Completions, Manual};
use underload_terminal::quantity::percent;
use underload_terminal::{STARTED_BY, VERSION, status};

/// Many lines measured by a plan: its load, admission, results, studies.
#[derive(Debug, Parser)]
#[command(
    name = "underload-fleet",
    version = VERSION,
    max_term_width = 100,
    after_help = "Examples:
  underload fleet demo
  underload fleet plan show low-latency-trial
  underload fleet simulate --plan low-latency-trial --devices 250k"
)]
struct CommandLine {
    #[command(flatten)]
    console: console::Options,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Checks, applies, stops and prints plans: what to measure on which lines.
    #[command(after_help = "Examples:
  underload fleet plan show low-latency-trial > my-plan.toml
  underload fleet plan check my-plan.toml
  underload fleet plan apply my-plan.toml")]
    Plan {
        #[command(subcommand)]
        action: PlanAction,
    },
    /// Runs a whole fleet on this machine, on emulated lines, and shows its pages in a browser.
    Demo(demo::Arguments),
    /// Admits runs, collects their results, and shows them in a browser.
    Orchestrator(orchestrator::Arguments),
    /// Makes and revokes the tokens of people who may read results or operate the fleet.
    Token(token::Arguments),
    /// Prints the log of operators' actions.
    Audit(audit::Arguments),
    /// Makes codes with which devices and servers enrol.
    Code(Box<operate::Codes>),
    /// Records lines: their names, identifiers, and attributes over time.
    #[command(after_help = "Examples:
  underload fleet lines import lines.csv
  underload fleet lines set ACC-1001 configured=docsis-pie --from 2026-11-02
  underload fleet lines list miller")]
    Lines {
        #[command(subcommand)]
        action: lines::Lines,
    },
    /// Removes a device or a server for good.
    Remove(operate::Remove),
    /// Sends agents to another address of a measurement server.
    Server(operate::Server),
    /// A device: measures this line by a plan, as an orchestrator admits it.
    #[command(after_help = "Examples:
  underload fleet agent --orchestrator https://fleet.example --state /var/lib/underload-agent \\
    --enrol CODE --model XB7
  underload fleet agent --orchestrator https://fleet.example --state /var/lib/underload-agent")]
    Agent(Box<underload_agent::arguments::Arguments>),
    /// Simulates days of millions of lines in virtual time, by the rules that admit real runs.
    Simulate(Simulate),
    /// Compares the groups of lines of a plan by the collected results.
    Study(study::Arguments),
    /// Changes the configuration of lines in stages, which stop on measured latency.
    Rollout(rollout::Arguments),
    /// Copies a store into a folder, also while orchestrators use it.
    Backup(backup::Backup),
    /// Creates a store from a backup, whose files it verifies.
    Restore(backup::Restore),
    /// Prints a script that completes commands and options in a shell.
    #[command(after_help = "Examples:
  underload fleet completions bash > ~/.local/share/bash-completion/completions/underload-fleet")]
    Completions(Completions),
    /// Prints the program's page for `man`, or writes one for each command.
    #[command(after_help = "Examples:
  underload fleet man plan show | man -l -
  underload fleet man --out ~/.local/share/man/man1")]
    Man(Manual),
}

#[derive(Debug, Subcommand)]
enum PlanAction {
    /// Prints the load of a plan; status 1 if the load exceeds a budget of the plan, or if the
    /// plan's last day is over.
    #[command(after_help = "Examples:
  underload fleet plan check low-latency-trial
  underload fleet plan check my-plan.toml --json")]
    Check {
        /// A plan's file, or the name of a built-in plan.
        plan: String,
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Prints the load of a plan and starts it, unless the load exceeds the plan's budget.
    Apply(operate::Apply),
    /// Stops a plan for good. Runs under way finish.
    Stop(operate::StopPlan),
    /// Prints a built-in plan, to write one's own from; without a name, lists them.
    #[command(after_help = "Examples:
  underload fleet plan show
  underload fleet plan show comcast-study > my-plan.toml")]
    Show {
        /// The name of a built-in plan.
        plan: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet simulate --plan low-latency-trial
  underload fleet simulate --plan low-latency-trial --devices 10M --servers 0")]
struct Simulate {
    /// A plan's file, or the name of a built-in plan.
    #[arg(long)]
    plan: String,
    /// Number of lines (10000, 250k, 10M) [default: the plan's].
    #[arg(long, value_name = "COUNT", value_parser = devices)]
    devices: Option<u32>,
    /// Number of servers [default: the plan's]; 0: as few as refuse at most 1 % of runs.
    #[arg(long, value_name = "COUNT", value_parser = up_to(0, SERVERS_MAX))]
    servers: Option<u32>,
    /// Number of days to simulate.
    #[arg(long, default_value_t = 1, value_parser = up_to(1, DAYS_MAX))]
    days: u32,
    /// Seed of random numbers; equal seeds give equal days.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Percentage of lines that vanish during a run and never return their lease.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    vanishing: f64,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

fn up_to(least: u32, most: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

/// Parses a number of lines, with `k` for thousands or `M` for millions.
fn devices(text: &str) -> Result<u32, String> {
    let (number, scale) = match text.strip_suffix(['k', 'K', 'M']) {
        Some(number) if text.ends_with('M') => (number, 1_000_000),
        Some(number) => (number, 1_000),
        None => (text, 1),
    };
    let count = number.parse::<u32>().ok().and_then(|number| number.checked_mul(scale));
    let is_possible = |count: &u32| (1..=LINES_MAX).contains(count);
    count.filter(is_possible).ok_or_else(|| format!("expected 1 to {LINES_MAX}, such as 10M"))
}

/// Returns the definition of the command line.
pub fn command() -> clap::Command {
    with_help(CommandLine::command())
}

/// Runs the program and returns its exit status.
pub fn main() -> ExitCode {
    let command = command().color(console::color_asked(std::env::args_os()));
    let is_all = asks_for_all(std::env::args_os());
    let command = if is_all { with_rare_options(command) } else { command };
    let read = CommandLine::from_arg_matches(&command.get_matches());
    let command_line = read.unwrap_or_else(|error| error.exit());
    command_line.console.apply();
    if let Some(differs) = other_version(std::env::var_os(STARTED_BY)) {
        warning!("{differs}");
    }
    status::code(command_line.action.run())
}

/// Returns a warning if the program that started this one has another version.
fn other_version(started_by: Option<OsString>) -> Option<String> {
    let started_by = started_by.filter(|version| version != VERSION)?;
    let started_by = started_by.display();
    Some(format!(
        "warning: underload is {started_by} and underload-fleet is {VERSION}: install both of one \
         version"
    ))
}

impl Action {
    fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Plan { action: PlanAction::Check { plan, json } } => check(plan, *json),
            Self::Plan { action: PlanAction::Apply(it) } => {
                check(&it.plan, false)?;
                it.apply(&text(&it.plan)?)
            }
            Self::Plan { action: PlanAction::Stop(it) } => it.run(),
            Self::Plan { action: PlanAction::Show { plan } } => show(plan.as_deref()),
            Self::Demo(arguments) => arguments.run(),
            Self::Orchestrator(arguments) => arguments.run(),
            Self::Token(arguments) => arguments.run(),
            Self::Audit(arguments) => arguments.run(),
            Self::Code(arguments) => arguments.run(),
            Self::Lines { action } => action.run(),
            Self::Remove(arguments) => arguments.run(),
            Self::Server(arguments) => arguments.run(),
            Self::Agent(arguments) => measure_as_device(arguments),
            Self::Simulate(arguments) => arguments.run(),
            Self::Study(arguments) => arguments.run(),
            Self::Rollout(arguments) => arguments.run(),
            Self::Backup(arguments) => arguments.run(),
            Self::Restore(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(command()),
            Self::Man(arguments) => arguments.run(command()),
        }
    }
}

/// Runs as a device until a signal stops it or an orchestrator removes the device.
fn measure_as_device(arguments: &underload_agent::arguments::Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::watch()?;
    let stop = interrupt.shared();
    let tell = |words: &str| warning!("{words}");
    let end = device::run(arguments.config(&stop), &stop, &tell).context("the agent")?;
    if end == End::Removed {
        warning!("an orchestrator has removed this device: it stops for good");
    }
    Ok(())
}

/// Returns the built-in plan with that name, or parses the file at that path.
fn find(name: &str) -> anyhow::Result<Plan> {
    Plan::parse(&text(name)?).with_context(|| name.to_owned()).or_bad_input()
}

/// Returns the text of the built-in plan with that name, or of the file at that path.
fn text(name: &str) -> anyhow::Result<String> {
    Plan::built_in(name).map_or_else(|| read(name).or_bad_input(), |text| Ok(text.to_owned()))
}

fn read(path: &str) -> anyhow::Result<String> {
    let text = disk::read_file(Path::new(path), BYTES_MAX as u64).map_err(|error| {
        let is_name = Path::new(path).extension().is_none();
        let built_in = BUILT_IN.map(|(name, _)| name).join(", ");
        let hint = if is_name { format!("; built-in plans are {built_in}") } else { String::new() };
        anyhow!("{path}: {error}{hint}")
    })?;
    String::from_utf8(text).with_context(|| path.to_owned())
}

fn show(name: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = name else {
        let row = |(name, text): (&str, &str)| {
            let title = Plan::parse(text).map(|plan| plan.title).unwrap_or_default();
            format!("{name}\n    {title}\n")
        };
        return console::print(&BUILT_IN.map(row).concat());
    };
    let Some(text) = Plan::built_in(name) else {
        let built_in = BUILT_IN.map(|(name, _)| name).join(", ");
        return Err(bad_input(anyhow!("no built-in plan `{name}`; expected one of {built_in}")));
    };
    console::print(text)
}

/// The output of `fleet plan check --json`.
#[derive(serde::Serialize)]
struct Checked<'a> {
    title: &'a str,
    load: &'a Load,
    servers_for_one_percent_blocked: Option<u32>,
    excesses: &'a [Excess],
    is_over: bool,
}

/// Share of the runs that a well-sized pool of servers may refuse.
const WELL_SIZED: f64 = 0.01;

fn check(name: &str, is_json: bool) -> anyhow::Result<()> {
    let plan = find(name)?;
    let load = Load::of(&plan);
    let excesses = load.excesses(&plan);
    let needed = servers_for(&plan, WELL_SIZED);
    let is_over = plan.is_over(underload_orchestrator::http::system_ms());
    if is_json {
        console::print_json(&Checked {
            title: &plan.title,
            load: &load,
            servers_for_one_percent_blocked: needed,
            excesses: &excesses,
            is_over,
        })?;
    } else {
        console::print(&print::load(&plan, &load, needed))?;
    }
    for cohort in plan.empty_cohorts() {
        warning!(
            "warning: cohort `{cohort}` can have no line: `where` is an empty list, or earlier \
             cohorts match all its lines"
        );
    }
    if is_over {
        bail!("until: the plan's last day is over");
    }
    if excesses.is_empty() {
        return Ok(());
    }
    let excesses: Vec<String> = excesses.iter().map(print::excess).collect();
    bail!("the plan exceeds its budget: {}", excesses.join(", "))
}

impl Simulate {
    fn run(&self) -> anyhow::Result<()> {
        let mut plan = find(&self.plan)?;
        if let Some(devices) = self.devices {
            plan.lines.count = devices;
            plan.lines.sample = devices;
            plan.lines.per_segment = plan.lines.per_segment.min(devices);
        }
        match self.servers {
            Some(0) => {
                let needed = servers_for(&plan, WELL_SIZED);
                plan.servers.count = needed.context("no number of servers suffices")?;
            }
            Some(count) => plan.servers.count = count,
            None => {}
        }
        let settings = |rules| Settings {
            seed: self.seed,
            days: self.days,
            vanishing: self.vanishing / 100.0,
            rules,
        };
        let bar = bar(self.days);
        let mut progress = |passed: Span| bar.set_position(passed.as_nanos() / HOUR_NS);
        let ruled = simulate(&plan, &settings(Rules::default()), &mut progress);
        let free = Rules { loaded_per_segment: None, ..Rules::default() };
        let free = plan.loads_lines().then(|| {
            bar.reset();
            bar.set_message("again, without a limit of loads per segment");
            simulate(&plan, &settings(free), &mut progress)
        });
        bar.finish_and_clear();
        if self.json {
            let outcomes = serde_json::json!({ "admitted": ruled, "without_segment_limit": free });
            return console::print_json(&outcomes);
        }
        console::print(&print::outcome(&plan, &ruled, free.as_ref()))
    }
}

const HOUR_NS: u64 = 3_600 * 1_000_000_000;

fn bar(days: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(days) * 24);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} h {elapsed_precise} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
    }

    #[test]
    fn a_different_version_is_reported() {
        assert_eq!(other_version(None), None);
        assert_eq!(other_version(Some(VERSION.into())), None);
        let told = other_version(Some("0.0.9 (abc)".into())).expect("it differs");
        assert!(told.contains("0.0.9 (abc)") && told.contains(VERSION), "{told}");
    }

    #[test]
    fn devices_are_counted_in_thousands_and_millions() {
        for (text, count) in [("1", 1), ("250k", 250_000), ("10M", 10_000_000)] {
            assert_eq!(devices(text), Ok(count));
        }
        for wrong in ["0", "", "k", "-1", "1G", "101M", "99999999999", "1.5M"] {
            assert!(devices(wrong).is_err(), "{wrong}");
        }
    }
}
