//! The readings of the orchestrator's clock, by which a step of the clock is noticed.
//!
//! A machine whose clock does not run while it is off starts years behind until the network sets it.
//! No device could ask in the time that the clock skipped, so runs that were due then are not counted
//! as missed. Missed runs are counted only for a time in which the clock ran without a step, and an
//! orchestrator ran.

use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::Orchestrator;
use crate::lease::SKEW_MS;
use crate::store::{LogEntry, Result, StoreError, Tx};

/// Readings of the orchestrator's clock, milliseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Readings {
    last_ms: u64,
    /// Runs that were due before this time are not counted as missed.
    counted_from_ms: u64,
}

/// A larger difference between two readings is a step of the clock, or a long absence of all
/// orchestrators.
const STEP_MS: u64 = 86_400_000;
/// Interval at which readings are stored.
const STORE_MS: u64 = 60_000;
/// Name of the setting with the readings.
const SETTING: &str = "clock";

impl Readings {
    fn and_then(self, now_ms: u64) -> Self {
        let counted_from_ms = if now_ms.abs_diff(self.last_ms) > STEP_MS {
            now_ms
        } else if now_ms + 2 * SKEW_MS < self.last_ms {
            // The time until then was counted before the clock was set back.
            self.counted_from_ms.max(self.last_ms)
        } else {
            return Self { last_ms: self.last_ms.max(now_ms), ..self };
        };
        Self { last_ms: now_ms, counted_from_ms }
    }

    fn read(tx: Tx<'_>) -> Result<Self> {
        let Some(bytes) = tx.setting(SETTING)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(|error| StoreError::broken(SETTING).because(error))
    }
}

impl Orchestrator {
    /// Notes a reading of the clock. Returns from when on runs are counted as missed.
    pub(super) fn counted_from_ms(&self, tx: Tx<'_>, now_ms: u64) -> Result<u64> {
        let mut known = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, stored) = match *known {
            Some(known) => known,
            None => Readings::read(tx).map(|stored| (stored, stored))?,
        };
        let (now, _) = *known.insert((before.and_then(now_ms), stored));
        Ok(now.counted_from_ms)
    }

    /// Notes a reading, as [`Self::counted_from_ms`], and stores the readings once a minute. Writes a
    /// step of the clock to the log.
    pub(super) fn store_readings(&self, tx: Tx<'_>, now_ms: u64) -> Result<u64> {
        let counted_from_ms = self.counted_from_ms(tx, now_ms)?;
        let mut known = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((now, stored)) = &mut *known else { return Ok(counted_from_ms) };
        let has_stepped = now.counted_from_ms != stored.counted_from_ms;
        if !has_stepped && now.last_ms.abs_diff(stored.last_ms) < STORE_MS {
            return Ok(counted_from_ms);
        }
        let bytes = serde_json::to_vec(now);
        let bytes = bytes.map_err(|error| StoreError::broken(SETTING).because(error))?;
        tx.put_setting(SETTING, &bytes)?;
        if has_stepped && *stored != Readings::default() {
            let what = "the clock was set, or no orchestrator ran for a day: runs that were due \
                        before now are not counted as missed";
            tx.log(&LogEntry { at_ms: now_ms, who: "clock".to_owned(), what: what.to_owned() })?;
        }
        *stored = *now;
        Ok(counted_from_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = STEP_MS;

    fn after(times: &[u64]) -> Readings {
        times.iter().fold(Readings::default(), |readings, now_ms| readings.and_then(*now_ms))
    }

    #[test]
    fn without_a_clock_step_all_runs_are_counted() {
        let first = 9 * DAY;
        assert_eq!(after(&[first, first + 5_000, first + DAY]).counted_from_ms, first);
        // Two orchestrators, and two threads of one, differ a little.
        assert_eq!(after(&[first, first + 9_000, first, first + 1]).counted_from_ms, first);
    }

    #[test]
    fn after_a_clock_step_only_later_runs_are_counted() {
        let first = 900 * DAY;
        assert_eq!(after(&[first, first - 60 * DAY]).counted_from_ms, first - 60 * DAY);
        let back = first + 12_000;
        assert_eq!(after(&[first, first - 60 * DAY, back]).counted_from_ms, back);
        assert_eq!(after(&[first, first + 60 * DAY, back]).counted_from_ms, back);
        // Five hours back: the time until `first` was counted.
        assert_eq!(after(&[first, first - DAY / 5, back]).counted_from_ms, first);
    }
}
