//! `cargo xtask`: the checks that CI runs, and the commands behind the numbers in the docs.

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
pub const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci         everything that CI checks; by hand are bench, book, browser, dist, mutants, notebooks,
             reference, worlds
  fmt        formatting
  clippy     lints, warnings denied
  doc        documentation, warnings denied
  tidy       this repository's own rules: lengths, modules, what the documentation names
  commits    the commits since BASE, or since these rules began, have a short subject and say why
  same-code  the code is that of the commit BASE: only comments and documentation differ
  test       all tests, with a count of what passed, failed and was skipped, and why
  fuzz       every fuzz target, or those named, for 3 s each from the kept corpus
  features   each set of features that is installed compiles by itself
  windows    the program compiles for Windows; by hand, as it takes minutes
  msrv       all compiles with the oldest Rust that Cargo.toml promises
  audit      dependencies (cargo-deny, cargo-shear) and spelling (typos); in ci where installed
  book       the documentation as a book with search, in target/book; needs mdbook
  playground the simulator as WebAssembly, for the book's page with sliders
  python     the Python package: a wheel in a fresh environment, its tests, types and stubs;
             `python --release` that of users, with its size and the time of its import;
             `python --ray` the tests that need Ray, which it installs
  notebooks  all notebooks, or those named, run whole and made into pages for the book; in ci they
             run in short forms
  reference  writes the pages and schemas of the docs that the programs print
  words      words of each page for users, at the commit BASE and now; tidy checks their limits
  dist       what is installed, in target/dist: static programs for all targets or those named, each
             started once, packages, an image, the book with the playground, checksums; `dist book`
             the book alone
  agent-size the agent as it is installed, which fails if it is larger than it may be; in dist, too
  kernel     the Linux kernel for `underload run --world kernel`, in target/kernel, of the
             distribution's newest source, of a version or of a SOURCE.tar.xz; some minutes
  kernel-queues
             the BPF objects of `underload kernel-queue`; needs clang-19 and bpftool
  fuzz-time  time limits against bytes at random pauses, in virtual time, for a minute
  browser    a fleet's pages in Chromium with 100,000 devices, or so many; `browser pictures`
             takes the pictures of the docs
  worlds     scenarios in the simulator, before Linux's queues and before ours (`--live` in real
             time, too), side by side, with what is within the goals; `--quick` in short forms,
             `--out PAGE` into a page; half an hour of two cores
  mutants    code changed in one place after another, to find what no test holds; by hand
  bench      the benchmarks behind the numbers in the docs; `bench` alone lists them";

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
            eprintln!("{USAGE}");
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
