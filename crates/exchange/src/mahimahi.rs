//! Logs of Mahimahi's `mm-link` (`--uplink-log`, `--downlink-log`), as `link_queue.cc` writes them:
//! `MS + BYTES` is a packet's arrival, `MS - BYTES DELAY` its departure, `MS d PACKETS BYTES` a drop,
//! and `MS # BYTES` an opportunity of the link. A packet leaves at one instant, so its delay is its
//! sojourn; it is known in whole milliseconds.

use std::collections::BTreeMap;

use underload_record::schema::{
    BottleneckSummary, Direction, PacketCount, Phase, Series, SeriesKind, SeriesPoint,
};
use underload_record::stats::distribution;

use super::imported::{ImportError, Imported, window};
use super::numbers::{nanos, rate, rates};
use super::rows::ROWS_MAX;

/// Returns the time of a line in ms, its kind, and its other numbers.
fn event(line: &str) -> Option<(u64, &str, u64, u64)> {
    let mut words = line.split(' ');
    let (ms, kind) = (words.next()?.parse().ok()?, words.next()?);
    let first = words.next()?.parse().ok()?;
    let second = words.next().map_or(Some(0), |word| word.parse().ok())?;
    matches!(kind, "+" | "-" | "#" | "d").then_some((ms, kind, first, second))
}

/// Whether the first line behind the comments is an event.
pub(super) fn is_log(text: &str) -> bool {
    text.lines().take(20).find(|line| !line.starts_with('#')).is_some_and(|it| event(it).is_some())
}

/// The sums and the curves of a log.
#[derive(Default)]
struct Log {
    offered: PacketCount,
    sent: PacketCount,
    dropped: PacketCount,
    opportunity_bytes: u64,
    end_ns: u64,
    backlog: Vec<SeriesPoint>,
    sojourn: Vec<SeriesPoint>,
    /// Times of departures, and their bytes.
    moves: Vec<(u64, u64)>,
}

impl Log {
    fn read(text: &str, mut base_ms: Option<u64>) -> Result<Self, ImportError> {
        let mut log = Self::default();
        // The last line is cut if the program was killed.
        let lines = (1..).zip(text.split_inclusive('\n')).filter(|(_, line)| line.ends_with('\n'));
        for (number, line) in lines.filter(|(_, line)| !line.starts_with('#')) {
            let times = event(line.trim_end()).and_then(|(ms, kind, first, second)| {
                let since_ms = ms.saturating_sub(*base_ms.get_or_insert(ms));
                let delay_ns = nanos(second as f64 / 1e3)?;
                Some((nanos(since_ms as f64 / 1e3)?, kind, first, second, delay_ns))
            });
            let known = times.ok_or_else(|| ImportError::Damaged {
                looks: "a log of mm-link",
                line: number,
                column: 1,
                what: "is neither a comment nor an event".to_owned(),
            });
            log.add(known?);
            if log.backlog.len() > ROWS_MAX {
                return Err(ImportError::content("mm-link", "it has too many packets"));
            }
        }
        Ok(log)
    }

    fn add(&mut self, (time_ns, kind, first, second, delay_ns): (u64, &str, u64, u64, u64)) {
        self.end_ns = time_ns.max(self.end_ns);
        match kind {
            "+" => count(&mut self.offered, 1, first),
            "-" => {
                count(&mut self.sent, 1, first);
                self.moves.push((time_ns, first));
                self.sojourn.push(SeriesPoint { time_ns, value: delay_ns as f64 });
            }
            "d" => count(&mut self.dropped, first, second),
            _ => {
                self.opportunity_bytes = self.opportunity_bytes.saturating_add(first);
                return;
            }
        }
        let gone = self.sent.bytes.saturating_add(self.dropped.bytes);
        let value = self.offered.bytes.saturating_sub(gone) as f64;
        self.backlog.push(SeriesPoint { time_ns, value });
    }
}

pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let comment = |name: &str| {
        let mut comments = text.lines().take_while(|line| line.starts_with('#'));
        comments.find_map(|line| line.strip_prefix("# ")?.strip_prefix(name)).map(str::trim)
    };
    let title = comment("mahimahi mm-link ").unwrap_or_default();
    let is_down = title.starts_with("(down") || title.starts_with("(Down");
    let direction = if is_down { Direction::Down } else { Direction::Up };
    let base_ms = comment("base timestamp:").and_then(|word| word.parse().ok());
    let mut log = Log::read(text, base_ms)?;
    let window = window(Phase::Load, 0, log.end_ns + 1);
    let per_second = |bytes: u64| rate(bytes as f64 * 8e9 / window.length_ns() as f64);
    log.moves.sort_unstable();
    let mut sojourns_ns: Vec<u64> = log.sojourn.iter().map(|point| point.value as u64).collect();
    let sojourn = distribution(&mut sojourns_ns);
    let link = BottleneckSummary {
        direction,
        queue: comment("queue:").unwrap_or("unknown").to_owned(),
        link: format!("trace:{}", trace(title).unwrap_or("unknown")),
        window,
        offered: log.offered,
        sent: log.sent,
        drops: BTreeMap::from([("queue".to_owned(), log.dropped)]),
        sojourn,
        queuing_delay: sojourn,
        throughput_bit_per_s: per_second(log.sent.bytes).unwrap_or(0),
        capacity_bit_per_s: per_second(log.opportunity_bytes),
        ..BottleneckSummary::default()
    };
    let series = [
        (SeriesKind::Backlog, log.backlog),
        (SeriesKind::Sojourn, log.sojourn),
        (SeriesKind::Throughput, rates(&log.moves)),
    ];
    Ok(Imported {
        tool: "Mahimahi's mm-link".to_owned(),
        name: "mm-link".to_owned(),
        phases: vec![window],
        bottlenecks: vec![link],
        series: series.map(|(kind, points)| Series { points, ..kind.series(0, direction) }).into(),
        ..Imported::default()
    })
}

/// Returns the recording that the first comment names in brackets.
fn trace(title: &str) -> Option<&str> {
    title.split_once('[')?.1.split_once(']').map(|(name, _)| name)
}

fn count(total: &mut PacketCount, packets: u64, bytes: u64) {
    total.packets = total.packets.saturating_add(packets);
    total.bytes = total.bytes.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "# mahimahi mm-link (Downlink) [traces/LTE.down] > log\n\
        # queue: droptail [packets=2]\n# base timestamp: 1000\n1000 # 1504\n1010 + 1500\n\
        1015 + 1500\n1015 d 1 1500\n1050 # 1504\n1050 - 1500 40\n1100 + 100\n2000 # 1504\n\
        2000 - 100 900\n2000 #";

    #[test]
    fn a_log_is_a_bottleneck_with_its_curves() {
        assert!(is_log(LOG) && !is_log("0\n1\n") && !is_log("0.5 4.03\n1.0 2.76\n"));
        let run = read(LOG).unwrap().into_run();
        let link = &run.record.trials[0].bottlenecks[0];
        let counts = [link.offered, link.sent, link.drops["queue"]];
        assert_eq!(counts.map(|it| (it.packets, it.bytes)), [(3, 3_100), (2, 1_600), (1, 1_500)]);
        assert_eq!(link.direction, Direction::Down);
        assert_eq!(link.queue, "droptail [packets=2]");
        assert_eq!(link.link, "trace:traces/LTE.down");
        let sojourn = link.sojourn.unwrap();
        assert_eq!((sojourn.count, sojourn.min_ns, sojourn.max_ns), (2, 40_000_000, 900_000_000));
        assert_eq!((link.throughput_bit_per_s, link.capacity_bit_per_s), (12_799, Some(36_095)));
        let backlog = run.series.iter().find(|series| series.name == "down.backlog").unwrap();
        let values: Vec<f64> = backlog.points.iter().map(|point| point.value).collect();
        assert_eq!(values, [1_500.0, 3_000.0, 1_500.0, 0.0, 100.0, 0.0]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let said = |text: &str| read(text).unwrap_err().to_string();
        assert!(said("1 + 5\n2 * 5\n").contains("a log of mm-link, but at line 2"));
        assert!(said("1 + 5\n18446744073709551615 + 5\n").contains("line 2, column 1 is neither"));
        assert!(read("1 + 18446744073709551615\n2 d 9 1000000\n3 + 9\n").is_ok());
    }
}
