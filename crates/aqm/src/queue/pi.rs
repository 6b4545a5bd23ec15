//! The PI controller of Hollot, Misra, Towsley and Gong (IEEE INFOCOM 2001; the second half of
//! IEEE/ACM Transactions on Automatic Control 47(6), 2002), in profile `hollot`.
//!
//! # Principle
//! The queue has a target length. Every `interval` the probability of a mark or drop rises by `a`
//! times the queue's distance from the target now, minus `b` times that of the update before. The
//! integral part makes the queue stand at the target for any number of senders; RED's queue grows
//! with their number. PIE is the same controller of the delay instead of the length, with gains
//! that depend on the probability.
//!
//! # Parameters
//! `a` and `b` are the paper's, `target` its `q_ref`; `interval` is the inverse of its sampling
//! frequency of 160 Hz. The defaults are those of its section IV, which were computed for 3,750
//! packets per second, 60 senders at least, and round trips of at most 246 ms.
//!
//! # Time
//! Updates are replayed at their nominal instants, with the backlog at each instant. While the
//! backlog is constant, every update after the first has the same step, so that all are added at
//! once.
//!
//! # Validation
//! Tests compare probabilities with the published update rule, and check the paper's main claim,
//! a queue at its target for few senders and for many (`crates/sim/tests/shelf.rs`). See
//! `docs/queues/pi.md`.

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{ConfigError, Millionths, Packets, Profile, Values, from_values, params};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::queue::control::UpdateTimer;
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::rng::Rng;
use crate::time::{Span, Time};

from_values! {
    /// Parameters of [`Pi`]; the table of `pi` below explains them. `interval` is not zero.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PiConfig(values) {
        /// Gain in millionths of a millionth of probability per packet.
        pub a: u64 = values.get(A),
        /// Gain of the distance at the previous update, in the unit of `a`.
        pub b: u64 = values.get(B),
        /// The length that the queue is steered to, packets.
        pub target_packets: u32 = values.get(TARGET),
        /// Time between two updates of the probability.
        pub interval: Span = values.get(INTERVAL),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
    }
}

/// The PI controller of one queue.
#[derive(Clone, Debug)]
pub struct Pi {
    config: PiConfig,
    timer: UpdateTimer,
    /// Distance of the queue from the target at the last update, in packets.
    distance: i128,
    probability_q48: i128,
    rng: Rng,
}

impl Pi {
    /// Returns a controller of an empty queue that draws from `rng`.
    pub fn new(config: PiConfig, rng: Rng) -> Self {
        Self {
            timer: UpdateTimer::new(Time::ZERO + config.interval, config.interval),
            distance: -i128::from(config.target_packets),
            probability_q48: 0,
            config,
            rng,
        }
    }

    fn advance(&mut self, now: Time, backlog: Backlog) {
        while let Some(due) = self.timer.take_due(now) {
            self.update(backlog, 1);
            if let Some(last) = self.timer.skip_due(now) {
                let missed = last.since(due).as_nanos() / self.config.interval.as_nanos();
                self.update(backlog, missed);
            }
        }
    }

    /// Makes `times` updates with one backlog; more than one only if the last had it, too.
    fn update(&mut self, backlog: Backlog, times: u64) {
        let distance = i128::from(backlog.packets) - i128::from(self.config.target_packets);
        let (a, b) = (i128::from(self.config.a), i128::from(self.config.b));
        let step_q48 = ((a * distance - b * self.distance) << 48) / 1_000_000_000_000;
        let change = step_q48.saturating_mul(i128::from(times));
        self.probability_q48 = (self.probability_q48.saturating_add(change)).clamp(0, ONE_Q48);
        self.distance = distance;
    }
}

impl Aqm for Pi {
    fn on_enqueue(&mut self, now: Time, _meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now, backlog);
        let signals = i128::from(self.rng.next_u32()) < self.probability_q48 >> 16;
        Verdict::new(signals, self.config.ecn)
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        self.advance(now, backlog);
    }

    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        self.advance(now, store.backlog());
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("pi.probability", self.probability_q48 as f64 / ONE_Q48 as f64);
    }
}

const ONE_Q48: i128 = 1 << 48;

one_queue!(PiQueue, PiConfig, |queue, rng| Pi::new(queue.config, rng.child("pi")));

params! {
    define DEFINITION: "pi",
        "PI: a controller that holds the queue at a length, for any number of senders",
        source: "Hollot, Misra, Towsley and Gong 2001",
        profiles: &[Profile { name: "hollot", doc: "the paper's controller and gains" }];
    A: Millionths = "a", "18.22" in "0.000001".."1000000",
        "gain of the distance from the target, in millionths per packet";
    B: Millionths = "b", "18.16" in "0".."1000000",
        "gain of the distance before; less than a, so that the queue reaches the target";
    TARGET: Packets = "target", "200p" in "0p".."1000000p", "queue to hold";
    INTERVAL: Span = "interval", "6250us" in "100us".."10s", "time between updates";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    use LIMIT;
}

pub(crate) fn configure(values: &Values) -> Result<PiQueue, ConfigError> {
    let config = PiConfig::read(values)?;
    if config.b > config.a {
        return Err(values.refuse(B, "at most a, or the queue would drift from its target"));
    }
    PiQueue::new(config, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::registry::{QueueConfig, QueueSetup};
    use alloc::string::ToString;

    fn pi(spec: &str) -> Pi {
        match QueueSetup::parse(spec, &LinkFacts::UNKNOWN).expect(spec).config {
            QueueConfig::Pi(queue) => Pi::new(queue.config, Rng::new(8)),
            other => panic!("{other:?}"),
        }
    }

    fn probability(pi: &Pi) -> f64 {
        pi.probability_q48 as f64 / ONE_Q48 as f64
    }

    fn stored(packets: u32) -> Backlog {
        Backlog { packets, bytes: u64::from(packets) * 500 }
    }

    /// The update rule of the paper, in floating point, over random queues.
    #[test]
    fn probabilities_are_those_of_the_published_update_rule() {
        for (spec, a, b, target) in
            [("pi", 1.822e-5, 1.816e-5, 200.0), ("pi:a=900,b=700,target=5p", 9e-4, 7e-4, 5.0)]
        {
            let (mut pi, mut rng) = (pi(spec), Rng::new(5));
            let (mut expected, mut before) = (0.0_f64, -target);
            for update in 1..20_000 {
                let queue = rng.below(if update % 2_000 < 1_200 { 800 } else { 4 });
                pi.on_refused(Time::from_micros(6_250 * update), &Meta::new(500, 0), stored(queue));
                let distance = f64::from(queue) - target;
                expected = (expected + a * distance - b * before).clamp(0.0, 1.0);
                before = distance;
                assert!((probability(&pi) - expected).abs() < 1e-6, "{update}: {expected}");
            }
        }
    }

    #[test]
    fn updates_with_an_unchanged_queue_are_added_in_one_step() {
        for packets in [0, 210, 4_000] {
            let (mut stepped, mut skipped) = (pi("pi"), pi("pi"));
            for pi in [&mut stepped, &mut skipped] {
                pi.probability_q48 = ONE_Q48 / 5;
            }
            (1..=9_000).for_each(|ms| stepped.advance(Time::from_millis(ms), stored(packets)));
            skipped.advance(Time::from_secs(9), stored(packets));
            assert_eq!(stepped.probability_q48, skipped.probability_q48, "{packets}");
        }
    }

    /// Signals are the draws of 32 bits that are below the probability.
    #[test]
    fn a_draw_equal_to_the_probability_does_not_signal() {
        for (spec, signal) in [("pi", Verdict::Drop), ("pi:ecn=on", Verdict::Signal)] {
            for (above, verdict) in [(0, Verdict::Pass), (1, signal)] {
                let mut pi = pi(spec);
                let draw = u64::from(pi.rng.clone().next_u32()) + above;
                pi.probability_q48 = i128::from(draw) << 16;
                assert_eq!(pi.on_enqueue(Time::ZERO, &Meta::new(500, 0), stored(9)), verdict);
            }
        }
    }

    #[test]
    fn extremes_end_at_a_probability_of_one_and_a_rising_b_is_refused() {
        let mut pi = pi("pi:a=1000000,b=0,target=0p,interval=100us");
        pi.advance(Time::from_secs(1_000_000_000), stored(u32::MAX));
        assert_eq!(pi.probability_q48, ONE_Q48);
        let error = QueueSetup::parse("pi:b=19", &LinkFacts::UNKNOWN).unwrap_err().to_string();
        assert!(error.contains("at most a"), "{error}");
    }
}
