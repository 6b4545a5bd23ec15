//! Refused tokens in the log of operators' actions, which strangers cannot fill.

use std::sync::{Mutex, PoisonError};

use underload_fleet::store::{LogEntry, Result, Transaction};

/// Counts refusals. A minute has at most [`ENTRIES_MAX`] entries in the log; the next entry states
/// the number of the others.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    minute: u64,
    entries: u64,
    others: u64,
}

const ENTRIES_MAX: u64 = 10;
const MINUTE_MS: u64 = 60_000;
/// The author of requests without a valid token.
const STRANGER: &str = "(no valid token)";

impl Refusals {
    /// Counts a refusal, which the next entry of the log states, and logs none.
    pub fn count(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).others += 1;
    }

    /// Logs a refusal, or counts it.
    pub fn log(&self, tx: &mut dyn Transaction, at_ms: u64, what: &str) -> Result<()> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = at_ms / MINUTE_MS;
        if counts.minute != minute {
            (counts.minute, counts.entries) = (minute, 0);
        }
        if counts.entries >= ENTRIES_MAX {
            counts.others += 1;
            return Ok(());
        }
        counts.entries += 1;
        let others = match std::mem::take(&mut counts.others) {
            0 => String::new(),
            others => format!("; {others} more since the last entry"),
        };
        tx.log(&LogEntry { at_ms, who: STRANGER.to_owned(), what: format!("{what}{others}") })
    }
}

#[cfg(test)]
mod tests {
    use underload_fleet::store::{Archive as _, Memory, Needs, Store as _};

    use super::*;

    #[test]
    fn refusals_do_not_fill_the_log_and_are_all_counted() {
        let (refusals, mut store) = (Refusals::default(), Memory::new());
        let mut log = |at_ms| {
            let mut tx = store.begin(&Needs::default()).expect("it begins");
            refusals.log(&mut *tx, at_ms, "refused a log-in").expect("it is logged");
            tx.commit().expect("it is kept");
        };
        (0..1_000).for_each(|_| log(MINUTE_MS));
        refusals.count();
        log(2 * MINUTE_MS);
        let entries = store.log(9_999).expect("the log");
        assert_eq!(entries.len() as u64, ENTRIES_MAX + 1);
        assert_eq!(entries[0].what, "refused a log-in; 991 more since the last entry");
        assert_eq!(entries[1].what, "refused a log-in");
    }
}
