//! Requests and grants of a DOCSIS upstream, in front of which packets wait in the queue: each
//! service flow requests grants for its backlog, and a packet stays in the queue until a grant of
//! its flow covers it. A packet of the low latency flow therefore overtakes inside the modem.
//!
//! The modem requests at each MAP boundary, for each flow, the bytes that are stored and not yet
//! requested. The CMTS divides the bytes of one MAP interval: at most the peak rate, within the
//! token buckets of the aggregate and of each flow at the end of the interval;
//! `weight : 256 - weight` while both flows want more, and all of it for a single one. These grants
//! begin `to_grant` after the boundary, those of the low latency flow first. Proactive grants come
//! in addition, used or not, and count against the low latency flow's share (as in CableLabs'
//! simulator, docsis-ns3).
//!
//! Grants to a flow that stores nothing are lost, and return to the token buckets. A grant that
//! does not cover a whole packet is kept for the flow's next grant: the packet is fragmented, and
//! arrives with its last byte. Requests are never lost and never collide.

use alloc::collections::VecDeque;

use super::flight::RequestGrant;
use crate::rate::Rate;
use crate::service_flow::{Contract, FlowRates, Granted, ProactiveGrants, Side, Waiting};
use crate::time::{Span, Time};
use crate::token_bucket::{MAX_BURST_BYTES, NANOBITS_PER_BYTE};

/// The request-grant loop of modem and CMTS.
#[derive(Clone, Debug)]
pub struct Grants {
    timing: RequestGrant,
    weight: u8,
    proactive: Option<Proactive>,
    /// Sustained and peak rate of the aggregate.
    aggregate: [Bucket; 2],
    flows: [Flow; 2],
    /// Number of the next MAP boundary.
    next_map: u64,
    /// Grants that have not begun, by time: start, and bytes by [`Side`].
    coming: VecDeque<(Time, [u64; 2])>,
    /// When the current transmission ends.
    busy_until: Time,
}

#[derive(Clone, Debug)]
struct Flow {
    /// The flow's own sustained and peak rate.
    limits: [Option<Bucket>; 2],
    /// Bytes requested and not granted.
    pending: u64,
    /// Bytes of the grants in `coming`.
    promised: u64,
    /// Bytes of grants that have begun, not used yet.
    credit: u64,
    counted: Granted,
}

impl Grants {
    /// Returns an idle upstream of `rate` and `burst_bytes` (not zero) for the flows of `contract`.
    pub fn new(timing: RequestGrant, rate: Rate, burst_bytes: u64, contract: &Contract) -> Self {
        assert!(timing.map_interval > Span::ZERO, "configuration refuses a MAP interval of zero");
        let ahead = timing.to_grant.as_nanos() / timing.map_interval.as_nanos() + 2;
        Self {
            timing,
            weight: contract.weight,
            proactive: contract.proactive.map(|grants| Proactive { grants, next: 0 }),
            aggregate: [Bucket::new(rate, burst_bytes), Bucket::new(timing.peak, 1)],
            flows: contract.flows.map(Flow::new),
            next_map: 0,
            coming: VecDeque::with_capacity(ahead as usize),
            busy_until: Time::ZERO,
        }
    }

    /// Returns the cumulative grants of each flow.
    pub(super) fn granted(&self) -> [Granted; 2] {
        [self.flows[0].counted, self.flows[1].counted]
    }

    /// Restarts an idle upstream when a packet arrives at `now`: skips the time between.
    pub(super) fn resume(&mut self, now: Time) {
        let map = self.timing.map_interval;
        let boundary = now.as_nanos().div_ceil(map.as_nanos());
        let passed = map * (boundary - self.next_map.min(boundary));
        self.next_map = self.next_map.max(boundary);
        self.buckets(|bucket, _| bucket.gain(passed));
        if let Some(proactive) = &mut self.proactive {
            let lost = proactive.pass(now);
            let counted = &mut self.flows[Side::LowLatency as usize].counted;
            counted.bytes += lost;
            counted.unused_bytes += lost;
        }
        self.reserve_ahead(Bucket::take);
    }

    /// Whether no transmission is under way at `now`.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.busy_until <= now
    }

    /// Makes requests and begins the grants that are due at `now`, from [`Grants::next_event`].
    pub(super) fn advance(&mut self, now: Time, waiting: [Waiting; 2]) {
        if self.boundary() <= now {
            self.request(waiting);
            self.next_map += 1;
        }
        while let Some((_, bytes)) = self.coming.pop_front_if(|(start, _)| *start <= now) {
            for (flow, bytes) in self.flows.iter_mut().zip(bytes) {
                flow.promised -= bytes;
                flow.begin(bytes);
            }
        }
        if let Some(proactive) = &mut self.proactive {
            let bytes = proactive.pass(now + Span::from_nanos(1));
            self.flows[Side::LowLatency as usize].begin(bytes);
        }
    }

    /// Returns the side that sends at `now`, if any. Grants of an empty flow are lost.
    pub(super) fn turn(&mut self, now: Time, waiting: [Waiting; 2]) -> Option<Side> {
        if !self.is_free(now) {
            return None;
        }
        for side in Side::ALL {
            let flow = &mut self.flows[side as usize];
            match waiting[side as usize].head_bytes {
                Some(len) if flow.credit >= u64::from(len) => return Some(side),
                None if flow.credit > 0 => {
                    let lost = core::mem::take(&mut flow.credit);
                    flow.counted.unused_bytes += lost;
                    self.charge(side, |bucket| bucket.give_back(lost));
                }
                _ => {}
            }
        }
        None
    }

    /// Records that a packet of `side`, `len` bytes long, is sent until `end`.
    pub(super) fn sent(&mut self, side: Side, len: u32, end: Time) {
        let flow = &mut self.flows[side as usize];
        flow.credit = flow.credit.saturating_sub(u64::from(len));
        self.busy_until = end;
    }

    /// Returns the time of the next event after `now`; `None` if only a new packet makes one.
    pub(super) fn next_event(&mut self, now: Time, waiting: [Waiting; 2]) -> Option<Time> {
        let is_busy = !self.is_free(now);
        let asks = self.flows.iter().any(|flow| flow.pending > 0);
        let stores = waiting.iter().any(|waiting| waiting.head_bytes.is_some());
        if !is_busy && !asks && !stores && self.coming.is_empty() {
            self.reserve_ahead(Bucket::give_back);
            return None;
        }
        let end = is_busy.then_some(self.busy_until);
        let grant = self.coming.front().map(|(start, _)| *start);
        let proactive = self.proactive.as_ref().map(|proactive| proactive.time(proactive.next));
        [end, grant, proactive].into_iter().flatten().chain([self.boundary()]).min()
    }

    /// Returns the time of the next MAP boundary.
    fn boundary(&self) -> Time {
        Time::ZERO + self.timing.map_interval * self.next_map
    }

    /// Makes the modem's requests at the current boundary, and the CMTS's grants.
    fn request(&mut self, waiting: [Waiting; 2]) {
        for (flow, waiting) in self.flows.iter_mut().zip(waiting) {
            let asked = flow.pending + flow.promised + flow.credit;
            flow.pending += waiting.bytes.saturating_sub(asked);
        }
        let start = self.boundary() + self.timing.to_grant;
        let reserved = self.proactive.as_ref().map_or(0, |proactive| {
            proactive.bytes_between_times(start, start + self.timing.map_interval)
        });
        let bytes = self.divide(reserved);
        let taken = [reserved + bytes[0], bytes[1]];
        let map = self.timing.map_interval;
        self.buckets(|bucket, side| {
            let total = taken.iter().sum();
            bucket.settle(map, side.map_or(total, |side| taken[side as usize]));
        });
        for (flow, bytes) in self.flows.iter_mut().zip(bytes) {
            flow.pending -= bytes;
            flow.promised += bytes;
        }
        // Proactive grants cover these bytes, so they need no request.
        let low_latency = &mut self.flows[Side::LowLatency as usize];
        low_latency.pending = low_latency.pending.saturating_sub(reserved);
        if bytes != [0, 0] {
            self.coming.push_back((start, bytes));
        }
    }

    /// Divides one MAP interval between the flows; `reserved` bytes of it are proactive grants.
    fn divide(&self, reserved: u64) -> [u64; 2] {
        let map = self.timing.map_interval;
        let budget = self.aggregate.iter().map(|bucket| bucket.bytes_at_end(map)).min();
        let budget = budget.unwrap_or(0);
        let spare = budget.saturating_sub(reserved);
        let [low_latency, classic] = &self.flows;
        let most = low_latency.most(map).saturating_sub(reserved);
        let low_latency = low_latency.pending.saturating_sub(reserved).min(most);
        let classic = classic.pending.min(classic.most(map));
        let weighted = u128::from(budget) * u128::from(self.weight) / 256;
        let share = (weighted as u64).saturating_sub(reserved).min(spare);
        let classic = classic.min(spare - low_latency.min(share));
        [low_latency.min(spare - classic), classic]
    }

    /// Applies `change` to the proactive grants that begin before the grants of the next MAP.
    /// Buckets account for them at boundaries, and an idle upstream has none.
    fn reserve_ahead(&mut self, change: impl Fn(&mut Bucket, u64)) {
        let Some(proactive) = &self.proactive else { return };
        let until = proactive.first_from(self.boundary() + self.timing.to_grant);
        let bytes = proactive.bytes_between(proactive.next, until);
        self.charge(Side::LowLatency, |bucket| change(bucket, bytes));
    }

    /// Applies `change` to the buckets that grants of `side` come from.
    fn charge(&mut self, side: Side, change: impl Fn(&mut Bucket)) {
        let own = self.flows[side as usize].limits.iter_mut().flatten();
        self.aggregate.iter_mut().take(1).chain(own).for_each(change);
    }

    /// Applies `change` to every bucket, with the side of a flow's bucket.
    fn buckets(&mut self, change: impl Fn(&mut Bucket, Option<Side>)) {
        self.aggregate.iter_mut().for_each(|bucket| change(bucket, None));
        for (flow, side) in self.flows.iter_mut().zip(Side::ALL) {
            flow.limits.iter_mut().flatten().for_each(|bucket| change(bucket, Some(side)));
        }
    }
}

impl Flow {
    fn new(rates: FlowRates) -> Self {
        let peak = |rate| Bucket::new(rate, FlowRates::PEAK_BURST_BYTES);
        let sustained = rates.sustained.map(|rate| Bucket::new(rate, rates.burst_bytes));
        Self {
            limits: [sustained, rates.peak.map(peak)],
            pending: 0,
            promised: 0,
            credit: 0,
            counted: Granted::default(),
        }
    }

    const fn begin(&mut self, bytes: u64) {
        self.credit += bytes;
        self.counted.bytes += bytes;
    }

    /// Returns the bytes that the flow's own rates allow in the next MAP interval.
    fn most(&self, map: Span) -> u64 {
        let limits = self.limits.iter().flatten();
        limits.map(|bucket| bucket.bytes_at_end(map)).min().unwrap_or(u64::MAX)
    }
}

/// Grants at fixed times: number `n` after `n` intervals.
#[derive(Clone, Debug)]
struct Proactive {
    grants: ProactiveGrants,
    next: u64,
}

impl Proactive {
    fn time(&self, number: u64) -> Time {
        Time::ZERO + self.grants.interval * number
    }

    /// Returns the number of the first grant at `time` or later.
    fn first_from(&self, time: Time) -> u64 {
        time.as_nanos().div_ceil(self.grants.interval.as_nanos())
    }

    /// Skips the grants before `time`, and returns the sum of their bytes.
    fn pass(&mut self, time: Time) -> u64 {
        let first = self.first_from(time).max(self.next);
        let bytes = self.bytes_between(self.next, first);
        self.next = first;
        bytes
    }

    fn bytes_between_times(&self, from: Time, to: Time) -> u64 {
        self.bytes_between(self.first_from(from), self.first_from(to))
    }

    /// Returns the bytes of the grants from number `from` up to `to`, whole and without drift.
    fn bytes_between(&self, from: u64, to: u64) -> u64 {
        let interval = u128::from(self.grants.interval.as_nanos());
        let each = u128::from(self.grants.rate.bits_per_second()) * interval;
        let before = |number| u128::from(number) * each / u128::from(NANOBITS_PER_BYTE);
        before(to).saturating_sub(before(from)) as u64
    }
}

/// A token bucket that is settled once per MAP interval, in nanobits. It is below zero after
/// proactive grants took more than it had.
#[derive(Clone, Debug)]
struct Bucket {
    rate: Rate,
    capacity: i128,
    tokens: i128,
}

impl Bucket {
    fn new(rate: Rate, burst_bytes: u64) -> Self {
        let capacity = nanobits(burst_bytes.min(MAX_BURST_BYTES));
        Self { rate, capacity, tokens: capacity }
    }

    fn income(&self, time: Span) -> i128 {
        i128::from(self.rate.bits_per_second()) * i128::from(time.as_nanos())
    }

    /// Returns the bytes that may be granted in the next interval.
    fn bytes_at_end(&self, map: Span) -> u64 {
        let bytes = (self.tokens + self.income(map)).max(0) / nanobits(1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Settles an interval in which `bytes` are granted.
    fn settle(&mut self, map: Span, bytes: u64) {
        self.tokens = (self.tokens + self.income(map) - nanobits(bytes)).min(self.capacity);
    }

    fn gain(&mut self, time: Span) {
        self.settle(time, 0);
    }

    fn take(&mut self, bytes: u64) {
        self.tokens -= nanobits(bytes);
    }

    fn give_back(&mut self, bytes: u64) {
        self.tokens = (self.tokens + nanobits(bytes)).min(self.capacity);
    }
}

fn nanobits(bytes: u64) -> i128 {
    i128::from(bytes) * i128::from(NANOBITS_PER_BYTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(kilobits: u64) -> Rate {
        Rate::from_bits_per_second(kilobits * 1_000)
    }

    /// 2 ms of 8 Mbit/s are 2000 bytes; the bucket is empty.
    fn grants(weight: u8, pending: [u64; 2]) -> Grants {
        let timing = RequestGrant {
            map_interval: Span::from_millis(2),
            to_grant: Span::from_millis(4),
            peak: rate(80_000),
        };
        let contract = Contract { weight, flows: [FlowRates::UNLIMITED; 2], proactive: None };
        let mut grants = Grants::new(timing, rate(8_000), 3_044, &contract);
        grants.aggregate[0].tokens = 0;
        for (flow, pending) in grants.flows.iter_mut().zip(pending) {
            flow.pending = pending;
        }
        grants
    }

    #[test]
    fn contended_grants_divide_by_weight_and_unused_ones_go_to_the_other_flow() {
        assert_eq!(grants(230, [9_000, 9_000]).divide(0), [1_796, 204]);
        assert_eq!(grants(230, [9_000, 100]).divide(0), [1_900, 100]);
        assert_eq!(grants(230, [700, 9_000]).divide(0), [700, 1_300]);
        assert_eq!(grants(230, [700, 300]).divide(0), [700, 300]);
        assert_eq!(grants(230, [0, 9_000]).divide(0), [0, 2_000]);
    }

    #[test]
    fn proactive_grants_count_towards_the_weight_and_never_exceed_the_interval() {
        // Of 1796 bytes, 1000 are already granted and cover 1000 of the requested bytes.
        assert_eq!(grants(230, [9_000, 9_000]).divide(1_000), [796, 204]);
        assert_eq!(grants(230, [1_200, 9_000]).divide(1_000), [200, 800]);
        assert_eq!(grants(230, [500, 9_000]).divide(1_000), [0, 1_000]);
        assert_eq!(grants(230, [9_000, 9_000]).divide(1_900), [0, 100]);
        assert_eq!(grants(230, [9_000, 9_000]).divide(5_000), [0, 0]);
    }

    #[test]
    fn the_peak_rate_bounds_an_interval() {
        let mut grants = grants(230, [0, 90_000]);
        grants.aggregate[0].tokens = nanobits(1 << 29);
        // 2 ms of 80 Mbit/s, and one byte that the bucket stores for fractions.
        assert_eq!(grants.divide(0), [0, 20_001]);
    }

    #[test]
    fn proactive_grants_do_not_drift() {
        // Each interval grants 375.0125 bytes.
        let grants = ProactiveGrants { rate: rate(3_000), interval: Span::from_nanos(1_000_033) };
        let proactive = Proactive { grants, next: 0 };
        let each: u64 = (0..80_000).map(|number| proactive.bytes_between(number, number + 1)).sum();
        assert_eq!(each, 80_000 * 1_000_033 * 3 / 8_000);
        assert_eq!(proactive.bytes_between(7, 7), 0);
    }

    proptest! {
        /// No capacity stays idle while a flow wants it, and no flow gets more than it requested.
        #[test]
        fn no_capacity_is_idle_while_a_flow_has_requests(
            weight in 1_u8..=255,
            low_latency in 0_u64..5_000,
            classic in 0_u64..5_000,
            reserved in 0_u64..3_000,
        ) {
            let got = grants(weight, [low_latency, classic]).divide(reserved);
            let wanted = [low_latency.saturating_sub(reserved), classic];
            let spare = 2_000_u64.saturating_sub(reserved);
            prop_assert_eq!(got[0] + got[1], spare.min(wanted[0] + wanted[1]));
            prop_assert!(got[0] <= wanted[0] && got[1] <= wanted[1]);
        }
    }
}
