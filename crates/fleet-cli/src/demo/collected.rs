//! The results in the store as text for the terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use underload_fleet::admission::Reason;
use underload_fleet::bins::Bins;
use underload_fleet::device::Pseudonym;
use underload_fleet::outcome::Outcome;
use underload_fleet::store::{Archive, Dimension, Filter};
use underload_orchestrator::store::Place;
use underload_orchestrator::study::{Question, StudyError, study};
use underload_report::{cohort_sentences, significant};

pub(super) struct Collected {
    archive: Box<dyn Archive>,
}

/// Counts of the runs that were due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Runs that have no result yet.
    pub owed: u64,
}

const DEVICES_MAX: usize = 1_000;

impl Collected {
    pub(super) fn new(place: &Place) -> anyhow::Result<Self> {
        Ok(Self { archive: place.archive().context("the store")? })
    }

    pub(super) fn account(&mut self) -> anyhow::Result<Account> {
        let mut account = Account::default();
        for counted in self.archive.outcomes(&Filter::default())?.counts {
            *account.outcomes.entry(counted.outcome).or_default() += counted.count;
        }
        for device in self.archive.devices(&Filter::default(), None, DEVICES_MAX)? {
            account.owed += device.schedules.iter().map(|it| it.open.len() as u64).sum::<u64>();
        }
        Ok(account)
    }

    /// Counts the runs that have no outcome although a later run has one, and the runs that have
    /// two. A device's runs of a plan are numbered from 1.
    pub(super) fn missing_and_double(&mut self) -> anyhow::Result<(u64, u64)> {
        let mut runs: BTreeMap<(String, Pseudonym), BTreeMap<u64, u64>> = BTreeMap::new();
        self.archive.visit(&Filter::default(), &mut |kept| {
            // A device gives number 0 to the runs that it starts while no orchestrator answers.
            if kept.result.run > 0 {
                let of_device = runs.entry((kept.result.plan.clone(), kept.pseudonym)).or_default();
                *of_device.entry(kept.result.run).or_default() += 1;
            }
            true
        })?;
        let missing = |runs: &BTreeMap<u64, u64>| {
            runs.last_key_value().map_or(0, |(last, _)| last - runs.len() as u64)
        };
        let double = |runs: &BTreeMap<u64, u64>| runs.values().filter(|it| **it > 1).count() as u64;
        Ok((runs.values().map(missing).sum(), runs.values().map(double).sum()))
    }

    /// Formats the p99 of sent under upload of each cohort and class.
    pub(super) fn p99(&mut self, plan: &str) -> anyhow::Result<String> {
        let filter = Filter { plan: Some(plan.to_owned()), ..Filter::default() };
        let by = [Dimension::Kind, Dimension::Cohort, Dimension::Dscp];
        let mut words = String::new();
        for sum in self.archive.sums(&filter, &by)? {
            let [kind, cohort, dscp] = sum.key.as_slice() else { continue };
            let Some(p99) = p99_ms(&sum.bins, sum.lost).filter(|_| kind == "upload") else {
                continue;
            };
            let separator = if words.is_empty() { "" } else { ", " };
            let runs = if sum.tests == 1 { "run" } else { "runs" };
            let tests = sum.tests;
            let _ = write!(words, "{separator}{cohort} DSCP {dscp} {p99} ({tests} {runs})");
        }
        Ok(words)
    }

    /// Returns the sentences of the study of a plan.
    pub(super) fn sentences(&mut self, plan: &str) -> anyhow::Result<Vec<String>> {
        match study(self.archive.as_mut(), plan, &Question { seed: 1, ..Question::default() }) {
            Ok(study) => Ok(cohort_sentences(&study)),
            Err(StudyError::Nothing { .. }) => {
                Ok(vec!["no run of this plan was measured".to_owned()])
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Account {
    pub(super) fn stored(&self) -> u64 {
        self.outcomes.values().sum()
    }

    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    /// `57 measured, 3 invalid, 12 refused`.
    pub(super) fn words(&self) -> String {
        let words = |(outcome, count): (&Outcome, &u64)| format!("{count} {}", outcome.name());
        let counts: Vec<_> = self.outcomes.iter().map(words).collect();
        if counts.is_empty() { "no run is over yet".to_owned() } else { counts.join(", ") }
    }
}

/// Formats the p99 of sent. If it is a lost probe, formats the share of lost probes instead.
fn p99_ms(bins: &Bins, lost: u64) -> Option<String> {
    let answered = bins.count();
    let all = answered + lost;
    if answered == 0 {
        return None;
    }
    let share = 0.99 * all as f64 / answered as f64;
    match bins.quantile(share).filter(|_| share <= 1.0) {
        Some(micros) => Some(format!("{} ms", significant(micros / 1e3))),
        None => Some(format!("lost ({} %)", significant(lost as f64 * 100.0 / all as f64))),
    }
}

/// `segment busy 14, servers full 3`.
pub(super) fn held_back(counts: &[(Reason, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let some: Vec<_> = some.map(|(reason, count)| format!("{} {count}", reason.words())).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_probe_counts_as_longer_than_all_answers() {
        let mut bins = Bins::default();
        (0..99).for_each(|_| bins.add(20_000.0));
        assert!(p99_ms(&bins, 1).expect("answered").starts_with("20"), "{:?}", p99_ms(&bins, 1));
        assert!(p99_ms(&bins, 3).expect("answered").starts_with("lost (2.9"));
        assert_eq!(p99_ms(&Bins::default(), 5), None);
    }

    #[test]
    fn an_account_names_every_outcome() {
        let outcomes = BTreeMap::from([(Outcome::Measured, 5), (Outcome::Refused, 2)]);
        let account = Account { outcomes, owed: 1 };
        assert_eq!((account.stored(), account.count(Outcome::Missed)), (7, 0));
        assert_eq!(account.words(), "5 measured, 2 refused");
        assert_eq!(Account::default().words(), "no run is over yet");
    }
}
