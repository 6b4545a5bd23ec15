//! `cargo xtask`: the checks that CI runs, and the commands that make what users install and read.

#![expect(clippy::print_stderr, reason = "a program that prints what it does")]
#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod audit;
mod book;
mod cargo;
mod commits;
mod dist;
mod fuzz;
mod kernel;
mod mutants;
mod notebooks;
mod pages;
mod process;
mod python;
mod pythons;
mod skips;
mod steps;
mod targets;
mod test_run;
mod tidy;

use std::env;
use std::process::{Command, ExitCode};

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
        ["ci"] => steps::run(&steps::ALL),
        ["budget"] => tidy::budget::print(),
        ["budget", "--write"] => tidy::budget::write(),
        ["commits", base] => commits::check(Some(base)),
        ["test", rest @ ..] => test_run::run(rest, &mut || ()),
        ["python", rest @ ..] => python::run(rest),
        ["fuzz", targets @ ..] => fuzz::run(targets),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["bench", rest @ ..] => cargo::succeed(
            Command::new("cargo").args(["run", "--quiet", "--package", "bench", "--"]).args(rest),
        ),
        ["reference"] => book::reference(),
        ["notebooks", names @ ..] => python::notebooks(names),
        ["book"] => book::build().map(drop),
        ["dist", targets @ ..] => dist::run(targets),
        ["kernel", rest @ ..] => kernel::build(rest),
        names => match steps::named(names) {
            Some(steps) => steps::run(&steps),
            None => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
        },
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
