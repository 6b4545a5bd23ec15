//! What the program does beside measuring lines: all of it is left out without the feature `whole`.

use std::process::ExitCode;

use clap::Subcommand;
use underload_terminal::{console, manual, status};

#[cfg(not(namespaces))]
use crate::elsewhere::{self as kernel, self as link};
#[cfg(not(sockets))]
use crate::elsewhere::{self as fleet, self as serve};
use crate::{
    cache, check, docsis, export, figures, queues, reference, replay, report, run, scenarios, sweep,
};
#[cfg(sockets)]
use crate::{fleet, serve};
#[cfg(namespaces)]
use crate::{kernel, link};

#[derive(Subcommand)]
pub enum Command {
    /// Runs a scenario: every arm, every repeat, with a table, a record and a report.
    Run(run::Arguments),
    /// Runs a scenario over a grid of settings, or drawn ones: a million cells, one table.
    Sweep(sweep::Arguments),
    /// Lists the built-in scenarios, or prints one.
    Scenarios(scenarios::Arguments),
    /// Checks scenario files; lists every error with its line.
    Check(check::Arguments),
    /// Runs the built-in scenarios that have published numbers, and lists all of them beside ours.
    Figures(figures::Arguments),
    /// Makes one report of one or several runs, simulated and measured together.
    Report(report::Arguments),
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
    /// Many lines measured by a plan: starts `underload-fleet`, a program of its own.
    Fleet(fleet::Arguments),
    /// Cable modem configuration files: read, written, checked and tried out.
    Docsis(docsis::Arguments),
    /// The Linux kernel that runs scenarios in virtual time: installs it, or shows it.
    Kernel(kernel::Arguments),
    /// Tells how much the cache of simulated trials holds, or makes it smaller.
    Cache(cache::Arguments),
    /// Prints a script that completes commands and options in a shell.
    #[command(after_help = "Examples:
  underload completions bash > ~/.local/share/bash-completion/completions/underload
  underload completions zsh > ~/.zfunc/_underload
  underload completions fish > ~/.config/fish/completions/underload.fish")]
    Completions(manual::Completions),
    /// Prints the program's page for `man`, or writes one for each command.
    #[command(after_help = "Examples:
  underload man | man -l -
  underload man ~/.local/share/man/man1")]
    Man(manual::Manual),
    /// Prints a page of the book that follows from the program.
    #[command(hide = true)]
    Reference(reference::Arguments),
}

impl Command {
    /// Does it; `program` is the whole command line.
    pub fn run(&self, options: console::Options, program: clap::Command) -> ExitCode {
        let outcome = match self {
            Self::Run(arguments) => run::run(arguments),
            Self::Sweep(arguments) => arguments.run(),
            Self::Scenarios(arguments) => scenarios::run(arguments),
            Self::Check(arguments) => arguments.run(),
            Self::Figures(arguments) => figures::run(arguments),
            Self::Report(arguments) => report::run(arguments),
            Self::Serve(arguments) => serve::run(arguments),
            Self::Export(arguments) => export::run(arguments),
            Self::Replay(arguments) => replay::run(arguments),
            Self::Link(arguments) => return status::own_code(link::run(arguments)),
            Self::Queues(arguments) => queues::run(arguments),
            #[cfg(sockets)]
            Self::Fleet(arguments) => Err(fleet::run(arguments, options)),
            #[cfg(not(sockets))]
            Self::Fleet(arguments) => fleet::run(arguments),
            Self::Docsis(arguments) => docsis::run(arguments),
            Self::Kernel(arguments) => kernel::run(arguments),
            Self::Cache(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(program),
            Self::Man(arguments) => arguments.run(program),
            Self::Reference(arguments) => reference::run(arguments, program),
        };
        status::code(outcome)
    }
}
