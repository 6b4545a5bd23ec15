//! The command line of `underload measure`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use underload_line::target::Family;
use underload_line::{Request, UDP_PACKET_BYTES, class, preset, tier};
use underload_measure::Tier;
use underload_probe::load::check_congestion_control;
use underload_probe::preset::{Knobs, LoadDirections, Preset, UdpLoad};
use underload_record::schema::{Direction, Marking};

use super::keep::{Keep, keep};
use crate::quantity::{duration, rate};

/// The command line of `underload measure`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(after_help = "\
Presets:
  quick         5 s of load down, then up: four flows, best effort and DSCP 45 probes
  npms-lul      the Comcast study: one flow, 11 s down, 7 s up, after the ramp
  ull           idle DSCP 8, idle DSCP 45, then the upstream full and all classes at once
  rrul          four flows each way at once in four classes, probes in three, 60 s
  buffer-sweep  what the modem's upstream buffer holds: one flow, then ten

Examples:
  underload measure example.net
  underload measure [2001:db8::1]:4862 --preset npms-lul --tier 40mbit/10mbit
  underload measure example.net --up --flows 1 --congestion-control bbr --duration 10s
  underload measure example.net --class 0 --class 45 --class 45/ect1 --json
  underload measure example.net --every 4h --jitter --keep 90d --out runs/line
  underload measure ndt7 --accept-terms")]
pub struct Arguments {
    /// The server: a name or an address, with its port if it is another than 4862. Without a server
    /// of your own: the URL `https://HOST[:PORT][/PATH]` of a responsiveness server, `ndt7` for the
    /// nearest of M-Lab's public servers, or `ndt7://HOST[:PORT]`; with these no option is taken
    /// that says how to probe or how to load, but --up, --down, --duration and
    /// --congestion-control (of the way up).
    pub host: String,
    /// What to measure [default: quick].
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<Preset>,
    /// Loads only the way up.
    #[arg(long, conflicts_with_all = ["down", "both"])]
    pub up: bool,
    /// Loads only the way down.
    #[arg(long, conflicts_with = "both")]
    pub down: bool,
    /// Loads both ways at once.
    #[arg(long)]
    pub both: bool,
    /// Flows per direction; a session has 64 at most, both directions together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub flows: Option<u32>,
    /// Congestion control of the TCP flows, at both ends.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion_control: String,
    /// Loads with UDP at this rate per direction instead of TCP.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub udp: Option<u64>,
    /// Packets of the UDP load that leave back to back.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "udp")]
    pub burst: u16,
    /// A class of probes, DSCP or DSCP/ECN such as 45/ect1; may be given several times, the first
    /// is the headline.
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    pub classes: Vec<Marking>,
    /// Length of the load.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Length of the idle phase before it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle: Option<Duration>,
    /// From one probe of a class to the next.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,
    /// What the line is sold as, DOWN/UP such as 40mbit/10mbit: throughput is given in percent of
    /// it.
    #[arg(long, value_name = "DOWN/UP", value_parser = tier)]
    pub tier: Option<Tier>,
    /// Whom to believe: first-use (as SSH does), the server's fingerprint (sha256:...), or its
    /// certificate in a PEM file.
    #[arg(long, value_name = "TRUST", default_value = "first-use")]
    pub trust: String,
    /// A file whose first line is the token that the server asks for.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How long to wait for a server that is busy.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Measures again and again, this long from one start to the next; --out names the directory
    /// of all runs [default: runs/history]. Against M-Lab's servers it is the mean of pauses that
    /// are drawn as M-Lab asks for, and at least 6h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Makes that up to a quarter shorter or longer, by chance.
    #[arg(long, requires = "every")]
    pub jitter: bool,
    /// How often, with --every; without it, until interrupted.
    #[arg(long, value_name = "N", requires = "every")]
    pub times: Option<u64>,
    /// With --every, removes the oldest runs of the series: keeps the latest N, those that fit into
    /// a size such as 500MiB, or those of the latest days, such as 90d. The newest always stays,
    /// and the numbers of all stay for `underload history`.
    #[arg(long, value_name = "N|SIZE|DAYS", requires = "every", value_parser = keep)]
    pub keep: Option<Keep>,
    /// Keeps the server's whole address in the record, where HOST is one, instead of its /24 or
    /// /48.
    #[arg(long)]
    pub keep_address: bool,
    /// Only over IPv4.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Only over IPv6.
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// The run directory, which must not hold a run yet [default: runs/measure-PRESET-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Accepts the terms of M-Lab's public servers, once: they publish results and your address.
    #[arg(long)]
    pub accept_terms: bool,
    /// With ndt7: who is asked for the nearest server [default: M-Lab's locate service].
    #[arg(long, value_name = "URL")]
    pub locate: Option<String>,
    /// Prints the result as one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Opens the report in a browser.
    #[arg(long, conflicts_with = "every")]
    pub open: bool,
}

impl Arguments {
    /// Refuses settings that no server could measure with.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_every()?;
        self.request().check()
    }

    /// Refuses options that a test against a server of another kind would pass over in silence.
    pub fn check_foreign(&self) -> anyhow::Result<()> {
        let given = [
            ("--preset", self.preset.is_some()),
            ("--both", self.both),
            ("--flows", self.flows.is_some()),
            ("--udp", self.udp.is_some()),
            ("--class", !self.classes.is_empty()),
            ("--idle", self.idle.is_some()),
            ("--interval", self.interval.is_some()),
            ("--tier", self.tier.is_some()),
            ("--token-file", self.token_file.is_some()),
            ("--wait", self.wait.is_some()),
            ("--ipv4", self.ipv4),
            ("--ipv6", self.ipv6),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            bail!("{name}: only against `underload serve`, which {} is not", self.host);
        }
        self.check_every()?;
        check_congestion_control(&self.congestion_control).context("--congestion-control")
    }

    fn check_every(&self) -> anyhow::Result<()> {
        if self.every.is_some_and(|every| every < SHORTEST_PAUSE) {
            bail!("--every: at least 1min is accepted");
        }
        Ok(())
    }

    /// Returns what to measure, and against which server.
    pub fn request(&self) -> Request {
        let directions = match (self.up, self.down, self.both) {
            (true, ..) => LoadDirections::Only(Direction::Up),
            (_, true, _) => LoadDirections::Only(Direction::Down),
            (.., true) => LoadDirections::Both,
            _ => LoadDirections::AsPreset,
        };
        let udp = self.udp.map(|rate_bit_per_s| UdpLoad {
            rate_bit_per_s,
            packet_bytes: UDP_PACKET_BYTES,
            burst_packets: self.burst,
        });
        Request {
            host: self.host.clone(),
            preset: self.preset.unwrap_or(Preset::Quick),
            knobs: Knobs {
                congestion_control: self.congestion_control.clone(),
                directions,
                flows: self.flows,
                udp,
                duration: self.duration,
                idle: self.idle,
                interval: self.interval,
                classes: self.classes.clone(),
            },
            tier: self.tier,
            trust: self.trust.clone(),
            token_file: self.token_file.clone(),
            wait: self.wait,
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Family::V4,
                (_, true) => Family::V6,
                _ => Family::Any,
            },
            keep_address: self.keep_address,
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server would refuse, or nobody would keep, is told before anything is measured.
    #[test]
    fn what_cannot_be_measured_is_refused_at_once() {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            measure: Arguments,
        }
        let checked = |words: &str| {
            let words = ["measure", "a.example"].into_iter().chain(words.split_whitespace());
            let parsed = <CommandLine as clap::Parser>::try_parse_from(words);
            parsed.map_err(anyhow::Error::from).and_then(|it| it.measure.check())
        };
        for (words, said) in [
            ("--class 0 --class 0", "--class: 0/not-ect is given twice"),
            ("--class ef --class 0 --class 46/not-ect", "--class: 46/not-ect is given twice"),
            ("--flows 65", "65 is not in 1..=64"),
            ("--flows 33 --both", "step both would have 66 in all, and a session has 64 at most"),
            ("--flows 33 --preset rrul", "step rrul would have 66 in all"),
            ("--flows 4 --preset buffer-sweep", "--flows: the numbers of flows are what"),
        ] {
            let error = checked(words).expect_err(words).to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
        for words in ["--flows 64", "--flows 32 --both", "--class 46 --class 46/ect1"] {
            assert!(checked(words).is_ok(), "{words}");
        }
    }
}
