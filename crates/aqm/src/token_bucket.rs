//! A token bucket that neither drifts nor overflows, for the DOCSIS link and for the AQM that
//! estimates its delay.

use crate::rate::Rate;
use crate::time::{Span, Time};

/// A token bucket. Tokens are counted in nanobits (1e-9 bit): at `rate` bits per second, one
/// nanosecond adds exactly `rate` of them, so nothing is rounded.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    capacity_nanobits: u64,
    tokens_nanobits: u64,
    updated: Time,
}

pub(crate) const NANOBITS_PER_BYTE: u64 = 8_000_000_000;

/// The largest bucket: its nanobits still fit 63 bits.
pub(crate) const MAX_BURST_BYTES: u64 = 1 << 30;

impl TokenBucket {
    /// Returns a full bucket of `burst_bytes`, at most [`MAX_BURST_BYTES`].
    pub fn new(rate: Rate, burst_bytes: u64) -> Self {
        let capacity_nanobits = burst_bytes.min(MAX_BURST_BYTES) * NANOBITS_PER_BYTE;
        Self { rate, capacity_nanobits, tokens_nanobits: capacity_nanobits, updated: Time::ZERO }
    }

    /// Adds the tokens of the time up to `now`.
    pub fn refill(&mut self, now: Time) {
        let elapsed = u128::from(now.since(self.updated).as_nanos());
        let gained = u128::from(self.rate.bits_per_second()) * elapsed;
        let room = u128::from(self.capacity_nanobits - self.tokens_nanobits);
        self.tokens_nanobits += gained.min(room) as u64;
        self.updated = self.updated.max(now);
    }

    /// Consumes up to the tokens of `bytes`.
    pub const fn take(&mut self, bytes: u32) {
        let wanted = bytes as u64 * NANOBITS_PER_BYTE;
        self.tokens_nanobits = self.tokens_nanobits.saturating_sub(wanted);
    }

    /// Returns the time after the last [`refill`](Self::refill) at which the bucket has `bytes`;
    /// `None` if it never does.
    pub fn wait_for(&self, bytes: u32) -> Option<Span> {
        let wanted = u64::from(bytes) * NANOBITS_PER_BYTE;
        if wanted <= self.tokens_nanobits {
            return Some(Span::ZERO);
        }
        if wanted > self.capacity_nanobits || self.rate.is_zero() {
            return None;
        }
        let missing = wanted - self.tokens_nanobits;
        Some(Span::from_nanos(missing.div_ceil(self.rate.bits_per_second())))
    }

    pub const fn bytes(&self) -> u64 {
        self.tokens_nanobits / NANOBITS_PER_BYTE
    }

    pub const fn is_full(&self) -> bool {
        self.tokens_nanobits == self.capacity_nanobits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_to_the_byte_and_no_further() {
        let mut bucket = TokenBucket::new(Rate::from_megabits_per_second(8), 1_000);
        bucket.take(1_000);
        bucket.refill(Time::from_micros(400));
        assert_eq!(bucket.bytes(), 400);
        assert_eq!(bucket.wait_for(1_000), Some(Span::from_micros(600)));
        bucket.refill(Time::MAX);
        assert_eq!(bucket.bytes(), 1_000);
        assert!(bucket.is_full());
        assert_eq!(bucket.wait_for(1_001), None);
    }
}
