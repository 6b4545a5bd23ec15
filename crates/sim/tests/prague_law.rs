//! Prague's rate through the whole transport: a connection over a link that never queues and marks
//! or loses packets independently.
//!
//! The law is that of the reference's documentation, for packets of 1500 bytes: 1/p - 1 Mbit/s up
//! to a round trip of 25 ms, and 25 ms / R of that above. It assumes evenly spaced marks; with
//! independent marks the window is 10 to 40 % larger.

mod support;

use support::{flow, goodput};
use underload_aqm::time::Span;
use underload_sim::congestion::{Algorithm, PragueConfig};
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

/// Rate of whole packets in Mbit/s over a link of 10 Gbit/s that does `what` to packets.
fn rate(mut flow: FlowConfig, what: &str, rtt_ms: u64, config: PragueConfig) -> f64 {
    if let FlowKind::Tcp(tcp) = &mut flow.kind {
        *tcp = TcpConfig { prague: config, receive_window_bytes: 64 << 20, ..tcp.clone() };
    }
    let link = format!("10gbit:delay={}us", rtt_ms * 500);
    let outcome = run(SimConfig {
        up: vec![HopConfig::parse("fifo:limit=100000p", &format!("{link},{what}")).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=100000p", &link).unwrap()],
        flows: vec![flow],
        phases: Phases {
            ramp: Span::from_secs(15),
            load: Span::from_secs(60),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    });
    goodput(&outcome.unwrap(), 0) * 1_500.0 / 1_448.0
}

fn prague(what: &str, rtt_ms: u64, config: PragueConfig) -> f64 {
    rate(flow("f", Algorithm::Prague), what, rtt_ms, config)
}

#[test]
fn random_marks_give_pragues_rate_law() {
    for rtt_ms in [10, 25, 80] {
        for (share, p) in [("0.5%", 0.005), ("2%", 0.02), ("5%", 0.05), ("20%", 0.2)] {
            let rate = prague(&format!("mark={share}"), rtt_ms, PragueConfig::default());
            let law = (1.0 / p - 1.0) * 25.0 / rtt_ms.max(25) as f64;
            let ratio = rate / law;
            let case = format!("{rtt_ms} ms, {share}: {rate:.1} for {law:.1} Mbit/s: {ratio:.3}");
            assert!((0.9..=1.45).contains(&ratio), "{case}");
        }
    }
}

#[test]
fn without_a_target_the_rate_follows_the_flows_round_trip() {
    let own = PragueConfig { rtt_target: Span::ZERO, ..PragueConfig::default() };
    let ratio = prague("mark=5%", 10, own) / (19.0 * 2.5);
    assert!((0.9..=1.45).contains(&ratio), "{ratio:.3}");
}

#[test]
fn random_losses_give_renos_rate() {
    let reno = rate(flow("f", Algorithm::Reno), "loss=0.1%", 80, PragueConfig::default());
    let ratio = prague("loss=0.1%", 80, PragueConfig::default()) / reno;
    assert!((0.85..=1.15).contains(&ratio), "{ratio:.3}");
}

/// A loss is answered even while a mark is being answered, which is most of the time.
#[test]
fn losses_reduce_the_rate_beside_marks() {
    let marked = prague("mark=0.5%", 80, PragueConfig::default());
    let both = prague("mark=0.5%,loss=0.5%", 80, PragueConfig::default());
    let lost = rate(flow("f", Algorithm::Reno), "loss=0.5%", 80, PragueConfig::default());
    assert!(marked > 3.0 * lost, "the premise: {marked:.1} and {lost:.1}");
    assert!(both < 1.3 * lost, "{both:.1}, Reno by its losses alone {lost:.1}");
}
