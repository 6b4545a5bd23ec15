//! How fast the simulator is: long TCP flows through one bottleneck.
//!
//! ```text
//! cargo run --release -p underload-sim --example dumbbell -- \
//!     [QUEUE] [MBIT/S] [RTT MS] [FLOWS] [SECONDS] [ALGORITHM]
//! ```
//!
//! Both directions have a link of the same rate; the queue under test is in the direction of the
//! data. Prints the packets delivered by that link, CPU seconds, packets per CPU second, drops,
//! goodput and memory.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]
#![expect(clippy::disallowed_methods, reason = "measures real time and memory")]

use std::process::ExitCode;
use std::time::Instant;

use underload_aqm::time::{Span, Time};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(line) => {
            #[expect(clippy::print_stdout, reason = "the result of the program")]
            {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dumbbell: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &[String]) -> Result<String, Box<dyn std::error::Error>> {
    let argument = |position: usize, default: &'static str| {
        arguments.get(position).map_or(default, String::as_str).to_owned()
    };
    let mbit: u64 = argument(1, "100").parse()?;
    let rtt_ms: u64 = argument(2, "40").parse()?;
    let flows: usize = argument(3, "10").parse()?;
    let seconds: u64 = argument(4, "60").parse()?;
    let bdp_packets = (mbit * 1_000_000 * rtt_ms / 1_000 / 8 / 1_500).max(10);
    let queue = argument(0, "fifo");
    let queue = if queue == "fifo" { format!("fifo:limit={bdp_packets}p") } else { queue };
    let name = argument(5, "cubic");
    let algorithm = Algorithm::from_name(&name)
        .ok_or_else(|| format!("no congestion control is called '{name}'"))?;
    let link = format!("{mbit}mbit:delay={}us", rtt_ms * 500);
    let tcp = TcpConfig { ecn: algorithm.ecn(EcnUse::Off), ..TcpConfig::of(algorithm) };
    let config = SimConfig {
        up: vec![HopConfig::parse(&queue, &link)?],
        down: vec![HopConfig::parse("fifo:limit=10000p", &link)?],
        flows: (0..flows)
            .map(|index| FlowConfig {
                start: Some(Time::from_millis(10 * (index as u64 % 100))),
                ..FlowConfig::new(format!("bulk-{index}"), FlowKind::Tcp(tcp.clone()))
            })
            .collect(),
        phases: Phases { load: Span::from_secs(seconds), ..Phases::default() },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    };
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let outcome = run(config)?;
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let bottleneck = &outcome.record.bottlenecks[0];
    let delivered = bottleneck.sent.packets;
    let goodput: u64 =
        outcome.record.flows.iter().filter_map(|flow| flow.goodput_up_bit_per_s).sum();
    let retransmits: u64 = outcome.record.flows.iter().filter_map(|flow| flow.retransmits).sum();
    let timeouts: u64 = outcome.tcp.iter().flatten().map(|stats| stats.timeouts).sum();
    Ok(format!(
        "queue={} mbit={mbit} flows={flows} seconds={seconds} delivered={delivered} \
         cpu={cpu:.3} wall={wall:.3} per_cpu_second={:.0} events_per_packet={:.2} drops={} \
         retransmits={retransmits} timeouts={timeouts} goodput_mbit={:.2} rss_mib={:.1}",
        bottleneck.queue,
        delivered as f64 / cpu,
        outcome.cost.events as f64 / delivered as f64,
        bottleneck.dropped_packets(),
        goodput as f64 / 1e6,
        peak_memory_mib(),
    ))
}

/// CPU time of this process in user mode and kernel mode.
fn cpu_seconds() -> f64 {
    // First field: nanoseconds on a CPU (single-threaded, so the process is its main thread).
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = stat.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e9
}

fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1_024.0
}
