//! Pages of the documentation, Markdown and notebooks: their texts and their links.

use std::path::Path;

/// The address at which the book shows files that are outside of it.
pub const FORGE: &str = "https://github.com/underload/underload/blob/main";
/// Pages for contributors, which are not in the book.
pub const CONTRIBUTING: &str = "docs/contributing/";
/// The book's first page, which the book calls `index.html`.
const INDEX: &str = "docs/README.md";

pub fn has_extension(file: &str, wanted: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == wanted)
}

/// Returns the texts of a notebook, without its code. Empty if the file is not a notebook.
pub fn notebook_texts(notebook: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(notebook).unwrap_or_default();
    let cells = document["cells"].as_array().into_iter().flatten();
    let lines = cells.filter(|cell| cell["cell_type"] == "markdown").flat_map(|cell| {
        let lines = cell["source"].as_array().into_iter().flatten();
        lines.filter_map(|line| line.as_str()).chain(["\n"])
    });
    lines.collect()
}

/// Resolves a relative link of a file to a path from the repository's root.
pub fn resolve(file: &str, link: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns a page whose links out of the book lead to the forge.
pub fn outward(page: &str, path: &Path) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        text.push_str("](");
        let link = after.split(')').next().unwrap_or_default();
        let file = link.split('#').next().unwrap_or_default();
        let place = resolve(&path.to_string_lossy(), file);
        let is_in_book = place.starts_with("docs/") && !place.starts_with(CONTRIBUTING);
        if !link.contains("://") && !file.is_empty() && !is_in_book {
            text.extend([FORGE, "/", &place]);
        } else if place == INDEX {
            text.push_str(&file.replace("README.md", "index.html"));
        } else {
            text.push_str(file);
        }
        rest = &after[file.len()..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_forge() {
        let page = "[a](../README.md#b), [c](links.md#d), [e](https://one.example/f), [g](#h)";
        let rewritten = outward(page, Path::new("docs/measure.md"));
        let forge = format!("[a]({FORGE}/README.md#b)");
        assert_eq!(rewritten, page.replace("[a](../README.md#b)", &forge));
        let forge = format!("[a]({FORGE}/docs/contributing/b.md#c)");
        assert_eq!(outward("[a](contributing/b.md#c)", Path::new("docs/measure.md")), forge);
        let inner = outward("[a](../README.md#b)", Path::new("docs/queues/codel.md"));
        assert_eq!(inner, "[a](../index.html#b)", "this one is the book's own first page");
    }

    #[test]
    fn the_texts_of_a_notebook_leave_its_code_out() {
        let notebook = r##"{"cells": [{"cell_type": "markdown", "source": ["# A\n", "[b](c.md)"]},
            {"cell_type": "code", "source": ["d"]}, {"cell_type": "markdown", "source": ["e"]}]}"##;
        assert_eq!(notebook_texts(notebook), "# A\n[b](c.md)\ne\n");
        assert_eq!(notebook_texts("no notebook"), "");
    }
}
