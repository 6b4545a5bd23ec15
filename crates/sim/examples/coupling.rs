//! The goodput of a Prague flow beside a CUBIC flow through Low Latency DOCSIS, and the cost of its
//! coupling while DOCSIS-PIE is inactive and the low latency queue is still marked. Prints the
//! ratio of Prague's goodput to CUBIC's over 60 s after 30 s of ramp, summed over five seeds that
//! shift the flows' starts, with the smallest and the largest of the five.
//!
//! ```text
//! cargo run --release -p underload-sim --example coupling -- [SEEDS]
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result of the program")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;

use support::shares::Contest;
use support::{goodput, up_link};

const AWAKE: &str = "docsis-lld:coupled-while=awake";
/// A path on which DOCSIS-PIE becomes inactive, 50 Mbit/s and 80 ms: as specified, and with two
/// remedies.
const ASLEEP: [&str; 3] = ["docsis-lld", AWAKE, "docsis-lld:classic-limit=30ms"];
const RATES_MBIT: [u64; 4] = [35, 50, 120, 200];
const ROUND_TRIPS_MS: [u64; 5] = [10, 25, 50, 80, 100];
/// The required range of the ratio in every cell while DOCSIS-PIE is active.
const BAND: std::ops::RangeInclusive<f64> = 0.5..=3.5;

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    if seeds == 0 {
        return Err("at least one seed".into());
    }
    println!("| Mbit/s | round trip, ms | queue | Prague : CUBIC | of single seeds | drops |");
    println!("|---:|---:|---|---:|---|---|");
    for queue in ASLEEP {
        print_row(&Contest::new(queue, 50, 80), seeds);
    }
    let mut outside = 0;
    for mbit in RATES_MBIT {
        for rtt_ms in ROUND_TRIPS_MS {
            let ratio = print_row(&Contest::new(AWAKE, mbit, rtt_ms), seeds);
            outside += u32::from(!BAND.contains(&ratio));
        }
    }
    println!("{outside} cells of `{AWAKE}` outside {BAND:?}");
    Ok(())
}

/// Returns the ratio over all seeds.
fn print_row(contest: &Contest, seeds: u64) -> f64 {
    let (mut rates, mut ratios, mut drops) = ([0.0, 0.0], Vec::new(), Vec::new());
    for seed in 1..=seeds {
        let outcome = contest.outcome(seed);
        let [prague, cubic] = [0, 1].map(|position| goodput(&outcome, position));
        ratios.push(prague / cubic);
        rates = [rates[0] + prague, rates[1] + cubic];
        drops.push(up_link(&outcome).dropped_packets());
    }
    ratios.sort_by(f64::total_cmp);
    drops.sort_unstable();
    let ratio = rates[0] / rates[1];
    let Contest { queue, mbit, rtt_ms, .. } = contest;
    println!(
        "| {mbit} | {rtt_ms} | `{queue}` | {ratio:.2} | {:.2} to {:.2} | {} to {} |",
        ratios[0],
        ratios[ratios.len() - 1],
        drops[0],
        drops[drops.len() - 1]
    );
    ratio
}
