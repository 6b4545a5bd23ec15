//! Questions about what was collected, for pages and studies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rows::{Device, LogEntry, PlanRow, Server, StoredResult};
use super::transaction::StoreError;
use crate::bins::Bins;
use crate::device::{Attributes, DeviceId};
use crate::outcome::{Outcome, SeriesResult, StepResult};

/// Which results are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Of this plan.
    pub plan: Option<String>,
    /// Of this cohort.
    pub cohort: Option<String>,
    /// Of lines with these attributes, by [`crate::device::Attributes::NAMES`].
    pub attributes: BTreeMap<String, String>,
    /// Begun in this hour of the day, UTC, 0 to 23.
    pub hour: Option<u8>,
    /// From this day on, days since 1970.
    pub from_day: Option<u32>,
    /// Before this day, days since 1970.
    pub until_day: Option<u32>,
}

impl Filter {
    /// Whether a result is meant.
    pub fn meets(&self, kept: &StoredResult) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&self.plan, &kept.result.plan)
            && is(&self.cohort, &kept.cohort)
            && self.hour.is_none_or(|hour| hour == kept.hour())
            && self.from_day.is_none_or(|day| kept.day() >= day)
            && self.until_day.is_none_or(|day| kept.day() < day)
            && self.meets_attributes(&kept.attributes)
    }

    /// Whether a line is meant. An attribute that there is none of is never met.
    pub fn meets_attributes(&self, attributes: &Attributes) -> bool {
        self.attributes.iter().all(|(name, value)| attributes.get(name).as_ref() == Some(value))
    }
}

/// What sums are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// Days since 1970.
    Day,
    /// Hour of the day, UTC.
    Hour,
    /// The plan.
    Plan,
    /// The cohort.
    Cohort,
    /// The step of the run.
    Step,
    /// What the step loaded: `latency`, `upload`, `download`.
    Kind,
    /// The marking.
    Dscp,
    /// An attribute of the line, by its name.
    Attribute(String),
}

impl Dimension {
    /// Name of the attribute; `None` of other dimensions.
    pub fn attribute(&self) -> Option<&str> {
        if let Self::Attribute(name) = self { Some(name) } else { None }
    }

    /// The value of a series.
    pub fn of(&self, kept: &StoredResult, step: &StepResult, series: &SeriesResult) -> String {
        match self {
            Self::Day => kept.day().to_string(),
            Self::Hour => kept.hour().to_string(),
            Self::Plan => kept.result.plan.clone(),
            Self::Cohort => kept.cohort.clone(),
            Self::Step => step.step.clone(),
            Self::Kind => step.kind.name().to_owned(),
            Self::Dscp => series.dscp.to_string(),
            Self::Attribute(name) => kept.attributes.get(name).unwrap_or_default(),
        }
    }
}

/// Results that were put together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// A value for each dimension that was asked for.
    pub key: Vec<String>,
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

/// What became of runs that were due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Each end and reason, in their order.
    pub counts: Vec<OutcomeCount>,
    /// Devices that all of them are of.
    pub devices: u64,
}

/// How often runs came to an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCount {
    /// Which end.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// Devices that they are of.
    pub devices: u64,
}

/// Days of which only sums are kept ([`crate::retention::Form::Sums`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summed {
    /// How many.
    pub days: u32,
    /// The day after the last of them, days since 1970.
    pub until_day: u32,
}

/// A place that can be asked what was collected. Sums are of [`RunResult::pooled_series`].
///
/// [`RunResult::pooled_series`]: crate::outcome::RunResult::pooled_series
#[expect(clippy::missing_errors_doc, reason = "all fail with `StoreError`, changing nothing")]
pub trait Archive: Send {
    /// How often runs that were due came to each end ([`StoredResult::was_due`]).
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes, StoreError>;
    /// Bins added up, told apart by these dimensions.
    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>, StoreError>;
    /// Devices in the order of their identifiers, after that one, at most so many. Only the
    /// filter's attributes count.
    fn devices(
        &mut self,
        filter: &Filter,
        after: Option<DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>, StoreError>;
    /// How many devices there are with these attributes.
    fn count_devices(&mut self, filter: &Filter) -> Result<u64, StoreError>;
    /// Values that an attribute has, with the number of devices, the most frequent first; those
    /// that are equally frequent in the order of their bytes. None of what is no attribute.
    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>, StoreError>;
    /// The newest results of a device.
    fn results_of(
        &mut self,
        device: DeviceId,
        limit: usize,
    ) -> Result<Vec<StoredResult>, StoreError>;
    /// Shows all results that are meant, until `see` says false: those that were moved away first,
    /// day by day, then the others in the order in which they came.
    fn visit(
        &mut self,
        filter: &Filter,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<(), StoreError>;
    /// As [`Archive::visit`], for sums and studies: a result has its device, cohort, day, outcome
    /// and series, and these attributes of its line and those of the filter. Other fields may be
    /// empty.
    fn visit_measured(
        &mut self,
        filter: &Filter,
        attributes: &[&str],
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<(), StoreError> {
        let _ = attributes;
        self.visit(filter, see)
    }
    /// The days that are meant and that [`Archive::visit`] shows nothing of, except for what came
    /// after they were added up. Only the filter's plan and days count.
    fn summed(&mut self, filter: &Filter) -> Result<Summed, StoreError>;
    /// All servers, by name.
    fn servers(&mut self) -> Result<Vec<Server>, StoreError>;
    /// All plans, by name.
    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError>;
    /// The newest entries of the operators' log.
    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>, StoreError>;
}
