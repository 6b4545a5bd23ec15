//! Measures the speed and lateness of the emulator on this machine: iperf3 and ping between the
//! namespaces of a lab, through one queue and link each way. Prints one line per variant.
//!
//! ```text
//! cargo run --release -p underload-emu --example throughput -- [--seconds N] [--repeat N]
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_emu::gateway::{Gateway, GatewayConfig, GatewayReport, LaneConfig, Offload};
use underload_emu::machine::{Clock, Lab, LabConfig, SERVER_V4, SERVER_V6};
use underload_record::schema::Direction;

#[derive(Parser)]
struct Options {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Measurements of each variant; the one with the median rate is shown.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[arg(long, default_value = "100gbit")]
    link: String,
    #[arg(long, default_value = "fifo:limit=16MiB")]
    queue: String,
    /// Only variants whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

struct Variant {
    name: &'static str,
    offload: Offload,
    realtime: bool,
    iperf: &'static [&'static str],
    is_v6: bool,
}

const TCP: Variant =
    Variant { name: "tcp", offload: Offload::On, realtime: true, iperf: &[], is_v6: false };

const VARIANTS: &[Variant] = &[
    TCP,
    Variant { name: "tcp ipv6", is_v6: true, ..TCP },
    Variant { name: "tcp no-realtime", realtime: false, ..TCP },
    Variant { name: "tcp reverse", iperf: &["-R"], ..TCP },
    Variant { name: "tcp 4-streams", iperf: &["-P", "4"], ..TCP },
    Variant { name: "tcp no-offload", offload: Offload::Off, ..TCP },
    Variant { name: "udp 1400B 2gbit", iperf: &["-u", "-b", "2g", "-l", "1400"], ..TCP },
];

fn main() -> Result<()> {
    underload_emu::machine::privilege::enter()?;
    let options = Options::parse();
    let link = LinkSetup::parse(&options.link)?;
    let queue = QueueSetup::parse(&options.queue, &link.facts())?;
    let lane = LaneConfig { link, queue };
    println!(
        "{:<30} {:>9} {:>10} {:>9} {:>8} {:>8} {:>30}",
        "variant",
        "Mbit/s",
        "packets/s",
        "per frame",
        "drops",
        "kernel",
        "lateness us p50/p99/p99.9/max"
    );
    for variant in VARIANTS.iter().filter(|variant| variant.name.contains(&options.only)) {
        let mut runs = Vec::new();
        for _ in 0..options.repeat.max(1) {
            runs.push(measure(variant, &lane, options.seconds)?);
        }
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (megabits, report, kernel_drops) = &runs[runs.len() / 2];
        print(variant.name, *megabits, report, *kernel_drops, options.seconds);
    }
    Ok(())
}

fn measure(
    variant: &Variant,
    lane: &LaneConfig,
    seconds: u64,
) -> Result<(f64, GatewayReport, u64)> {
    let lab = Lab::create(&LabConfig::default())?;
    let mut config = GatewayConfig::new(lane.clone(), lane.clone());
    config.offload = variant.offload;
    config.realtime = variant.realtime;
    let gateway = Gateway::start(config, lab.devices(), Clock::start())?;
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1"]).stdout(Stdio::null());
    let _server = lab.server().spawn(server)?;
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Command::new("iperf3");
    let target = if variant.is_v6 { SERVER_V6.to_string() } else { SERVER_V4.to_string() };
    client.args(["-J", "-c", &target, "-t", &seconds.to_string()]).args(variant.iperf);
    let printed = lab.client().run(client, "").context("iperf3")?;
    let report = gateway.stop()?;
    Ok((received_megabits(&printed)?, report, lab.kernel_drops()?))
}

/// Parses the receiver's rate in iperf3's JSON (for UDP its only sum, less the lost packets).
fn received_megabits(json: &str) -> Result<f64> {
    let end = json.rfind("\"sum_received\"").or_else(|| json.rfind("\"sum\":"));
    let Some(start) = end else { bail!("iperf3 printed no sum: {json}") };
    let number = |key: &str| -> Option<f64> {
        let rest = &json[start..];
        let value = rest[rest.find(key)? + key.len()..].trim_start_matches([':', '\t', ' ']);
        value[..value.find([',', '\n', '}'])?].trim().parse().ok()
    };
    let rate = number("\"bits_per_second\"").context("iperf3 printed no rate")?;
    let lost = number("\"lost_percent\"").unwrap_or(0.0);
    Ok(rate * (1.0 - lost / 100.0) / 1e6)
}

fn print(name: &str, megabits: f64, report: &GatewayReport, kernel_drops: u64, seconds: u64) {
    let late = report.lateness().unwrap_or_default();
    let us = |ns: i64| ns / 1000;
    let directions = [Direction::Up, Direction::Down];
    let lanes = directions.iter().filter_map(|direction| report.lane(*direction));
    let (mut packets, mut frames, mut drops) = (0, 0, 0);
    for lane in lanes {
        let whole = &lane.recording.whole;
        packets += lane.io.packets;
        frames += lane.io.frames_read;
        drops += whole.link.counts.dropped_packets();
        drops += whole.gateway.input_drops.values().map(|count| count.packets).sum::<u64>();
    }
    println!(
        "{name:<30} {megabits:>9.0} {:>10} {:>9.1} {drops:>8} {kernel_drops:>8} {:>30}",
        packets / seconds.max(1),
        packets as f64 / frames.max(1) as f64,
        format!("{}/{}/{}/{}", us(late.p50_ns), us(late.p99_ns), us(late.p999_ns), us(late.max_ns))
    );
}
