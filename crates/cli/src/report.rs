//! `underload report`: one report from one or several run directories and files of other tools.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use underload_record::schema::RunRecord;
use underload_report::{
    LoadError, Sentence, explain, load, load_to_show, summary, summary_lines, table, warnings,
    write_report,
};
use underload_store::RunData;
use underload_terminal::console::{self, note, shell_word, warning};
use underload_terminal::exit::{OrBadInput, refuse};

use crate::present::{Show, open_in_desktop};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload report runs/first
  underload report runs/before runs/after --out both
  underload report tcp_upload.flent.gz irtt.json --out peers
  underload report runs/first --explain S1")]
pub struct Arguments {
    /// Run directories, and files of flent (.flent.gz), irtt (JSON, also .gz), iperf3, mtr,
    /// networkQuality and speedtest (JSON), crusader (.crr), and ping, mtr and mm-link (lines).
    #[arg(required = true, value_name = "RUN")]
    pub directories: Vec<PathBuf>,
    /// The directory for report.html and its plots [default: that of the run; for several runs or
    /// files, the current directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Shows what a sentence of a run rests on: its trials, the arithmetic and the rule. S1 is the first
    /// sentence that compares variants; `--json` has the number of each. Writes no report.
    #[arg(long, value_name = "S1", conflicts_with_all = ["out", "json", "open"])]
    pub explain: Option<String>,
    #[command(flatten)]
    pub show: Show,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runs = load_runs(&arguments.directories, arguments.show).or_bad_input()?;
    if let Some(id) = &arguments.explain {
        return print_explanation(&runs, id);
    }
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [only]) if only.is_dir() => only.clone(),
        (None, _) => PathBuf::from("."),
    };
    show_runs(&out, &runs, arguments.show)?;
    if let [before, after] = arguments.directories.as_slice()
        && before.is_file()
    {
        let [before, after] = [before, after].map(|path| shell_word(path));
        note!("what changed: underload compare --before {before} --after {after}");
    }
    Ok(())
}

fn print_explanation(runs: &[RunData], id: &str) -> anyhow::Result<()> {
    let Some(text) = explain(runs, id) else {
        let claims: Vec<String> = summary(runs).into_iter().filter_map(|it| it.claim).collect();
        if claims.is_empty() {
            refuse!("--explain: no sentence of this run compares variants");
        }
        refuse!("--explain: no sentence `{id}`; expected one of: {}", claims.join(", "));
    };
    console::print(&console::result(&text))
}

/// JSON contains the full records; a table needs less.
fn load_runs(paths: &[impl AsRef<Path>], show: Show) -> Result<Vec<RunData>, LoadError> {
    if show.json { load(paths) } else { load_to_show(paths) }
}

/// Writes `report.html` of one run and prints the result: a table, or the record as JSON.
pub fn show_run(path: &Path, show: Show) -> anyhow::Result<()> {
    let runs = load_runs(&[path], show)?;
    match runs.as_slice() {
        [only] => present(path, &runs, &document(only), show),
        several => show_runs(path, several, show),
    }
}

/// As [`show_run`]. The JSON is a list of records, even of one run.
fn show_runs(directory: &Path, runs: &[RunData], show: Show) -> anyhow::Result<()> {
    let documents: Vec<_> = runs.iter().map(document).collect();
    present(directory, runs, &documents, show)
}

/// A record as JSON, with the sentences that the program prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    record: &'a RunRecord,
    sentences: Vec<Sentence>,
}

fn document(run: &RunData) -> Document<'_> {
    Document { record: &run.record, sentences: summary(std::slice::from_ref(run)) }
}

fn present(
    directory: &Path,
    runs: &[RunData],
    document: &impl Serialize,
    show: Show,
) -> anyhow::Result<()> {
    let page = write_report(directory, runs).context("writing the report")?;
    console::print_as(show.json, document, || {
        let lines = [table(runs)].into_iter().chain(summary_lines(runs));
        console::result(&lines.map(|line| line + "\n").collect::<String>())
    })?;
    for warning in warnings(runs) {
        warning!("{warning}");
    }
    note!("report: {}", page.display());
    if show.open {
        open_in_desktop(&page);
    }
    Ok(())
}
