//! What the transports made for cellular links promise, on the synthetic ones.
//!
//! *Self-inflicted delay* is what a transport's own packets add: the round trip of a probe beside
//! the flow minus that of the same probe, with the same seed, alone on the link. A cellular link's
//! rate is a function of seed and time, so outages and low rates cancel out of the difference, as
//! they do where the Sprout paper subtracts the delay of an omniscient sender.

use underload_aqm::time::Span;
use underload_report::schema::{Direction, Phase, Sample};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

fn simulate(link: &str, kind: Option<FlowKind>) -> TrialOutcome {
    let mut flows = vec![FlowConfig::new("probe", FlowKind::Probe(ProbeConfig::default()))];
    flows.extend(kind.map(|kind| FlowConfig::new("flow", kind)));
    run(SimConfig {
        // As the authors' emulator: a queue that never drops, 20 ms each way.
        up: vec![HopConfig::parse("fifo:limit=100000p", &format!("{link},delay=20ms")).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=1000p", "100mbit:delay=20ms").unwrap()],
        flows,
        phases: Phases {
            ramp: Span::from_secs(10),
            load: Span::from_secs(110),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    })
    .unwrap()
}

struct Outcome {
    /// Self-inflicted delay in ms: mean and 95th percentile over time.
    mean: f64,
    p95: f64,
    /// Throughput, bit/s.
    rate: f64,
}

fn outcome(link: &str, kind: FlowKind) -> Outcome {
    let alone = simulate(link, None);
    let busy = simulate(link, Some(kind));
    let of_load = |sample: &&Sample| sample.phase == Phase::Load;
    let pairs = alone.samples.iter().filter(of_load).zip(busy.samples.iter().filter(of_load));
    let mut added: Vec<f64> = pairs
        .filter_map(|(alone, busy)| {
            assert_eq!(alone.sequence, busy.sequence);
            Some((busy.rtt_ns? as f64 - alone.rtt_ns? as f64) / 1e6)
        })
        .collect();
    added.sort_by(f64::total_cmp);
    assert!(added.len() > 4_500, "most of 5,500 probes come back: {}", added.len());
    let up = busy.record.bottlenecks.iter().find(|bottleneck| {
        bottleneck.direction == Direction::Up && bottleneck.window.phase == Phase::Load
    });
    Outcome {
        mean: added.iter().sum::<f64>() / added.len() as f64,
        p95: added[added.len() * 95 / 100],
        rate: up.unwrap().throughput_bit_per_s as f64,
    }
}

fn tcp(algorithm: Algorithm) -> FlowKind {
    // Wide enough to fill the deep queues of these links.
    let receive_window_bytes = 64 << 20;
    FlowKind::Tcp(TcpConfig { algorithm, receive_window_bytes, ..TcpConfig::default() })
}

const LTE: [&str; 3] =
    ["cellular:preset=lte-driving", "cellular:preset=lte-stationary", "cellular:preset=subway"];

#[test]
fn sprout_keeps_95_percent_of_its_delay_below_100_ms_and_uses_four_fifths_of_the_link() {
    for link in LTE {
        let sprout = outcome(link, FlowKind::Sprout);
        let capacity = outcome(link, tcp(Algorithm::Cubic)).rate;
        let share = sprout.rate / capacity;
        eprintln!("{link}: p95 {:.1} ms, {:.1} % of the link", sprout.p95, share * 100.0);
        assert!(sprout.p95 <= 100.0, "{link}: {:.1} ms", sprout.p95);
        assert!(share > 0.8, "{link}: {:.1} %", share * 100.0);
    }
}

#[test]
fn c2tcp_bounds_the_mean_round_trip_by_its_target_where_cubic_fills_the_queue() {
    for link in LTE {
        let c2tcp = outcome(link, tcp(Algorithm::C2tcp));
        let cubic = outcome(link, tcp(Algorithm::Cubic));
        assert!(cubic.mean > 2_000.0, "the premise, {link}: {:.1} ms", cubic.mean);
        let (round_trip, share) = (40.0 + c2tcp.mean, c2tcp.rate / cubic.rate);
        eprintln!(
            "{link}: mean round trip {round_trip:.1} ms, p95 added {:.1} ms, {:.1} % of the link",
            c2tcp.p95,
            share * 100.0
        );
        // The target is 100 ms; the base round trip is 40 ms.
        assert!(round_trip <= 100.0, "{link}: {round_trip:.1} ms");
        assert!(c2tcp.p95 < cubic.p95 / 50.0, "{link}: {:.1} ms", c2tcp.p95);
        assert!(share > 0.9, "{link}: {:.1} %", share * 100.0);
    }
}
