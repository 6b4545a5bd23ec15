//! The plan of a trial: the randomly drawn hours in which a line is shaped.
//!
//! Two successive hours are a block: one of them is shaped, a coin decides which. So both halves of
//! the trial see the same hours of the day and days of the week. The coins depend only on the seed
//! and the number of the block: after a restart the plan is the same.

use serde::{Deserialize, Serialize};
use underload_aqm::rng::Rng;
use underload_record::schema::PerDirection;

/// Length of a slot, seconds.
pub const SLOT_S: i64 = 3_600;
/// The part of a slot in which its measurement starts, seconds: late enough for connections to
/// adapt to the change, early enough to wait for a quiet line.
const MEASURED_FROM_S: u32 = 120;
const MEASURED_UNTIL_S: u32 = 2_400;
/// Fewest hours of a trial.
const SLOTS_MIN: u32 = 12;
/// Maximum number of hours of a trial: 60 days.
const SLOTS_MAX: u32 = 60 * 24;

/// A plan of hours with and without a shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// When the first hour begins, seconds since 1970.
    pub start_s: i64,
    pub slots: u32,
    pub seed: u64,
}

/// The position of an instant in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The clock shows a time before the start: it was set back, or has not been set yet.
    Before,
    In {
        slot: u32,
    },
    After,
}

impl Plan {
    /// Returns the position of a time, seconds since 1970.
    pub fn position(&self, now_s: i64) -> Position {
        let passed_s = now_s.saturating_sub(self.start_s);
        if passed_s < 0 {
            return Position::Before;
        }
        match u32::try_from(passed_s / SLOT_S) {
            Ok(slot) if slot < self.slots => Position::In { slot },
            _ => Position::After,
        }
    }

    /// Whether the line is shaped in a slot.
    pub fn is_shaped(&self, slot: u32) -> bool {
        let coin = self.draw("coin", slot / 2).below(2) == 1;
        coin == slot.is_multiple_of(2)
    }

    /// Returns when the measurement of a slot starts, seconds since 1970.
    pub fn measured_at_s(&self, slot: u32) -> i64 {
        let range = MEASURED_UNTIL_S - MEASURED_FROM_S;
        self.starts_s(slot) + i64::from(MEASURED_FROM_S + self.draw("start", slot).below(range))
    }

    /// Returns when a slot ends, seconds since 1970.
    pub fn ends_s(&self, slot: u32) -> i64 {
        self.starts_s(slot).saturating_add(SLOT_S)
    }

    fn starts_s(&self, slot: u32) -> i64 {
        self.start_s.saturating_add(i64::from(slot) * SLOT_S)
    }

    fn draw(&self, what: &str, number: u32) -> Rng {
        Rng::new(self.seed).child(&format!("{what} {number}"))
    }
}

/// The version of the log's format.
const VERSION: u32 = 1;

/// The server, shaper and plan of a trial, in the first line of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    version: u32,
    pub plan: Plan,
    /// The server as a record shows it.
    pub host: String,
    /// The command that shapes the line as the trial does.
    pub shaping: String,
}

/// The measurement of an hour. Each is a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hour {
    pub slot: u32,
    pub is_shaped: bool,
    /// The p99 of all probes under load, or that of the round trips of the loading connections if
    /// it is longer, in the worse of the shaped directions.
    pub load_p99_ms: f64,
    /// Goodput; `None` if unknown.
    pub goodput_mbit_s: PerDirection<Option<f64>>,
}

/// The log of a trial: its settings, and the hours measured so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    pub settings: Settings,
    hours: Vec<Hour>,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("not written by `underload shape trial`: choose another directory")]
    NotOurs(#[source] serde_json::Error),
    #[error("written by another version of underload ({0}; this one reads {VERSION})")]
    Version(u32),
    #[error("a plan of {0} hours; expected {SLOTS_MIN} to {SLOTS_MAX}")]
    Slots(u32),
}

impl Settings {
    pub fn new(plan: Plan, host: String, shaping: String) -> Self {
        Self { version: VERSION, plan, host, shaping }
    }

    /// Whether both are trials of the same shaper and server.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.host, &self.shaping) == (&other.host, &other.shaping)
    }
}

impl Log {
    pub fn new(settings: Settings) -> Self {
        Self { settings, hours: Vec::new() }
    }

    /// Parses the lines of a log; `None` if there are none. Skips damaged hours.
    ///
    /// # Errors
    /// Returns [`LogError`] if the first line is not the header of a trial.
    pub fn parse<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<Option<Self>, LogError> {
        let Some(first) = lines.next() else { return Ok(None) };
        let settings: Settings = serde_json::from_slice(first).map_err(LogError::NotOurs)?;
        if settings.version != VERSION {
            return Err(LogError::Version(settings.version));
        }
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&settings.plan.slots) {
            return Err(LogError::Slots(settings.plan.slots));
        }
        let mut log = Self::new(settings);
        for hour in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
            log.add(hour);
        }
        Ok(Some(log))
    }

    /// Adds an hour. Ignores one that has been added, or that the plan does not have.
    pub fn add(&mut self, hour: Hour) {
        let plan = self.settings.plan;
        let is_planned = hour.slot < plan.slots && plan.is_shaped(hour.slot) == hour.is_shaped;
        if is_planned && !self.has(hour.slot) && hour.load_p99_ms.is_finite() {
            self.hours.push(hour);
        }
    }

    /// Returns the number of measured hours.
    pub fn measured(&self) -> usize {
        self.hours.len()
    }

    /// Whether an hour has been measured.
    pub fn has(&self, slot: u32) -> bool {
        self.hours.iter().any(|hour| hour.slot == slot)
    }

    /// Returns the values of the hours without the shaper, and of those with it.
    pub fn values(&self, value: impl Fn(&Hour) -> Option<f64>) -> [Vec<f64>; 2] {
        [false, true].map(|is_shaped| {
            let of = self.hours.iter().filter(|hour| hour.is_shaped == is_shaped);
            of.filter_map(&value).collect()
        })
    }
}
