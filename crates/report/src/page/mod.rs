//! `report.html`: one page that needs no network, no script and no explanation. With a script its
//! tables are sorted and its plots tell values; without one nothing is missing.

mod applications;
mod arms;
mod book;
mod cohorts;
mod comparison;
mod contents;
mod figures;
mod header;
mod history;
mod latency;
mod measured;
mod parts;
mod provenance;
mod published;
mod queues;
mod replay;
mod service_flows;
mod study;
mod sweep;
mod trials;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use maud::html;
use underload_disk::{self as disk, Access};
use underload_store::RunData;

use crate::plot::{Plot, PlotError, Plots};
use crate::subject::{Subject, subjects};

use contents::with_contents;

pub use book::{FigurePage, write_figure_pages};
pub use cohorts::cohort_page;
pub use history::{history_page, write_history};
pub use replay::{check_replay_place, replay_page, write_replay};
pub use sweep::{sweep_page, write_sweep_report};

pub(crate) use trials::MOST_TRIALS;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// There is no run to report on.
    #[error("no run to report on")]
    Empty,
    /// A plot could not be laid out.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A file that would be replaced is not of an earlier report.
    #[error(
        "{}: already there and not written by this program; name another folder",
        path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `create`, `write` or `read`.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

impl PageError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> PageError {
        move |source| PageError::Io { path: path.to_owned(), action, source }
    }
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
/// As [`render`], or [`PageError::Io`] with what the disk said, and [`PageError::NotOurs`] where a
/// file of such a name is not of an earlier report: it stays as it is.
pub fn write_report(directory: &Path, runs: &[RunData]) -> Result<PathBuf, PageError> {
    let subjects = subjects(runs);
    let plots = Plots::of(&subjects)?;
    let html = page(runs, &subjects, &plots)?;
    let (folder, path) = (directory.join("plots"), directory.join("report.html"));
    let files: Vec<(PathBuf, &Plot)> =
        plots.all().map(|plot| (folder.join(format!("{}.svg", plot.name)), plot)).collect();
    // Before anything is written: all of a report, or none of it.
    check_file_of(directory, &path, PAGE_MARK)?;
    files.iter().try_for_each(|(path, _)| check_file_of(directory, path, SVG_MARK))?;
    disk::create_directory(&folder, Access::Usual).map_err(PageError::io(&folder, "create"))?;
    let write = |path: &Path, text: &str| {
        disk::write_whole(path, text.as_bytes(), Access::Usual)
            .map_err(PageError::io(path, "write"))
    };
    files.iter().try_for_each(|(path, plot)| write(path, &plot.svg()))?;
    write(&path, &html)?;
    Ok(path)
}

/// Writes the page alone, with its plots in it, as a file that may replace an earlier report.
///
/// # Errors
///
/// As [`write_report`].
pub fn write_page(path: &Path, runs: &[RunData]) -> Result<(), PageError> {
    let html = render(runs)?;
    check_replaceable(path, PAGE_MARK)?;
    disk::write_whole(path, html.as_bytes(), Access::Usual).map_err(PageError::io(path, "write"))
}

/// What the pages and the plots of every version have within their first bytes.
const PAGE_MARK: &str = ": latency under load</title>";
const SVG_MARK: &str = "<svg class=\"plot\"";
const MARK_WITHIN_BYTES: u64 = 64 << 10;

/// Refuses links below `directory`, which another user may have created, then checks `path` as
/// [`check_replaceable`] does.
fn check_file_of(directory: &Path, path: &Path, mark: &str) -> Result<(), PageError> {
    disk::refuse_links(directory, path).map_err(PageError::io(path, "write"))?;
    check_replaceable(path, mark)
}

/// Refuses a file that no report of ours left there.
fn check_replaceable(path: &Path, mark: &str) -> Result<(), PageError> {
    match fs::metadata(path) {
        // What is missing cannot be lost, and what is no file is not replaced.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(facts) if !facts.is_file() => return Ok(()),
        _ => {}
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MARK_WITHIN_BYTES).read_to_end(&mut start))
        .map_err(PageError::io(path, "read"))?;
    if start.is_empty() || String::from_utf8_lossy(&start).contains(mark) {
        return Ok(());
    }
    Err(PageError::NotOurs { path: path.to_owned() })
}

/// Arms from which on the page begins with the published numbers.
const MANY_ARMS: usize = 12;

fn page(runs: &[RunData], subjects: &[Subject<'_>], plots: &Plots) -> Result<String, PageError> {
    let first = runs.first().ok_or(PageError::Empty)?;
    // Of many arms nobody reads bar by bar: a line for each, what was published, details folded.
    let is_many = subjects.len() > MANY_ARMS;
    // Who measured a line looks for the moment at which it went wrong.
    let is_measured = crate::measured::findings(runs).is_some();
    let content = html! {
        (header::header(first, runs, subjects))
        (study::section(runs))
        (figures::asked_for_section(plots))
        @if is_many { (arms::section(subjects)) (published::section(runs)) }
        (measured::section(runs))
        @if is_measured { (figures::timeline_section(subjects, plots, is_many)) }
        (latency::section(subjects, &plots.overview, is_many))
        (figures::distribution_section(subjects, plots, is_many))
        (comparison::section(subjects, is_many))
        (queues::section(subjects, is_many))
        (service_flows::section(subjects))
        (applications::section(subjects, is_many))
        @if !is_measured { (figures::timeline_section(subjects, plots, is_many)) }
        @if !is_many { (published::section(runs)) }
        (trials::section(runs))
        (provenance::section(runs))
    };
    let page = header::interactive(header::title(first), &content).into_string();
    Ok(without_controls(with_contents(&page)))
}

/// The templates escape what would be markup. What is left of a stranger's text could still move
/// the cursor of a terminal that shows the file.
fn without_controls(html: String) -> String {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if html.contains(is_obeyed) { html.replace(is_obeyed, "\u{fffd}") } else { html }
}
