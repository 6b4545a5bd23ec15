//! The benchmarks behind the numbers in the docs, by name.

use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::cargo::succeed;
use crate::{agent_size, measure, python, simulator, sweep, varying_links, web};

/// The benchmarks that are commands of Cargo.
const BY_CARGO: &str = include_str!("benches.toml");

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
const OURS: [(&str, &str, Run); 7] = [
    (simulator::NAME, simulator::WHAT, simulator::run),
    (sweep::NAME, sweep::WHAT, sweep::run),
    (measure::NAME, measure::WHAT, measure::run),
    (varying_links::NAME, varying_links::WHAT, varying_links::run),
    (web::NAME, web::WHAT, web::run),
    (agent_size::NAME, agent_size::WHAT, agent_size::run),
    (python::NAME, python::WHAT, python::compare),
];

/// Runs the named benchmark with the other arguments, or lists all.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Benches { bench: benches } = toml::from_str(BY_CARGO).context("benches.toml")?;
    let texts = benches.iter().map(|bench| (bench.name.as_str(), bench.what.as_str()));
    let all: Vec<_> = texts.chain(OURS.map(|(name, what, _)| (name, what))).collect();
    let Some((name, rest)) = arguments.split_first() else {
        for (name, what) in all {
            println!("{name:<18}{what}");
        }
        return Ok(());
    };
    if let Some((.., run)) = OURS.iter().find(|(known, ..)| known == name) {
        return run(rest);
    }
    let Some(bench) = benches.iter().find(|bench| bench.name == *name) else {
        let known: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        bail!("there is no benchmark `{name}`; known: {}", known.join(", "));
    };
    succeed(Command::new("cargo").args(bench.cargo.split(' ')).args(rest))
}
