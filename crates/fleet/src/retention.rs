//! What is kept of what was measured, and for how long.
//!
//! As it came for a few days, in the database. Then the same as columns: each run with its bins.
//! After that the sums of the lines that are alike: bins add exactly, so that nothing is lost but
//! who it was. A day goes from one form to the next as a whole, by the day on which runs began.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bins::Bins;
use crate::device::Pseudonym;
use crate::outcome::Outcome;
use crate::plan::Kind;
use crate::store::StoredResult;

/// For how many days, with that of its runs, a form is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// As it came.
    pub raw_days: u32,
    /// Each run with its bins; from the day of its runs, too.
    pub bins_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { raw_days: 7, bins_days: 90 }
    }
}

/// A form in which a day is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As it came, in the database.
    Raw,
    /// Each run with its bins, as columns.
    Bins,
    /// Sums of lines that are alike.
    Sums,
}

impl Retention {
    /// The form in which a day is to be kept; both count days since 1970. What has not ended yet
    /// is kept as it came.
    pub fn form(self, day: u32, today: u32) -> Form {
        match today.saturating_sub(day) {
            age if age < self.raw_days.max(1) => Form::Raw,
            age if age < self.bins_days => Form::Bins,
            _ => Form::Sums,
        }
    }
}

/// What a sum is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SumKey {
    /// The plan.
    pub plan: String,
    /// The cohort.
    pub cohort: String,
    /// Days since 1970.
    pub day: u32,
    /// Hour of the day, UTC.
    pub hour: u8,
    /// As [`crate::device::Attributes::get`] has it.
    pub tier: String,
    /// The region.
    pub region: String,
    /// The firmware.
    pub firmware: String,
    /// The step.
    pub step: String,
    /// What it loaded.
    pub kind: Kind,
    /// The marking.
    pub dscp: u8,
}

/// Series of lines that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumOf {
    /// All round trips.
    pub bins: Bins,
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that were lost.
    pub lost: u64,
    /// Series that were put together.
    pub tests: u64,
    /// Devices that they are of.
    pub devices: u64,
}

/// What an end of runs is counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndKey {
    /// The plan.
    pub plan: String,
    /// The cohort.
    pub cohort: String,
    /// Days since 1970.
    pub day: u32,
    /// Which end.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
}

/// Adds up the results of a day. Those of a device are to come one after the other: devices are
/// counted without remembering them.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    sums: BTreeMap<SumKey, (SumOf, Option<Pseudonym>)>,
    ends: BTreeMap<EndKey, u64>,
}

impl Fold {
    /// Adds a result.
    pub fn add(&mut self, kept: &StoredResult) {
        let result = &kept.result;
        if kept.was_due() {
            let end = EndKey {
                plan: result.plan.clone(),
                cohort: kept.cohort.clone(),
                day: kept.day(),
                outcome: result.outcome,
                reason: result.reason.clone(),
            };
            *self.ends.entry(end).or_default() += 1;
        }
        for (step, series) in result.pooled_series() {
            let key = SumKey {
                plan: result.plan.clone(),
                cohort: kept.cohort.clone(),
                day: kept.day(),
                hour: kept.hour(),
                tier: kept.attributes.get("tier").unwrap_or_default(),
                region: kept.attributes.region.clone(),
                firmware: kept.attributes.firmware.clone(),
                step: step.step.clone(),
                kind: step.kind,
                dscp: series.dscp,
            };
            let (sum, last) = self.sums.entry(key).or_default();
            sum.bins.merge(&series.bins);
            sum.sent = sum.sent.saturating_add(series.sent);
            sum.lost = sum.lost.saturating_add(series.lost);
            sum.tests += 1;
            if last.replace(kept.pseudonym) != Some(kept.pseudonym) {
                sum.devices += 1;
            }
        }
    }

    /// The sums, by what they are of.
    pub fn sums(&self) -> impl Iterator<Item = (&SumKey, &SumOf)> {
        self.sums.iter().map(|(key, (sum, _))| (key, sum))
    }

    /// How often runs came to each end.
    pub fn ends(&self) -> impl Iterator<Item = (&EndKey, u64)> {
        self.ends.iter().map(|(key, count)| (key, *count))
    }
}

#[cfg(test)]
mod tests {
    use underload_aqm::rng::Rng;

    use super::*;
    use crate::store::conformance::samples;
    use crate::store::{Archive as _, Dimension, Filter, Memory, Needs, Store as _};

    #[test]
    fn a_day_ages_from_form_to_form() {
        let rules = Retention::default();
        let forms = [100, 94, 93, 11, 10, 0].map(|day| rules.form(day, 100));
        assert_eq!(forms, [Form::Raw, Form::Raw, Form::Bins, Form::Bins, Form::Sums, Form::Sums]);
        assert_eq!(rules.form(101, 100), Form::Raw, "of a clock that is ahead");
        // The day that is under way is never folded.
        assert_eq!(Retention { raw_days: 0, bins_days: 0 }.form(7, 7), Form::Raw);
    }

    #[test]
    fn sums_are_those_of_the_runs() {
        let mut rng = Rng::new(1);
        let mut results: Vec<_> =
            (1..=300).map(|it| samples::result(&mut rng, it as u8 % 9, 0, it)).collect();
        results.sort_by_key(|kept| kept.pseudonym);
        let mut store = Memory::new();
        let mut tx = store.begin(&Needs::default()).expect("memory");
        tx.append(&results).expect("memory");
        tx.commit().expect("memory");
        let mut fold = Fold::default();
        for kept in &results {
            fold.add(kept);
        }
        let name = |name: &str| Dimension::Attribute(name.to_owned());
        let by = [
            Dimension::Plan,
            Dimension::Cohort,
            Dimension::Day,
            Dimension::Hour,
            name("tier"),
            name("region"),
            name("firmware"),
            Dimension::Step,
            Dimension::Kind,
            Dimension::Dscp,
        ];
        let mut right = store.sums(&Filter::default(), &by).expect("memory");
        let of = |(key, sum): (&SumKey, &SumOf)| crate::store::Sum {
            key: vec![
                key.plan.clone(),
                key.cohort.clone(),
                key.day.to_string(),
                key.hour.to_string(),
                key.tier.clone(),
                key.region.clone(),
                key.firmware.clone(),
                key.step.clone(),
                key.kind.name().to_owned(),
                key.dscp.to_string(),
            ],
            bins: sum.bins.clone(),
            sent: sum.sent,
            lost: sum.lost,
            tests: sum.tests,
            devices: sum.devices,
        };
        let mut found: Vec<_> = fold.sums().map(of).collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        right.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(found, right);
        let due = results.iter().filter(|kept| kept.was_due()).count() as u64;
        assert!(due < 300, "the premise: some measured on their own");
        assert_eq!(fold.ends().map(|(_, count)| count).sum::<u64>(), due);
    }
}
