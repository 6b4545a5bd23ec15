//! The record of a change: the queues before it, and when it is undone.
//!
//! The record is written before the first change and removed after the last one is undone. A
//! separate process, the watcher, follows the record ([`watch`]); if the watcher was killed, the
//! next command takes its place ([`is_abandoned`]).

use serde::{Deserialize, Serialize};
use underload_record::schema::PerDirection;
use underload_tc::printed::Qdisc;

use crate::request::Overhead;

/// The version of the record's format.
const VERSION: u32 = 1;
/// Longest record that is read, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The longest time in which changes are applied, in milliseconds; `tc` may be slow, not endless.
pub const APPLYING_MAX_MS: u64 = 60_000;
/// How long after a deadline the watcher counts as killed, in milliseconds.
pub const LATE_MS: u64 = 3_000;

/// A change of a device, with all that undoing it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub version: u32,
    pub device: String,
    /// The kernel's number of the device. Another number means another device of the same name.
    pub index: u64,
    pub bit_per_s: PerDirection<Option<u64>>,
    pub queue: String,
    pub overhead: Overhead,
    /// The queues of the device before, root first; `None` if they are not replaced.
    pub before: Option<Vec<Qdisc>>,
    /// Whether the device's ingress queue is ours.
    pub adds_ingress: bool,
    pub phase: Phase,
}

/// The progress of a change. Times are milliseconds of the clock since the machine's start, which
/// no change of the time of day moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Phase {
    /// The commands of the change run.
    Applying { since_ms: u64 },
    /// All commands ran, and the change is undone at the deadline.
    Pending { deadline_ms: u64 },
    /// All commands ran, and the change is undone at the deadline, or earlier when the process that
    /// applied it ends.
    Temporary { deadline_ms: u64 },
    /// The user confirmed the change.
    Confirmed,
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("damaged")]
    Json(#[from] serde_json::Error),
    #[error("written by another version of underload ({0}; this one reads {VERSION})")]
    Version(u32),
}

impl Record {
    /// Returns a record whose changes are about to begin.
    pub fn new(device: &str, index: u64, now_ms: u64) -> Self {
        Self {
            version: VERSION,
            device: device.to_owned(),
            index,
            bit_per_s: PerDirection::default(),
            queue: String::new(),
            overhead: Overhead::NONE,
            before: None,
            adds_ingress: false,
            phase: Phase::Applying { since_ms: now_ms },
        }
    }

    /// Returns the record as text.
    ///
    /// # Errors
    /// Never for records that [`Record::parse`] returned.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Parses the text of a record.
    ///
    /// # Errors
    /// Returns [`RecordError`] if it is damaged or of another version.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        if text.len() > BYTES_MAX {
            return Err(RecordError::TooLong);
        }
        let head: Head = serde_json::from_str(text)?;
        if head.version != VERSION {
            return Err(RecordError::Version(head.version));
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// The watcher's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Wait,
    Undo,
    /// Ends: nothing is left to undo, or the user wants the change.
    Leave,
}

/// Returns what the watcher does. `phase` is `None` if the record was removed, and
/// `is_applier_alive` whether the process that started the watcher still runs.
pub fn watch(phase: Option<Phase>, is_applier_alive: bool, now_ms: u64) -> Action {
    match phase {
        None | Some(Phase::Confirmed) => Action::Leave,
        Some(Phase::Applying { .. } | Phase::Temporary { .. }) if !is_applier_alive => Action::Undo,
        Some(Phase::Applying { since_ms }) => {
            if now_ms >= since_ms.saturating_add(APPLYING_MAX_MS) {
                Action::Undo
            } else {
                Action::Wait
            }
        }
        Some(Phase::Pending { deadline_ms } | Phase::Temporary { deadline_ms }) => {
            if now_ms >= deadline_ms { Action::Undo } else { Action::Wait }
        }
    }
}

/// Whether a change has no watcher any more. The caller holds the lock, which the process that
/// applies a change holds, too.
pub fn is_abandoned(phase: Phase, now_ms: u64) -> bool {
    match phase {
        Phase::Confirmed => false,
        Phase::Applying { .. } => true,
        Phase::Pending { deadline_ms } | Phase::Temporary { deadline_ms } => {
            now_ms >= deadline_ms.saturating_add(LATE_MS)
        }
    }
}
