//! What is wrong with a scenario, and where.

use std::fmt;
use std::ops::Range;

use underload_aqm::config::closest;

use super::place::Step;

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
    /// What stands there; `None` where `line` is.
    pub excerpt: Option<Box<Excerpt>>,
    /// From the file's root to what is wrong; empty where that has no place in it.
    pub(super) steps: Box<[Step]>,
}

/// A line of a file, and the part of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, or as much of a long one as is worth showing.
    pub text: String,
    /// Characters of `text` before the part that is meant.
    pub before: usize,
    /// Characters of that part.
    pub length: usize,
    /// Where that part begins in the whole line, in characters from 1.
    pub column: usize,
}

/// Characters of a line that are shown, at most, and how many of them before what is meant.
const MOST_SHOWN: usize = 100;
const MOST_BEFORE: usize = 60;

impl Excerpt {
    /// Of the line that `span` begins in.
    fn new(text: &str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let column = text[line_start..start].chars().count() + 1;
        let hidden = (column - 1).saturating_sub(MOST_BEFORE);
        let line = text[line_start..line_end].trim_end().chars().skip(hidden).take(MOST_SHOWN);
        let line: String = line.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = (column - 1 - hidden).min(line.chars().count());
        let meant = text[start..end.clamp(start, line_end)].trim_end().chars().count();
        let length = meant.min(line.chars().count() - before).max(1);
        Self { text: line, before, length, column }
    }
}

impl ScenarioError {
    pub(super) fn new(scenario: &str, key: impl Into<String>, problem: impl Into<String>) -> Self {
        let (key, problem) = (key.into(), problem.into());
        let scenario = scenario.to_owned();
        Self { scenario, line: None, key, problem, excerpt: None, steps: Box::default() }
    }

    /// The same, at a place of the text.
    pub(super) fn at(mut self, text: &str, span: Option<Range<usize>>) -> Self {
        if let Some(span) = span {
            let start = text.floor_char_boundary(span.start);
            self.line = Some(text[..start].matches('\n').count() + 1);
            self.excerpt = Some(Box::new(Excerpt::new(text, &span)));
        }
        self
    }

    /// The same of a scenario that no file holds.
    pub(super) fn without_place(self) -> Self {
        Self { line: None, excerpt: None, steps: Box::default(), ..self }
    }

    pub(super) fn of(mut self, steps: Vec<Step>) -> Self {
        self.steps = steps.into();
        self
    }

    /// Where, what, and the line with the part that is meant underlined.
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

/// All that is wrong with a scenario, each with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioErrors(pub Vec<ScenarioError>);

impl fmt::Display for ScenarioErrors {
    /// As many messages; whoever prints them puts `error: ` before the first one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pictures: Vec<String> = self.0.iter().map(ScenarioError::picture).collect();
        f.write_str(&pictures.join("\nerror: "))
    }
}

impl std::error::Error for ScenarioErrors {}

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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
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

/// The end of the last message of a list that may not be complete.
pub(super) const MORE_MAY_FOLLOW: &str =
    "; more mistakes may follow, which show once this is mended";

/// The prefix of names that [`super::faults`] invents so that reading can continue. No message
/// contains it.
pub(super) const INVENTED: &str = "%%";

/// `a, b or c`, for messages; of a long list its beginning.
pub(crate) fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let is_of_file = |word: &&str| !word.contains(INVENTED);
    let words: Vec<&str> = words.into_iter().filter(is_of_file).collect();
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

/// `no arm is named `x`; expected ...`, with the name that was probably meant.
pub(crate) fn no_arm(name: &str, known: &[&str]) -> String {
    let (names, meant) = (known.iter().copied(), did_you_mean(name, known.iter().copied()));
    format!("no arm is named `{name}`; expected {}{meant}", alternatives(names))
}

/// A question after a message, where one of the known words is close enough to have been meant.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |known| format!("; did you mean `{known}`?"))
}

/// The word that a message asks for by [`did_you_mean`], if it does.
pub(super) fn meant(problem: &str) -> Option<&str> {
    let (_, rest) = problem.rsplit_once("did you mean `")?;
    rest.split_once('`').map(|(word, _)| word)
}

/// Words that a message lists, at most.
const MOST_WORDS: usize = 20;
