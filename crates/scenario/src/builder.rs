//! Scenarios that code builds. They become the tables of a scenario file and are checked as such.

use std::fmt::Write as _;
use std::sync::Arc;

use toml::Value;
use underload_aqm::registry::LoadFile;

use super::builtin;
use super::document::Document;
use super::{Options, Scenario, ScenarioError, ScenarioErrors};

/// A scenario under construction; `docs/scenario-format.md` describes the keys.
#[derive(Debug, Clone)]
pub struct Builder {
    name: String,
    head: Keys,
    path: Keys,
    phases: Keys,
    flows: Vec<Keys>,
    variants: Vec<Keys>,
    sweeps: Vec<Keys>,
}

/// Keys and their values, in the order in which they were set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Keys(Vec<(String, Value)>);

impl Keys {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, in place of an earlier value.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value.into(),
            None => self.0.push((key.to_owned(), value.into())),
        }
        self
    }

    pub(crate) fn then(self, others: Keys) -> Self {
        others.0.into_iter().fold(self, |keys, (key, value)| keys.set(&key, value))
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            // Writing to a String cannot fail.
            let _ = match value {
                Value::String(lines) if is_plain_lines(lines) => {
                    writeln!(text, "{} = \"\"\"\n{lines}\"\"\"", key_text(key))
                }
                value => writeln!(text, "{} = {value}", key_text(key)),
            };
        }
        text
    }
}

impl From<Keys> for Value {
    fn from(keys: Keys) -> Value {
        Value::Table(keys.0.into_iter().collect())
    }
}

/// Splits the key of a variant into its parts. The name of a flow or hop may contain dots.
fn segments(key: &str) -> Vec<&str> {
    for section in ["path.hop.", "flow."] {
        if let Some((name, last)) = key.strip_prefix(section).and_then(|it| it.rsplit_once('.')) {
            return section.split_terminator('.').chain([name, last]).collect();
        }
    }
    key.splitn(2, '.').collect()
}

impl Scenario {
    pub fn build(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            head: Keys::new(),
            path: Keys::new(),
            phases: Keys::new(),
            flows: Vec::new(),
            variants: Vec::new(),
            sweeps: Vec::new(),
        }
    }
}

impl Builder {
    /// Sets a key at the top, such as `title`, `description`, `repeats` or `seed`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.head = self.head.set(key, value);
        self
    }

    /// Sets keys of `[path]`.
    #[must_use]
    pub fn path(mut self, keys: Keys) -> Self {
        self.path = self.path.then(keys);
        self
    }

    /// Sets keys of `[phases]`.
    #[must_use]
    pub fn phases(mut self, keys: Keys) -> Self {
        self.phases = self.phases.then(keys);
        self
    }

    /// Adds a flow, or a group of equal ones.
    #[must_use]
    pub fn flow(mut self, name: &str, kind: &str, keys: Keys) -> Self {
        self.flows.push(Keys::new().set("name", name).set("kind", kind).then(keys));
        self
    }

    /// Adds a variant that overrides keys such as `path.up_queue`.
    #[must_use]
    pub fn variant(mut self, name: &str, overrides: Keys) -> Self {
        self.variants.push(Keys::new().set("name", name).then(overrides));
        self
    }

    /// Adds a sweep over values of a key.
    #[must_use]
    pub fn sweep<V: Into<Value>>(mut self, key: &str, values: Vec<V>) -> Self {
        self.sweeps.push(Keys::new().set("key", key).set("values", values));
        self
    }

    /// Checks the keys as [`Scenario::parse`] does, and returns the first fault, without a line.
    pub fn finish(&self) -> Result<Scenario, ScenarioError> {
        let made = self.finish_with(&Options::default(), &mut builtin::load_file);
        made.map_err(|errors| errors.first(&self.name))
    }

    /// Checks the keys and applies `options`; `load` reads named files. Faults have no lines.
    pub fn finish_with(
        &self,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Result<Scenario, ScenarioErrors> {
        let document = Arc::new(Document::of_builder(&self.text(), &self.name)?);
        let text = options.effective_text(&self.text(), &[]);
        Scenario::resolve(&document, text, options, load)
    }

    pub fn text(&self) -> String {
        let tables = [("[path]", &self.path), ("[phases]", &self.phases)];
        let lists = [
            ("[[flow]]", &self.flows),
            ("[[variant]]", &self.variants),
            ("[[sweep]]", &self.sweeps),
        ];
        let lists =
            lists.into_iter().flat_map(|(head, list)| list.iter().map(move |it| (head, it)));
        let mut text = self.head.text();
        for (head, keys) in tables.into_iter().chain(lists).filter(|(_, keys)| !keys.0.is_empty()) {
            let space = if text.is_empty() { "" } else { "\n" };
            // Writing to a String cannot fail.
            let _ = write!(text, "{space}{head}\n{}", keys.text());
        }
        text
    }
}

/// Writes a dotted key, with quotes around a part that contains dots.
fn key_text(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let part = |part: &str| {
        if part.chars().all(bare) { part.to_owned() } else { Value::from(part).to_string() }
    };
    segments(key).into_iter().map(part).collect::<Vec<_>>().join(".")
}

/// Whether TOML accepts a text between `"""` without escapes.
fn is_plain_lines(text: &str) -> bool {
    let plain = |c: char| c == '\n' || !(c.is_control() || c == '\\');
    text.ends_with('\n') && text.chars().all(plain) && !text.contains("\"\"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_queues() -> Builder {
        Scenario::build("two queues")
            .set("title", "A \"title\"")
            .set("description", "Several\nlines.\n")
            .set("repeats", 2)
            .path(Keys::new().set("up", "10mbit").set("rtt", "20ms"))
            .phases(Keys::new().set("load", "3s"))
            .flow("upload.1", "tcp", Keys::new().set("congestion_control", "cubic"))
            .flow("probe", "probe", probe())
            .variant("fifo", Keys::new().set("path.up_queue", "fifo:limit=64KiB"))
            .variant("pie", Keys::new().set("path.up_queue", "pie").set("flow.upload.1.ecn", true))
            .sweep("flow.upload.1.count", vec![1, 4])
    }

    fn probe() -> Keys {
        let classes = vec![Keys::new().set("dscp", 0), Keys::new().set("dscp", 45)];
        Keys::new().set("interval", "10ms").set("classes", classes)
    }

    #[test]
    fn a_built_scenario_equals_its_text() {
        let built = two_queues().finish().expect("a scenario");
        let read = Scenario::parse(&built.text, "two queues").expect("its text is a scenario");
        assert_eq!(built.variants.len(), 4);
        for (built, read) in built.variants.iter().zip(&read.variants) {
            assert_eq!((&built.name, &built.identity), (&read.name, &read.identity));
            assert_eq!(built.factors, read.factors);
        }
        assert_eq!((built.repeats, &built.title), (2, &read.title));
        assert_eq!(built.description, read.description);
    }

    #[test]
    fn faults_are_found_as_in_a_file() {
        let fault = |builder: Builder| builder.finish().expect_err("a fault").to_string();
        let misspelt = two_queues().path(Keys::new().set("up_que", "pie"));
        assert!(fault(misspelt).starts_with("two queues: path.up_que: unknown key"));
        let unknown = two_queues().variant("red", Keys::new().set("path.up_queue", "rad"));
        assert!(fault(unknown).contains("path.up_queue"));
        let misspelt = two_queues().path(Keys::new().set("up_que", "pie").set("rtt", "20"));
        let all = misspelt.finish_with(&Options::default(), &mut builtin::load_file);
        let all = all.expect_err("two faults").0;
        let keys: Vec<&str> = all.iter().map(|fault| fault.key.as_str()).collect();
        assert_eq!(keys, ["path.up_que", "path.rtt"]);
        assert!(all.iter().all(|fault| fault.line.is_none() && fault.excerpt.is_none()));
        let same = two_queues().variant("pie", Keys::new().set("path.up_queue", "codel"));
        assert!(fault(same).contains("a second one is named `pie`"));
    }
}
