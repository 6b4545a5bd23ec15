//! Prints the synthetic cellular trace that `bode/trace` uses by default.
//!
//! The trace is not a recording: its rate is in Brownian motion, as the Sprout paper models a
//! cellular link (Winstein, Sivaraman and Balakrishnan 2013, section 3.1), with outages. Every 20
//! ms the rate takes a normal step of sigma x sqrt(20 ms), reflected at zero and at the greatest
//! rate; an outage begins with a given chance per second and lasts an exponentially distributed
//! time. Within 20 ms, delivery opportunities (of 1500 bytes) are evenly spaced, the remainder
//! carried, rather than Poisson: it is the slow movement that queues see. Integer arithmetic, so
//! that the same seed gives the same bytes everywhere.

use std::fmt::Write as _;
use std::io;

use underload_aqm::rng::Rng;

fn main() -> io::Result<()> {
    let (seed, seconds) = (CellularModel::SHIPPED_SEED, CellularModel::SHIPPED_SECONDS);
    let text = CellularModel::SHIPPED.generate(seed, seconds);
    io::Write::write_all(&mut io::stdout(), text.as_bytes())
}

/// Parameters of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellularModel {
    /// Rate at the start, opportunities per second; 500 are 6 Mbit/s.
    start_per_s: u32,
    /// Greatest rate, opportunities per second.
    greatest_per_s: u32,
    /// Standard deviation of the rate after a second, opportunities per second.
    sigma_per_s: u32,
    /// Seconds between outages, on average.
    outage_every_s: u32,
    /// Length of an outage on average, ms.
    outage_ms: u32,
}

impl CellularModel {
    /// The shipped trace: about 6 Mbit/s, from outages to 18 Mbit/s; Sprout's sigma of 200.
    const SHIPPED: Self = Self {
        start_per_s: 500,
        greatest_per_s: 1_500,
        sigma_per_s: 200,
        outage_every_s: 20,
        outage_ms: 200,
    };

    /// Seed and length of the shipped trace.
    const SHIPPED_SEED: u64 = 1;
    /// Length of the shipped trace, s.
    const SHIPPED_SECONDS: u32 = 40;

    /// A trace in Mahimahi's format: a line per opportunity, its time in ms.
    fn generate(self, seed: u64, seconds: u32) -> String {
        let (mut steps, mut outages) =
            (Rng::new(seed).child("steps"), Rng::new(seed).child("outages"));
        let mut text = String::new();
        let mut rate = i64::from(self.start_per_s);
        // Opportunities due so far, in 1/1000: a rate per second added once per ms.
        let mut due_thousandths = 0;
        let mut outage_left_ms = 0;
        for ms in 1..=u64::from(seconds) * 1_000 {
            if ms % STEP_MS == 0 {
                rate = reflect(rate + self.step(&mut steps), i64::from(self.greatest_per_s));
            }
            if outage_left_ms > 0 {
                outage_left_ms -= 1;
                continue;
            }
            if outages.below(self.outage_every_s.saturating_mul(1_000)) == 0 {
                outage_left_ms = exponential_ms(self.outage_ms, &mut outages);
            }
            due_thousandths += rate;
            while due_thousandths >= 1_000 {
                due_thousandths -= 1_000;
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{ms}");
            }
        }
        text
    }

    /// A normal step of 20 ms: twelve uniform numbers have variance 1.
    fn step(self, rng: &mut Rng) -> i64 {
        let sum: i64 = (0..12).map(|_| i64::from(rng.next_u32())).sum();
        let normal_q32 = sum - 6 * (1 << 32);
        // sqrt(20 ms / 1 s) = 0.141421.
        (normal_q32 * i64::from(self.sigma_per_s) / 1_000_000 * 141_421) >> 32
    }
}

/// Interval between changes of the rate, as in Sprout.
const STEP_MS: u64 = 20;

fn reflect(rate: i64, greatest: i64) -> i64 {
    let rate = rate.abs();
    if rate > greatest { (2 * greatest - rate).max(0) } else { rate }
}

/// Geometrically distributed with this mean, at most ten times the mean.
fn exponential_ms(mean_ms: u32, rng: &mut Rng) -> u32 {
    let most = mean_ms.saturating_mul(10);
    (1..most).find(|_| rng.below(mean_ms) == 0).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use underload_scenario::builtin;

    use super::*;

    #[test]
    fn the_shipped_trace_is_what_the_generator_gives() {
        let model = CellularModel::SHIPPED;
        let text = model.generate(CellularModel::SHIPPED_SEED, CellularModel::SHIPPED_SECONDS);
        let shipped = builtin::load_file("bode/synthetic-cellular.trace").expect("it is shipped");
        let same = text.as_bytes() == shipped;
        assert!(same, "make it anew: cargo run -p underload-run --example cellular_trace > FILE");
    }

    #[test]
    fn the_rate_stays_near_its_model() {
        let model = CellularModel::SHIPPED;
        let text = model.generate(7, 200);
        let times: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(times.is_sorted() && times.len() == text.lines().count());
        let per_second = times.len() as u64 / 200;
        assert!((200..=1_200).contains(&per_second), "{per_second} opportunities per second");
        let longest_gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest_gap >= Some(100), "no outage in 200 s: {longest_gap:?} ms");
    }
}
