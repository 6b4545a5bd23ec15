//! `cargo xtask notebooks`: runs the notebooks and makes pages of the book from them. In CI they
//! run in short forms. The script for both is `python/notebooks/run.py`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::pages::outward;
use crate::process::{paths_in, stem};
use crate::skips;

/// Folder of the notebooks and of the script that runs them.
const FOLDER: &str = "python/notebooks";
/// Variable that makes notebooks run their short forms.
const QUICK: &str = "UNDERLOAD_QUICK";
/// The line of the book's contents after which the pages are inserted.
const ABOVE: &str = "- [Notebooks](notebooks.md)\n";

/// Returns the folder into which the pages are written.
fn pages() -> PathBuf {
    target().join("notebooks")
}

fn notebooks() -> anyhow::Result<Vec<PathBuf>> {
    paths_in(Path::new(FOLDER), "ipynb")
}

/// Runs all notebooks, or the named ones, with `python`, and makes a page of each.
pub fn run_whole(python: &Path, names: &[&str]) -> anyhow::Result<()> {
    let known = notebooks()?;
    let is_named = |path: &&PathBuf| names.is_empty() || names.contains(&stem(path).as_str());
    let wanted: Vec<&PathBuf> = known.iter().filter(is_named).collect();
    if wanted.is_empty() || (!names.is_empty() && wanted.len() < names.len()) {
        let known: Vec<_> = known.iter().filter_map(|path| path.file_stem()).collect();
        bail!("usage: cargo xtask notebooks [NAME...]; there are {known:?}");
    }
    let mut command = script(python);
    command.env_remove(QUICK).arg("--pages").arg(pages()).args(wanted);
    succeed(&mut command)?;
    eprintln!("{}", pages().display());
    Ok(())
}

/// Runs the short forms of all notebooks, which takes seconds.
pub fn run_quickly(python: &Path) -> anyhow::Result<()> {
    skips::succeed(script(python).env(QUICK, "1").args(notebooks()?))
}

fn script(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(FOLDER).join("run.py"));
    command
}

/// Copies the made pages into the book's sources, and lists them in its contents. Skips pages that
/// are older than their notebook.
pub fn into_book(docs: &Path) -> anyhow::Result<()> {
    let mut listed = String::new();
    for notebook in notebooks()? {
        let stem = stem(&notebook);
        let page = pages().join(format!("{stem}.md"));
        let modified = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified());
        let reason = match modified(&page) {
            Err(_) => "not run yet",
            Ok(made) if made < modified(&notebook)? => "changed since it was run",
            Ok(_) => "",
        };
        if !reason.is_empty() {
            skips::report(&stem, &format!("{reason}; cargo xtask notebooks {stem}"));
            continue;
        }
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let folder = docs.join("notebooks");
        fs::create_dir_all(&folder)?;
        let place = format!("docs/notebooks/{stem}.md");
        fs::write(folder.join(format!("{stem}.md")), outward(&text, Path::new(&place)))?;
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let _ = writeln!(listed, "  - [{title}](notebooks/{stem}.md)");
    }
    if listed.is_empty() {
        return Ok(());
    }
    for path in paths_in(&pages(), "svg")? {
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, docs.join("notebooks").join(name))
            .with_context(|| path.display().to_string())?;
    }
    let contents = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&contents).context("SUMMARY.md")?;
    let Some((before, after)) = text.split_once(ABOVE) else {
        bail!("docs/SUMMARY.md does not list notebooks.md as it did");
    };
    fs::write(&contents, format!("{before}{ABOVE}{listed}{after}")).context("SUMMARY.md")
}
