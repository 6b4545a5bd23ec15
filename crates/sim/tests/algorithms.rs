//! The known behaviour of each congestion control on one bottleneck.

mod support;

use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::{BottleneckSummary, LatencyMeasure, Phase};
use underload_sim::congestion::{Algorithm, SlowStartExit};
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

fn flow(name: &str, algorithm: Algorithm) -> FlowConfig {
    let ecn = algorithm.ecn(EcnUse::Off);
    FlowConfig::new(name, FlowKind::Tcp(TcpConfig { ecn, ..TcpConfig::of(algorithm) }))
}

fn simulate(queue: &str, link: &str, flows: Vec<FlowConfig>, seconds: u64) -> TrialOutcome {
    let mut all = vec![FlowConfig::new("probe", FlowKind::Probe(ProbeConfig::default()))];
    all.extend(flows);
    run(SimConfig {
        up: vec![HopConfig::parse(queue, link).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=10000p", "1gbit:delay=20ms").unwrap()],
        flows: all,
        phases: Phases {
            ramp: Span::from_secs(10),
            load: Span::from_secs(seconds),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    })
    .unwrap()
}

/// Goodput of the flow at `position`, Mbit/s.
fn goodput(outcome: &TrialOutcome, position: usize) -> f64 {
    outcome.record.flows[position].goodput_up_bit_per_s.unwrap() as f64 / 1e6
}

/// Round trips of the probe in the load phase: p50 and p99 in ms.
fn latency(outcome: &TrialOutcome) -> (f64, f64) {
    let of_load = |latency: &&underload_record::schema::LatencySummary| {
        latency.window.phase == Phase::Load && latency.measure == LatencyMeasure::RoundTrip
    };
    let distribution =
        outcome.record.latencies.iter().find(of_load).and_then(|l| l.distribution).unwrap();
    (distribution.p50_ns as f64 / 1e6, distribution.p99_ns as f64 / 1e6)
}

#[test]
fn bbr_fills_a_deep_queue_by_less_than_a_bandwidth_delay_product() {
    // 20 Mbit/s, 40 ms: 100 kB. CUBIC fills all of the 1 MB (440 ms).
    let bbr =
        simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![flow("f", Algorithm::Bbr)], 40);
    let cubic =
        simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![flow("f", Algorithm::Cubic)], 40);
    assert!(latency(&cubic).1 > 380.0, "the premise: {:?}", latency(&cubic));
    let (p50, p99) = latency(&bbr);
    assert!(p50 < 60.0 && p99 < 90.0, "bbr: {p50} {p99}");
    assert!(goodput(&bbr, 1) > 18.0, "{}", goodput(&bbr, 1));
}

#[test]
fn bbr_lowers_its_window_to_four_segments_every_ten_seconds() {
    // The probe measures the empty path for about 200 ms in every 10 s, and rarely between.
    let outcome = simulate(
        "fifo:limit=1000000B",
        "20mbit:delay=20ms",
        vec![flow("a", Algorithm::Bbr), flow("b", Algorithm::Bbr), flow("c", Algorithm::Bbr)],
        60,
    );
    let empty: Vec<u64> = outcome
        .samples
        .iter()
        .filter(|s| s.phase == Phase::Load && s.rtt_ns.is_some_and(|rtt| rtt < 42_000_000))
        .map(|s| s.scheduled_ns / 1_000_000)
        .collect();
    let mut dips: Vec<u64> = Vec::new();
    for at in empty {
        if dips.last().is_none_or(|last| at > last + 3_000) {
            dips.push(at);
        }
    }
    assert!((5..=7).contains(&dips.len()), "{dips:?}");
    for pair in dips.windows(2) {
        assert!((9_500..=11_500).contains(&(pair[1] - pair[0])), "{dips:?}");
    }
}

#[test]
fn bbr_cycles_through_eight_phases_of_a_round_trip_each() {
    // After start-up and before the first PROBE_RTT; the base round trip is 40 ms.
    let states = support::bbr_alone(10);
    let steady: Vec<_> =
        states.into_iter().filter(|state| (3.0..9.5).contains(&state.seconds)).collect();
    let phases = support::gain_phases(&steady);
    let up: Vec<usize> = (0..phases.len()).filter(|at| phases[*at].0 >= 1.2).collect();
    // 6.5 s are 20 cycles of 8 x 40 ms; slightly fewer fit, because the phase at 1.25 lasts until a
    // quarter more is in flight.
    assert!((17..=20).contains(&up.len()), "{phases:?}");
    for &at in &up[1..up.len() - 1] {
        let [(gain, length), (drain, drain_length), (cruise, cruise_length)] = phases[at..at + 3]
        else {
            panic!("three phases");
        };
        assert_eq!((gain, drain, cruise), (1.25, 0.75, 1.0), "{phases:?}");
        assert!((40..=85).contains(&length), "{phases:?}");
        // The phase ends early when the queue of the previous phase is empty.
        assert!((5..=50).contains(&drain_length), "{phases:?}");
        assert!((240..=300).contains(&cruise_length), "six phases: {phases:?}");
    }
    // The paced rate of 1500-byte packets is 99 % of the link, not that of their 1448 payload
    // bytes.
    let mut rates: Vec<f64> = steady.iter().map(|state| state.pacing).collect();
    rates.sort_by(f64::total_cmp);
    let cruise = rates[rates.len() / 2];
    assert!((cruise - 0.99 * 20.0).abs() < 0.05, "{cruise} Mbit/s");
}

#[test]
fn bbr_keeps_four_segments_for_200_ms_in_every_ten_seconds() {
    let states = support::bbr_alone(45);
    let low = |state: &support::State| state.seconds > 1.0 && state.in_flight <= 4.0;
    let probes: Vec<(f64, usize)> = states
        .chunk_by(|a, b| low(a) == low(b))
        .filter(|chunk| low(&chunk[0]))
        .map(|chunk| (chunk[0].seconds, chunk.len()))
        .filter(|(_, length)| *length > 20)
        .collect();
    assert_eq!(probes.len(), 4, "{probes:?}");
    for (_, length) in &probes {
        // 200 ms and a round trip until the sender notices.
        assert!((195..=290).contains(length), "{probes:?}");
    }
    for pair in probes.windows(2) {
        assert!((10.0..=10.6).contains(&(pair[1].0 - pair[0].0)), "{probes:?}");
    }
    // The rate of the flow during PROBE_RTT is not a bandwidth sample: afterwards it continues as
    // before.
    let settled: Vec<f64> =
        states.iter().filter(|state| state.seconds > 2.0).map(|state| state.pacing).collect();
    let slowest = settled.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(slowest > 14.0, "three quarters of 20 Mbit/s in the cycle, but {slowest}");
}

#[test]
fn hystart_plus_plus_leaves_slow_start_before_a_deep_queue_overflows() {
    // 67 packets in flight and 1,333 in the queue.
    let peak = |exit| {
        let algorithm = Algorithm::Reno;
        let tcp = TcpConfig { algorithm, slow_start_exit: exit, ..TcpConfig::default() };
        let flows = vec![FlowConfig::new("f", FlowKind::Tcp(tcp))];
        let config = support::config("fifo:limit=2000000B", "20mbit:delay=20ms", flows, 4);
        let (outcome, states) = support::watch(config, Span::from_millis(5));
        let peak = states.iter().map(|state| state.window).fold(0.0, f64::max);
        (peak, outcome.record.flows[0].retransmits.unwrap(), goodput(&outcome, 0))
    };
    let (overshoot, losses, _) = peak(SlowStartExit::Loss);
    assert!(losses > 100 && overshoot > 1_400.0, "the premise: {overshoot} {losses}");
    let (window, losses, goodput) = peak(SlowStartExit::HyStartPlusPlus);
    assert_eq!(losses, 0);
    assert!(
        (67.0..1_200.0).contains(&window),
        "between what is in flight and what overflows: {window}"
    );
    assert!(goodput > 17.0, "{goodput}");
}

#[test]
fn a_recovery_from_mere_reordering_is_undone() {
    // The link delays a packet in a thousand by 30 ms, far more than a quarter of the round trip.
    let run = |link: &str| {
        let flows = vec![flow("f", Algorithm::Reno)];
        let outcome = run(support::config("fifo:limit=100000B", link, flows, 60)).unwrap();
        (outcome.tcp[0].unwrap(), goodput(&outcome, 0))
    };
    let (stats, rate) = run("20mbit:delay=20ms,reorder=0.1%,reorder-by=30ms");
    assert!(stats.reductions > 20, "the premise: {stats:?}");
    assert!(stats.undone * 10 > stats.reductions * 8, "{stats:?}");
    let (lossy, lossy_rate) = run("20mbit:delay=20ms,loss=0.1%");
    assert_eq!(lossy.undone, 0, "what was lost is no duplicate: {lossy:?}");
    assert!(rate > 17.0 && rate > 1.3 * lossy_rate, "{rate} and {lossy_rate}");
}

#[test]
fn a_lost_retransmission_costs_no_timeout_and_a_full_queue_one_reduction() {
    // 2 Mbit/s, 57 ms, 64 KiB: the queue is the larger part of the round trip and still full when
    // the first retransmission arrives, which is dropped, detected as lost and retransmitted.
    let mut config = support::config(
        "fifo:limit=64KiB",
        "2mbit:delay=28500us",
        vec![support::flow("f", Algorithm::Cubic)],
        90,
    );
    config.down = vec![HopConfig::parse("fifo:limit=10000p", "1gbit:delay=28500us").unwrap()];
    let (outcome, states) = support::watch(config, Span::from_millis(50));
    let stats = outcome.tcp[0].unwrap();
    assert_eq!(stats.timeouts, 0, "{stats:?}");
    let dropped = support::up_link(&outcome).dropped_packets();
    assert!(stats.retransmits <= dropped, "nothing is sent again in vain: {stats:?} {dropped}");
    // 64 KiB are 44 packets and the link holds 10 more; seven tenths of that is 38.
    let settled = states.iter().filter(|state| state.seconds > 10.0);
    let least = settled.map(|state| state.window).fold(f64::INFINITY, f64::min);
    assert!(least >= 36.0, "reduced once per cycle: {least}");
}

#[test]
fn prague_keeps_the_mean_queue_below_a_millisecond() {
    let flows = vec![flow("f", Algorithm::Prague), flow("g", Algorithm::Prague)];
    let queue = "codel:profile=linux,ecn=on,ce-threshold=1ms";
    let outcome = simulate(queue, "100mbit:delay=5ms", flows, 30);
    let sojourn = support::up_link(&outcome).sojourn.unwrap();
    assert!(sojourn.mean_ns < 1_000_000, "{sojourn:?}");
    assert!(sojourn.p99_ns < 2_500_000, "{sojourn:?}");
    assert!(support::up_link(&outcome).throughput_bit_per_s > 90_000_000);
}

#[test]
fn bbr_ignores_random_loss_that_starves_cubic() {
    let link = "20mbit:delay=20ms,loss=2%";
    let bbr = simulate("fifo:limit=1000000B", link, vec![flow("f", Algorithm::Bbr)], 30);
    let cubic = simulate("fifo:limit=1000000B", link, vec![flow("f", Algorithm::Cubic)], 30);
    assert!(goodput(&cubic, 1) < 5.0, "the premise: {}", goodput(&cubic, 1));
    assert!(goodput(&bbr, 1) > 17.0, "{}", goodput(&bbr, 1));
}

#[test]
fn westwood_equals_reno_on_drop_tail_and_beats_it_under_random_loss() {
    let tail = |algorithm| {
        let flows = vec![flow("f", algorithm)];
        goodput(&simulate("fifo:limit=100000B", "20mbit:delay=20ms", flows, 60), 1)
    };
    let (westwood, reno) = (tail(Algorithm::Westwood), tail(Algorithm::Reno));
    assert!((westwood / reno - 1.0).abs() < 0.05, "{westwood} and {reno}");
    let lossy = |algorithm| {
        let flows = vec![flow("f", algorithm)];
        let link = "20mbit:delay=20ms,loss=0.5%";
        goodput(&simulate("fifo:limit=100000B", link, flows, 60), 1)
    };
    let (westwood, reno) = (lossy(Algorithm::Westwood), lossy(Algorithm::Reno));
    assert!(westwood > 1.5 * reno, "{westwood} and {reno}");
}

#[test]
fn equal_flows_share_equally_and_cubic_is_fair_to_reno_where_it_follows_it() {
    let flows = vec![
        flow("a", Algorithm::Cubic),
        flow("b", Algorithm::Cubic),
        flow("c", Algorithm::Reno),
        flow("d", Algorithm::Reno),
    ];
    let outcome = simulate("codel:profile=linux", "20mbit:delay=20ms", flows, 60);
    let rates: Vec<f64> = (1..=4).map(|position| goodput(&outcome, position)).collect();
    let total: f64 = rates.iter().sum();
    assert!(total > 18.0, "{rates:?}");
    for rate in &rates {
        assert!((0.15..=0.4).contains(&(rate / total)), "{rates:?}");
    }
}

#[test]
fn dctcp_and_prague_keep_the_queue_at_the_marking_threshold_without_loss() {
    for algorithm in [Algorithm::Dctcp, Algorithm::Prague] {
        let outcome = simulate(
            "codel:profile=linux,ecn=on,ce-threshold=1ms",
            "100mbit:delay=5ms",
            vec![flow("f", algorithm), flow("g", algorithm)],
            30,
        );
        let (p50, p99) = latency(&outcome);
        let total = goodput(&outcome, 1) + goodput(&outcome, 2);
        let lost: u64 =
            outcome.record.bottlenecks.iter().map(BottleneckSummary::dropped_packets).sum();
        // 25 ms of base round trip.
        let name = algorithm.name();
        assert!(p50 < 27.0 && p99 < 31.0, "{name}: {p50} {p99}");
        assert!(total > 85.0, "{name}: {total} Mbit/s");
        assert_eq!(lost, 0, "{name}: marks, not drops");
    }
}

#[test]
fn c2tcp_keeps_the_round_trip_near_its_target_in_a_deep_queue() {
    let queue = "fifo:limit=1000000B";
    let flows = |algorithm| vec![flow("f", algorithm)];
    let outcome = simulate(queue, "20mbit:delay=20ms", flows(Algorithm::C2tcp), 40);
    let (p50, p99) = latency(&outcome);
    assert!(p50 < 105.0 && p99 < 160.0, "{p50} {p99}");
    assert!(goodput(&outcome, 1) > 15.0, "{}", goodput(&outcome, 1));
}

#[test]
fn vegas_keeps_two_to_four_packets_in_a_deep_queue_and_yields_to_cubic() {
    // A packet takes 0.6 ms at 20 Mbit/s; the base round trip is 40 ms. Each acknowledgement
    // releases two packets at once, which a probe may find before it beside those that wait.
    let vegas = || flow("vegas", Algorithm::Vegas);
    let alone = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![vegas()], 40);
    let (p50, p99) = latency(&alone);
    assert!((41.2..=43.6).contains(&p50) && p99 < 44.2, "vegas: {p50} {p99}");
    assert!(goodput(&alone, 1) > 18.8, "{}", goodput(&alone, 1));
    let both = vec![vegas(), flow("cubic", Algorithm::Cubic)];
    let shared = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", both, 40);
    assert!(goodput(&shared, 1) < goodput(&shared, 2) / 4.0, "{}", goodput(&shared, 1));
}

#[test]
fn ledbat_alone_waits_its_target_and_yields_to_cubic() {
    // 100 ms above the 40 ms of the empty path; CUBIC fills the 400 ms of the queue.
    let ledbat = || flow("ledbat", Algorithm::Ledbat);
    let alone = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![ledbat()], 40);
    let (p50, p99) = latency(&alone);
    assert!((130.0..=140.0).contains(&p50) && p99 < 141.0, "ledbat: {p50} {p99}");
    assert!(goodput(&alone, 1) > 18.8, "{}", goodput(&alone, 1));
    let cubic = || flow("cubic", Algorithm::Cubic);
    let both = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![ledbat(), cubic()], 40);
    assert!(goodput(&both, 1) < goodput(&both, 2) / 20.0, "{}", goodput(&both, 1));
    let two = vec![flow("first", Algorithm::Cubic), cubic()];
    let two = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", two, 40);
    let share = goodput(&two, 1) / goodput(&two, 2);
    assert!((0.3..3.0).contains(&share), "the premise: {share}");
}

#[test]
fn a_flow_with_a_highest_rate_is_paced_at_it() {
    for algorithm in [Algorithm::Ledbat, Algorithm::Cubic, Algorithm::Bbr] {
        let mut paced = flow("paced", algorithm);
        if let FlowKind::Tcp(tcp) = &mut paced.kind {
            tcp.max_rate = Some(Rate::from_megabits_per_second(5));
        }
        let outcome = simulate("fifo:limit=1000000B", "20mbit:delay=20ms", vec![paced], 40);
        // 1,448 of 1,500 bytes are payload. BBR sends less than its rate while it drains.
        let goodput = goodput(&outcome, 1);
        assert!((4.5..4.83).contains(&goodput), "{algorithm:?}: {goodput}");
        assert!(latency(&outcome).1 < 42.0, "{algorithm:?}: {:?}", latency(&outcome));
    }
}

#[test]
fn vivace_tolerates_three_percent_of_loss_and_bounds_its_queue() {
    let run =
        |algorithm, link| simulate("fifo:limit=1000000B", link, vec![flow("f", algorithm)], 40);
    let clean = run(Algorithm::Vivace, "20mbit:delay=20ms");
    assert!(goodput(&clean, 1) > 16.0, "{}", goodput(&clean, 1));
    assert!(latency(&clean).0 < 120.0, "{:?}", latency(&clean));
    // A loss of 3 % varies from 0 to 7 % in intervals of 60 segments, so some rate changes have the
    // wrong sign.
    let lossy = goodput(&run(Algorithm::Vivace, "20mbit:delay=20ms,loss=3%"), 1);
    let cubic = goodput(&run(Algorithm::Cubic, "20mbit:delay=20ms,loss=3%"), 1);
    assert!(lossy > 10.0 && lossy > 3.0 * cubic, "vivace {lossy}, cubic {cubic}");
}
