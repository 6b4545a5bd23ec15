//! Counts what a link does to its packets, in every world alike: fates by reason, delays, windows
//! and curves.
//!
//! The driver of a [`Link`] passes on the calls of its observer. Counting
//! a packet allocates nothing, and reads nothing but the packet.

use std::array::from_fn;
use std::collections::BTreeMap;
use std::ops;

use underload_aqm::latency_bins::LatencyEdges;
use underload_aqm::link::Link;
use underload_aqm::packet::Meta;
use underload_aqm::qdisc::{Backlog, Count, DropReason, MarkReason, Stats};
use underload_aqm::remark::Rules;
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};

use crate::stats::Histogram;

/// Packets by fate. Bytes are as the link charges them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub offered: Count,
    /// Packets whose transmission began.
    pub sent: Count,
    drops: [Count; DropReason::ALL.len()],
    marks: [u64; MarkReason::ALL.len()],
    remarks: [u64; Rules::MOST],
    bins: [[u64; LatencyEdges::MOST_BINS]; 2],
    /// Packets that arrived while the queue's AQM slept.
    pub slept: u64,
}

impl Counts {
    /// Returns the drops by reason, without reasons that did not occur.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, Count)> {
        let all = DropReason::ALL.into_iter().zip(self.drops);
        all.filter(|(_, count)| count.packets > 0)
    }

    /// Returns the packets changed from ECT to CE by reason, without reasons that did not occur.
    pub fn marks(&self) -> impl Iterator<Item = (MarkReason, u64)> {
        MarkReason::ALL.into_iter().zip(self.marks).filter(|(_, packets)| *packets > 0)
    }

    /// Returns the packets changed by each rule of the link; rules that it does not have count 0.
    pub const fn remarks(&self) -> &[u64; Rules::MOST] {
        &self.remarks
    }

    /// Returns the packets in each bin of the latency histogram of each service flow, by [`Side`];
    /// bins that it does not have count 0.
    pub const fn bins(&self) -> &[[u64; LatencyEdges::MOST_BINS]; 2] {
        &self.bins
    }

    pub fn dropped_packets(&self) -> u64 {
        self.drops.iter().map(|count| count.packets).sum()
    }

    pub fn marked_packets(&self) -> u64 {
        self.marks.iter().sum()
    }

    fn combine(
        self,
        other: Self,
        counts: fn(Count, Count) -> Count,
        numbers: fn(u64, u64) -> u64,
    ) -> Self {
        Self {
            offered: counts(self.offered, other.offered),
            sent: counts(self.sent, other.sent),
            drops: from_fn(|reason| counts(self.drops[reason], other.drops[reason])),
            marks: from_fn(|reason| numbers(self.marks[reason], other.marks[reason])),
            remarks: from_fn(|rule| numbers(self.remarks[rule], other.remarks[rule])),
            bins: from_fn(|side| {
                from_fn(|bin| numbers(self.bins[side][bin], other.bins[side][bin]))
            }),
            slept: numbers(self.slept, other.slept),
        }
    }
}

impl ops::Add for Counts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.combine(other, ops::Add::add, ops::Add::add)
    }
}

/// The counts between two times.
impl ops::Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        self.combine(earlier, ops::Sub::sub, ops::Sub::sub)
    }
}

/// The packets of one flow that queue protection moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sanction {
    /// Packets moved to the classic queue.
    pub packets: u64,
    /// Time at which the first packet was moved.
    pub first: Time,
    /// Time at which the last packet was moved.
    pub last: Time,
    /// The highest score of the flow at such a time, as the time that it takes to drain.
    pub highest_score: Span,
}

impl Sanction {
    const NONE: Self =
        Self { packets: 0, first: Time::MAX, last: Time::ZERO, highest_score: Span::ZERO };

    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.highest_score = self.highest_score.max(other.highest_score);
    }
}

/// The packets that queue protection moved, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sanctions {
    flows: BTreeMap<u32, Sanction>,
    others: Option<Sanction>,
}

impl Sanctions {
    /// Maximum number of flows counted one by one. Others are counted together, so that memory is
    /// bounded.
    pub const MOST: usize = 1_024;

    /// Returns each flow by its number, in order; `None` is the sum of those counted together.
    pub fn flows(&self) -> impl Iterator<Item = (Option<u32>, &Sanction)> {
        let known = self.flows.iter().map(|(flow, sanction)| (Some(*flow), sanction));
        known.chain(self.others.iter().map(|sanction| (None, sanction)))
    }

    fn add(&mut self, flow: Option<u32>, sanction: &Sanction) {
        let is_full = self.flows.len() >= Self::MOST;
        let told_apart = flow.filter(|flow| !is_full || self.flows.contains_key(flow));
        let known = match told_apart {
            Some(flow) => self.flows.entry(flow).or_insert(Sanction::NONE),
            None => self.others.get_or_insert(Sanction::NONE),
        };
        known.merge(sanction);
    }

    fn merge(&mut self, other: &Self) {
        other.flows().for_each(|(flow, sanction)| self.add(flow, sanction));
    }
}

/// The distributions of waiting times.
#[derive(Clone, Debug)]
pub struct Delays {
    /// From the end of enqueue to the start of transmission.
    pub sojourn: Histogram,
    /// Sojourn plus transmission time. `None` behind a constant rate, where it is size over rate.
    pub queuing_delay: Option<Histogram>,
}

impl Delays {
    /// Returns empty distributions; `varying` for a link whose rate is not constant.
    pub fn new(varying: bool) -> Self {
        Self { sojourn: Histogram::new(), queuing_delay: varying.then(Histogram::new) }
    }
}

/// Counts and delays between two instants.
#[derive(Clone, Debug)]
pub struct Window {
    /// The first time in the window.
    pub start: Time,
    /// The first time after the window.
    pub end: Time,
    pub counts: Counts,
    pub delays: Delays,
    /// Packets that queue protection moved.
    pub sanctions: Sanctions,
}

impl Window {
    /// Adds another window of the same link, so that the tally covers the time of both.
    pub fn merge(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.counts = self.counts + other.counts;
        self.delays.sojourn.merge(&other.delays.sojourn);
        self.sanctions.merge(&other.sanctions);
        if let (Some(ours), Some(others)) =
            (&mut self.delays.queuing_delay, &other.delays.queuing_delay)
        {
            ours.merge(others);
        }
    }
}

/// The state of a link, and what happened since the previous row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub time: Time,
    pub backlog: Backlog,
    /// The longest sojourn since the previous row.
    pub sojourn_max: Span,
    /// Since the previous row.
    pub sent: Count,
    /// Packets since the previous row.
    pub drops: u64,
    /// Packets since the previous row.
    pub marks: u64,
}

/// A link over time.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    pub rows: Vec<Row>,
    /// The gauges of queue and link at the times of `rows`, by name.
    pub gauges: BTreeMap<&'static str, Vec<(Time, f64)>>,
}

impl Curves {
    /// Adds a row, with the gauges of `link`.
    pub fn push<P>(&mut self, row: Row, link: &Link<P>) {
        self.rows.push(row);
        let mut note = |name, value| self.gauges.entry(name).or_default().push((row.time, value));
        link.gauges(&mut note);
    }
}

/// Counts what one link does.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Since the beginning; `offered` comes from the queue's own counters.
    total: Counts,
    /// The total when the window began, and that time.
    before: Counts,
    start: Time,
    delays: Delays,
    sanctions: Sanctions,
    /// The total at the last row, and the longest sojourn since that row.
    row_before: Counts,
    sojourn_max: Span,
}

impl Tally {
    /// Returns an empty tally from `start` on; `varying` for a link whose rate is not constant.
    pub fn new(start: Time, varying: bool) -> Self {
        Self {
            total: Counts::default(),
            before: Counts::default(),
            start,
            delays: Delays::new(varying),
            sanctions: Sanctions::default(),
            row_before: Counts::default(),
            sojourn_max: Span::ZERO,
        }
    }

    pub fn dropped(&mut self, meta: &Meta, reason: DropReason) {
        self.total.drops[reason as usize].add(meta.len);
    }

    /// Counts a packet of `flow` that queue protection moved; its score takes `score` to drain.
    #[cold]
    pub fn sanctioned(&mut self, now: Time, flow: u32, score: Span) {
        let sanction = Sanction { packets: 1, first: now, last: now, highest_score: score };
        self.sanctions.add(Some(flow), &sanction);
    }

    /// Counts a packet that left the queue of `side` with a sojourn in bin `bin`.
    #[inline]
    pub fn binned(&mut self, side: Side, bin: usize) {
        self.total.bins[side as usize][bin] += 1;
    }

    /// Counts a packet that was changed from ECT to CE.
    pub fn marked(&mut self, reason: MarkReason) {
        self.total.marks[reason as usize] += 1;
    }

    /// Counts a packet that rule `rule` of the link changed.
    pub fn remarked(&mut self, rule: usize) {
        if let Some(count) = self.total.remarks.get_mut(rule) {
            *count += 1;
        }
    }

    /// Counts a packet that is transmitted from `start` to `end`.
    #[inline]
    pub fn transmitted(&mut self, start: Time, end: Time, meta: &Meta) {
        let sojourn = start.since(meta.arrived);
        self.total.sent.add(meta.len);
        self.delays.sojourn.record(sojourn.as_nanos());
        if let Some(queuing_delay) = &mut self.delays.queuing_delay {
            queuing_delay.record(end.since(meta.arrived).as_nanos());
        }
        self.sojourn_max = self.sojourn_max.max(sojourn);
    }

    /// Returns the counts since the beginning, without `offered`.
    pub const fn total(&self) -> &Counts {
        &self.total
    }

    /// Returns what queue protection did in this window.
    pub const fn sanctions(&self) -> &Sanctions {
        &self.sanctions
    }

    pub const fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Ends the window at `now` and begins the next one. `queue` are the queue's own counts since its
    /// creation.
    pub fn end_window(&mut self, now: Time, queue: Stats) -> Window {
        (self.total.offered, self.total.slept) = (queue.offered, queue.slept);
        let counts = self.total - self.before;
        self.before = self.total;
        let empty = Delays::new(self.delays.queuing_delay.is_some());
        let delays = std::mem::replace(&mut self.delays, empty);
        let sanctions = std::mem::take(&mut self.sanctions);
        let start = std::mem::replace(&mut self.start, now);
        Window { start, end: now, counts, delays, sanctions }
    }

    /// Ends a row of the curves at `now`. `backlog` is the queue's backlog.
    pub fn end_row(&mut self, now: Time, backlog: Backlog) -> Row {
        let since = self.total - self.row_before;
        self.row_before = self.total;
        Row {
            time: now,
            backlog,
            sojourn_max: std::mem::take(&mut self.sojourn_max),
            sent: since.sent,
            drops: since.dropped_packets(),
            marks: since.marked_packets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn offered(packets: u64) -> Count {
        Count { packets, bytes: packets * 1_000 }
    }

    fn counted(packets: u64) -> Stats {
        Stats { offered: offered(packets), slept: packets / 3, ..Stats::default() }
    }

    /// A packet that arrived at `at`, waited for 2 ms, and took 1 ms to transmit.
    fn send(tally: &mut Tally, at: u64) {
        let meta = Meta { arrived: ms(at), ..Meta::new(1_000, 0) };
        tally.transmitted(ms(at + 2), ms(at + 3), &meta);
    }

    #[test]
    fn a_window_counts_its_packets() {
        let mut tally = Tally::new(ms(0), true);
        send(&mut tally, 0);
        tally.dropped(&Meta::new(700, 0), DropReason::Loss);
        let first = tally.end_window(ms(10), counted(3));
        send(&mut tally, 10);
        send(&mut tally, 11);
        tally.marked(MarkReason::Threshold);
        tally.remarked(1);
        let second = tally.end_window(ms(20), counted(6));
        assert_eq!(
            (first.start, first.end, second.start, second.end),
            (ms(0), ms(10), ms(10), ms(20))
        );
        assert_eq!((first.counts.offered, second.counts.offered), (offered(3), offered(3)));
        assert_eq!((first.counts.sent, second.counts.sent), (offered(1), offered(2)));
        let loss = (DropReason::Loss, Count { packets: 1, bytes: 700 });
        assert_eq!(first.counts.drops().collect::<Vec<_>>(), [loss]);
        assert_eq!((first.counts.slept, second.counts.slept), (1, 1));
        assert_eq!(second.counts.drops().count(), 0);
        assert_eq!(second.counts.marks().collect::<Vec<_>>(), [(MarkReason::Threshold, 1)]);
        assert_eq!((first.delays.sojourn.count(), second.delays.sojourn.count()), (1, 2));
        assert_eq!((first.counts.remarks()[1], second.counts.remarks()[1]), (0, 1));
        let queuing = second.delays.queuing_delay.as_ref().and_then(Histogram::max);
        assert_eq!((second.delays.sojourn.max(), queuing), (Some(2 * MS), Some(3 * MS)));
        let mut both = first;
        both.merge(&second);
        assert_eq!((both.start, both.end), (ms(0), ms(20)));
        assert_eq!((both.counts.offered, both.counts.sent), (offered(6), offered(3)));
        assert_eq!(both.delays.sojourn.count(), 3);
    }

    #[test]
    fn a_row_counts_since_the_last_row_for_any_window() {
        let mut tally = Tally::new(ms(0), false);
        send(&mut tally, 0);
        tally.end_window(ms(5), counted(1));
        tally.dropped(&Meta::new(700, 0), DropReason::Early);
        let backlog = Backlog { packets: 2, bytes: 900 };
        let first = tally.end_row(ms(10), backlog);
        let expected = Row {
            time: ms(10),
            backlog,
            sojourn_max: Span::from_millis(2),
            sent: offered(1),
            drops: 1,
            marks: 0,
        };
        assert_eq!(first, expected);
        let second = tally.end_row(ms(20), Backlog::default());
        assert_eq!(second, Row { time: ms(20), ..Row::default() });
    }

    #[test]
    fn sanctions_and_bins_belong_to_a_window_and_flows_to_a_limit() {
        let mut tally = Tally::new(ms(0), false);
        for number in 0..=Sanctions::MOST as u32 + 1 {
            tally.sanctioned(ms(u64::from(number)), number, Span::from_millis(1));
        }
        tally.sanctioned(ms(5_000), 7, Span::from_millis(9));
        for bin in [0, 3, 3] {
            tally.binned(Side::LowLatency, bin);
        }
        let first = tally.end_window(ms(6_000), counted(3));
        tally.binned(Side::LowLatency, 3);
        tally.sanctioned(ms(7_000), 7, Span::from_millis(2));
        let second = tally.end_window(ms(8_000), counted(3));
        assert_eq!(first.counts.bins()[0][..4], [1, 0, 0, 2]);
        assert_eq!((second.counts.bins()[0][3], second.counts.bins()[1]), (1, [0; 16]));
        let of = |window: &Window, flow| {
            let mut flows = window.sanctions.flows();
            flows.find(|(known, _)| *known == flow).map(|(_, sanction)| *sanction)
        };
        let (once, later) = (ms(7), ms(5_000));
        let highest_score = Span::from_millis(9);
        let seven = Sanction { packets: 2, first: once, last: later, highest_score };
        assert_eq!(of(&first, Some(7)), Some(seven));
        assert_eq!(of(&first, None).map(|others| others.packets), Some(2), "beyond the limit");
        assert_eq!(first.sanctions.flows().count(), Sanctions::MOST + 1);
        let mut both = first;
        both.merge(&second);
        assert_eq!(of(&both, Some(7)), Some(Sanction { packets: 3, last: ms(7_000), ..seven }));
        assert_eq!(both.counts.bins()[0][3], 3);
    }

    #[test]
    fn every_reason_has_a_separate_counter() {
        let mut tally = Tally::new(ms(0), false);
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(DropReason::ALL[reason as usize], reason);
            (0..=times).for_each(|_| tally.dropped(&Meta::new(10, 0), reason));
        }
        for (times, reason) in MarkReason::ALL.into_iter().enumerate() {
            assert_eq!(MarkReason::ALL[reason as usize], reason);
            (0..=times).for_each(|_| tally.marked(reason));
        }
        let counts = tally.end_window(ms(1), Stats::default()).counts;
        let drops: Vec<u64> = counts.drops().map(|(_, count)| count.packets).collect();
        let marks: Vec<u64> = counts.marks().map(|(_, packets)| packets).collect();
        assert_eq!(drops, (1..=DropReason::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(marks, (1..=MarkReason::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(counts.dropped_packets(), drops.iter().sum::<u64>());
        assert_eq!(counts.marked_packets(), marks.iter().sum::<u64>());
    }
}
