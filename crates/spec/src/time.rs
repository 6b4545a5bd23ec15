//! Instants and spans of time, in integer nanoseconds.
//!
//! Our own types rather than `std::time::Instant`: that one is opaque, cannot start at zero and
//! cannot be written to a file. 2^64 nanoseconds are 584 years, so neither type wraps in practice.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// Nanoseconds since the run began. Callers have the clock; this crate cannot read one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Constructors and the value in nanoseconds, which both types have.
macro_rules! nanoseconds {
    ($($Type:ident)+) => {$(
        impl $Type {
            /// The start of a run as an instant, nothing as a duration.
            pub const ZERO: Self = Self(0);

            /// Creates the value from nanoseconds.
            #[inline]
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos)
            }

            /// Creates the value from microseconds.
            #[inline]
            pub const fn from_micros(micros: u64) -> Self {
                Self(micros * 1_000)
            }

            /// Creates the value from milliseconds.
            #[inline]
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis * 1_000_000)
            }

            /// Creates the value from seconds.
            #[inline]
            pub const fn from_secs(seconds: u64) -> Self {
                Self(seconds * 1_000_000_000)
            }

            /// Returns the value in nanoseconds, as it is stored.
            #[inline]
            pub const fn as_nanos(self) -> u64 {
                self.0
            }

            /// Returns the value in milliseconds, rounded down.
            #[inline]
            pub const fn as_millis(self) -> u64 {
                self.0 / 1_000_000
            }

            /// Returns the value in seconds, with a fraction.
            pub const fn as_secs_f64(self) -> f64 {
                self.0 as f64 / 1e9
            }
        }
    )+};
}

nanoseconds!(Time Span);

impl Time {
    /// Later than every event.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Returns `self - other`; zero if `other` is longer.
    #[must_use]
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    #[inline]
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    #[inline]
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl fmt::Display for Span {
    /// Formats the span in the largest unit without a fraction: `5ms`, `1500us`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}
