//! Values with units, read without floating point.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::config::number::{decimal, millionths_of_q32, probability, scaled, shorten};
use crate::config::{Spec, rules};
use crate::latency_bins::LatencyEdges;
use crate::rate::Rate;
use crate::remark::Rules;
use crate::time::Span;

/// The kind of a parameter's value, which decides its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A length of time: `20ms`.
    Span,
    /// A rate in bits per second, such as `10mbit`.
    Rate,
    /// A number of bytes: `256KiB`.
    Bytes,
    /// A number of packets: `1000p`.
    Packets,
    /// A number of packets or of bytes, depending on the unit.
    Limit,
    /// A number of bytes, or the time that they take at the link's rate.
    BytesOrSpan,
    /// A whole number without a unit: `1024`.
    Count,
    /// A plain decimal number, stored in millionths.
    Decimal,
    /// A probability: `5%` or `0.05`, stored as a fraction of 2^32.
    Probability,
    /// Whether something is enabled: `on` or `off`.
    Switch,
    /// One word of the list.
    Choice(&'static [&'static str]),
    /// Differentiated Services codepoints, `45` or `45+46`, stored as a set of bits.
    DscpSet,
    /// Rising times between the bins of a latency histogram: `0.5ms+1ms`.
    Edges,
    /// Any text, such as a file's name.
    Text,
    /// A queue discipline in brackets: `[codel:target=5ms]`.
    Queue,
    /// Rules that change packets: `dscp:45>0+ecn:bleach`.
    Rules,
}

impl Kind {
    /// Returns what is accepted, for help and errors.
    pub const fn expectation(self) -> &'static str {
        match self {
            Self::Span => "a time such as 5ms (ns, us, ms, s, min, h)",
            Self::Rate => "a rate such as 20mbit (bit, kbit, mbit, gbit)",
            Self::Bytes => "a size such as 256KiB (B, kB, KiB, MB, MiB)",
            Self::Packets => "a number of packets with the unit p, such as 1000p",
            Self::Limit => "a number of packets (1000p) or of bytes (256KiB)",
            Self::BytesOrSpan => "a size (256KiB), or a time at the link's rate (250ms)",
            Self::Count => "a whole number",
            Self::Decimal => "a decimal number, such as 0.125",
            Self::Probability => "a probability, such as 5% or 0.05",
            Self::Switch => "on or off",
            Self::Choice(_) => "one of the words listed",
            Self::DscpSet => "DSCP values 0 to 63 joined by +, such as 45+46",
            Self::Edges => {
                "1 to 15 rising times joined by +, in whole 0.01 ms to 655.35ms, such as 0.5ms+1ms"
            }
            Self::Text => "text without commas",
            Self::Queue => "a queue in brackets, such as [codel:target=5ms]",
            Self::Rules => rules::EXPECTED,
        }
    }

    /// Returns what is wrong with a text that is not a value of this kind, and what is accepted.
    pub fn refusal(self, text: &str) -> String {
        let (has_units, text) = (!matches!(self.unit(), "count" | "number"), shorten(text));
        let is_number = scaled(&text, 1).is_some();
        let what = if has_units && is_number { " has no unit;" } else { ":" };
        format!("`{text}`{what} expected {}", self.expectation())
    }

    /// Returns the name of the unit family, for tables.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Span => "time",
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Limit => "packets or bytes",
            Self::BytesOrSpan => "bytes or time",
            Self::Count => "count",
            Self::Decimal => "number",
            Self::Probability => "probability",
            Self::Switch => "on/off",
            Self::Choice(_) => "choice",
            Self::DscpSet => "DSCP set",
            Self::Edges => "times",
            Self::Text => "text",
            Self::Queue => "queue",
            Self::Rules => "rules",
        }
    }

    /// Parses `text`; `None` if it is not a value of this kind.
    pub fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Span => span(text).map(Value::Span),
            Self::Rate => rate(text).map(Value::Rate),
            Self::Bytes => bytes(text).map(Value::Bytes),
            Self::Packets => packets(text).map(Value::Packets),
            Self::Limit => packets(text).map(Value::Packets).or_else(|| Self::Bytes.read(text)),
            Self::BytesOrSpan => span(text).map(Value::Span).or_else(|| Self::Bytes.read(text)),
            Self::Count => text.parse().ok().map(Value::Count),
            Self::Decimal => scaled(text, 1_000_000).map(Value::Decimal),
            Self::Probability => probability(text).map(Value::Probability),
            Self::Switch => match text {
                "on" | "true" => Some(Value::Switch(true)),
                "off" | "false" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::Choice(words) => {
                words.iter().find(|word| **word == text).map(|word| Value::Choice(word))
            }
            Self::DscpSet => dscp_set(text).map(Value::DscpSet),
            Self::Edges => edges(text).map(Value::Edges),
            Self::Text => (!text.is_empty()).then(|| Value::Text(text.to_string())),
            Self::Queue => None,
            Self::Rules => rules::read(text).ok().map(Value::Rules),
        }
    }
}

/// The value of a parameter, by its [`Kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value of [`Kind::Span`].
    Span(Span),
    /// The value of [`Kind::Rate`].
    Rate(Rate),
    /// A number of bytes.
    Bytes(u64),
    /// A number of packets.
    Packets(u32),
    /// The value of [`Kind::Count`].
    Count(u64),
    /// The value of [`Kind::Decimal`], in millionths.
    Decimal(u64),
    /// The value of [`Kind::Probability`], as a fraction of 2^32.
    Probability(u64),
    /// The value of [`Kind::Switch`].
    Switch(bool),
    /// The value of [`Kind::Choice`].
    Choice(&'static str),
    /// The value of [`Kind::DscpSet`]: bit `n` is codepoint `n`.
    DscpSet(u64),
    /// The times between the bins of a histogram.
    Edges(LatencyEdges),
    /// A text, such as the name of a file.
    Text(String),
    /// The SPEC of a nested queue.
    Queue(Spec),
    /// Rules that change DSCP and ECN.
    Rules(Rules),
}

impl Value {
    /// Returns a number for comparing two values of the same unit.
    pub(super) fn magnitude(&self) -> Option<u64> {
        match self {
            Self::Span(span) => Some(span.as_nanos()),
            Self::Rate(rate) => Some(rate.bits_per_second()),
            Self::Packets(packets) => Some(u64::from(*packets)),
            Self::Bytes(n) | Self::Count(n) | Self::Decimal(n) | Self::Probability(n) => Some(*n),
            _ => None,
        }
    }

    /// Whether both values are measured in the same unit.
    pub(super) fn same_unit(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }

    /// Formats the value exactly, so that different values have different texts. `Display` rounds
    /// probabilities.
    pub(super) fn exact(&self) -> String {
        match self {
            Self::Probability(q32) => format!("{q32}/2^32"),
            value => value.to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Rate(rate) => rate.fmt(f),
            Self::Bytes(n) if *n > 0 && n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            Self::Bytes(n) if *n > 0 && n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            Self::Bytes(n) => write!(f, "{n}B"),
            Self::Packets(n) => write!(f, "{n}p"),
            Self::Count(n) => n.fmt(f),
            Self::Decimal(n) => decimal(f, *n),
            Self::Probability(q32) => millionths_of_q32(f, *q32),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Choice(word) => f.write_str(word),
            Self::DscpSet(set) => {
                let mut separator = "";
                for codepoint in (0..64).filter(|codepoint| set >> codepoint & 1 == 1) {
                    write!(f, "{separator}{codepoint}")?;
                    separator = "+";
                }
                Ok(())
            }
            Self::Edges(edges) => edges.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Queue(spec) => write!(f, "[{spec}]"),
            Self::Rules(rules) => rules.fmt(f),
        }
    }
}

/// Splits `text` before its unit, which a space may precede, and multiplies the number by it.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start_matches(' ');
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    scaled(number, *scale)
}

fn span(text: &str) -> Option<Span> {
    const SECOND: u64 = 1_000_000_000;
    let units = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", SECOND),
        ("min", 60 * SECOND),
        ("h", 3_600 * SECOND),
        ("d", 86_400 * SECOND),
    ];
    with_unit(text, &units).map(Span::from_nanos)
}

/// Parses a rate in bit/s, also `10Mb/s` and `10Mbps` (`tc` alone means bytes by its `mbps`);
/// refuses `10MB/s` and `10MBps`, which are bytes.
fn rate(text: &str) -> Option<Rate> {
    let units = [("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let amount = text.strip_suffix("/s").or_else(|| text.strip_suffix("ps"));
    let (amount, per_second) = (amount.unwrap_or(text), amount.is_some());
    let short = [("b", 1), ("kb", 1_000), ("mb", 1_000_000), ("gb", 1_000_000_000)];
    let is_short = per_second && amount.ends_with('b');
    let read = with_unit(amount, &units).or_else(|| with_unit(amount, &short).filter(|_| is_short));
    read.map(Rate::from_bits_per_second)
}

/// Parses a size. Case does not count, except that of the last letter: a small one would be bits.
fn bytes(text: &str) -> Option<u64> {
    let units = [("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20)];
    let is_clear = text.ends_with('B') || text.ends_with("ib") || text.ends_with("Ib");
    with_unit(text, &units).filter(|_| is_clear)
}

fn packets(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('p')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn dscp_set(text: &str) -> Option<u64> {
    text.split('+').try_fold(0, |set, part| {
        let codepoint = part.parse::<u8>().ok().filter(|codepoint| *codepoint < 64)?;
        Some(set | 1 << codepoint)
    })
}

fn edges(text: &str) -> Option<LatencyEdges> {
    let mut units = [0; LatencyEdges::MOST];
    let mut count = 0;
    for part in text.split('+') {
        let nanos = span(part)?.as_nanos();
        let unit = nanos.is_multiple_of(10_000).then(|| u16::try_from(nanos / 10_000).ok())?;
        *units.get_mut(count)? = unit?;
        count += 1;
    }
    LatencyEdges::new(&units[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_mandatory_and_exact() {
        assert_eq!(span("1.5ms"), Some(Span::from_micros(1_500)));
        assert_eq!(span("5"), None);
        assert_eq!(span("5 ms"), Some(Span::from_millis(5)));
        assert_eq!((span("2min"), span("2 Min")), (span("120s"), span("120s")));
        assert_eq!((span("1h"), span("36 µs")), (span("60min"), span("36us")));
        assert_eq!((span("ms"), span("5 m s"), span("99999999999d")), (None, None, None));
        assert_eq!(span("-5ms"), None);
        assert_eq!(rate("0.6mbit"), Some(Rate::from_bits_per_second(600_000)));
        for same in [
            "10mbit", "10Mbit", "10 mbit", "10 Mbit/s", "10Mb/s", "10 mb/s", "10000kbit", "10mbps",
            "10Mbps", "10 Mbps", "10000kbps",
        ] {
            assert_eq!(rate(same), Some(Rate::from_megabits_per_second(10)), "{same}");
        }
        // Without a unit the number may mean bytes, or is a mistake.
        for unclear in ["20MBps", "20MB/s", "20mb", "20M", "20/s", "20ps", "mbit", "20 mbit /s "] {
            assert_eq!(rate(unclear), None, "{unclear}");
        }
        for same in ["256KiB", "256kib", "256 KiB", "256KIB", "262144B"] {
            assert_eq!(bytes(same), Some(262_144), "{same}");
        }
        for unclear in ["256kb", "256b", "256K", "256 "] {
            assert_eq!(bytes(unclear), None, "{unclear}");
        }
        assert_eq!(packets("1000p"), Some(1_000));
        assert_eq!(packets("10.5p"), None);
        assert_eq!(probability("50%"), Some(1 << 31));
        assert_eq!(probability("101%"), None);
        assert_eq!(dscp_set("45+46"), Some((1 << 45) | (1 << 46)));
        assert_eq!(dscp_set("64"), None);
        assert_eq!(edges("0.5ms+1ms"), LatencyEdges::new(&[50, 100]));
        for refused in ["", "+", "1ms+", "1ms+1ms", "2ms+1ms", "5us", "656ms", "1"] {
            assert_eq!(edges(refused), None, "{refused}");
        }
        assert_eq!(scaled("99999999999999999999", 1), None);
        assert_eq!(scaled(".", 1), None);
        assert_eq!(scaled("1.", 1), None);
    }

    #[test]
    fn a_number_without_a_unit_is_an_error_that_says_so() {
        for (kind, text, told) in [
            (Kind::Rate, "20", "`20` has no unit; expected a rate such as 20mbit (bit, "),
            (Kind::Span, "1.5", "`1.5` has no unit; expected a time such as 5ms (ns, "),
            (Kind::Bytes, "64", "`64` has no unit; expected a size such as 256KiB (B, "),
            (Kind::Span, "soon", "`soon`: expected a time such as 5ms (ns, "),
            (Kind::Count, "-1", "`-1`: expected a whole number"),
        ] {
            let refusal = kind.refusal(text);
            assert!(refusal.starts_with(told), "{refusal}");
        }
    }

    #[test]
    fn values_print_as_they_are_read() {
        for (kind, text) in [
            (Kind::Span, "1500us"),
            (Kind::Rate, "600kbit"),
            (Kind::Limit, "256KiB"),
            (Kind::Limit, "1000p"),
            (Kind::Decimal, "0.125"),
            (Kind::Probability, "0.001"),
            (Kind::DscpSet, "8+45"),
            (Kind::Edges, "500us+1ms+10ms"),
            (Kind::Switch, "on"),
        ] {
            assert_eq!(kind.read(text).expect(text).to_string(), text);
        }
    }
}
