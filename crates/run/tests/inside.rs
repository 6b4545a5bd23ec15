//! Round trips inside a TCP load and beside it, in virtual time. In a queue that all share, a probe
//! sees what the load suffers; where each flow has a queue, it does not.

use underload_record::schema::{Direction, Phase, Quantile, TrialRecord};
use underload_scenario::Scenario;
use underload_scenario::simulation::configure;
use underload_sim::trial::{TrialLabel, run};

/// The trial of a download of four CUBIC flows over 20 Mbit/s and 20 ms.
fn download(queue: &str) -> TrialRecord {
    let text = format!(
        "[path]\nup = \"20mbit\"\ndown = \"20mbit\"\nrtt = \"20ms\"\n\
         up_queue = \"fifo:limit=64KiB\"\ndown_queue = \"{queue}\"\n\n\
         [phases]\nidle = \"2s\"\nramp = \"5s\"\nload = \"20s\"\ndrain = \"1s\"\n\n\
         [[flow]]\nname = \"load\"\nkind = \"tcp\"\ndirection = \"down\"\ncount = 4\n\
         congestion_control = \"cubic\"\n\n\
         [[flow]]\nname = \"probe\"\nkind = \"probe\"\ninterval = \"10ms\"\n"
    );
    let scenario = Scenario::parse(&text, "test").expect("a valid scenario");
    let config = configure(&scenario.variants[0], 1, TrialLabel::default()).expect("simulated");
    run(config).expect("a trial").record
}

/// The quantile beside and inside the load, ms.
fn beside_and_inside(trial: &TrialRecord, quantile: Quantile) -> (f64, f64) {
    let beside = trial.latencies.iter().find(|it| it.window.phase == Phase::Load);
    let beside = beside.and_then(|it| it.distribution).expect("answered probes");
    let [inside] = trial.inside.as_slice() else { panic!("{:?}", trial.inside) };
    assert_eq!((inside.direction, inside.connections), (Direction::Down, 4));
    let ms = |it| quantile.of(it) as f64 / 1e6;
    (ms(&beside), ms(&inside.distribution))
}

#[test]
fn in_a_shared_queue_probe_and_load_have_equal_latency() {
    let trial = download("fifo:limit=250KiB");
    let inside = &trial.inside[0];
    // Four flows, 100 values per second, 20 s.
    assert_eq!(inside.distribution.count, 8_000);
    assert_eq!(inside.smallest_ns.expect("a smallest round trip") / 1_000_000, 20);
    for quantile in [Quantile::P50, Quantile::P90, Quantile::P99] {
        let (beside, inside) = beside_and_inside(&trial, quantile);
        assert!(beside > 90.0, "the premise: a full buffer holds 102 ms: {beside}");
        assert!((inside - beside).abs() < 0.05 * beside, "{quantile:?}: {beside} {inside}");
    }
}

#[test]
fn behind_a_queue_per_flow_a_probe_sees_nothing_of_what_the_load_suffers() {
    // Without an effective AQM each flow fills its queue.
    let trial = download("fq-codel:target=1s,interval=10s,limit=200p");
    let (beside, inside) = beside_and_inside(&trial, Quantile::P50);
    assert!(beside < 25.0 && inside > 60.0, "{beside} {inside}");
    // FQ-CoDel keeps the queue of each load flow near 5 ms. The four queues are served in turn.
    let trial = download("fq-codel");
    let (beside, inside) = beside_and_inside(&trial, Quantile::P50);
    assert!(beside < 25.0, "{beside}");
    assert!((beside + 3.0..beside + 25.0).contains(&inside), "{beside} {inside}");
}

#[test]
fn a_policer_delays_neither_probe_nor_load() {
    // Drops what exceeds the rate: a queue of four packets waits 2.4 ms at most.
    let trial = download("fifo:limit=4p");
    let (beside, inside) = beside_and_inside(&trial, Quantile::P50);
    assert!(beside < 24.0 && inside < 24.0, "{beside} {inside}");
    // A receiver that waits for a second segment delays an acknowledgement, not a probe.
    let (beside, inside) = beside_and_inside(&trial, Quantile::P99);
    assert!(beside < 24.0 && inside < 40.0, "{beside} {inside}");
}

#[test]
fn a_load_without_tcp_has_no_round_trips_and_a_long_one_has_a_bounded_number() {
    let text = |load: &str, phase: &str| {
        format!(
            "[path]\nup = \"2mbit\"\ndown = \"2mbit\"\nrtt = \"20ms\"\n\
             up_queue = \"fifo:limit=64KiB\"\ndown_queue = \"fifo:limit=64KiB\"\n\n\
             [phases]\nidle = \"0s\"\nramp = \"1s\"\nload = \"{phase}\"\ndrain = \"0s\"\n\n\
             [[flow]]\nname = \"load\"\ndirection = \"up\"\n{load}\n\n\
             [[flow]]\nname = \"probe\"\nkind = \"probe\"\ninterval = \"10ms\"\n"
        )
    };
    let inside_of = |text: &str| {
        let scenario = Scenario::parse(text, "test").expect("a valid scenario");
        let config = configure(&scenario.variants[0], 1, TrialLabel::default()).expect("simulated");
        run(config).expect("a trial").record.inside
    };
    assert!(inside_of(&text("kind = \"udp\"\nrate = \"1mbit\"", "2s")).is_empty());
    let long = inside_of(&text("kind = \"tcp\"\ncongestion_control = \"reno\"", "400s"));
    let [up] = long.as_slice() else { panic!("{long:?}") };
    assert!((13_000..=16_384).contains(&up.distribution.count), "{up:?}");
}
