//! What was measured.

use super::settle::{keep, of_name, stored};
use super::{Applied, Kind, MADE_EPOCH, Orchestrator, Rejection, Stop, enrolled};
use crate::device::DeviceId;
use crate::message::{Numbered, RESULTS_MAX, Results, Stored};
use crate::outcome::RunResult;
use crate::plan::{Kind as Load, Step};
use crate::store::{Device, Schedule, StoreError, Transaction};

/// Where a result belongs.
enum Place {
    /// It is of that open run.
    Open { schedule: usize, run: usize },
    /// Nobody scheduled it.
    Alone,
    /// Its run has its outcome.
    Known,
    /// It is of no run of this device.
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

/// Keeps a result. Whether it was new; `None` where it is of no run of this device.
fn take(
    tx: &mut dyn Transaction,
    now_ms: u64,
    device: &mut Device,
    plans: &[Applied],
    epoch: u32,
    it: &Numbered,
) -> Result<Option<bool>, StoreError> {
    if !is_as_planned(plans, &it.result) {
        return Ok(None);
    }
    let place = place(device, plans, &it.result);
    let earliest_ms = match place {
        Place::Open { schedule, run } => device.schedules[schedule].open[run].given_ms,
        Place::Alone => device.enrolled_ms,
        Place::Known => return Ok(Some(false)),
        Place::Nowhere => return Ok(None),
    };
    // Whatever the device's clock showed: not before it was given, nor in the future.
    let at_ms = it.result.at_ms.max(earliest_ms).min(now_ms.max(earliest_ms));
    let result = RunResult { at_ms, ..it.result.clone() };
    let kept = stored(tx, now_ms, device, plans, (epoch, it.sequence), result)?;
    let is_new = tx.append(&[kept])?.first() == Some(&true);
    if let Place::Open { schedule, run } = place
        && is_new
    {
        device.schedules[schedule].open.remove(run);
    }
    Ok(Some(is_new))
}

/// Whether no series has more probes than a step of its plan can send, so that no result weighs
/// more in a sum than it may: twice as many are let through, for clocks that differ and late ends.
fn is_as_planned(plans: &[Applied], result: &RunResult) -> bool {
    let Some(applied) = of_name(plans, &result.plan) else { return true };
    let of = |step: &Step| {
        let lasts_ns = (step.warm_up + step.duration).as_nanos();
        2 * (lasts_ns / step.interval.as_nanos().max(1) + 1)
    };
    let most = applied.plan.steps.iter().map(of).max().unwrap_or(0);
    result.steps.iter().flat_map(|step| &step.series).all(|series| series.sent <= most)
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

fn place(device: &Device, plans: &[Applied], result: &RunResult) -> Place {
    if result.run == 0 {
        let has_load = result.steps.iter().any(|step| step.kind != Load::Latency);
        let is_known = of_name(plans, &result.plan).is_some();
        return if is_known && !has_load { Place::Alone } else { Place::Nowhere };
    }
    let is_its = |schedule: &Schedule| schedule.plan == result.plan;
    let Some(place) = device.schedules.iter().position(is_its) else { return Place::Nowhere };
    let schedule = &device.schedules[place];
    match schedule.open.iter().position(|open| open.run == result.run) {
        Some(run) => Place::Open { schedule: place, run },
        None if result.run < schedule.run => Place::Known,
        None => Place::Nowhere,
    }
}
