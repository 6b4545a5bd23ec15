//! `report.html`: one page that needs no network, no script and no explanation.

mod comparison;
mod latency;
mod rest;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use underload_disk::{self as disk, Access};
use underload_record::schema::Phase;

use crate::plot::{COLOURS, MOST_TIMELINES, Plot, PlotError, Plots, escape, ink_rules};
use crate::subject::{Subject, subjects};
use crate::verdict::{summary_lines, warnings};
use crate::words::count;
use crate::{RunData, StoreError};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// There is nothing to report on.
    #[error("no run to report on")]
    Empty,
    /// A plot could not be laid out.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The report could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The page for one run, or for several side by side.
///
/// # Errors
///
/// [`PageError::Empty`] without runs, [`PageError::Plot`] when a plot cannot be laid out.
pub fn render(runs: &[RunData]) -> Result<String, PageError> {
    let subjects = subjects(runs);
    let plots = Plots::of(&subjects)?;
    page(runs, &subjects, &plots)
}

/// The plots of that page, each as it is written to a file of its own.
///
/// # Errors
///
/// [`PageError::Plot`] when a plot cannot be laid out.
pub fn plots(runs: &[RunData]) -> Result<Vec<Plot>, PageError> {
    Ok(Plots::of(&subjects(runs))?.all().cloned().collect())
}

/// Writes `report.html` and every plot as `plots/NAME.svg` into a directory, and gives the path of
/// the page. Files of an earlier report are replaced, each whole or not at all.
///
/// # Errors
///
/// As [`render`], or [`PageError::Store`] with what the disk said, and where a file of such a name
/// is not of an earlier report: it stays as it is.
pub fn write_report(directory: &Path, runs: &[RunData]) -> Result<PathBuf, PageError> {
    let subjects = subjects(runs);
    let plots = Plots::of(&subjects)?;
    let html = page(runs, &subjects, &plots)?;
    let (folder, path) = (directory.join("plots"), directory.join("report.html"));
    let files: Vec<(PathBuf, &Plot)> =
        plots.all().map(|plot| (folder.join(format!("{}.svg", plot.name)), plot)).collect();
    // Before anything is written: all of a report, or none of it.
    check_replaceable(&path, PAGE_MARK)?;
    files.iter().try_for_each(|(path, _)| check_replaceable(path, SVG_MARK))?;
    disk::create_directory(&folder, Access::Usual).map_err(StoreError::io(&folder, "create"))?;
    let write = |path: &Path, text: &str| {
        disk::write_whole(path, text.as_bytes(), Access::Usual)
            .map_err(StoreError::io(path, "write"))
    };
    files.iter().try_for_each(|(path, plot)| write(path, &plot.svg()))?;
    write(&path, &html)?;
    Ok(path)
}

/// What the pages and the plots of every version have within their first bytes.
const PAGE_MARK: &str = ": latency under load</title>";
const SVG_MARK: &str = "<svg class=\"plot\"";
const MARK_WITHIN_BYTES: u64 = 64 << 10;

/// Refuses a file that no report of ours left there.
fn check_replaceable(path: &Path, mark: &str) -> Result<(), StoreError> {
    match fs::metadata(path) {
        // What is missing cannot be lost, and what is no file is not replaced.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(facts) if !facts.is_file() => return Ok(()),
        _ => {}
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MARK_WITHIN_BYTES).read_to_end(&mut start))
        .map_err(StoreError::io(path, "read"))?;
    if start.is_empty() || String::from_utf8_lossy(&start).contains(mark) {
        return Ok(());
    }
    Err(StoreError::NotOurs { path: path.to_owned() })
}

/// Arms from which on the page begins with the published numbers.
const MANY_ARMS: usize = 12;

fn page(runs: &[RunData], subjects: &[Subject<'_>], plots: &Plots) -> Result<String, PageError> {
    let first = runs.first().ok_or(PageError::Empty)?;
    let mut html = head(&title(first));
    html += "<main>\n";
    html += &header(runs, subjects);
    // Of many arms nobody reads bar by bar; a study that has published numbers is about those.
    let published_first = subjects.len() > MANY_ARMS;
    if published_first {
        html += &rest::expectation_section(runs);
    }
    html += &latency::section(subjects, &plots.overview);
    html += &distribution_section(plots);
    html += &comparison::section(subjects);
    html += &rest::queue_section(subjects);
    html += &rest::application_section(subjects);
    html += &timeline_section(subjects, plots);
    if !published_first {
        html += &rest::expectation_section(runs);
    }
    html += &rest::trial_section(runs);
    html += &rest::provenance_section(runs);
    html += "</main>\n</body>\n</html>\n";
    Ok(html)
}

fn head(title: &str) -> String {
    let (title, css, inks) = (escape(title), include_str!("page.css"), ink_rules());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}: latency under load</title>\n\
         <style>\n{COLOURS}{css}{inks}\n</style>\n</head>\n<body>\n"
    )
}

fn title(run: &RunData) -> String {
    let scenario = &run.record.scenario;
    if scenario.title.is_empty() { scenario.name.clone() } else { scenario.title.clone() }
}

fn header(runs: &[RunData], subjects: &[Subject<'_>]) -> String {
    let mut html = String::from("<header>\n");
    let kinds: Vec<String> = runs.iter().map(kind).collect();
    let _ = writeln!(html, "<p class=\"kind\">{}</p>", escape(&kinds.join(" · ")));
    let titles = runs.first().map(title).unwrap_or_default();
    let _ = writeln!(html, "<h1>{}</h1>", escape(&titles));
    for (number, line) in summary_lines(runs).iter().enumerate() {
        let class = if number == 0 { "verdict" } else { "verdict minor" };
        let _ = writeln!(html, "<p class=\"{class}\">{}</p>", escape(line));
    }
    let warnings = warnings(runs);
    if !warnings.is_empty() {
        html += "<div class=\"warning\" role=\"note\">\n";
        for warning in warnings {
            let _ = writeln!(html, "<p><strong>Careful.</strong> {}</p>", escape(&warning));
        }
        html += "</div>\n";
    }
    if subjects.is_empty() {
        html += "<p class=\"note\">No arm of this run has finished a trial.</p>\n";
    }
    html += "</header>\n";
    html
}

fn kind(run: &RunData) -> String {
    let record = &run.record;
    let trials = count(record.trials.len() as u64, "trial");
    let name = &record.scenario.name;
    let day = record.host.started.split('T').next().unwrap_or_default();
    let parts = [name.as_str(), record.world.description(), trials.as_str(), day];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn distribution_section(plots: &Plots) -> String {
    if plots.distributions.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>How often it is how bad</h2>\n");
    html += "<p class=\"note\">A curve further left is better; a steep one means that every moment \
             is like the others.</p>\n";
    html += &figures(&plots.distributions, Headings::Shown);
    html += &figures(&plots.histograms, Headings::Shown);
    html
}

fn timeline_section(subjects: &[Subject<'_>], plots: &Plots) -> String {
    if plots.timelines.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Over time</h2>\n");
    html += "<p class=\"note\">One trial per arm. All arms have the same scales. Curves are thinned to the smallest and the \
             largest value per pixel, so every peak is there.</p>\n";
    if subjects.len() > MOST_TIMELINES {
        let _ = writeln!(
            html,
            "<p class=\"note\">The first {MOST_TIMELINES} of {} arms are drawn; the series of all \
             are in <code>series.parquet</code>.</p>",
            subjects.len()
        );
    }
    html += &figures(&plots.timelines, Headings::Shown);
    html
}

/// Whether figures carry their title as a heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Headings {
    Shown,
    Hidden,
}

fn figures(plots: &[Plot], headings: Headings) -> String {
    if plots.is_empty() {
        return String::new();
    }
    let mut html = String::from("<div class=\"figures\">\n");
    for plot in plots {
        html += "<figure>\n";
        if headings == Headings::Shown {
            let _ = writeln!(html, "<h3>{}</h3>", escape(&plot.title));
        }
        html += &plot.inline();
        let _ = writeln!(html, "<figcaption>{}</figcaption>\n</figure>", escape(&plot.caption));
    }
    html += "</div>\n";
    html
}

/// A table row that names the arm of the rows below it, with disciplines and profiles.
fn arm_row(subject: &Subject<'_>, columns: usize) -> String {
    let (name, label) = (escape(&subject.name), &subject.arm.label);
    let spec = if label.is_empty() || *label == subject.arm.name {
        String::new()
    } else {
        format!(" <span class=\"spec\">{}</span>", escape(label))
    };
    let swatch = swatch(subject.position);
    format!(
        "<tr class=\"arm\"><th class=\"text\" colspan=\"{columns}\" scope=\"rowgroup\">\
         <span class=\"pin\">{swatch}{name}{spec}</span></th></tr>\n"
    )
}

fn swatch(position: usize) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 24 9\" aria-hidden=\"true\">\
         <line class=\"s-a{}\" x1=\"0\" y1=\"4.5\" x2=\"24\" y2=\"4.5\"/></svg>",
        position % 32
    )
}

fn table(head: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Ramp => "ramp-up",
        Phase::Load => "under load",
        Phase::Drain => "draining",
        Phase::Whole => "whole trial",
    }
}
