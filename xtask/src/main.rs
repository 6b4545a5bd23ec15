//! `cargo xtask`: the checks that CI runs, and the commands behind the numbers in the docs.

#![expect(clippy::print_stderr, reason = "a program that prints what it does")]
#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod agent_size;
mod audit;
mod bench;
mod book;
mod browser;
mod cargo;
mod checks;
mod commits;
mod dist;
mod documentation;
mod functions;
mod fuzz;
mod kernel;
mod measure;
mod mutants;
mod names;
mod notebooks;
mod pages;
mod playground;
mod process;
mod python;
mod pythons;
mod same_code;
mod simulator;
mod skips;
mod sweep;
mod targets;
mod test_run;
mod tidy;
mod varying_links;
mod web;
mod words;
mod worlds;

use std::env;
use std::process::ExitCode;

/// The help, from which the check of the documentation also takes the names of commands.
pub const USAGE: &str = include_str!("usage.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Fails early if the list of allowed skips cannot be read.
    let strictness = match skips::Strictness::from_env() {
        Ok(strictness) => strictness,
        Err(error) => return failed(&error),
    };
    let outcome = match words.as_slice() {
        ["ci"] => checks::all(),
        ["fmt"] => checks::fmt(),
        ["clippy"] => checks::clippy(),
        ["doc"] => checks::doc(),
        ["tidy"] => tidy::check(),
        ["same-code", base] => same_code::check(base),
        ["fuzz", targets @ ..] => fuzz::run(targets),
        ["features"] => checks::features(),
        ["windows"] => checks::windows(),
        ["msrv"] => checks::msrv(),
        ["audit"] => audit::run(),
        ["book"] => book::build().map(drop),
        ["playground"] => playground::build(),
        ["python", rest @ ..] => python::run(rest),
        ["notebooks", names @ ..] => python::notebooks(names),
        ["dist", targets @ ..] => dist::run(targets),
        ["kernel", rest @ ..] => kernel::build(rest),
        ["kernel-queues"] => kernel::build_queues(),
        ["agent-size"] => agent_size::check().map(drop),
        ["words", base] => words::run(base),
        ["reference"] => book::reference(),
        ["fuzz-time"] => checks::fuzz_time(checks::SECONDS_BY_HAND),
        ["commits"] => commits::check(None),
        ["commits", base] => commits::check(Some(base)),
        ["test", rest @ ..] => test_run::run(rest, &mut || ()),
        ["browser", rest @ ..] => browser::run(rest),
        ["worlds", rest @ ..] => worlds::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome.and_then(|()| strictness.judge()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
