//! Errors in a scenario, with their positions.

use std::fmt;
use std::ops::Range;

use underload_record::text::shown;

use crate::keys::{alternatives, did_you_mean};

/// A fault of a scenario: its file, line and key, and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// File or built-in name.
    pub scenario: String,
    /// Line in the file, from 1; `None` if the fault is in the command line or a key is missing.
    pub line: Option<usize>,
    /// Dotted key, for example `path.up_queue` or `flow.bulk.count`; empty for the whole file.
    pub key: String,
    /// The fault, and the values that would be accepted.
    pub problem: String,
    /// The faulty line; `None` if `line` is `None`.
    pub excerpt: Option<Box<Excerpt>>,
}

/// A line of a file, and the faulty part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The line; of a long line, a part around the fault.
    pub text: String,
    /// Characters of `text` before the faulty part.
    pub before: usize,
    pub length: usize,
    /// Column of the faulty part in the whole line, in characters from 1.
    pub column: usize,
}

/// Characters of a line that are shown, at most, and how many of them before the faulty part.
const MOST_SHOWN: usize = 100;
const MOST_BEFORE: usize = 60;

impl Excerpt {
    /// Returns the excerpt of the line in which `span` begins.
    fn new(text: &str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let column = text[line_start..start].chars().count() + 1;
        let hidden = (column - 1).saturating_sub(MOST_BEFORE);
        let line = text[line_start..line_end].trim_end().chars().skip(hidden).take(MOST_SHOWN);
        let line: String = line.map(|c| if c == '\t' { ' ' } else { shown(c) }).collect();
        let before = (column - 1 - hidden).min(line.chars().count());
        let meant = text[start..end.clamp(start, line_end)].trim_end().chars().count();
        let length = meant.min(line.chars().count() - before).max(1);
        Self { text: line, before, length, column }
    }
}

impl ScenarioError {
    pub(crate) fn new(scenario: &str, key: impl Into<String>, problem: impl Into<String>) -> Self {
        let (key, problem) = (key.into(), problem.into());
        let scenario = scenario.to_owned();
        Self { scenario, line: None, key, problem, excerpt: None }
    }

    /// Sets the line and the excerpt by a span of the file's text.
    pub(super) fn at(mut self, text: &str, span: Option<Range<usize>>) -> Self {
        if let Some(span) = span {
            let start = text.floor_char_boundary(span.start);
            self.line = Some(text[..start].matches('\n').count() + 1);
            self.excerpt = Some(Box::new(Excerpt::new(text, &span)));
        }
        self
    }

    /// Returns the message, and below it the line with the faulty part underlined.
    pub fn picture(&self) -> String {
        let (Some(line), Some(excerpt)) = (self.line, &self.excerpt) else {
            return self.to_string();
        };
        let Excerpt { text, before, length, column } = &**excerpt;
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        let margin = " ".repeat(line.to_string().len());
        let (space, marks) = (" ".repeat(*before), "^".repeat(*length));
        format!(
            "{}:{line}:{column}: {key}{}\n{margin} |\n{line} | {text}\n{margin} | {space}{marks}",
            self.scenario, self.problem
        )
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScenarioErrors(pub Vec<ScenarioError>);

impl fmt::Display for ScenarioErrors {
    /// Writes all messages; the caller writes `error: ` before the first one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pictures: Vec<String> = self.0.iter().map(ScenarioError::picture).collect();
        f.write_str(&pictures.join("\nerror: "))
    }
}

impl std::error::Error for ScenarioErrors {}

impl ScenarioErrors {
    /// Adds the errors that are not among these, and sorts all by line.
    pub(crate) fn merge(&mut self, mut others: Self) {
        others.0.retain(|other| !self.0.contains(other));
        self.0.append(&mut others.0);
        self.0.sort_by_key(|error| error.line);
    }

    pub(crate) fn first(self, scenario: &str) -> ScenarioError {
        let mut errors = self.0.into_iter();
        errors.next().unwrap_or_else(|| ScenarioError::new(scenario, "", "cannot be read"))
    }
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

/// The end of the last message of a list that may be incomplete.
pub(super) const MORE_MAY_FOLLOW: &str = "; more errors may show once these are fixed";

/// Returns the message for an unknown variant, with the variants that exist and the closest name.
pub fn no_variant(name: &str, known: &[&str]) -> String {
    let (names, meant) = (known.iter().copied(), did_you_mean(name, known.iter().copied()));
    format!("no variant is named `{name}`; expected {}{meant}", alternatives(names))
}
