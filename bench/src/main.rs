//! `cargo xtask bench NAME`: the benchmarks behind the numbers in the docs.

#![expect(clippy::print_stderr, reason = "a program that prints what it does")]
#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod agent_size;
mod measure;
mod numbers;
mod process;
mod simulator;
mod sweep;
mod varying_links;
mod web;
mod worlds;

use std::env;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The benchmarks that are one command of Cargo.
const COMMANDS: &str = include_str!("benches.toml");

#[derive(Deserialize)]
struct Benches {
    bench: Vec<Bench>,
}

#[derive(Deserialize)]
struct Bench {
    name: String,
    what: String,
    /// Arguments of Cargo, separated by spaces.
    cargo: String,
}

type Run = fn(&[&str]) -> anyhow::Result<()>;

/// The other benchmarks: name, content and function.
const FUNCTIONS: [(&str, &str, Run); 7] = [
    (simulator::NAME, simulator::WHAT, simulator::run),
    (sweep::NAME, sweep::WHAT, sweep::run),
    (measure::NAME, measure::WHAT, measure::run),
    (varying_links::NAME, varying_links::WHAT, varying_links::run),
    (web::NAME, web::WHAT, web::run),
    (worlds::NAME, worlds::WHAT, worlds::run),
    (agent_size::NAME, agent_size::WHAT, agent_size::run),
];

/// Runs the named benchmark with the other arguments, or lists all.
fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Benches { bench: benches } = toml::from_str(COMMANDS).context("benches.toml")?;
    let Some((name, rest)) = arguments.split_first() else {
        let commands = benches.iter().map(|bench| (bench.name.as_str(), bench.what.as_str()));
        for (name, what) in commands.chain(FUNCTIONS.map(|(name, what, _)| (name, what))) {
            println!("{name:<18}{what}");
        }
        return Ok(());
    };
    if let Some((.., run)) = FUNCTIONS.iter().find(|(known, ..)| known == name) {
        return run(rest);
    }
    let Some(bench) = benches.iter().find(|bench| bench.name == *name) else {
        bail!("there is no benchmark `{name}`; `cargo xtask bench` lists them");
    };
    process::succeed(Command::new("cargo").args(bench.cargo.split(' ')).args(rest))
}
