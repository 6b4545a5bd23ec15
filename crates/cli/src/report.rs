//! `underload report`: one report from one or several run directories and files of other tools.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use underload_report::{RunData, RunDir, agreement_table, agreements, load, warnings};

use crate::exit::OrBadInput;
use crate::present;

/// The command line of `underload report`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Run directories, and files of flent (.flent.gz), irtt and iperf3 (JSON), crusader (.crr).
    #[arg(required = true, value_name = "RUN")]
    pub directories: Vec<PathBuf>,
    /// The folder that report.html and its plots go to [default: the run's own; for several runs,
    /// or for a file, the current one].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Compares the first run, arm by arm, with the second: working latency may differ by 15 %,
    /// goodput by 5 %. No report is written.
    #[arg(long, conflicts_with = "out")]
    pub compare: bool,
    /// Prints the records as one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Writes the report and prints its table.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.compare {
        return compare(arguments);
    }
    let runs = load(&arguments.directories).or_bad_input()?;
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [only]) if only.is_dir() => only.clone(),
        (None, _) => PathBuf::from("."),
    };
    present::several(&out, &runs, arguments.json)
}

fn compare(arguments: &Arguments) -> anyhow::Result<()> {
    let [first, second] = arguments.directories.as_slice() else {
        let problem = "--compare takes two run directories: the one to examine, then its reference";
        return Err(anyhow!(problem)).or_bad_input();
    };
    let [run, reference] =
        [RunDir::read_record(first).or_bad_input()?, RunDir::read_record(second).or_bad_input()?];
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &agreements(&run, &reference))
            .context("writing JSON")?;
        writeln!(out).context("writing JSON")?;
    } else {
        write!(out, "{}", agreement_table(&run, &reference)).context("writing the table")?;
    }
    out.flush().context("writing the result")?;
    for record in [run, reference] {
        let run = RunData { record, samples: Vec::new(), series: Vec::new(), left_out: Vec::new() };
        for warning in warnings(&[run]) {
            eprintln!("{warning}");
        }
    }
    Ok(())
}
