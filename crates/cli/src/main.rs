//! The `underload` program: parse the command line, call a library, print.
//!
//! One module per subcommand, each with its `Arguments` and `run`. Without the feature `whole` only
//! those are there that measure lines, for small machines. Data goes to stdout, progress
//! and prose to stderr. Exit status: 0 done, 1 the run failed, 2 bad input, 130 and 143 stopped by
//! Ctrl-C or SIGTERM ([`status`]).

#![cfg_attr(
    not(all(feature = "whole", sockets)),
    allow(dead_code, unused_imports, unused_macros, reason = "what the other commands use, too")
)]

#[cfg(feature = "whole")]
mod cache;
#[cfg(feature = "whole")]
mod check;
#[cfg(feature = "whole")]
mod docsis;
#[cfg(all(test, feature = "whole"))]
mod documents;
#[cfg(not(namespaces))]
mod elsewhere;
#[cfg(feature = "whole")]
mod export;
#[cfg(feature = "whole")]
mod fail;
#[cfg(feature = "whole")]
mod figures;
#[cfg(all(feature = "whole", sockets))]
mod fleet;
mod help;
#[cfg(sockets)]
mod history;
#[cfg(namespaces)]
mod kernel;
#[cfg(namespaces)]
mod link;
#[cfg(sockets)]
mod measure;
#[cfg(namespaces)]
mod meter;
#[cfg(sockets)]
mod path;
mod present;
#[cfg(feature = "whole")]
mod progress;
#[cfg(feature = "whole")]
mod queues;
#[cfg(feature = "whole")]
mod reference;
#[cfg(feature = "whole")]
mod replay;
#[cfg(feature = "whole")]
mod report;
#[cfg(feature = "whole")]
mod run;
#[cfg(feature = "whole")]
mod scenarios;
#[cfg(all(feature = "whole", sockets))]
mod serve;
#[cfg(sockets)]
mod survey;
#[cfg(feature = "whole")]
mod sweep;
#[cfg(feature = "whole")]
mod whole;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use underload_terminal::{VERSION, console, quantity, status};

#[cfg(not(sockets))]
use crate::elsewhere::{self as history, self as measure, self as path, self as survey};

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
    /// Measures latency under load over a real network, against `underload serve`.
    Measure(Box<measure::Arguments>),
    /// A line over weeks: what is usual, what has changed, at what hour.
    History(history::Arguments),
    /// Round trips to many hosts, a few probes each, as a table and a distribution.
    Survey(survey::Arguments),
    /// Which markings survive a path and which queue is at its bottleneck, with a server's help.
    Path(path::Arguments),
    #[cfg(feature = "whole")]
    #[command(flatten)]
    Whole(whole::Command),
}

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
        Command::Measure(arguments) => measure::run(arguments),
        Command::History(arguments) => return status::own_code(history::run(arguments)),
        Command::Survey(arguments) => survey::run(arguments),
        Command::Path(arguments) => path::run(arguments),
        #[cfg(feature = "whole")]
        Command::Whole(command) => return command.run(command_line.console, self::command()),
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

    #[test]
    #[cfg(feature = "whole")]
    fn every_command_has_a_page_with_its_examples() {
        let pages = underload_terminal::manual::pages(command()).expect("pages");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.first(), Some(&"underload.1"));
        for name in ["underload-run.1", "underload-docsis-decode.1"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for (name, page) in &pages {
            let page = String::from_utf8_lossy(page);
            assert!(page.contains("\n.TH underload"), "{name}: {page:.200}");
            assert!(page.contains("Examples:"), "{name}");
        }
    }

    #[test]
    #[cfg(feature = "whole")]
    fn every_shell_completes_every_command() {
        use clap::ValueEnum as _;
        use underload_terminal::manual::{Shell, completions};

        for shell in Shell::value_variants() {
            let script = String::from_utf8(completions(*shell, command())).expect("text");
            for word in ["scenarios", "completions", "recommend", "congestion-control"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
