//! What a link did to its packets, counted alike in every world: fates by reason, delays, windows
//! and curves.
//!
//! Whoever drives a [`Link`](super::Link) passes on what its observer hears. Counting a packet
//! neither allocates nor looks at anything but the packet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops;

use crate::histogram::Histogram;
use crate::latency_bins::LatencyEdges;
use crate::packet::Meta;
use crate::qdisc::{Backlog, Count, DropReason, MarkReason, Qdisc};
use crate::remark::Rules;
use crate::service_flow::Side;
use crate::time::{Span, Time};

/// Packets by fate. Bytes are as the link charges them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Offered to the queue.
    pub offered: Count,
    /// Transmission begun.
    pub sent: Count,
    drops: [Count; DropReason::ALL.len()],
    marks: [u64; MarkReason::ALL.len()],
    remarks: [u64; Rules::MOST],
    bins: [[u64; LatencyEdges::MOST_BINS]; 2],
}

impl Counts {
    /// What was dropped, by the reasons that occurred.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, Count)> {
        let all = DropReason::ALL.into_iter().zip(self.drops);
        all.filter(|(_, count)| count.packets > 0)
    }

    /// Packets changed from ECT to CE, by the reasons that occurred.
    pub fn marks(&self) -> impl Iterator<Item = (MarkReason, u64)> {
        MarkReason::ALL.into_iter().zip(self.marks).filter(|(_, packets)| *packets > 0)
    }

    /// Packets changed by each rule of the link, as far as a link can have any.
    pub const fn remarks(&self) -> &[u64; Rules::MOST] {
        &self.remarks
    }

    /// Packets by the bins of the latency histogram of each service flow, by [`Side`], as far as a
    /// histogram can have any.
    pub const fn bins(&self) -> &[[u64; LatencyEdges::MOST_BINS]; 2] {
        &self.bins
    }

    /// Packets dropped for any reason.
    pub fn dropped_packets(&self) -> u64 {
        self.drops.iter().map(|count| count.packets).sum()
    }

    /// Packets marked for any reason.
    pub fn marked_packets(&self) -> u64 {
        self.marks.iter().sum()
    }
}

impl ops::Add for Counts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            sent: self.sent + other.sent,
            drops: core::array::from_fn(|reason| self.drops[reason] + other.drops[reason]),
            marks: core::array::from_fn(|reason| self.marks[reason] + other.marks[reason]),
            remarks: core::array::from_fn(|rule| self.remarks[rule] + other.remarks[rule]),
            bins: pairwise(&self.bins, &other.bins, |ours, others| ours + others),
        }
    }
}

/// The counts between two instants.
impl ops::Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            offered: self.offered - earlier.offered,
            sent: self.sent - earlier.sent,
            drops: core::array::from_fn(|reason| self.drops[reason] - earlier.drops[reason]),
            marks: core::array::from_fn(|reason| self.marks[reason] - earlier.marks[reason]),
            remarks: core::array::from_fn(|rule| self.remarks[rule] - earlier.remarks[rule]),
            bins: pairwise(&self.bins, &earlier.bins, |now, before| now - before),
        }
    }
}

/// Bin by bin.
fn pairwise<const N: usize>(
    first: &[[u64; N]; 2],
    second: &[[u64; N]; 2],
    combine: impl Fn(u64, u64) -> u64,
) -> [[u64; N]; 2] {
    core::array::from_fn(|side| {
        core::array::from_fn(|bin| combine(first[side][bin], second[side][bin]))
    })
}

/// What queue protection did to one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sanction {
    /// Packets sent to the classic queue.
    pub packets: u64,
    /// When the first of them was.
    pub first: Time,
    /// When the last of them was.
    pub last: Time,
    /// The highest score that the flow had then, as the time that it takes to drain.
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

/// What queue protection did, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sanctions {
    flows: BTreeMap<u32, Sanction>,
    others: Option<Sanction>,
}

impl Sanctions {
    /// Flows that are told apart; more are counted together, so that memory stays bounded.
    pub const MOST: usize = 1_024;

    /// Each flow by its number, in order; `None` stands for all that are not told apart.
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

/// Distribution of the times that packets waited.
#[derive(Clone, Debug)]
pub struct Delays {
    /// Start of transmission minus end of enqueue.
    pub sojourn: Histogram,
    /// The same and the packet's own transmission. `None` behind a constant rate, where that is
    /// size over rate.
    pub queuing_delay: Option<Histogram>,
}

impl Delays {
    /// None so far; `varying`: the link's rate is not constant.
    pub fn new(varying: bool) -> Self {
        Self { sojourn: Histogram::new(), queuing_delay: varying.then(Histogram::new) }
    }
}

/// Counts and delays between two instants.
#[derive(Clone, Debug)]
pub struct Window {
    /// First instant inside.
    pub start: Time,
    /// First instant after.
    pub end: Time,
    /// Fates of the packets.
    pub counts: Counts,
    /// Delays of those sent.
    pub delays: Delays,
    /// What queue protection did.
    pub sanctions: Sanctions,
}

impl Window {
    /// Adds what happened in another window of the same link; the times become those of both.
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

/// The state of a link at one instant, and what happened since the row before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub time: Time,
    /// In the queue.
    pub backlog: Backlog,
    /// The longest since the row before.
    pub sojourn_max: Span,
    /// Since the row before.
    pub sent: Count,
    /// Packets, since the row before.
    pub drops: u64,
    /// Packets, since the row before.
    pub marks: u64,
}

/// A link over time.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// In order of time.
    pub rows: Vec<Row>,
    /// The queue's own state at the times of the rows, by name.
    pub gauges: BTreeMap<&'static str, Vec<(Time, f64)>>,
}

impl Curves {
    /// Adds a row, and what `queue` shows of itself then.
    pub fn push<P>(&mut self, row: Row, queue: &dyn Qdisc<P>) {
        self.rows.push(row);
        let mut note = |name, value| self.gauges.entry(name).or_default().push((row.time, value));
        queue.gauges(&mut note);
    }
}

/// Counts what one link does.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Since the beginning; `offered` is the queue's to count.
    total: Counts,
    /// The total when the window began, and when that was.
    before: Counts,
    start: Time,
    delays: Delays,
    sanctions: Sanctions,
    /// The total at the last row of the curves, and the longest sojourn since.
    row_before: Counts,
    sojourn_max: Span,
}

impl Tally {
    /// Nothing so far; the first window begins at `start`. `varying`: the link's rate is not
    /// constant.
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

    /// A packet was dropped by queue or link.
    pub fn dropped(&mut self, meta: &Meta, reason: DropReason) {
        self.total.drops[reason as usize].add(meta.len);
    }

    /// Queue protection sent a packet of `flow`, whose score takes so long to drain, away.
    #[cold]
    pub fn sanctioned(&mut self, now: Time, flow: u32, score: Span) {
        let sanction = Sanction { packets: 1, first: now, last: now, highest_score: score };
        self.sanctions.add(Some(flow), &sanction);
    }

    /// A packet left the queue of `side` after a time of that bin.
    #[inline]
    pub fn binned(&mut self, side: Side, bin: usize) {
        self.total.bins[side as usize][bin] += 1;
    }

    /// A packet was changed from ECT to CE.
    pub fn marked(&mut self, reason: MarkReason) {
        self.total.marks[reason as usize] += 1;
    }

    /// A packet was changed by this rule of the link.
    pub fn remarked(&mut self, rule: usize) {
        if let Some(count) = self.total.remarks.get_mut(rule) {
            *count += 1;
        }
    }

    /// A packet's transmission began at `start`, and ends at `end`.
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

    /// Fates since the beginning, without what was offered.
    pub const fn total(&self) -> &Counts {
        &self.total
    }

    /// What queue protection did since the window began.
    pub const fn sanctions(&self) -> &Sanctions {
        &self.sanctions
    }

    /// Delays since the window began.
    pub const fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Ends the window at `now`, where the next one begins. `offered` is what the queue was offered
    /// since its creation ([`Stats::offered`](crate::qdisc::Stats::offered)).
    pub fn end_window(&mut self, now: Time, offered: Count) -> Window {
        self.total.offered = offered;
        let counts = self.total - self.before;
        self.before = self.total;
        let empty = Delays::new(self.delays.queuing_delay.is_some());
        let delays = core::mem::replace(&mut self.delays, empty);
        let sanctions = core::mem::take(&mut self.sanctions);
        let start = core::mem::replace(&mut self.start, now);
        Window { start, end: now, counts, delays, sanctions }
    }

    /// Ends a row of the curves at `now`, when the queue holds `backlog`.
    pub fn end_row(&mut self, now: Time, backlog: Backlog) -> Row {
        let since = self.total - self.row_before;
        self.row_before = self.total;
        Row {
            time: now,
            backlog,
            sojourn_max: core::mem::take(&mut self.sojourn_max),
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

    /// Arrived at `at`, waited 2 ms, took 1 ms.
    fn send(tally: &mut Tally, at: u64) {
        let meta = Meta { arrived: ms(at), ..Meta::new(1_000, 0) };
        tally.transmitted(ms(at + 2), ms(at + 3), &meta);
    }

    #[test]
    fn a_window_holds_what_happened_in_it() {
        let mut tally = Tally::new(ms(0), true);
        send(&mut tally, 0);
        tally.dropped(&Meta::new(700, 0), DropReason::Loss);
        let first = tally.end_window(ms(10), offered(3));
        send(&mut tally, 10);
        send(&mut tally, 11);
        tally.marked(MarkReason::Threshold);
        tally.remarked(1);
        let second = tally.end_window(ms(20), offered(6));
        assert_eq!(
            (first.start, first.end, second.start, second.end),
            (ms(0), ms(10), ms(10), ms(20))
        );
        assert_eq!((first.counts.offered, second.counts.offered), (offered(3), offered(3)));
        assert_eq!((first.counts.sent, second.counts.sent), (offered(1), offered(2)));
        let loss = (DropReason::Loss, Count { packets: 1, bytes: 700 });
        assert_eq!(first.counts.drops().collect::<Vec<_>>(), [loss]);
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
    fn a_row_holds_what_happened_since_the_last_whatever_the_windows_are() {
        let mut tally = Tally::new(ms(0), false);
        send(&mut tally, 0);
        tally.end_window(ms(5), offered(1));
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
        let first = tally.end_window(ms(6_000), offered(3));
        tally.binned(Side::LowLatency, 3);
        tally.sanctioned(ms(7_000), 7, Span::from_millis(2));
        let second = tally.end_window(ms(8_000), offered(3));
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
    fn every_reason_has_a_counter_of_its_own() {
        let mut tally = Tally::new(ms(0), false);
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(DropReason::ALL[reason as usize], reason);
            (0..=times).for_each(|_| tally.dropped(&Meta::new(10, 0), reason));
        }
        for (times, reason) in MarkReason::ALL.into_iter().enumerate() {
            assert_eq!(MarkReason::ALL[reason as usize], reason);
            (0..=times).for_each(|_| tally.marked(reason));
        }
        let counts = tally.end_window(ms(1), Count::default()).counts;
        let drops: Vec<u64> = counts.drops().map(|(_, count)| count.packets).collect();
        let marks: Vec<u64> = counts.marks().map(|(_, packets)| packets).collect();
        assert_eq!(drops, (1..=DropReason::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(marks, (1..=MarkReason::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(counts.dropped_packets(), drops.iter().sum::<u64>());
        assert_eq!(counts.marked_packets(), marks.iter().sum::<u64>());
    }
}
