//! Which lines a plan measures, and which of its groups each is in.

use std::collections::BTreeMap;

use super::Plan;
use crate::device::{Attributes, DeviceId};

/// A group of lines that is compared with the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    /// Its name.
    pub name: String,
    /// Who is in it.
    pub rule: CohortRule,
}

/// Who is in a cohort.
#[derive(Debug, Clone, PartialEq)]
pub enum CohortRule {
    /// Lines that have, in one of these alternatives, for each attribute one of its values.
    Where(Vec<BTreeMap<String, Vec<String>>>),
    /// A random share of all lines, from 0 to 1: drawn by a hash of device and plan, so that a
    /// line stays where it is.
    Share(f64),
}

impl Cohort {
    fn has(&self, attributes: &Attributes) -> bool {
        let CohortRule::Where(alternatives) = &self.rule else { return false };
        let meets = |(name, values): (&String, &Vec<String>)| {
            attributes.get(name).is_some_and(|value| values.contains(&value))
        };
        alternatives.iter().any(|alternative| alternative.iter().all(meets))
    }
}

impl Plan {
    /// The cohort of a line, empty where the plan has none; `None` where it is not measured: it is
    /// not of the sample, or in no cohort of a plan that has some.
    pub fn cohort_of(&self, device: DeviceId, attributes: &Attributes) -> Option<&str> {
        let sampled = f64::from(self.lines.sample) / f64::from(self.lines.count);
        if drawn(&self.name, "sample", device) >= sampled {
            return None;
        }
        if self.cohorts.is_empty() {
            return Some("");
        }
        let mut left = drawn(&self.name, "cohort", device);
        let is_it = |cohort: &&Cohort| match cohort.rule {
            CohortRule::Where(_) => cohort.has(attributes),
            CohortRule::Share(share) => {
                left -= share;
                left < 0.0
            }
        };
        self.cohorts.iter().find(is_it).map(|cohort| cohort.name.as_str())
    }
}

/// From 0 to below 1, always the same for a device, a plan and a purpose, and apart from others.
fn drawn(plan: &str, purpose: &str, device: DeviceId) -> f64 {
    let text = format!("{purpose}\n{device}\n{plan}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let number =
        digest.as_ref().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    (number >> 11) as f64 / (1_u64 << 53) as f64
}
