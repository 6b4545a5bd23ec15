//! `underload history`: the runs of `measure --every` over weeks.
//!
//! `underload_line::history` reads and compares them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::civil::DateTime;
use underload_line::history::{History, collect, followed, marks, prometheus};
use underload_line::label;
use underload_record::history::{Followed, Trend, Windows};
use underload_report::{
    HistoryPage, history_page, history_sentence, one_line, plain_text, replace_page,
};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput, WORSE, refuse};
use underload_terminal::quantity::duration;

use crate::measure::local_zone;
use crate::present::write_for_collector;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Exit status: 0 done, 3 if --alert applies, 2 bad input, 1 failed.

Examples:
  underload history runs/history
  underload history mark \"new router\"
  underload history runs/history --alert 50 --json
  underload history runs/history --prometheus /var/lib/node_exporter/underload.prom
  underload history runs/history --metric goodput-down --alert 20")]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The directory of runs that `underload measure --every` writes.
    #[arg(value_name = "DIR", default_value = RUNS)]
    pub directory: PathBuf,
    /// The number to judge: load-p99, load-p50, stated-load, inside-p99, idle-p50, qoo, goodput-up
    /// or goodput-down.
    #[arg(long, value_name = "NAME", value_parser = followed, default_value = "load-p99")]
    pub metric: Followed,
    /// Length of the baseline, from the first run on.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "7d")]
    pub baseline: Duration,
    /// Length of the recent period, up to the newest run, which is compared with the baseline.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1d")]
    pub recent: Duration,
    /// Exits with status 3 if the recent median is more than PERCENT worse than the baseline's, and
    /// worse than nine of ten runs of the baseline at the same hours.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub alert: Option<u32>,
    /// Writes the newest numbers in Prometheus' text format; - is stdout.
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// The HTML page to write [default: history.html in the directory].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Prints the numbers as one JSON document.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Marks a time in a history, such as "new router": the history compares the runs before and
    /// after it.
    Mark(MarkArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload history mark \"new router\"
  underload history mark \"SQM on\" runs/history --at \"2026-11-20 14:00\"")]
struct MarkArguments {
    /// The event, in at most 80 characters.
    #[arg(value_parser = label)]
    text: String,
    /// The directory of runs.
    #[arg(value_name = "DIR", default_value = RUNS)]
    directory: PathBuf,
    /// When it happened, local time such as "2026-11-20 14:00" [default: now].
    #[arg(long, value_name = "TIME", value_parser = local_time)]
    at: Option<Timestamp>,
}

/// The directory that `underload measure --every` writes by default.
const RUNS: &str = "runs/history";

/// Parses a local date, or a date and time.
fn local_time(text: &str) -> Result<Timestamp, String> {
    let expected = "expected a date and time such as \"2026-11-20 14:00\", or a date";
    let date = || text.parse().map(|it: jiff::civil::Date| it.to_datetime(jiff::civil::Time::MIN));
    let time = text.parse().or_else(|_| date()).map_err(|_| expected)?;
    let zoned = DateTime::to_zoned(time, local_zone()).map_err(|_| expected)?;
    Ok(zoned.timestamp())
}

fn local(at: Timestamp) -> String {
    at.to_zoned(local_zone()).strftime("%Y-%m-%d %H:%M").to_string()
}

fn mark(arguments: &MarkArguments) -> anyhow::Result<ExitCode> {
    let MarkArguments { text, directory, at } = arguments;
    let now = Timestamp::now();
    let at = at.unwrap_or(now);
    if at > now {
        refuse!("--at: {} is in the future; expected the time of a past event", local(at));
    }
    // Names a directory without runs, for which a mark would mean nothing.
    let collected = collect(directory, now.as_second()).or_bad_input()?;
    marks::add(directory, at, text).with_context(|| directory.display().to_string())?;
    note!("marked {text:?} at {}, local time", local(at));
    if collected.runs.is_empty() {
        warning!(
            "{}: none of the runs can be used yet, so there is nothing to compare; `underload history` \
             names each with the reason",
            directory.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(Command::Mark(arguments)) = &arguments.command {
        return mark(arguments);
    }
    let prints_numbers = arguments.prometheus.as_ref().is_some_and(|it| it.as_os_str() == "-");
    if prints_numbers && arguments.json {
        refuse!("only one of --prometheus and --json can write to stdout");
    }
    let now_s = jiff::Timestamp::now().as_second();
    let collected = collect(&arguments.directory, now_s).or_bad_input()?;
    for line in &collected.skipped {
        warning!("skipped: {}", plain_text(line));
    }
    if collected.runs.is_empty() {
        bail!("{}: none of the runs can be used", arguments.directory.display());
    }
    let windows = Windows {
        baseline_s: arguments.baseline.as_secs() as i64,
        recent_s: arguments.recent.as_secs() as i64,
    };
    let history = History::new(collected, arguments.metric, windows);
    // If a file cannot be written, the sentences and the alert are still printed.
    let mut written = draw(arguments, &history);
    if let Some(path) = &arguments.prometheus {
        let numbers = prometheus(&history.collected, &history.trends);
        written = written.and(write_for_collector(path, &numbers));
    }
    let lines: String = history.sentences.iter().map(|line| plain_text(line) + "\n").collect();
    let printed = if arguments.json {
        console::print_json(&history.document())
    } else if prints_numbers {
        note!("{}", lines.trim_end());
        Ok(())
    } else {
        console::print(&lines)
    };
    let alerted = alert(arguments, &history.trends);
    match written.and(printed) {
        Err(error) if alerted.is_err() => {
            warning!("error: {}", one_line(&format!("{error:#}")));
            alerted
        }
        Err(error) => Err(error),
        Ok(()) => alerted,
    }
}

fn draw(arguments: &Arguments, history: &History) -> anyhow::Result<()> {
    let page = arguments.out.clone().unwrap_or_else(|| arguments.directory.join(PAGE));
    replace_page(&page, &page_of(history))?;
    note!("page: {}", page.display());
    Ok(())
}

fn page_of(history: &History) -> String {
    let History { collected, trends, marks, labels, sentences } = history;
    let skipped = &collected.skipped;
    history_page("A line over time", HistoryPage { sentences, trends, marks, labels, skipped })
}

/// Writes the page of a series that continues, which a browser loads again every minute. Returns its
/// path; `None` without a run that can be used.
pub fn watch(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let collected = collect(directory, Timestamp::now().as_second())?;
    if collected.runs.is_empty() {
        return Ok(None);
    }
    let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
    let page = page_of(&History::new(collected, Followed::LoadP99, windows));
    let path = directory.join(PAGE);
    let again = "<head>\n<meta http-equiv=\"refresh\" content=\"60\">";
    replace_page(&path, &page.replacen("<head>", again, 1))?;
    Ok(Some(path))
}

/// The page in the directory of a series.
const PAGE: &str = "history.html";

fn alert(arguments: &Arguments, trends: &[Trend]) -> anyhow::Result<ExitCode> {
    let Some(percent) = arguments.alert else { return Ok(ExitCode::SUCCESS) };
    let judged = || trends.iter().filter(|it| it.followed == arguments.metric);
    if judged().next().is_none() {
        bail!("--alert: no valid run has {}", arguments.metric.name());
    }
    for trend in judged().filter(|it| it.comparison.range.is_none()) {
        warning!("--alert cannot judge: {}", plain_text(&history_sentence(trend)));
    }
    let worse: Vec<&Trend> = judged().filter(|it| it.is_worse_by(f64::from(percent))).collect();
    if worse.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for trend in &worse {
        warning!("ALERT: {}", plain_text(&history_sentence(trend)));
    }
    Ok(ExitCode::from(WORSE))
}
