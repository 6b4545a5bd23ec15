//! What became of the mutants, as cargo-mutants wrote it down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::survivors::Survivors;

/// What became of one mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A test failed.
    Caught,
    /// No test ended in time.
    TimedOut,
    /// All tests passed.
    Missed,
    /// It does not compile.
    Unviable,
}

/// One mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    pub file: String,
    pub line_number: usize,
    /// `replace < with <= in Fifo::enqueue`.
    pub change: String,
    pub fate: Fate,
}

/// What a run says against the list of survivors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub caught: usize,
    pub timed_out: usize,
    pub unviable: usize,
    /// Missed, and listed with a reason.
    pub listed: usize,
    /// Missed, and not listed.
    pub unlisted: Vec<String>,
    /// Listed, and caught: places in the list.
    pub stale: BTreeSet<usize>,
}

/// Reads `outcomes.json` of a directory of cargo-mutants.
pub fn read(directory: &Path) -> anyhow::Result<Vec<Mutant>> {
    let path = directory.join("outcomes.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let document: Value =
        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let outcomes = document["outcomes"].as_array().context("outcomes.json has no outcomes")?;
    Ok(outcomes.iter().filter_map(mutant).collect())
}

/// Nothing for the run without a mutant, which comes first.
fn mutant(outcome: &Value) -> Option<Mutant> {
    let mutant = &outcome["scenario"]["Mutant"];
    let file = mutant["file"].as_str()?.to_owned();
    let line_number = mutant["span"]["start"]["line"].as_u64()? as usize;
    // `FILE:LINE:COLUMN: CHANGE`
    let change = mutant["name"].as_str()?.splitn(4, ':').nth(3)?.trim().to_owned();
    let fate = match outcome["summary"].as_str()? {
        "CaughtMutant" => Fate::Caught,
        "MissedMutant" => Fate::Missed,
        "Timeout" => Fate::TimedOut,
        _ => Fate::Unviable,
    };
    Some(Mutant { file, line_number, change, fate })
}

/// Sets a run beside the list. `line_of` gives the text of a line as it was when the run began.
pub fn judge(mutants: &[Mutant], list: &Survivors, line_of: impl Fn(&Mutant) -> String) -> Verdict {
    let mut verdict = Verdict::default();
    // An entry is of every mutant that it describes; it is stale only where all are caught.
    let mut alive: BTreeMap<usize, bool> = BTreeMap::new();
    for mutant in mutants {
        let line = line_of(mutant);
        let listed = list.position(&mutant.file, &mutant.change, &line);
        match mutant.fate {
            Fate::Caught => verdict.caught += 1,
            Fate::TimedOut => verdict.timed_out += 1,
            Fate::Unviable => verdict.unviable += 1,
            Fate::Missed if listed.is_some() => verdict.listed += 1,
            Fate::Missed => verdict.unlisted.push(format!(
                "{}:{}: {}\n    {}",
                mutant.file,
                mutant.line_number,
                mutant.change,
                line.trim()
            )),
        }
        if let Some(place) = listed {
            *alive.entry(place).or_default() |= mutant.fate == Fate::Missed;
        }
    }
    verdict.stale = alive.into_iter().filter(|(_, alive)| !alive).map(|(place, _)| place).collect();
    verdict
}

#[cfg(test)]
mod tests {
    use super::super::survivors::Survivor;
    use super::*;

    fn mutant_of(line_number: usize, change: &str, fate: Fate) -> Mutant {
        Mutant { file: "a.rs".to_owned(), line_number, change: change.to_owned(), fate }
    }

    #[test]
    fn the_file_of_cargo_mutants_is_read() {
        let outcome = serde_json::json!({
            "scenario": { "Mutant": {
                "name": "a.rs:3:7: replace f -> Result<(), a::B> with Ok(())",
                "file": "a.rs",
                "span": { "start": { "line": 3, "column": 7 }, "end": { "line": 4, "column": 1 } },
            }},
            "summary": "MissedMutant",
        });
        let expected = mutant_of(3, "replace f -> Result<(), a::B> with Ok(())", Fate::Missed);
        assert_eq!(mutant(&outcome), Some(expected));
        let baseline = serde_json::json!({ "scenario": "Baseline", "summary": "Success" });
        assert_eq!(mutant(&baseline), None);
    }

    #[test]
    fn a_survivor_is_a_fault_unless_it_is_listed_and_a_caught_entry_is_stale() {
        let entry = |mutant: &str, line: &str| Survivor {
            file: "a.rs".to_owned(),
            mutant: mutant.to_owned(),
            line: line.to_owned(),
            reason: String::new(),
        };
        let list = Survivors { survivor: vec![entry("one", "a"), entry("two", "b")] };
        let mutants = [
            mutant_of(1, "one", Fate::Missed),
            mutant_of(1, "one", Fate::Caught),
            mutant_of(2, "two", Fate::Caught),
            mutant_of(3, "three", Fate::Missed),
            mutant_of(3, "four", Fate::TimedOut),
            mutant_of(3, "five", Fate::Unviable),
        ];
        let line_of = |mutant: &Mutant| ["", " a", " b", " c"][mutant.line_number].to_owned();
        let verdict = judge(&mutants, &list, line_of);
        let expected = Verdict {
            caught: 2,
            timed_out: 1,
            unviable: 1,
            listed: 1,
            unlisted: vec!["a.rs:3: three\n    c".to_owned()],
            stale: BTreeSet::from([1]),
        };
        assert_eq!(verdict, expected);
    }
}
