//! Forms in which results are stored, and for how long.
//!
//! For a few days results are rows of the database. Then a day is moved to columns: each run with
//! its bins. After that only sums over equal lines remain: bins add exactly, so that the sums lose
//! nothing but the identity of the devices. A day moves as a whole, by the day on which its runs
//! began.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bins::Bins;
use crate::device::Pseudonym;
use crate::outcome::{Outcome, SeriesResult};
use crate::plan::Kind;
use crate::store::StoredResult;

/// Days for which each form is stored, counted with the day of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Rows of the database.
    pub raw_days: u32,
    /// Each run with its bins; also counted from the day of the runs.
    pub bins_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { raw_days: 7, bins_days: 90 }
    }
}

/// The form in which a day is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Rows of the database.
    Raw,
    /// Each run with its bins, as columns.
    Bins,
    /// Sums over equal lines.
    Sums,
}

impl Retention {
    /// Returns the form of a day; both arguments count days since 1970. The present day is always
    /// [`Form::Raw`].
    pub fn form(self, day: u32, today: u32) -> Form {
        match today.saturating_sub(day) {
            age if age < self.raw_days.max(1) => Form::Raw,
            age if age < self.bins_days => Form::Bins,
            _ => Form::Sums,
        }
    }
}

/// The lines, time and step that a sum counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SumKey {
    pub plan: String,
    pub cohort: String,
    /// Days since 1970.
    pub day: u32,
    /// Hour of the day, UTC.
    pub hour: u8,
    /// See [`crate::device::Attributes::get`].
    pub tier: String,
    pub region: String,
    pub firmware: String,
    pub step: String,
    pub kind: Kind,
    pub dscp: u8,
}

/// A sum of series of equal lines, with what is known of their devices: by default their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SumOf<D = u64> {
    pub bins: Bins,
    pub sent: u64,
    pub lost: u64,
    pub tests: u64,
    pub devices: D,
}

impl<D> SumOf<D> {
    /// Adds the probes of a series.
    pub fn add_probes(&mut self, series: &SeriesResult) {
        self.bins.merge(&series.bins);
        self.sent = self.sent.saturating_add(series.sent);
        self.lost = self.lost.saturating_add(series.lost);
    }

    /// Adds another sum, except for its devices.
    pub fn add_all_but_devices<E>(&mut self, other: &SumOf<E>) {
        self.bins.merge(&other.bins);
        self.sent = self.sent.saturating_add(other.sent);
        self.lost = self.lost.saturating_add(other.lost);
        self.tests = self.tests.saturating_add(other.tests);
    }
}

/// The runs that a count of outcomes includes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndKey {
    pub plan: String,
    pub cohort: String,
    /// Days since 1970.
    pub day: u32,
    pub outcome: Outcome,
    pub reason: String,
}

/// Sums up the results of a day. The results of a device must be consecutive, because devices are
/// counted without remembering them.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    sums: BTreeMap<SumKey, (SumOf, Option<Pseudonym>)>,
    ends: BTreeMap<EndKey, u64>,
}

impl Fold {
    pub fn add(&mut self, stored: &StoredResult) {
        let result = &stored.result;
        if stored.was_due() {
            let end = EndKey {
                plan: result.plan.clone(),
                cohort: stored.cohort.clone(),
                day: stored.day(),
                outcome: result.outcome,
                reason: result.reason.clone(),
            };
            *self.ends.entry(end).or_default() += 1;
        }
        for (step, series) in result.pooled_series() {
            let key = SumKey {
                plan: result.plan.clone(),
                cohort: stored.cohort.clone(),
                day: stored.day(),
                hour: stored.hour(),
                tier: stored.attributes.get("tier").unwrap_or_default(),
                region: stored.attributes.region.clone(),
                firmware: stored.attributes.firmware.clone(),
                step: step.step.clone(),
                kind: step.kind,
                dscp: series.dscp,
            };
            let (sum, last) = self.sums.entry(key).or_default();
            sum.add_probes(series);
            sum.tests += 1;
            if last.replace(stored.pseudonym) != Some(stored.pseudonym) {
                sum.devices += 1;
            }
        }
    }

    pub fn sums(&self) -> impl Iterator<Item = (&SumKey, &SumOf)> {
        self.sums.iter().map(|(key, (sum, _))| (key, sum))
    }

    /// Returns the number of runs by outcome and reason.
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
    fn a_day_passes_through_every_form_of_retention() {
        let rules = Retention::default();
        let forms = [100, 94, 93, 11, 10, 0].map(|day| rules.form(day, 100));
        assert_eq!(forms, [Form::Raw, Form::Raw, Form::Bins, Form::Bins, Form::Sums, Form::Sums]);
        assert_eq!(rules.form(101, 100), Form::Raw, "of a clock that is ahead");
        // The present day is never folded.
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
