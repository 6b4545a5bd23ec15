//! Links between the pages: none is dead, and the book's table of contents has every page.

use std::collections::BTreeSet;
use std::fs;

use crate::pages::{CONTRIBUTING, has_extension, notebook_texts, resolve};

const CONTENTS: &str = "docs/SUMMARY.md";

/// Returns the faults of links in the tracked pages and of the table of contents.
pub fn problems(files: &[&str]) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(file).ok();
    let mut problems = missing_of_contents(files, &read(CONTENTS).unwrap_or_default());
    let has_links = |file: &&&str| has_extension(file, "md") || has_extension(file, "ipynb");
    for file in files.iter().filter(has_links) {
        let Some(mut page) = read(file) else { continue };
        if has_extension(file, "ipynb") {
            page = notebook_texts(&page);
        }
        problems.extend(dead(file, &page, files, &read));
    }
    problems
}

/// Returns faults for pages of the book that are not in the table of contents.
fn missing_of_contents(files: &[&str], contents: &str) -> Vec<String> {
    let listed: BTreeSet<String> = links(contents).map(|it| resolve(CONTENTS, it)).collect();
    let is_in_book = |file: &str| file.starts_with("docs/") && !file.starts_with(CONTRIBUTING);
    let pages = files.iter().filter(|file| has_extension(file, "md") && is_in_book(file));
    let missing = pages.filter(|page| **page != CONTENTS && !listed.contains(**page));
    missing.map(|page| format!("{page}: {CONTENTS} does not list it")).collect()
}

/// Returns faults for links of a page whose file or heading does not exist.
fn dead(
    file: &str,
    page: &str,
    files: &[&str],
    read: &impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let page = without_code(page);
    for link in links(&page).filter(|link| !link.contains(':')) {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { file.to_owned() } else { resolve(file, path) };
        let folder = format!("{}/", target.trim_end_matches('/'));
        if !files.iter().any(|it| *it == target || it.starts_with(&folder)) {
            problems.push(format!("{file}: ({link}) leads nowhere"));
        } else if !heading.is_empty() && has_extension(&target, "md") {
            let text = if path.is_empty() { Some(page.clone()) } else { read(&target) };
            if !headings(&text.unwrap_or_default()).contains(heading) {
                problems.push(format!("{file}: {target} has no heading #{heading}"));
            }
        }
    }
    problems
}

/// Removes blocks and spans of code from a page.
fn without_code(page: &str) -> String {
    let mut fenced = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Odd parts are between backticks; in a heading they are part of its name.
            let parts = line.split('`').enumerate();
            let is_heading = line.starts_with('#');
            text.extend(parts.filter(|(at, _)| is_heading || at % 2 == 0).map(|(_, part)| part));
            text.push('\n');
        }
    }
    text
}

fn links(page: &str) -> impl Iterator<Item = &str> {
    let ends = |rest: &'_ str| rest.find([')', ' ']).unwrap_or(rest.len());
    page.split("](").skip(1).map(move |rest| &rest[..ends(rest)])
}

/// Returns the anchors of a page's headings.
fn headings(page: &str) -> BTreeSet<String> {
    let titles = page.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| name(line.trim_start_matches('#').trim())).collect()
}

/// Returns the anchor of a heading, as the forge and mdBook make it.
fn name(title: &str) -> String {
    let kept = |it: char| it.is_alphanumeric() || it == '_' || it == '-' || it == ' ';
    title.to_lowercase().chars().filter(|it| kept(*it)).collect::<String>().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_told() {
        let files = ["docs/a.md", "docs/queues/b.md", "README.md", "docs/images/c.svg"];
        let read = |file: &str| (file == "docs/a.md").then(|| "## `x`: what it is\n".to_owned());
        let page = "[1](../a.md#x-what-it-is) [2](../a.md#y) [3](../../README.md) [4](gone.md)\n\
                    [5](https://one.example/gone.md) `[6](code.md)` ![7](../images/c.svg) [8](#h)\n\
                    ```\n[9](block.md)\n```\n## h\n";
        let told = dead("docs/queues/b.md", page, &files, &read);
        let expected = [
            "docs/queues/b.md: docs/a.md has no heading #y",
            "docs/queues/b.md: (gone.md) leads nowhere",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_page_that_the_contents_lack_is_told() {
        let files = [
            "docs/SUMMARY.md", "docs/a.md", "docs/b/c.md", "docs/contributing/e.md", "CHANGELOG.md",
        ];
        let told = missing_of_contents(&files, "[A](a.md)\n- [D](d.md)");
        assert_eq!(told, ["docs/b/c.md: docs/SUMMARY.md does not list it"]);
    }
}
