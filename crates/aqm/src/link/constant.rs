//! A link whose rate never changes.

use crate::rate::Rate;
use crate::time::{Span, Time};
use crate::token_bucket::NANOBITS_PER_BYTE;

/// A constant rate. Remainders of rounding are carried, so that long runs do not drift.
#[derive(Clone, Debug)]
pub struct Constant {
    pub(super) rate: Rate,
    free_at: Time,
    /// The fraction of a nanosecond cut off by rounding in this busy period, in 1 / rate.
    carry: u64,
    /// The transmission time of the previous packet's length, cached because most packets have the
    /// same length as the one before, and a division costs as much as the rest of a transmission.
    last: Transmission,
}

/// The transmission time of a packet: whole nanoseconds, and the rest in units of 1 / rate.
#[derive(Clone, Copy, Debug, Default)]
struct Transmission {
    len: u32,
    nanos: u64,
    rest: u64,
}

impl Constant {
    /// Returns a link of `rate`, which must not be zero.
    pub fn new(rate: Rate) -> Self {
        assert!(!rate.is_zero(), "configuration refuses a constant rate of zero");
        Self { rate, free_at: Time::ZERO, carry: 0, last: Transmission::default() }
    }

    #[inline]
    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Time {
        if start > self.free_at {
            self.carry = 0;
        }
        if len != self.last.len {
            self.divide(len);
        }
        let bits_per_second = self.rate.bits_per_second();
        let mut nanos = self.last.nanos;
        self.carry += self.last.rest;
        if self.carry >= bits_per_second {
            self.carry -= bits_per_second;
            nanos += 1;
        }
        self.free_at = start + Span::from_nanos(nanos);
        self.free_at
    }

    #[inline(never)]
    fn divide(&mut self, len: u32) {
        let nanobits = u64::from(len) * NANOBITS_PER_BYTE;
        let bits_per_second = self.rate.bits_per_second();
        let (nanos, rest) = (nanobits / bits_per_second, nanobits % bits_per_second);
        self.last = Transmission { len, nanos, rest };
    }
}
