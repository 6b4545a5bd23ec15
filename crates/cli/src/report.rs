//! `underload report`: one report from one or several run directories.

use std::path::PathBuf;

use clap::Args;
use underload_report::load;

use crate::exit::OrBadInput;
use crate::present;

/// The command line of `underload report`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Run directories.
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// The folder that report.html and its plots go to [default: the run's own, or for several
    /// runs the current one].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Prints the records as one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Writes the report and prints its table.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runs = load(&arguments.directories).or_bad_input()?;
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [only]) => only.clone(),
        (None, _) => PathBuf::from("."),
    };
    present::several(&out, &runs, arguments.json)
}
