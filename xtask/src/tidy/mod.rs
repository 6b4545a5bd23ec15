//! Rules of this repository that no other tool checks.
//!
//! - [`budget`]: counts that may only fall: code, packages, sizes, banned and unused code.
//! - [`code`]: lines of code, without comments and apart from tests.
//! - [`names`]: names in the documentation, which must exist.
//! - [`unused`]: files that no module includes, and public items that nothing uses.

pub mod budget;
mod code;
mod names;
mod unused;

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::pages::{CONTRIBUTING, has_extension};
use crate::process::git;
use names::Names;

/// Maximum number of lines of a source file: one file, one idea.
const MAX_LINES: usize = 800;
/// Folders of pages, and the pages that link to every page of the folder.
const INDEXES: [(&str, &[&str]); 2] = [
    ("docs/", &["docs/README.md", "docs/SUMMARY.md"]),
    (CONTRIBUTING, &["docs/contributing/overview.md"]),
];

/// Checks every file that git tracks.
pub fn check() -> anyhow::Result<()> {
    let files = tracked()?;
    let mut problems = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(file) else { continue };
        if has_extension(file, "rs") {
            let lines = text.lines().count();
            if lines > MAX_LINES {
                problems.push(format!("{file}: {lines} lines; split it at {MAX_LINES}"));
            }
            if !text.starts_with("//!") && !text.starts_with("#![") {
                problems.push(format!("{file}: does not start with `//!` saying what it is"));
            }
        }
        if text.lines().any(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ")) {
            problems.push(format!("{file}: a merge conflict marker"));
        }
    }
    for (folder, indexes) in INDEXES {
        for index in indexes {
            let text = fs::read_to_string(index).context(*index)?;
            problems.extend(unlisted(folder, index, &text, &files));
        }
    }
    problems.extend(Names::read(&files, crate::USAGE)?.problems());
    problems.extend(unused::files(&files));
    problems.extend(budget::problems()?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    Ok(())
}

/// Returns the files that git tracks and that were not deleted since the last commit.
fn tracked() -> anyhow::Result<Vec<String>> {
    let files = git(&["ls-files", "-z"])?;
    let exists = |file: &&str| !file.is_empty() && Path::new(file).exists();
    Ok(files.split('\0').filter(exists).map(str::to_owned).collect())
}

/// Reports the pages of a folder that its index does not link to. Pages for contributors have a
/// separate index.
fn unlisted(folder: &str, index: &str, text: &str, files: &[String]) -> Vec<String> {
    let is_page = |file: &&String| {
        has_extension(file, "md")
            && (folder == CONTRIBUTING || !file.starts_with(CONTRIBUTING))
            && !INDEXES.iter().any(|(_, indexes)| indexes.contains(&file.as_str()))
    };
    let pages = files.iter().filter(is_page);
    let pages = pages.filter_map(|file| Some((file, file.strip_prefix(folder)?)));
    let unlisted = pages.filter(|(_, page)| !text.contains(&format!("]({page})")));
    unlisted.map(|(file, _)| format!("{file}: {index} does not link to it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_links_to_every_page_of_its_folder() {
        let text = "[a](a.md), [b](queues/b.md), [there](../README.md)";
        let files = ["docs/README.md", "docs/a.md", "docs/queues/b.md", "docs/d.md", "README.md"];
        let mut files = files.map(str::to_owned).to_vec();
        files.push("docs/contributing/e.md".to_owned());
        let found = unlisted("docs/", "docs/README.md", text, &files);
        assert_eq!(found, ["docs/d.md: docs/README.md does not link to it"]);
        assert_eq!(unlisted(CONTRIBUTING, "overview", "", &files).len(), 1);
    }
}
