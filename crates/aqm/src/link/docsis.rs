//! The upstream of a DOCSIS service flow: a token bucket with a peak rate (MULPIv3.1 annex
//! C.2.2.7: maximum sustained traffic rate R, maximum traffic burst B, peak traffic rate P).
//!
//! In any window of `T` seconds at most `R * T / 8 + B` bytes start, and at most
//! `P * T / 8 + 1522`. A packet starts once a maximum frame (1522 bytes, or B if that is smaller)
//! has tokens, because its size is not known before it is taken out of the queue; a larger one
//! waits, already taken, for the rest of its tokens. It is then transmitted at P. A packet larger
//! than B never passes.

use crate::rate::Rate;
use crate::time::Time;
use crate::token_bucket::TokenBucket;

use super::constant::Constant;

/// The rate process of the service flow. Its bucket is full at the start.
#[derive(Clone, Debug)]
pub struct DocsisUpstream {
    rate: Rate,
    bucket: TokenBucket,
    peak: Constant,
    /// The tokens that a transmission waits for.
    start_bytes: u32,
}

impl DocsisUpstream {
    /// A maximum Ethernet frame with its check sequence and one VLAN tag.
    pub const MAX_FRAME_BYTES: u64 = 1_522;

    /// Returns a service flow of `rate` (R), `burst_bytes` (B, at most 2^30) and `peak` (P), none
    /// of them zero.
    pub fn new(rate: Rate, burst_bytes: u64, peak: Rate) -> Self {
        assert!(!rate.is_zero() && burst_bytes > 0, "configuration refuses zeros");
        Self {
            rate,
            bucket: TokenBucket::new(rate, burst_bytes),
            peak: Constant::new(peak),
            start_bytes: burst_bytes.min(Self::MAX_FRAME_BYTES) as u32,
        }
    }

    pub(super) const fn sustained_rate(&self) -> Rate {
        self.rate
    }

    pub(super) fn next_start(&mut self, ready: Time) -> Option<Time> {
        self.bucket.refill(ready);
        Some(ready + self.bucket.wait_for(self.start_bytes)?)
    }

    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Option<Time> {
        self.bucket.refill(start);
        let begin = start + self.bucket.wait_for(len)?;
        self.bucket.refill(begin);
        self.bucket.take(len);
        Some(self.peak.transmit(begin, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MBIT: u64 = 1_000_000;

    fn upstream(rate: u64, burst: u64, peak: u64) -> DocsisUpstream {
        let rates = [rate, peak].map(Rate::from_bits_per_second);
        DocsisUpstream::new(rates[0], burst, rates[1])
    }

    /// Starts, ends and sizes of packets that are ready at these times.
    fn run(link: &mut DocsisUpstream, packets: &[(Span, u32)]) -> Vec<(Time, Time, u32)> {
        let (mut arrival, mut free) = (Time::ZERO, Time::ZERO);
        let mut sent = Vec::new();
        for &(gap, len) in packets {
            arrival += gap;
            let start = link.next_start(arrival.max(free)).expect("it starts");
            if let Some(end) = link.transmit(start, len) {
                free = end;
                // Bytes leave at the peak rate up to the end.
                sent.push((start, end, len));
            }
        }
        sent
    }

    #[test]
    fn a_burst_leaves_at_the_peak_rate_and_the_rest_at_the_sustained_rate() {
        // 40 KiB of tokens at 12 Mbit/s, refilled at 10: the burst lasts 163.84 ms; afterwards
        // 1500 B leave every 1.2 ms.
        let mut link = upstream(10 * MBIT, 40 * 1_024, 12 * MBIT);
        let sent = run(&mut link, &[(Span::ZERO, 1_500); 1_000]);
        let gap = |index: usize| sent[index].1.since(sent[index - 1].1).as_nanos();
        assert_eq!(gap(1), 1_000_000);
        assert_eq!(gap(900), 1_200_000);
        let first_slow = (1..1_000).find(|&index| gap(index) > 1_000_000).unwrap();
        assert!((155..=165).contains(&first_slow), "the burst ended with packet {first_slow}");
    }

    #[test]
    fn the_sustained_rate_is_exact_over_a_long_run() {
        // 3 Mbit/s does not divide a nanosecond: 1500 B take 4 ms, 100 B take 266,666.67 ns.
        let mut link = upstream(3 * MBIT, 2_000, 7 * MBIT);
        let sent = run(&mut link, &vec![(Span::ZERO, 100); 300_000]);
        let tail = &sent[100..];
        let elapsed = tail[tail.len() - 1].0.since(tail[0].0).as_nanos();
        let ideal = (tail.len() as u64 - 1) * 100 * 8 * 1_000 / 3;
        assert!(elapsed.abs_diff(ideal) <= 1, "{elapsed} is not {ideal}");
    }

    #[test]
    fn a_packet_larger_than_the_burst_never_passes() {
        let mut link = upstream(MBIT, 1_000, MBIT);
        let start = link.next_start(Time::ZERO).unwrap();
        assert_eq!(link.transmit(start, 1_001), None);
        assert!(link.transmit(start, 1_000).is_some());
    }

    proptest! {
        #[test]
        fn every_window_conforms(
            rate in 100_000_u64..50 * MBIT,
            faster in 0_u64..50 * MBIT,
            burst in 1_522_u64..50_000,
            packets in prop::collection::vec((0_u64..4_000, 40_u32..=1_522), 2..120),
        ) {
            let mut link = upstream(rate, burst, rate + faster);
            let peak = rate + faster;
            let packets: Vec<(Span, u32)> =
                packets.into_iter().map(|(us, len)| (Span::from_micros(us), len)).collect();
            let sent = run(&mut link, &packets);
            prop_assert_eq!(sent.len(), packets.len());
            for from in 0..sent.len() {
                let mut bytes = 0_u64;
                for &(start, _, len) in &sent[from..] {
                    bytes += u64::from(len);
                    // The test counts nanobits on both sides, so nothing is rounded.
                    let window = u128::from(start.since(sent[from].0).as_nanos());
                    let nanobits = u128::from(bytes) * 8_000_000_000;
                    let most = |rate: u64, extra: u64| {
                        u128::from(rate) * window + u128::from(extra) * 8_000_000_000
                    };
                    prop_assert!(nanobits <= most(rate, burst));
                    // Each start is rounded by up to a nanosecond.
                    prop_assert!(nanobits <= most(peak, 1_522) + u128::from(peak));
                }
            }
        }
    }
}
