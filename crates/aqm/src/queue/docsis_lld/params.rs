//! The parameters of Low Latency DOCSIS, and the construction of the queue from them.

use alloc::boxed::Box;

use super::DocsisLld;
use crate::config::{
    Bytes, BytesOrSpan, ConfigError, Count, DscpSet, Key, LinkFacts, Millionths, Values, choices,
    from_values, params,
};
use crate::latency_bins::LatencyEdges;
use crate::packet::Dscp;
use crate::qdisc::BoxedQdisc;
use crate::queue::docsis_pie::MAX_PACKET_BYTES;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::service_flow::{FlowRates, ProactiveGrants};
use crate::time::Span;

from_values! {
    /// The parameters of [`DocsisLld`](super::DocsisLld), with the TLVs of DOCSIS MULPI that set them.
    #[derive(Clone, Debug)]
    pub struct DocsisLldConfig(
        values, link: &LinkFacts, rate: Rate, low_latency: FlowRates, classic: FlowRates,
        low_latency_limit_bytes: u64
    ) {
        /// Maximum sustained rate of the aggregate (`AMSR`, TLV 70.8); not zero.
        pub rate: Rate = rate,
        /// Limits of the low latency service flow.
        pub low_latency: FlowRates = low_latency,
        /// Limits of the classic service flow.
        pub classic: FlowRates = classic,
        /// Latency target of the classic queue (TLV 40.2).
        pub target: Span = values.get(TARGET),
        /// Grants that the low latency flow gets without a request, on a link with grants.
        pub proactive: Option<ProactiveGrants> = proactive(values, low_latency.within(rate))?,
        /// The time from a request to its grant, if a virtual queue determines the delay of the low
        /// latency queue (annex O, `qdelayCoupledV`); `None` if its backlog does
        /// (`qdelayCoupledL`).
        pub virtual_loop: Option<Span> = virtual_loop(values, link)?,
        /// Buffer of the classic queue, bytes.
        pub classic_limit_bytes: u64 = limit(values, CLASSIC_LIMIT, classic.within(rate))?,
        /// Buffer of the low latency queue, bytes.
        pub low_latency_limit_bytes: u64 = low_latency_limit_bytes,
        /// The delay above which every packet is marked (`MAXTH`, TLV 40.4), unless the link is
        /// slow.
        pub threshold: Span = values.get(THRESHOLD),
        /// Length of the marking ramp as a power of two of nanoseconds (`LG_RANGE`, TLV 40.5).
        pub range_exponent: u8 = values.get(RANGE) as u8,
        /// Coupling factor in tenths (TLV 42.5).
        pub coupling_tenths: u8 = (values.get(COUPLING) / 100_000) as u8,
        /// When the coupling marks the low latency queue.
        pub coupled_while: CoupledWhile = values.get(COUPLED_WHILE),
        /// Weight of the low latency queue, of 256 (TLV 42.6).
        pub weight: u8 = values.get(WEIGHT) as u8,
        /// Whether queue protection is on (TLV 42.7).
        pub protection: bool = values.get(PROTECTION),
        /// The delay above which flows can be moved (TLV 42.8); `None` for the end of the ramp.
        pub critical_delay: Option<Span> = values.get(CRITICAL_DELAY),
        /// The score that a flow may have at `critical_delay` (TLV 42.9).
        pub critical_score: Span = values.get(CRITICAL_SCORE),
        /// Drain rate of scores as a power of two of bytes per second (TLV 42.10).
        pub aging_exponent: u8 = values.get(AGING) as u8,
        /// Codepoints of the low latency queue, as a bit set.
        pub dscp_set: u64 = values.get(DSCP),
        /// The new codepoint of packets that queue protection moves; `None` leaves it unchanged.
        pub sanctioned_dscp: Option<Dscp> =
            values.get(SANCTIONED_DSCP).and_then(|value| Dscp::new(value as u8)),
        /// The bins of the latency histograms, by [`Side`](crate::service_flow::Side) (TLV 40.6 of
        /// each flow); `None` without a histogram.
        pub histograms: [Option<LatencyEdges>; 2] =
            [values.get(LOW_LATENCY_HISTOGRAM), values.get(CLASSIC_HISTOGRAM)],
    }
}

/// When the coupled probability follows the classic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoupledWhile {
    /// Always, even while DOCSIS-PIE sleeps and drops nothing, as in CableLabs' simulator.
    Always,
    /// Only while DOCSIS-PIE is awake.
    Awake,
}

choices!(CoupledWhile { "always" => Always, "awake" => Awake, });

/// The source of the low latency queue's delay.
enum DelayModel {
    Queue,
    Virtual,
}

choices!(DelayModel { "queue" => Queue, "virtual" => Virtual, });

impl DocsisLldConfig {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        Box::new(DocsisLld::new(self.clone(), rng))
    }
}

/// The low latency buffer is at least twenty largest frames.
const LEAST_LIMIT_BYTES: u64 = 20 * MAX_PACKET_BYTES;

params! {
    define DEFINITION: "docsis-lld",
        "Low Latency DOCSIS: L4S and NQB apart, immediate AQM, queue protection",
        source: "DOCSIS MULPIv3.1 annexes M to P; RFC 9332, 9956, 9957";
    RATE: Option<Rate> = "rate", ("the rate of the link behind it") in "1kbit".."400gbit",
        "maximum sustained rate of the aggregate";
    LOW_LATENCY_RATE: Option<Rate> = "low-latency-rate",
        ("that of the aggregate") in "1kbit".."400gbit",
        "maximum sustained rate of the low latency service flow";
    LOW_LATENCY_PEAK: Option<Rate> = "low-latency-peak", ("the link's") in "1kbit".."400gbit",
        "peak rate of the low latency service flow; needs `low-latency-rate`, and is not below it";
    LOW_LATENCY_BURST: Bytes = "low-latency-burst", "3044B" in "1522B".."1024MiB",
        "burst of the low latency service flow, with `low-latency-rate`";
    CLASSIC_RATE: Option<Rate> = "classic-rate", ("that of the aggregate") in "1kbit".."400gbit",
        "maximum sustained rate of the classic service flow";
    CLASSIC_PEAK: Option<Rate> = "classic-peak", ("the link's") in "1kbit".."400gbit",
        "peak rate of the classic service flow; needs `classic-rate`, and is not below it";
    CLASSIC_BURST: Bytes = "classic-burst", "3044B" in "1522B".."1024MiB",
        "burst of the classic service flow, with `classic-rate`";
    GRANT_RATE: Option<Rate> = "grant-rate", ("none") in "1kbit".."400gbit",
        "rate of grants to the low latency flow without requests (GGR), on a link with `map`";
    GRANT_INTERVAL: Span = "grant-interval", "1ms" in "100us".."65535us",
        "with `grant-rate`: time between these grants (GGI)";
    DELAY: Option<DelayModel> = "delay", ("virtual behind a link with `map`, else queue"),
        "basis of the low latency delay: the backlog, or a virtual queue as in a modem";
    REQUEST_LOOP: Option<Span> = "request-loop",
        ("`map` and `grant` of the link, else 0s") in "0s".."2s",
        "with delay=virtual: time from a request to its grant, which does not count as congestion";
    TARGET: Span = "target", "10ms" in "1ms".."1s", "latency target of the classic queue";
    CLASSIC_LIMIT: BytesOrSpan = "classic-limit", "100ms",
        "buffer of the classic queue; a time is converted at its rate";
    LOW_LATENCY_LIMIT: BytesOrSpan = "low-latency-limit", "10ms",
        "buffer of the low latency queue; a time is converted at its rate, to at least 40000B";
    THRESHOLD: Span = "threshold", "1ms" in "1us".."65535us",
        "delay from which on every packet is marked (MAXTH); longer on slow links";
    RANGE: Count = "range", "19" in "0".."25",
        "length of the marking ramp, as a power of two of nanoseconds";
    COUPLING: Millionths = "coupling", "2" in "0".."25.4", "coupling factor, in steps of a tenth";
    COUPLED_WHILE: CoupledWhile = "coupled-while", "always",
        "when the coupling marks: always, or only while DOCSIS-PIE is awake and may drop";
    WEIGHT: Count = "weight", "230" in "1".."255", "weight of the low latency queue, of 256";
    PROTECTION: bool = "protection", "on",
        "move flows that congest the low latency queue to the classic one";
    CRITICAL_DELAY: Option<Span> = "critical-delay",
        ("the delay from which on every packet is marked") in "1us".."65535us",
        "delay above which flows can be moved to the classic queue";
    CRITICAL_SCORE: Span = "critical-score", "4ms" in "0s".."65535us",
        "score that a flow may have at `critical-delay`";
    AGING: Count = "aging", "19" in "0".."30",
        "drain rate of scores, as a power of two of bytes per second";
    DSCP: DscpSet = "dscp", "45", "codepoints of the low latency queue, beside ECT(1) and CE";
    SANCTIONED_DSCP: Option<Count> = "sanctioned-dscp", ("unchanged") in "0".."63",
        "new codepoint of packets that queue protection moves";
    LOW_LATENCY_HISTOGRAM: Option<LatencyEdges> = "low-latency-histogram", ("no histogram"),
        "edges of the bins of the low latency queue's delays";
    CLASSIC_HISTOGRAM: Option<LatencyEdges> = "classic-histogram", ("no histogram"),
        "edges of the bins of the classic queue's delays";
}

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<DocsisLldConfig, ConfigError> {
    if link.acks_apart {
        let problem = "`docsis-lld` has service flows, and `acks=apart` of the link is for one";
        return Err(ConfigError::Refused(problem.into()));
    }
    let rate = values.rate(RATE, link)?;
    if !values.get(COUPLING).is_multiple_of(100_000) {
        return Err(values.refuse(COUPLING, "whole tenths, such as 2.0"));
    }
    let low_latency = flow_rates(values, LOW_LATENCY_RATE, LOW_LATENCY_PEAK, LOW_LATENCY_BURST)?;
    let classic = flow_rates(values, CLASSIC_RATE, CLASSIC_PEAK, CLASSIC_BURST)?;
    let mut limit_bytes = limit(values, LOW_LATENCY_LIMIT, low_latency.within(rate))?;
    if matches!(values.get(LOW_LATENCY_LIMIT), BytesOrSpan::Span(_)) {
        limit_bytes = limit_bytes.max(LEAST_LIMIT_BYTES);
    }
    DocsisLldConfig::read(values, link, rate, low_latency, classic, limit_bytes)
}

fn flow_rates(
    values: &Values,
    rate: Key<Option<Rate>>,
    peak: Key<Option<Rate>>,
    burst: Key<Bytes>,
) -> Result<FlowRates, ConfigError> {
    let rates = FlowRates {
        sustained: values.get(rate),
        peak: values.get(peak),
        burst_bytes: values.get(burst),
    };
    match (rates.sustained, rates.peak) {
        (None, Some(_)) => Err(values.refuse(peak, "a sustained rate of the same flow beside it")),
        (Some(rate), Some(fastest)) if fastest < rate => {
            Err(values.refuse(peak, "at least the sustained rate of the same flow"))
        }
        _ => Ok(rates),
    }
}

/// Returns the proactive grants of a flow with a rate of at most `most`.
fn proactive(values: &Values, most: Rate) -> Result<Option<ProactiveGrants>, ConfigError> {
    let Some(rate) = values.get(GRANT_RATE) else { return Ok(None) };
    if rate > most {
        return Err(values.refuse(GRANT_RATE, "at most the rate of the low latency flow"));
    }
    Ok(Some(ProactiveGrants { rate, interval: values.get(GRANT_INTERVAL) }))
}

/// Returns the loop of the virtual queue; `None` without a virtual queue.
fn virtual_loop(values: &Values, link: &LinkFacts) -> Result<Option<Span>, ConfigError> {
    let given = values.get(REQUEST_LOOP);
    match values.get(DELAY) {
        Some(DelayModel::Virtual) => Ok(Some(given.or(link.request_loop).unwrap_or(Span::ZERO))),
        None if link.request_loop.is_some() => Ok(given.or(link.request_loop)),
        _ if given.is_some() => Err(values.refuse(REQUEST_LOOP, "delay=virtual beside it")),
        _ => Ok(None),
    }
}

/// Returns the size of a buffer in bytes. A size that is given as a time is converted at `rate`; the
/// result is at least one largest frame.
fn limit(values: &Values, key: Key<BytesOrSpan>, rate: Rate) -> Result<u64, ConfigError> {
    match values.get(key) {
        BytesOrSpan::Span(span) => Ok(rate.bytes_in(span).max(MAX_PACKET_BYTES)),
        BytesOrSpan::Bytes(bytes) if bytes >= MAX_PACKET_BYTES => Ok(bytes),
        BytesOrSpan::Bytes(_) => {
            Err(values.refuse(key, "a buffer of at least 2000 bytes, one full packet"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{QueueConfig, QueueSetup};
    use alloc::string::ToString;

    impl DocsisLldConfig {
        /// The defaults at `rate`.
        pub(in crate::queue) fn for_rate(rate: Rate) -> Self {
            let values = DEFINITION.resolve(&crate::config::Spec::new("docsis-lld"));
            values.and_then(|values| configure(&values, &LinkFacts::of_rate(rate))).expect("a rate")
        }
    }

    #[test]
    fn the_bounds_of_rates_and_buffers_are_themselves_allowed() {
        let parse = |keys: &str| {
            let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(50));
            let setup = QueueSetup::parse(&alloc::format!("docsis-lld:{keys}"), &facts)?;
            match setup.config {
                QueueConfig::DocsisLld(config) => Ok::<_, ConfigError>(config),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(parse("coupling=2.5").unwrap().coupling_tenths, 25);
        for (allowed, refused) in [
            ("classic-rate=9mbit,classic-peak=9mbit", "classic-rate=9mbit,classic-peak=8mbit"),
            ("grant-rate=50mbit", "grant-rate=51mbit"),
            ("classic-limit=2000B", "classic-limit=1999B"),
        ] {
            assert!(parse(allowed).is_ok(), "{allowed}: {:?}", parse(allowed));
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

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

    fn parsed(spec: &str) -> Result<DocsisLldConfig, ConfigError> {
        let link = LinkFacts::of_rate(Rate::from_megabits_per_second(50));
        match QueueSetup::parse(spec, &link)?.config {
            QueueConfig::DocsisLld(config) => Ok::<_, ConfigError>(config),
            other => panic!("{spec} is {other:?}"),
        }
    }

    #[test]
    fn a_buffer_in_milliseconds_uses_the_rate_of_its_flow() {
        let config = parsed("docsis-lld:low-latency-rate=40mbit,classic-rate=16mbit").unwrap();
        assert_eq!(config.low_latency_limit_bytes, 50_000);
        assert_eq!(config.classic_limit_bytes, 200_000);
        let faster = parsed("docsis-lld:classic-rate=90mbit").unwrap();
        assert_eq!(faster.classic_limit_bytes, 625_000, "never beyond the aggregate's");
    }

    #[test]
    fn behind_grants_the_delay_is_that_of_a_virtual_queue() {
        let behind = |spec: &str, request_loop| {
            let rate = Some(Rate::from_megabits_per_second(50));
            let link = LinkFacts { rate, request_loop, ..LinkFacts::UNKNOWN };
            match QueueSetup::parse(spec, &link).expect(spec).config {
                QueueConfig::DocsisLld(config) => config.virtual_loop,
                other => panic!("{spec} is {other:?}"),
            }
        };
        let six = Some(Span::from_millis(6));
        assert_eq!(behind("docsis-lld", six), six);
        assert_eq!(behind("docsis-lld:request-loop=4ms", six), Some(Span::from_millis(4)));
        assert_eq!(behind("docsis-lld:delay=queue", six), None);
        assert_eq!(behind("docsis-lld", None), None);
        assert_eq!(behind("docsis-lld:delay=virtual", None), Some(Span::ZERO));
    }

    #[test]
    fn a_peak_needs_a_rate_and_is_not_below_it() {
        for (spec, expected) in [
            ("classic-peak=9mbit", "`classic-peak=9mbit`: expected a sustained rate of the same"),
            ("classic-rate=9mbit,classic-peak=8mbit", "expected at least the sustained rate"),
            ("low-latency-peak=9mbit", "`low-latency-peak=9mbit`: expected a sustained rate"),
            ("coupled-while=asleep", "expected always, awake"),
            ("delay=real", "expected queue, virtual"),
            ("sanctioned-dscp=64", "0 to 63"),
            ("sanctioned-dscp=-1", "a whole number"),
            ("classic-histogram=2ms+1ms", "expected 1 to 15 rising times"),
            ("low-latency-histogram=15us", "whole 0.01 ms"),
            ("request-loop=4ms", "`request-loop=4ms`: expected delay=virtual beside it"),
            ("grant-rate=51mbit", "expected at most the rate of the low latency flow"),
            ("grant-rate=5mbit,low-latency-rate=4mbit", "expected at most the rate of the low"),
        ] {
            let error = parsed(&alloc::format!("docsis-lld:{spec}")).expect_err(spec).to_string();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }
}
