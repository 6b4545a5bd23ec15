//! `underload report`: one report from one or several run directories and files of other tools.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use underload_report::{Agreement, agreement_table, agreements, warnings};
use underload_run::measured_lines;
use underload_store::{RunData, RunDir};
use underload_terminal::console::{self, warning};
use underload_terminal::exit::OrBadInput;

use crate::fail::FailOn;
use crate::present::{self, Show};

/// The command line of `underload report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload report runs/first
  underload report runs/before runs/after --out both
  underload report tcp_upload.flent.gz irtt.json --out peers
  underload report --compare runs/simulated runs/live")]
pub struct Arguments {
    /// Run directories, and files of flent (.flent.gz), irtt (JSON, also .gz), iperf3 (JSON) and
    /// crusader (.crr).
    #[arg(required_unless_present = "lines", conflicts_with = "lines", value_name = "RUN")]
    pub directories: Vec<PathBuf>,
    /// A list of measured lines with the run directories of each, as in docs/measure.md: reports
    /// what one class saves of another's lag, by line and day.
    #[arg(long, value_name = "LIST", conflicts_with = "compare")]
    pub lines: Option<PathBuf>,
    /// The folder that report.html and its plots go to [default: the run's own; for several runs,
    /// or for a file, the current one].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Compares the first run, arm by arm, with the second: working latency may differ by 15 %,
    /// the share of probes lost by 1 in 100, goodput by 5 %; what the second tells and the first
    /// does not is missed. No report is written; exit status 1 where a number is missed (see
    /// --fail-on), 2 where the runs have no arm in common.
    #[arg(long, conflicts_with = "out")]
    pub compare: bool,
    /// With --compare: ends with status 1 on this.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value_t = FailOn::Miss,
        requires = "compare"
    )]
    pub fail_on: FailOn,
    /// Prints one JSON document instead of the table: a list with the record of each run.
    #[arg(long)]
    pub json: bool,
    /// Opens the report in a browser.
    #[arg(long, conflicts_with = "compare")]
    pub open: bool,
}

/// Writes the report and prints its table.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.compare {
        return compare(arguments);
    }
    if let Some(list) = &arguments.lines {
        let run = measured_lines::load(list).or_bad_input()?;
        let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from("."));
        return present::several(&out, &[run], arguments.show());
    }
    let runs = arguments.show().load(&arguments.directories).or_bad_input()?;
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [only]) if only.is_dir() => only.clone(),
        (None, _) => PathBuf::from("."),
    };
    present::several(&out, &runs, arguments.show())
}

impl Arguments {
    fn show(&self) -> Show {
        Show { json: self.json, open: self.open }
    }
}

fn compare(arguments: &Arguments) -> anyhow::Result<()> {
    let [first, second] = arguments.directories.as_slice() else {
        let problem = "--compare takes two run directories: the one to examine, then its reference";
        return Err(anyhow!(problem)).or_bad_input();
    };
    let [run, reference] =
        [RunDir::read_record(first).or_bad_input()?, RunDir::read_record(second).or_bad_input()?];
    let rows = agreements(&run, &reference);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &rows).context("writing JSON")?;
        writeln!(out).context("writing JSON")?;
    } else {
        let table = agreement_table(&run, &reference);
        write!(out, "{}", console::result(&table)).context("writing the table")?;
    }
    out.flush().context("writing the result")?;
    for record in [run, reference] {
        let run = RunData { record, samples: Vec::new(), series: Vec::new(), left_out: Vec::new() };
        for warning in warnings(&[run]) {
            warning!("{warning}");
        }
    }
    judge(&rows, arguments.fail_on)
}

/// What a script needs to know: whether the two agree.
fn judge(rows: &[Agreement], fail_on: FailOn) -> anyhow::Result<()> {
    let count = |verdict: Option<bool>| rows.iter().filter(|row| row.is_met() == verdict).count();
    let (missed, all) = (count(Some(false)), rows.len());
    if all == 0 {
        return Err(anyhow!("the runs have no arm in common, so nothing was compared"))
            .or_bad_input();
    }
    if missed > 0 && fail_on == FailOn::Miss {
        bail!("{missed} of {all} numbers are missed");
    }
    if count(None) == all && fail_on == FailOn::Miss {
        bail!("the second run tells none of the {all} numbers");
    }
    Ok(())
}
