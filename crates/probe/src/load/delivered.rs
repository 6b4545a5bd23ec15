//! When a flow's payload arrived.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::RECORDS_MAX;

/// Payload that had arrived by an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// On the run's clock. If the far end counted the payload: the flow's start plus the interval
    /// on the far end's clock. The start is taken to be half a round trip before the answer
    /// arrived.
    pub time_ns: u64,
    /// Bytes since the flow began.
    pub bytes: u64,
    /// Datagrams since the flow began; 0 for TCP.
    pub packets: u64,
}

/// Returns the bytes by `time_ns`, interpolated between `records`; after the last one, its bytes.
pub(super) fn bytes_at(records: &[Delivered], time_ns: u64) -> u64 {
    let next = records.partition_point(|record| record.time_ns <= time_ns);
    let before = next.checked_sub(1).and_then(|index| records.get(index));
    let (from_ns, from) = before.map_or((0, 0), |record| (record.time_ns, record.bytes));
    let Some(after) = records.get(next) else { return from };
    let share = u128::from(time_ns - from_ns) * u128::from(after.bytes - from)
        / u128::from(after.time_ns - from_ns);
    from + share as u64
}

/// Records that a flow's thread writes ten times per second while other threads read them.
#[derive(Debug, Default)]
pub(super) struct DeliveredLog(Mutex<Vec<Delivered>>);

impl DeliveredLog {
    /// Appends a record unless the log is full or time or bytes would decrease.
    pub(super) fn note(&self, delivered: Delivered) {
        let mut records = self.records();
        let is_later = records
            .last()
            .is_none_or(|last| last.time_ns < delivered.time_ns && last.bytes <= delivered.bytes);
        if is_later && records.len() < RECORDS_MAX {
            records.push(delivered);
        }
    }

    pub(super) fn last(&self) -> Option<Delivered> {
        self.records().last().copied()
    }

    /// Returns `None` for an instant after the last record.
    pub(super) fn bytes_at(&self, time_ns: u64) -> Option<u64> {
        let records = self.records();
        let is_known = records.last().is_some_and(|last| last.time_ns >= time_ns);
        is_known.then(|| bytes_at(&records, time_ns))
    }

    pub(super) fn take(&self) -> Vec<Delivered> {
        std::mem::take(&mut self.records())
    }

    // A thread that panicked with the lock leaves a valid vector.
    fn records(&self) -> MutexGuard<'_, Vec<Delivered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
