//! Transmission at a rate that is constant in pieces: what schedules and the synthetic cellular
//! link have in common.
//!
//! A packet in mid-transmission at a change keeps the bits that it has sent; the rest go at the
//! new rate. A rate of zero is an outage. What rounding to nanoseconds cuts off is carried
//! through a busy period and across changes, so that long runs do not drift.

use crate::rate::Rate;
use crate::time::{Span, Time};
use crate::token_bucket::NANOBITS_PER_BYTE;

/// A rate over time, with a cursor that only moves forward.
pub(super) trait Pieces {
    fn rate(&self) -> Rate;
    /// Returns the end of the piece at the cursor; [`Time::MAX`] if it lasts for ever.
    fn piece_end(&self) -> Time;
    /// Moves the cursor to the next piece.
    fn enter_next(&mut self);
    /// Moves the cursor to the piece at `time`.
    fn seek(&mut self, time: Time);
    /// Returns the rate at `time`, and the end of its piece.
    fn piece(&mut self, time: Time) -> (Rate, Time) {
        self.seek(time);
        (self.rate(), self.piece_end())
    }
    /// Skips the whole cycles that a transmission of `work_nanobits` from `now` on uses up. Returns
    /// when it continues, and the remaining work.
    fn skip(&mut self, now: Time, work_nanobits: u64) -> (Time, u64) {
        (now, work_nanobits)
    }
}

/// When the transmitter is free again, and what rounding has cut off.
#[derive(Clone, Debug, Default)]
pub(super) struct Transmitter {
    free_at: Time,
    /// Work that rounding has cut off in this busy period, in nanobits (1e-9 bit).
    carry_nanobits: u64,
}

impl Transmitter {
    /// Returns the end of the first outage at `ready`, else `ready`.
    pub(super) fn next_start(&mut self, pieces: &mut impl Pieces, ready: Time) -> Time {
        pieces.seek(ready);
        let mut start = ready;
        while pieces.rate().is_zero() && start < Time::MAX {
            start = pieces.piece_end();
            pieces.enter_next();
        }
        if ready <= self.free_at {
            // The busy period continues, so its carry remains.
            self.free_at = self.free_at.max(start);
        }
        start
    }

    /// Returns the end of a transmission of `len` bytes from `start` on.
    pub(super) fn transmit(&mut self, pieces: &mut impl Pieces, start: Time, len: u32) -> Time {
        if start > self.free_at {
            self.carry_nanobits = 0;
        }
        pieces.seek(start);
        let work = u64::from(len).saturating_mul(NANOBITS_PER_BYTE);
        let (mut now, mut work) = pieces.skip(start, work.saturating_add(self.carry_nanobits));
        while now < Time::MAX {
            let rate = pieces.rate().bits_per_second();
            let left = pieces.piece_end().since(now).as_nanos();
            match work.checked_div(rate) {
                Some(needed) if needed <= left => {
                    self.carry_nanobits = work % rate;
                    self.free_at = now + Span::from_nanos(needed);
                    return self.free_at;
                }
                // The piece ends before the work does, so the product is less than the work.
                Some(_) => work -= rate * left,
                None => {}
            }
            now = pieces.piece_end();
            pieces.enter_next();
        }
        // Beyond the end of time: years of work on a link that hardly sends.
        self.free_at = now;
        now
    }
}
