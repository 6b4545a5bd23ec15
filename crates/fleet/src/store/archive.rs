//! Queries of stored results, for pages and studies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rows::{Device, LogEntry, PlanRow, Server, StoredResult};
use super::transaction::Result;
use crate::bins::Bins;
use crate::device::{Attributes, DeviceId};
use crate::line::Line;
use crate::outcome::{Outcome, SeriesResult, StepResult, kind_of_reason};

/// Selects results; `None` and empty select all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    pub plan: Option<String>,
    pub cohort: Option<String>,
    /// Values of attributes of the line, by [`crate::device::Attributes::NAMES`].
    pub attributes: BTreeMap<String, String>,
    /// Hour of the day in which the run began, UTC, 0 to 23.
    pub hour: Option<u8>,
    /// First day, days since 1970.
    pub from_day: Option<u32>,
    /// Day after the last, days since 1970.
    pub until_day: Option<u32>,
    /// Of devices in use, those that made no request since this time, milliseconds since 1970.
    pub silent_since_ms: Option<u64>,
}

impl Filter {
    pub fn meets(&self, stored: &StoredResult) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&self.plan, &stored.result.plan)
            && is(&self.cohort, &stored.cohort)
            && self.hour.is_none_or(|hour| hour == stored.hour())
            && self.from_day.is_none_or(|day| stored.day() >= day)
            && self.until_day.is_none_or(|day| stored.day() < day)
            && self.meets_attributes(&stored.attributes)
    }

    /// Whether a line has the attributes of the filter. No line has an unknown attribute.
    pub fn meets_attributes(&self, attributes: &Attributes) -> bool {
        self.attributes.iter().all(|(name, value)| attributes.get(name).as_ref() == Some(value))
    }
}

/// A property by which sums are grouped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// Days since 1970.
    Day,
    /// Hour of the day, UTC.
    Hour,
    Plan,
    Cohort,
    Step,
    Kind,
    Dscp,
    /// An attribute of the line, by its name.
    Attribute(String),
}

impl Dimension {
    /// Returns the name of the attribute, or `None` for other dimensions.
    pub fn attribute(&self) -> Option<&str> {
        if let Self::Attribute(name) = self { Some(name) } else { None }
    }

    pub fn value(&self, stored: &StoredResult, step: &StepResult, series: &SeriesResult) -> String {
        match self {
            Self::Day => stored.day().to_string(),
            Self::Hour => stored.hour().to_string(),
            Self::Plan => stored.result.plan.clone(),
            Self::Cohort => stored.cohort.clone(),
            Self::Step => step.step.clone(),
            Self::Kind => step.kind.name().to_owned(),
            Self::Dscp => series.dscp.to_string(),
            Self::Attribute(name) => stored.attributes.get(name).unwrap_or_default(),
        }
    }
}

/// A sum of series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// A value for each dimension of the query.
    pub key: Vec<String>,
    pub bins: Bins,
    pub sent: u64,
    pub lost: u64,
    pub tests: u64,
    pub devices: u64,
}

/// Outcomes of runs that were due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Ordered by outcome and reason.
    pub counts: Vec<OutcomeCount>,
    /// Number of devices in all counts.
    pub devices: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCount {
    pub outcome: Outcome,
    pub reason: String,
    pub count: u64,
    pub devices: u64,
}

impl Outcomes {
    /// Counts the runs that did not measure, by outcome and kind of reason. The number of devices of
    /// a kind is a lower bound: the largest number of any of its reasons.
    pub fn kinds_of_reasons(&self) -> Vec<OutcomeCount> {
        let mut kinds: BTreeMap<(Outcome, String), OutcomeCount> = BTreeMap::new();
        for of in self.counts.iter().filter(|of| of.outcome != Outcome::Measured) {
            let reason = kind_of_reason(&of.reason);
            let none = OutcomeCount { reason: reason.clone(), count: 0, devices: 0, ..of.clone() };
            let kind = kinds.entry((of.outcome, reason)).or_insert(none);
            kind.count = kind.count.saturating_add(of.count);
            kind.devices = kind.devices.max(of.devices);
        }
        kinds.into_values().collect()
    }
}

/// Days of which only sums are stored ([`crate::retention::Form::Sums`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summed {
    pub days: u32,
    /// The day after the last of them, days since 1970.
    pub until_day: u32,
}

/// Queries of a store. Sums are of [`RunResult::pooled_series`].
///
/// [`RunResult::pooled_series`]: crate::outcome::RunResult::pooled_series
pub trait Archive: Send {
    /// Counts the outcomes of runs that were due ([`StoredResult::was_due`]).
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes>;
    /// Sums up series, grouped by `by`.
    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>>;
    /// Returns at most `limit` devices after `after`, ordered by identifier. Of the filter only the
    /// attributes and [`Filter::silent_since_ms`] apply.
    fn devices(
        &mut self,
        filter: &Filter,
        after: Option<DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>>;
    /// Returns at most `limit` lines after the identifier `after`, ordered by identifier.
    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<Line>>;
    /// Counts the devices with the attributes of the filter whose lines are not retired.
    fn count_devices(&mut self, filter: &Filter) -> Result<u64>;
    /// Returns the values of an attribute with the number of devices whose lines are not retired, the
    /// most frequent first and equally frequent ones in byte order. Empty for an unknown attribute.
    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>>;
    /// Returns the newest results of a device, newest first.
    fn results_of(&mut self, device: DeviceId, limit: usize) -> Result<Vec<StoredResult>>;
    /// Calls `see` for each selected result until it returns false: first for archived results, day
    /// by day, then for the others in the order in which they were stored.
    fn visit(&mut self, filter: &Filter, see: &mut dyn FnMut(&StoredResult) -> bool) -> Result<()>;
    /// Calls `see` as [`Archive::visit`] does, for sums and studies. A result has its device,
    /// cohort, day, outcome and series, and of the attributes of its line those in `attributes` and
    /// in the filter. Other fields may be empty.
    fn visit_measured(
        &mut self,
        filter: &Filter,
        attributes: &[&str],
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<()> {
        let _ = attributes;
        self.visit(filter, see)
    }
    /// Returns the selected days whose results [`Archive::visit`] no longer has, except for those
    /// stored after the day was summed up. Of the filter only the plan and days apply.
    fn summed(&mut self, filter: &Filter) -> Result<Summed>;
    /// Returns all servers, by name.
    fn servers(&mut self) -> Result<Vec<Server>>;
    /// Returns all plans, by name.
    fn plans(&mut self) -> Result<Vec<PlanRow>>;
    /// Returns a setting by its name.
    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Returns the newest entries of the operators' log, newest first.
    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_kind_of_reason() {
        let counts = (30..43).map(|percent| OutcomeCount {
            outcome: Outcome::Invalid,
            reason: format!("waited for a CPU {percent} % of the time"),
            count: 2,
            devices: 3,
        });
        let missed = OutcomeCount {
            outcome: Outcome::Missed,
            reason: "the device did not ask in time".to_owned(),
            count: 7,
            devices: 7,
        };
        let counts: Vec<_> = counts.chain([missed]).collect();
        let kinds = Outcomes { counts, devices: 9 }.kinds_of_reasons();
        let told: Vec<_> = kinds.iter().map(|it| (&*it.reason, it.count, it.devices)).collect();
        assert!(told.contains(&("waited for a CPU … % of the time", 26, 3)), "{told:?}");
        assert!(told.contains(&("the device did not ask in time", 7, 7)), "{told:?}");
        assert_eq!(told.len(), 2);
    }
}
