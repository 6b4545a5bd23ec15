//! Mutants that live with a reason: `.cargo/mutants-survivors.toml`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// Where they are listed.
pub const LIST: &str = ".cargo/mutants-survivors.toml";

/// The list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivors {
    #[serde(default)]
    pub survivor: Vec<Survivor>,
}

/// Mutants that no test can or should catch. Named by the text of their line, not by its number,
/// so that a change elsewhere in the file leaves the entry alone, and a change of the line itself
/// asks for the reason again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    pub file: String,
    /// As cargo-mutants says it: `replace < with <= in Fifo::enqueue`.
    pub mutant: String,
    /// The line that it changes, without the blanks around it.
    pub line: String,
    /// Why no test catches it.
    pub reason: String,
}

impl Survivors {
    /// Reads the list of this repository.
    pub fn read() -> anyhow::Result<Self> {
        let text = fs::read_to_string(LIST).context(LIST)?;
        toml::from_str(&text).context(LIST)
    }

    /// Whether a mutant is listed: the place in the list.
    pub fn position(&self, file: &str, mutant: &str, line: &str) -> Option<usize> {
        let same = |it: &Survivor| it.file == file && it.mutant == mutant && it.line == line.trim();
        self.survivor.iter().position(same)
    }

    /// Entries whose file or line is no longer there, or that give no reason.
    pub fn problems(&self) -> Vec<String> {
        let problem = |it: &Survivor| {
            let said = format!("{LIST}: {}: {}", it.file, it.mutant);
            if it.reason.trim().len() < 10 {
                return Some(format!("{said}: no reason"));
            }
            let Ok(text) = fs::read_to_string(Path::new(&it.file)) else {
                return Some(format!("{said}: there is no such file"));
            };
            let found = text.lines().any(|line| line.trim() == it.line);
            (!found).then(|| format!("{said}: the file has no line `{}`", it.line))
        };
        self.survivor.iter().filter_map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(file: &str, line: &str, reason: &str) -> Survivor {
        let mutant = "replace + with - in f".to_owned();
        Survivor { file: file.to_owned(), mutant, line: line.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn a_mutant_is_known_by_the_text_of_its_line() {
        let list = Survivors { survivor: vec![survivor("a.rs", "a + b", "the sum is unused")] };
        assert_eq!(list.position("a.rs", "replace + with - in f", "    a + b"), Some(0));
        assert_eq!(list.position("a.rs", "replace + with - in f", "a + c"), None);
        assert_eq!(list.position("b.rs", "replace + with - in f", "a + b"), None);
        assert_eq!(list.position("a.rs", "replace + with * in f", "a + b"), None);
    }

    #[test]
    fn an_entry_without_a_reason_or_a_place_is_told() {
        let here = "src/mutants/survivors.rs";
        let list = Survivors {
            survivor: vec![
                survivor(here, "use super::*;", "a reason that says why"),
                survivor(here, "use super::*;", "why"),
                survivor(here, "no such line", "a reason that says why"),
                survivor("src/none.rs", "a", "a reason that says why"),
            ],
        };
        let said = list.problems();
        let ends = ["no reason", "the file has no line `no such line`", "there is no such file"];
        assert_eq!(said.len(), ends.len(), "{said:?}");
        assert!(said.iter().zip(ends).all(|(said, end)| said.ends_with(end)), "{said:?}");
    }
}
