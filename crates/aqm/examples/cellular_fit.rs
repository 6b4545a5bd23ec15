//! How close a synthetic cellular link is to recorded ones.
//!
//! ```text
//! cargo run -p underload-aqm --example cellular_fit -- SPEC TRACE... [SPEC TRACE...]
//! ```
//! Each `TRACE` (Mahimahi's format, plain or gzip) is set beside the `SPEC` before it, such as
//! `cellular:preset=lte-driving`: the rate in bins of 100 ms, its autocorrelation, and outages
//! (times of 200 ms or more without an opportunity), as a Markdown table. A link is run for an
//! hour with one seed; quantities of a recording of minutes scatter far more than that.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use underload_aqm::link::RateProcess;
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

const OPPORTUNITY_BYTES: u32 = 1_504;
const BIN_MS: u64 = 100;
const OUTAGE_MS: u64 = 200;
const LINK_SECONDS: u64 = 3_600;

/// The times of delivery opportunities in nanoseconds, and statistics of them.
struct Summary {
    mean: f64,
    quantiles: [f64; 5],
    autocorrelation: [f64; 4],
    outages_per_minute: f64,
    outage_share: f64,
    outage_median_s: f64,
    outage_p90_s: f64,
    outage_longest_s: f64,
    sorted_bins: Vec<f64>,
}

const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
const LAGS: [usize; 4] = [1, 5, 10, 50];

impl Summary {
    fn from_times(times: &[u64]) -> Self {
        let end = times.last().copied().unwrap_or(0);
        let bin_nanos = BIN_MS * 1_000_000;
        let mut bins = vec![0.0; (end / bin_nanos) as usize];
        for time in times {
            if let Some(bin) = bins.get_mut((time / bin_nanos) as usize) {
                *bin += f64::from(OPPORTUNITY_BYTES) * 8.0 / (BIN_MS as f64 * 1e3);
            }
        }
        let mut outages: Vec<f64> = times
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .filter(|gap| *gap >= OUTAGE_MS * 1_000_000)
            .map(|gap| gap as f64 / 1e9)
            .collect();
        outages.sort_by(f64::total_cmp);
        let seconds = end as f64 / 1e9;
        let autocorrelation = LAGS.map(|lag| autocorrelation(&bins, lag));
        let mean = bins.iter().sum::<f64>() / bins.len() as f64;
        bins.sort_by(f64::total_cmp);
        Self {
            mean,
            quantiles: QUANTILES.map(|q| quantile(&bins, q)),
            autocorrelation,
            outages_per_minute: outages.len() as f64 * 60.0 / seconds,
            outage_share: outages.iter().sum::<f64>() / seconds,
            outage_median_s: quantile(&outages, 0.5),
            outage_p90_s: quantile(&outages, 0.9),
            outage_longest_s: quantile(&outages, 1.0),
            sorted_bins: bins,
        }
    }

    fn row(&self, name: &str, distance: Option<f64>) -> String {
        let join = |values: &[f64], digits: usize| {
            let texts: Vec<String> = values.iter().map(|v| format!("{v:.digits$}")).collect();
            texts.join(" / ")
        };
        format!(
            "| {name} | {:.2} | {} | {} | {:.1} | {:.1} | {} | {} |",
            self.mean,
            join(&self.quantiles, 1),
            join(&self.autocorrelation, 2),
            self.outages_per_minute,
            self.outage_share * 100.0,
            join(&[self.outage_median_s, self.outage_p90_s, self.outage_longest_s], 2),
            distance.map_or_else(|| "-".to_string(), |distance| format!("{distance:.2}")),
        )
    }

    /// Greatest difference between the two distributions of the rate (Kolmogorov and Smirnov).
    fn distance(&self, other: &Self) -> f64 {
        let below = |bins: &[f64], rate: f64| {
            bins.partition_point(|bin| *bin <= rate) as f64 / bins.len() as f64
        };
        let both = self.sorted_bins.iter().chain(&other.sorted_bins);
        both.map(|&rate| (below(&self.sorted_bins, rate) - below(&other.sorted_bins, rate)).abs())
            .fold(0.0, f64::max)
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn autocorrelation(bins: &[f64], lag: usize) -> f64 {
    let mean = bins.iter().sum::<f64>() / bins.len() as f64;
    let variance: f64 = bins.iter().map(|bin| (bin - mean).powi(2)).sum();
    let pairs = bins.iter().zip(bins.iter().skip(lag));
    pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance
}

/// Returns the opportunities that a link offers to a sender that always has data to send.
fn run_link(spec: &str) -> Result<Vec<u64>, String> {
    let setup = LinkSetup::parse(spec).map_err(|error| error.to_string())?;
    let mut process: RateProcess = setup.rate.started(&Rng::new(1));
    let (mut now, mut times) = (Time::ZERO, Vec::new());
    while now < Time::from_secs(LINK_SECONDS) {
        let start = process.next_start(now).ok_or("this link never sends")?;
        now = process.transmit(start, OPPORTUNITY_BYTES).ok_or("this link never sends")?;
        times.push(now.as_nanos());
        if times.len() > 500_000_000 {
            return Err("this link is too fast to be listed".to_string());
        }
    }
    Ok(times)
}

fn read_trace(path: &str) -> Result<Vec<u64>, String> {
    let raw = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let mut text = String::new();
    let outcome = if raw.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(raw.as_slice()).read_to_string(&mut text)
    } else {
        raw.as_slice().read_to_string(&mut text)
    };
    outcome.map_err(|error| format!("{path}: {error}"))?;
    let read = |(index, line): (usize, &str)| {
        let ms = line.trim().parse::<u64>();
        ms.map(|ms| ms * 1_000_000).map_err(|error| format!("{path}: line {}: {error}", index + 1))
    };
    text.lines().enumerate().map(read).collect()
}

#[expect(clippy::print_stdout, reason = "a program whose output is its table")]
fn print_table(arguments: &[String]) -> Result<(), String> {
    println!(
        "| | mean Mbit/s | rate p5/p25/p50/p75/p95 Mbit/s | autocorrelation 0.1/0.5/1/5 s \
         | outages per min | % of time | outage p50/p90/max s | distance |"
    );
    println!("|---|---:|---|---|---:|---:|---|---:|");
    let mut link: Option<Summary> = None;
    for argument in arguments {
        if argument.starts_with("cellular") {
            let summary = Summary::from_times(&run_link(argument)?);
            println!("{}", summary.row(&format!("`{argument}`"), None));
            link = Some(summary);
        } else {
            let summary = Summary::from_times(&read_trace(argument)?);
            let distance = link.as_ref().map(|link| link.distance(&summary));
            let name = Path::new(argument).file_name().unwrap_or_default().to_string_lossy();
            println!("{}", summary.row(&name, distance));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        eprintln!("usage: cellular_fit SPEC TRACE... [SPEC TRACE...]");
        return ExitCode::from(2);
    }
    match print_table(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cellular_fit: {problem}");
            ExitCode::FAILURE
        }
    }
}
