//! REM, Random Exponential Marking (Athuraliya, Low, Li and Yin, IEEE Network 15(3), 2001), in
//! profile `athuraliya`.
//!
//! # Principle
//! A link has a price. Every `interval` the price rises by `gamma` times the excess of arrivals
//! over the link's capacity, plus `alpha` times the backlog above `target`; it falls if both are
//! below. An arrival is marked or dropped with probability `1 - phi^-price`. The price is constant
//! only when the rate matches the link *and* the queue its target, for any number of senders;
//! unlike RED's, the queue is independent of the load. The exponents of several links add up, so
//! the end-to-end probability shows a sender the sum of the prices on its path.
//!
//! # Parameters
//! The parameters are the paper's; `target` is its `b*`.
//!
//! The defaults are those of the authors' own code in ns-2.
//!
//! # Divergences from that code
//! * Rate and queue are measured in bytes over `mean-packet`, so that small packets count as little
//!   as they cost; the probability is the same for all sizes.
//! * Marks are set on arrival, as drops happen on arrival, and not on departure.
//! * The price has an upper bound, at which the probability is 1 - 2^-32.
//!
//! # Time
//! Updates are replayed at their nominal instants, with the backlog at each instant. Without
//! arrivals each update has the same step, so that all due updates are added at once.
//!
//! # Validation
//! Tests compare prices with the closed form, and check the paper's main claim: rate and queue
//! match their targets for 4 and for 60 senders alike (`crates/sim/tests/shelf.rs`). See
//! `docs/queues/rem.md`.

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{Bytes, LinkFacts, Millionths, Packets, Profile, from_values, params};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::queue::avq::{RATE, rate_of};
use crate::queue::control::{UpdateTimer, exp_of_minus_q32, ln_q48};
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};

from_values! {
    /// Parameters of [`Rem`]; the table of `rem` below explains them. `interval` and
    /// `mean_packet_bytes` are not zero; `phi` is above one and at most two, `weight` at most one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemConfig(values, link: &LinkFacts) {
        /// Gain of the price, in millionths.
        pub gamma_millionths: u64 = values.get(GAMMA),
        /// Weight of the queue beside the rate, in millionths.
        pub alpha_millionths: u64 = values.get(ALPHA),
        /// Base of the probability `1 - phi^-price`, in millionths.
        pub phi_millionths: u64 = values.get(PHI),
        /// The length that the queue is steered to, bytes.
        pub target_bytes: u64 = u64::from(values.get(TARGET)) * values.get(MEAN_PACKET),
        /// Time between two updates of the price.
        pub interval: Span = values.get(INTERVAL),
        /// Weight of the newest interval in the average of the arriving rate, in millionths.
        pub weight_millionths: u64 = values.get(WEIGHT),
        /// Size of an average packet, bytes.
        pub mean_packet_bytes: u64 = values.get(MEAN_PACKET),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
        /// The rate of the link.
        pub rate: Rate = rate_of(values, link)?,
    }
}

/// The REM algorithm of one queue.
#[derive(Clone, Debug)]
pub struct Rem {
    config: RemConfig,
    /// Bytes that the link can send in an interval, in 65536ths.
    capacity_q16: i128,
    ln_phi_q48: u64,
    price_cap_q32: i128,
    timer: UpdateTimer,
    /// The price in packets, as a fraction of 2^32.
    price_q32: i128,
    /// Bytes since the last update.
    arrived_bytes: u64,
    /// Smoothed bytes per interval, in 65536ths.
    input_q16: i128,
    probability_q32: u64,
    rng: Rng,
}

impl Rem {
    /// Returns a controller with a price of zero that draws from `rng`.
    pub fn new(config: RemConfig, rng: Rng) -> Self {
        let bits = i128::from(config.rate.bits_per_second());
        let ln_phi_q48 = ln_q48(config.phi_millionths);
        Self {
            capacity_q16: ((bits * i128::from(config.interval.as_nanos())) << 16) / 8_000_000_000,
            ln_phi_q48,
            price_cap_q32: (PRICE_CAP_EXPONENT << 80) / i128::from(ln_phi_q48.max(1)),
            timer: UpdateTimer::new(Time::ZERO + config.interval, config.interval),
            price_q32: 0,
            arrived_bytes: 0,
            input_q16: 0,
            probability_q32: 0,
            config,
            rng,
        }
    }

    fn advance(&mut self, now: Time, backlog: Backlog) {
        let mut changed = false;
        while let Some(due) = self.timer.take_due(now) {
            changed = true;
            let steady = self.update(backlog);
            if let Some(step_q32) = steady
                && let Some(last) = self.timer.skip_due(now)
            {
                let missed = last.since(due).as_nanos() / self.config.interval.as_nanos();
                self.add_to_price(step_q32.saturating_mul(i128::from(missed)));
            }
        }
        if changed {
            let exponent_q32 = (self.price_q32 * i128::from(self.ln_phi_q48)) >> 48;
            self.probability_q32 = ONE_Q32 - exp_of_minus_q32(exponent_q32 as u64);
        }
    }

    /// Updates the price. Returns the change if all further updates until the next arrival make the
    /// same change.
    #[cold]
    fn update(&mut self, backlog: Backlog) -> Option<i128> {
        let config = &self.config;
        let arrived_q16 = i128::from(self.arrived_bytes.min(BYTES_CAP)) << 16;
        let news_q16 = (arrived_q16 - self.input_q16) * i128::from(config.weight_millionths);
        let is_steady = self.arrived_bytes == 0 && news_q16 / 1_000_000 == 0;
        self.input_q16 += news_q16 / 1_000_000;
        self.arrived_bytes = 0;
        let queue = i128::from(backlog.bytes.min(BYTES_CAP)) - i128::from(config.target_bytes);
        let queue_q16 = (queue << 16) * i128::from(config.alpha_millionths) / 1_000_000;
        let excess_q16 = self.input_q16 + queue_q16 - self.capacity_q16;
        let packets = 1_000_000 * i128::from(config.mean_packet_bytes);
        let step_q32 = ((excess_q16 * i128::from(config.gamma_millionths)) << 16) / packets;
        self.add_to_price(step_q32);
        is_steady.then_some(step_q32)
    }

    fn add_to_price(&mut self, step_q32: i128) {
        self.price_q32 = self.price_q32.saturating_add(step_q32).clamp(0, self.price_cap_q32);
    }
}

impl Aqm for Rem {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now, backlog);
        self.arrived_bytes += u64::from(meta.len);
        let signals = u64::from(self.rng.next_u32()) < self.probability_q32;
        Verdict::new(signals, self.config.ecn)
    }

    fn on_refused(&mut self, now: Time, meta: &Meta, backlog: Backlog) {
        self.advance(now, backlog);
        self.arrived_bytes += u64::from(meta.len);
    }

    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        self.advance(now, store.backlog());
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("rem.price_packets", self.price_q32 as f64 / ONE_Q32 as f64);
        visit("rem.probability", self.probability_q32 as f64 / ONE_Q32 as f64);
    }
}

const ONE_Q32: u64 = 1 << 32;
/// The price is capped at a probability of `1 - exp(-23)`, which is less than 2^-32 below 1.
const PRICE_CAP_EXPONENT: i128 = 23;
/// More bytes count as this many, which keeps the arithmetic in range.
const BYTES_CAP: u64 = 1 << 40;

one_queue!(RemQueue, RemConfig, |queue, rng| Rem::new(queue.config, rng.child("rem")));

params! {
    define DEFINITION: "rem",
        "REM: a price that stands still where rate and queue match their targets",
        source: "Athuraliya, Low, Li and Yin 2001",
        profiles: &[Profile { name: "athuraliya", doc: "the paper's REM, defaults of its ns-2 code" }];
    GAMMA: Millionths = "gamma", "0.001" in "0.000001".."1000", "gain of the price";
    ALPHA: Millionths = "alpha", "0.1" in "0".."1000", "weight of the queue beside the rate";
    PHI: Millionths = "phi", "1.001" in "1.000001".."2", "base of the probability 1 - phi^-price";
    TARGET: Packets = "target", "20p" in "0p".."1000000p", "queue to hold, in mean packets";
    INTERVAL: Span = "interval", "2ms" in "100us".."10s", "time between updates of the price";
    WEIGHT: Millionths = "weight", "1" in "0.001".."1",
        "weight of the newest interval in the input rate; 1: no memory";
    MEAN_PACKET: Bytes = "mean-packet", "1000B" in "1B".."64KiB", "what counts as one packet";
    use RATE;
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    use LIMIT;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::registry::{QueueConfig, QueueSetup};
    use alloc::string::{String, ToString};

    fn config(spec: &str) -> Result<RemConfig, String> {
        let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(8));
        match QueueSetup::parse(spec, &facts).map_err(|error| error.to_string())?.config {
            QueueConfig::Rem(queue) => Ok(queue.config),
            other => panic!("{other:?}"),
        }
    }

    fn rem(spec: &str) -> Rem {
        Rem::new(config(spec).expect(spec), Rng::new(8))
    }

    fn price(rem: &Rem) -> f64 {
        rem.price_q32 as f64 / ONE_Q32 as f64
    }

    fn stored(packets: u32) -> Backlog {
        Backlog { packets, bytes: u64::from(packets) * 1_000 }
    }

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// 8 Mbit/s are 2 packets of 1000 bytes per update: with those coming, the price follows from
    /// the queue alone, 0.001 * 0.1 * (1020 - 20) per update.
    #[test]
    fn at_the_link_rate_the_price_rises_with_the_queue() {
        let mut rem = rem("rem");
        for update in 0..=100 {
            rem.advance(ms(2 * update), stored(1_020));
            for _ in 0..2 {
                rem.on_enqueue(ms(2 * update), &Meta::new(1_000, 0), stored(1_020));
            }
        }
        assert!((price(&rem) - 10.0).abs() < 1e-5, "{}", price(&rem));
        let probability = rem.probability_q32 as f64 / ONE_Q32 as f64;
        let expected = 1.0 - 1.001_f64.powf(-price(&rem));
        assert!((probability - expected).abs() < 1e-8, "{probability} is not {expected}");
    }

    /// Arrivals beyond the rate raise the price at the target: 0.001 per packet and update. Dropped
    /// packets count as arrivals.
    #[test]
    fn at_the_target_queue_the_price_rises_with_the_rate() {
        let mut rem = rem("rem");
        for update in 0..1_000 {
            rem.on_enqueue(ms(2 * update), &Meta::new(2_500, 0), stored(20));
            rem.on_refused(ms(2 * update), &Meta::new(2_500, 0), stored(20));
        }
        rem.advance(ms(2_000), stored(20));
        assert!((price(&rem) - 3.0).abs() < 1e-5, "{}", price(&rem));
        // No packets arrive and none are stored: the price falls by 0.001 * (2 + 0.1 * 20) per
        // update.
        rem.advance(ms(3_000), Backlog::default());
        assert!((price(&rem) - 1.0).abs() < 1e-5, "{}", price(&rem));
        rem.advance(ms(5_000), Backlog::default());
        assert_eq!((rem.price_q32, rem.probability_q32), (0, 0));
    }

    /// The update rule of the authors' ns-2 code, in floating point, over random input.
    #[test]
    fn prices_are_those_of_the_published_update_rule() {
        for (spec, gamma, weight, target) in
            [("rem", 0.001, 1.0, 20.0), ("rem:gamma=0.01,weight=0.25,target=5p", 0.01, 0.25, 5.0)]
        {
            let (mut rem, mut rng) = (rem(spec), Rng::new(5));
            let (mut expected, mut input) = (0.0_f64, 0.0);
            for update in 1..20_000 {
                let queue = rng.below(if update % 2_000 < 1_000 { 400 } else { 4 });
                let lens = [rng.below(3_000), rng.below(1_500)];
                for len in lens {
                    rem.on_enqueue(ms(2 * update - 1), &Meta::new(len, 0), stored(queue));
                }
                rem.advance(ms(2 * update), stored(queue));
                let came = f64::from(lens[0] + lens[1]) / 1_000.0;
                input += weight * (came - input);
                let excess = input + 0.1 * (f64::from(queue) - target) - 2.0;
                expected = (expected + gamma * excess).max(0.0);
                assert!((price(&rem) - expected).abs() < 1e-3, "{update}: {expected}");
            }
        }
    }

    #[test]
    fn updates_with_equal_steps_are_added_in_one_step() {
        for packets in [0, 400] {
            for spec in ["rem", "rem:weight=0.3", "rem:interval=3ms"] {
                let (mut stepped, mut skipped) = (rem(spec), rem(spec));
                for rem in [&mut stepped, &mut skipped] {
                    rem.price_q32 = 50 << 32;
                    rem.on_enqueue(ms(1), &Meta::new(60_000, 0), stored(packets));
                }
                (1..=9_000).for_each(|millis| stepped.advance(ms(millis), stored(packets)));
                skipped.advance(ms(9_000), stored(packets));
                assert_eq!(stepped.price_q32, skipped.price_q32, "{spec}");
                assert_eq!(stepped.probability_q32, skipped.probability_q32, "{spec}");
                assert!(packets == 0 || skipped.price_q32 > 100 << 32, "{spec}");
            }
        }
    }

    /// A price that is too small to fall further does not prevent skipping.
    #[test]
    fn updates_of_an_idle_year_after_a_packet_are_skipped() {
        let mut rem = rem("rem:weight=0.5,interval=100us");
        rem.on_enqueue(ms(1), &Meta::new(1_000, 0), stored(0));
        rem.advance(Time::from_secs(3_600 * 24 * 365), stored(0));
        assert_eq!((rem.price_q32, rem.probability_q32), (0, 0));
    }

    /// Signals are the draws of 32 bits that are below the probability.
    #[test]
    fn a_draw_equal_to_the_probability_does_not_signal() {
        let mut rem = rem("rem");
        for (above, verdict) in [(0, Verdict::Pass), (1, Verdict::Drop)] {
            rem.probability_q32 = u64::from(rem.rng.clone().next_u32()) + above;
            assert_eq!(rem.on_enqueue(Time::ZERO, &Meta::new(1_000, 0), stored(20)), verdict);
        }
    }

    #[test]
    fn extremes_end_at_a_probability_of_one_and_do_not_overflow() {
        let spec =
            "rem:gamma=1000,alpha=1000,phi=1.000001,mean-packet=1B,interval=100us,rate=1kbit";
        let mut rem = rem(spec);
        let full = Backlog { packets: u32::MAX, bytes: u64::MAX };
        for second in 0..5 {
            rem.on_refused(Time::from_secs(second), &Meta::new(u32::MAX, 0), full);
        }
        rem.advance(Time::from_secs(100_000_000), full);
        assert!(rem.probability_q32 >= ONE_Q32 - 1, "{}", rem.probability_q32);
        rem.advance(Time::from_secs(200_000_000), Backlog::default());
        let verdict = rem.on_enqueue(Time::from_secs(200_000_001), &Meta::new(1, 0), full);
        assert_eq!(verdict, Verdict::Drop);
    }

    #[test]
    fn arrivals_are_dropped_or_marked_with_ecn_at_the_probability() {
        for (spec, verdict) in [("rem", Verdict::Drop), ("rem:ecn=on", Verdict::Signal)] {
            let mut rem = rem(spec);
            rem.probability_q32 = ONE_Q32 / 5;
            let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_000, 0) };
            let verdicts = (0..100_000).map(|_| rem.on_enqueue(Time::ZERO, &meta, stored(20)));
            let signals = verdicts.filter(|&one| one == verdict).count() as f64;
            // Three standard deviations of 100,000 draws at 20 %.
            assert!((signals - 20_000.0).abs() < 380.0, "{spec}: {signals}");
        }
    }

    #[test]
    fn a_rate_must_be_known() {
        let error = QueueSetup::parse("rem", &LinkFacts::UNKNOWN).unwrap_err().to_string();
        assert!(error.contains("`rem` needs `rate=`"), "{error}");
        assert_eq!(config("rem:rate=3mbit").unwrap().rate, Rate::from_megabits_per_second(3));
    }
}
