//! Sentences on the packets of a recording in several queues.
//!
//! A replay is an open loop: the packets arrive as recorded, whatever the queue does. So no
//! sentence predicts a line; each says how a queue treated these packets.

use crate::words::{one_line, significant, thousands};

/// A recording through one link, with several queues before it side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    pub input: String,
    /// The part that was replayed; empty for all.
    pub filter: String,
    pub link: String,
    pub seed: u64,
    /// False if the recording could not be read to its end.
    pub is_complete: bool,
    /// Time from the first packet to the end of the last transmission of any queue, s.
    pub span_s: f64,
    /// Offered rate over time: s since the first packet, Mbit/s.
    pub offered: Vec<(f64, f64)>,
    /// Width of a step of the curves, s.
    pub step_s: f64,
    /// In the order of the command line.
    pub queues: Vec<ReplayedQueue>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedQueue {
    pub queue: String,
    pub packets: u64,
    /// Packets that were sent, including marked ones.
    pub sent: u64,
    pub marked: u64,
    /// Dropped packets by reason.
    pub drops: Vec<(String, u64)>,
    /// Sojourn of the packets sent, ms: p50, p90, p99, largest; `None` if none was sent.
    pub sojourn_ms: Option<[f64; 4]>,
    /// Rate on the link, bit/s, with overhead; `None` if all packets left as they arrived, at one
    /// instant.
    pub throughput_bit_per_s: Option<f64>,
    /// Distribution of the sojourn: ms, and the share of the packets sent that waited no longer.
    pub cdf: Vec<(f64, f64)>,
    /// Largest sojourn by arrival time of the packets: s, ms.
    pub sojourn: Vec<(f64, f64)>,
    /// Dropped packets by arrival time: s, packets.
    pub dropped: Vec<(f64, f64)>,
    /// Marked packets by arrival time: s, packets.
    pub marks: Vec<(f64, f64)>,
}

/// The caveat of every replay.
const OPEN_LOOP: &str = "Open loop: the senders do not react. A real TCP would have slowed \
down after the first drop or mark, so the packets after it would not have come like this. Believe \
it for calls, games and DNS, for the first moments of anything else, and for what two queues \
decide on the same packets.";

impl ReplayedQueue {
    pub fn dropped_packets(&self) -> u64 {
        self.drops.iter().map(|(_, packets)| packets).sum()
    }

    fn percent(&self, packets: u64) -> f64 {
        packets as f64 * 100.0 / self.packets.max(1) as f64
    }

    /// Formats the cost: `drops 1.20 % and marks 3.00 %`.
    fn cost(&self) -> String {
        let dropped = self.percent(self.dropped_packets());
        let marked = self.percent(self.marked);
        match self.marked {
            0 => format!("drops {} %", significant(dropped)),
            _ => format!("drops {} % and marks {} %", significant(dropped), significant(marked)),
        }
    }
}

/// Returns the caveats: that the loop is open, and that the recording is incomplete.
pub(crate) fn caveats(replayed: &Replayed) -> Vec<&'static str> {
    let cut = "INCOMPLETE: the recording could not be read to its end; this is what came before.";
    std::iter::once(OPEN_LOOP).chain((!replayed.is_complete).then_some(cut)).collect()
}

/// Compares the first queue with the one that differs most, then describes each queue.
pub(crate) fn verdict(replayed: &Replayed) -> Vec<String> {
    let of = |queue: &ReplayedQueue| {
        let [p50, _, p99, max] = queue.sojourn_ms?.map(significant);
        Some(format!(
            "{}: packets wait p50 {p50} ms, p99 {p99} ms, at most {max} ms; it {} of {} packets.",
            queue.queue,
            queue.cost(),
            thousands(queue.packets)
        ))
    };
    let each = replayed
        .queues
        .iter()
        .map(|queue| of(queue).unwrap_or_else(|| format!("{}: no packet was sent.", queue.queue)));
    compared(&replayed.queues).into_iter().chain(each).map(|line| one_line(&line)).collect()
}

/// Compares the first queue with the one whose p99 differs most, with the cost of both.
fn compared(queues: &[ReplayedQueue]) -> Option<String> {
    let mut waits = queues.iter().filter_map(|queue| Some((queue, queue.sojourn_ms?[2])));
    let first = waits.next()?;
    let factor = |wait: f64| wait.max(first.1) / wait.min(first.1).max(f64::MIN_POSITIVE);
    let other = waits.max_by(|a, b| factor(a.1).total_cmp(&factor(b.1)))?;
    let (least, most) = if other.1 < first.1 { (other, first) } else { (first, other) };
    if least.1 >= most.1 {
        return None;
    }
    Some(format!(
        "Of these packets {} keeps the 99th percentile at {} ms where {} has {} ms; it {} of \
         them, {} {}.",
        least.0.queue,
        significant(least.1),
        most.0.queue,
        significant(most.1),
        least.0.cost(),
        most.0.queue,
        most.0.cost()
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the sentences of a replay's page, caveats first.
    fn replay_lines(replayed: &Replayed) -> Vec<String> {
        caveats(replayed).into_iter().map(str::to_owned).chain(verdict(replayed)).collect()
    }

    pub(crate) fn queue(name: &str, p99: f64, dropped: u64, marked: u64) -> ReplayedQueue {
        ReplayedQueue {
            queue: name.to_owned(),
            packets: 1_000,
            sent: 1_000 - dropped,
            marked,
            drops: vec![("overlimit".to_owned(), dropped)],
            sojourn_ms: Some([p99 / 2.0, p99 * 0.9, p99, p99 * 1.1]),
            throughput_bit_per_s: Some(9.5e6),
            cdf: (0..=100).map(|at| (p99 * f64::from(at) / 100.0, f64::from(at) / 100.0)).collect(),
            sojourn: (0..50).map(|at| (f64::from(at), p99)).collect(),
            dropped: vec![(1.0, dropped as f64)],
            marks: vec![(2.0, marked as f64)],
        }
    }

    pub(crate) fn replayed(queues: Vec<ReplayedQueue>) -> Replayed {
        Replayed {
            input: "all.pcap".to_owned(),
            filter: String::new(),
            link: "10mbit".to_owned(),
            seed: 1,
            is_complete: true,
            span_s: 50.0,
            offered: (0..50).map(|at| (f64::from(at), 9.0)).collect(),
            step_s: 1.0,
            queues,
        }
    }

    #[test]
    fn a_replay_says_that_it_is_open_loop_and_what_shorter_waits_cost() {
        let lines =
            replay_lines(&replayed(vec![queue("fifo", 250.0, 4, 0), queue("codel", 12.0, 31, 7)]));
        assert!(lines[0].starts_with("Open loop: the senders do not react."), "{lines:?}");
        assert_eq!(
            lines[1..],
            [
                "Of these packets codel keeps the 99th percentile at 12.0 ms where fifo has 250 \
                 ms; it drops 3.10 % and marks 0.700 % of them, fifo drops 0.400 %.",
                "fifo: packets wait p50 125 ms, p99 250 ms, at most 275 ms; it drops 0.400 % of \
                 1000 packets.",
                "codel: packets wait p50 6.00 ms, p99 12.0 ms, at most 13.2 ms; it drops 3.10 % \
                 and marks 0.700 % of 1000 packets.",
            ]
        );
    }

    #[test]
    fn the_first_queue_is_compared_and_not_the_best_with_the_worst() {
        let queues = [("fifo", 100.0), ("pie", 20.0), ("codel", 97.0), ("big", 110.0)];
        let queues = queues.map(|(name, p99)| queue(name, p99, 1, 0)).to_vec();
        let told = &replay_lines(&replayed(queues))[1];
        let start =
            "Of these packets pie keeps the 99th percentile at 20.0 ms where fifo has 100 ms;";
        assert!(told.starts_with(start), "{told}");
    }

    #[test]
    fn nothing_is_compared_where_nothing_differs_and_half_a_recording_is_named() {
        let mut one = replayed(vec![queue("fifo", 250.0, 0, 0), queue("fifo", 250.0, 0, 0)]);
        one.is_complete = false;
        let lines = replay_lines(&one);
        assert!(lines[1].starts_with("INCOMPLETE"), "{lines:?}");
        assert_eq!(lines.len(), 4, "{lines:?}");
        one.queues[0].sojourn_ms = None;
        assert_eq!(replay_lines(&one)[2], "fifo: no packet was sent.");
        one.queues.clear();
        assert_eq!(replay_lines(&one).len(), 2);
    }
}
