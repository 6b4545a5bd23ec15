//! A query of sums or outcomes, answered from cells and from results.

use std::collections::{BTreeMap, HashMap};

use roaring::RoaringBitmap;
use underload_fleet::bins::{BIN_MAX, Bins};
use underload_fleet::device::DeviceId;
use underload_fleet::outcome::Outcome;
use underload_fleet::store::{
    Dimension, Filter, OutcomeCount, Outcomes, StoreError, StoredResult, Sum,
};

use super::cells::{CellBytes, Key, LINE, Level, Subject};

/// Returns whether sums by `by`, or outcomes if `by` is empty, need single results. Single results
/// are deleted after a time; roll-ups stay.
pub(crate) fn needs_results(filter: &Filter, by: &[Dimension]) -> bool {
    Question::new(filter, by).level().is_none()
}

/// A query and its partial answer.
pub(crate) struct Question<'a> {
    filter: &'a Filter,
    by: &'a [Dimension],
    /// Groups by line (see `parts`), and by day and hour if these are dimensions.
    answers: BTreeMap<(u32, u32, u8), Answer>,
    /// Numbers of the lines of the answer, by the values of all dimensions except day and hour.
    parts: BTreeMap<Vec<String>, u32>,
    /// Runs and devices by outcome and reason.
    outcomes: BTreeMap<(Outcome, String), (u64, RoaringBitmap)>,
    /// Temporary numbers, from the highest down, of devices that the store has not numbered yet.
    unnumbered: HashMap<DeviceId, u32>,
}

struct Answer {
    bins: Vec<u64>,
    sent: u64,
    lost: u64,
    tests: u64,
    devices: RoaringBitmap,
}

impl<'a> Question<'a> {
    pub(crate) fn new(filter: &'a Filter, by: &'a [Dimension]) -> Self {
        Self {
            filter,
            by,
            answers: BTreeMap::new(),
            parts: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            unnumbered: HashMap::new(),
        }
    }

    /// Returns the coarsest level that has all dimensions; `None` if no level has them.
    pub(crate) fn level(&self) -> Option<Level> {
        let by = self.by.iter().filter_map(Dimension::attribute);
        let mut names = self.filter.attributes.keys().map(String::as_str).chain(by).peekable();
        let has_names = names.peek().is_some();
        let is_hourly = self.filter.hour.is_some() || self.by.contains(&Dimension::Hour);
        names.all(|name| LINE.contains(&name)).then_some(match (is_hourly, has_names) {
            (true, _) => Level::Hours,
            (false, true) => Level::Lines,
            (false, false) => Level::Cohorts,
        })
    }

    /// Returns the number of the line of the answer that cells of this key belong to; `None` if
    /// they belong to none.
    pub(crate) fn line_of(&mut self, key: &Key) -> Option<u32> {
        let attribute = |name: &str| {
            let position = LINE.iter().position(|known| *known == name)?;
            key.line.as_ref().map(|line| line[position].clone())
        };
        let is_meant = self.filter.plan.as_ref().is_none_or(|plan| *plan == key.plan)
            && self.filter.cohort.as_ref().is_none_or(|cohort| *cohort == key.cohort)
            && self
                .filter
                .attributes
                .iter()
                .all(|(name, value)| attribute(name).is_some_and(|has| has == *value));
        if !is_meant {
            return None;
        }
        let values = values(self.by, &key.plan, &key.cohort, &key.of, attribute);
        Some(self.line(values))
    }

    fn line(&mut self, mut values: Vec<String>) -> u32 {
        let next = self.parts.len() as u32;
        if self.parts.len() >= LINES_MAX && !self.parts.contains_key(&values) {
            // Devices choose the names of their firmware, so values of attributes are unlimited.
            for (value, dimension) in values.iter_mut().zip(self.by) {
                if matches!(dimension, Dimension::Attribute(_)) {
                    OTHERS.clone_into(value);
                }
            }
        }
        *self.parts.entry(values).or_insert(next)
    }

    /// Returns whether the filter selects cells of this hour.
    pub(crate) fn means_hour(&self, hour: u8, level: Level) -> bool {
        level != Level::Hours || self.filter.hour.is_none_or(|meant| meant == hour)
    }

    pub(crate) fn add_cell(
        &mut self,
        (line, day, hour): (u32, u32, u8),
        cell: &CellBytes,
    ) -> Result<(), StoreError> {
        let answer = self.answer(line, day, hour);
        let devices = cell.visit(|bin, count| answer.add_to(bin, count))?;
        answer.devices |= devices;
        let [sent, lost, tests] = [cell.sent, cell.lost, cell.tests].map(|number| number as u64);
        answer.count(sent, lost, tests);
        Ok(())
    }

    /// Adds a result. `number` is the number of its device, if the store has one.
    pub(crate) fn add_result(&mut self, stored: &StoredResult, number: Option<u32>) {
        if !self.filter.meets(stored) {
            return;
        }
        let number = number.unwrap_or_else(|| self.number(stored.device));
        let (day, hour) = (stored.day(), stored.hour());
        for (of, series) in Subject::series_of(&stored.result) {
            let attribute = |name: &str| stored.attributes.get(name);
            let values = values(self.by, &stored.result.plan, &stored.cohort, &of, attribute);
            let line = self.line(values);
            let answer = self.answer(line, day, hour);
            answer.devices.insert(number);
            answer.count(series.sent, series.lost, 1);
            series.bins.iter().for_each(|(bin, count)| answer.add_to(bin, count));
        }
    }

    fn number(&mut self, device: DeviceId) -> u32 {
        let next = u32::MAX - self.unnumbered.len() as u32;
        *self.unnumbered.entry(device).or_insert(next)
    }

    fn answer(&mut self, line: u32, day: u32, hour: u8) -> &mut Answer {
        let day = if self.by.contains(&Dimension::Day) { day } else { 0 };
        let hour = if self.by.contains(&Dimension::Hour) { hour } else { 0 };
        self.answers.entry((line, day, hour)).or_insert_with(Answer::empty)
    }

    pub(crate) fn add_runs(&mut self, key: &Key, cell: &CellBytes) -> Result<(), StoreError> {
        let Subject::Runs { outcome, reason } = &key.of else { return Ok(()) };
        let added = cell.visit(|_, _| {})?;
        let (count, devices) = self.ended(*outcome, reason);
        *count = count.saturating_add(cell.tests as u64);
        *devices |= added;
        Ok(())
    }

    /// Returns the count of an outcome and reason. Devices write the reasons; those beyond
    /// [`REASONS_MAX`] are counted together.
    fn ended(&mut self, outcome: Outcome, reason: &str) -> &mut (u64, RoaringBitmap) {
        let mut end = (outcome, reason.to_owned());
        if self.outcomes.len() >= REASONS_MAX && !self.outcomes.contains_key(&end) {
            OTHERS.clone_into(&mut end.1);
        }
        self.outcomes.entry(end).or_default()
    }

    /// Adds the run of a result if it was due. `number` is as in [`Self::add_result`].
    pub(crate) fn add_run(&mut self, stored: &StoredResult, number: Option<u32>) {
        if stored.was_due() && self.filter.meets(stored) {
            let number = number.unwrap_or_else(|| self.number(stored.device));
            let (count, devices) = self.ended(stored.result.outcome, &stored.result.reason);
            *count = count.saturating_add(1);
            devices.insert(number);
        }
    }

    /// Returns the sums, ordered by key.
    pub(crate) fn sums(self) -> Vec<Sum> {
        let mut by_number: Vec<(Vec<String>, u32)> = self.parts.into_iter().collect();
        by_number.sort_by_key(|(_, number)| *number);
        let lines = self.answers.into_iter().filter_map(|((line, day, hour), answer)| {
            let mut key = by_number.get(line as usize)?.0.clone();
            for (value, dimension) in key.iter_mut().zip(self.by) {
                match dimension {
                    Dimension::Day => *value = day.to_string(),
                    Dimension::Hour => *value = hour.to_string(),
                    _ => {}
                }
            }
            let mut bins = Bins::default();
            (0..=BIN_MAX).zip(&answer.bins).for_each(|(bin, count)| bins.add_to(bin, *count));
            let Answer { sent, lost, tests, devices, .. } = answer;
            Some(Sum { key, bins, sent, lost, tests, devices: devices.len() })
        });
        let mut sums: Vec<Sum> = lines.collect();
        sums.sort_by(|one, other| one.key.cmp(&other.key));
        sums
    }

    pub(crate) fn outcomes(self) -> Outcomes {
        let mut all = RoaringBitmap::new();
        let row = |((outcome, reason), (count, devices)): (_, (u64, RoaringBitmap))| {
            all |= &devices;
            OutcomeCount { outcome, reason, count, devices: devices.len() }
        };
        let counts = self.outcomes.into_iter().map(row).collect();
        Outcomes { counts, devices: all.len() }
    }
}

impl Answer {
    fn empty() -> Self {
        let bins = vec![0; usize::from(BIN_MAX) + 1];
        Self { bins, sent: 0, lost: 0, tests: 0, devices: RoaringBitmap::new() }
    }

    fn count(&mut self, sent: u64, lost: u64, tests: u64) {
        self.sent = self.sent.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost);
        self.tests = self.tests.saturating_add(tests);
    }

    fn add_to(&mut self, bin: u16, count: u64) {
        if let Some(sum) = self.bins.get_mut(usize::from(bin)) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Maximum number of combinations of values, without days and hours, in an answer; a row of bins takes
/// about 8 KiB. Further values count as [`OTHERS`].
const LINES_MAX: usize = 4_096;
const REASONS_MAX: usize = 1_024;
/// The value or reason of the line or count that combines all beyond the limit.
const OTHERS: &str = "(others)";

/// Returns the values of the dimensions; empty for day and hour.
fn values(
    by: &[Dimension],
    plan: &str,
    cohort: &str,
    of: &Subject,
    attribute: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let value = |dimension: &Dimension| match (dimension, of) {
        (Dimension::Plan, _) => plan.to_owned(),
        (Dimension::Cohort, _) => cohort.to_owned(),
        (Dimension::Attribute(name), _) => attribute(name).unwrap_or_default(),
        (Dimension::Step, Subject::Series { step, .. }) => step.clone(),
        (Dimension::Kind, Subject::Series { kind, .. }) => kind.name().to_owned(),
        (Dimension::Dscp, Subject::Series { dscp, .. }) => dscp.to_string(),
        _ => String::new(),
    };
    by.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;

    #[test]
    fn values_and_reasons_beyond_the_limit_share_one_line() {
        let by = [Dimension::Attribute("firmware".to_owned()), Dimension::Dscp];
        let filter = Filter::default();
        let mut question = Question::new(&filter, &by);
        for number in 0..6_000_u32 {
            let mut stored = testing::result(1, 1);
            stored.result.steps.truncate(1);
            stored.result.steps[0].series.truncate(1);
            stored.attributes.firmware = format!("{number}");
            question.add_result(&stored, Some(number));
            stored.result.reason = format!("reason {number}");
            question.add_run(&stored, Some(number));
        }
        let ends = &question.outcomes;
        assert_eq!(ends.len(), REASONS_MAX + 1);
        let others = &ends[&(Outcome::Measured, OTHERS.to_owned())];
        assert_eq!((others.0, others.1.len()), (6_000 - 1_024, 6_000 - 1_024));
        let sums = question.sums();
        assert_eq!(sums.len(), LINES_MAX + 1);
        let others = sums.iter().find(|sum| sum.key[0] == OTHERS).expect("there are others");
        assert_eq!((others.key[1].as_str(), others.devices), ("0", 6_000 - 4_096));
        assert_eq!(sums.iter().map(|sum| sum.tests).sum::<u64>(), 6_000);
    }
}
