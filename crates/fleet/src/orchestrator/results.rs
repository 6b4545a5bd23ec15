//! Results that devices send.

use super::settle::{plan_named, store_outcomes, stored_result};
use super::{
    Answer, Applied, Kind, MADE_EPOCH, Orchestrator, Rejection, START_MS, answer, enrolled,
    lasts_ms, reject,
};
use crate::device::DeviceId;
use crate::message::{Numbered, RESULTS_MAX, Results, Stored};
use crate::outcome::RunResult;
use crate::plan::Kind as Load;
use crate::store::{Device, Schedule, StoreError, Tx};

/// The run that a result belongs to.
#[derive(Clone, Copy)]
enum RunOfResult {
    /// The assigned run at these indices.
    Open { schedule: usize, run: usize },
    /// A run made while no orchestrator answered. `after_ms` is the new [`Schedule::own_ms`].
    Own { schedule: usize, after_ms: u64 },
    /// A run that already has its outcome.
    Known,
    /// A run that the device was never assigned, or made without an assignment although it exceeds
    /// the rate or loads the line.
    Unknown,
}

impl Orchestrator {
    /// Stores the results of a device.
    pub fn results(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        sender: DeviceId,
        request: &Results,
    ) -> Answer<Stored> {
        answer(|| {
            let mut device = enrolled(tx, sender)?;
            validate(request)?;
            let plans = self.plans(tx)?;
            let mut answer = Stored { new: 0, known: 0, refused: 0 };
            for numbered in &request.results {
                match store_result(tx, now_ms, &mut device, &plans, request.epoch, numbered)? {
                    Some(true) => answer.new += 1,
                    Some(false) => answer.known += 1,
                    None => answer.refused += 1,
                }
            }
            if answer.new > 0 {
                store_outcomes(tx, now_ms, device, &plans, &[])?;
            }
            Ok(answer)
        })
    }
}

/// Stores the parts of a result that its plan measures. Returns whether the result was new; `None`
/// if it is refused.
fn store_result(
    tx: Tx<'_>,
    now_ms: u64,
    device: &mut Device,
    plans: &[Applied],
    epoch: u32,
    numbered: &Numbered,
) -> Result<Option<bool>, StoreError> {
    let Some(applied) = plan_named(plans, &numbered.result.plan) else { return Ok(None) };
    let run_of_result = run_of_result(device, applied, now_ms, &numbered.result);
    let (earliest_ms, latest_ms) = match run_of_result {
        // A run begins within `START_MS`, so that no device moves its runs to one day.
        RunOfResult::Open { schedule, run } => {
            let given_ms = device.schedules[schedule].open[run].given_ms;
            (given_ms, now_ms.min(given_ms.saturating_add(START_MS + lasts_ms(&applied.plan))))
        }
        RunOfResult::Own { .. } => (device.enrolled_ms, now_ms),
        RunOfResult::Known => return Ok(Some(false)),
        RunOfResult::Unknown => return Ok(None),
    };
    // The time by the device's clock may be wrong.
    let at_ms = numbered.result.at_ms.min(latest_ms).max(earliest_ms);
    let mut result = RunResult { at_ms, ..numbered.result.clone() };
    result.keep_planned(&applied.plan);
    let numbers = (epoch, numbered.sequence);
    let stored = stored_result(tx, now_ms, device, plans, numbers, result)?;
    let is_new = tx.append(&[stored])?.first() == Some(&true);
    if is_new {
        match run_of_result {
            RunOfResult::Open { schedule, run } => {
                device.schedules[schedule].open.remove(run);
            }
            RunOfResult::Own { schedule, after_ms } => {
                device.schedules[schedule].own_ms = after_ms;
            }
            RunOfResult::Known | RunOfResult::Unknown => {}
        }
    }
    Ok(Some(is_new))
}

fn validate(request: &Results) -> Result<(), Rejection> {
    if request.results.len() > RESULTS_MAX {
        return reject(Kind::TooLarge, "too-many", format!("more than {RESULTS_MAX} results"));
    }
    let bad = |message: String| reject(Kind::BadRequest, "bad-result", message);
    if request.epoch == MADE_EPOCH {
        return bad("this epoch is the orchestrator's".to_owned());
    }
    for Numbered { sequence, result } in &request.results {
        if *sequence == 0 || *sequence > i64::MAX as u64 {
            return bad(format!("results are numbered from 1 to 2^63 - 1, and one is {sequence}"));
        }
        if let Some(fault) = result.fault() {
            return bad(format!("result {sequence}: {fault}"));
        }
    }
    Ok(())
}

fn run_of_result(
    device: &Device,
    applied: &Applied,
    now_ms: u64,
    result: &RunResult,
) -> RunOfResult {
    let is_of_plan = |schedule: &Schedule| schedule.plan == result.plan;
    let Some(place) = device.schedules.iter().position(is_of_plan) else {
        return RunOfResult::Unknown;
    };
    let schedule = &device.schedules[place];
    if result.run == 0 {
        let has_load = result.steps.iter().any(|step| step.kind != Load::Latency);
        let after_ms = schedule.after_own_run(&applied.plan, now_ms);
        return match after_ms.filter(|_| !has_load) {
            Some(after_ms) => RunOfResult::Own { schedule: place, after_ms },
            None => RunOfResult::Unknown,
        };
    }
    match schedule.open.iter().position(|open| open.run == result.run) {
        Some(run) => RunOfResult::Open { schedule: place, run },
        None if result.run < schedule.run => RunOfResult::Known,
        None => RunOfResult::Unknown,
    }
}
