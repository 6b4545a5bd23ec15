//! The known behaviour of BLUE, AVQ, REM, PI and SRED on one bottleneck of 20 Mbit/s and 44 ms with TCP Reno
//! and ECN.

use underload_aqm::time::Span;
use underload_record::schema::{BottleneckSummary, Direction, Phase};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

/// The bottleneck's summary of 30 s under `flows` flows, after `settle_s` seconds.
fn bottleneck(queue: &str, flows: usize, settle_s: u64) -> BottleneckSummary {
    let tcp = TcpConfig { ecn: EcnUse::Classic, ..TcpConfig::of(Algorithm::Reno) };
    let flow = |index| FlowConfig::new(format!("reno-{index}"), FlowKind::Tcp(tcp.clone()));
    let outcome = run(SimConfig {
        up: vec![HopConfig::parse(queue, "20mbit:delay=22ms").unwrap()],
        down: vec![HopConfig::parse("fifo:limit=10000p", "1gbit:delay=22ms").unwrap()],
        flows: (0..flows).map(flow).collect(),
        phases: Phases {
            ramp: Span::from_secs(settle_s),
            load: Span::from_secs(30),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    });
    let loaded = |summary: &BottleneckSummary| {
        summary.window.phase == Phase::Load && summary.direction == Direction::Up
    };
    outcome.unwrap().record.bottlenecks.into_iter().find(loaded).expect("the load phase")
}

/// Share of what was offered that was dropped, in percent.
fn loss_percent(summary: &BottleneckSummary) -> f64 {
    100.0 * summary.dropped_packets() as f64 / summary.offered.packets as f64
}

fn utilisation(summary: &BottleneckSummary) -> f64 {
    summary.throughput_bit_per_s as f64 / 20e6
}

/// Median sojourn in ms.
fn sojourn_ms(summary: &BottleneckSummary) -> f64 {
    summary.sojourn.expect("packets passed").p50_ns as f64 / 1e6
}

/// Feng et al. 2002: with many ECN-capable senders and a small buffer RED loses packets by the
/// percent, BLUE almost none, and both keep the link busy.
#[test]
fn blue_loses_less_than_red_with_small_buffers() {
    for limit in ["60p", "100p"] {
        let red = format!(
            "red:limit={limit},min=12p,max=48p,weight=0.2%,max-p=10%,gentle=off,ecn=on,harddrop=on"
        );
        let red = bottleneck(&red, 60, 30);
        let blue = bottleneck(&format!("blue:limit={limit},ecn=on"), 60, 30);
        let (red_loss, blue_loss) = (loss_percent(&red), loss_percent(&blue));
        assert!(red_loss > 5.0 && blue_loss < red_loss / 5.0, "{limit}: {blue_loss} {red_loss}");
        assert!(utilisation(&red) > 0.99 && utilisation(&blue) > 0.99, "{limit}");
    }
}

/// Kunniyur and Srikant 2001: the link's utilisation is `gamma`, without loss, and the queue is
/// shorter with a smaller `gamma`. Short means a median below half of the virtual buffer of 100 kB,
/// which is 40 ms of the link. The real queue has the arrivals of the virtual one and is served
/// faster.
#[test]
fn avq_holds_the_wanted_utilisation_with_a_short_queue() {
    let mut longest_ms = 0.5 * 40.0;
    for gamma in [98, 95, 90] {
        let avq = bottleneck(&format!("avq:gamma={gamma}%,ecn=on"), 20, 30);
        let (carried, sojourn_ms) = (100.0 * utilisation(&avq), sojourn_ms(&avq));
        assert!((carried - f64::from(gamma)).abs() < 1.0, "{gamma} %: {carried} %");
        assert!(sojourn_ms < longest_ms, "{gamma} %: {sojourn_ms} ms");
        assert_eq!(avq.dropped_packets(), 0, "{gamma} %");
        longest_ms = sojourn_ms;
    }
}

/// Athuraliya et al. 2001: rate and queue match their targets for any number of senders, while
/// RED's queue grows with it. REM settles slowly: the price from slow start decays for a minute.
#[test]
fn rem_matches_rate_and_queue_whatever_the_number_of_senders() {
    let mut red_ms = 0.0;
    for flows in [10, 20, 30] {
        let rem = bottleneck("rem:ecn=on", flows, 120);
        // The target of 20 packets of 1000 bytes is 8 ms.
        assert!((sojourn_ms(&rem) - 8.0).abs() < 2.5, "{flows}: {} ms", sojourn_ms(&rem));
        assert!(utilisation(&rem) > 0.97, "{flows}: {}", utilisation(&rem));
        assert_eq!(rem.dropped_packets(), 0, "{flows}");
        let red = bottleneck("red:min=10p,max=200p,ecn=on", flows, 30);
        assert!(sojourn_ms(&red) > red_ms + 15.0, "{flows}: {} ms", sojourn_ms(&red));
        red_ms = sojourn_ms(&red);
    }
}

/// Hollot et al. 2001: PI holds the queue at its target, here 50 packets of 1500 bytes, for any number
/// of senders. The gains are for a link twice as fast, so it settles slowly.
#[test]
fn pi_holds_its_queue_whatever_the_number_of_senders() {
    for flows in [10, 30] {
        let pi = bottleneck("pi:target=50p,ecn=on", flows, 120);
        assert!((sojourn_ms(&pi) - 30.0).abs() < 6.0, "{flows}: {} ms", sojourn_ms(&pi));
        assert!(utilisation(&pi) > 0.99, "{flows}: {}", utilisation(&pi));
        assert_eq!(pi.dropped_packets(), 0, "{flows}");
    }
}

/// Ott et al. 1999: SRED stabilises the queue over a wide range of the number of senders: it differs by
/// less than a third between 20 and 120, and the buffer, 600 ms, never fills.
#[test]
fn sred_stabilises_its_queue_for_few_and_many_senders() {
    let queues_ms = [20, 60, 120].map(|flows| {
        let sred = bottleneck("sred", flows, 30);
        assert!(utilisation(&sred) > 0.99, "{flows}: {}", utilisation(&sred));
        sojourn_ms(&sred)
    });
    assert!(queues_ms.iter().all(|ms| (200.0..500.0).contains(ms)), "{queues_ms:?}");
    assert!(queues_ms[2] < 1.33 * queues_ms[0], "{queues_ms:?}");
}
