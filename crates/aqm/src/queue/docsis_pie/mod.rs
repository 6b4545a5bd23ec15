//! DOCSIS-PIE, the AQM of cable modems (RFC 8034 appendix A; DOCSIS MULPIv3.1 annex M).
//!
//! # Principle
//! PIE for the upstream of a cable modem. It differs from PIE (RFC 8033) as follows:
//! * The delay is computed, not measured: the modem knows the token bucket that shapes it, so the
//!   backlog leaves at the peak rate while tokens last and at the sustained rate afterwards.
//! * A packet's probability is scaled by its size over 1024 bytes, so that a small packet is rarely
//!   dropped. `p` may therefore rise to 0.85 * 1024 / 64 = 13.6, and above 1 its steps are scaled
//!   up (2, 8, 32) so that it rises fast enough.
//! * It has three states: inactive until the queue has filled a third of its buffer, then quiescent
//!   until the first drop, which starts a burst allowance of 142 ms (active). A quiet queue becomes
//!   quiescent again, and inactive after a second (63 updates).
//! * The gains are twice those of PIE, the update interval is 16 ms, p decays while the delay is
//!   below 5 ms twice, and grows by another 2 % per update above 200 ms.
//! * It has no ECN, and drops packets only on arrival.
//!
//! # Parameters
//! [`DocsisPieConfig`]: latency target, sustained rate, peak rate, maximum burst and buffer size.
//! The RFC fixes all other parameters. Packets that wait for request and grant (4 to 8 ms, RFC 8034
//! section 4.2) are stored, so the delay counts them (as `ExpectedDelay` of CableLabs' docsis-ns3).
//!
//! # Divergences
//! None from appendix A is known. Its pseudo-code does not define the token bucket before the first
//! packet: here it is full.
//!
//! # Validation
//! Unit tests check states, bounds, size scaling and delay estimate. Section 4.4 expects a flood of
//! 64-byte packets at twice the rate to settle at p = 8, where half of the packets are lost if each
//! is dropped with its own probability. Appendix A spreads the drops out, which makes them rarer at
//! the same p; the test shows both.

use alloc::boxed::Box;

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{Bytes, BytesOrSpan, ConfigError, LinkFacts, Values, params};
use crate::packet::{Meta, Packet};
use crate::qdisc::{Backlog, BoxedQdisc};
use crate::queue::store::{Limit, Overflow, Single};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::token_bucket::{NANOBITS_PER_BYTE, TokenBucket};

use crate::queue::control::UpdateTimer;

mod controller;

pub(crate) use controller::{Controller, MAX_PACKET_BYTES, UPDATE_INTERVAL};

/// The parameters of DOCSIS-PIE, by the names of RFC 8034.
#[derive(Clone, Debug)]
pub struct DocsisPieConfig {
    /// The target delay (`LATENCY_TARGET`); the standard's default is 10 ms.
    pub target: Span,
    /// Maximum sustained traffic rate (`MSR`); not zero.
    pub rate: Rate,
    /// Peak traffic rate (`PEAK_RATE`); not below `rate`.
    pub peak: Rate,
    /// Maximum traffic burst: the size of the token bucket.
    pub burst_bytes: u64,
    /// Size of the buffer (`BUFFER_SIZE`): a third of it wakes the AQM.
    pub buffer_bytes: u64,
}

/// The DOCSIS-PIE algorithm of one upstream service flow.
#[derive(Clone, Debug)]
pub struct DocsisPie {
    config: DocsisPieConfig,
    bucket: TokenBucket,
    timer: UpdateTimer,
    controller: Controller,
}

impl DocsisPie {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: DocsisPieConfig, rng: Rng) -> Self {
        assert!(!config.rate.is_zero(), "configuration refuses a sustained rate of zero");
        Self {
            bucket: TokenBucket::new(config.rate, config.burst_bytes),
            timer: UpdateTimer::new(Time::ZERO + UPDATE_INTERVAL, UPDATE_INTERVAL),
            controller: Controller::new(config.target, config.buffer_bytes, rng),
            config,
        }
    }

    fn advance(&mut self, now: Time, backlog: Backlog) {
        while let Some(due) = self.timer.take_due(now) {
            self.replay_update(due, now, backlog);
        }
    }

    #[cold]
    fn replay_update(&mut self, due: Time, now: Time, backlog: Backlog) {
        self.bucket.refill(due);
        let changed = self.controller.update(self.estimated_delay(backlog.bytes));
        let delay_is_constant = backlog.is_empty() || self.bucket.is_full();
        if !changed && delay_is_constant {
            self.timer.skip_due(now);
        }
    }

    /// Returns the time in which `bytes` leave: at the peak rate while the tokens of the sustained
    /// rate last, then at the sustained rate.
    fn estimated_delay(&self, bytes: u64) -> Span {
        let at_peak = bytes.min(self.bucket.bytes());
        let nanos = |bytes: u64, rate: Rate| {
            bytes.saturating_mul(NANOBITS_PER_BYTE) / rate.bits_per_second()
        };
        let peak = self.config.peak.max(self.config.rate);
        Span::from_nanos(nanos(at_peak, peak) + nanos(bytes - at_peak, self.config.rate))
    }
}

impl Aqm for DocsisPie {
    #[inline]
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now, backlog);
        self.controller.judge(meta.len, backlog)
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        self.advance(now, backlog);
        self.controller.on_refused();
    }

    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        self.advance(now, store.backlog());
        let len = store.head()?.len;
        self.bucket.refill(now);
        self.bucket.take(len);
        store.pop()
    }

    fn slept(&self) -> u64 {
        self.controller.slept
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.controller.gauges(visit);
    }
}

/// DOCSIS-PIE on a single queue, ready to build.
#[derive(Clone, Debug)]
pub struct DocsisPieQueue(pub DocsisPieConfig);

impl DocsisPieQueue {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        let limit = Limit::bytes(self.0.buffer_bytes);
        let pie = DocsisPie::new(self.0.clone(), rng.child("docsis-pie"));
        Box::new(Single::new(pie, limit, Overflow::Tail))
    }
}

params! {
    define DEFINITION: "docsis-pie",
        "PIE of cable modems: delay known from the token bucket, drops by packet size",
        source: "RFC 8034 appendix A; DOCSIS MULPIv3.1 annex M";
    TARGET: Span = "target", "10ms" in "1ms".."1s", "latency target";
    RATE: Option<Rate> = "rate", ("the rate of the link behind it") in "1kbit".."400gbit",
        "maximum sustained rate";
    PEAK: Option<Rate> = "peak",
        ("the peak rate of the link behind it, else its rate") in "1kbit".."400gbit",
        "peak rate, while the burst lasts";
    BURST: Option<Bytes> = "burst",
        ("the maximum burst of the link behind it, else none") in "0B".."1024MiB",
        "maximum burst: size of the token bucket";
    LIMIT: BytesOrSpan = "limit", "100ms",
        "buffer; a time is taken at the peak rate. A third of it wakes the AQM";
}

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<DocsisPieQueue, ConfigError> {
    let rate = values.rate(RATE, link)?;
    let peak = values.get(PEAK).or(link.peak).unwrap_or(rate).max(rate);
    if values.get(PEAK).is_some_and(|peak| peak < rate) {
        return Err(values.refuse(PEAK, "at least the sustained rate"));
    }
    let buffer_bytes = match values.get(LIMIT) {
        BytesOrSpan::Span(span) => peak.bytes_in(span),
        BytesOrSpan::Bytes(bytes) => bytes,
    };
    if buffer_bytes < MAX_PACKET_BYTES {
        return Err(values.refuse(LIMIT, "a buffer of at least 2000 bytes, one full packet"));
    }
    Ok(DocsisPieQueue(DocsisPieConfig {
        target: values.get(TARGET),
        rate,
        peak,
        burst_bytes: values.get(BURST).or(link.burst_bytes).unwrap_or(0),
        buffer_bytes,
    }))
}

#[cfg(test)]
mod tests {
    use super::controller::{Activity, LIMIT_Q56, State, packet_probability_q56};
    use super::*;
    use crate::queue::control::q56_to_f64;
    use alloc::string::ToString;

    impl DocsisPieConfig {
        /// The defaults at `rate`.
        fn for_rate(rate: Rate) -> Self {
            let values = DEFINITION.resolve(&crate::config::Spec::new("docsis-pie"));
            let queue = values.and_then(|values| configure(&values, &LinkFacts::of_rate(rate)));
            queue.expect("a rate").0
        }
    }

    fn config() -> DocsisPieConfig {
        DocsisPieConfig {
            peak: Rate::from_megabits_per_second(20),
            burst_bytes: 50_000,
            buffer_bytes: 300_000,
            ..DocsisPieConfig::for_rate(Rate::from_megabits_per_second(10))
        }
    }

    fn active(probability_q56: u64) -> DocsisPie {
        let mut pie = DocsisPie::new(config(), Rng::new(2));
        pie.controller.state = State {
            probability_q56,
            old_delay: Span::from_millis(20),
            burst_left: Span::ZERO,
            activity: Activity::Active,
        };
        pie
    }

    #[test]
    fn the_delay_estimate_uses_the_peak_rate_while_tokens_last() {
        let mut pie = DocsisPie::new(config(), Rng::new(2));
        // 50,000 B at 20 Mbit/s take 20 ms, the other 25,000 B at 10 Mbit/s take 20 ms.
        assert_eq!(pie.estimated_delay(50_000), Span::from_millis(20));
        assert_eq!(pie.estimated_delay(75_000), Span::from_millis(40));
        pie.bucket.take(50_000);
        assert_eq!(pie.estimated_delay(75_000), Span::from_millis(60));
        pie.bucket.refill(Time::from_millis(20));
        assert_eq!(pie.estimated_delay(75_000), Span::from_millis(10 + 40));
    }

    #[test]
    fn updates_of_an_idle_year_are_skipped_and_the_controller_is_inactive() {
        let mut pie = active(LIMIT_Q56);
        pie.advance(Time::from_secs(3_600 * 24 * 365), Backlog::default());
        assert_eq!(pie.controller.state.probability_q56, 0);
        assert_eq!(pie.controller.state.activity, Activity::Inactive);
    }

    #[test]
    fn updates_of_a_year_with_a_constant_backlog_are_skipped_and_p_ends_at_its_bound() {
        let mut pie = active(0);
        let backlog = Backlog { packets: 300, bytes: 300_000 };
        pie.advance(Time::from_secs(3_600 * 24 * 365), backlog);
        assert_eq!(pie.controller.state.probability_q56, LIMIT_Q56);
        // 50,000 B at 20 Mbit/s, 250,000 B at 10 Mbit/s.
        assert_eq!(pie.controller.state.old_delay, Span::from_millis(220));
    }

    /// A tail drop counts like a random drop: it resets the sum of probabilities since the last
    /// drop. Two packets of one half each must add up to 0.85 before any can be dropped.
    #[test]
    fn a_refused_packet_resets_the_accumulated_probability() {
        let drops = |refuses: bool| {
            let mut pie = active(crate::queue::control::ratio_q56(1, 2));
            let stored = Backlog { packets: 100, bytes: 100_000 };
            let mut dropped = 0;
            for _ in 0..50 {
                let verdict = pie.on_enqueue(Time::ZERO, &Meta::new(1_024, 0), stored);
                dropped += u32::from(verdict == Verdict::Drop);
                if refuses {
                    pie.on_refused(Time::ZERO, &Meta::new(1_024, 0), stored);
                }
            }
            dropped
        };
        assert!(drops(false) > 10, "{}", drops(false));
        assert_eq!(drops(true), 0);
    }

    #[test]
    fn a_peak_below_the_rate_and_a_buffer_below_a_packet_are_refused() {
        let parse = |spec: &str| {
            let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(10));
            crate::registry::QueueSetup::parse(spec, &facts)
                .map(|_| ())
                .map_err(|it| it.to_string())
        };
        assert_eq!(parse("docsis-pie:peak=10mbit"), Ok(()));
        assert_eq!(parse("docsis-pie:peak=11mbit"), Ok(()));
        let error = parse("docsis-pie:peak=9mbit").unwrap_err();
        assert!(error.contains("at least the sustained rate"), "{error}");
        assert_eq!(parse("docsis-pie:limit=2000B"), Ok(()));
        let error = parse("docsis-pie:limit=1999B").unwrap_err();
        assert!(error.contains("at least 2000 bytes"), "{error}");
    }

    /// Offers 64-byte packets at twice the rate of a 10 Mbit/s queue for 400 s; mean p and share
    /// of losses over the second half. Drops are spread out as appendix A wants, or each packet is
    /// dropped with its own probability.
    fn flood(spread: bool) -> (f64, f64) {
        const LEN: u32 = 64;
        let rate = Rate::from_megabits_per_second(10);
        let mut pie = DocsisPie::new(DocsisPieConfig::for_rate(rate), Rng::new(8));
        pie.controller.state.activity = Activity::Active;
        let mut draw = Rng::new(9);
        let slot = Span::from_nanos(51_200);
        let (mut stored, mut sum_p, mut lost) = (Backlog::default(), 0.0, 0.0);
        let slots = 400_000_000_000 / slot.as_nanos();
        for index in 0..slots {
            let now = Time::ZERO + slot * index;
            for _ in 0..2 {
                pie.advance(now, stored);
                let own_q56 = packet_probability_q56(pie.controller.state.probability_q56, LEN);
                let drops = if spread {
                    pie.on_enqueue(now, &Meta::new(LEN, 0), stored) == Verdict::Drop
                } else {
                    draw.next_u64() >> 8 < own_q56
                };
                if !drops && stored.bytes < pie.config.buffer_bytes {
                    stored.add(LEN);
                } else if index >= slots / 2 {
                    lost += 1.0;
                }
            }
            if !stored.is_empty() {
                stored.remove(LEN);
                pie.bucket.refill(now);
            }
            if index >= slots / 2 {
                sum_p += q56_to_f64(pie.controller.state.probability_q56);
            }
        }
        (sum_p / (slots / 2) as f64, lost / slots as f64)
    }

    #[test]
    fn a_flood_of_small_packets_at_twice_the_rate_settles_at_p_8() {
        let (p, loss) = flood(false);
        assert!((p - 8.0).abs() < 0.1, "settled at {p}");
        assert!((loss - 0.5).abs() < 0.01, "lost {loss}");
    }

    #[test]
    fn with_evenly_spread_drops_a_flood_drives_p_to_its_upper_bound() {
        // Below 0.85 per packet, at least one packet passes between drops and at most 46 % are
        // lost: only at the bound, where every packet is at risk, is half of the flood lost.
        let (p, loss) = flood(true);
        assert!((p - 13.6).abs() < 0.1, "settled at {p}");
        assert!((loss - 0.5).abs() < 0.01, "lost {loss}");
    }
}
