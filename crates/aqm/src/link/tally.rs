//! What a link did to its packets, counted alike in every world: fates by reason, delays, windows
//! and curves.
//!
//! Whoever drives a [`Link`](super::Link) passes on what its observer hears. Counting a packet
//! neither allocates nor looks at anything but the packet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops;

use crate::histogram::Histogram;
use crate::packet::Meta;
use crate::qdisc::{Backlog, Count, DropReason, MarkReason, Qdisc};
use crate::remark::Rules;
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
        }
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
}

impl Window {
    /// Adds what happened in another window of the same link; the times become those of both.
    pub fn merge(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.counts = self.counts + other.counts;
        self.delays.sojourn.merge(&other.delays.sojourn);
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
            row_before: Counts::default(),
            sojourn_max: Span::ZERO,
        }
    }

    /// A packet was dropped by queue or link.
    pub fn dropped(&mut self, meta: &Meta, reason: DropReason) {
        self.total.drops[reason as usize].add(meta.len);
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
        Window { start: core::mem::replace(&mut self.start, now), end: now, counts, delays }
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
