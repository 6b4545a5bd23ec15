//! The lines that a plan measures, and their cohorts.

use std::collections::BTreeMap;

use super::Plan;
use crate::device::{Attributes, DeviceId};

/// A group of lines that is compared with others.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    pub name: String,
    pub rule: CohortRule,
    /// Start of the day from which on its lines are measured, milliseconds since 1970.
    pub from_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CohortRule {
    /// Lines that match one of the alternatives: each of its attributes has one of its values.
    Where(Vec<BTreeMap<String, Vec<String>>>),
    /// A random share of all lines, from 0 to 1. A hash of device and plan draws them, so that a
    /// line always is in the same cohort.
    Share(f64),
}

impl Cohort {
    /// Returns the share of all lines that the plan draws for the cohort; `None` if it draws none.
    pub fn share(&self) -> Option<f64> {
        if let CohortRule::Share(share) = self.rule { Some(share) } else { None }
    }

    fn has(&self, attributes: &Attributes) -> bool {
        let CohortRule::Where(alternatives) = &self.rule else { return false };
        let meets = |(name, values): (&String, &Vec<String>)| {
            attributes.get(name).is_some_and(|value| values.contains(&value))
        };
        alternatives.iter().any(|alternative| alternative.iter().all(meets))
    }

    /// Whether the cohort has every line that matches `alternative`.
    fn covers(&self, alternative: &BTreeMap<String, Vec<String>>) -> bool {
        let CohortRule::Where(alternatives) = &self.rule else { return false };
        let is_wider = |(name, values): (&String, &Vec<String>)| {
            alternative.get(name).is_some_and(|own| own.iter().all(|value| values.contains(value)))
        };
        alternatives.iter().any(|wide| wide.iter().all(is_wider))
    }
}

impl Plan {
    /// Returns the cohort of a line, empty if the plan has none. `None` if the line is not
    /// measured: it is not in the sample, or in no cohort of a plan that has some.
    pub fn cohort_of(&self, device: DeviceId, attributes: &Attributes) -> Option<&str> {
        let sampled = f64::from(self.lines.sample) / f64::from(self.lines.count);
        if drawn(&self.name, "sample", device) >= sampled {
            return None;
        }
        if self.cohorts.is_empty() {
            return Some("");
        }
        let mut left = drawn(&self.name, "cohort", device);
        let contains_line = |cohort: &&Cohort| match cohort.rule {
            CohortRule::Where(_) => cohort.has(attributes),
            CohortRule::Share(share) => {
                left -= share;
                left < 0.0
            }
        };
        self.cohorts.iter().find(contains_line).map(|cohort| cohort.name.as_str())
    }

    /// Whether the lines of a cohort, or of a plan without cohorts, are measured by `now_ms`.
    pub fn has_begun(&self, cohort: &str, now_ms: u64) -> bool {
        let waits = |it: &Cohort| it.name == cohort && now_ms < it.from_ms;
        !self.cohorts.iter().any(waits)
    }

    /// Returns the cohorts that can have no line: they have no alternative, or an earlier cohort
    /// has every line of each alternative.
    pub fn empty_cohorts(&self) -> impl Iterator<Item = &str> {
        let is_empty = |(index, cohort): &(usize, &Cohort)| {
            let CohortRule::Where(alternatives) = &cohort.rule else { return false };
            let earlier = &self.cohorts[..*index];
            alternatives.iter().all(|alternative| earlier.iter().any(|it| it.covers(alternative)))
        };
        let empty = self.cohorts.iter().enumerate().filter(is_empty);
        empty.map(|(_, cohort)| cohort.name.as_str())
    }
}

/// A number from 0 to below 1 that follows from the device, plan and purpose, and looks random.
pub(crate) fn drawn(plan: &str, purpose: &str, device: DeviceId) -> f64 {
    let text = format!("{purpose}\n{device}\n{plan}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let number =
        digest.as_ref().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    (number >> 11) as f64 / (1_u64 << 53) as f64
}
