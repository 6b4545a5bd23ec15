//! The commands that only the feature `whole` has.

use std::process::ExitCode;

use clap::Subcommand;
use underload_terminal::{console, manual, status};

#[cfg(shaping)]
use crate::kernel_queue;
use crate::names::with_names;
#[cfg(not(shaping))]
use crate::unsupported as kernel_queue;
#[cfg(not(namespaces))]
use crate::unsupported::{self as kernel, self as link};
#[cfg(not(sockets))]
use crate::unsupported::{self as fleet, self as serve};
use crate::{
    check, compare, docs, docsis, export, figures, question, queues, replay, report, run,
    scenarios, sweep,
};
#[cfg(sockets)]
use crate::{fleet, serve};
#[cfg(namespaces)]
use crate::{kernel, link};

#[derive(Subcommand)]
pub enum Command {
    /// Compares queues on a line that the options describe: a question without a file.
    Try(Box<question::Arguments>),
    /// Runs a scenario: every variant and trial. Writes a record and a report, prints a table.
    Run(run::Arguments),
    /// Runs a scenario over a grid of settings or over random settings.
    Sweep(sweep::Arguments),
    /// Lists the built-in scenarios, or prints one.
    Scenarios(scenarios::Arguments),
    /// Checks scenario files; lists every error with its line.
    Check(check::Arguments),
    /// Runs the built-in scenarios that have published numbers, and compares the numbers.
    Figures(figures::Arguments),
    /// Writes one report of one or several runs, simulated or measured.
    Report(report::Arguments),
    /// Compares runs after a change with runs before it: one ratio, over trials, hours or lines.
    Compare(compare::Arguments),
    /// Runs the server for `underload measure`.
    Serve(Box<serve::Arguments>),
    /// Writes the trials of a run as files of another tool.
    Export(export::Arguments),
    /// Replays recorded packets through a queue and a link.
    Replay(replay::Arguments),
    /// Runs a command behind an emulated link, as Mahimahi's shells do.
    Link(link::Arguments),
    /// Lists queues and links with their parameters, units, defaults and sources.
    Queues(queues::Arguments),
    /// Measures many access lines by a plan: starts the program `underload-fleet`.
    Fleet(fleet::Arguments),
    /// Decodes, encodes and checks cable modem configuration files.
    Docsis(docsis::Arguments),
    /// Prints a page of the documentation, found by its name or by a word.
    Docs(docs::Arguments),
    /// The Linux kernel that runs scenarios in virtual time: installs it, or shows it.
    Kernel(kernel::Arguments),
    /// Puts queues that Linux lacks into the kernel: BoDe and DOCSIS-PIE as BPF programs.
    KernelQueue(kernel_queue::Arguments),
    /// Prints a script with which a shell completes commands, options, scenarios, queues and pages.
    #[command(after_help = "\
The lines are for ~/.bashrc, for ~/.zshrc below `compinit`, and for fish's config.fish.

Examples:
  eval \"$(underload completions bash)\"
  eval \"$(underload completions zsh)\"
  underload completions fish | source")]
    Completions(manual::Completions),
    /// Prints the program's manual page, or writes one for each command.
    #[command(after_help = "Examples:
  underload man try | man -l -
  underload man --out ~/.local/share/man/man1")]
    Man(manual::Manual),
}

impl Command {
    /// `program` is the definition of the whole command line.
    #[cfg_attr(not(sockets), expect(unused_variables, reason = "only `fleet` has options"))]
    pub fn run(&self, options: console::Options, program: clap::Command) -> ExitCode {
        let outcome = match self {
            Self::Try(arguments) => arguments.run(),
            Self::Run(arguments) => run::run(arguments),
            Self::Sweep(arguments) => arguments.run(),
            Self::Scenarios(arguments) => scenarios::run(arguments),
            Self::Check(arguments) => arguments.run(),
            Self::Figures(arguments) => figures::run(arguments),
            Self::Report(arguments) => report::run(arguments),
            Self::Compare(arguments) => arguments.run(),
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
            Self::Docs(arguments) => docs::run(arguments),
            Self::Kernel(arguments) => kernel::run(arguments),
            Self::KernelQueue(arguments) => kernel_queue::run(arguments),
            Self::Completions(arguments) => arguments.run(with_names(program)),
            Self::Man(arguments) => arguments.run(program),
        };
        status::code(outcome)
    }
}
