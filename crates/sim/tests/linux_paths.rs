//! Paths on which a Linux 7.3.4 kernel was measured in virtual time (QEMU with `-icount`, offloads
//! off): one flow through HTB with 14 bytes of overhead per packet, a ping every 50 ms, the first
//! 10 s left out.

mod support;

use underload_aqm::time::Span;
use underload_record::schema::{LatencyMeasure, Phase};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::HopConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

/// A path of the kernel's table.
struct Path {
    queue: &'static str,
    megabits: u32,
    base_rtt_us: u32,
    /// Of the load phase, which follows 10 s of ramp.
    seconds: u64,
}

impl Path {
    fn run(&self, algorithm: Algorithm) -> TrialOutcome {
        let half_us = self.base_rtt_us / 2;
        let link = format!("{}mbit:delay={half_us}us,overhead=14B", self.megabits);
        let schedule = ProbeSchedule::Open { interval: Span::from_millis(50) };
        let probe = ProbeConfig { schedule, ..ProbeConfig::default() };
        let back = format!("1gbit:delay={half_us}us");
        run(SimConfig {
            up: vec![HopConfig::parse(self.queue, &link).unwrap()],
            down: vec![HopConfig::parse("fifo:limit=10000p", &back).unwrap()],
            flows: vec![
                FlowConfig::new("ping", FlowKind::Probe(probe)),
                support::flow("f", algorithm),
            ],
            phases: Phases {
                ramp: Span::from_secs(10),
                load: Span::from_secs(self.seconds),
                ..Phases::default()
            },
            seed: 1,
            sample_interval: None,
            label: TrialLabel::default(),
        })
        .unwrap()
    }

    /// Median of what the queue adds to a ping, ms.
    fn queue_p50_ms(&self, outcome: &TrialOutcome) -> f64 {
        let in_load = outcome.record.latencies.iter().find(|latency| {
            latency.window.phase == Phase::Load && latency.measure == LatencyMeasure::RoundTrip
        });
        let p50_ns = in_load.and_then(|latency| latency.distribution).unwrap().p50_ns;
        p50_ns as f64 / 1e6 - f64::from(self.base_rtt_us) / 1e3
    }
}

#[test]
fn bbr_keeps_the_standing_queue_that_linux_keeps() {
    let paths = [
        ("fifo:limit=312500B", 10, 17_000, 8.9),
        ("fifo:limit=256KiB", 20, 40_000, 4.0),
        ("codel:profile=linux,limit=1000p", 50, 40_000, 3.1),
        ("fifo:limit=800000B", 10, 160_000, 6.0),
        ("fifo:limit=50000B", 10, 10_000, 8.9),
        ("fifo:limit=12500B", 10, 40_000, 3.2),
        ("fifo:limit=40000B", 2, 40_000, 43.6),
    ];
    let mut far = Vec::new();
    for (queue, megabits, base_rtt_us, linux_ms) in paths {
        let path = Path { queue, megabits, base_rtt_us, seconds: 40 };
        let ours_ms = path.queue_p50_ms(&path.run(Algorithm::Bbr));
        // HTB lets a packet go as soon as it has tokens, so that the kernel's smallest round trip
        // is a packet time shorter and its window up to a packet smaller.
        let packet_ms = 1_514.0 * 8.0 / 1e3 / f64::from(megabits);
        if (ours_ms - linux_ms).abs() > packet_ms.max(1.2) {
            far.push((queue, megabits, base_rtt_us, ours_ms, linux_ms));
        }
    }
    assert!(far.is_empty(), "more than a packet time or 1.2 ms off, ours and Linux': {far:?}");
}
