//! The `underload` program: parse the command line, call a library, print.
//!
//! One module per subcommand, each with its `Arguments` and `run`. Without the feature `whole`, for
//! small machines, the program has only the commands that measure access lines. Data goes to
//! stdout, progress and prose to stderr. Exit status: 0 done, 1 the run failed, 2 bad input, 130
//! and 143 stopped by Ctrl-C or SIGTERM ([`status`]).

#[cfg(feature = "whole")]
mod check;
#[cfg(feature = "whole")]
mod compare;
#[cfg(feature = "whole")]
mod docs;
#[cfg(feature = "whole")]
mod docsis;
#[cfg(all(test, feature = "whole"))]
mod documents_tests;
#[cfg(feature = "whole")]
mod export;
#[cfg(feature = "whole")]
mod fail;
#[cfg(feature = "whole")]
mod figures;
#[cfg(all(feature = "whole", sockets))]
mod fleet;
mod help;
mod hints;
mod history;
#[cfg(all(test, feature = "whole", sockets))]
mod items_tests;
#[cfg(namespaces)]
mod kernel;
#[cfg(all(feature = "whole", shaping))]
mod kernel_queue;
#[cfg(namespaces)]
mod link;
mod measure;
#[cfg(feature = "whole")]
mod names;
#[cfg(sockets)]
mod path;
mod present;
#[cfg(feature = "whole")]
mod progress;
#[cfg(feature = "whole")]
mod question;
#[cfg(feature = "whole")]
mod queues;
#[cfg(all(test, feature = "whole", sockets))]
mod reference_tests;
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
#[cfg(shaping)]
mod shape;
#[cfg(sockets)]
mod survey;
#[cfg(feature = "whole")]
mod sweep;
#[cfg(any(not(shaping), all(feature = "whole", not(namespaces))))]
mod unsupported;
#[cfg(feature = "whole")]
mod whole_commands;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use underload_terminal::help::{asks_for_all, with_help, with_rare_options};
use underload_terminal::{VERSION, console, status};

#[cfg(not(shaping))]
use crate::unsupported as shape;
#[cfg(not(sockets))]
use crate::unsupported::{self as path, self as survey};

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
    /// Measures latency under load over a real network, to `underload serve`.
    Measure(Box<measure::Arguments>),
    /// Shows how an access line changed over weeks, and alerts if it became worse.
    History(history::Arguments),
    /// Measures round trips to many hosts, with a few probes each.
    Survey(survey::Arguments),
    /// Finds which markings survive a path and which queue is at its bottleneck.
    Path(path::Arguments),
    /// Limits a device's rates with the kernel's queues, so that packets do not wait in the modem.
    Shape(shape::Arguments),
    #[cfg(feature = "whole")]
    #[command(flatten)]
    Whole(whole_commands::Command),
}

fn command() -> clap::Command {
    help::grouped(with_help(CommandLine::command()))
}

fn main() -> ExitCode {
    let command = command().color(console::color_asked(std::env::args_os()));
    let is_all = asks_for_all(std::env::args_os());
    let command = if is_all { with_rare_options(command) } else { command };
    let matches = command.clone().try_get_matches().unwrap_or_else(|error| {
        hints::with_tip(error, &command, std::env::args_os()).exit();
    });
    let command_line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    command_line.console.apply();
    let outcome = match &command_line.command {
        Command::Measure(arguments) => return status::own_code(measure::run(arguments)),
        Command::History(arguments) => return status::own_code(history::run(arguments)),
        Command::Survey(arguments) => survey::run(arguments),
        Command::Path(arguments) => path::run(arguments),
        Command::Shape(arguments) => shape::run(arguments),
        #[cfg(feature = "whole")]
        Command::Whole(command) => return command.run(command_line.console, self::command()),
    };
    status::code(outcome)
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::command;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
    }

    /// Finds the commands whose help has more than 40 lines of 100 columns.
    fn longer_than_a_screen(command: &mut Command, found: &mut Vec<(String, usize)>) {
        let lines = command.render_help().to_string().lines().count();
        if lines > 40 && !command.is_hide_set() {
            found.push((command.get_bin_name().unwrap_or_default().to_owned(), lines));
        }
        command.get_subcommands_mut().for_each(|below| longer_than_a_screen(below, found));
    }

    #[test]
    fn the_help_of_every_command_fits_a_screen() {
        let (mut command, mut found) = (command().term_width(100), Vec::new());
        command.build();
        longer_than_a_screen(&mut command, &mut found);
        assert_eq!(found, []);
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
