//! What cargo-mutants would change, without its running any of it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::areas::Area;

/// A line and a column, both from 1, as editors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// From the first character to the one behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Extent {
    pub start: Place,
    pub end: Place,
}

/// What kind of thing is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
    #[serde(other)]
    Other,
}

/// One change of the code.
#[derive(Debug, Clone, Deserialize)]
pub struct Change {
    pub file: String,
    /// `FILE:LINE:COLUMN: CHANGE`
    pub name: String,
    pub span: Extent,
    pub replacement: String,
    pub genre: Genre,
}

impl Change {
    /// `replace < with <= in Fifo::enqueue`.
    pub fn said(&self) -> &str {
        self.name.splitn(4, ':').nth(3).unwrap_or(&self.name).trim()
    }
}

/// Asks cargo-mutants for all changes of the area, or of those files of it.
pub fn read(tree: &Path, area: &Area, file: Option<&str>) -> anyhow::Result<Vec<Change>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--package", area.package]).current_dir(tree);
    let whole = area.files.iter().copied();
    let patterns: Vec<&str> = file.map_or_else(|| whole.collect(), |pattern| vec![pattern]);
    command.args(patterns.into_iter().flat_map(|pattern| ["--file", pattern]));
    let output = command.output().context("cargo mutants")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{said}\nis cargo-mutants there? cargo install --locked cargo-mutants");
    }
    serde_json::from_slice(&output.stdout).context("cargo mutants --list --json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_cargo_mutants_is_read() {
        let text = r#"[{
            "name": "a.rs:3:7: replace f -> Result<(), a::B> with Ok(())",
            "file": "a.rs", "package": "p", "genre": "FnValue", "replacement": "Ok(())",
            "span": { "start": { "line": 3, "column": 7 }, "end": { "line": 4, "column": 1 } },
            "function": null
        }, {
            "name": "a.rs:3:7: something new", "file": "a.rs", "genre": "News",
            "replacement": "", "span": { "start": { "line": 3, "column": 7 },
            "end": { "line": 4, "column": 1 } }
        }]"#;
        let changes: Vec<Change> = serde_json::from_str(text).unwrap();
        assert_eq!(changes[0].said(), "replace f -> Result<(), a::B> with Ok(())");
        assert_eq!((changes[0].genre, changes[1].genre), (Genre::FnValue, Genre::Other));
        assert_eq!(changes[0].span.start, Place { line: 3, column: 7 });
    }
}
