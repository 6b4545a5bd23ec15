//! `report.html`: one page that needs neither network nor script. With a script its tables can be
//! sorted and its plots show values under the pointer; without one the content is the same.

mod applications;
mod cohorts;
mod comparison;
mod contents;
mod figures;
mod header;
mod history;
mod latency;
mod measured;
mod pairs;
mod parts;
mod provenance;
mod published;
mod queues;
mod service_flows;
mod study;
mod sweep;
mod trials;
mod variants;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use maud::html;
use underload_disk::{self as disk, Access};
use underload_record::text::plain_text;
use underload_store::RunData;

use crate::plot::{Plot, Plots};
use crate::subject::{Subject, subjects};

use contents::with_contents;

pub use cohorts::cohort_page;
pub use history::{HistoryPage, history_page};
pub use pairs::{Pairs, pairs_page};
pub use sweep::{sweep_page, write_sweep_report};

pub(crate) use trials::MOST_TRIALS;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    #[error("no run to report on")]
    Empty,
    /// A file that would be replaced is not from an earlier report.
    #[error(
        "{}: already there and not written by this program; name another folder",
        path.display()
    )]
    NotOurs { path: PathBuf },
    #[error("{}: cannot {action}", path.display())]
    Io {
        path: PathBuf,
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl PageError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> PageError {
        move |source| PageError::Io { path: path.to_owned(), action, source }
    }
}

/// Renders the page of one run, or of several side by side.
///
/// # Errors
/// Returns [`PageError::Empty`] without runs.
pub fn render(runs: &[RunData]) -> Result<String, PageError> {
    let subjects = subjects(runs);
    let plots = Plots::of(&subjects);
    page(runs, &subjects, &plots)
}

/// Draws the plots of that page, each as it is written to a separate file.
pub fn plots(runs: &[RunData]) -> Vec<Plot> {
    Plots::of(&subjects(runs)).all().cloned().collect()
}

/// Writes `report.html` and every plot as `plots/NAME.svg` into a directory, and returns the path
/// of the page. Replaces the files of an earlier report, each atomically.
///
/// # Errors
/// As [`render`]; [`PageError::Io`] if writing fails; [`PageError::NotOurs`] if a file with such a
/// name is not from an earlier report. That file is not changed.
pub fn write_report(directory: &Path, runs: &[RunData]) -> Result<PathBuf, PageError> {
    let subjects = subjects(runs);
    let plots = Plots::of(&subjects);
    let html = page(runs, &subjects, &plots)?;
    let (folder, path) = (directory.join("plots"), directory.join("report.html"));
    let files: Vec<(PathBuf, &Plot)> =
        plots.all().map(|plot| (folder.join(format!("{}.svg", plot.name)), plot)).collect();
    // Checks all files before it writes any.
    check_file_of(directory, &path, PAGE_MARK)?;
    files.iter().try_for_each(|(path, _)| check_file_of(directory, path, SVG_MARK))?;
    disk::create_directory(&folder, Access::Usual).map_err(PageError::io(&folder, "create"))?;
    files.iter().try_for_each(|(path, plot)| write_whole(path, &plot.svg()))?;
    write_whole(&path, &html)?;
    remove_others(&folder, &files)?;
    Ok(path)
}

/// Removes the plots of an earlier report that this one does not have.
fn remove_others(folder: &Path, files: &[(PathBuf, &Plot)]) -> Result<(), PageError> {
    for entry in fs::read_dir(folder).map_err(PageError::io(folder, "read"))? {
        let path = entry.map_err(PageError::io(folder, "read"))?.path();
        let is_plot = path.extension().is_some_and(|it| it == "svg")
            && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file());
        let is_other = || files.iter().all(|(file, _)| *file != path);
        // A file without the mark belongs to another program.
        if is_plot && is_other() && check_replaceable(&path, SVG_MARK).is_ok() {
            disk::remove(&path).map_err(PageError::io(&path, "remove"))?;
        }
    }
    Ok(())
}

/// Writes the page alone, with its plots in it, and may replace an earlier page.
pub fn write_page(path: &Path, runs: &[RunData]) -> Result<(), PageError> {
    replace_page(path, &render(runs)?)
}

/// Writes a page, and may replace an earlier page of this program.
///
/// # Errors
/// As [`check_page_path`]; [`PageError::Io`] if writing fails.
pub fn replace_page(path: &Path, html: &str) -> Result<(), PageError> {
    check_page_path(path)?;
    write_whole(path, html)
}

/// Writes numbers for Prometheus, and may replace earlier ones of this program. The file changes as
/// a whole, because a collector may read it at any time.
///
/// # Errors
/// As [`replace_page`].
pub fn replace_numbers(path: &Path, numbers: &str) -> Result<(), PageError> {
    check_replaceable(path, NUMBERS_MARK)?;
    write_whole(path, numbers)
}

/// Writes a file as a whole, because a reader may open it at any time.
fn write_whole(path: &Path, text: &str) -> Result<(), PageError> {
    disk::write_whole(path, text.as_bytes(), Access::Usual).map_err(PageError::io(path, "write"))
}

/// Checks that [`replace_page`] may write a page there.
///
/// # Errors
/// Returns [`PageError::NotOurs`] if another file is there, [`PageError::Io`] if it cannot be read.
pub fn check_page_path(path: &Path) -> Result<(), PageError> {
    check_replaceable(path, PAGE_MARK)
}

/// Texts within the first bytes of all pages and plots of every version.
const PAGE_MARK: &str = ": latency under load</title>";
const NUMBERS_MARK: &str = "# HELP underload";
const SVG_MARK: &str = "<svg class=\"plot\"";
const MARK_WITHIN_BYTES: u64 = 64 << 10;

/// Rejects links below `directory`, which another user may have created, then checks `path` as
/// [`check_replaceable`] does.
fn check_file_of(directory: &Path, path: &Path, mark: &str) -> Result<(), PageError> {
    disk::refuse_links(directory, path).map_err(PageError::io(path, "write"))?;
    check_replaceable(path, mark)
}

/// Rejects a file without the mark of this program's reports.
fn check_replaceable(path: &Path, mark: &str) -> Result<(), PageError> {
    match fs::metadata(path) {
        // A missing file cannot be lost, and writing fails on anything that is not a file.
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

/// Variants above which the page begins with a line per variant and the published numbers.
const MANY_VARIANTS: usize = 12;

fn page(runs: &[RunData], subjects: &[Subject<'_>], plots: &Plots) -> Result<String, PageError> {
    let first = runs.first().ok_or(PageError::Empty)?;
    // Details of many variants are folded.
    let is_many = subjects.len() > MANY_VARIANTS;
    // The reader of a measured line looks for the moment at which it became slow.
    let is_measured = crate::measured::findings(runs).is_some();
    let content = html! {
        (header::header(first, runs, subjects))
        (study::section(runs))
        (figures::asked_for_section(plots))
        @if is_many { (variants::section(subjects)) (published::section(runs)) }
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
    // Templates escape markup, and not what a terminal that shows the file would obey.
    Ok(plain_text(&with_contents(&page)))
}
