//! The counters of a trial's queues, in the terms of `underload-record`.

use std::collections::BTreeMap;

use underload_aqm::qdisc::{Count, DropReason, MarkReason};
use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_record::link::{LinkName, bits_per_second, packets};
use underload_record::schema::{
    BottleneckSummary, PacketCount, Phase, PhaseWindow, Series, SeriesKind,
};
use underload_record::tally::{Curves, Row};

use super::plan::Hop;
use super::statistics::QueueCounters;

/// The counters of Linux at both queues. A direction without a queue has no record.
#[derive(Clone, Debug)]
pub struct QueuesReport {
    links: Vec<Link>,
}

impl QueuesReport {
    pub(super) fn new(links: [Link; 2]) -> Self {
        Self { links: links.into_iter().filter(Link::is_shaped).collect() }
    }

    /// Summaries of each bottleneck and phase, except for the time before the first phase.
    pub fn bottlenecks(&self) -> Vec<BottleneckSummary> {
        let summaries = self.links.iter().flat_map(|link| &link.windows);
        summaries.filter(|summary| summary.window.phase != Phase::Whole).cloned().collect()
    }

    /// Time series of trial number `trial`.
    pub fn series(&self, trial: u32) -> Vec<Series> {
        let series = self.links.iter().flat_map(|link| {
            let unknown = SeriesKind::Sojourn.name(link.name.direction);
            let all = link.name.series(&link.curves, link.start, trial);
            all.into_iter().filter(move |series| series.name != unknown)
        });
        series.collect()
    }
}

/// A link with the counters of the load phase.
#[derive(Clone, Debug)]
pub(super) struct Link {
    name: LinkName,
    rate: Option<Rate>,
    start: Time,
    phase: Phase,
    /// When the phase began, and the counters then.
    before: (Time, Counters),
    row_before: Counters,
    windows: Vec<BottleneckSummary>,
    curves: Curves,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    queue: QueueCounters,
    lost: u64,
}

impl Link {
    pub fn new(hop: &Hop, name: LinkName, now: Time) -> Self {
        Self {
            name,
            rate: hop.shaping.as_ref().map(|shaping| shaping.rate),
            start: now,
            phase: Phase::Whole,
            before: (now, Counters::default()),
            row_before: Counters::default(),
            windows: Vec::new(),
            curves: Curves::default(),
        }
    }

    pub fn is_shaped(&self) -> bool {
        self.rate.is_some()
    }

    /// Ends the phase before `phase` at `now`.
    pub fn begin(&mut self, phase: Phase, now: Time, queue: QueueCounters, lost: u64) {
        let counters = Counters { queue, lost };
        let (start, before) = std::mem::replace(&mut self.before, (now, counters));
        let summary = self.summary((start, now), &before, &self.before.1);
        self.windows.push(summary);
        self.phase = phase;
    }

    pub fn row(&mut self, now: Time, queue: &QueueCounters, lost: u64) {
        let counters = Counters { queue: queue.clone(), lost };
        let before = std::mem::replace(&mut self.row_before, counters);
        let after = &self.row_before;
        self.curves.rows.push(Row {
            time: now,
            backlog: queue.backlog,
            sojourn_max: Span::ZERO,
            sent: since(before.queue.sent, queue.sent),
            drops: after.dropped().saturating_sub(before.dropped()),
            marks: queue.marks.saturating_sub(before.queue.marks),
        });
        for (name, value) in &queue.gauges {
            self.curves.gauges.entry(name).or_default().push((now, *value));
        }
    }

    fn summary(
        &self,
        (start, end): (Time, Time),
        before: &Counters,
        after: &Counters,
    ) -> BottleneckSummary {
        let length = end.since(start);
        let sent = since(before.queue.sent, after.queue.sent);
        let marks = after.queue.marks.saturating_sub(before.queue.marks);
        let reason = MarkReason::ControlLaw.name().to_owned();
        BottleneckSummary {
            hop: self.name.hop.clone(),
            direction: self.name.direction,
            queue: self.name.queue.clone(),
            link: self.name.link.clone(),
            window: PhaseWindow {
                phase: self.phase,
                start_ns: start.as_nanos(),
                end_ns: end.as_nanos(),
            },
            offered: offered(sent, before, after),
            sent: packets(sent),
            drops: drops(before, after),
            marks: (marks > 0).then_some((reason, marks)).into_iter().collect(),
            throughput_bit_per_s: bits_per_second(sent.bytes, length),
            capacity_bit_per_s: self.rate.map(Rate::bits_per_second),
            ..BottleneckSummary::default()
        }
    }
}

impl Counters {
    fn dropped(&self) -> u64 {
        self.queue.dropped() + self.lost
    }
}

/// Returns the arrivals, as the sum of packets sent, dropped and queued: Linux does not count them.
fn offered(sent: Count, before: &Counters, after: &Counters) -> PacketCount {
    let (first, last) = (before.queue.backlog, after.queue.backlog);
    let dropped = after.queue.dropped().saturating_sub(before.queue.dropped());
    let packets = sent.packets + dropped + u64::from(last.packets);
    let bytes = sent.bytes + last.bytes;
    PacketCount {
        packets: packets.saturating_sub(u64::from(first.packets)),
        bytes: bytes.saturating_sub(first.bytes),
    }
}

/// The drops by reason, without reasons that did not occur and without bytes, which Linux does not
/// count.
fn drops(before: &Counters, after: &Counters) -> BTreeMap<String, PacketCount> {
    let earlier = |reason: DropReason| {
        let found = before.queue.drops.iter().find(|(of, _)| *of == reason);
        found.map_or(0, |(_, packets)| *packets)
    };
    let mut all: BTreeMap<String, PacketCount> = BTreeMap::new();
    let queue = after.queue.drops.iter().map(|(reason, now)| (*reason, *now, earlier(*reason)));
    let wire = (DropReason::Loss, after.lost, before.lost);
    for (reason, now, before) in queue.chain([wire]).filter(|(_, now, before)| now > before) {
        all.entry(reason.name().to_owned()).or_default().packets += now - before;
    }
    all
}

fn since(before: Count, after: Count) -> Count {
    Count {
        packets: after.packets.saturating_sub(before.packets),
        bytes: after.bytes.saturating_sub(before.bytes),
    }
}

#[cfg(test)]
mod tests {
    use underload_aqm::qdisc::Backlog;
    use underload_record::schema::Direction;

    use super::super::plan::Shaping;
    use super::*;

    fn reading(packets: u64, dropped: u64, queued: u32) -> QueueCounters {
        QueueCounters {
            sent: Count { packets, bytes: packets * 1_500 },
            drops: vec![(DropReason::ControlLaw, dropped), (DropReason::Overlimit, 0)],
            marks: dropped * 2,
            backlog: Backlog { packets: queued, bytes: u64::from(queued) * 1_500 },
            gauges: vec![("codel.count", f64::from(queued))],
        }
    }

    fn link() -> Link {
        let shaping = Shaping {
            rate: Rate::from_megabits_per_second(12),
            overhead_bytes: 0,
            queue: vec!["codel".to_owned()],
            is_shaper: false,
        };
        let hop = Hop { shaping: Some(shaping), delay: Span::ZERO, loss_q32: 0 };
        let name = LinkName { direction: Direction::Up, ..LinkName::default() };
        Link::new(&hop, name, Time::ZERO)
    }

    #[test]
    fn phases_count_what_happened_in_them() {
        let mut link = link();
        link.begin(Phase::Idle, Time::from_millis(0), reading(0, 0, 0), 0);
        link.begin(Phase::Load, Time::from_millis(10), reading(10, 1, 4), 0);
        link.begin(Phase::Whole, Time::from_millis(30), reading(30, 4, 2), 5);
        let report = QueuesReport::new([link.clone(), Link { rate: None, ..link }]);
        let all = report.bottlenecks();
        let [idle, load] = all.as_slice() else { panic!("two phases: {all:?}") };
        assert_eq!((idle.window.phase, load.window.phase), (Phase::Idle, Phase::Load));
        assert_eq!((idle.sent.packets, load.sent.packets), (10, 20));
        // Of the packets that load offered, four were in the queue before and two are left.
        assert_eq!((idle.offered.packets, load.offered.packets), (15, 21));
        let reasons: Vec<_> = load.drops.iter().map(|(why, n)| (why.as_str(), n.packets)).collect();
        assert_eq!(reasons, [("control-law", 3), ("loss", 5)]);
        assert_eq!(load.marks["control-law"], 6);
        assert_eq!(load.throughput_bit_per_s, 12_000_000);
        assert_eq!(load.capacity_bit_per_s, Some(12_000_000));
        assert_eq!(load.sojourn, None);
    }

    #[test]
    fn curves_have_no_sojourn() {
        let mut link = link();
        link.row(Time::from_millis(10), &reading(10, 1, 4), 0);
        link.row(Time::from_millis(20), &reading(20, 3, 4), 1);
        let report = QueuesReport::new([link.clone(), Link { rate: None, ..link }]);
        let series = report.series(3);
        let names: Vec<_> = series.iter().map(|series| series.name.as_str()).collect();
        let expected = ["up.backlog", "up.throughput", "up.drops", "up.marks", "up.codel.count"];
        assert_eq!(names, expected);
        let drops: Vec<_> = series[2].points.iter().map(|point| point.value).collect();
        assert_eq!(drops, [1.0, 3.0]);
    }
}
