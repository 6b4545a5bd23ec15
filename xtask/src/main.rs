//! `cargo xtask`: the checks that CI runs, and the commands behind the numbers in the docs.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod bench;
mod checks;
mod measure;
mod sim_live;
mod simulator;
mod test_run;
mod tidy;
mod varying_links;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci        everything that CI checks: fmt, clippy, doc, tidy, test
  fmt       formatting
  clippy    lints, warnings denied
  doc       documentation, warnings denied
  tidy      this repository's own rules: file and line lengths, words
  test      all tests, with a count of what passed, failed and was skipped, and why
  fuzz-time time limits against bytes at random pauses, in virtual time, for a minute
  bench     the benchmarks behind the numbers in the docs; `bench` alone lists them";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["ci"] => checks::all(),
        ["fmt"] => checks::fmt(),
        ["clippy"] => checks::clippy(),
        ["doc"] => checks::doc(),
        ["tidy"] => tidy::check(),
        ["fuzz-time"] => checks::fuzz_time(),
        ["test", rest @ ..] => test_run::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
