//! The cost of a packet at a rate: the bytes that the line charges for it, and their time. Instead
//! of a token bucket the shaper has the time from which on the next packet may leave, so an idle
//! shaper earns no credit.

use crate::rate::Rate;
use crate::time::{Span, Time};

/// The framing of packets on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Packets as they are.
    None,
    /// Cells of 48 bytes that cost 53 (ADSL).
    Atm,
    /// Blocks of 64 bytes that cost 65 (VDSL2).
    Ptm,
}

/// The bytes that the line charges for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Added to every packet before framing.
    pub bytes: u32,
    /// The smallest size that is charged before framing.
    pub minimum_bytes: u32,
    /// The framing of what results.
    pub framing: Framing,
}

impl Overhead {
    /// Returns the bytes that a packet of `len` bytes is charged.
    #[inline]
    pub fn charged(self, len: u32) -> u32 {
        let len = len.saturating_add(self.bytes).max(self.minimum_bytes);
        match self.framing {
            Framing::None => len,
            Framing::Atm => len.div_ceil(48).saturating_mul(53),
            // A byte per 64 or part of 64: at most one too many.
            Framing::Ptm => len.saturating_add(len.div_ceil(64)),
        }
    }
}

/// The time per byte, as a fraction whose denominator is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    scaled_nanos: u64,
    shift: u32,
}

impl Pace {
    /// The slowest pace, so that every transmission ends.
    const LEAST_BYTES_PER_SECOND: u64 = 64;

    /// Returns the pace of `bytes_per_second`, in 34 significant bits.
    pub fn new(bytes_per_second: u64) -> Self {
        let mut shift = 34;
        let second = Span::from_secs(1).as_nanos();
        let mut scaled_nanos =
            (second << shift) / bytes_per_second.max(Self::LEAST_BYTES_PER_SECOND);
        while scaled_nanos >> 34 != 0 {
            scaled_nanos >>= 1;
            shift -= 1;
        }
        Self { scaled_nanos, shift }
    }

    #[inline]
    pub fn time_for(self, bytes: u32) -> Span {
        let scaled = u128::from(bytes) * u128::from(self.scaled_nanos);
        Span::from_nanos((scaled >> self.shift) as u64)
    }
}

/// Returns the bytes per second of `rate`, rounded down.
pub(super) const fn bytes_per_second(rate: Rate) -> u64 {
    rate.bits_per_second() / 8
}

/// The shaper of all tins together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaper {
    pace: Pace,
    next: Time,
    /// A second schedule at 3/2 of the time per byte, which does not charge dropped packets. A
    /// packet may leave at the earlier of both, so that a queue that drops more than it sends does
    /// not fall silent.
    failsafe: Time,
}

impl Shaper {
    pub const fn new(pace: Pace) -> Self {
        Self { pace, next: Time::ZERO, failsafe: Time::ZERO }
    }

    /// Called when a packet arrives in an empty queue: idle time earns no credit.
    pub fn wake(&mut self, now: Time) {
        if self.next < now {
            self.next = now;
            self.failsafe = now;
        }
    }

    /// Returns the time until which no packet may leave, if it is after `now`.
    #[inline]
    pub fn wait(&self, now: Time) -> Option<Time> {
        let next = self.next.min(self.failsafe);
        (next > now).then_some(next)
    }

    /// Charges a packet of `charged` bytes, sent or dropped.
    #[inline]
    pub fn charge(&mut self, charged: u32, was_sent: bool) {
        let span = self.pace.time_for(charged);
        self.next += span;
        if was_sent {
            self.failsafe += Span::from_nanos(span.as_nanos() + span.as_nanos() / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Overhead = Overhead { bytes: 0, minimum_bytes: 0, framing: Framing::None };

    /// The cells of 48 bytes that a packet fills on a line with ATM, and the bytes that VDSL2's
    /// 64/65 coding makes of it.
    #[test]
    fn a_packet_is_charged_the_bytes_that_the_line_sends() {
        assert_eq!(PLAIN.charged(1_500), 1_500);
        let ethernet = Overhead { bytes: 38, minimum_bytes: 84, framing: Framing::None };
        assert_eq!(
            (ethernet.charged(40), ethernet.charged(46), ethernet.charged(47)),
            (84, 84, 85)
        );
        let atm = Overhead { bytes: 32, framing: Framing::Atm, ..PLAIN };
        // An acknowledgement of 40 bytes with 32 fills two cells, a packet of 1500 bytes 32.
        assert_eq!((atm.charged(40), atm.charged(1_500)), (106, 32 * 53));
        assert_eq!((atm.charged(16), atm.charged(17)), (53, 106));
        let ptm = Overhead { bytes: 30, framing: Framing::Ptm, ..PLAIN };
        assert_eq!((ptm.charged(34), ptm.charged(35), ptm.charged(1_500)), (65, 67, 1_554));
    }

    #[test]
    fn no_length_overflows() {
        for framing in [Framing::None, Framing::Atm, Framing::Ptm] {
            let overhead = Overhead { bytes: 256, minimum_bytes: 64, framing };
            assert_eq!(overhead.charged(u32::MAX), u32::MAX);
            assert!(overhead.charged(0) >= 256);
        }
        let slowest = Pace::new(1);
        assert_eq!(slowest.time_for(64), Span::from_secs(1));
        assert!(slowest.time_for(u32::MAX) > Span::from_secs(60_000_000));
    }

    #[test]
    fn a_pace_is_exact_to_a_ten_billionth() {
        for rate in [125_u64, 12_345, 250_000, 2_500_000, 125_000_000, 50_000_000_000] {
            let time = u128::from(Pace::new(rate).time_for(1 << 28).as_nanos());
            let exact = (1_u128 << 28) * 1_000_000_000 / u128::from(rate);
            assert!(time <= exact && exact - time <= 2 + (exact >> 32), "{rate}: {time}, {exact}");
        }
        assert_eq!(Pace::new(2_500_000).time_for(1_514), Span::from_nanos(605_600));
    }

    #[test]
    fn a_shaper_spaces_packets_and_idle_time_earns_no_credit() {
        let mut shaper = Shaper::new(Pace::new(1_000_000));
        shaper.wake(Time::from_millis(10));
        assert_eq!(shaper.wait(Time::from_millis(10)), None);
        shaper.charge(1_000, true);
        assert_eq!(shaper.wait(Time::from_millis(10)), Some(Time::from_millis(11)));
        assert_eq!(shaper.wait(Time::from_millis(11)), None);
        shaper.wake(Time::from_micros(10_999));
        assert_eq!(shaper.next, Time::from_millis(11));
        shaper.wake(Time::from_secs(5));
        assert_eq!((shaper.next, shaper.failsafe), (Time::from_secs(5), Time::from_secs(5)));
    }

    #[test]
    fn drops_delay_no_more_than_the_failsafe() {
        let mut shaper = Shaper::new(Pace::new(1_000_000));
        shaper.charge(1_000, true);
        (0..10).for_each(|_| shaper.charge(1_000, false));
        assert_eq!(shaper.wait(Time::ZERO), Some(Time::from_micros(1_500)));
    }
}
