//! The `underload` program: parse the command line, call a library, print.
//!
//! One module per subcommand, each with its `Arguments` and `run`. Data goes to stdout, progress
//! and prose to stderr. Exit status: 0 done, 1 the run failed, 2 bad input ([`exit`]).

mod exit;
mod link_spec;
mod queues;
mod replay;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures, explains and fixes latency under load.
#[derive(Parser)]
#[command(name = "underload", version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario: every arm, every repeat, with a table, a record and a report.
    Run(run::Arguments),
    /// Replays packets through a queue and a link: what would they have done to them?
    Replay(replay::Arguments),
    /// Lists queues and links with their parameters, units, defaults and sources.
    Queues(queues::Arguments),
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let outcome = match &command_line.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Queues(arguments) => queues::run(arguments),
    };
    exit::code(outcome)
}
