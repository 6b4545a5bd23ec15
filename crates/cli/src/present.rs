//! A run directory's result on stdout, and its report beside it.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use underload_report::{load, summary_lines, table, warnings, write_report};
use underload_store::RunData;

use crate::console::{self, note, warning};

/// Writes `report.html`, prints the result (or the record as JSON), names the report.
pub fn run(path: &Path, json: bool) -> anyhow::Result<()> {
    several(path, &load(&[path])?, json)
}

/// The same for several runs together; the report goes into `directory`.
pub fn several(directory: &Path, runs: &[RunData], json: bool) -> anyhow::Result<()> {
    let page = write_report(directory, runs).context("writing the report")?;
    let mut out = std::io::stdout().lock();
    if json {
        let records: Vec<_> = runs.iter().map(|run| &run.record).collect();
        match records.as_slice() {
            [only] => serde_json::to_writer_pretty(&mut out, only),
            several => serde_json::to_writer_pretty(&mut out, several),
        }
        .context("writing JSON")?;
        writeln!(out).context("writing JSON")?;
    } else {
        writeln!(out, "{}", console::result(&table(runs))).context("writing the table")?;
        for line in summary_lines(runs) {
            writeln!(out, "{}", console::result(&line)).context("writing the result")?;
        }
    }
    out.flush().context("writing the result")?;
    for warning in warnings(runs) {
        warning!("{warning}");
    }
    note!("report: {}", page.display());
    Ok(())
}
