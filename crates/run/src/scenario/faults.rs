//! All that is wrong with a file at once.
//!
//! Reading stops at the first fault. Here each fault is noted and then mended in the tables: a key
//! is renamed to what it was meant to be, taken out, or given a value that is accepted; then the
//! tables are read anew. What was mended is never run. A fault that comes from a mend is mended,
//! too, and not told; one that cannot be mended ends the search.

use toml::{Table, Value};
use underload_aqm::registry::LoadFile;

use super::document::Document;
use super::error::{INVENTED, ScenarioError, meant};
use super::place::Step;
use super::{Options, Scenario};

/// Faults of a file that are told, at most.
const MOST_FAULTS: usize = 30;
/// Readings of a file, at most.
const MOST_READINGS: usize = 500;
/// Words of a message that are tried as values, at most.
const MOST_WORDS: usize = 20;
/// Arms of a file that is read so often, at most: of a larger one the first fault is told.
const MOST_ARMS: usize = 200;

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
        let mut readings = 0;
        let mut read = |document: &Document| {
            readings += 1;
            let outcome = Self::resolve(document.clone(), String::new(), options, load);
            (outcome.err(), readings < MOST_READINGS)
        };
        let (mut found, mut mends) = (Vec::new(), Mends::default());
        let (mut next, mut may_go_on) = read(&document);
        while let Some(fault) = next {
            let is_last = !may_go_on
                || found.len() + 1 == MOST_FAULTS
                || arms_at_most(&document.root) > MOST_ARMS;
            let is_told = !mends.explain(&fault);
            let mended = if is_last { None } else { mends.mend(&document, &fault, &mut read) };
            if is_told {
                found.push(fault);
            }
            let Some(mended) = mended else { break };
            (document, next, may_go_on) = mended;
        }
        found.sort_by_key(|fault| fault.line);
        found
    }
}

/// The product of all that a file varies.
fn arms_at_most(root: &Table) -> usize {
    let length = |value: Option<&Value>| value.and_then(Value::as_array).map_or(1, Vec::len).max(1);
    let sweeps = root.get("sweep").and_then(Value::as_array).into_iter().flatten();
    let of_sweep = |sweep: &Value| length(sweep.get("values")).max(length(sweep.get("point")));
    sweeps.fold(length(root.get("arm")), |product, sweep| product.saturating_mul(of_sweep(sweep)))
}

/// Tables without a fault, the next fault in them, and whether they may be read again.
type Mended = (Document, Option<ScenarioError>, bool);

/// What was changed so far.
#[derive(Default)]
struct Mends {
    /// Places of values that the file does not have.
    invented: Vec<Vec<Step>>,
    /// Such values that are texts, as messages quote them.
    texts: Vec<String>,
    /// Whether flows or arms are gone, so that others may name what there is not.
    has_removed: bool,
    /// Whether arms are others than in the file, so that two may be the same.
    has_changed_arms: bool,
    /// Mends so far, so that no two invented values are the same.
    number: usize,
}

/// Tables in which a fault may be gone.
struct Attempt {
    document: Document,
    /// Where a value stands that the file does not have, and that value.
    invented: Option<(Vec<Step>, Value)>,
    /// Whether another fault may be at the same place: a word of the value was replaced.
    keeps_value: bool,
    removes_item: bool,
}

impl Attempt {
    fn new(document: Document) -> Self {
        Self { document, invented: None, keeps_value: false, removes_item: false }
    }

    /// Whether the next fault is another one: neither at the same place, nor in it or around it.
    fn is_rid_of(&self, fault: &ScenarioError, next: &ScenarioError) -> bool {
        let (one, other) = (&fault.steps, &next.steps);
        // What has no place in the file is missing from it.
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
    /// Whether a fault follows from what was changed.
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

    /// Tables without the fault; `None` where no attempt is rid of it.
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
        // What nothing is rid of goes with the list's item, or the section, that it stands in.
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

    /// Attempts for a key that is wrong, or missing, or has a wrong value.
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
            // Of a SPEC, one word.
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
        // Nothing depends on these: they go whole.
        if matches!(steps.first(), Some(Step::Key(first)) if first == "headline") {
            return;
        }
        for value in self.values(last, &fault.problem) {
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

    /// Attempts for an item of a list that lacks a key, or is what another one is.
    fn at_item(&self, document: &Document, steps: &[Step], attempts: &mut Vec<Attempt>) {
        let with = |key: &str, text: String| {
            let value = Value::String(text);
            let insert = |table: &mut Table| {
                table.insert(key.to_owned(), value.clone());
                true
            };
            let attempt = document.changed(steps, insert).map(Attempt::new)?;
            // Of a kind that is guessed, no key can be judged.
            let name = (key == "name").then(|| Step::Key(key.to_owned()));
            let place = steps.iter().cloned().chain(name).collect();
            Some(Attempt { invented: Some((place, value)), ..attempt })
        };
        attempts.extend(with("name", format!("{INVENTED}{}", self.number)));
        let is_flow = matches!(steps.first(), Some(Step::Key(list)) if list == "flow");
        let kinds = super::flow::kinds().filter(|_| is_flow);
        attempts.extend(kinds.filter_map(|kind| with("kind", kind.to_owned())));
        // An arm that is what another one is.
        let mut phases = Table::new();
        let drain = format!("{}us", 777_777 + self.number);
        phases.insert("drain".to_owned(), Value::String(drain));
        let is_arm = matches!(steps.first(), Some(Step::Key(list)) if list == "arm");
        let differ = |table: &mut Table| {
            is_arm && table.insert("phases".to_owned(), Value::Table(phases)).is_none()
        };
        attempts.extend(document.changed(steps, differ).map(Attempt::new));
    }

    /// What may be accepted in place of a value, whatever it should be. None is likely to stand
    /// elsewhere in the file.
    fn values(&self, key: &str, problem: &str) -> Vec<Value> {
        let number = self.number;
        let mut values: Vec<Value> = Vec::new();
        match key {
            "name" => values.push(format!("{INVENTED}{number}").into()),
            "arms" => values.push("{line}".into()),
            key if key.ends_with("metric") => values.push("load.rtt.p99.9".into()),
            _ => {}
        }
        // What the message quotes, and what it expects.
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
