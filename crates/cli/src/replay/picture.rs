//! The data of a replay's page: counts over time in bounded memory, and the counts of the link.

use std::path::Path;

use anyhow::Context;
use underload_aqm::registry::QueueSetup;
use underload_aqm::time::{Span, Time};
use underload_report::{Replayed, ReplayedQueue, check_page_path, replace_page, replay_page};
use underload_run::replay::{Fate, Replay, Settled};
use underload_terminal::exit::{OrBadInput, refuse};

/// Largest number of steps of a curve, about one per pixel. Longer recordings merge pairs of steps.
const STEPS_MAX: usize = 480;
/// Initial width of a step.
const STEP_NS: u64 = 100_000;

/// Counts by time since the first packet.
#[derive(Debug, Default)]
pub struct Steps {
    first: Option<Time>,
    /// Number of doublings of the initial width.
    doublings: u32,
    counts: Vec<Step>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Step {
    bytes: u64,
    dropped: u64,
    marked: u64,
    longest_ns: u64,
}

impl Steps {
    pub fn add_arrival(&mut self, at: Time, bytes: u32) {
        self.step(at).bytes += u64::from(bytes);
    }

    /// Counts a packet whose fate is known.
    pub fn add_fate(&mut self, row: &Settled) {
        let waited = row.sojourn().map(Span::as_nanos);
        let step = self.step(row.arrival);
        match row.fate {
            Fate::Dropped(_) => step.dropped += 1,
            Fate::Marked(_) => step.marked += 1,
            Fate::Sent | Fate::Queued => {}
        }
        step.longest_ns = step.longest_ns.max(waited.unwrap_or(0));
    }

    fn step(&mut self, time: Time) -> &mut Step {
        let first = *self.first.get_or_insert(time);
        let since = time.since(first).as_nanos();
        while since / self.width_ns() >= STEPS_MAX as u64 {
            self.counts = self.counts.chunks(2).map(merged).collect();
            self.doublings += 1;
        }
        let number = usize::try_from(since / self.width_ns()).unwrap_or(STEPS_MAX - 1);
        if number >= self.counts.len() {
            self.counts.resize(number + 1, Step::default());
        }
        &mut self.counts[number]
    }

    fn width_ns(&self) -> u64 {
        STEP_NS << self.doublings.min(40)
    }

    fn width_s(&self) -> f64 {
        self.width_ns() as f64 / 1e9
    }

    /// Returns the points of a curve: the middle of each step, and its value.
    fn curve(&self, value: impl Fn(&Step) -> f64) -> Vec<(f64, f64)> {
        let width = self.width_s();
        let at = |number: usize| (number as f64 + 0.5) * width;
        self.counts.iter().enumerate().map(|(number, step)| (at(number), value(step))).collect()
    }
}

fn merged(pair: &[Step]) -> Step {
    pair.iter().fold(Step::default(), |sum, step| Step {
        bytes: sum.bytes + step.bytes,
        dropped: sum.dropped + step.dropped,
        marked: sum.marked + step.marked,
        longest_ns: sum.longest_ns.max(step.longest_ns),
    })
}

pub fn queue(replay: &Replay, queue: &QueueSetup, steps: &Steps) -> ReplayedQueue {
    let (tally, arrivals) = (replay.tally(), replay.arrivals());
    let (total, sojourn) = (tally.total(), &tally.delays().sojourn);
    let in_ms = |ns: u64| ns as f64 / 1e6;
    let permilles: [u32; 1_001] = std::array::from_fn(|permille| permille as u32);
    let waits = sojourn.quantiles(permilles).map(in_ms);
    let share = |permille: usize| permille as f64 / 1e3;
    let is_known = !sojourn.is_empty();
    let cdf = waits.iter().enumerate().map(|(permille, wait)| (*wait, share(permille)));
    ReplayedQueue {
        queue: queue.label.to_string(),
        packets: arrivals.packets,
        sent: total.sent.packets,
        marked: total.marked_packets(),
        drops: total
            .drops()
            .map(|(reason, count)| (reason.name().to_owned(), count.packets))
            .collect(),
        sojourn_ms: is_known.then_some([waits[500], waits[900], waits[990], waits[1_000]]),
        throughput_bit_per_s: replay.throughput_bit_per_s(),
        cdf: if is_known { cdf.collect() } else { Vec::new() },
        sojourn: steps.curve(|step| in_ms(step.longest_ns)),
        dropped: steps.curve(|step| step.dropped as f64),
        marks: steps.curve(|step| step.marked as f64),
    }
}

/// Returns the offered load in Mbit/s over time, and the width of a step in s.
pub fn offered(steps: &Steps) -> (Vec<(f64, f64)>, f64) {
    let width = steps.width_s();
    (steps.curve(|step| step.bytes as f64 * 8.0 / width / 1e6), width)
}

/// Refuses a path that is occupied by another file, the input or a directory.
pub fn check(path: &Path, input: &Path) -> anyhow::Result<()> {
    if path == input || path.is_dir() {
        refuse!("--html: {}: expected a new file for the page", path.display());
    }
    check_page_path(path).context("--html").or_bad_input()
}

pub fn write(path: &Path, replayed: &Replayed) -> anyhow::Result<()> {
    let page = replay_page(replayed).context("drawing the page")?;
    replace_page(path, &page).context("--html")
}

#[cfg(test)]
mod tests {
    use underload_aqm::packet::Ecn;
    use underload_aqm::qdisc::DropReason;

    use super::*;

    #[test]
    fn steps_stay_few_and_lose_nothing_however_long_it_lasts() {
        let mut steps = Steps::default();
        // Steps from an instant far from zero, at ever longer distances: a second, a day, a year.
        let start = 5_000_000_000_u64;
        let mut bytes = 0;
        for exponent in 0..55 {
            let at = Time::from_nanos(start + (1_u64 << exponent));
            steps.add_arrival(at, 100);
            bytes += 100;
            assert!(steps.counts.len() <= STEPS_MAX, "{exponent}");
        }
        assert_eq!(steps.counts.iter().map(|step| step.bytes).sum::<u64>(), bytes);
        let (offered, width) = offered(&steps);
        let last = offered.last().unwrap();
        let end = ((1_u64 << 54) - 1) as f64 / 1e9;
        assert!((last.0 - end).abs() <= width, "{last:?} for {end}");
        assert!((last.1 - 800.0 / width / 1e6).abs() < 1e-12);
    }

    #[test]
    fn fates_are_counted_by_when_the_packet_came() {
        let mut steps = Steps::default();
        let at = Time::from_nanos;
        let row = |id, arrival, fate, transmission| Settled {
            id,
            arrival: at(arrival),
            fate,
            transmission,
            ecn: Ecn::NotEct,
        };
        steps.add_fate(&row(0, 0, Fate::Sent, Some((at(70_000), at(90_000)))));
        steps.add_fate(&row(1, 50_000, Fate::Sent, Some((at(90_000), at(95_000)))));
        steps.add_fate(&row(2, 150_000, Fate::Dropped(DropReason::Overlimit), None));
        let values = |of: fn(&Step) -> u64| -> Vec<u64> { steps.counts.iter().map(of).collect() };
        assert_eq!(values(|step| step.longest_ns), [70_000, 0]);
        assert_eq!(values(|step| step.dropped), [0, 1]);
        assert_eq!(values(|step| step.marked), [0, 0]);
        let middles = steps.curve(|_| 0.0).into_iter().map(|(at, _)| (at * 1e6).round() as u64);
        assert_eq!(middles.collect::<Vec<_>>(), [50, 150]);
    }
}
