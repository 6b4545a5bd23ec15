//! Run directories: one that is taken is refused; a result on stdout, its report beside it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use underload_report::{
    LoadError, load, load_to_show, summary_lines, table, warnings, write_report,
};
use underload_store::{RunData, StoreError};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;

/// Makes a directory that is taken the command line's fault.
pub fn refuse_occupied<T>(made: Result<T, StoreError>) -> anyhow::Result<T> {
    match made {
        Err(error) if error.is_occupied() => Err(error).or_bad_input(),
        made => Ok(made?),
    }
}

/// How a result is shown.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// As JSON instead of the table.
    pub json: bool,
    /// The report in a browser, too.
    pub open: bool,
}

impl Show {
    /// Reads runs to be shown so; JSON has their records whole.
    pub fn load(self, paths: &[impl AsRef<Path>]) -> Result<Vec<RunData>, LoadError> {
        if self.json { load(paths) } else { load_to_show(paths) }
    }
}

/// Writes `report.html` of one run, prints the result, names the report. Its JSON is the record.
pub fn run(path: &Path, show: Show) -> anyhow::Result<()> {
    let runs = show.load(&[path])?;
    let records: Vec<_> = runs.iter().map(|run| &run.record).collect();
    match records.as_slice() {
        [only] => present(path, &runs, only, show),
        several => present(path, &runs, &several, show),
    }
}

/// The same for any number of runs; the report goes into `directory`. The JSON is a list of
/// records, whether there is one or are many.
pub fn several(directory: &Path, runs: &[RunData], show: Show) -> anyhow::Result<()> {
    let records: Vec<_> = runs.iter().map(|run| &run.record).collect();
    present(directory, runs, &records, show)
}

fn present(
    directory: &Path,
    runs: &[RunData],
    document: &impl serde::Serialize,
    show: Show,
) -> anyhow::Result<()> {
    let page = write_report(directory, runs).context("writing the report")?;
    let mut out = std::io::stdout().lock();
    if show.json {
        serde_json::to_writer_pretty(&mut out, document).context("writing JSON")?;
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
    if show.open {
        open(&page);
    }
    Ok(())
}

/// What shows a file as the desktop does.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// Shows a file as the desktop shows such files. It is a convenience: that it fails is only told.
pub fn open(file: &Path) {
    // A path that begins with a hyphen is no option.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut command = Command::new(OPENER);
    command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        warning!("{}: cannot be opened with {OPENER}: {error}", file.display());
    }
}
