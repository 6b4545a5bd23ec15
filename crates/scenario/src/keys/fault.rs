//! Faults in the keys of a file, and their messages.

use std::fmt;

use underload_aqm::config::closest;

/// A fault whose line in the file is not yet known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub key: String,
    pub problem: String,
    /// The table that overrides the key, such as `variant[1]`, or the option of the command line.
    pub origin: Option<String>,
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
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into(), origin: None }
    }

    /// Prefixes the fault's key with the table that encloses it.
    #[must_use]
    pub fn under(mut self, table: &str) -> Self {
        self.key = join(table, &self.key);
        self
    }

    pub(crate) fn of_origin(self, origin: Option<&str>) -> Self {
        Self { origin: origin.map(str::to_owned), ..self }
    }
}

/// Joins a table and a key with a dot; an item of a list, `[2]`, follows its list without one.
pub(crate) fn join(table: &str, key: &str) -> String {
    match (table, key) {
        ("", key) => key.to_owned(),
        (table, "") => table.to_owned(),
        (table, key) if key.starts_with('[') => format!("{table}{key}"),
        (table, key) => format!("{table}.{key}"),
    }
}

/// A list of the distinct faults found so far, at most one more than `MOST_FAULTS`.
#[derive(Debug, Default)]
pub struct Faults {
    found: Vec<Fault>,
}

/// Maximum number of faults of a file that are reported.
pub(crate) const MOST_FAULTS: usize = 30;

impl Faults {
    /// Adds a fault, unless it is there already or the list is full.
    pub fn add(&mut self, fault: Fault) {
        if !self.is_full() && !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    pub fn accept<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.add(fault)).ok()
    }

    /// Prefixes the keys of the faults that `read` adds with `place`.
    pub fn under<T>(&mut self, place: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let mut inner = Self::default();
        let result = read(&mut inner);
        inner.found.into_iter().for_each(|fault| self.add(fault.under(place)));
        result
    }

    /// Whether one of the faults is about `key`, or about a key below it.
    pub fn concern(&self, key: &str) -> bool {
        let is_below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.found.iter().any(|fault| fault.key.strip_prefix(key).is_some_and(is_below))
    }

    /// Whether there are more faults than are reported.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() > MOST_FAULTS
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the value, or the first fault.
    pub fn result<T>(self, value: Option<T>) -> Result<T, Fault> {
        match (self.found.into_iter().next(), value) {
            (None, Some(value)) => Ok(value),
            (fault, _) => Err(fault.unwrap_or_else(|| Fault::new("", "cannot be read"))),
        }
    }
}

impl IntoIterator for Faults {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.found.into_iter()
    }
}

/// Returns `a, b or c` for messages; at most `MOST_WORDS` words of a long list.
pub fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
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

/// Returns `; did you mean ...?` if one of the known words is similar, else an empty text.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |known| format!("; did you mean `{known}`?"))
}

/// Maximum number of words that a message lists.
const MOST_WORDS: usize = 20;
