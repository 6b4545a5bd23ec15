//! The summaries and series of a link, as every world records them.

use underload_aqm::latency_bins::LatencyEdges;
use underload_aqm::qdisc::Count;
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};

use crate::schema::{
    BottleneckSummary, Direction, Distribution, LatencyHistogram, PacketCount, Phase, PhaseWindow,
    Sanction, Series, SeriesKind, SeriesPoint,
};
use crate::stats::{Histogram, nanos};
use crate::tally::{Counts, Curves, Row, Sanctions, Window};

/// The identity of a link in records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkName {
    /// Name of the hop; empty if the path has only one.
    pub hop: String,
    pub direction: Direction,
    /// Full SPEC of the queue.
    pub queue: String,
    /// Full SPEC of the link.
    pub link: String,
    /// The link's rules that change packets, as in its SPEC, in order.
    pub rules: Vec<String>,
    /// Bins of the queue's latency histograms, by service flow.
    pub bins: Vec<(Side, LatencyEdges)>,
}

impl LinkName {
    /// Returns the record of a window. `capacity_bytes` is the capacity of the link in the window,
    /// `None` if it is unlimited; `flow_name` returns the name of a flow by its number.
    pub fn summarise(
        &self,
        phase: Phase,
        window: &Window,
        capacity_bytes: Option<u64>,
        flow_name: &dyn Fn(u32) -> String,
    ) -> BottleneckSummary {
        let Window { start, end, counts, delays, sanctions } = window;
        let length = end.since(*start);
        let drops =
            counts.drops().map(|(reason, count)| (reason.name().to_owned(), packets(count)));
        let marks = counts.marks().map(|(reason, marked)| (reason.name().to_owned(), marked));
        let remarked = self.rules.iter().cloned().zip(counts.remarks().iter().copied());
        BottleneckSummary {
            hop: self.hop.clone(),
            direction: self.direction,
            queue: self.queue.clone(),
            link: self.link.clone(),
            window: PhaseWindow { phase, start_ns: start.as_nanos(), end_ns: end.as_nanos() },
            offered: packets(counts.offered),
            sent: packets(counts.sent),
            drops: drops.collect(),
            marks: marks.collect(),
            remarked: remarked.collect(),
            sanctions: self::sanctions(sanctions, flow_name),
            latency_histograms: self.latency_histograms(counts),
            sojourn: distribution(&delays.sojourn),
            queuing_delay: delays.queuing_delay.as_ref().and_then(distribution),
            throughput_bit_per_s: bits_per_second(counts.sent.bytes, length),
            capacity_bit_per_s: capacity_bytes.map(|bytes| bits_per_second(bytes, length)),
            slept_packets: counts.slept,
        }
    }

    fn latency_histograms(&self, counts: &Counts) -> Vec<LatencyHistogram> {
        let histogram = |(side, edges): &(Side, LatencyEdges)| {
            let edges_ns: Vec<u64> = edges.spans().map(Span::as_nanos).collect();
            let packets = counts.bins()[*side as usize][..=edges_ns.len()].to_vec();
            LatencyHistogram { service_flow: side.name().to_owned(), edges_ns, packets }
        };
        self.bins.iter().map(histogram).collect()
    }

    /// Returns the series of trial number `trial`, whose first row started at `start`: one of each
    /// [`SeriesKind`], then the queue's gauges as `DIRECTION.GAUGE`, each followed by `.HOP` if the
    /// hop has a name.
    pub fn series(&self, curves: &Curves, start: Time, trial: u32) -> Vec<Series> {
        let mut series =
            SeriesKind::ALL.map(|kind| self.curve(curves, kind, start, trial)).to_vec();
        for (gauge, points) in &curves.gauges {
            series.push(Series {
                trial,
                name: self.named(format!("{}.{gauge}", self.direction)),
                unit: String::new(),
                points: points.iter().map(|(time, value)| point(*time, *value)).collect(),
            });
        }
        series
    }

    fn curve(&self, curves: &Curves, kind: SeriesKind, start: Time, trial: u32) -> Series {
        let starts = std::iter::once(start).chain(curves.rows.iter().map(|row| row.time));
        let value = |row: &Row, start: Time| match kind {
            SeriesKind::Backlog => row.backlog.bytes as f64,
            SeriesKind::Sojourn => row.sojourn_max.as_nanos() as f64,
            SeriesKind::Throughput => {
                let passed = row.time.since(start).as_nanos().max(1);
                row.sent.bytes as f64 * 8e9 / passed as f64
            }
            SeriesKind::Drops => row.drops as f64,
            SeriesKind::Marks => row.marks as f64,
        };
        let rows = curves.rows.iter().zip(starts);
        let points = rows.map(|(row, start)| point(row.time, value(row, start))).collect();
        let series = kind.series(trial, self.direction);
        Series { name: self.named(series.name), points, ..series }
    }

    fn named(&self, name: String) -> String {
        if self.hop.is_empty() { name } else { format!("{name}.{}", self.hop) }
    }
}

/// Returns the sanctions by flow name, most packets first; flows with the same name are merged.
fn sanctions(sanctions: &Sanctions, flow_name: &dyn Fn(u32) -> String) -> Vec<Sanction> {
    let mut named: Vec<Sanction> = Vec::new();
    for (flow, counted) in sanctions.flows() {
        let sanction = Sanction {
            flow: flow.map_or_else(|| "others".to_owned(), flow_name),
            packets: counted.packets,
            first_ns: counted.first.as_nanos(),
            last_ns: counted.last.as_nanos(),
            highest_score_ns: counted.highest_score.as_nanos(),
        };
        merge_sanction(&mut named, &sanction);
    }
    named.sort_by_key(|sanction| std::cmp::Reverse(sanction.packets));
    named
}

/// Adds a sanction to the stored sanction of the flow with the same name.
pub(crate) fn merge_sanction(all: &mut Vec<Sanction>, other: &Sanction) {
    let Some(known) = all.iter_mut().find(|known| known.flow == other.flow) else {
        all.push(other.clone());
        return;
    };
    known.packets += other.packets;
    known.first_ns = known.first_ns.min(other.first_ns);
    known.last_ns = known.last_ns.max(other.last_ns);
    known.highest_score_ns = known.highest_score_ns.max(other.highest_score_ns);
}

/// Returns the distribution of a histogram; `None` if it is empty.
pub fn distribution(histogram: &Histogram) -> Option<Distribution> {
    let [p50_ns, p90_ns, p95_ns, p99_ns, p999_ns] =
        histogram.quantiles([500, 900, 950, 990, 999]).map(nanos);
    let [min_ns, max_ns, mean_ns] =
        [histogram.min()?, histogram.max()?, histogram.mean()?].map(nanos);
    let count = histogram.count();
    Some(Distribution { count, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns, mean_ns })
}

pub const fn packets(count: Count) -> PacketCount {
    PacketCount { packets: count.packets, bytes: count.bytes }
}

const fn point(time: Time, value: f64) -> SeriesPoint {
    SeriesPoint { time_ns: time.as_nanos(), value }
}

/// Returns the rate of `bytes` in `span`; 0 for an empty span.
pub fn bits_per_second(bytes: u64, span: Span) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    bits.checked_div(u128::from(span.as_nanos())).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;
    use underload_aqm::packet::Meta;
    use underload_aqm::qdisc::Stats;
    use underload_aqm::qdisc::{Backlog, DropReason, MarkReason};

    fn modem() -> LinkName {
        LinkName {
            hop: "modem".to_owned(),
            direction: Direction::Up,
            queue: "pie:profile=linux".to_owned(),
            link: "10mbit".to_owned(),
            rules: vec!["dscp:45>0".to_owned(), "tos>0".to_owned()],
            bins: LatencyEdges::new(&[100, 200])
                .map(|edges| (Side::Classic, edges))
                .into_iter()
                .collect(),
        }
    }

    /// Two packets of 1000 bytes that waited 2 and 4 ms and took 1 ms, a loss and a mark in 20 ms.
    fn tally(varying: bool) -> Tally {
        let mut tally = Tally::new(Time::ZERO, varying);
        let meta = Meta::new(1_000, 0);
        for wait in [2, 4] {
            tally.transmitted(Time::from_millis(wait), Time::from_millis(wait + 1), &meta);
        }
        tally.dropped(&meta, DropReason::Overlimit);
        tally.marked(MarkReason::ControlLaw);
        tally.remarked(0);
        for (flow, at_ms, score_ms) in [(3, 5, 6), (4, 6, 1), (3, 7, 2), (5, 8, 9)] {
            let score = Span::from_millis(score_ms);
            tally.sanctioned(Time::from_millis(at_ms), flow, score);
        }
        for bin in [0, 2, 2] {
            tally.binned(Side::Classic, bin);
        }
        tally
    }

    #[test]
    fn a_link_summary_has_every_counter() {
        let offered = Count { packets: 3, bytes: 3_000 };
        let counts = Stats { offered, ..Stats::default() };
        let window = tally(true).end_window(Time::from_millis(20), counts);
        let name = |flow| format!("flow {}", flow / 4);
        let summary = modem().summarise(Phase::Load, &window, Some(25_000), &name);
        let PhaseWindow { phase, start_ns, end_ns } = summary.window;
        assert_eq!((phase, start_ns, end_ns), (Phase::Load, 0, 20_000_000));
        assert_eq!((summary.hop.as_str(), summary.direction), ("modem", Direction::Up));
        assert_eq!((summary.offered.packets, summary.sent.bytes), (3, 2_000));
        let dropped = PacketCount { packets: 1, bytes: 1_000 };
        assert_eq!(summary.drops.into_iter().collect::<Vec<_>>(), [("overlimit".into(), dropped)]);
        assert_eq!(summary.marks.into_iter().collect::<Vec<_>>(), [("control-law".into(), 1)]);
        let remarked: Vec<_> = summary.remarked.into_iter().collect();
        assert_eq!(remarked, [("dscp:45>0".into(), 1), ("tos>0".into(), 0)]);
        let sanctions = summary.sanctions.into_iter().map(|sanction| {
            let Sanction { flow, packets, first_ns, last_ns, highest_score_ns } = sanction;
            (flow, packets, [first_ns, last_ns, highest_score_ns].map(|ns| ns / 1_000_000))
        });
        let sanctions: Vec<_> = sanctions.collect();
        // Flows 4 and 5 have one name.
        let expected = [("flow 0".to_owned(), 2, [5, 7, 6]), ("flow 1".to_owned(), 2, [6, 8, 9])];
        assert_eq!(sanctions, expected);
        let histogram = LatencyHistogram {
            service_flow: "classic".to_owned(),
            edges_ns: vec![1_000_000, 2_000_000],
            packets: vec![1, 0, 2],
        };
        assert_eq!(summary.latency_histograms, [histogram]);
        let sojourn = summary.sojourn.expect("packets were sent");
        assert_eq!((sojourn.count, sojourn.min_ns, sojourn.max_ns), (2, 2_000_000, 4_000_000));
        assert_eq!((sojourn.mean_ns, sojourn.p999_ns), (3_000_000, 4_000_000));
        assert_eq!(summary.queuing_delay.map(|delay| delay.max_ns), Some(5_000_000));
        assert_eq!(summary.throughput_bit_per_s, 800_000);
        assert_eq!(summary.capacity_bit_per_s, Some(10_000_000));
    }

    #[test]
    fn delays_need_sent_packets_and_queuing_delay_a_varying_rate() {
        let at = Time::from_millis(20);
        let empty = Tally::new(Time::ZERO, true).end_window(at, Stats::default());
        let name = |_| unreachable!("nothing was sanctioned");
        let summary = modem().summarise(Phase::Idle, &empty, None, &name);
        assert_eq!(summary.sanctions, []);
        assert_eq!((summary.sojourn, summary.queuing_delay), (None, None));
        assert_eq!(summary.capacity_bit_per_s, None);
        let constant = tally(false).end_window(at, Stats::default());
        assert_eq!(
            modem().summarise(Phase::Load, &constant, None, &|_| String::new()).queuing_delay,
            None
        );
    }

    #[test]
    fn series_of_a_link_name_its_direction_and_hop_and_count_per_interval() {
        let mut tally = tally(false);
        let mut curves = Curves::default();
        let backlog = Backlog { packets: 1, bytes: 700 };
        for at in [10, 20] {
            curves.rows.push(tally.end_row(Time::from_millis(at), backlog));
            curves.gauges.entry("pie.probability").or_default().push((Time::from_millis(at), 0.5));
        }
        let series = modem().series(&curves, Time::ZERO, 7);
        let values = |name: &str| {
            let curve = series.iter().find(|series| series.name == name).expect(name);
            assert_eq!(curve.trial, 7);
            curve.points.iter().map(|point| point.value).collect::<Vec<_>>()
        };
        assert_eq!(values("up.backlog.modem"), [700.0, 700.0]);
        assert_eq!(values("up.sojourn.modem"), [4e6, 0.0]);
        assert_eq!(values("up.throughput.modem"), [1.6e6, 0.0]);
        assert_eq!(values("up.drops.modem"), [1.0, 0.0]);
        assert_eq!(values("up.marks.modem"), [1.0, 0.0]);
        assert_eq!(values("up.pie.probability.modem"), [0.5, 0.5]);
        assert_eq!(series.len(), 6);
    }
}
