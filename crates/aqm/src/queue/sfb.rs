//! SFB, Stochastic Fair BLUE (Feng, Kandlur, Saha and Shin, INFOCOM 2001), in profile `linux`:
//! `sch_sfb.c` of Linux 6.12 over its default queue.
//!
//! # Principle
//! A Bloom filter of 8 levels of 16 bins controls one queue. A flow's hash selects one bin per
//! level. Each bin counts its packets in the queue and has a probability. An arrival at an empty
//! bin lowers the bin's probability by `decrement`; an arrival at a bin with `target` packets or
//! more raises it by `increment` (BLUE per bin). The packet is marked or dropped with the lowest
//! probability among its bins, because a bin that is shared with a greedy flow does not describe
//! the packet's own flow. If all its bins have `max` packets, it is dropped. If all their
//! probabilities are one, the flow does not react; all such flows together send `penalty-rate`
//! packets per second. Every `rehash` the hash changes, so that no two flows share all bins for
//! ever.
//!
//! # Parameters
//! The parameters are those of `tc-sfb(8)`; the kernel's `limit` is the queue length of the device.
//!
//! # Quirks of the kernel that are kept
//! * Probabilities change only with arrivals: a flow that returns after a pause has its old
//!   probability.
//! * Above one half, ECN-capable packets are dropped, too, with twice the excess over one half as
//!   the probability.
//! * Only flows that do not react train the next filter, which starts with the content of its
//!   earlier use.
//! * The packet with whose arrival a hash expires is still judged by the old filter, with a new
//!   key.
//! * The bucket of the penalty box is refilled only when it is empty, with the tokens of ten
//!   seconds at most.
//!
//! # Divergences from the kernel
//! * Its clock is a jiffy of 1 ms (HZ=1000).
//! * The hash is SplitMix64 of a key and `meta.flow`, not SipHash of the addresses. Keys and draws
//!   have separate streams, so that another hash does not change the draws.
//! * `limit` is at most 65535, so that no count of a bin can saturate.
//! * Inner queues and classifiers are not supported.
//!
//! # Validation
//! `tests/vectors.rs`: every packet has the same fate as in the kernel's own code in user space.
//! See `docs/queues/sfb.md`.

use alloc::collections::VecDeque;

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{
    ConfigError, Count, Packets, Probability, Profile, Values, from_values, params,
};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::queue::fifo::{OneQueue, one_queue};
use crate::queue::store::Limit;
use crate::rng::{Rng, mix};
use crate::time::{Span, Time};

from_values! {
    /// Parameters of [`Sfb`]; the table of `sfb` below explains them. With a `rehash` of 0 the hash
    /// never changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SfbConfig(values) {
        /// Maximum number of stored packets of one flow.
        pub max_packets: u32 = values.get(MAX),
        /// Stored packets of a bin from which on its probability rises.
        pub target_packets: u32 = values.get(TARGET),
        /// The rise of a probability, in 65535ths.
        pub increment: u16 = parts_of_65535(values.get(INCREMENT)),
        /// The fall of a probability, in 65535ths.
        pub decrement: u16 = parts_of_65535(values.get(DECREMENT)),
        /// Packets per second of all unresponsive flows together.
        pub penalty_rate: u64 = values.get(PENALTY_RATE),
        /// Packets that those flows may send at once.
        pub penalty_burst: u64 = values.get(PENALTY_BURST).into(),
        /// Time between changes of the hash, ms.
        pub rehash_ms: u64 = values.get(REHASH).as_millis(),
        /// Time for which the next hash learns before it applies, ms.
        pub warmup_ms: u64 = values.get(WARMUP).as_millis(),
    }
}

/// The Stochastic Fair Blue algorithm of one queue.
#[derive(Clone, Debug)]
pub struct Sfb {
    config: SfbConfig,
    filters: [Filter; 2],
    /// The index of the filter whose probabilities apply.
    active: usize,
    /// Whether arrivals already update the other filter.
    warming: bool,
    rehashed_ms: u64,
    tokens: u64,
    tokens_ms: u64,
    /// Per stored packet, its hash in each filter; 0 if the filter does not count it.
    hashes: VecDeque<[u32; 2]>,
    keys: Rng,
    rng: Rng,
}

impl Sfb {
    /// Returns empty filters that draw from `rng`.
    pub fn new(config: SfbConfig, rng: &Rng) -> Self {
        let mut keys = rng.child("hash");
        Self {
            config,
            filters: [0; 2].map(|_| Filter::new(keys.next_u64())),
            active: 0,
            warming: false,
            rehashed_ms: 0,
            tokens: config.penalty_burst,
            tokens_ms: 0,
            hashes: VecDeque::new(),
            keys,
            rng: rng.child("mark"),
        }
    }

    /// Switches to the other filter when the switch is due, or starts to fill the other filter.
    fn advance(&mut self, now_ms: u64) {
        if self.config.rehash_ms == 0 {
            return;
        }
        let due_ms = self.rehashed_ms + self.config.rehash_ms;
        if now_ms > due_ms {
            self.filters[self.active].key = self.keys.next_u64();
            self.active ^= 1;
            self.warming = false;
            self.rehashed_ms = now_ms;
        } else if now_ms > due_ms.saturating_sub(self.config.warmup_ms) {
            self.warming = true;
        }
    }

    /// Whether the penalty box has no token for another packet.
    fn is_punished(&mut self, now_ms: u64) -> bool {
        let SfbConfig { penalty_rate, penalty_burst, .. } = self.config;
        if penalty_rate == 0 || penalty_burst == 0 {
            return true;
        }
        if self.tokens == 0 {
            let age_ms = now_ms.saturating_sub(self.tokens_ms).min(PENALTY_MEMORY_MS);
            self.tokens = (age_ms * penalty_rate / 1_000).min(penalty_burst);
            self.tokens_ms = now_ms;
            if self.tokens == 0 {
                return true;
            }
        }
        self.tokens -= 1;
        false
    }

    /// Draws the verdict on a packet by the lowest probability of its flow.
    fn draw(&mut self, meta: &Meta, probability: u16) -> Verdict {
        let drawn = (self.rng.next_u32() >> 16) as u16;
        if drawn >= probability {
            return Verdict::Pass;
        }
        let excess = u32::from(probability.saturating_sub(CERTAIN / 2)) * 2;
        if u32::from(drawn) < excess || !meta.ecn.is_capable() {
            return Verdict::Drop;
        }
        Verdict::Signal
    }

    /// Returns the verdict, and the hashes that count the packet if it is stored.
    fn judge(&mut self, now_ms: u64, meta: &Meta) -> (Verdict, [u32; 2]) {
        // The kernel, too, reads this before it switches filters.
        let active = self.active;
        self.advance(now_ms);
        let mut hashes = [0; 2];
        hashes[active] = self.filters[active].hash(meta.flow);
        let flow = self.filters[active].visit(hashes[active], &self.config);
        if u32::from(flow.packets) >= self.config.max_packets {
            return (Verdict::Drop, hashes);
        }
        if flow.probability < CERTAIN {
            return (self.draw(meta, flow.probability), hashes);
        }
        if self.warming {
            let other = active ^ 1;
            hashes[other] = self.filters[other].hash(meta.flow);
            self.filters[other].visit(hashes[other], &self.config);
        }
        let verdict = if self.is_punished(now_ms) { Verdict::Drop } else { Verdict::Pass };
        (verdict, hashes)
    }
}

impl Aqm for Sfb {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, _backlog: Backlog) -> Verdict {
        let (verdict, hashes) = self.judge(now.as_millis(), meta);
        if verdict != Verdict::Drop {
            self.hashes.push_back(hashes);
            for (filter, hash) in self.filters.iter_mut().zip(hashes) {
                filter.count(hash, |packets| packets.saturating_add(1));
            }
        }
        verdict
    }

    fn dequeue<P>(&mut self, _now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let packet = store.pop()?;
        for (filter, hash) in self.filters.iter_mut().zip(self.hashes.pop_front()?) {
            filter.count(hash, |packets| packets.saturating_sub(1));
        }
        Some(packet)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let bins = || self.filters[self.active].bins.iter().flatten();
        let probability = bins().map(|bin| bin.probability).max().unwrap_or_default();
        let packets = bins().map(|bin| bin.packets).max().unwrap_or_default();
        visit("sfb.max_probability", f64::from(probability) / f64::from(CERTAIN));
        visit("sfb.max_bin_packets", f64::from(packets));
    }
}

/// A hash and the bins that it selects.
#[derive(Clone, Debug)]
struct Filter {
    key: u64,
    bins: [[Bin; BINS]; LEVELS],
}

/// The number of stored packets of a bin, and its probability in 65535ths.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    packets: u16,
    probability: u16,
}

impl Filter {
    fn new(key: u64) -> Self {
        Self { key, bins: [[Bin::default(); BINS]; LEVELS] }
    }

    /// Never 0, which means "not counted".
    fn hash(&self, flow: u32) -> u32 {
        ((mix(self.key ^ u64::from(flow)) >> 32) as u32).max(1)
    }

    fn bins_of(&mut self, hash: u32) -> impl Iterator<Item = &mut Bin> {
        let bin_of = move |level: usize| (hash >> (4 * level)) as usize % BINS;
        self.bins.iter_mut().enumerate().map(move |(level, bins)| &mut bins[bin_of(level)])
    }

    /// Updates a flow's bins for an arrival. Returns the fewest packets and lowest probability.
    fn visit(&mut self, hash: u32, config: &SfbConfig) -> Bin {
        let mut least = Bin { packets: u16::MAX, probability: CERTAIN };
        for bin in self.bins_of(hash) {
            if bin.packets == 0 {
                bin.probability = bin.probability.saturating_sub(config.decrement);
            } else if u32::from(bin.packets) >= config.target_packets {
                bin.probability = bin.probability.saturating_add(config.increment);
            }
            least.packets = least.packets.min(bin.packets);
            least.probability = least.probability.min(bin.probability);
        }
        least
    }

    fn count(&mut self, hash: u32, change: impl Fn(u16) -> u16) {
        if hash != 0 {
            self.bins_of(hash).for_each(|bin| bin.packets = change(bin.packets));
        }
    }
}

const LEVELS: usize = 8;
const BINS: usize = 16;
const CERTAIN: u16 = u16::MAX;
/// A longer silence adds no further tokens to the penalty box.
const PENALTY_MEMORY_MS: u64 = 10_000;

one_queue!(SfbQueue, SfbConfig, |queue, rng| Sfb::new(queue.config, &rng.child("sfb")));

params! {
    define DEFINITION: "sfb",
        "SFB: BLUE in the bins of a Bloom filter of flows; holds greedy flows down",
        source: "Feng, Kandlur, Saha and Shin 2001; Linux sch_sfb, tc-sfb(8)",
        profiles: &[Profile { name: "linux", doc: "Linux 6.12 sch_sfb.c, packet for packet" }];
    LIMIT: Packets = "limit", "1000p" in "1p".."65535p", "packets stored at most, tail-drop beyond";
    MAX: Packets = "max", "25p" in "1p".."65535p", "most stored packets of one flow";
    TARGET: Packets = "target", "20p" in "1p".."65535p",
        "stored packets of a bin from which on its probability rises";
    INCREMENT: Probability = "increment", "0.05%",
        "rise of the probability per arrival, rounded to 65535ths";
    DECREMENT: Probability = "decrement", "0.005%",
        "fall of the probability per arrival, rounded to 65535ths";
    PENALTY_RATE: Count = "penalty-rate", "10" in "0".."1000000",
        "packets per second of all unresponsive flows together";
    PENALTY_BURST: Packets = "penalty-burst", "20p" in "0p".."65535p",
        "burst of these flows";
    REHASH: Span = "rehash", "600s" in "0s".."86400s", "life of a hash in whole ms; 0s: for ever";
    WARMUP: Span = "warmup", "60s" in "0s".."86400s",
        "how long the next hash learns before it takes over (`db` of tc); 0s: not at all";
}

pub(crate) fn configure(values: &Values) -> Result<SfbQueue, ConfigError> {
    let config = SfbConfig::read(values)?;
    if config.rehash_ms == 0 && values.get(REHASH) > Span::ZERO {
        return Err(values.refuse(REHASH, "whole milliseconds, such as 1ms, or 0s"));
    }
    Ok(SfbQueue { config, limit: Limit::packets(values.get(LIMIT)) })
}

/// Rounds to the nearest, which results in the defaults of `tc`: 33 and 3.
fn parts_of_65535(probability_q32: u64) -> u16 {
    ((probability_q32 * u64::from(CERTAIN) + (1 << 31)) >> 32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::packet::Ecn;
    use crate::qdisc::Qdisc;
    use crate::queue::store::{Overflow, Single};
    use crate::registry::{QueueConfig, QueueSetup};
    use alloc::string::ToString;

    fn config(spec: &str) -> Result<SfbConfig, ConfigError> {
        match QueueSetup::parse(spec, &LinkFacts::default())?.config {
            QueueConfig::Sfb(queue) => Ok(queue.config),
            other => panic!("{other:?}"),
        }
    }

    fn sfb(spec: &str) -> Sfb {
        Sfb::new(config(spec).expect(spec), &Rng::new(4))
    }

    /// `sfb_rate_limit`: without a rate or without a burst no packet gets a token.
    #[test]
    fn a_penalty_box_without_rate_or_burst_passes_no_packet() {
        for (spec, punished) in
            [("sfb", false), ("sfb:penalty-rate=0", true), ("sfb:penalty-burst=0p", true)]
        {
            assert_eq!(sfb(spec).is_punished(1_000), punished, "{spec}");
        }
    }

    /// Above one half, what is drawn below twice the excess is dropped, and up to the probability
    /// marked.
    #[test]
    fn a_draw_equal_to_twice_the_excess_is_marked() {
        let mut sfb = sfb("sfb");
        let drawn = |sfb: &Sfb| (sfb.rng.clone().next_u32() >> 16) as u16;
        while drawn(&sfb) % 2 == 1 || drawn(&sfb) > 60_000 {
            sfb.rng.next_u32();
        }
        let probability = CERTAIN / 2 + drawn(&sfb) / 2;
        let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_000, 1) };
        assert_eq!(sfb.clone().draw(&meta, probability), Verdict::Signal);
        assert_eq!(sfb.draw(&meta, probability + 1), Verdict::Drop);
    }

    /// Offers `count` packets of `flow` at `now_ms`. Returns how many passed, were signalled, and
    /// were dropped.
    fn offer(sfb: &mut Sfb, now_ms: u64, flow: u32, ecn: Ecn, count: u32) -> [u32; 3] {
        let meta = Meta { ecn, ..Meta::new(1_000, flow) };
        let mut verdicts = [0; 3];
        for _ in 0..count {
            let now = Time::from_millis(now_ms);
            verdicts[sfb.on_enqueue(now, &meta, Backlog::default()) as usize] += 1;
        }
        verdicts
    }

    fn set_probability(sfb: &mut Sfb, flow: u32, probability: u16) {
        let active = sfb.active;
        let hash = sfb.filters[active].hash(flow);
        sfb.filters[active].bins_of(hash).for_each(|bin| bin.probability = probability);
    }

    #[test]
    fn the_defaults_are_those_of_tc() {
        let defaults = config("sfb").unwrap();
        assert_eq!((defaults.increment, defaults.decrement), (33, 3));
        assert_eq!((defaults.max_packets, defaults.target_packets), (25, 20));
        assert_eq!((defaults.penalty_rate, defaults.penalty_burst), (10, 20));
        assert_eq!((defaults.rehash_ms, defaults.warmup_ms), (600_000, 60_000));
        let error = config("sfb:rehash=999us").unwrap_err().to_string();
        assert!(error.contains("whole milliseconds"), "{error}");
        assert_eq!(config("sfb:rehash=0s").unwrap().rehash_ms, 0);
    }

    #[test]
    fn a_flow_stores_at_most_its_share_and_others_are_unaffected() {
        let mut sfb = sfb("sfb:increment=0%");
        assert_eq!(offer(&mut sfb, 0, 1, Ecn::Ect0, 40), [25, 0, 15]);
        assert_eq!(offer(&mut sfb, 0, 2, Ecn::Ect0, 25), [25, 0, 0]);
        assert_eq!(sfb.hashes.len(), 50);
    }

    #[test]
    fn capable_packets_are_marked_up_to_one_half_and_then_dropped_too() {
        let certain = f64::from(CERTAIN);
        for (percent, dropped) in [(30.0, 0.0), (50.0, 0.0), (80.0, 0.6)] {
            let probability = (percent / 100.0 * certain) as u16;
            let mut sfb = sfb("sfb:max=65535p,target=65535p,decrement=0%");
            set_probability(&mut sfb, 1, probability);
            let [_, marks, drops] = offer(&mut sfb, 0, 1, Ecn::Ect0, 40_000).map(f64::from);
            let signals = (marks + drops) / 40_000.0;
            assert!((signals - percent / 100.0).abs() < 0.01, "{percent}: {signals}");
            assert!((drops / 40_000.0 - dropped).abs() < 0.01, "{percent}: {drops}");
            set_probability(&mut sfb, 2, probability);
            let [_, marks, _] = offer(&mut sfb, 0, 2, Ecn::NotEct, 5_000);
            assert_eq!(marks, 0);
        }
    }

    #[test]
    fn flows_that_do_not_react_share_the_penalty_rate() {
        let mut sfb = sfb("sfb:max=65535p,target=65535p,decrement=0%");
        for flow in [1, 2] {
            set_probability(&mut sfb, flow, CERTAIN);
        }
        // The burst, then none within 100 ms, then 10 packets per second of both flows together.
        assert_eq!(offer(&mut sfb, 20_000, 1, Ecn::Ect0, 20), [20, 0, 0]);
        assert_eq!(offer(&mut sfb, 20_000, 2, Ecn::Ect0, 50), [20, 0, 30]);
        assert_eq!(offer(&mut sfb, 20_099, 2, Ecn::Ect0, 5), [0, 0, 5]);
        assert_eq!(offer(&mut sfb, 21_099, 2, Ecn::Ect0, 50), [10, 0, 40]);
        assert_eq!(offer(&mut sfb, 90_000, 1, Ecn::Ect0, 50), [20, 0, 30]);
        sfb.config.penalty_rate = 0;
        assert_eq!(offer(&mut sfb, 200_000, 1, Ecn::Ect0, 5), [0, 0, 5]);
    }

    #[test]
    fn the_second_hash_takes_over_with_the_unresponsive_flows_known() {
        let mut sfb = sfb("sfb:max=65535p,target=2p,decrement=0%,rehash=10s,warmup=4s");
        set_probability(&mut sfb, 1, CERTAIN);
        offer(&mut sfb, 6_000, 1, Ecn::Ect0, 5);
        assert!(!sfb.warming && sfb.hashes.iter().all(|hashes| hashes[1] == 0));
        offer(&mut sfb, 6_001, 1, Ecn::Ect0, 5);
        assert!(sfb.warming);
        let learnt = sfb.filters[1].bins.iter().flatten().map(|bin| bin.probability).max();
        assert_eq!((learnt, sfb.active), (Some(3 * 33), 0), "two come before the target");
        offer(&mut sfb, 10_000, 1, Ecn::Ect0, 1);
        assert_eq!(sfb.active, 0);
        let key = sfb.filters[0].key;
        offer(&mut sfb, 10_001, 1, Ecn::Ect0, 1);
        assert_eq!((sfb.active, sfb.warming, sfb.rehashed_ms), (1, false, 10_001));
        assert_ne!(sfb.filters[0].key, key);
    }

    #[test]
    fn a_departure_lowers_the_bins_that_its_arrival_raised() {
        let mut queue: Single<Sfb, ()> = Single::new(
            sfb("sfb:max=65535p,target=2p,increment=30%,rehash=10ms,warmup=9ms,penalty-rate=1000"),
            Limit::packets(1_000),
            Overflow::Tail,
        );
        for ms in 0..400 {
            let now = Time::from_millis(ms);
            for flow in 0..4 {
                let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(500, flow) };
                queue.enqueue(now, Packet { meta, payload: () }, &mut ());
            }
            let _ = queue.dequeue(now, &mut ());
        }
        let counted = |queue: &Single<Sfb, ()>| -> u32 {
            let bins = queue.aqm().filters.iter().flat_map(|filter| filter.bins.iter().flatten());
            bins.map(|bin| u32::from(bin.packets)).sum()
        };
        assert!(queue.backlog().packets > 100 && counted(&queue) > 800);
        while !queue.backlog().is_empty() {
            let _ = queue.dequeue(Time::from_secs(1), &mut ());
        }
        assert_eq!((counted(&queue), queue.aqm().hashes.len()), (0, 0));
    }
}
