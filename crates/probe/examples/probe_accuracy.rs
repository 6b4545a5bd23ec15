//! How accurate is the prober on an idle wire? Prints it beside `ping` and `irtt`.
//!
//! `cargo run --release -p underload-probe --example probe_accuracy [SECONDS] [SPIN_US]`
//!
//! Makes two network namespaces joined by a veth pair, which needs root, and deletes them
//! afterwards.

mod support;

use std::time::Duration;

use support::{Failure, Namespace, Stopped, ip, text_of};
use underload_probe::RunClock;
use underload_probe::endpoint::{Prober, ProberConfig, Reflector, ReflectorConfig, ThreadTiming};
use underload_probe::session::match_replies;
use underload_report::schema::{Marking, Sample};

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let spin_us: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let wire = Wire::new()?;
    println!("idle veth wire, 1 ms interval, {seconds} s; round trips in microseconds");
    println!("{:<24} sent/planned      p50     p90     p99   p99.9     max", "");
    let timing = |spin_ns, real_time_priority| ThreadTiming { spin_ns, real_time_priority };
    let spin_ns = spin_us * 1_000;
    for (name, timing) in [
        ("ours", timing(spin_ns, Some(20))),
        ("ours, normal priority", timing(spin_ns, None)),
        ("ours, no spin", timing(0, Some(20))),
    ] {
        ours(&wire, name, seconds, timing)?;
    }
    ping(&wire, seconds)?;
    irtt(&wire, seconds);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn ours(wire: &Wire, name: &str, seconds: u64, timing: ThreadTiming) -> Result<(), Failure> {
    let far = wire.far.udp("10.99.0.2:0")?;
    let near = wire.near.udp("10.99.0.1:0")?;
    let target = far.local_addr()?;
    let reflector = ReflectorConfig { timing, ..ReflectorConfig::lab() };
    let _reflector = Reflector::start(vec![far], reflector)?;
    let clock = RunClock::start();
    let processor_before = processor_time()?;
    let start_ns = 50_000_000;
    let end_ns = start_ns + seconds * 1_000_000_000;
    let interval = Duration::from_millis(1);
    let config = ProberConfig { interval, start_ns, timing, ..ProberConfig::default() };
    let prober = Prober::start(near, target, config, clock)?;
    prober.end_at(end_ns);
    clock.sleep_until(end_ns + 200_000_000);
    let log = prober.finish()?;
    let processor =
        processor_time()?.saturating_sub(processor_before).as_secs_f64() / seconds as f64;
    let collected =
        match_replies(&log.sent, &log.replies, 1_000_000_000, &[Marking::default()], &[]);
    let round_trips = collected.samples.iter().filter_map(|sample| sample.rtt_ns).collect();
    let lateness = collected.samples.iter().map(Sample::lateness_ns).collect();
    print_row(name, log.sent.len() as u64, log.planned, round_trips);
    print_row("  lateness", log.sent.len() as u64, log.planned, lateness);
    println!("  lost {}, processor {:.1} %", collected.counts[0].lost, processor * 100.0);
    Ok(())
}

fn ping(wire: &Wire, seconds: u64) -> Result<(), Failure> {
    let count = (seconds * 1_000).to_string();
    let output =
        wire.near.command("ping").args(["-i", "0.001", "-c", &count, "10.99.0.2"]).output();
    let Some(text) = text_of("ping", output) else { return Ok(()) };
    let times = text.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
    let round_trips: Result<Vec<f64>, _> = times.map(str::parse).collect();
    let round_trips: Vec<u64> = round_trips?.iter().map(|ms| (ms * 1e6) as u64).collect();
    print_row("ping", round_trips.len() as u64, seconds * 1_000, round_trips);
    Ok(())
}

fn irtt(wire: &Wire, seconds: u64) {
    let server =
        wire.far.command("irtt").args(["server", "-i", "0", "-b", "10.99.0.2:2112"]).spawn();
    let Ok(server) = server else {
        eprintln!("SKIPPED irtt: not installed");
        return;
    };
    let _server = Stopped(server);
    std::thread::sleep(Duration::from_millis(500));
    let duration = format!("{seconds}s");
    let options =
        ["client", "-i", "1ms", "-d", &duration, "-l", "64", "-q", "-o", "-", "10.99.0.2"];
    let output = wire.near.command("irtt").args(options).output();
    let Some(text) = text_of("irtt", output) else { return };
    let delays = text.split("\"delay\":").skip(1).filter_map(|rest| {
        let rest = rest.split("\"rtt\":").nth(1)?;
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    let round_trips: Vec<u64> = delays.collect();
    print_row("irtt", round_trips.len() as u64, seconds * 1_000, round_trips);
}

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn print_row(name: &str, sent: u64, planned: u64, mut nanos: Vec<u64>) {
    nanos.sort_unstable();
    let quantile = |share: f64| {
        let rank = (nanos.len() as f64 * share).ceil() as usize;
        nanos.get(rank.saturating_sub(1)).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    let values = [0.5, 0.9, 0.99, 0.999, 1.0].map(quantile).map(|us| format!("{us:>7.1}"));
    println!("{name:<24} {sent:>6}/{planned:<6} {}", values.join(" "));
}

fn processor_time() -> Result<Duration, Failure> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let total = usage.user_time() + usage.system_time();
    Ok(Duration::new(total.tv_sec() as u64, total.tv_usec() as u32 * 1_000))
}

/// Two namespaces and a veth pair.
struct Wire {
    near: Namespace,
    far: Namespace,
}

impl Wire {
    fn new() -> Result<Self, Failure> {
        let process = std::process::id();
        let near = Namespace::new(format!("ulacc{process}a"))?;
        let far = Namespace::new(format!("ulacc{process}b"))?;
        let (a, b) = (&near.name, &far.name);
        ip(&[
            "link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire", "netns", b,
        ])?;
        for (name, address) in [(a, "10.99.0.1/24"), (b, "10.99.0.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", "wire"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "wire", "up"])?;
        }
        Ok(Self { near, far })
    }
}
