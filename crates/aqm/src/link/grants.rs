//! Requests and grants of a DOCSIS upstream, in front of which packets wait in the queue: each
//! service flow requests grants for its backlog, and a packet stays in the queue until a grant of
//! its flow covers it. A queue without service flows is one flow. With two, a packet of the low
//! latency flow overtakes inside the modem.
//!
//! The modem requests at each MAP boundary, for each flow, the bytes that are stored and not yet
//! requested. The CMTS divides the bytes of one MAP interval: at most the peak rate, within the
//! token buckets of the aggregate and of each flow at the end of the interval;
//! `weight : 256 - weight` while both flows want more, and all of it for a single one. These grants
//! begin `to_grant` after the boundary, those of the low latency flow first. Proactive grants come
//! in addition, used or not, and count against the low latency flow's share (as in CableLabs'
//! simulator, docsis-ns3).
//!
//! A byte that leaves at once therefore occupies the buffer for the rest of a MAP interval and for
//! `to_grant`, and under load for both in full, T. By Little's law a buffer of B bytes carries at
//! most B / T, however many requests overlap.
//!
//! Grants to a flow that stores nothing are lost, and return to the token buckets. With a grant that
//! does not cover a whole packet the modem sends a fragment; the packet stays in the queue until the
//! grant that covers its last byte. Requests are never lost and never collide.
//!
//! [`RequestGrant`] has what differs between generations of DOCSIS. Before 3.0 a flow may have one
//! request outstanding, for one burst: it carries F bytes per cycle T1, whatever the buffer. The next
//! request is in the header of the grant, so T1 is `to_grant`, rounded up to MAP intervals.
//!
//! Random numbers belong to MAP intervals and not to events, so that an interval has the same ones
//! behind every queue and source.

use alloc::collections::VecDeque;

use crate::rate::Rate;
use crate::rng::{Rng, mix};
use crate::service_flow::{Contract, FlowRates, ProactiveGrants, Side, Waiting};
use crate::time::{Span, Time};
use crate::token_bucket::{MAX_BURST_BYTES, NANOBITS_PER_BYTE};

/// The parameters of a service flow, or of an aggregate of two, that requests grants.
#[derive(Clone, Copy, Debug)]
pub struct RequestGrant {
    /// Time between MAP boundaries; not zero.
    pub map_interval: Span,
    /// From the MAP boundary that carries a request until the packets of its grant leave the queue.
    pub to_grant: Span,
    /// From then to the start of the grant: the modem prepares the burst.
    pub preparation: Span,
    /// Maximum sustained traffic rate; not zero.
    pub rate: Rate,
    /// Maximum traffic burst, which also bounds the grants of one MAP interval.
    pub burst_bytes: u64,
    /// The rate of a granted transmission; not zero.
    pub peak: Rate,
    /// How the modem requests transmissions.
    pub request: RequestMode,
    /// Largest burst of a flow that may have only one request outstanding; `None` if it may have
    /// several.
    pub max_burst_bytes: Option<u64>,
    /// The load of other modems.
    pub busy: Busy,
}

impl RequestGrant {
    /// Returns the latest time, on an upstream that is not full, at which the grant begins that
    /// covers a packet that arrived at `arrived`.
    pub(super) fn latest_grant(&self, arrived: Time) -> Time {
        let map = self.map_interval;
        let boundaries = |span: Span| span.as_nanos().div_ceil(map.as_nanos());
        let mut wait = boundaries(arrived.since(Time::ZERO));
        // A packet misses an interval if the header of the next burst is written already, and one if
        // the random time has passed.
        wait += u64::from(self.preparation > Span::ZERO);
        wait += u64::from(self.request == RequestMode::ContentionRandom);
        // Its request waits until an earlier one is granted, or for an interval without a grant.
        if self.max_burst_bytes.is_some() || self.request == RequestMode::ContentionOnly {
            wait += boundaries(self.to_grant);
        }
        Time::ZERO + map * wait + self.to_grant
    }
}

/// The share of each MAP interval, at the peak rate, that other modems use, in fractions of 2^32.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// Mean of the share.
    pub mean_q32: u64,
    /// Largest distance from the mean; at most `mean_q32`, and at most what is left of 2^32.
    pub variation_q32: u64,
}

/// When a modem may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMode {
    /// At every MAP boundary: in the header of a grant, or by contention at the interval's start.
    ContentionStart,
    /// In the header of a grant, or by contention at a random time of an interval without a grant,
    /// which counts at the next boundary.
    ContentionRandom,
    /// At the boundary of an interval without a grant.
    ContentionOnly,
}

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
    /// Number of the MAP interval whose random time for requests is next.
    next_contention: u64,
    /// Identifies the stream of random numbers.
    stream: u64,
    /// Grants that have not begun, by time: start, and bytes by [`Side`].
    coming: VecDeque<(Time, [u64; 2])>,
    /// When the current transmission ends.
    busy_until: Time,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// The flow's own sustained and peak rate.
    limits: [Option<Bucket>; 2],
    /// Bytes requested and not granted.
    pending: u64,
    /// Bytes requested in the header of a burst that begins after the next MAP boundary.
    in_header: u64,
    /// Bytes of the grants in `coming`.
    promised: u64,
    /// Bytes of grants that have begun, not used yet.
    credit: u64,
    /// Bytes of the next packet that earlier grants have sent.
    fragment: u64,
    /// Number of the last MAP interval in which a requested grant has begun, or is being prepared.
    granted_map: Option<u64>,
    counted: Counted,
}

/// Bytes since the link was created.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    requested: u64,
    /// Bytes of grants that have begun, including proactive grants.
    granted: u64,
    /// Granted bytes for which no packet was stored.
    unused: u64,
}

impl Grants {
    /// Returns an idle upstream for the flows of `contract`. It draws from a child stream of `rng`.
    pub fn new(timing: RequestGrant, contract: &Contract, rng: &Rng) -> Self {
        let map = timing.map_interval;
        assert!(map > Span::ZERO, "configuration refuses a MAP interval of zero");
        let ahead = timing.to_grant.as_nanos() / map.as_nanos() + 2;
        Self {
            timing,
            weight: contract.weight,
            proactive: contract.proactive.map(|grants| Proactive { grants, next: 0 }),
            aggregate: [
                Bucket::new(timing.rate, timing.burst_bytes, Span::ZERO),
                Bucket::new(timing.peak, 1, map),
            ],
            flows: contract.flows.map(|rates| Flow::new(rates, map)),
            next_map: 0,
            next_contention: 0,
            stream: rng.child("grants").next_u64(),
            coming: VecDeque::with_capacity(ahead as usize),
            busy_until: Time::ZERO,
        }
    }

    /// Reports the bytes of each flow, by dotted name. Proactive grants that pass while no packet
    /// waits are counted when the next packet arrives.
    pub(super) fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        for (flow, names) in self.flows.iter().zip(GAUGES) {
            let Counted { requested, granted, unused } = flow.counted;
            let values = [requested, flow.outstanding(), granted, unused];
            names.into_iter().zip(values).for_each(|(name, value)| visit(name, value as f64));
        }
    }

    /// Restarts an idle upstream when a packet arrives at `now`: skips the time between. Returns the
    /// time of the next event.
    pub(super) fn resume(&mut self, now: Time) -> Time {
        let map = self.timing.map_interval;
        let boundary = now.as_nanos().div_ceil(map.as_nanos());
        let passed = map * (boundary - self.next_map.min(boundary));
        self.next_map = self.next_map.max(boundary);
        self.buckets(|bucket, _| bucket.gain(passed));
        self.next_contention = self.next_contention.max(now.as_nanos() / map.as_nanos());
        if self.contention() < now {
            self.next_contention += 1;
        }
        if let Some(proactive) = &mut self.proactive {
            let lost = proactive.pass(now);
            let counted = &mut self.flows[Side::LowLatency as usize].counted;
            counted.granted += lost;
            counted.unused += lost;
        }
        self.reserve_ahead(Bucket::take);
        self.proactive_start().into_iter().fold(self.boundary().min(self.contention()), Time::min)
    }

    /// Whether no transmission is under way at `now`.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.busy_until <= now
    }

    /// Returns the bytes of a packet of `side`, `len` bytes long, that are still to be sent; `None`
    /// if the grants do not cover them.
    pub(super) fn rest(&self, side: Side, len: u32) -> Option<u32> {
        let flow = &self.flows[side as usize];
        let rest = u64::from(len).saturating_sub(flow.fragment);
        (rest <= flow.credit).then_some(rest as u32)
    }

    /// Makes requests and begins the grants that are due at `now`, from [`Grants::next_event`].
    pub(super) fn advance(&mut self, now: Time, waiting: [Waiting; 2]) {
        self.begin(now, waiting);
        if self.boundary() <= now {
            for side in Side::ALL {
                if self.requests_at_boundary(side) {
                    self.request(side, waiting[side as usize], now);
                }
            }
            self.grant();
            self.next_map += 1;
            self.begin(now, waiting);
        }
        if self.contention() <= now {
            for side in Side::ALL {
                if !self.has_grant(side, self.next_contention) {
                    self.request(side, waiting[side as usize], now);
                }
            }
            self.next_contention += 1;
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
            let covered = |len| self.rest(side, len).is_some();
            let head = waiting[side as usize].head_bytes;
            if head.is_some_and(covered) {
                return Some(side);
            }
            let flow = &mut self.flows[side as usize];
            let bytes = core::mem::take(&mut flow.credit);
            flow.fragment += bytes;
            if head.is_some() && bytes > 0 {
                self.busy_until = now + self.timing.peak.time_for(bytes).unwrap_or_default();
                return None;
            }
            if head.is_none() && flow.fragment > 0 {
                let lost = core::mem::take(&mut flow.fragment);
                flow.counted.unused += lost;
                self.charge(side, |bucket| bucket.give_back(lost));
            }
        }
        None
    }

    /// Records that a packet of `side`, `len` bytes long, is sent until `end`.
    pub(super) fn sent(&mut self, side: Side, len: u32, end: Time) {
        let flow = &mut self.flows[side as usize];
        let used = flow.fragment.min(u64::from(len));
        flow.fragment -= used;
        flow.credit = flow.credit.saturating_sub(u64::from(len) - used);
        self.busy_until = end;
    }

    /// Returns the time of the next event after `now`; `None` if only a new packet makes one.
    pub(super) fn next_event(&mut self, now: Time, waiting: [Waiting; 2]) -> Option<Time> {
        let is_busy = !self.is_free(now);
        let asks = self.flows.iter().any(|flow| flow.pending + flow.in_header > 0);
        let stores = waiting.iter().any(|waiting| waiting.head_bytes.is_some());
        if !is_busy && !asks && !stores && self.coming.is_empty() {
            self.reserve_ahead(Bucket::give_back);
            return None;
        }
        let end = if is_busy { self.busy_until } else { Time::MAX };
        let grant = self.coming.front().map_or(Time::MAX, |(start, _)| *start);
        let proactive = self.proactive_start().unwrap_or(Time::MAX);
        Some(end.min(grant).min(proactive).min(self.boundary()).min(self.contention()))
    }

    /// Returns the time of the next proactive grant.
    fn proactive_start(&self) -> Option<Time> {
        self.proactive.as_ref().map(|proactive| proactive.time(proactive.next))
    }

    /// Returns the time of the next MAP boundary.
    fn boundary(&self) -> Time {
        Time::ZERO + self.timing.map_interval * self.next_map
    }

    /// Returns the next time at which a modem without a grant may request, if that is random.
    fn contention(&self) -> Time {
        if self.timing.request != RequestMode::ContentionRandom {
            return Time::MAX;
        }
        let map = self.timing.map_interval;
        let number = self.next_contention;
        let part = (map.as_nanos() * (self.draw(number) >> 32)) >> 32;
        Time::ZERO + map * number + Span::from_nanos(part)
    }

    /// Returns the random number of a MAP interval.
    const fn draw(&self, map: u64) -> u64 {
        mix(self.stream ^ map)
    }

    /// Begins the grants that are due at `now`.
    fn begin(&mut self, now: Time, waiting: [Waiting; 2]) {
        let RequestGrant { map_interval, preparation, request, .. } = self.timing;
        while let Some((start, bytes)) = self.coming.pop_front_if(|(start, _)| *start <= now) {
            let map = (start + preparation).as_nanos() / map_interval.as_nanos();
            for side in Side::ALL {
                let (flow, bytes) = (&mut self.flows[side as usize], bytes[side as usize]);
                flow.promised -= bytes;
                flow.begin(bytes);
                if bytes > 0 {
                    flow.granted_map = Some(map);
                }
                let is_prepared =
                    preparation > Span::ZERO && request == RequestMode::ContentionStart;
                if bytes > 0 && (is_prepared || request == RequestMode::ContentionRandom) {
                    self.request(side, waiting[side as usize], start + preparation);
                }
            }
        }
    }

    /// Whether a requested grant of `side` begins in MAP interval number `map`, or before its end.
    fn has_grant(&self, side: Side, map: u64) -> bool {
        let end = Time::ZERO + self.timing.map_interval * (map + 1);
        let is_coming = self.coming.front().is_some_and(|(start, bytes)| {
            *start + self.timing.preparation < end && bytes[side as usize] > 0
        });
        is_coming || self.flows[side as usize].granted_map >= Some(map)
    }

    fn requests_at_boundary(&self, side: Side) -> bool {
        match self.timing.request {
            // A grant that is being prepared has the request in its header.
            RequestMode::ContentionStart => {
                let granted = self.flows[side as usize].granted_map;
                self.timing.preparation == Span::ZERO || granted < Some(self.next_map)
            }
            RequestMode::ContentionOnly => !self.has_grant(side, self.next_map),
            RequestMode::ContentionRandom => false,
        }
    }

    /// Requests the bytes of a flow that are stored and not yet requested. The CMTS hears it at
    /// `heard`.
    fn request(&mut self, side: Side, waiting: Waiting, heard: Time) {
        let next_boundary = self.boundary();
        let flow = &mut self.flows[side as usize];
        let outstanding = flow.outstanding();
        let asked = outstanding + flow.credit + flow.fragment;
        let mut request = waiting.bytes.saturating_sub(asked);
        if let Some(most) = self.timing.max_burst_bytes {
            if outstanding > 0 {
                return;
            }
            // Whole packets, as large as the first; the modem does not look further.
            let packet = waiting.head_bytes.map_or(1, u64::from).max(1);
            request = request.min((most - most % packet).max(packet));
        }
        if heard > next_boundary {
            flow.in_header += request;
        } else {
            flow.pending += request;
        }
        flow.counted.requested += request;
    }

    /// Makes the CMTS's grants at the current boundary.
    fn grant(&mut self) {
        self.share_channel();
        let start = self.boundary() + self.timing.to_grant;
        let reserved = self.proactive.as_ref().map_or(0, |proactive| {
            proactive.bytes_between_times(start, start + self.timing.map_interval)
        });
        let asks = self.flows.iter().any(|flow| flow.pending > 0);
        let bytes = if asks { self.divide(reserved) } else { [0, 0] };
        let taken = [reserved + bytes[0], bytes[1]];
        let map = self.timing.map_interval;
        self.buckets(|bucket, side| {
            let total = taken.iter().sum();
            bucket.settle(map, side.map_or(total, |side| taken[side as usize]));
        });
        for (flow, bytes) in self.flows.iter_mut().zip(bytes) {
            flow.pending = flow.pending - bytes + core::mem::take(&mut flow.in_header);
            flow.promised += bytes;
        }
        // Proactive grants cover these bytes, so they need no request.
        let low_latency = &mut self.flows[Side::LowLatency as usize];
        low_latency.pending = low_latency.pending.saturating_sub(reserved);
        if bytes != [0, 0] {
            self.coming.push_back((start, bytes));
        }
    }

    /// Subtracts the other modems' share of this MAP interval from the aggregate's peak rate.
    fn share_channel(&mut self) {
        let Busy { mean_q32, variation_q32 } = self.timing.busy;
        if mean_q32 == 0 {
            return;
        }
        let draw = self.draw(self.next_map) & u64::from(u32::MAX);
        let busy = mean_q32 - variation_q32 + ((2 * variation_q32 * draw) >> 32);
        let free = u128::from((1_u64 << 32) - busy);
        let peak = (u128::from(self.timing.peak.bits_per_second()) * free) >> 32;
        let peak = Rate::from_bits_per_second(peak as u64);
        let tokens = self.aggregate[1].tokens;
        self.aggregate[1] = Bucket { tokens, ..Bucket::new(peak, 1, self.timing.map_interval) };
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
    fn new(rates: FlowRates, map: Span) -> Self {
        let peak = |rate| Bucket::new(rate, FlowRates::PEAK_BURST_BYTES, map);
        let sustained = rates.sustained.map(|rate| Bucket::new(rate, rates.burst_bytes, map));
        Self { limits: [sustained, rates.peak.map(peak)], ..Self::default() }
    }

    /// Returns the bytes requested whose grant has not begun.
    const fn outstanding(&self) -> u64 {
        self.pending + self.in_header + self.promised
    }

    const fn begin(&mut self, bytes: u64) {
        self.credit += bytes;
        self.counted.granted += bytes;
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

/// A token bucket that is settled once per MAP interval, in nanobits: the tokens of the interval are
/// there when it begins. The bucket is below zero after proactive grants took more than it had.
#[derive(Clone, Debug)]
struct Bucket {
    rate: Rate,
    capacity: i128,
    tokens: i128,
}

impl Bucket {
    /// Returns a full bucket that has room for `burst_bytes` and the income of `beyond`.
    fn new(rate: Rate, burst_bytes: u64, beyond: Span) -> Self {
        let capacity = nanobits(burst_bytes.min(MAX_BURST_BYTES)) + income(rate, beyond);
        Self { rate, capacity, tokens: capacity }
    }

    fn after(&self, time: Span) -> i128 {
        (self.tokens + income(self.rate, time)).min(self.capacity)
    }

    /// Returns the bytes that may be granted in the next interval.
    fn bytes_at_end(&self, map: Span) -> u64 {
        let nanobits = self.after(map).max(0);
        // Wide numbers divide slowly.
        match u64::try_from(nanobits) {
            Ok(nanobits) => nanobits / NANOBITS_PER_BYTE,
            Err(_) => u64::try_from(nanobits / i128::from(NANOBITS_PER_BYTE)).unwrap_or(u64::MAX),
        }
    }

    /// Settles an interval in which `bytes` are granted.
    fn settle(&mut self, map: Span, bytes: u64) {
        self.tokens = self.after(map) - nanobits(bytes);
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

/// Returns the nanobits of `rate` in `time`.
fn income(rate: Rate, time: Span) -> i128 {
    i128::from(rate.bits_per_second()) * i128::from(time.as_nanos())
}

fn nanobits(bytes: u64) -> i128 {
    i128::from(bytes) * i128::from(NANOBITS_PER_BYTE)
}

/// The gauges by [`Side`]: bytes requested, requested and not yet granted, granted, and unused.
const GAUGES: [[&str; 4]; 2] = [
    [
        "grants.low_latency_requested_bytes",
        "grants.low_latency_outstanding_bytes",
        "grants.low_latency_granted_bytes",
        "grants.low_latency_unused_bytes",
    ],
    [
        "grants.requested_bytes", "grants.outstanding_bytes", "grants.granted_bytes",
        "grants.unused_bytes",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn rate(kilobits: u64) -> Rate {
        Rate::from_bits_per_second(kilobits * 1_000)
    }

    /// 2 ms of 8 Mbit/s are 2000 bytes; the bucket is empty.
    fn grants(weight: u8, pending: [u64; 2]) -> Grants {
        let timing = RequestGrant {
            map_interval: Span::from_millis(2),
            to_grant: Span::from_millis(4),
            rate: rate(8_000),
            burst_bytes: 5_044,
            peak: rate(80_000),
            preparation: Span::ZERO,
            request: RequestMode::ContentionStart,
            max_burst_bytes: None,
            busy: Busy { mean_q32: 0, variation_q32: 0 },
        };
        let contract = Contract { weight, flows: [FlowRates::UNLIMITED; 2], proactive: None };
        let mut grants = Grants::new(timing, &contract, &Rng::new(1));
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
        (grants.aggregate[0].tokens, grants.aggregate[0].capacity) = (1 << 99, 1 << 99);
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
