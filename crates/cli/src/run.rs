//! `underload run`: every trial of a scenario, recorded and reported.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::exit::OrBadInput;

/// What executes the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorldChoice {
    /// Live where the machine allows it, else simulated; says which and why.
    Auto,
    /// Virtual time.
    Sim,
    /// Network namespaces, the kernel's own TCP, real time.
    Live,
}

/// The command line of `underload run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A scenario file, or the name of a built-in one (see `underload scenarios`).
    pub scenario: String,
    /// What executes it.
    #[arg(long, value_enum, default_value_t = WorldChoice::Auto)]
    pub world: WorldChoice,
    /// Only these arms; may be given several times.
    #[arg(long = "arm", value_name = "NAME")]
    pub arms: Vec<String>,
    /// How often each arm runs, instead of the scenario's own number.
    #[arg(long = "repeat", value_name = "N")]
    pub repeats: Option<u32>,
    /// The run's seed, instead of the scenario's own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The run directory, which must not exist yet or be empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overrides a key of the scenario, for example `--set path.up=20mbit`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Prints the run as one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// The scenario's short form: fewer and shorter trials.
    #[arg(long)]
    pub short: bool,
}

/// Runs the scenario.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if !PathBuf::from(&arguments.scenario).exists() {
        let missing = format!("{}: neither a file nor a built-in scenario", arguments.scenario);
        return Err(anyhow::anyhow!(missing)).or_bad_input();
    }
    bail!("the {:?} world is not part of this build", arguments.world)
}
