//! Measures the lateness of the emulator on this machine: ping through a delay each way, idle and
//! with every core kept busy by other processes.
//!
//! ```text
//! cargo run --release -p underload-emu --example punctuality -- [--seconds N] [--repeat N]
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::process::{Child, Command, Stdio};

use anyhow::Result;
use clap::Parser;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::time::Span;
use underload_emu::gateway::{Gateway, GatewayConfig, LaneConfig};
use underload_emu::machine::{Clock, Lab, LabConfig, SERVER_V4, SERVER_V6};

#[derive(Parser)]
struct Options {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Measurements of each variant.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[arg(long, default_value_t = 5)]
    interval_ms: u32,
    #[arg(long, default_value = "100mbit:delay=10ms")]
    link: String,
    /// Only variants whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

struct Variant {
    name: &'static str,
    is_busy: bool,
    realtime: bool,
    spin: Span,
    is_v6: bool,
}

const IDLE: Variant = Variant {
    name: "idle",
    is_busy: false,
    realtime: true,
    spin: Span::from_micros(150),
    is_v6: false,
};

const VARIANTS: &[Variant] = &[
    IDLE,
    Variant { name: "idle ipv6", is_v6: true, ..IDLE },
    Variant { name: "idle no-spin", spin: Span::ZERO, ..IDLE },
    Variant { name: "idle no-realtime", realtime: false, ..IDLE },
    Variant { name: "idle no-realtime no-spin", realtime: false, spin: Span::ZERO, ..IDLE },
    Variant { name: "busy", is_busy: true, ..IDLE },
    Variant { name: "busy no-realtime", is_busy: true, realtime: false, ..IDLE },
];

/// Keeps a core busy until dropped.
struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    underload_emu::machine::privilege::enter()?;
    let options = Options::parse();
    let link = LinkSetup::parse(&options.link)?;
    let queue = QueueSetup::parse("fifo:limit=1MiB", &link.facts())?;
    let lane = LaneConfig { link, queue };
    println!("two processes per core that never sleep keep all cores busy");
    println!(
        "{:<26} {:>34} {:>34} {:>6}",
        "variant", "ping ms p50/p99/p99.9/max", "late us p50/p99/p99.9/max", "spin %"
    );
    for variant in VARIANTS.iter().filter(|variant| variant.name.contains(&options.only)) {
        for _ in 0..options.repeat.max(1) {
            measure(variant, &lane, &options)?;
        }
    }
    Ok(())
}

fn measure(variant: &Variant, lane: &LaneConfig, options: &Options) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let burners = if variant.is_busy { 2 * cores } else { 0 };
    let _burners: Vec<Burner> = (0..burners).map(|_| burn()).collect::<Result<_>>()?;
    let lab = Lab::create(&LabConfig::default())?;
    let mut config = GatewayConfig::new(lane.clone(), lane.clone());
    (config.realtime, config.spin) = (variant.realtime, variant.spin);
    let gateway = Gateway::start(config, lab.devices(), Clock::start())?;
    let target = if variant.is_v6 { SERVER_V6.to_string() } else { SERVER_V4.to_string() };
    let count = options.seconds * 1000 / options.interval_ms.max(1);
    let mut ping = Command::new("ping");
    ping.args(["-c", &count.to_string(), "-i", &format!("0.{:03}", options.interval_ms), &target]);
    let printed = lab.client().run(ping, "")?;
    let report = gateway.stop()?;
    let mut times: Vec<f64> = printed
        .lines()
        .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    times.sort_by(f64::total_cmp);
    let quantile = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
    let late = report.lateness().unwrap_or_default();
    println!(
        "{:<26} {:>34} {:>34} {:>6.1}",
        variant.name,
        format!(
            "{:.2}/{:.2}/{:.2}/{:.2}",
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0)
        ),
        format!(
            "{:.1}/{:.1}/{:.1}/{:.1}",
            late.p50_ns as f64 / 1e3,
            late.p99_ns as f64 / 1e3,
            late.p999_ns as f64 / 1e3,
            late.max_ns as f64 / 1e3
        ),
        report.spun.as_nanos() as f64 / f64::from(options.seconds) / 1e7
    );
    Ok(())
}

fn burn() -> Result<Burner> {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    Ok(Burner(command.spawn()?))
}
