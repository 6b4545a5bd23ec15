//! SRED, stabilised RED (Ott, Lakshman and Wong, IEEE INFOCOM 1999), in profile `ott`.
//!
//! # Principle
//! The number of active flows is estimated without a state for each: a list of `zombies` has flows
//! of packets that came before. An arrival is compared with one of them, chosen at random. Equal
//! flows are a hit, and the smoothed frequency of hits is about the inverse of the number of flows.
//! After a miss the zombie is replaced by the arrival with probability `replace`. The probability
//! of a drop has three levels, by the length of the queue: 0 below a sixth of the buffer, a
//! quarter of `max-p` below a third, else `max-p`. It is multiplied by `(flows / 256)^2` up to 256
//! flows, and, with `hits` on, by one plus the flows for an arrival that hit: a flow with a large
//! share of the link hits more often, and loses more.
//!
//! # Parameters
//! `zombies`, `replace` and `max-p` are the paper's `M`, `p` and `p_max`, with its values. `hits` off
//! is its Simple SRED. The estimate is smoothed by `replace` over `zombies`, its `alpha`.
//!
//! # Where the paper leaves room
//! * While the list is filled, arrivals are added and not compared, and the estimate is that of no hit.
//! * The zombies' counts and time stamps, which the paper proposes for finding misbehaving flows,
//!   do not affect drops, and are not stored.
//! * Before the first hit there are as many flows as the formula has effect for, 256.
//!
//! # Validation
//! Tests compare the estimate with the number of flows and the probabilities with the paper's
//! levels, and check its main claim, that the queue depends little on the number of senders
//! (`crates/sim/tests/shelf.rs`). See `docs/queues/sred.md`.

use alloc::vec::Vec;

use crate::aqm::{Aqm, Verdict};
use crate::config::{Count, Probability, Profile, from_values, params};
use crate::packet::Meta;
use crate::qdisc::Backlog;
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::queue::store::Limit;
use crate::rng::Rng;
use crate::time::Time;

from_values! {
    /// Parameters of [`Sred`]; the table of `sred` below explains them. `zombies` is not zero.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SredConfig(values) {
        /// Number of flows in the list.
        pub zombies: u32 = values.get(ZOMBIES) as u32,
        /// Probability that a miss replaces the flow in the list, as a fraction of 2^32.
        pub replace_q32: u64 = values.get(REPLACE),
        /// Probability from a third of the buffer on, as a fraction of 2^32.
        pub max_p_q32: u64 = values.get(MAX_P),
        /// Whether a flow that hits has a larger probability; if not, this is Simple SRED.
        pub hits: bool = values.get(HITS),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
    }
}

/// The SRED algorithm of one queue.
#[derive(Clone, Debug)]
pub struct Sred {
    config: SredConfig,
    /// The buffer of which a third and a sixth are the thresholds.
    limit: Limit,
    zombies: Vec<u32>,
    /// Smoothed frequency of hits.
    frequency_q48: u64,
    rng: Rng,
}

impl Sred {
    /// Returns a controller of an empty list that draws from `rng`, for a buffer of `limit`.
    pub fn new(config: SredConfig, limit: Limit, rng: Rng) -> Self {
        let zombies = Vec::with_capacity(config.zombies as usize);
        Self { config, limit, zombies, frequency_q48: 0, rng }
    }

    /// Compares the flow of an arrival with a zombie. Returns whether they are equal.
    fn compare(&mut self, flow: u32) -> bool {
        if self.zombies.len() < self.config.zombies as usize {
            self.zombies.push(flow);
            return false;
        }
        let zombie = &mut self.zombies[self.rng.below(self.config.zombies) as usize];
        let is_hit = *zombie == flow;
        if !is_hit && u64::from(self.rng.next_u32()) < self.config.replace_q32 {
            *zombie = flow;
        }
        let news = (i128::from(is_hit) << 48) - i128::from(self.frequency_q48);
        let step = news * i128::from(self.config.replace_q32);
        let step = step / (i128::from(self.config.zombies) << 32);
        self.frequency_q48 = self.frequency_q48.saturating_add_signed(step as i64);
        is_hit
    }

    /// Returns the probability of the queue's length alone.
    fn level_q32(&self, backlog: Backlog) -> u64 {
        let reaches = |part: u32| {
            u64::from(backlog.packets) * u64::from(part) >= u64::from(self.limit.packets)
                || backlog.bytes.saturating_mul(part.into()) >= self.limit.bytes
        };
        match (reaches(3), reaches(6)) {
            (true, _) => self.config.max_p_q32,
            (false, true) => self.config.max_p_q32 / 4,
            (false, false) => 0,
        }
    }

    fn probability_q32(&self, backlog: Backlog, is_hit: bool) -> u64 {
        let frequency_q48 = u128::from(self.frequency_q48.max(1));
        // The number of flows over 256, at most 1.
        let flows_q32 = ((1 << 72) / frequency_q48).min(1 << 32);
        let p_q32 = (u128::from(self.level_q32(backlog)) * flows_q32 * flows_q32) >> 64;
        let more_q32 = if is_hit { (p_q32 << 48) / frequency_q48 } else { 0 };
        (p_q32 + more_q32).min(1 << 32) as u64
    }
}

impl Aqm for Sred {
    fn on_enqueue(&mut self, _now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        let is_hit = self.compare(meta.flow) && self.config.hits;
        let signals = u64::from(self.rng.next_u32()) < self.probability_q32(backlog, is_hit);
        Verdict::new(signals, self.config.ecn)
    }

    fn on_refused(&mut self, _now: Time, meta: &Meta, _backlog: Backlog) {
        self.compare(meta.flow);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("sred.hit_frequency", self.frequency_q48 as f64 / (1_u64 << 48) as f64);
    }
}

one_queue!(SredQueue, SredConfig, |queue, rng| Sred::new(
    queue.config,
    queue.limit,
    rng.child("sred")
));

params! {
    define DEFINITION: "sred",
        "SRED: drops by the queue's length and an estimate of the number of flows",
        source: "Ott, Lakshman and Wong 1999",
        profiles: &[Profile { name: "ott", doc: "the paper's full SRED and its values" }];
    ZOMBIES: Count = "zombies", "1000" in "1".."65536", "flows in the list";
    REPLACE: Probability = "replace", "25%", "how often a miss replaces the zombie";
    MAX_P: Probability = "max-p", "15%", "probability from a third of the buffer on";
    HITS: bool = "hits", "on", "whether a flow that hits has a larger probability; off: Simple SRED";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    use LIMIT;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::registry::{QueueConfig, QueueSetup};

    const ONE_Q48: u64 = 1 << 48;

    fn sred(spec: &str) -> Sred {
        match QueueSetup::parse(spec, &LinkFacts::UNKNOWN).expect(spec).config {
            QueueConfig::Sred(queue) => Sred::new(queue.config, queue.limit, Rng::new(8)),
            other => panic!("{other:?}"),
        }
    }

    fn stored(packets: u32) -> Backlog {
        Backlog { packets, bytes: u64::from(packets) * 1_000 }
    }

    /// The mean frequency of hits of `flows` equal flows is their number's inverse.
    #[test]
    fn the_frequency_of_hits_is_the_inverse_of_the_number_of_flows() {
        for flows in [1, 4, 40] {
            let (mut sred, mut rng) = (sred("sred:zombies=400"), Rng::new(3));
            let mut sum = 0.0;
            for packet in 0..200_000 {
                sred.compare(rng.below(flows));
                sum += if packet < 100_000 { 0.0 } else { sred.frequency_q48 as f64 };
            }
            let product = sum / 1e5 / ONE_Q48 as f64 * f64::from(flows);
            assert!((product - 1.0).abs() < 0.1, "{flows} flows: {product}");
        }
    }

    /// The paper's three levels, and its factors for the number of flows and for a hit.
    #[test]
    fn probabilities_are_those_of_the_paper() {
        for (packets, flows, is_hit, expected) in [
            (0, 1, false, 0.0),
            (99, 300, true, 0.0),
            (100, 300, false, 0.15 / 4.0),
            (199, 256, false, 0.15 / 4.0),
            (200, 300, false, 0.15),
            (200, 64, false, 0.15 / 16.0),
            (200, 64, true, 0.15 / 16.0 * 65.0),
            (200, 300, true, 1.0),
        ] {
            let mut sred = sred("sred:limit=600p");
            sred.frequency_q48 = ONE_Q48 / flows;
            let shown = sred.probability_q32(stored(packets), is_hit) as f64 / (1_u64 << 32) as f64;
            assert!((shown - expected).abs() < 1e-4, "{packets} packets, {flows} flows: {shown}");
        }
        let mut sred = sred("sred:limit=600kB,hits=off");
        assert_eq!((sred.level_q32(stored(99)), sred.frequency_q48), (0, 0));
        assert_eq!(sred.level_q32(stored(200)), sred.config.max_p_q32);
        sred.zombies = alloc::vec![7; 1_000];
        let with_and_without_a_hit = [7, 8].map(|flow| {
            sred.frequency_q48 = ONE_Q48;
            let draws =
                (0..1_000).map(|_| sred.on_enqueue(Time::ZERO, &Meta::new(100, flow), stored(0)));
            draws.filter(|&verdict| verdict == Verdict::Pass).count()
        });
        assert_eq!(with_and_without_a_hit, [1_000, 1_000], "below a sixth nothing is dropped");
    }

    #[test]
    fn signals_come_at_the_probability_and_refused_arrivals_are_compared() {
        for (spec, verdict) in [("sred", Verdict::Drop), ("sred:ecn=on", Verdict::Signal)] {
            let mut sred = sred(spec);
            let verdicts = (0..10_000_u32)
                .map(|flow| sred.on_enqueue(Time::ZERO, &Meta::new(1_000, flow), stored(999)));
            let signals = verdicts.filter(|&one| one == verdict).count() as f64;
            // Three standard deviations of 10,000 draws at 15 %; no flow comes twice.
            assert!((signals - 1_500.0).abs() < 107.0, "{spec}: {signals}");
            for flow in 0..3 {
                sred.zombies.fill(flow);
                sred.on_refused(Time::ZERO, &Meta::new(1_000, flow), stored(999));
            }
            assert!(sred.frequency_q48 > 0, "{spec}");
        }
    }
}
