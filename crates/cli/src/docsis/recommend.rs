//! `underload docsis recommend`: settings for a tier in one direction, and their predicted effect.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, value_parser};
use underload_docsis::qos::Direction;
use underload_docsis::recommend::{Aqm, Recommendation, Service, Wish};
use underload_docsis::text;
use underload_run::{Destination, Settings};
use underload_scenario::tier::Tier;
use underload_terminal::console::{self, note};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::help::choices;
use underload_terminal::quantity;

use super::{files, picture};
use crate::run;

#[derive(Debug, Args)]
#[command(
    after_help = "Every candidate runs in virtual time with bulk uploads, a call and page loads over
these round trips, behind a token bucket and 4 to 6 ms of waiting for grants. With --downstream the
queue is the CMTS's, which needs no grants, and the load are downloads. Among the candidates
whose call is within 0.1 MOS of the best and whose utilisation is at least PERCENT, the one with the
least latency is recommended. DIR then contains settings.toml (for `underload docsis encode`),
trade.svg, sweep.toml and the run.

Examples:
  underload docsis recommend --rate 10mbit --peak 12mbit --burst 40KiB
  underload docsis recommend --rate 5mbit --rtt 20ms..120ms --aqm docsis-pie
  underload docsis recommend --rate 35mbit --aqm low-latency --out lld-35
  underload docsis recommend --rate 200mbit --downstream --aqm docsis-pie"
)]
pub struct Arguments {
    /// Maximum sustained traffic rate, such as 10mbit.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: u64,
    /// Settings for the CMTS's queue before the downstream, instead of the modem's before the
    /// upstream.
    #[arg(long)]
    downstream: bool,
    /// Peak traffic rate [default: the sustained rate].
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    peak: Option<u64>,
    /// Maximum traffic burst: bytes that may leave at the peak rate, and with one MAP [default: two
    /// frames and the bytes of a MAP interval of 2 ms].
    #[arg(long, value_name = "SIZE", value_parser = files::size)]
    burst: Option<u64>,
    /// Base round trips to the servers of bulk transfers, shortest..longest.
    #[arg(long, value_name = "FROM..TO", default_value = "20ms..120ms", value_parser = round_trips)]
    rtt: (f64, f64),
    /// The AQM of modem and CMTS.
    #[arg(long, default_value = Aqm::None.name(), value_parser = choices(AQMS))]
    aqm: Aqm,
    /// Least utilisation of the link at every round trip [default: 95, at which a tier counts as
    /// reached; 90 with an AQM, which keeps its latency target at any rate].
    #[arg(long, value_name = "PERCENT", value_parser = quantity::percent)]
    utilisation: Option<f64>,
    /// Largest latency that the queue may add at p99, for a service flow of games: of the candidates
    /// within TIME, the one with the best utilisation.
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    latency: Option<Duration>,
    /// Number of simultaneous uploads, or downloads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
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
    #[arg(long = "repeat", value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=1000))]
    #[arg(hide_short_help = true)]
    repeats: u32,
    /// A new directory for the files [default: recommend-RATE-AQM].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// The AQMs of modems, for the help.
const AQMS: [(Aqm, &str, &str); 3] = [
    (Aqm::None, Aqm::None.name(), "No AQM: Buffer Control alone"),
    (Aqm::DocsisPie, Aqm::DocsisPie.name(), "DOCSIS-PIE, the AQM of DOCSIS 3.1"),
    (
        Aqm::LowLatency,
        Aqm::LowLatency.name(),
        "Low Latency DOCSIS: two queues, one for L4S and NQB",
    ),
];

/// Parses the shortest and the longest round trip, in ms.
fn round_trips(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let ms = |text| quantity::duration(text).map(|time| time.as_secs_f64() * 1e3);
    let (from_ms, to_ms) = (ms(from)?, ms(to)?);
    if from_ms <= 0.0 || to_ms < from_ms || to_ms > 10_000.0 {
        return Err("expected times above 0 and up to 10s, ascending: 20ms..120ms".into());
    }
    Ok((from_ms, to_ms))
}

fn block(text: &str) -> Result<u64, String> {
    let size = files::size(text)?;
    if (1..=1 << 20).contains(&size) { Ok(size) } else { Err("expected 1 byte to 1MiB".to_owned()) }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tier = arguments.tier()?;
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
    let scenario = tier.scenario(&file);
    console::write_file(&file, scenario.text().as_bytes())?;
    let settings = Settings {
        destination: Destination::Directory(directory.join("run")),
        uses_cache: true,
        commit: run::COMMIT,
        ..Settings::default()
    };
    let scenario = scenario.finish().or_bad_input().context("the sweep")?;
    let record = run::run_only(&scenario, settings).context("the sweep")?.record;
    let wish = Wish {
        utilisation_percent: arguments.utilisation.unwrap_or(arguments.aqm.utilisation_percent()),
        latency_ms: arguments.latency.map(|latency| latency.as_secs_f64() * 1e3),
    };
    let recommendation = Recommendation::new(
        tier.service,
        arguments.aqm,
        tier.rtts_ms.clone(),
        wish,
        arguments.limit,
        tier.outcomes(&record)?,
    )
    .context("no candidate: --limit leaves no buffer to try")?;
    write(&directory, &recommendation)?;
    console::print_as(arguments.json, &recommendation, || recommendation.to_string())?;
    note!("settings, picture and run: {path}");
    Ok(())
}

/// Writes the settings and the picture.
fn write(directory: &Path, recommendation: &Recommendation) -> anyhow::Result<()> {
    let settings = text::to_toml(&recommendation.configuration());
    console::write_file(&directory.join("settings.toml"), settings.as_bytes())?;
    console::write_file(
        &directory.join("trade.svg"),
        picture::trade(recommendation).svg().as_bytes(),
    )
}

impl Arguments {
    fn tier(&self) -> anyhow::Result<Tier> {
        let peak = self.peak.unwrap_or(self.rate);
        let burst = self.burst.unwrap_or_else(|| Service::default_burst_bytes(self.rate));
        let direction = if self.downstream { Direction::Downstream } else { Direction::Upstream };
        let service = Service::new(direction, self.rate, peak, burst);
        let service = service.map_err(|error| anyhow::anyhow!("--{error}")).or_bad_input()?;
        if self.limit < 4096 {
            refuse!("--limit: expected at least 4096 bytes, two full packets");
        }
        let (from_ms, to_ms) = self.rtt;
        let rtts_ms = [from_ms, (from_ms * to_ms).sqrt(), to_ms];
        let mut rtts_ms = rtts_ms.map(|rtt| (rtt * 1e3).round() / 1e3).to_vec();
        rtts_ms.dedup();
        let candidates = service.candidates(self.aqm, self.block, self.limit);
        let Self { uploads: loads, repeats, .. } = *self;
        Ok(Tier { service, rtts_ms, candidates, loads, repeats })
    }

    fn directory(&self) -> PathBuf {
        let aqm = if self.aqm == Aqm::None { "buffer" } else { self.aqm.name() };
        let way = if self.downstream { "-down" } else { "" };
        let name = || format!("recommend-{}mbit{way}-{aqm}", self.rate as f64 / 1e6);
        self.out.clone().unwrap_or_else(|| name().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_a_range_or_one() {
        assert_eq!(round_trips("20ms..120ms"), Ok((20.0, 120.0)));
        assert_eq!(round_trips("30ms"), Ok((30.0, 30.0)));
        for wrong in ["", "20..120", "120ms..20ms", "0ms", "1ms..1h"] {
            assert!(round_trips(wrong).is_err(), "{wrong}");
        }
    }
}
