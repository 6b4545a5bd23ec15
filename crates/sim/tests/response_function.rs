//! Windows under independent random loss against the published response functions.
//!
//! One flow, a link that never queues, Bernoulli loss of probability p; the mean window is the rate
//! times the round trip. The square root law 1.22/sqrt(p) and the table of RFC 9438 section 5.1
//! hold for periodic loss. Independent loss spreads the windows, and the mean lies higher:
//! 1.31/sqrt(p) for Reno (Ott, Kemperman and Mathis 1996); for CUBIC the expectation is computed
//! here from the equations of RFC 9438 in real numbers, round by round, and checked against the
//! RFC's table with periodic loss first. The transport, its integers and its timers have no part in
//! that.

use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_sim::congestion::{Algorithm, SlowStartExit};
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

/// Mean window in segments over a long time.
fn mean_window(algorithm: Algorithm, loss: &str, rtt_ms: u64, seconds: u64) -> f64 {
    let tcp = TcpConfig {
        algorithm,
        receive_window_bytes: 64 << 20,
        slow_start_exit: SlowStartExit::Loss,
        ..TcpConfig::default()
    };
    let link = format!("100gbit:delay={}us", rtt_ms * 500);
    let config = SimConfig {
        up: vec![HopConfig::parse("fifo:limit=100000p", &format!("{link},loss={loss}")).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=100000p", &link).unwrap()],
        flows: vec![FlowConfig::new("flow", FlowKind::Tcp(tcp))],
        phases: Phases {
            ramp: Span::from_secs(seconds / 10),
            load: Span::from_secs(seconds),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    };
    let outcome = run(config).unwrap();
    let goodput = outcome.record.flows[0].goodput_up_bit_per_s.unwrap() as f64;
    goodput / 8.0 / 1_448.0 * rtt_ms as f64 / 1e3
}

/// Mean window of CUBIC by the equations of RFC 9438, one step per round trip.
fn cubic_by_equations(loss: f64, rtt: f64, rounds: u32, periodic: bool) -> f64 {
    let (c, beta) = (0.4, 0.7);
    let alpha = 3.0 * (1.0 - beta) / (1.0 + beta);
    let (mut window, mut last_max, mut origin) = (10.0_f64, 0.0_f64, 10.0_f64);
    let (mut elapsed, mut friendly, mut k) = (0.0, 10.0_f64, 0.0_f64);
    let (mut since_loss, mut repairing, mut total) = (0.0, false, 0.0);
    let mut rng = Rng::new(5);
    for _ in 0..rounds {
        total += window;
        since_loss += window;
        let lost = if periodic {
            since_loss >= 1.0 / loss
        } else {
            f64::from(rng.next_u32()) / 4_294_967_296.0 > (1.0 - loss).powf(window)
        };
        if lost && !repairing {
            since_loss = 0.0;
            last_max = if window < last_max { window * (1.0 + beta) / 2.0 } else { window };
            window = (window * beta).max(2.0);
            (origin, friendly, elapsed) = (last_max.max(window), window, 0.0);
            k = ((origin - window) / c).cbrt();
            repairing = true;
            continue;
        }
        repairing = false;
        elapsed += rtt;
        friendly += alpha;
        window = (c * (elapsed - k).powi(3) + origin).clamp(window, 1.5 * window).max(friendly);
    }
    total / f64::from(rounds)
}

fn check(algorithm: Algorithm, loss: &str, seconds: u64, expected: f64) {
    let window = mean_window(algorithm, loss, 100, seconds);
    let ratio = window / expected;
    let name = algorithm.name();
    eprintln!("{name}, loss {loss}: mean window {window:.1}, expected {expected:.1}: {ratio:.3}");
    assert!((0.9..=1.1).contains(&ratio), "{name} at {loss}: {window:.1}, not {expected:.1}");
}

#[test]
fn reno_follows_the_square_root_law_of_independent_loss() {
    for (loss, p) in [("1%", 1e-2_f64), ("0.1%", 1e-3), ("0.01%", 1e-4)] {
        check(Algorithm::Reno, loss, 3_000, 1.309 / p.sqrt());
    }
}

#[test]
fn the_equations_of_cubic_give_the_table_of_rfc_9438() {
    for (p, published) in [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 187.0), (1e-5, 1_054.0)] {
        let window = cubic_by_equations(p, 0.1, 300_000, true);
        let ratio = window / published;
        eprintln!("equations, periodic loss {p}: {window:.1} of {published}: {ratio:.3}");
        assert!((0.9..=1.1).contains(&ratio), "{p}: {window:.1}, published {published}");
    }
}

#[test]
fn cubic_follows_its_equations_under_independent_loss() {
    for (loss, p) in [("1%", 1e-2), ("0.1%", 1e-3), ("0.01%", 1e-4)] {
        check(Algorithm::Cubic, loss, 3_000, cubic_by_equations(p, 0.1, 1_000_000, false));
    }
}
