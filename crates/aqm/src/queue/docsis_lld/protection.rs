//! Queue protection: scores the flows that lengthen the low latency queue (MULPIv3.1 annex P, RFC
//! 9957).

use crate::queue::control::ONE_Q56;
use crate::time::{Span, Time};

/// The scores of the flows that congest the queue. A bucket stores the time at which its score will
/// have drained; a flow without a score occupies a bucket only for its packet.
#[derive(Clone, Debug)]
pub(super) struct Protection {
    critical_delay: Span,
    /// `CRITICALqLPRODUCT`, in nanoseconds squared.
    critical_product: u128,
    /// Nanoseconds of score per byte of certain marking, as a power of two: `1 / AGING`.
    score_shift: u32,
    buckets: [Bucket; BUCKETS + 1],
    /// Packets moved to the classic queue.
    pub sanctioned: u64,
    /// The time of the last arrival.
    latest: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    flow: u32,
    expires: Time,
}

/// `2^BI_SIZE`; an additional bucket is shared by all flows that find no free bucket.
const BUCKETS: usize = 32;
const INDEX_BITS: u32 = 5;
/// Buckets that a flow may try (`ATTEMPTS`).
const ATTEMPTS: u32 = 2;
/// The limit of a score (`qLSCORE_MAX`); a flow that reaches it is moved to the classic queue.
const HIGHEST_SCORE: Span = Span::from_secs(5);

impl Protection {
    /// Returns empty scores, which drain at `2^aging_exponent` bytes of certain marking per second.
    pub fn new(critical_delay: Span, critical_score: Span, aging_exponent: u8) -> Self {
        let nanos = |span: Span| u128::from(span.as_nanos());
        Self {
            critical_delay,
            critical_product: nanos(critical_delay) * nanos(critical_score),
            score_shift: 30 - u32::from(aging_exponent.min(30)),
            buckets: [Bucket::default(); BUCKETS + 1],
            sanctioned: 0,
            latest: Time::ZERO,
        }
    }

    /// Returns the highest score at the last arrival, as the time in which it drains.
    pub fn highest_score(&self) -> Span {
        let scores = self.buckets.iter().map(|bucket| bucket.expires.since(self.latest));
        scores.max().unwrap_or(Span::ZERO)
    }

    /// Returns the flow's score, as the time in which it drains, if this packet is moved: the delay
    /// of the queue exceeds the critical delay, and the score scaled by the delay is too high.
    pub fn sanctions(
        &mut self,
        now: Time,
        flow: u32,
        len: u32,
        delay: Span,
        probability_q56: u64,
    ) -> Option<Span> {
        self.latest = now;
        let bucket = self.pick(now, flow);
        let score = self.fill(bucket, now, len, probability_q56);
        let product = u128::from(delay.as_nanos()) * u128::from(score.as_nanos());
        let critical = delay > self.critical_delay && product > self.critical_product;
        let sanctioned = critical || score >= HIGHEST_SCORE;
        self.sanctioned += u64::from(sanctioned);
        sanctioned.then_some(score)
    }

    /// Returns the flow's own bucket, else a drained one, else the one that all others share.
    fn pick(&mut self, now: Time, flow: u32) -> usize {
        let mut hash = spread(flow);
        let mut free = None;
        for _ in 0..ATTEMPTS {
            let index = (hash as usize) & (BUCKETS - 1);
            if self.buckets[index].flow == flow {
                self.buckets[index].expires = self.buckets[index].expires.max(now);
                return index;
            }
            if free.is_none() && self.buckets[index].expires <= now {
                free = Some(index);
            }
            hash >>= INDEX_BITS;
        }
        let index = free.unwrap_or(BUCKETS);
        let expires = self.buckets[index].expires.max(now);
        self.buckets[index] = Bucket { flow, expires };
        index
    }

    /// Adds the packet's score and returns the sum, as the time in which it drains.
    fn fill(&mut self, index: usize, now: Time, len: u32, probability_q56: u64) -> Span {
        let scaled = (u128::from(probability_q56) * u128::from(len)) << self.score_shift;
        let nanos = (scaled / u128::from(ONE_Q56)).min(u128::from(HIGHEST_SCORE.as_nanos()));
        let bucket = &mut self.buckets[index];
        bucket.expires = (bucket.expires + Span::from_nanos(nanos as u64)).min(now + HIGHEST_SCORE);
        bucket.expires.since(now)
    }
}

/// Spreads flow numbers, which may count up from zero, over the bits that choose buckets.
const fn spread(flow: u32) -> u32 {
    let mixed = (flow ^ (flow >> 16)).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection() -> Protection {
        Protection::new(Span::from_millis(1), Span::from_millis(4), 19)
    }

    #[test]
    fn a_byte_of_certain_marking_scores_2048_nanoseconds() {
        // 1/AGING = 2^(30 - 19), with the standard's 2^-30 s taken as a nanosecond.
        let mut protection = protection();
        let index = protection.pick(Time::ZERO, 7);
        let score = protection.fill(index, Time::ZERO, 1_000, ONE_Q56);
        assert_eq!(score, Span::from_nanos(2_048_000));
        let later = Time::from_micros(2_048);
        assert_eq!(protection.pick(later, 7), index);
        assert_eq!(protection.fill(index, later, 1_000, ONE_Q56 / 2), Span::from_nanos(1_024_000));
    }

    #[test]
    fn a_sanction_needs_both_a_long_queue_and_a_high_score() {
        let mut protection = protection();
        let long = Span::from_millis(2);
        // A score of 2.05 ms at twice the critical delay is 4.1 ms: over 4.
        let critical = Span::from_millis(1);
        assert_eq!(protection.sanctions(Time::ZERO, 1, 1_000, critical, ONE_Q56), None);
        let score = Some(Span::from_nanos(2_048 * 1_001));
        assert_eq!(protection.sanctions(Time::ZERO, 1, 1, long, ONE_Q56), score);
        assert_eq!(protection.sanctions(Time::ZERO, 2, 500, long, ONE_Q56), None, "another flow");
        assert_eq!(Some(protection.highest_score()), score);
        assert_eq!(protection.sanctioned, 1);
    }

    /// RFC 9957 requires more than the critical delay and more than the critical product.
    #[test]
    fn a_score_at_the_critical_bound_is_not_sanctioned() {
        let mut protection = protection();
        for _ in 0..9 {
            // The score alone exceeds every bound, but the delay does not.
            assert_eq!(
                protection.sanctions(Time::ZERO, 1, 1_000, Span::from_millis(1), ONE_Q56),
                None
            );
        }
        // 1000 bytes with a marking probability of 1000/1024 have a score of 2 ms. With a delay of
        // 2 ms the product equals the critical product, 1 ms times 4 ms.
        let p = ONE_Q56 / 1_024 * 1_000;
        assert_eq!(protection.sanctions(Time::ZERO, 2, 1_000, Span::from_millis(2), p), None);
        assert!(protection.sanctions(Time::ZERO, 3, 1_001, Span::from_millis(2), p).is_some());
    }

    /// If the first bucket belongs to another flow, the flow uses the bucket that the next five
    /// bits select.
    #[test]
    fn the_second_attempt_uses_other_buckets() {
        let first = |flow: u32| spread(flow) % 32;
        let second = |flow: u32| spread(flow) / 32 % 32;
        let mut tried = 0;
        for flow in 1..200 {
            let mut protection = protection();
            let Some(other) = (1_000..2_000).find(|&other| first(other) == first(flow)) else {
                continue;
            };
            let taken = protection.pick(Time::ZERO, other);
            protection.fill(taken, Time::ZERO, 1_500, ONE_Q56);
            assert_eq!(taken, first(flow) as usize);
            if second(flow) != first(flow) {
                assert_eq!(protection.pick(Time::ZERO, flow), second(flow) as usize);
                tried += 1;
            }
        }
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn a_score_is_capped_at_five_seconds_and_then_drains() {
        let mut protection = protection();
        for _ in 0..10_000 {
            protection.sanctions(Time::ZERO, 1, 1_500, Span::from_millis(2), ONE_Q56);
        }
        let none = Span::ZERO;
        let score = protection.sanctions(Time::ZERO, 1, 1_500, none, 0);
        assert_eq!(score, Some(HIGHEST_SCORE));
        assert_eq!(protection.sanctions(Time::from_micros(1), 1, 1_500, none, 0), None);
    }

    #[test]
    fn flows_that_find_no_bucket_share_one() {
        let mut protection = protection();
        let mut shared = 0;
        for flow in 0..1_000 {
            let index = protection.pick(Time::ZERO, flow);
            protection.fill(index, Time::ZERO, 1_500, ONE_Q56);
            shared += u32::from(index == BUCKETS);
        }
        assert_eq!(shared, 1_000 - BUCKETS as u32);
    }
}
