//! Lists everything that is wrong with a file.
//!
//! Reading stops at the first fault. Here each fault is noted and then mended in the tables: a key
//! is renamed to the word that the message suggests, removed, or given a value that is accepted;
//! then the tables are read again. Mended tables are never run. A fault that a mend causes is
//! mended, too, and not reported. The search ends at a fault that nothing mends, or at its limits;
//! the last message then says that more mistakes may follow.

use toml::{Table, Value};
use underload_aqm::registry::LoadFile;

use super::arm::KnownArms;
use super::document::Document;
use super::error::{INVENTED, MORE_MAY_FOLLOW, ScenarioError, meant};
use super::place::Step;
use super::{Options, Scenario};

/// Faults of a file that are reported, at most.
const MOST_FAULTS: usize = 30;
/// Work on a file, at most, as a number of arms that are read from their tables.
const MOST_WORK: usize = 10_000;
/// A reading takes as long as this many arms, besides its arms.
const WORK_OF_READING: usize = 10;
/// Words of a message that are tried as values, at most.
const MOST_WORDS: usize = 20;

impl Scenario {
    /// What is wrong with a scenario file as these options take it, in the order of its lines;
    /// empty where it is right. Otherwise as [`Scenario::parse_with`].
    pub fn faults(
        text: &str,
        name: &str,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Vec<ScenarioError> {
        let mut document = match Document::parse_all(text, name) {
            Ok(document) => document,
            Err(errors) => return errors,
        };
        document.name_flows();
        let (mut known, mut readings) = (KnownArms::default(), 0);
        let mut read = |document: &Document| {
            readings += 1;
            let (document, known) = (document.clone(), &mut known);
            let outcome = Self::resolve(document, String::new(), options, load, Some(known));
            (outcome.err(), readings * WORK_OF_READING + known.work() < MOST_WORK)
        };
        let (mut found, mut mends) = (Vec::new(), Mends::default());
        let (mut next, mut may_go_on) = read(&document);
        let mut is_whole = true;
        while let Some(fault) = next {
            let is_told = !mends.explain(&fault);
            let has_room = found.len() + usize::from(is_told) < MOST_FAULTS;
            let mended =
                if may_go_on && has_room { mends.mend(&document, &fault, &mut read) } else { None };
            if is_told {
                found.push(fault);
            }
            let Some(mended) = mended else {
                is_whole = false;
                break;
            };
            (document, next, may_go_on) = mended;
        }
        found.sort_by_key(|fault| fault.line);
        if let Some(last) = found.last_mut().filter(|_| !is_whole) {
            last.problem += MORE_MAY_FOLLOW;
        }
        found
    }
}

/// Tables without a fault, the next fault in them, and whether they may be read again.
type Mended = (Document, Option<ScenarioError>, bool);

/// The changes made to the tables.
#[derive(Default)]
struct Mends {
    /// Places of invented values, which the file does not have.
    invented: Vec<Vec<Step>>,
    /// Invented values that are texts, as messages quote them.
    texts: Vec<String>,
    /// Flows or arms were removed, so other tables may name one that is missing.
    has_removed: bool,
    /// Arms were changed, so two of them may have become equal.
    has_changed_arms: bool,
    /// The number of mends, which makes invented values differ.
    number: usize,
}

/// A copy of the tables that may be without a fault.
struct Attempt {
    document: Document,
    /// An invented value and its place.
    invented: Option<(Vec<Step>, Value)>,
    /// One word of a value was replaced, so another fault may be at the same place.
    keeps_value: bool,
    removes_item: bool,
}

impl Attempt {
    fn new(document: Document) -> Self {
        Self { document, invented: None, keeps_value: false, removes_item: false }
    }

    /// True if the next fault is at another place, which neither contains the first one's nor lies
    /// in it.
    fn is_rid_of(&self, fault: &ScenarioError, next: &ScenarioError) -> bool {
        let (one, other) = (&fault.steps, &next.steps);
        // A fault without a place is a key that the file lacks.
        if one.is_empty() || other.is_empty() {
            return fault.key != next.key;
        }
        let is_of_all_flows = matches!(&**other, [Step::Key(only)] if only == "flow");
        if self.keeps_value || self.removes_item || (is_of_all_flows && one.len() > 1) {
            return (one, &fault.problem) != (other, &next.problem);
        }
        !one.starts_with(other) && !other.starts_with(one)
    }
}

impl Mends {
    /// True if a fault follows from a mend.
    fn explain(&self, fault: &ScenarioError) -> bool {
        let is_quoted = |text: &String| fault.problem.contains(&format!("`{text}`"));
        let of_others =
            ["no arm is", "no flow is", "names no arm", "a scenario without", "nothing"];
        let is_of_others = of_others.iter().any(|start| fault.problem.starts_with(start));
        let is_twin = fault.problem.ends_with("are the same");
        fault.problem.contains(INVENTED)
            || self.invented.iter().any(|place| fault.steps.starts_with(place))
            || self.texts.iter().any(is_quoted)
            || (self.has_removed && is_of_others)
            || (self.has_changed_arms && is_twin)
    }

    /// Returns the first attempt without the fault, if there is one.
    fn mend(
        &mut self,
        document: &Document,
        fault: &ScenarioError,
        read: &mut impl FnMut(&Document) -> (Option<ScenarioError>, bool),
    ) -> Option<Mended> {
        self.number += 1;
        for attempt in self.attempts(document, fault) {
            let (next, may_go_on) = read(&attempt.document);
            if next.as_ref().is_none_or(|next| attempt.is_rid_of(fault, next)) {
                if let Some((place, value)) = attempt.invented {
                    self.invented.push(place);
                    // Words of the message may be the file's own.
                    let text = value.as_str().filter(|text| !fault.problem.contains(*text));
                    self.texts.extend(text.map(str::to_owned));
                }
                let section = fault.key.split(['.', '[']).next().unwrap_or_default();
                let first = fault.steps.first();
                let is_in = |list: &str| first == Some(&Step::Key(list.to_owned()));
                self.has_changed_arms |= ["arm", "sweep"].into_iter().any(is_in);
                let is_named = ["arm", "sweep", "flow", "cohort"].into_iter().any(is_in);
                self.has_removed |= attempt.removes_item && (is_named || section == "flow");
                return Some((attempt.document, next, may_go_on));
            }
            if !may_go_on {
                return None;
            }
        }
        None
    }

    fn attempts(&self, document: &Document, fault: &ScenarioError) -> Vec<Attempt> {
        let mut steps = fault.steps.to_vec();
        if steps.is_empty() {
            let is_of_file = !fault.key.is_empty() && !fault.key.contains([' ', '[']);
            let keys = fault.key.split('.').filter(|_| is_of_file);
            steps.extend(keys.map(|key| Step::Key(key.to_owned())));
        }
        let mut attempts = Vec::new();
        if matches!(&*steps, [Step::Key(only)] if only == "flow") {
            attempts.extend(with_probe(document));
        }
        match steps.split_last() {
            Some((Step::Key(last), _)) => {
                self.at_key(document, fault, (&steps, last), &mut attempts);
            }
            Some((Step::Item(_), _)) => self.at_item(document, &steps, &mut attempts),
            None => {}
        }
        // As a last resort the list's item or the section around the fault is removed.
        for end in (1..=steps.len()).rev() {
            let place = &steps[..end];
            let removed = match place {
                [.., Step::Item(_)] => document.without_item(place),
                [Step::Key(key)] if key != "path" && key != "phases" => {
                    document.changed(&[], |root| root.remove(key).is_some())
                }
                _ => None,
            };
            let removed = removed.map(Attempt::new);
            attempts.extend(removed.map(|it| Attempt { removes_item: true, ..it }));
        }
        attempts
    }

    /// Adds attempts for a key that is unknown, missing, or has a wrong value.
    fn at_key(
        &self,
        document: &Document,
        fault: &ScenarioError,
        (steps, last): (&[Step], &str),
        attempts: &mut Vec<Attempt>,
    ) {
        let above = &steps[..steps.len() - 1];
        let quoted: Vec<&str> = fault.problem.split('`').skip(1).step_by(2).collect();
        let value = document.value(steps);
        if let Some(meant) = meant(&fault.problem) {
            let is_unknown = fault.problem.starts_with("unknown key");
            let is_misspelt = |step: &Step| match step {
                Step::Key(key) => quoted.first() == Some(&key.as_str()),
                Step::Item(_) => false,
            };
            let misspelt = steps.iter().position(is_misspelt).map(|at| &steps[..=at]);
            let misspelt = if is_unknown { Some(steps) } else { misspelt };
            attempts.extend(misspelt.and_then(|it| document.renamed(it, meant)).map(Attempt::new));
            // One word of a SPEC is wrong.
            let wrong = |text: &&str| **text != *meant && !text.is_empty();
            let text = value.and_then(Value::as_str).filter(|_| !is_unknown);
            for wrong in quoted.iter().rev().filter(|word| wrong(word)) {
                let Some(text) = text.filter(|text| text.contains(wrong)) else { continue };
                let mended = Value::String(text.replacen(wrong, meant, 1));
                let insert = |table: &mut Table| table.insert(last.to_owned(), mended).is_some();
                let replaced = document.changed(above, insert).map(Attempt::new);
                attempts.extend(replaced.map(|it| Attempt { keeps_value: true, ..it }));
            }
        }
        let removed = document.changed(above, |table| table.remove(last).is_some());
        let removed = removed.map(Attempt::new);
        if fault.problem.starts_with("unknown key") {
            attempts.extend(removed);
            return;
        }
        // Nothing depends on a headline: it is removed whole.
        if matches!(steps.first(), Some(Step::Key(first)) if first == "headline") {
            return;
        }
        let is_other = |other: &Value| value != Some(other);
        for value in self.values(last, &fault.problem).into_iter().filter(is_other) {
            let insert = |table: &mut Table| {
                table.insert(last.to_owned(), value.clone());
                true
            };
            let attempt = document.changed(above, insert).map(Attempt::new);
            let invented = Some((steps.to_vec(), value));
            attempts.extend(attempt.map(|it| Attempt { invented, ..it }));
        }
        attempts.extend(removed);
    }

    /// Adds attempts for an item of a list that lacks a key, or equals another item.
    fn at_item(&self, document: &Document, steps: &[Step], attempts: &mut Vec<Attempt>) {
        let with = |key: &str, text: String| {
            let value = Value::String(text);
            let insert = |table: &mut Table| {
                table.insert(key.to_owned(), value.clone());
                true
            };
            let attempt = document.changed(steps, insert).map(Attempt::new)?;
            // The keys of a flow cannot be judged by a kind that was guessed.
            let name = (key == "name").then(|| Step::Key(key.to_owned()));
            let place = steps.iter().cloned().chain(name).collect();
            Some(Attempt { invented: Some((place, value)), ..attempt })
        };
        attempts.extend(with("name", format!("{INVENTED}{}", self.number)));
        let is_flow = matches!(steps.first(), Some(Step::Key(list)) if list == "flow");
        let kinds = super::flow::kinds().filter(|_| is_flow);
        attempts.extend(kinds.filter_map(|kind| with("kind", kind.to_owned())));
        // An arm that equals another one.
        let mut phases = Table::new();
        let drain = format!("{}us", 777_777 + self.number);
        phases.insert("drain".to_owned(), Value::String(drain));
        let is_arm = matches!(steps.first(), Some(Step::Key(list)) if list == "arm");
        let differ = |table: &mut Table| {
            is_arm && table.insert("phases".to_owned(), Value::Table(phases)).is_none()
        };
        attempts.extend(document.changed(steps, differ).map(Attempt::new));
    }

    /// Returns values of every type, of which one may be accepted. They are unlikely to be in the
    /// file already.
    fn values(&self, key: &str, problem: &str) -> Vec<Value> {
        let number = self.number;
        let mut values: Vec<Value> = Vec::new();
        match key {
            "name" => values.push(format!("{INVENTED}{number}").into()),
            "arms" => values.push("{line}".into()),
            key if key.ends_with("metric") => values.push("load.rtt.p99.9".into()),
            _ => {}
        }
        // Words that the message quotes or expects.
        let quoted = problem.split('`').skip(1).step_by(2);
        let expected = problem.split_once("expected ").map_or("", |(_, expected)| expected);
        let expected = expected.split(';').next().unwrap_or_default().split(", ");
        let expected = expected.flat_map(|words| words.split(" or ")).take(MOST_WORDS);
        values.extend(quoted.chain(expected).map(|word| Value::String(word.to_owned())));
        let texts = [
            format!("{}ms", 1_234 + number),
            format!("{}.7s", 11 + number),
            format!("{}kbit", 12_345 + number),
            format!("{}B", 1_300 + number),
            format!("fifo:limit={}B", 77_777 + number),
            "steady".to_owned(),
        ];
        values.extend(texts.map(Value::String));
        values.extend([Value::Integer(7), Value::Float(0.7), Value::Boolean(true)]);
        let spec = format!("{}kbit", 12_345 + number);
        let queue = format!("fifo:limit={}B", 77_777 + number);
        let path = [("up", spec), ("up_queue", queue)];
        let phases = [("load", format!("{}.7s", 11 + number))];
        let table = |keys: &[(&str, String)]| {
            let own = |(key, text): &(&str, String)| ((*key).to_owned(), text.clone().into());
            Value::Table(keys.iter().map(own).collect())
        };
        values.extend([table(&path), table(&phases)]);
        values
    }
}

/// The tables with a flow that measures.
fn with_probe(document: &Document) -> Option<Attempt> {
    let text = "name = \"mended-probe\"\nkind = \"probe\"\ninterval = \"11ms\"";
    let probe = Value::Table(text.parse().ok()?);
    let add = |root: &mut Table| {
        let flows = root.entry("flow").or_insert_with(|| Value::Array(Vec::new()));
        flows.as_array_mut().map(|flows| flows.push(probe)).is_some()
    };
    document.changed(&[], add).map(Attempt::new)
}
