//! Rules of this repository that no other tool checks.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::names::Names;
use crate::pages::{CONTRIBUTING, has_extension};
use crate::process::git;
use crate::{documentation, functions};

/// Maximum number of lines of a source file: one file, one idea.
const MAX_LINES: usize = 800;
/// Maximum number of columns of a source line.
const MAX_COLUMNS: usize = 100;
/// Maximum number of columns of a line of a page.
const MAX_PAGE_COLUMNS: usize = 120;
/// Folder of the pages that the program writes.
pub const WRITTEN_PAGES: &str = "docs/reference/";
/// The page that links to every page for users.
const INDEX: &str = "docs/README.md";
/// The page that links to every page for contributors.
const CONTRIBUTING_INDEX: &str = "docs/contributing/overview.md";
/// The book's table of contents, which is not a page.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks every file that git tracks.
pub fn check() -> anyhow::Result<()> {
    let files = git(&["ls-files", "-z"])?;
    // Files that were deleted or moved since the last commit are still listed.
    let exists = |file: &&str| !file.is_empty() && Path::new(file).exists();
    let files: Vec<&str> = files.split('\0').filter(exists).collect();
    let mut problems = modules_beside_folders(&files);
    for file in &files {
        let Ok(text) = fs::read_to_string(file) else { continue };
        if has_extension(file, "rs") {
            check_source(file, &text, &mut problems);
            problems.extend(documentation::riddles(file, &text));
            match syn::parse_file(&text) {
                Ok(source) => {
                    problems.extend(functions::problems(file, &source, functions::MAX_LINES));
                }
                Err(error) => problems.push(format!("{file}: cannot be parsed: {error}")),
            }
        }
        if has_extension(file, "rs") || has_extension(file, "md") {
            check_units(file, &text, &mut problems);
        }
        if has_extension(file, "md") && !file.starts_with(WRITTEN_PAGES) {
            check_page(file, &text, &mut problems);
        }
        if has_conflict_marker(&text) {
            problems.push(format!("{file}: a merge conflict marker"));
        }
    }
    for (index, folder) in [(INDEX, "docs/"), (CONTRIBUTING_INDEX, CONTRIBUTING)] {
        let text = fs::read_to_string(index).context(index)?;
        problems.extend(index_problems(index, folder, &text, &files));
    }
    problems.extend(crate::book::links::problems(&files));
    problems.extend(crate::words::problems(&files));
    problems.extend(Names::read(&files, crate::USAGE)?.problems());
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    Ok(())
}

fn check_source(file: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{file}: {lines} lines; split it at {MAX_LINES}"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        // Rows of tables cannot be wrapped.
        if columns > MAX_COLUMNS && !line.trim_start().starts_with("//! |") {
            problems.push(format!("{file}:{number}: {columns} columns; at most {MAX_COLUMNS}"));
        }
        for word in forbidden() {
            if line.contains(&word) {
                problems.push(format!("{file}:{number}: `{word}` left in"));
            }
        }
    }
    if !text.starts_with("//!") && !text.starts_with("#![") {
        problems.push(format!("{file}: does not start with `//!` saying what it is"));
    }
}

/// Reports lines of text that are too long, except code, rows of tables, headings and lines without
/// a place to wrap.
fn check_page(file: &str, text: &str, problems: &mut Vec<String>) {
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        is_code ^= line.trim_start().starts_with("```");
        let is_kept = is_code || line.starts_with(['|', '<', '#']) || line.starts_with("    ");
        if columns > MAX_PAGE_COLUMNS && !is_kept && can_break(line) {
            problems
                .push(format!("{file}:{number}: {columns} columns; at most {MAX_PAGE_COLUMNS}"));
        }
    }
}

/// Whether a line has a space outside of spans of code and of brackets, which contain links.
fn can_break(line: &str) -> bool {
    let text = line.trim_start_matches(|it: char| it.is_ascii_digit() || " -*>.".contains(it));
    let (mut is_code, mut depth) = (false, 0);
    text.trim_end().chars().any(|letter| {
        match letter {
            '`' => is_code = !is_code,
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ' ' && !is_code && depth == 0
    })
}

/// Returns words that mark unfinished work, assembled so that this file passes its own check.
fn forbidden() -> [String; 3] {
    ["TO", "FIX", "XX"].map(|start| match start {
        "TO" => format!("{start}DO"),
        "FIX" => format!("{start}ME"),
        _ => format!("{start}X"),
    })
}

/// Checks that units have one name: bytes and bit/s.
fn check_units(file: &str, text: &str, problems: &mut Vec<String>) {
    if FOREIGN_FILES.contains(&file) {
        return;
    }
    let foreign = FOREIGN_NAMES.map(|(start, end)| format!("{start}{end}"));
    for (number, line) in (1..).zip(text.lines()) {
        let line = foreign.iter().fold(line.to_lowercase(), |line, name| line.replace(name, ""));
        if line.contains(&format!("{}et", "oct")) {
            problems.push(format!("{file}:{number}: say bytes"));
        }
        if has_rate_word(&line) {
            problems.push(format!("{file}:{number}: say bit_per_s, or bit/s"));
        }
    }
}

/// Files that use the words of a standard.
const FOREIGN_FILES: [&str; 1] = ["crates/docsis/src/snmp.rs"];

/// Names that cannot change, in two parts so that this file passes its own check: a method of the
/// standard library, a content type, a field of the control protocol, a counter of `/metrics`.
const FOREIGN_NAMES: [(&str, &str); 4] = [
    (".oct", "ets()"),
    ("application/oct", "et-stream"),
    ("volume_oct", "ets"),
    ("underload_load_oct", "ets_total"),
];

/// Whether a line has the short word for bits per second after nothing but a number or an
/// underscore. Units such as Mbps are those of another tool's output.
fn has_rate_word(line: &str) -> bool {
    let word = format!("{}s", "bp");
    let alone = |(at, _): (usize, &str)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphabetic) && !after.is_some_and(char::is_alphanumeric)
    };
    line.match_indices(&word).any(alone)
}

fn has_conflict_marker(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "))
}

/// Reports modules with submodules whose first file is outside of their folder.
fn modules_beside_folders(files: &[&str]) -> Vec<String> {
    let modules = files.iter().filter_map(|file| file.strip_suffix(".rs"));
    let has_files = |module: &&str| {
        let inside = |file: &&&str| file.strip_prefix(module).is_some_and(|f| f.starts_with('/'));
        files.iter().filter(inside).any(|file| has_extension(file, "rs"))
    };
    let beside = modules.filter(has_files);
    beside.map(|it| format!("{it}.rs: stands beside its folder; move it to {it}/mod.rs")).collect()
}

/// Reports pages of a folder that its index does not link to, and links of the index to missing
/// pages. The index for users links to that for contributors, and not to its pages.
fn index_problems(index: &str, folder: &str, text: &str, files: &[&str]) -> Vec<String> {
    let links: Vec<&str> = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| has_extension(link, "md") && !link.starts_with("../"))
        .collect();
    let is_elsewhere =
        |file: &str| index == INDEX && file.starts_with(CONTRIBUTING) && file != CONTRIBUTING_INDEX;
    let pages: Vec<&str> = files
        .iter()
        .filter(|file| has_extension(file, "md") && **file != index && **file != CONTENTS)
        .filter(|file| !is_elsewhere(file))
        .filter_map(|file| file.strip_prefix(folder))
        .collect();
    let unnamed = pages.iter().filter(|page| !links.contains(page));
    let unnamed = unnamed.map(|page| format!("{folder}{page}: {index} does not name it"));
    let broken = links.iter().filter(|link| !pages.contains(link));
    let broken = broken.map(|link| format!("{index}: there is no page {folder}{link}"));
    unnamed.chain(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_lies_in_its_folder() {
        let files = ["src/a.rs", "src/a/b.rs", "src/ab.rs", "src/c/mod.rs", "src/c/d.rs"];
        let found = modules_beside_folders(&files);
        assert_eq!(found, ["src/a.rs: stands beside its folder; move it to src/a/mod.rs"]);
        assert!(modules_beside_folders(&["tests/e.rs", "tests/e/data.csv"]).is_empty());
    }

    #[test]
    fn an_index_names_every_page_and_no_other() {
        let text = "[a](a.md), [b](queues/b.md), [there](../README.md), [gone](c.md)";
        let files = ["docs/README.md", "docs/a.md", "docs/queues/b.md", "docs/d.md", "README.md"];
        let unnamed = "docs/d.md: docs/README.md does not name it";
        let broken = "docs/README.md: there is no page docs/c.md";
        assert_eq!(index_problems(INDEX, "docs/", text, &files), [unnamed, broken]);

        let files = ["docs/README.md", CONTRIBUTING_INDEX, "docs/contributing/e.md"];
        let text = "[f](contributing/overview.md)";
        assert!(index_problems(INDEX, "docs/", text, &files).is_empty());
        let unnamed = "docs/contributing/e.md: docs/contributing/overview.md does not name it";
        assert_eq!(index_problems(CONTRIBUTING_INDEX, CONTRIBUTING, "", &files), [unnamed]);
    }

    #[test]
    fn a_unit_has_one_word() {
        let found = |file: &str, line: String| {
            let mut problems = Vec::new();
            check_units(file, &line, &mut problems);
            problems
        };
        let (eight, rate) = (format!("{}ets", "Oct"), format!("{}s", "bp"));
        let bytes = "a.md:1: say bytes";
        let bits = "a.md:1: say bit_per_s, or bit/s";
        assert_eq!(found("a.md", format!("{eight} of a file")), [bytes]);
        assert_eq!(found("a.md", format!("peak_{rate}: u64")), [bits]);
        assert_eq!(found("a.md", format!("|{rate}| 10 {rate}.")), [bits]);
        for foreign in ["10 M", "steps", "20m"] {
            assert_eq!(found("a.md", format!("{foreign}{rate}")), [""; 0], "{foreign}");
        }
        assert_eq!(found("a.md", format!("address.{}()", eight.to_lowercase())), [""; 0]);
        assert_eq!(found("a.md", format!("volume_{}: {eight}", eight.to_lowercase())), [bytes]);
        assert_eq!(found("crates/docsis/src/snmp.rs", eight), [""; 0]);
    }

    #[test]
    fn a_quoted_line_is_as_long_as_any_other() {
        let found = |text: &str| {
            let mut problems = Vec::new();
            check_source("a.rs", text, &mut problems);
            problems
        };
        let long = "x".repeat(MAX_COLUMNS);
        let quoted = format!("//! File.\nlet text = \"{long}\";\n");
        assert_eq!(found(&quoted), ["a.rs:2: 114 columns; at most 100"]);
        assert_eq!(found(&format!("//! | {long} |\n")), [""; 0], "a row of a table");
    }
    #[test]
    fn a_page_has_short_lines_where_they_can_be_broken() {
        let found = |text: &str| {
            let mut problems = Vec::new();
            check_page("a.md", text, &mut problems);
            problems
        };
        let long = "word ".repeat(30);
        assert_eq!(found(&format!("\n{long}.")), ["a.md:2: 151 columns; at most 120"]);
        assert_eq!(found(&format!("- {long}.")), ["a.md:1: 153 columns; at most 120"]);
        let kept = ["| {long} |", "# {long}", "```\n{long}\n```", "- [{long}](a.md),", "`{long}`"];
        for kept in kept.map(|kept| kept.replace("{long}", &long)) {
            assert_eq!(found(&kept), [""; 0], "{kept}");
        }
    }
}
