//! The parameters of Low Latency DOCSIS, and the queue out of them.

use alloc::boxed::Box;
use alloc::string::ToString;

use super::DocsisLld;
use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Value, Values};
use crate::packet::Dscp;
use crate::qdisc::Qdisc;
use crate::queue::docsis_pie::MAX_PACKET_BYTES;
use crate::rate::Rate;
use crate::registry::{LinkFacts, QueueConfig, QueueEntry};
use crate::rng::Rng;
use crate::time::Span;

/// Parameters of [`DocsisLld`].
#[derive(Clone, Debug)]
pub struct DocsisLldConfig {
    /// Maximum sustained rate of the aggregate (`AMSR`); not zero.
    pub rate: Rate,
    /// Latency target of the classic queue (TLV 40.2).
    pub target: Span,
    /// Buffer of the classic queue in bytes.
    pub classic_limit_bytes: u64,
    /// Buffer of the low latency queue in bytes.
    pub low_latency_limit_bytes: u64,
    /// Delay from which on every packet is marked (`MAXTH`, TLV 40.4), unless the link is slow.
    pub threshold: Span,
    /// Length of the marking ramp as a power of two of nanoseconds (`LG_RANGE`, TLV 40.5).
    pub range_exponent: u8,
    /// Coupling factor in tenths (TLV 42.5).
    pub coupling_tenths: u8,
    /// Weight of the low latency queue, of 256 (TLV 42.6).
    pub weight: u8,
    /// Whether queue protection is on (TLV 42.7).
    pub protection: bool,
    /// Delay above which flows can be sent away (TLV 42.8); `None`: where the ramp ends.
    pub critical_delay: Option<Span>,
    /// Score that a flow may have at that delay (TLV 42.9).
    pub critical_score: Span,
    /// Drain rate of scores as a power of two of bytes per second (TLV 42.10).
    pub aging_exponent: u8,
    /// Codepoints of the low latency queue, as a bit set.
    pub dscp_set: u64,
}

impl DocsisLldConfig {
    /// The standard's defaults at `rate`.
    pub fn for_rate(rate: Rate) -> Self {
        Self {
            rate,
            target: Span::from_millis(10),
            classic_limit_bytes: rate.bytes_in(Span::from_millis(100)).max(MAX_PACKET_BYTES),
            low_latency_limit_bytes: rate.bytes_in(Span::from_millis(10)).max(LEAST_LIMIT_BYTES),
            threshold: Span::from_millis(1),
            range_exponent: 19,
            coupling_tenths: 20,
            weight: 230,
            protection: true,
            critical_delay: None,
            critical_score: Span::from_millis(4),
            aging_exponent: 19,
            dscp_set: 1 << Dscp::NON_QUEUE_BUILDING.value(),
        }
    }

    pub(crate) fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        Box::new(DocsisLld::new(self.clone(), rng))
    }
}

/// The low latency buffer holds at least twenty largest frames.
const LEAST_LIMIT_BYTES: u64 = 20 * MAX_PACKET_BYTES;

pub(crate) const ENTRY: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "docsis-lld",
        summary: "Low Latency DOCSIS: L4S and NQB apart, immediate AQM, queue protection",
        source: "DOCSIS MULPIv3.1 annexes M to P; RFC 9332, 9956, 9957",
        profiles: &[],
        params: PARAMS,
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure,
};

const PARAMS: &[Param] = &[
    Param {
        key: "rate",
        kind: Kind::Rate,
        fallback: Fallback::Absent("the rate of the link behind it"),
        range: Some(("1kbit", "400gbit")),
        doc: "maximum sustained rate of the aggregate",
    },
    Param {
        key: "target",
        kind: Kind::Span,
        fallback: Fallback::Value("10ms"),
        range: Some(("1ms", "1s")),
        doc: "latency target of the classic queue",
    },
    Param {
        key: "classic-limit",
        kind: Kind::BytesOrSpan,
        fallback: Fallback::Value("100ms"),
        range: None,
        doc: "buffer of the classic queue; a time is taken at the rate",
    },
    Param {
        key: "low-latency-limit",
        kind: Kind::BytesOrSpan,
        fallback: Fallback::Value("10ms"),
        range: None,
        doc: "buffer of the low latency queue; a time is taken at the rate, at least 40000B",
    },
    Param {
        key: "threshold",
        kind: Kind::Span,
        fallback: Fallback::Value("1ms"),
        range: Some(("1us", "65535us")),
        doc: "delay from which on every packet is marked (MAXTH); later on slow links",
    },
    Param {
        key: "range",
        kind: Kind::Count,
        fallback: Fallback::Value("19"),
        range: Some(("0", "25")),
        doc: "length of the marking ramp, as a power of two of nanoseconds",
    },
    Param {
        key: "coupling",
        kind: Kind::Decimal,
        fallback: Fallback::Value("2"),
        range: Some(("0", "25.4")),
        doc: "coupling factor, in steps of a tenth",
    },
    Param {
        key: "weight",
        kind: Kind::Count,
        fallback: Fallback::Value("230"),
        range: Some(("1", "255")),
        doc: "weight of the low latency queue, of 256",
    },
    Param {
        key: "protection",
        kind: Kind::Switch,
        fallback: Fallback::Value("on"),
        range: None,
        doc: "send flows that keep the low latency queue long to the classic one",
    },
    Param {
        key: "critical-delay",
        kind: Kind::Span,
        fallback: Fallback::Absent("where every packet is marked"),
        range: Some(("1us", "65535us")),
        doc: "delay above which flows can be sent away",
    },
    Param {
        key: "critical-score",
        kind: Kind::Span,
        fallback: Fallback::Value("4ms"),
        range: Some(("0s", "65535us")),
        doc: "score that a flow may have at that delay",
    },
    Param {
        key: "aging",
        kind: Kind::Count,
        fallback: Fallback::Value("19"),
        range: Some(("0", "30")),
        doc: "drain rate of scores, as a power of two of bytes per second",
    },
    Param {
        key: "dscp",
        kind: Kind::DscpSet,
        fallback: Fallback::Value("45"),
        range: None,
        doc: "codepoints of the low latency queue, beside ECT(1) and CE",
    },
];

fn configure(values: &Values, link: &LinkFacts) -> Result<QueueConfig, ConfigError> {
    let rate = values.rate("rate").or(link.rate).filter(|rate| !rate.is_zero());
    let rate = rate.ok_or_else(|| ConfigError::Missing {
        name: "docsis-lld".to_string(),
        key: "rate".to_string(),
        expected: "a rate, such as 20mbit, because no link is known behind it".to_string(),
    })?;
    let coupling = values.number("coupling").unwrap_or_default();
    if !coupling.is_multiple_of(100_000) {
        return Err(values.refuse("coupling", "whole tenths, such as 2.0"));
    }
    let number = |key| values.number(key).unwrap_or_default() as u8;
    let low_latency = limit(values, "low-latency-limit", rate)?;
    let is_time = values.span("low-latency-limit").is_some();
    Ok(QueueConfig::DocsisLld(DocsisLldConfig {
        target: values.span("target").unwrap_or_default(),
        classic_limit_bytes: limit(values, "classic-limit", rate)?,
        low_latency_limit_bytes: if is_time {
            low_latency.max(LEAST_LIMIT_BYTES)
        } else {
            low_latency
        },
        threshold: values.span("threshold").unwrap_or_default(),
        range_exponent: number("range"),
        coupling_tenths: (coupling / 100_000) as u8,
        weight: number("weight"),
        protection: values.switch("protection"),
        critical_delay: values.span("critical-delay"),
        critical_score: values.span("critical-score").unwrap_or_default(),
        aging_exponent: number("aging"),
        dscp_set: match values.find("dscp") {
            Some(Value::DscpSet(set)) => set,
            _ => 0,
        },
        rate,
    }))
}

/// A buffer in bytes; a time is taken at `rate`, and is at least one largest frame.
fn limit(values: &Values, key: &str, rate: Rate) -> Result<u64, ConfigError> {
    if let Some(span) = values.span(key) {
        return Ok(rate.bytes_in(span).max(MAX_PACKET_BYTES));
    }
    let bytes = values.bytes(key).unwrap_or_default();
    if bytes < MAX_PACKET_BYTES {
        return Err(values.refuse(key, "a buffer of at least 2000 bytes, one full packet"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures that the tests of CableLabs' simulator assert.
    #[test]
    fn buffers_are_those_of_the_cablelabs_simulator() {
        let buffers = |megabits| {
            let config = DocsisLldConfig::for_rate(Rate::from_megabits_per_second(megabits));
            (config.classic_limit_bytes, config.low_latency_limit_bytes)
        };
        assert_eq!(buffers(50), (625_000, 62_500));
        assert_eq!(buffers(16), (200_000, 40_000));
    }
}
