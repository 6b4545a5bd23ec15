//! When a link may start a packet and when it has sent it.

use alloc::boxed::Box;

use super::cellular::Cellular;
use super::docsis::DocsisUpstream;
use super::schedule::Schedule;
use super::trace::Opportunities;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};

/// The rate of a link as a function of time.
#[derive(Clone, Debug)]
pub enum RateProcess {
    /// Every packet passes at once.
    Unlimited,
    /// The same rate for ever.
    Constant(Constant),
    /// A rate that changes at given instants.
    Schedule(Schedule),
    /// A recording of delivery opportunities, used as Mahimahi does.
    Opportunities(Opportunities),
    /// A token bucket with a peak rate.
    Docsis(DocsisUpstream),
    /// A random process like a cellular link.
    Cellular(Box<Cellular>),
}

impl RateProcess {
    /// This process from its beginning; a random one draws from a child stream of `rng`.
    #[must_use]
    pub fn started(&self, rng: &Rng) -> Self {
        match self {
            Self::Cellular(process) => {
                Self::Cellular(Box::new(process.with_stream(&rng.child("cellular"))))
            }
            known => known.clone(),
        }
    }

    /// The first instant, `ready` or later, at which a transmission may start. `None`: never.
    pub fn next_start(&mut self, ready: Time) -> Option<Time> {
        match self {
            Self::Unlimited | Self::Constant(_) => Some(ready),
            Self::Schedule(process) => Some(process.next_start(ready)),
            Self::Opportunities(process) => Some(process.next_start(ready)),
            Self::Docsis(process) => process.next_start(ready),
            Self::Cellular(process) => Some(process.next_start(ready)),
        }
    }

    /// Transmits `len` bytes from `start`, an instant that [`RateProcess::next_start`] gave, and
    /// returns the end. `None`: the packet can never be transmitted.
    pub fn transmit(&mut self, start: Time, len: u32) -> Option<Time> {
        match self {
            Self::Unlimited => Some(start),
            Self::Constant(process) => Some(process.transmit(start, len)),
            Self::Schedule(process) => Some(process.transmit(start, len)),
            Self::Opportunities(process) => process.transmit(start, len),
            Self::Docsis(process) => process.transmit(start, len),
            Self::Cellular(process) => Some(process.transmit(start, len)),
        }
    }
}

/// A constant rate. What rounding to nanoseconds cuts off is carried through a busy period, so
/// that long runs do not drift.
#[derive(Clone, Debug)]
pub struct Constant {
    rate: Rate,
    free_at: Time,
    /// Nanoseconds cut off so far in this busy period, in units of 1 / rate.
    carry: u64,
}

impl Constant {
    /// A link of `rate`, which must not be zero.
    pub fn new(rate: Rate) -> Self {
        assert!(!rate.is_zero(), "configuration refuses a constant rate of zero");
        Self { rate, free_at: Time::ZERO, carry: 0 }
    }

    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Time {
        if start > self.free_at {
            self.carry = 0;
        }
        let bits_per_second = self.rate.bits_per_second();
        let total = u64::from(len) * 8_000_000_000 + self.carry;
        self.carry = total % bits_per_second;
        self.free_at = start + Span::from_nanos(total / bits_per_second);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_does_not_divide_does_not_drift() {
        // 3 Mbit/s: one byte takes 2666.67 ns; 300,000 of them exactly 0.8 s.
        let mut link = Constant::new(Rate::from_megabits_per_second(3));
        let end = (0..300_000).fold(Time::ZERO, |start, _| link.transmit(start, 1));
        assert_eq!(end, Time::from_millis(800));
    }
}
