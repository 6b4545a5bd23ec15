//! Link rates, and the exact time that bits take at them.

use core::fmt;

use crate::time::Span;

/// A rate in bits per second. Zero means that nothing passes (an outage), never "unlimited".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Returns a rate of `bits` per second.
    #[inline]
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns a rate of `megabits` (10^6 bits) per second.
    #[inline]
    pub const fn from_megabits_per_second(megabits: u64) -> Self {
        Self(megabits * 1_000_000)
    }

    /// Returns the rate in bits per second.
    #[inline]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Whether no packet passes.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the time that `bytes` take, rounded down to the nanosecond; `None` at rate zero.
    #[inline]
    pub const fn time_for(self, bytes: u64) -> Option<Span> {
        if self.0 == 0 {
            return None;
        }
        Some(Span::from_nanos((bytes as u128 * 8_000_000_000 / self.0 as u128) as u64))
    }

    /// Returns the whole bytes that pass in `span`.
    #[inline]
    pub const fn bytes_in(self, span: Span) -> u64 {
        (self.0 as u128 * span.as_nanos() as u128 / 8_000_000_000) as u64
    }
}

impl fmt::Display for Rate {
    /// Formats the rate as in a SPEC: `20mbit`, `600kbit`, `1gbit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n % 1_000_000_000 == 0 => write!(f, "{}gbit", n / 1_000_000_000),
            n if n > 0 && n % 1_000_000 == 0 => write!(f, "{}mbit", n / 1_000_000),
            n if n > 0 && n % 1_000 == 0 => write!(f, "{}kbit", n / 1_000),
            n => write!(f, "{n}bit"),
        }
    }
}
