//! The claims of the transports for cellular links, on synthetic links.

mod support;

use support::cellular::{BASE_RTT_MS, LTE, outcome, tcp};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::FlowKind;

#[test]
fn sprout_keeps_95_percent_of_its_delay_below_100_ms_and_uses_four_fifths_of_the_link() {
    for link in LTE {
        let sprout = outcome(link, FlowKind::Sprout, 1);
        let share = sprout.rate / outcome(link, tcp(Algorithm::Cubic), 1).rate;
        let p95 = sprout.p95();
        assert!(p95 <= 100.0, "{link}: {p95:.1} ms");
        assert!(share > 0.8, "{link}: {:.1} %", share * 100.0);
    }
}

#[test]
fn c2tcp_bounds_the_mean_round_trip_by_its_target_where_cubic_fills_the_queue() {
    for link in LTE {
        let c2tcp = outcome(link, tcp(Algorithm::C2tcp), 1);
        let cubic = outcome(link, tcp(Algorithm::Cubic), 1);
        assert!(cubic.mean() > 2_000.0, "the premise, {link}: {:.1} ms", cubic.mean());
        // The target, of the round trip, is 100 ms.
        let round_trip = BASE_RTT_MS + c2tcp.mean();
        assert!(round_trip <= 100.0, "{link}: {round_trip:.1} ms");
        let p95 = c2tcp.p95();
        assert!(p95 < cubic.p95() / 50.0, "{link}: {p95:.1} ms");
        let share = c2tcp.rate / cubic.rate;
        assert!(share > 0.9, "{link}: {:.1} %", share * 100.0);
    }
}
