//! What was measured.

use super::settle::{keep, of_name, stored};
use super::{
    Applied, Kind, MADE_EPOCH, Orchestrator, Rejection, START_MS, Stop, enrolled, lasts_ms,
};
use crate::device::DeviceId;
use crate::message::{Numbered, RESULTS_MAX, Results, Stored};
use crate::outcome::RunResult;
use crate::plan::Kind as Load;
use crate::store::{Device, Schedule, StoreError, Transaction};

/// Where a result belongs.
#[derive(Clone, Copy)]
enum Place {
    /// It is of that open run.
    Open { schedule: usize, run: usize },
    /// The device made it while no orchestrator answered; what [`Schedule::own_ms`] becomes.
    Own { schedule: usize, after_ms: u64 },
    /// Its run has its outcome.
    Known,
    /// The device was never given this run, or made it without being asked and either made one too
    /// many or put load on the line.
    Nowhere,
}

impl Orchestrator {
    pub(super) fn results_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        sender: DeviceId,
        it: &Results,
    ) -> Result<Stored, Stop> {
        let mut device = enrolled(tx, sender)?;
        check(it)?;
        let plans = self.plans(tx)?;
        let mut answer = Stored { new: 0, known: 0, refused: 0 };
        for numbered in &it.results {
            match take(tx, now_ms, &mut device, &plans, it.epoch, numbered)? {
                Some(true) => answer.new += 1,
                Some(false) => answer.known += 1,
                None => answer.refused += 1,
            }
        }
        if answer.new > 0 {
            keep(tx, now_ms, device, &plans, &[])?;
        }
        Ok(answer)
    }
}

/// Stores what a result shows of its plan. Returns whether it was new; `None` if it is refused.
fn take(
    tx: &mut dyn Transaction,
    now_ms: u64,
    device: &mut Device,
    plans: &[Applied],
    epoch: u32,
    it: &Numbered,
) -> Result<Option<bool>, StoreError> {
    let Some(applied) = of_name(plans, &it.result.plan) else { return Ok(None) };
    let place = place(device, applied, now_ms, &it.result);
    let (earliest_ms, latest_ms) = match place {
        // A run begins within `START_MS`, so that no device moves its runs to one day.
        Place::Open { schedule, run } => {
            let given_ms = device.schedules[schedule].open[run].given_ms;
            (given_ms, now_ms.min(given_ms.saturating_add(START_MS + lasts_ms(&applied.plan))))
        }
        Place::Own { .. } => (device.enrolled_ms, now_ms),
        Place::Known => return Ok(Some(false)),
        Place::Nowhere => return Ok(None),
    };
    // The device's clock may show any time.
    let at_ms = it.result.at_ms.min(latest_ms).max(earliest_ms);
    let mut result = RunResult { at_ms, ..it.result.clone() };
    result.keep_planned(&applied.plan);
    let kept = stored(tx, now_ms, device, plans, (epoch, it.sequence), result)?;
    let is_new = tx.append(&[kept])?.first() == Some(&true);
    if is_new {
        match place {
            Place::Open { schedule, run } => drop(device.schedules[schedule].open.remove(run)),
            Place::Own { schedule, after_ms } => device.schedules[schedule].own_ms = after_ms,
            Place::Known | Place::Nowhere => {}
        }
    }
    Ok(Some(is_new))
}

fn check(it: &Results) -> Result<(), Rejection> {
    if it.results.len() > RESULTS_MAX {
        let message = format!("more than {RESULTS_MAX} results");
        return Err(Rejection::new(Kind::TooLarge, "too-many", message));
    }
    let bad = |message: String| Err(Rejection::new(Kind::BadRequest, "bad-result", message));
    if it.epoch == MADE_EPOCH {
        return bad("this epoch is the orchestrator's".to_owned());
    }
    for Numbered { sequence, result } in &it.results {
        if *sequence == 0 || *sequence > i64::MAX as u64 {
            return bad(format!("results are numbered from 1 to 2^63 - 1, and one is {sequence}"));
        }
        if let Some(fault) = result.fault() {
            return bad(format!("result {sequence}: {fault}"));
        }
    }
    Ok(())
}

fn place(device: &Device, applied: &Applied, now_ms: u64, result: &RunResult) -> Place {
    let is_its = |schedule: &Schedule| schedule.plan == result.plan;
    let Some(place) = device.schedules.iter().position(is_its) else { return Place::Nowhere };
    let schedule = &device.schedules[place];
    if result.run == 0 {
        let has_load = result.steps.iter().any(|step| step.kind != Load::Latency);
        let after_ms = schedule.after_own_run(&applied.plan, now_ms);
        return match after_ms.filter(|_| !has_load) {
            Some(after_ms) => Place::Own { schedule: place, after_ms },
            None => Place::Nowhere,
        };
    }
    match schedule.open.iter().position(|open| open.run == result.run) {
        Some(run) => Place::Open { schedule: place, run },
        None if result.run < schedule.run => Place::Known,
        None => Place::Nowhere,
    }
}
