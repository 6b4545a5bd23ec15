//! `underload docsis recommend`: settings for an upstream tier, and their predicted effect.
//!
//! - [`sweep`]: every candidate in virtual time.
//! - [`mod@choose`]: the choice among the candidates.
//! - [`words`], [`picture`]: the answer as text and as a diagram.

mod choose;
mod picture;
mod sweep;
mod words;

use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use underload_docsis::recommend::{Choice, Upstream, table_2};
use underload_docsis::text;

use super::files;
use choose::{Outcome, Rule, choose, front};
use sweep::Sweep;
use underload_terminal::console::{self, note};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::quantity;

#[derive(Debug, Args)]
#[command(
    after_help = "Every candidate runs in virtual time with bulk uploads, a call and page loads over
these round trips, behind a token bucket and 4 to 6 ms of waiting for grants. Among the candidates
whose call is within 0.1 MOS of the best and whose utilisation is at least PERCENT, the one with the
least latency is recommended. DIR then contains settings.toml (for `underload docsis encode`),
trade.svg, sweep.toml and the run.

Examples:
  underload docsis recommend --rate 10mbit --peak 12mbit --burst 40KiB
  underload docsis recommend --rate 5mbit --rtt 20ms..120ms --aqm docsis-pie
  underload docsis recommend --rate 35mbit --aqm low-latency --out lld-35"
)]
pub struct Arguments {
    /// Maximum sustained traffic rate of the upstream, such as 10mbit.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: u64,
    /// Peak traffic rate [default: the sustained rate].
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    peak: Option<u64>,
    /// Maximum traffic burst: bytes that may leave at the peak rate.
    #[arg(long, value_name = "SIZE", default_value = "3044B", value_parser = files::size)]
    burst: u64,
    /// Base round trips to the servers of uploads, shortest..longest.
    #[arg(long, value_name = "FROM..TO", default_value = "20ms..120ms", value_parser = round_trips)]
    rtt: RoundTrips,
    /// The AQM of modem and CMTS.
    #[arg(long, value_enum, default_value_t = Aqm::None)]
    aqm: Aqm,
    /// Least utilisation of the link at every round trip [default: 95, at which a tier counts as
    /// reached; 90 with an AQM, which keeps its latency target at any rate].
    #[arg(long, value_name = "PERCENT", value_parser = quantity::percent)]
    utilisation: Option<f64>,
    /// Number of simultaneous uploads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=100))]
    uploads: u32,
    /// Granularity of the modem's buffers, such as 1KiB.
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = block)]
    #[arg(hide_short_help = true)]
    block: u64,
    /// Largest buffer that the modem has for a flow.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = files::size)]
    #[arg(hide_short_help = true)]
    limit: u64,
    /// Trials of each condition.
    #[arg(long = "repeat", value_name = "N", default_value_t = 4, value_parser = count(1..=1000))]
    #[arg(hide_short_help = true)]
    repeats: u32,
    /// A new directory for the files [default: recommend-RATE-AQM].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

fn count(range: RangeInclusive<i64>) -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(range)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Aqm {
    /// No AQM: Buffer Control alone.
    None,
    /// DOCSIS-PIE, the AQM of DOCSIS 3.1.
    DocsisPie,
    /// Low Latency DOCSIS: two queues, one for L4S and NQB.
    LowLatency,
}

impl Aqm {
    /// Whether a candidate may be chosen. Other candidates are simulated for comparison.
    fn has(self, choice: Choice) -> bool {
        match choice {
            Choice::Buffer(_) => self == Self::None,
            Choice::DocsisPie(_) => self == Self::DocsisPie,
            Choice::LowLatency(_) => self == Self::LowLatency,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct RoundTrips {
    from_ms: f64,
    to_ms: f64,
}

fn round_trips(text: &str) -> Result<RoundTrips, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let ms = |text| quantity::duration(text).map(|time| time.as_secs_f64() * 1e3);
    let (from_ms, to_ms) = (ms(from)?, ms(to)?);
    if from_ms <= 0.0 || to_ms < from_ms || to_ms > 10_000.0 {
        return Err("expected times above 0 and up to 10s, ascending: 20ms..120ms".into());
    }
    Ok(RoundTrips { from_ms, to_ms })
}

fn block(text: &str) -> Result<u64, String> {
    let size = files::size(text)?;
    if (1..=1 << 20).contains(&size) { Ok(size) } else { Err("expected 1 byte to 1MiB".to_owned()) }
}

#[derive(Debug, Serialize)]
struct Recommendation {
    rate_bit_per_s: u64,
    peak_bit_per_s: u64,
    burst_bytes: u32,
    aqm: Aqm,
    /// Simulated base round trips.
    rtts_ms: Vec<f64>,
    /// Name of the chosen candidate.
    recommended: String,
    rule: Rule,
    /// The least utilisation that the user wants.
    utilisation_percent: f64,
    /// Name of the candidate with the size of the guideline's Table 2.
    table_2: String,
    /// Rate of the row in Table 2.
    table_2_rate_bit_per_s: u64,
    outcomes: Vec<Outcome>,
    /// Whether each of `outcomes` is on the Pareto front.
    pareto: Vec<bool>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let upstream = arguments.upstream()?;
    let sweep = arguments.sweep(upstream);
    let directory = arguments.directory();
    let path = directory.display();
    match fs::create_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            refuse!(
                "{path}: exists; expected the name of a new folder in --out, or remove this one"
            );
        }
        created => created.with_context(|| path.to_string()).or_bad_input()?,
    }
    let file = directory.join("sweep.toml");
    let scenario = sweep.scenario(&file);
    files::write(&file, scenario.text().as_bytes())?;
    let outcomes = sweep.run(&scenario, directory.join("run"))?;
    let utilisation_percent = arguments.utilisation();
    let (position, rule) = choose(&outcomes, |o| arguments.aqm.has(o.choice), utilisation_percent)
        .context("no candidate: --limit leaves no buffer to try")?;
    let (table_2_rate_bit_per_s, table_bytes) = table_2(upstream.sustained_bit_per_s);
    let recommendation = Recommendation {
        rate_bit_per_s: upstream.sustained_bit_per_s,
        peak_bit_per_s: upstream.peak_bit_per_s,
        burst_bytes: upstream.burst_bytes,
        aqm: arguments.aqm,
        rtts_ms: sweep.rtts_ms.clone(),
        recommended: outcomes[position].name.clone(),
        rule,
        utilisation_percent,
        table_2: sweep::name_of(u64::from(table_bytes).min(arguments.limit)),
        table_2_rate_bit_per_s,
        pareto: front(&outcomes),
        outcomes,
    };
    write(&directory, &recommendation, &upstream, position)?;
    if arguments.json {
        console::print_json(&recommendation)?;
    } else {
        console::print(&words::text(&recommendation, &upstream, position))?;
    }
    note!("settings, picture and run: {path}");
    Ok(())
}

/// Writes the settings and the picture.
fn write(
    directory: &Path,
    recommendation: &Recommendation,
    upstream: &Upstream,
    position: usize,
) -> anyhow::Result<()> {
    let choice = recommendation.outcomes[position].choice;
    let settings = text::to_toml(&upstream.configuration(choice));
    files::write(&directory.join("settings.toml"), settings.as_bytes())?;
    let title = format!(
        "Upstream of {}: latency against utilisation and call quality",
        sweep::rate_name(recommendation.rate_bit_per_s)
    );
    let plot =
        picture::picture(title, &recommendation.outcomes, position, &recommendation.table_2)?;
    files::write(&directory.join("trade.svg"), plot.svg().as_bytes())
}

impl Arguments {
    fn upstream(&self) -> anyhow::Result<Upstream> {
        let peak = self.peak.unwrap_or(self.rate);
        if peak < self.rate {
            refuse!("--peak: expected at least the sustained rate");
        }
        let burst = u32::try_from(self.burst).ok().filter(|bytes| (1522..=1 << 30).contains(bytes));
        let Some(burst) = burst else { refuse!("--burst: expected 1522 bytes to 1024MiB") };
        if !(100_000..=10_000_000_000).contains(&self.rate) {
            refuse!("--rate: expected 100kbit to 10gbit");
        }
        if self.limit < 4096 {
            refuse!("--limit: expected at least 4096 bytes, two full packets");
        }
        Ok(Upstream { sustained_bit_per_s: self.rate, peak_bit_per_s: peak, burst_bytes: burst })
    }

    fn sweep(&self, upstream: Upstream) -> Sweep {
        let candidates = match self.aqm {
            Aqm::None => sweep::buffers(&upstream, self.block, self.limit),
            Aqm::DocsisPie => sweep::targets(&upstream, Choice::DocsisPie),
            Aqm::LowLatency => sweep::targets(&upstream, Choice::LowLatency),
        };
        let RoundTrips { from_ms, to_ms } = self.rtt;
        let mut rtts_ms = vec![from_ms, (from_ms * to_ms).sqrt(), to_ms];
        for rtt in &mut rtts_ms {
            *rtt = (*rtt * 1e3).round() / 1e3;
        }
        rtts_ms.dedup();
        Sweep { upstream, rtts_ms, candidates, uploads: self.uploads, repeats: self.repeats }
    }

    fn utilisation(&self) -> f64 {
        self.utilisation.unwrap_or(if self.aqm == Aqm::None { 95.0 } else { 90.0 })
    }

    fn directory(&self) -> PathBuf {
        let aqm = match self.aqm {
            Aqm::None => "buffer",
            Aqm::DocsisPie => "docsis-pie",
            Aqm::LowLatency => "low-latency",
        };
        let name = || format!("recommend-{}mbit-{aqm}", self.rate as f64 / 1e6);
        self.out.clone().unwrap_or_else(|| name().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_a_range_or_one() {
        let both = round_trips("20ms..120ms").expect("a range");
        assert_eq!(both, RoundTrips { from_ms: 20.0, to_ms: 120.0 });
        let one = round_trips("30ms").expect("one");
        assert_eq!(
            (one.from_ms.to_bits(), one.to_ms.to_bits()),
            (30.0_f64.to_bits(), 30.0_f64.to_bits())
        );
        for wrong in ["", "20..120", "120ms..20ms", "0ms", "1ms..1h"] {
            assert!(round_trips(wrong).is_err(), "{wrong}");
        }
    }
}
