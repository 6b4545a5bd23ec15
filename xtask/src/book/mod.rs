//! `cargo xtask book`: the documentation as a book with search, built by mdBook.
//!
//! The pages in `docs/` are read on the forge and in the book. Links out of `docs/`, such as
//! `../ARCHITECTURE.md`, lead to the forge from the book, so the pages are copied first.

pub mod links;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::pages::{CONTRIBUTING, outward, resolve};
use crate::process::{fresh_folder, output};
use crate::skips;

const SOURCE: &str = "docs";
/// The files of the documentation that the programs print, with their commands.
const WRITTEN: [(&str, &[&str]); 7] = [
    ("reference/commands.md", &["underload", "reference", "commands"]),
    ("reference/queues-and-links.md", &["underload", "reference", "queues-and-links"]),
    ("reference/scenarios.md", &["underload", "reference", "scenarios"]),
    ("reference/scenario-keys.md", &["underload", "reference", "scenario-keys"]),
    ("reference/fleet.md", &["underload-fleet", "reference"]),
    ("scenario.schema.json", &["underload", "check", "--schema", "scenario"]),
    ("sweep.schema.json", &["underload", "check", "--schema", "sweep"]),
];

/// Builds the book into `target/book`. Without mdBook, reports a skip and returns `None`.
pub fn build() -> anyhow::Result<Option<PathBuf>> {
    let version = match Command::new("mdbook").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skips::report("book", "mdbook is missing; cargo install --locked mdbook");
            return Ok(None);
        }
        output => output.context("mdbook --version")?,
    };
    let (folder, book) = (target().join("book-source"), target().join("book"));
    fresh_folder(&folder)?;
    copy(Path::new(SOURCE), &folder.join(SOURCE))?;
    crate::notebooks::into_book(&folder.join(SOURCE))?;
    crate::playground::into_book(&folder.join(SOURCE).join("playground"))?;
    fs::copy("book.toml", folder.join("book.toml")).context("book.toml")?;
    let place = std::path::absolute(&book)?;
    succeed(Command::new("mdbook").arg("build").arg("--dest-dir").arg(&place).arg(&folder))?;
    let dead = dead_links(&book)?;
    for link in &dead {
        eprintln!("{link}");
    }
    if !dead.is_empty() {
        bail!("{} links of the book lead nowhere", dead.len());
    }
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    eprintln!("{version}: {}", book.join("index.html").display());
    Ok(Some(book))
}

/// Copies pages and pictures, without the pages for contributors. Links to other files become links
/// to the forge.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let place = to.join(path.file_name().unwrap_or_default());
        if path == Path::new(CONTRIBUTING) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &place)?;
        } else if path.extension().is_some_and(|it| it == "md") && !path.ends_with("SUMMARY.md") {
            let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            fs::write(&place, outward(&page, &path))
                .with_context(|| place.display().to_string())?;
        } else {
            fs::copy(&path, &place).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns links and pictures of the built pages whose file is missing.
fn dead_links(book: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = Vec::new();
    html_below(book, &mut pages)?;
    let mut dead = Vec::new();
    // The page for missing pages is shown at any address.
    for page in pages.iter().filter(|page| !page.ends_with("404.html")) {
        let text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
        let here = page.strip_prefix(book)?.to_string_lossy().into_owned();
        for attribute in ["href=\"", "src=\""] {
            for rest in text.split(attribute).skip(1) {
                let link = rest.split('"').next().unwrap_or_default();
                let file = link.split(['#', '?']).next().unwrap_or_default();
                let foreign = link.contains(':') || file.is_empty() || link.contains('{');
                if !foreign && !book.join(resolve(&here, file)).exists() {
                    dead.push(format!("{here}: {link}"));
                }
            }
        }
    }
    Ok(dead)
}

fn html_below(folder: &Path, pages: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            html_below(&path, pages)?;
        } else if path.extension().is_some_and(|it| it == "html") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Writes the files of the documentation that the programs print.
pub fn reference() -> anyhow::Result<()> {
    // The whole workspace, as in all checks: a single package would be built a second time.
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--locked", "--workspace", "--bins"]);
    succeed(&mut build)?;
    for (page, command) in WRITTEN {
        let [program, words @ ..] = command else { bail!("{page}: no command") };
        let mut command = Command::new(target().join("debug").join(program));
        let text = output(command.args(words))?;
        let file = format!("{SOURCE}/{page}");
        fs::write(&file, text).with_context(|| file.clone())?;
        eprintln!("{file}");
    }
    Ok(())
}
