//! The `underload` program: parse the command line, call a library, print.
//!
//! One module per subcommand, each with its `Arguments` and `run`. Data goes to stdout, progress
//! and prose to stderr. Exit status: 0 done, 1 the run failed, 2 bad input, 130 and 143 stopped by
//! Ctrl-C or SIGTERM ([`status`]).

mod cache;
mod check;
mod console;
mod docsis;
#[cfg(test)]
mod documents;
mod exit;
mod export;
mod fail;
mod figures;
mod fleet;
mod help;
mod history;
mod home;
mod interrupt;
mod link;
mod manual;
mod measure;
mod meter;
mod path;
mod present;
mod progress;
mod quantity;
mod queues;
mod reference;
mod replay;
mod report;
mod run;
mod scenarios;
mod serve;
mod status;
mod survey;
mod sweep;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Measures, explains and fixes latency under load.
#[derive(Parser)]
#[command(name = "underload", version = VERSION, max_term_width = 100)]
struct CommandLine {
    #[command(flatten)]
    console: console::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario: every arm, every repeat, with a table, a record and a report.
    Run(run::Arguments),
    /// Runs a scenario over a grid of settings, or drawn ones: a million cells, one table.
    Sweep(sweep::Arguments),
    /// Lists the built-in scenarios, or prints one.
    Scenarios(scenarios::Arguments),
    /// Tells all that is wrong with scenario files, each mistake with its line.
    Check(check::Arguments),
    /// Runs the built-in scenarios that have published numbers, and lists all of them beside ours.
    Figures(figures::Arguments),
    /// Makes one report of one or several runs, simulated and measured together.
    Report(report::Arguments),
    /// Measures latency under load over a real network, against `underload serve`.
    Measure(Box<measure::Arguments>),
    /// A line over weeks: what is usual, what has changed, at what hour.
    History(history::Arguments),
    /// Round trips to many hosts, a few probes each, as a table and a distribution.
    Survey(survey::Arguments),
    /// Which markings survive a path and which queue is at its bottleneck, with a server's help.
    Path(path::Arguments),
    /// The far end of `underload measure`, on a machine of yours.
    Serve(Box<serve::Arguments>),
    /// Writes the trials of a run as files of another tool.
    Export(export::Arguments),
    /// Replays packets through a queue and a link: what would they have done to them?
    Replay(replay::Arguments),
    /// Runs a command behind an emulated link, as Mahimahi's shells do.
    Link(link::Arguments),
    /// Lists queues and links with their parameters, units, defaults and sources.
    Queues(queues::Arguments),
    /// What measuring many lines costs: plans, admission, days in virtual time.
    Fleet(fleet::Arguments),
    /// Cable modem configuration files: read, written, checked and tried out.
    Docsis(docsis::Arguments),
    /// Tells how much the cache of simulated trials holds, or makes it smaller.
    Cache(cache::Arguments),
    /// Prints a script that completes commands and options in a shell.
    Completions(manual::Completions),
    /// Prints the program's page for `man`, or writes one for each command.
    Man(manual::Manual),
    /// Prints a page of the book that follows from the program.
    #[command(hide = true)]
    Reference(reference::Arguments),
}

/// The version, and the commit that it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("UNDERLOAD_COMMIT"), ")");

/// The command line as it is parsed, explained and completed.
fn command() -> clap::Command {
    help::grouped(CommandLine::command())
}

/// What was typed; a mistake, or a wish for help, ends the program.
fn typed() -> CommandLine {
    let command = command().color(console::color_asked(std::env::args_os()));
    let read = CommandLine::from_arg_matches(&command.get_matches());
    read.unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    let command_line = typed();
    command_line.console.apply();
    let outcome = match &command_line.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Sweep(arguments) => arguments.run(),
        Command::Scenarios(arguments) => scenarios::run(arguments),
        Command::Check(arguments) => arguments.run(),
        Command::Figures(arguments) => figures::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Measure(arguments) => measure::run(arguments),
        Command::History(arguments) => return status::own_code(history::run(arguments)),
        Command::Survey(arguments) => survey::run(arguments),
        Command::Path(arguments) => path::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Link(arguments) => return status::own_code(link::run(arguments)),
        Command::Queues(arguments) => queues::run(arguments),
        Command::Fleet(arguments) => fleet::run(arguments),
        Command::Docsis(arguments) => docsis::run(arguments),
        Command::Cache(arguments) => arguments.run(),
        Command::Completions(arguments) => arguments.run(command()),
        Command::Man(arguments) => arguments.run(command()),
        Command::Reference(arguments) => reference::run(arguments),
    };
    status::code(outcome)
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
    }
}
