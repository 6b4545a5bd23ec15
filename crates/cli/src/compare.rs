//! `underload compare`: runs after a change compared with runs before it.
//!
//! `underload_line::before_after` pairs the runs; `record` compares them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use underload_line::before_after::{BeforeAfter, Choice, LinePair, Side, compare, read};
use underload_line::history::followed;
use underload_record::comparison::Verdict;
use underload_record::history::Followed;
use underload_report::{PageError, plain_text, replace_page, significant, warnings};
use underload_store::RunData;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;

#[derive(Debug, Args)]
#[command(after_help = "\
A line is known by its label or the name of its directory or file. Of one line alone on each side
the names may differ. A directory of runs is a history: runs of like hours are compared.

Examples:
  underload compare --before runs/monday --after runs/friday
  underload compare --before old/* --after new/* --metric goodput-down
  underload compare --before before.flent.gz --after after.flent.gz --html both.html
  underload compare --before fifo/run --after cake/run --step default --json")]
pub struct Arguments {
    /// Runs before the change: run directories, directories of runs as `measure --every` writes them,
    /// Parquet files of a fleet's archive, and files of other tools, as `underload report` reads them.
    #[arg(long, num_args = 1.., required = true, value_name = "RUN")]
    before: Vec<PathBuf>,
    /// Runs after the change.
    #[arg(long, num_args = 1.., required = true, value_name = "RUN")]
    after: Vec<PathBuf>,
    /// Whether both sides have the same lines, which are then paired, or different ones.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = By::Line)]
    by: By,
    /// The number to compare: load-p99, load-p50, stated-load, inside-p99, idle-p50, qoo, goodput-up
    /// or goodput-down [default: load-p99, or the first of stated-load, idle-p50, inside-p99,
    /// goodput-down and goodput-up that both sides have].
    #[arg(long, value_name = "NAME", value_parser = followed)]
    metric: Option<Followed>,
    /// The step of measured runs, or the variant of simulated ones [default: each step, or the first
    /// variant that most lines have].
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Writes a page to this file: the sentences, each line before and after, a picture of the pairs.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints the comparison as one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Each line with itself.
    Line,
    /// Different lines, as with another firmware: each line is one value of its group, which is named
    /// by the firmware that a fleet recorded, else by the folder.
    #[value(alias = "firmware")]
    Group,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let now_s = jiff::Timestamp::now().as_second();
        let mut seen = BTreeSet::new();
        let (before, mut skipped) = read(&self.before, now_s, &mut seen).or_bad_input()?;
        let (after, more) = read(&self.after, now_s, &mut seen).or_bad_input()?;
        skipped.extend(more);
        let (metric, step) = (self.metric, self.step.clone());
        let choice = Choice { metric, step, are_groups: self.by == By::Group };
        let found = compare(&before, &after, &choice).or_bad_input()?;
        console::print_as(self.json, &found, || console::result(&text(&found)))?;
        for line in &skipped {
            warning!("skipped: {}", plain_text(line));
        }
        if let Some(path) = &self.html {
            let written = replace_page(path, &found.page());
            written.bad_input_if(|error| matches!(error, PageError::NotOurs { .. }))?;
            note!("page: {}", path.display());
        }
        // The runs that were read as a whole.
        let lines = [before, after].into_iter().flat_map(Side::into_values);
        let runs: Vec<RunData> = lines.flat_map(|it| it.runs).map(|(_, run)| run).collect();
        for line in warnings(&runs) {
            warning!("{line}");
        }
        Ok(())
    }
}

/// Returns the answer for each step.
fn text(found: &BeforeAfter) -> String {
    if found.other_steps.is_empty() {
        return step_text(found);
    }
    let steps = [found].into_iter().chain(&found.other_steps);
    steps.flat_map(|it| [it.step.clone(), ": ".to_owned(), step_text(it)]).collect()
}

/// Returns the sentences, the values of several lines, and what is left out.
fn step_text(found: &BeforeAfter) -> String {
    let mut lines = found.sentences.clone();
    let several = Some(&found.lines).filter(|lines| lines.len() > 1);
    let width = found.lines.iter().map(|it| it.line.chars().count()).max().unwrap_or(0);
    lines.extend(several.into_iter().flatten().map(|LinePair { line, comparison, .. }| {
        let missing = if comparison.verdict == Verdict::Lost { "lost" } else { "-" };
        let value = |value: Option<f64>| value.map_or(missing.to_owned(), significant);
        let (before, after) = (value(comparison.baseline_value), value(comparison.value));
        format!("  {line:<width$}  {before} -> {after} {}", comparison.unit)
    }));
    lines.extend(found.left_out.iter().map(|line| format!("left out: {line}")));
    lines.join("\n") + "\n"
}
