//! BoDe, Bounded Delay (Abbasloo and Chao, "Bounding Queue Delay in Cellular Networks to Support
//! Ultra-Low Latency Applications"), in two profiles.
//!
//! # Principle
//! No packet is judged on arrival. When the link is free, the head is sent if it has waited less
//! than the bound, and dropped otherwise, until one is sent. The last packets of the queue are
//! exempt: dropping them would shorten no other packet's wait, and a TCP sender needs them to
//! notice a loss.
//!
//! # Parameters
//! `bound` is the paper's *BoundedDelay* (section V-C), `exempt` its step 3.
//!
//! BoDe has no ECN and does not pace its drops: a whole window may be dropped in one burst.
//!
//! # Where the profiles differ
//! | point | `paper` | `patch` (the authors' release v1.5) |
//! |---|---|---|
//! | served | sojourn < bound | sojourn <= bound |
//! | clock | nanoseconds | whole milliseconds |
//! | exempt by packets | queue of `exempt` or fewer | the same; their `min_thr` is `exempt - 1` |
//! | exempt by bytes | no | at most 1504 bytes left behind the head; and a lone packet always |
//!
//! The paper contradicts itself on step 3 ("smaller than 3 packets" in the list, the "last 3" in
//! its argument with duplicate acknowledgements); the default follows the argument, and the patch.
//! The byte rule is not in the paper: it exempts 16 packets of 100 bytes rather than 3.
//!
//! # How it is validated
//! `patch` is compared packet by packet with the authors' queue over four scripts, and with single
//! facts about it; `paper` is tested by hand-made cases at the edges; both by the law suite. See
//! `docs/queues/bode.md`.

use crate::aqm::{Aqm, Store};
use crate::config::{ConfigError, Packets, Values, params, profiles};
use crate::packet::{Meta, Packet};
use crate::qdisc::{Backlog, DropReason};
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::time::{Span, Time};

/// The BoDe algorithm, which has no state.
#[derive(Clone, Copy, Debug)]
pub struct Bode {
    /// The published algorithm: that of the paper's text, or of the authors' patch.
    pub profile: BodeProfile,
    /// The longest sojourn that is served.
    pub bound: Span,
    /// A queue of no more packets, head included, loses none.
    pub exempt_packets: u32,
}

profiles! {
    /// The published variants of BoDe.
    pub enum BodeProfile {
        /// The paper's section V-C.
        Paper = "paper": "the paper's section V-C, in nanoseconds",
        /// The authors' release. Their `min_thr` is `exempt_packets - 1`; their 999, which disables
        /// the rule, is an `exempt_packets` of 1 or 0.
        Patch = "patch": "the authors' release v1.5 for Mahimahi",
    }
}

/// A packet with Mahimahi's 4-byte header: the head is served if at most this many bytes are behind
/// it.
const PATCH_EXEMPT_BYTES: u64 = 1_504;

impl Bode {
    /// Serves packets that waited less than `bound`, and always the last `exempt_packets`.
    pub const fn new(profile: BodeProfile, bound: Span, exempt_packets: u32) -> Self {
        Self { profile, bound, exempt_packets }
    }

    /// Whether `head` is served, given the backlog behind it.
    #[inline]
    fn serves(&self, now: Time, head: &Meta, left: Backlog) -> bool {
        let in_time = match self.profile {
            BodeProfile::Paper => now.since(head.arrived) < self.bound,
            BodeProfile::Patch => {
                let waited_ms = now.as_millis().saturating_sub(head.arrived.as_millis());
                waited_ms <= self.bound.as_millis() || left.bytes <= PATCH_EXEMPT_BYTES
            }
        };
        in_time || left.packets < self.exempt_packets
    }
}

impl Aqm for Bode {
    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        loop {
            let head = store.head()?;
            if self.serves(now, head, store.backlog().without(head.len)) {
                return store.pop();
            }
            drop_head(store);
        }
    }
}

#[cold]
fn drop_head<P>(store: &mut impl Store<P>) {
    if let Some(packet) = store.pop() {
        store.drop(packet, DropReason::Bound);
    }
}

one_queue!(BodeQueue, Bode, |queue, _rng| queue.config);

params! {
    define DEFINITION: "bode", "BoDe: bounds the sojourn of every packet served, save the last few",
        source: "Abbasloo and Chao, Bounding Queue Delay in Cellular Networks, section V",
        profiles: BodeProfile::PROFILES;
    BOUND: Span = "bound", "20ms" in "1us".."60s", "longest sojourn that is served";
    EXEMPT: Packets = "exempt", "3p" in "0p".."16777216p",
        "a queue of no more packets, head included, loses none";
    use LIMIT;
}

pub(crate) fn configure(values: &Values) -> Result<BodeQueue, ConfigError> {
    let bound = values.get(BOUND);
    let profile = BodeProfile::of(values);
    if profile == BodeProfile::Patch && bound < Span::from_millis(1) {
        return Err(values.refuse(BOUND, "1ms and more: profile=patch counts whole ms"));
    }
    BodeQueue::new(Bode::new(profile, bound, values.get(EXEMPT)), values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Dequeue, Qdisc};
    use crate::queue::store::{Limit, Overflow, Single};
    use alloc::vec::Vec;

    /// Stores `count` packets of `len` bytes, and returns the numbers, from 1, of those that are
    /// served after all have waited for `age`.
    fn survivors<A: Aqm>(aqm: A, count: u32, len: u32, age: Span) -> Vec<u32> {
        let mut queue = Single::new(aqm, Limit::packets(1_000), Overflow::Tail);
        for id in 1..=count {
            queue.enqueue(Time::ZERO, Packet { meta: Meta::new(len, 0), payload: id }, &mut ());
        }
        let mut served = Vec::new();
        while let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO + age, &mut ()) {
            served.push(packet.payload);
        }
        served
    }

    const BOUND: Span = Span::from_millis(20);

    const fn patch(bound: Span, exempt_packets: u32) -> Bode {
        Bode::new(BodeProfile::Patch, bound, exempt_packets)
    }

    const fn paper(bound: Span, exempt_packets: u32) -> Bode {
        Bode::new(BodeProfile::Paper, bound, exempt_packets)
    }

    #[test]
    fn patch_matches_the_authors_code_at_its_edges() {
        let all: Vec<u32> = (1..=10).collect();
        let aged = Span::from_millis;
        assert_eq!(survivors(patch(BOUND, 3), 10, 1_500, aged(20)), all);
        assert_eq!(survivors(patch(BOUND, 3), 10, 1_500, aged(21)), [8, 9, 10]);
        // With the authors' `min_thr` of 999 (off) or 0 (default), only the byte rule applies.
        assert_eq!(survivors(patch(BOUND, 0), 10, 1_500, aged(21)), [9, 10]);
        assert_eq!(survivors(patch(BOUND, 1), 10, 1_500, aged(21)), [9, 10]);
        assert_eq!(survivors(patch(BOUND, 0), 10, 1_505, aged(21)), [10]);
        assert_eq!(survivors(patch(BOUND, 3), 20, 200, aged(21)).len(), 8);
        assert_eq!(survivors(patch(BOUND, 3), 20, 100, aged(21)).len(), 16);
    }

    #[test]
    fn paper_serves_strictly_below_the_bound_and_the_last_three() {
        let just_below = BOUND.saturating_sub(Span::from_nanos(1));
        assert_eq!(survivors(paper(BOUND, 3), 10, 1_500, just_below).len(), 10);
        assert_eq!(survivors(paper(BOUND, 3), 10, 1_500, BOUND), [8, 9, 10]);
        assert_eq!(survivors(paper(BOUND, 3), 20, 100, BOUND), [18, 19, 20]);
        assert_eq!(survivors(paper(BOUND, 0), 10, 1_500, BOUND), []);
    }

    /// Offers a packet per 0.5 ms for 200 ms to a link of one packet per ms: the authors' code
    /// first skips at 41 ms (the 42nd packet lost, the 43rd served), serves 200 and loses 159.
    #[test]
    fn patch_at_twice_the_rate_matches_the_authors_code() {
        let mut queue = Single::new(patch(BOUND, 3), Limit::packets(1_000), Overflow::Tail);
        let mut served = Vec::new();
        for half_ms in 0..400_u64 {
            let now = Time::from_micros(half_ms * 500);
            let packet = Packet { meta: Meta::new(1_500, 0), payload: half_ms };
            queue.enqueue(now, packet, &mut ());
            if half_ms % 2 == 0
                && let Dequeue::Packet(packet) = queue.dequeue(now, &mut ())
            {
                served.push((half_ms / 2, packet.payload, now.since(packet.meta.arrived)));
            }
        }
        let first_skip = served.iter().find(|(ms, id, _)| id != ms).copied();
        let longest = served.iter().map(|(_, _, sojourn)| *sojourn).max();
        assert_eq!(first_skip, Some((41, 42, BOUND)));
        assert_eq!(longest, Some(BOUND));
        assert_eq!((served.len(), queue.stats().dropped_dequeue.packets), (200, 159));
    }
}
