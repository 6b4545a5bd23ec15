//! What became of the mutants, set beside the list of survivors.

use std::collections::{BTreeMap, BTreeSet};

use super::survivors::Survivors;

/// What became of one mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A test failed.
    Caught,
    /// No test ended within many times the processor time that it takes.
    TimedOut,
    /// All tests passed.
    Missed,
    /// No test came by.
    Unreached,
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
    pub mutants: usize,
    pub caught: usize,
    pub timed_out: usize,
    pub unviable: usize,
    /// Missed or never reached, and listed with a reason.
    pub listed: usize,
    /// Missed or never reached, and not listed.
    pub unlisted: Vec<String>,
    /// Listed, and caught: places in the list.
    pub stale: BTreeSet<usize>,
}

/// Sets a run beside the list. `line_of` gives the text of a line as it was when the run began.
pub fn judge(mutants: &[Mutant], list: &Survivors, line_of: impl Fn(&Mutant) -> String) -> Verdict {
    let mut verdict = Verdict::default();
    // An entry is of every mutant that it describes; it is stale only where all are caught.
    let mut alive: BTreeMap<usize, bool> = BTreeMap::new();
    for mutant in mutants {
        let line = line_of(mutant);
        let listed = list.position(&mutant.file, &mutant.change, &line);
        let survived = matches!(mutant.fate, Fate::Missed | Fate::Unreached);
        verdict.mutants += 1;
        match mutant.fate {
            Fate::Caught => verdict.caught += 1,
            Fate::TimedOut => verdict.timed_out += 1,
            Fate::Unviable => verdict.unviable += 1,
            Fate::Missed | Fate::Unreached if listed.is_some() => verdict.listed += 1,
            Fate::Missed | Fate::Unreached => verdict.unlisted.push(format!(
                "{}:{}: {}{}\n    {}",
                mutant.file,
                mutant.line_number,
                mutant.change,
                if mutant.fate == Fate::Unreached { " (no test comes by)" } else { "" },
                line.trim()
            )),
        }
        if let Some(place) = listed {
            *alive.entry(place).or_default() |= survived;
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
            mutant_of(1, "six", Fate::Unreached),
        ];
        let line_of = |mutant: &Mutant| ["", " a", " b", " c"][mutant.line_number].to_owned();
        let verdict = judge(&mutants, &list, line_of);
        let expected = Verdict {
            mutants: 7,
            caught: 2,
            timed_out: 1,
            unviable: 1,
            listed: 1,
            unlisted: vec![
                "a.rs:3: three\n    c".to_owned(),
                "a.rs:1: six (no test comes by)\n    a".to_owned(),
            ],
            stale: BTreeSet::from([1]),
        };
        assert_eq!(verdict, expected);
    }
}
