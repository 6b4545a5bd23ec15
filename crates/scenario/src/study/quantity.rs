//! Numbers with units, as a scenario writes them.

use std::fmt;

use underload_aqm::config::{Kind, Value};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Time,
    Rate,
    Size,
    Count,
}

/// A number that can be drawn: at least 0, in the base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    pub unit: Unit,
    /// Nanoseconds, bits per second, bytes or a plain number.
    pub amount: f64,
}

impl Quantity {
    /// Parses `17ms`, `10mbit`, `64KiB` or `3`.
    pub fn read(text: &str) -> Option<Self> {
        let readings = [
            (Kind::Span, Unit::Time),
            (Kind::Rate, Unit::Rate),
            (Kind::Bytes, Unit::Size),
            (Kind::Count, Unit::Count),
        ];
        readings.into_iter().find_map(|(kind, unit)| {
            let amount = match kind.read(text)? {
                Value::Span(span) => span.as_nanos(),
                Value::Rate(rate) => rate.bits_per_second(),
                Value::Bytes(number) | Value::Count(number) => number,
                _ => return None,
            };
            Some(Self { unit, amount: amount as f64 })
        })
    }
}

impl fmt::Display for Quantity {
    /// Rounds times to a microsecond, rates to a kilobit per second, sizes and counts to a whole
    /// number: access lines are not known more precisely.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_steps = |step: f64| libm::round(self.amount / step) as u64;
        match self.unit {
            Unit::Time => Span::from_micros(in_steps(1e3)).fmt(f),
            Unit::Rate => Rate::from_bits_per_second(in_steps(1e3) * 1_000).fmt(f),
            Unit::Size => write!(f, "{}B", in_steps(1.0)),
            Unit::Count => in_steps(1.0).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_as_they_are_read() {
        for text in ["17ms", "12345us", "10mbit", "1500kbit", "24576B", "3", "0s"] {
            assert_eq!(Quantity::read(text).expect(text).to_string(), text);
        }
        assert_eq!(Quantity::read("17"), Some(Quantity { unit: Unit::Count, amount: 17.0 }));
        assert_eq!(Quantity::read("fast"), None);
        assert_eq!(Quantity::read("-5ms"), None);
    }
}
