//! RED, Random Early Detection, in profile `floyd`: Floyd and Jacobson 1993 with the gentle
//! variant (Floyd 2000) and Adaptive RED (Floyd, Gummadi and Shenker 2001).
//!
//! # Principle
//! A moving average of the queue length determines the probability of a drop: zero below `min`,
//! rising to `max-p` from `min` to `max`, and with `gentle` from there to 1 at twice `max`; above,
//! every arrival is dropped. The probability also rises with `count`, the arrivals since the last
//! drop, so that drops are spread evenly. While the queue is idle, the average decays as if packets
//! of mean size had left at the link's rate (10 Mbit/s if unknown, as `tc` assumes).
//!
//! # Parameters
//! `min` and `max` are in packets or in bytes, and the average has the same unit. In bytes the
//! probability is scaled by the packet's size over `mean-packet`. Defaults are those of ns-3 (5 and
//! 15 packets, weight 0.002, max-p 0.02, gentle). With `adaptive=on` the defaults follow the link's
//! rate: weight `1 - exp(-1/C)` for C packets per second, `min` half of `target` (5 ms), at least 5
//! packets, `max` three times that; and `max-p` moves within 1 % to 50 % every 0.5 s so that the
//! average stays in the middle fifth of the band.
//!
//! # Divergences
//! Unlike the paper of 1993, gentle is on by default. Unlike ns-3, there is no `wait` (its default
//! spreads drops twice as wide). Unlike Linux `sch_red`, the weight need not be a power of two,
//! each arrival draws a random number instead of each cycle, and gentle exists. As in Linux,
//! ECN-capable packets are marked even above the band unless `harddrop=on`.
//!
//! # Validation
//! Tests check the drop rate within three standard deviations, evenness of drops, idle decay
//! against the closed form, the adaptive rule's bounds, and the marking fractions that the kernel's
//! own test asserts.

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{
    Bytes, ConfigError, LinkFacts, PacketsOrBytes, Probability, Profile, Values, from_values,
    params,
};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::queue::control::UpdateTimer;
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};

from_values! {
    /// Parameters of [`Red`]; the table of `red` below explains them. `min` and `mean_packet_bytes`
    /// are not zero, and `max` is above `min`. Its switches are independent, as the papers have
    /// them.
    #[derive(Clone, Copy, Debug)]
    pub struct RedConfig(values, limits: (bool, u64, u64), derived: &Defaults, rate: Rate) {
        /// Whether thresholds and average count bytes; else packets.
        pub bytes: bool = limits.0,
        /// Average above which packets are signalled, in bytes or packets.
        pub min: u64 = limits.1,
        /// Average up to which the probability rises to `max_p_q32`, in bytes or packets.
        pub max: u64 = limits.2,
        /// Weight of an arrival in the average, as a fraction of 2^32.
        pub weight_q32: u64 = values.get(WEIGHT).unwrap_or(derived.weight_q32),
        /// Probability at `max`, as a fraction of 2^32.
        pub max_p_q32: u64 = values.get(MAX_P),
        /// Whether the probability rises to one between `max` and twice `max`.
        pub gentle: bool = values.get(GENTLE),
        /// Whether `max_p_q32` adapts to the average.
        pub adaptive: bool = values.get(ADAPTIVE),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
        /// Whether ECN-capable packets are dropped above the band, too.
        pub hard_drop: bool = values.get(HARD_DROP),
        /// Size of an average packet, bytes.
        pub mean_packet_bytes: u32 = values.get(MEAN_PACKET) as u32,
        /// The transmission time of an average packet, for the decay while idle.
        pub mean_packet_time: Span = rate.time_for(values.get(MEAN_PACKET)).unwrap_or_default(),
    }
}

/// The RED algorithm of one queue.
#[derive(Clone, Debug)]
pub struct Red {
    config: RedConfig,
    max_p_q32: u64,
    average_q24: u64,
    /// Arrivals since the last signal; `None` while the average is below the band.
    count: Option<u32>,
    /// While nothing is stored: the time up to which the average has decayed.
    idle_since: Time,
    adaptation: UpdateTimer,
    rng: Rng,
}

impl Red {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: RedConfig, rng: Rng) -> Self {
        Self {
            max_p_q32: config.max_p_q32,
            average_q24: 0,
            count: None,
            idle_since: Time::ZERO,
            adaptation: UpdateTimer::new(Time::ZERO + ADAPT_INTERVAL, ADAPT_INTERVAL),
            rng,
            config,
        }
    }

    fn advance(&mut self, now: Time) {
        while self.config.adaptive && self.adaptation.take_due(now).is_some() {
            let before = self.max_p_q32;
            self.adapt();
            if self.max_p_q32 == before {
                self.adaptation.skip_due(now);
            }
        }
    }

    /// Adapts `max_p`: additive increase, multiplicative decrease.
    fn adapt(&mut self) {
        let band_q24 = (self.config.max - self.config.min) << 24;
        let above_min_q24 = self.average_q24.saturating_sub(self.config.min << 24);
        if above_min_q24 > band_q24 / 10 * 6 && self.max_p_q32 <= ONE_Q32 / 2 {
            self.max_p_q32 += (ONE_Q32 / 100).min(self.max_p_q32 / 4);
        } else if above_min_q24 < band_q24 / 10 * 4 && self.max_p_q32 >= ONE_Q32 / 100 {
            self.max_p_q32 = self.max_p_q32 / 10 * 9;
        }
    }

    fn average(&mut self, now: Time, backlog: Backlog) {
        if backlog.is_empty() {
            let per_packet_ns = self.config.mean_packet_time.as_nanos().max(1);
            let idle = now.since(self.idle_since).as_nanos() / per_packet_ns;
            let kept_q32 = power_q32(ONE_Q32 - self.config.weight_q32, idle);
            self.average_q24 = scale_q32(self.average_q24, kept_q32);
            // The drop of this arrival may leave the queue idle.
            self.idle_since = now;
        }
        let length = if self.config.bytes { backlog.bytes } else { u64::from(backlog.packets) };
        let length_q24 = length.min(LENGTH_CAP) << 24;
        self.average_q24 = if length_q24 >= self.average_q24 {
            self.average_q24 + scale_q32(length_q24 - self.average_q24, self.config.weight_q32)
        } else {
            self.average_q24 - scale_q32(self.average_q24 - length_q24, self.config.weight_q32)
        };
    }

    /// Returns the probability that follows from the average alone; `None` below the band.
    fn base_probability_q32(&self) -> Option<u64> {
        let (min_q24, max_q24) = (self.config.min << 24, self.config.max << 24);
        let ramp = |from_q24: u64, width_q24: u64, height_q32: u64| {
            let above_q24 = self.average_q24 - from_q24;
            // A 128-bit division costs more than the rest of RED, so it is used only if the product
            // exceeds 64 bits, as with average lengths in bytes.
            match above_q24.checked_mul(height_q32) {
                Some(share) => share / width_q24,
                None => {
                    let share = u128::from(above_q24) * u128::from(height_q32);
                    (share / u128::from(width_q24)) as u64
                }
            }
        };
        match self.average_q24 {
            average if average < min_q24 => None,
            average if average < max_q24 => Some(ramp(min_q24, max_q24 - min_q24, self.max_p_q32)),
            average if self.config.gentle && average < 2 * max_q24 => {
                Some(self.max_p_q32 + ramp(max_q24, max_q24, ONE_Q32 - self.max_p_q32))
            }
            _ => Some(ONE_Q32),
        }
    }

    // Not inlined, so that the code for a packet that passes stays small enough to be inlined.
    #[inline(never)]
    fn signals(&mut self, len: u32) -> bool {
        let Some(mut base_q32) = self.base_probability_q32() else {
            self.count = None;
            return false;
        };
        if base_q32 >= ONE_Q32 {
            self.count = Some(0);
            return true;
        }
        if self.config.bytes {
            let mean = u64::from(self.config.mean_packet_bytes);
            base_q32 = (base_q32 * u64::from(len) / mean).min(ONE_Q32);
        }
        let count = self.count.map_or(0, |count| count.saturating_add(1));
        // p / (1 - count * p): certain once count * p reaches 1 - p.
        let left_q32 = ONE_Q32.saturating_sub(base_q32.saturating_mul(u64::from(count)));
        let signal = left_q32 <= base_q32
            || u64::from(self.rng.next_u32()) < (base_q32 << 31) / (left_q32 >> 1);
        self.count = Some(if signal { 0 } else { count });
        signal
    }
}

impl Aqm for Red {
    #[inline]
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now);
        self.average(now, backlog);
        if !self.signals(meta.len) {
            return Verdict::Pass;
        }
        let above_band = self.base_probability_q32() == Some(ONE_Q32);
        if self.config.ecn && !(above_band && self.config.hard_drop) {
            Verdict::Signal
        } else {
            Verdict::Drop
        }
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        self.advance(now);
        self.average(now, backlog);
        self.count = Some(0);
    }

    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        if store.backlog().packets == 1 {
            self.idle_since = now;
        }
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let unit = if self.config.bytes { "red.average_bytes" } else { "red.average_packets" };
        visit(unit, self.average_q24 as f64 / f64::from(1 << 24));
        visit("red.max_probability", self.max_p_q32 as f64 / ONE_Q32 as f64);
    }
}

const ONE_Q32: u64 = 1 << 32;
/// The rate of the idle decay if the link's is unknown, as in `tc`.
const ASSUMED_RATE: Rate = Rate::from_megabits_per_second(10);
const ADAPT_INTERVAL: Span = Span::from_millis(500);
/// Longer queues count as this long, so that the average keeps 24 fractional bits.
const LENGTH_CAP: u64 = 1 << 38;

fn scale_q32(value: u64, factor_q32: u64) -> u64 {
    ((u128::from(value) * u128::from(factor_q32)) >> 32) as u64
}

/// Returns `base ^ exponent` by squaring.
fn power_q32(base_q32: u64, exponent: u64) -> u64 {
    let (mut result_q32, mut square_q32, mut rest) = (ONE_Q32, base_q32, exponent);
    while rest > 0 && result_q32 > 0 {
        if rest % 2 == 1 {
            result_q32 = scale_q32(result_q32, square_q32);
        }
        square_q32 = scale_q32(square_q32, square_q32);
        rest /= 2;
    }
    result_q32
}

one_queue!(RedQueue, RedConfig, |queue, rng| Red::new(queue.config, rng.child("red")));

params! {
    define DEFINITION: "red",
        "RED: drops on arrival by the average queue length; gentle and adaptive",
        source: "Floyd and Jacobson 1993; Floyd, Gummadi and Shenker 2001",
        profiles: &[Profile { name: "floyd", doc: "the papers' RED, exact arithmetic" }],
        tc_keys: &[("probability", "max-p"), ("avpkt", "mean-packet")];
    MIN: Option<PacketsOrBytes> = "min", ("5p; adaptive: half of `target`"),
        "no drop below this average";
    MAX: Option<PacketsOrBytes> = "max", ("15p; adaptive: 3 x min"),
        "average at which the probability is max-p";
    WEIGHT: Option<Probability> = "weight",
        ("0.002; adaptive: 1 - exp(-1/C), C packets per second"),
        "weight of a new sample of the queue length";
    MAX_P: Probability = "max-p", "2%", "probability at max (adaptive: the initial one)";
    GENTLE: bool = "gentle", "on", "rise from max-p to 1 between max and 2 x max";
    ADAPTIVE: bool = "adaptive", "off", "adapt max-p and derive the defaults from the link";
    TARGET: Span = "target", "5ms" in "1us".."10s",
        "adaptive: delay that min and max are derived from";
    MEAN_PACKET: Bytes = "mean-packet", "1000B" in "1B".."64KiB",
        "average packet, for the decay while idle and probabilities by size";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    HARD_DROP: bool = "harddrop", "off", "drop ECN-capable packets, too, above the band";
    use LIMIT;
}

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<RedQueue, ConfigError> {
    let mean_packet_bytes = values.get(MEAN_PACKET) as u32;
    let adaptive = values.get(ADAPTIVE);
    let rate = link.rate.filter(|rate| !rate.is_zero());
    let derived = match (adaptive, rate) {
        (true, Some(rate)) => Defaults::for_link(values, rate, mean_packet_bytes),
        (true, None) if values.get(MIN).is_none() || values.get(WEIGHT).is_none() => {
            let expected = "min, max and weight, because no rate of the link is known";
            return Err(values.missing(MIN.name(), expected));
        }
        _ => Defaults::FIXED,
    };
    let limits = thresholds(values, &derived)?;
    let config = RedConfig::read(values, limits, &derived, rate.unwrap_or(ASSUMED_RATE))?;
    RedQueue::new(config, values)
}

/// Returns three values: whether the thresholds are in bytes, `min`, and `max`.
fn thresholds(values: &Values, derived: &Defaults) -> Result<(bool, u64, u64), ConfigError> {
    use PacketsOrBytes::{Bytes, Packets};
    let (given_min, given_max) = (values.get(MIN), values.get(MAX));
    let (bytes, min) = match given_min {
        Some(Bytes(bytes)) => (true, bytes),
        Some(Packets(packets)) => (false, u64::from(packets)),
        None => (matches!(given_max, Some(Bytes(_))), derived.min_packets),
    };
    let max = match given_max {
        Some(Bytes(max)) if bytes && given_min.is_some() => max,
        Some(Packets(max)) if !bytes => u64::from(max),
        None => min.saturating_mul(3),
        Some(_) => return Err(values.refuse(MAX, "the same unit as min, packets or bytes")),
    };
    if min == 0 {
        return Err(values.refuse(MIN, "1p or 1B and more"));
    }
    if max <= min || max > LENGTH_CAP / 2 {
        return Err(values.refuse(MAX, "more than min, and at most 128 GiB"));
    }
    Ok((bytes, min, max))
}

struct Defaults {
    min_packets: u64,
    weight_q32: u64,
}

impl Defaults {
    const FIXED: Self = Self { min_packets: 5, weight_q32: ONE_Q32 / 500 };

    fn for_link(values: &Values, rate: Rate, mean_packet_bytes: u32) -> Self {
        let per_second = rate.bits_per_second() / 8 / u64::from(mean_packet_bytes).max(1);
        let target = values.get(TARGET);
        let packets_in_target =
            u128::from(per_second) * u128::from(target.as_nanos()) / 1_000_000_000;
        // 1 - exp(-x) = x - x^2/2 + ..., with x = 1/C: two terms suffice from 10 packets/s on.
        let packets = per_second.max(10);
        let weight_q32 = ONE_Q32 / packets - ONE_Q32 / (2 * packets).saturating_mul(packets);
        let min_packets = (packets_in_target / 2).clamp(5, 1 << 32) as u64;
        Self { min_packets, weight_q32: weight_q32.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::registry::{QueueConfig, QueueSetup};
    use alloc::string::ToString;

    fn config(spec: &str) -> Result<RedConfig, ConfigError> {
        let rate = Some(Rate::from_megabits_per_second(80));
        let facts = LinkFacts { rate, ..LinkFacts::default() };
        match QueueSetup::parse(spec, &facts)?.config {
            QueueConfig::Red(queue) => Ok(queue.config),
            other => panic!("{other:?}"),
        }
    }

    fn red(spec: &str) -> Red {
        Red::new(config(spec).expect(spec), Rng::new(6))
    }

    fn packets(packets: u32) -> Backlog {
        Backlog { packets, bytes: u64::from(packets) * 1_000 }
    }

    /// Returns the signals among `arrivals` at a standing queue, once the average has settled.
    fn signals(red: &mut Red, backlog: Backlog, arrivals: u32, ecn: Ecn) -> [u32; 3] {
        let meta = Meta { ecn, ..Meta::new(1_000, 0) };
        for _ in 0..20_000 {
            red.average(Time::ZERO, backlog);
        }
        let mut counts = [0; 3];
        for _ in 0..arrivals {
            counts[red.on_enqueue(Time::ZERO, &meta, backlog) as usize] += 1;
        }
        counts
    }

    #[test]
    fn drops_are_spread_evenly_between_one_and_one_over_p_arrivals() {
        // The average is 10 of 5..15, so the base probability is 0.01. Distances are uniform in
        // 1..=1/p: one drop in (1/p + 1) / 2 = 50.5 arrivals, deviation (1/p) / sqrt(12).
        let [_, _, drops] = signals(&mut red("red"), packets(10), 1_010_000, Ecn::NotEct);
        let deviation = (20_000.0_f64).sqrt() * 28.9 / 50.5;
        assert!((f64::from(drops) - 20_000.0).abs() < 3.0 * deviation + 40.0, "{drops}");
    }

    #[test]
    fn no_drop_below_the_thresholds_certain_drop_above_and_gentle_between() {
        assert_eq!(signals(&mut red("red"), packets(4), 1_000, Ecn::NotEct), [1_000, 0, 0]);
        assert_eq!(signals(&mut red("red"), packets(31), 1_000, Ecn::NotEct), [0, 0, 1_000]);
        let hard = signals(&mut red("red:gentle=off"), packets(16), 1_000, Ecn::NotEct);
        assert_eq!(hard, [0, 0, 1_000]);
        let mut gentle = red("red");
        signals(&mut gentle, packets(22), 1, Ecn::NotEct);
        let base = gentle.base_probability_q32().unwrap() as f64 / ONE_Q32 as f64;
        assert!((base - (0.02 + 0.98 * 7.0 / 15.0)).abs() < 0.001, "{base}");
    }

    #[test]
    fn marks_as_the_kernels_own_test_asserts() {
        // min 30000, max 30001, probability 1: no mark at two thirds of the threshold, at least
        // 95 % at three halves; Not-ECT is dropped instead.
        let spec = "red:min=30000B,max=30001B,max-p=100%,gentle=off,ecn=on";
        let bytes = |bytes| Backlog { packets: 30, bytes };
        assert_eq!(signals(&mut red(spec), bytes(20_000), 1_000, Ecn::Ect0), [1_000, 0, 0]);
        let [_, signalled, dropped] = signals(&mut red(spec), bytes(45_000), 1_000, Ecn::Ect0);
        assert!(signalled >= 950 && dropped == 0, "{signalled} {dropped}");
        let hard =
            signals(&mut red(&alloc::format!("{spec},harddrop=on")), bytes(45_000), 9, Ecn::Ect0);
        assert_eq!(hard, [0, 0, 9]);
    }

    #[test]
    fn the_average_decays_while_idle_as_its_closed_form() {
        // At 80 Mbit/s a packet of 1000 B leaves in 100 us, so 50 ms of idleness are 500 packets.
        let mut red = red("red");
        red.average_q24 = 20 << 24;
        red.average(Time::from_millis(50), Backlog::default());
        let average = red.average_q24 as f64 / f64::from(1 << 24);
        let expected = 20.0 * 0.998_f64.powi(501);
        assert!((average - expected).abs() < 0.001, "{average} is not {expected}");
        assert_eq!(power_q32(ONE_Q32 - 1, u64::MAX), 0);
    }

    #[test]
    fn adaptive_defaults_follow_the_link_and_max_p_stays_in_its_bounds() {
        // At 10,000 packets/s, 5 ms are 50 packets, so min is 25 and max 75.
        let mut red = red("red:adaptive=on");
        assert_eq!((red.config.min, red.config.max), (25, 75));
        let weight = red.config.weight_q32 as f64 / ONE_Q32 as f64;
        assert!((weight - (1.0 - (-1e-4_f64).exp())).abs() < 1e-9, "{weight}");
        red.average_q24 = 70 << 24;
        red.advance(Time::from_secs(3_600));
        assert!((0.5..=0.51).contains(&(red.max_p_q32 as f64 / ONE_Q32 as f64)));
        red.average_q24 = 30 << 24;
        red.advance(Time::from_secs(7_200));
        assert!((0.009..=0.01).contains(&(red.max_p_q32 as f64 / ONE_Q32 as f64)));
        red.average_q24 = 50 << 24;
        let before = red.max_p_q32;
        red.advance(Time::from_secs(10_800));
        assert_eq!(red.max_p_q32, before, "the middle fifth is left alone");
    }

    #[test]
    fn thresholds_that_make_no_sense_are_refused() {
        for (spec, expected) in [
            ("red:min=5p,max=10kB", "the same unit as min"),
            ("red:min=15p,max=15p", "more than min"),
            ("red:min=0p,max=5p", "1p or 1B and more"),
        ] {
            let error = config(spec).unwrap_err().to_string();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }
}
