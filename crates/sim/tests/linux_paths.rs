//! Paths on which Linux 7.3.4 was measured in virtual time (User-Mode Linux, offloads off, three
//! seeds): one flow through HTB with 14 bytes of overhead per packet, then a hop of the same rate
//! (`netem rate`) that adds the transmission time, which HTB does not; a probe every 50 ms. The
//! first 10 s are discarded. `docs/contributing/validation.md` has the table.

mod support;

use underload_aqm::time::Span;
use underload_record::schema::{LatencyMeasure, Phase};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::HopConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

struct Path {
    queue: &'static str,
    megabits: u32,
    base_rtt_us: u32,
    /// Length of the load phase, which follows 10 s of ramp.
    seconds: u64,
}

impl Path {
    fn run(&self, algorithm: Algorithm) -> TrialOutcome {
        let half_us = self.base_rtt_us / 2;
        let link = format!("{}mbit:delay={half_us}us,overhead=14B", self.megabits);
        let back = format!("1gbit:delay={half_us}us");
        let schedule = ProbeSchedule::Open { interval: Span::from_millis(50) };
        let probe = ProbeConfig { schedule, ..ProbeConfig::default() };
        run(SimConfig {
            up: vec![HopConfig::parse(self.queue, &link).unwrap()],
            down: vec![HopConfig::parse("fifo:limit=10000p", &back).unwrap()],
            flows: vec![
                FlowConfig::new("probe", FlowKind::Probe(probe)),
                support::flow("tcp", algorithm),
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

    /// Median of the queuing delay of a probe, ms.
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
    // Linux' seeds: 7.4 to 7.5, 3.0, 1.0, 4.2 to 5.0, 7.2 to 7.3, 1.8 to 2.2, 35.3 to 36.6 ms.
    let paths = [
        ("fifo:limit=312500B", 10, 17_000, 7.44),
        ("fifo:limit=256KiB", 20, 40_000, 3.02),
        ("codel:profile=linux,limit=1000p", 50, 40_000, 1.01),
        ("fifo:limit=800000B", 10, 160_000, 4.59),
        ("fifo:limit=50000B", 10, 10_000, 7.24),
        ("fifo:limit=12500B", 10, 40_000, 2.04),
        ("fifo:limit=40000B", 2, 40_000, 36.08),
    ];
    for (queue, megabits, base_rtt_us, linux_ms) in paths {
        let path = Path { queue, megabits, base_rtt_us, seconds: 40 };
        let ours_ms = path.queue_p50_ms(&path.run(Algorithm::Bbr));
        let name = format!("{queue}, {megabits} Mbit/s, {base_rtt_us} us");
        assert!((ours_ms - linux_ms).abs() < 0.5, "{name}: {ours_ms} ms, Linux {linux_ms}");
    }
}

#[test]
fn cubic_and_reno_lose_a_packet_per_event_and_not_its_retransmission() {
    let path = Path { queue: "fifo:limit=50000B", megabits: 10, base_rtt_us: 10_000, seconds: 18 };
    // Linux: 18, 21 and 18 drops of CUBIC, 37, 40 and 40 of Reno.
    for (algorithm, linux) in [(Algorithm::Cubic, 19), (Algorithm::Reno, 39)] {
        let drops = support::up_link(&path.run(algorithm)).dropped_packets();
        let name = algorithm.name();
        assert!(drops.abs_diff(linux) <= 4, "{name}: {drops} drops, Linux {linux}");
    }
}

#[test]
fn dctcp_is_marked_by_codel_as_often_as_in_linux() {
    let queue = "codel:profile=linux,limit=1000p,ecn=on";
    let path = Path { queue, megabits: 50, base_rtt_us: 40_000, seconds: 14 };
    let outcome = path.run(Algorithm::Dctcp);
    // Linux: 5829, 5835 and 5721 marks.
    let marks: u64 = support::up_link(&outcome).marks.values().sum();
    assert!((5_500..6_100).contains(&marks), "{marks}");
    let queue_ms = path.queue_p50_ms(&outcome);
    assert!((queue_ms - 6.17).abs() < 0.2, "{queue_ms} ms, Linux 6.17");
}

#[test]
fn westwood_sets_its_window_when_a_loss_is_repaired() {
    let path = Path { queue: "fifo:limit=200kB", megabits: 5, base_rtt_us: 160_000, seconds: 40 };
    let ours_ms = path.queue_p50_ms(&path.run(Algorithm::Westwood));
    // A window that is set at the loss, before the queue drains, keeps 169 ms.
    assert!((ours_ms - 183.3).abs() < 8.0, "{ours_ms} ms, Linux 183.3");
}
