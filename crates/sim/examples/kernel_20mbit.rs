//! The simulator beside the kernel: 20 Mbit/s with 14 bytes of overhead, 20 ms each way, one or ten
//! CUBIC flows for 30 s, the first 10 s discarded. Prints, per queue and number of flows, the link
//! rate and the round trip of a probe every 20 ms, simulated and as measured through the same
//! disciplines in Linux 7.2 (means of two runs where there are two), and whether it is within 3 %,
//! 2 ms at p50 and 5 ms at p99.
//!
//! ```text
//! cargo run --release -p underload-sim --example kernel_20mbit -- [SEED]
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result of the program")]

use underload_aqm::time::Span;
use underload_record::schema::{Direction, LatencyMeasure, Phase};
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, SimError, TrialLabel, TrialOutcome, run};

/// The kernel's results of one case: link rate in Mbit/s, ping p50 and p99 in ms.
struct Case {
    queue: &'static str,
    /// The link behind the queue; a faster one if the queue shapes.
    link: &'static str,
    flows: usize,
    rate: f64,
    p50: f64,
    p99: f64,
}

const fn case(queue: &'static str, flows: usize, rate: f64, p50: f64, p99: f64) -> Case {
    Case { queue, link: "20mbit:delay=20ms,overhead=14B", flows, rate, p50, p99 }
}

/// As [`case`], for a queue that shapes.
const fn shaped(queue: &'static str, flows: usize, rate: f64, p50: f64, p99: f64) -> Case {
    Case { link: "1gbit:delay=20ms,overhead=14B", ..case(queue, flows, rate, p50, p99) }
}

const CASES: [Case; 20] = [
    case("fifo:limit=262144B", 1, 20.00, 124.0, 144.0),
    case("fifo:limit=262144B", 10, 20.00, 137.0, 144.0),
    case("pie:profile=linux", 1, 19.97, 54.8, 65.4),
    case("pie:profile=linux", 10, 19.99, 55.3, 64.7),
    case("codel:profile=linux", 1, 19.23, 41.3, 46.8),
    case("codel:profile=linux", 10, 20.00, 49.4, 55.9),
    case("fq-codel:profile=linux", 1, 19.24, 40.3, 40.6),
    case("fq-codel:profile=linux", 10, 20.00, 40.4, 40.8),
    shaped("cake:rate=20mbit", 1, 19.10, 40.3, 40.6),
    shaped("cake:rate=20mbit", 10, 19.98, 40.3, 41.2),
    case("cake:tins=besteffort", 1, 19.18, 40.3, 40.6),
    case("cake:tins=besteffort", 10, 19.97, 40.4, 41.2),
    case("dualpi2:profile=linux", 1, 19.81, 52.2, 62.4),
    case("dualpi2:profile=linux", 10, 20.02, 55.5, 65.9),
    case("fq-pie:profile=linux", 1, 19.95, 40.4, 40.6),
    case("fq-pie:profile=linux", 10, 19.99, 40.4, 40.7),
    case(
        "red:limit=400000B,min=30000B,max=90000B,max-p=2%,weight=3.125%,gentle=off",
        1,
        19.92,
        48.0,
        54.3,
    ),
    case(
        "red:limit=400000B,min=30000B,max=90000B,max-p=2%,weight=3.125%,gentle=off",
        10,
        20.01,
        59.3,
        64.3,
    ),
    case("bode:profile=paper,bound=20ms", 1, 19.98, 55.1, 59.9),
    case("bode:profile=paper,bound=20ms", 10, 19.97, 57.5, 60.0),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    println!(
        "{:<76} {:>5} {:>13} {:>15} {:>15}  verdict",
        "queue", "flows", "Mbit/s", "p50 ms", "p99 ms"
    );
    for case in &CASES {
        match HopConfig::parse(case.queue, case.link) {
            Ok(hop) => println!("{}", compare(case, &simulate(hop, case.flows, seed)?)),
            Err(error) => println!("{:<76} {:>5} not built: {error}", case.queue, case.flows),
        }
    }
    Ok(())
}

fn simulate(hop: HopConfig, flows: usize, seed: u64) -> Result<TrialOutcome, SimError> {
    let schedule = ProbeSchedule::Open { interval: Span::from_millis(20) };
    let probe = ProbeConfig { schedule, payload_bytes: 56, ..ProbeConfig::default() };
    let tcp = TcpConfig { receive_window_bytes: 6 << 20, ..TcpConfig::default() };
    let mut all = vec![FlowConfig::new("ping", FlowKind::Probe(probe))];
    all.extend(
        (0..flows)
            .map(|index| FlowConfig::new(format!("cubic-{index}"), FlowKind::Tcp(tcp.clone()))),
    );
    let back = HopConfig::parse("fifo:limit=20000p", "10gbit:delay=20ms,overhead=14B");
    run(SimConfig {
        up: vec![hop],
        down: back.into_iter().collect(),
        flows: all,
        phases: Phases {
            idle: Span::from_millis(300),
            ramp: Span::from_secs(10),
            load: Span::from_secs(20),
            drain: Span::ZERO,
        },
        seed,
        sample_interval: None,
        label: TrialLabel::default(),
    })
}

fn compare(case: &Case, outcome: &TrialOutcome) -> String {
    let latency = outcome.record.latencies.iter().find(|latency| {
        latency.window.phase == Phase::Load && latency.measure == LatencyMeasure::RoundTrip
    });
    let link = outcome.record.bottlenecks.iter().find(|bottleneck| {
        bottleneck.window.phase == Phase::Load && bottleneck.direction == Direction::Up
    });
    let (Some(distribution), Some(link)) = (latency.and_then(|l| l.distribution), link) else {
        return format!("{:<76} {:>5} nothing came back", case.queue, case.flows);
    };
    let rate = link.throughput_bit_per_s as f64 / 1e6;
    let (p50, p99) = (distribution.p50_ns as f64 / 1e6, distribution.p99_ns as f64 / 1e6);
    let mut misses = Vec::new();
    if (rate / case.rate - 1.0).abs() > 0.03 {
        misses.push("rate");
    }
    if (p50 - case.p50).abs() > 2.0 {
        misses.push("p50");
    }
    if (p99 - case.p99).abs() > 5.0 {
        misses.push("p99");
    }
    let verdict = if misses.is_empty() { "met".to_owned() } else { misses.join(", ") + " missed" };
    let retransmits: u64 = outcome.tcp.iter().flatten().map(|stats| stats.retransmits).sum();
    format!(
        "{:<76} {:>5} {rate:>6.2}/{:<6.2} {p50:>7.1}/{:<7.1} {p99:>7.1}/{:<7.1}  {verdict} \
         (retransmits {retransmits})",
        case.queue, case.flows, case.rate, case.p50, case.p99
    )
}
