//! Measures a line behind shapers until the rule of [`crate::suggest`] has its outcome.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_record::schema::{Direction, Finding, PerDirection};
use underload_tc::run::ToolError;

use super::error::{ApplyError, TemporaryError};
use super::session::Session;
use super::snapshot::Snapshot;
use super::temporary::Temporary;
use crate::request::{Overhead, Request};
use crate::suggest::{Limit, Next, Outcome, Reading, Search, Trial, Unreadable};

/// A search on the real line.
#[derive(Debug)]
pub struct LineSearch<'a> {
    pub session: &'a Session,
    pub device: String,
    pub overhead: Overhead,
    /// The queues to try, in this order.
    pub queues: Vec<Spec>,
    pub limit: Limit,
    /// Bytes that all measurements together may move.
    pub budget: u64,
    /// Replaces a shaper that underload did not set up.
    pub may_replace: bool,
}

/// A measurement of the line in its present state: the loads, a label and the bytes that it may
/// move.
pub type Measure<'a, E> = dyn FnMut(PerDirection<bool>, &str, u64) -> Result<Vec<Finding>, E> + 'a;

/// Why a search has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SearchError<E: Error + 'static> {
    #[error(transparent)]
    Measure(E),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Shaper(#[from] TemporaryError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(
        "this machine was too busy for a measurement, {ATTEMPTS} times: stop what else it does"
    )]
    Busy,
    #[error("--budget {}: spent; nothing was chosen", mb(*budget))]
    Spent { budget: u64 },
    #[error(
        "--budget {}: the next measurement takes {}, and {} are left; nothing was chosen",
        mb(*budget), mb(*needed), mb(*left)
    )]
    Short { budget: u64, needed: u64, left: u64 },
}

/// After this time a trial is undone whatever happens: the longest load, twice, must fit into it.
const TRIAL_MAX: Duration = Duration::from_mins(30);
/// Measurements of a direction while this machine is too busy for one.
const ATTEMPTS: usize = 3;
const BOTH: PerDirection<bool> = PerDirection::new(true, true);
/// The rate at which a queue is tried for an instant, if the device's rate is unknown.
pub const FAST: Rate = Rate::from_megabits_per_second(10_000);

/// A measurement's readings, and the bytes that each direction's load moved.
#[derive(Default)]
struct Measured {
    readings: PerDirection<Option<Reading>>,
    moved: PerDirection<u64>,
}

impl LineSearch<'_> {
    pub fn request(&self, queue: &Spec, rates: PerDirection<Option<Rate>>) -> Request {
        let (device, queue) = (self.device.clone(), queue.clone());
        Request { device, rates, queue, down_queue: None, overhead: self.overhead }
    }

    /// Removes the queues that this kernel lacks and returns what is lacking: each queue is in use
    /// for an instant.
    ///
    /// # Errors
    /// Returns an error if the device cannot be shaped for another reason.
    pub fn remove_unusable(&mut self, snapshot: &Snapshot) -> Result<Vec<ToolError>, ApplyError> {
        let rate = snapshot.port_rate().or(Some(FAST));
        let (mut usable, mut lacking) = (Vec::new(), Vec::new());
        for queue in &self.queues {
            let request = self.request(queue, PerDirection::new(rate, rate));
            match self.session.lacks(&request, self.may_replace, TRIAL_MAX)? {
                None => usable.push(queue.clone()),
                Some(error) => lacking.push(error),
            }
        }
        self.queues = usable;
        Ok(lacking)
    }

    /// Measures the line without and with shapers. Returns the readings without one, and the
    /// outcome. `note` gets a sentence about each trial.
    ///
    /// # Errors
    /// Returns the error of a measurement, of a shaper, or of an exhausted budget.
    pub fn run<E: Error + 'static>(
        &self,
        note: &mut dyn FnMut(&dyn Display),
        measure: &mut Measure<'_, E>,
    ) -> Result<(PerDirection<Option<Reading>>, Outcome), SearchError<E>> {
        let mut spent = 0;
        let first = self.measure(BOTH, "no shaper", &mut spent, measure)?;
        let before = first.readings;
        let mut search = Search::new(before, self.limit, self.queues.len());
        loop {
            let trial = match search.next() {
                Next::Done(outcome) => return Ok((before, outcome)),
                Next::Measure(trial) => trial,
            };
            self.check_budget(&trial, first.moved, spent)?;
            let queue = &self.queues[trial.queue];
            let request = self.request(queue, trial.rates);
            let change = Temporary::apply(self.session, &request, self.may_replace, TRIAL_MAX)?;
            let label = trial.label(queue);
            note(&format_args!("trying {label}"));
            let measured = self.measure(trial.loads, &label, &mut spent, measure);
            let ended = change.end();
            let readings = measured?.readings;
            ended?;
            search.add(trial, readings);
        }
    }

    /// Measures the loaded directions, and those again for which this machine was too busy.
    fn measure<E: Error + 'static>(
        &self,
        loads: PerDirection<bool>,
        label: &str,
        spent: &mut u64,
        measure: &mut Measure<'_, E>,
    ) -> Result<Measured, SearchError<E>> {
        let mut found = Measured::default();
        for _ in 0..ATTEMPTS {
            let missing = PerDirection::from_fn(|it| loads[it] && found.readings[it].is_none());
            if missing == PerDirection::default() {
                return Ok(found);
            }
            let left = self.budget.saturating_sub(*spent);
            for finding in measure(missing, label, left).map_err(SearchError::Measure)? {
                *spent = spent.saturating_add(finding.moved_bytes);
                let Some(direction) = Direction::from_name(&finding.step) else { continue };
                found.moved[direction] = finding.moved_bytes;
                if finding.uncertain {
                    continue;
                }
                if finding.budget_spent {
                    return Err(SearchError::Spent { budget: self.budget });
                }
                found.readings[direction] = Some(Reading::new(&finding)?);
            }
        }
        let is_measured = |it: Direction| !loads[it] || found.readings[it].is_some();
        if Direction::ALL.into_iter().all(is_measured) { Ok(found) } else { Err(SearchError::Busy) }
    }

    /// Refuses a trial that would probably exceed the budget.
    fn check_budget<E: Error + 'static>(
        &self,
        trial: &Trial,
        first: PerDirection<u64>,
        spent: u64,
    ) -> Result<(), SearchError<E>> {
        let loaded = first.into_iter().filter(|(direction, _)| trial.loads[*direction]);
        let needed: u64 = loaded.map(|(_, bytes)| bytes).sum();
        let (budget, left) = (self.budget, self.budget.saturating_sub(spent));
        if needed > left { Err(SearchError::Short { budget, needed, left }) } else { Ok(()) }
    }
}

/// Formats bytes as MB.
pub fn mb(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}
