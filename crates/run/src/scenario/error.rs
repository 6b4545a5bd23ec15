//! What is wrong with a scenario, and where.

use std::fmt;

use underload_aqm::config::closest;

/// A fault of a scenario: which file, which line, which key, and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// File or built-in name.
    pub scenario: String,
    /// Line in the file, from 1; `None` where the fault came from the command line or is an
    /// absence.
    pub line: Option<usize>,
    /// Dotted key, for example `path.up_queue` or `flow.bulk.count`; empty for the whole file.
    pub key: String,
    /// The fault, and the values that would be accepted.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scenario)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ScenarioError {}

/// A fault whose place in the file is not looked up yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub key: String,
    pub problem: String,
}

impl Fault {
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }

    /// Prefixes the fault's key with the table that encloses it.
    pub(crate) fn under(mut self, table: &str) -> Self {
        self.key = match (table, self.key.as_str()) {
            (_, "") => table.to_owned(),
            ("", _) => self.key,
            (table, key) => format!("{table}.{key}"),
        };
        self
    }
}

/// `a, b or c`, for messages; of a long list its beginning.
pub(crate) fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., _] if first.len() >= MOST_WORDS => {
            let shown = &words[..MOST_WORDS];
            format!("{} or one of {} more", shown.join(", "), words.len() - MOST_WORDS)
        }
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// A question after a message, where one of the known words is close enough to have been meant.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |known| format!("; did you mean `{known}`?"))
}

/// Words that a message lists, at most.
const MOST_WORDS: usize = 20;
