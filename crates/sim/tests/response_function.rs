//! Windows under independent random loss against the published response functions.
//!
//! A flow, a link that never queues, Bernoulli loss of probability p; the mean window is the rate
//! times the round trip. The square root law 1.22/sqrt(p) and the table of RFC 9438 section 5.1
//! apply to periodic loss. Independent loss spreads the windows and increases their mean:
//! 1.31/sqrt(p) for Reno (Ott, Kemperman and Mathis 1996); for CUBIC the expectation is computed
//! here from the equations of RFC 9438 in real numbers, round by round, without the transport and
//! its integers and timers, and checked with periodic loss against the RFC's table first.

mod support;

use support::response::{
    RFC_9438, cubic_by_equations, cubic_with_periodic_loss, of_connection, with_random_marks,
};
use underload_aqm::time::Span;
use underload_sim::congestion::Algorithm;

fn check(algorithm: Algorithm, loss: &str, seconds: u64, expected: f64) {
    let window = of_connection(algorithm, &format!("loss={loss}"), 100, seconds);
    let ratio = window / expected;
    let name = algorithm.name();
    assert!((0.9..=1.1).contains(&ratio), "{name} at {loss}: {window:.1}, not {expected:.1}");
}

/// The window at 1 % is a dozen segments and stays below the law, because each loss discards the
/// acknowledgements counted towards the next growth by one segment. Linux 7.3.4, in User-Mode
/// Linux, had 11.9 and 11.6 segments over the same path in ten minutes, 0.9 of the law's window.
#[test]
fn reno_follows_the_square_root_law_of_independent_loss() {
    check(Algorithm::Reno, "1%", 3_000, 11.7);
    for (loss, p) in [("0.1%", 1e-3_f64), ("0.01%", 1e-4)] {
        check(Algorithm::Reno, loss, 3_000, 1.309 / p.sqrt());
    }
}

#[test]
fn the_equations_of_cubic_give_the_table_of_rfc_9438() {
    for (p, published) in [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 187.0), (1e-5, 1_054.0)] {
        let window = cubic_by_equations(p, 0.1, 300_000, true);
        let ratio = window / published;
        assert!((0.9..=1.1).contains(&ratio), "{p}: {window:.1}, published {published}");
    }
}

/// At 1 % a window of a dozen whole segments grows by half a segment per round trip, so rounding
/// matters. The kernel's CUBIC over the same link in the live world had 11.0 segments, 0.85 of the
/// equations' window.
#[test]
fn cubic_follows_its_equations_under_independent_loss() {
    let window = of_connection(Algorithm::Cubic, "loss=1%", 100, 3_000);
    let ratio = window / cubic_by_equations(1e-2, 0.1, 1_000_000, false);
    assert!((0.8..=1.0).contains(&ratio), "{window:.1}: {ratio:.3}");
    for (loss, p) in [("0.1%", 1e-3), ("0.01%", 1e-4)] {
        check(Algorithm::Cubic, loss, 3_000, cubic_by_equations(p, 0.1, 1_000_000, false));
    }
}

/// The table assumes real numbers. In whole segments the top of the cubic curve is flat for many
/// round trips, and an early loss there does not lower the maximum: the window is larger, by up to
/// a quarter where the cubic curve overtakes Reno's line.
#[test]
fn cubic_comes_near_the_table_of_rfc_9438_under_periodic_loss() {
    for (loss, at_100_ms, at_10_ms) in RFC_9438 {
        for (rtt_ms, published) in [(100, at_100_ms), (10, at_10_ms)] {
            let window = cubic_with_periodic_loss(loss, Span::from_millis(rtt_ms), 20_000);
            let ratio = window / published;
            assert!((0.85..=1.25).contains(&ratio), "{loss}, {rtt_ms} ms: {window:.1}: {ratio:.3}");
        }
    }
}

#[test]
fn prague_answers_random_marks_with_two_over_p() {
    for share in [0.01, 0.03, 0.1, 0.2] {
        // Prague's growth is not scaled from 25 ms on.
        let window = with_random_marks(Algorithm::Prague, share, Span::from_millis(30), 10_000);
        let ratio = window * share / 2.0;
        assert!((0.9..=1.15).contains(&ratio), "Prague at {share}: {ratio:.3}");
    }
}

/// Linux 7.3.4 in User-Mode Linux, `netem loss ... ecn`, 30 ms, the last 50 s of a minute:
/// 58.6, 18.8 and 8.8 segments, about 10 % below 2/p, since the window does not grow in a round
/// trip with a mark.
#[test]
fn dctcp_answers_random_marks_with_the_windows_of_linux() {
    for (marks, linux) in [("mark=3%", 58.6), ("mark=10%", 18.8), ("mark=20%", 8.8)] {
        let window = of_connection(Algorithm::Dctcp, marks, 30, 300);
        let ratio = window / linux;
        assert!((0.93..=1.07).contains(&ratio), "{marks}: {window:.1}, Linux {linux}");
    }
}
