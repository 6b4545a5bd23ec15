//! Finds all mistakes in a plan's text, of which the TOML parser reports only the first.
//!
//! Each reported mistake is repaired in a copy of the text, which is parsed again: an unknown key
//! is renamed to the key that was probably meant, or removed; a value of the wrong type is replaced
//! by one that the key accepts; a missing key is added.

use serde::de::DeserializeOwned;
use underload_aqm::config::closest;

use super::error::PlanError;

/// The result of parsing a file with its mistakes.
pub(crate) struct Reading<F> {
    /// `None` if a mistake could not be repaired.
    pub file: Option<F>,
    pub mistakes: Vec<PlanError>,
    /// The repaired text that `file` was parsed from.
    pub text: String,
    /// The number of the user's line, from 1, for each line of `text`.
    pub numbers: Vec<usize>,
}

/// Maximum number of mistakes that are reported.
const MISTAKES_MAX: usize = 64;
/// Longest text that is repaired.
const REPAIRED_BYTES_MAX: usize = 64 << 10;
/// Each key accepts at least one of these.
const VALUES: [&str; 7] = ["1", "\"1mbit\"", "\"1s\"", "\"1MB\"", "\"latency\"", "\"x\"", "[]"];

/// Parses a file and finds its mistakes.
pub(crate) fn read<F: DeserializeOwned>(text: &str) -> Reading<F> {
    let numbers = (1..=text.lines().count().max(1)).collect();
    let mut reading = Reading { file: None, mistakes: Vec::new(), text: text.to_owned(), numbers };
    // Each repair parses the text again, so a very long text is not repaired.
    let most = if text.len() > REPAIRED_BYTES_MAX { 1 } else { MISTAKES_MAX };
    while reading.mistakes.len() < most {
        let error = match toml::from_str::<F>(&reading.text) {
            Ok(file) => {
                reading.file = Some(file);
                break;
            }
            Err(error) => error,
        };
        let mistake = Mistake::from_error(&reading.text, &error);
        let line = mistake.line.and_then(|line| reading.numbers.get(line).copied());
        let problem = mistake.problem.clone();
        reading.mistakes.push(PlanError { line, problem, others: Vec::new() });
        if !reading.repair(&mistake) {
            break;
        }
    }
    reading
}

/// A mistake as the TOML parser reports it.
struct Mistake {
    problem: String,
    span: std::ops::Range<usize>,
    /// Counted from 0; `None` if the parser reports no position.
    line: Option<usize>,
    kind: Kind,
}

enum Kind {
    /// The key, and the known key that was probably meant.
    Unknown { key: String, meant: Option<String> },
    /// A key that the table needs.
    Missing { key: String },
    /// A mistake in a value or in the syntax.
    Other,
}

impl Mistake {
    fn from_error(text: &str, error: &toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', ", ");
        let span = error.span().unwrap_or(0..0);
        let line = error.span().map(|span| text[..span.start].matches('\n').count());
        // Words in backticks: the key first, then the keys that are accepted.
        let mut words = message.split('`').skip(1).step_by(2);
        let key = words.next().unwrap_or_default().to_owned();
        let is_variant = message.starts_with("unknown variant");
        let known: Vec<&str> = words.collect();
        let meant = closest(&key, known.iter().copied()).map(str::to_owned);
        let meant_variant = meant.clone().filter(|_| is_variant);
        let kind = if message.starts_with("unknown field") {
            Kind::Unknown { key, meant }
        } else if message.starts_with("missing field") {
            Kind::Missing { key }
        } else {
            Kind::Other
        };
        let problem = match &kind {
            Kind::Unknown { key, meant: Some(meant) } => {
                format!("unknown key `{key}`; did you mean `{meant}`?")
            }
            Kind::Unknown { .. } => message.replacen("unknown field", "unknown key", 1),
            Kind::Missing { key } => format!("missing key `{key}`"),
            Kind::Other => message,
        };
        let problem = match &meant_variant {
            Some(meant) => format!("{problem}; did you mean `{meant}`?"),
            None => problem,
        };
        Self { problem, span, line, kind }
    }
}

impl<F: DeserializeOwned> Reading<F> {
    /// Repairs a mistake. Returns false if no candidate removes it.
    fn repair(&mut self, mistake: &Mistake) -> bool {
        let Some(line) = mistake.line else { return false };
        // The position at which a missing key is added. A value that the key refuses does not
        // repair the mistake.
        let added = self.line_below(line);
        let candidates: Vec<(String, Vec<usize>)> = match &mistake.kind {
            Kind::Unknown { key, meant } => {
                let renamed = meant.iter().map(|meant| {
                    let (before, after) = self.text.split_at(mistake.span.start);
                    let changed = format!("{before}{}", after.replacen(key.as_str(), meant, 1));
                    (changed, self.numbers.clone())
                });
                renamed.chain([self.without(line)]).collect()
            }
            Kind::Missing { key } => {
                VALUES.into_iter().map(|value| self.with(line, key, value)).collect()
            }
            Kind::Other => {
                let replaced = self.text.get(mistake.span.clone()).unwrap_or_default();
                let breaks = "\n".repeat(replaced.matches('\n').count());
                let change = |value: &str| {
                    let mut text = self.text.clone();
                    text.replace_range(mistake.span.clone(), &format!("{value}{breaks}"));
                    (text, self.numbers.clone())
                };
                VALUES.into_iter().map(change).collect()
            }
        };
        let is_good = |(text, _): &(String, Vec<usize>)| {
            if toml::from_str::<toml::Table>(text).is_err() {
                return false;
            }
            let Err(error) = toml::from_str::<F>(text) else { return true };
            let next = Mistake::from_error(text, &error);
            let is_refused = match mistake.kind {
                Kind::Unknown { .. } => false,
                Kind::Missing { .. } => {
                    next.line == Some(added) && matches!(next.kind, Kind::Other)
                }
                Kind::Other => next.span.start == mistake.span.start,
            };
            let is_same =
                (next.span.start, &next.problem) == (mistake.span.start, &mistake.problem);
            !is_refused && !is_same
        };
        let Some((text, numbers)) = candidates.into_iter().find(is_good) else { return false };
        (self.text, self.numbers) = (text, numbers);
        true
    }

    /// Returns the text with line `line` emptied; if this is the header of a section, with the
    /// whole section emptied.
    fn without(&self, line: usize) -> (String, Vec<usize>) {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_header = |line: &&str| line.trim_start().starts_with('[');
        let body = lines.iter().skip(line + 1);
        let is_section = lines.get(line).is_some_and(is_header);
        let body = body.take_while(|line| is_section && !is_header(line));
        let count = 1 + body.count();
        let kept = lines
            .iter()
            .enumerate()
            .map(|(at, text)| if (line..line + count).contains(&at) { "" } else { text });
        (kept.collect::<Vec<_>>().join("\n") + "\n", self.numbers.clone())
    }

    /// Returns the text with a key added below the section header at `line`, or at the top.
    fn with(&self, line: usize, key: &str, value: &str) -> (String, Vec<usize>) {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        let mut numbers = self.numbers.clone();
        let at = self.line_below(line);
        lines.insert(at.min(lines.len()), format!("{key} = {value}"));
        let number = numbers.get(line).copied().unwrap_or(1);
        numbers.insert(at.min(numbers.len()), number);
        (lines.join("\n") + "\n", numbers)
    }

    /// Returns the line below the section header at `line`, or the first line.
    fn line_below(&self, line: usize) -> usize {
        let is_header = |line: &str| line.trim_start().starts_with('[');
        if self.text.lines().nth(line).is_some_and(is_header) { line + 1 } else { 0 }
    }
}
