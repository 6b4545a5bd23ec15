//! Prague's share beside another flow, compared with published measurements of Linux.
//!
//! Missed, and not tested: 2.12, 1.81 and 1.70 at 10 Mbit/s with 10, 20 and 80 ms (P. Heist 2020;
//! the simulation has less than 1). A packet takes 1.2 ms there, so a single classic packet ahead
//! exceeds the step of 1 ms; the testbed of 2026 agrees with the simulation at 10 Mbit/s. RFC
//! 9332's "roughly equal" rates beside Reno at 25 ms, read as a factor of two: 2.0 to 2.1.

mod support;

use support::shares::Contest;
use underload_sim::congestion::Algorithm;

const DUALPI2: &str = "dualpi2:profile=linux";

#[track_caller]
fn check(contest: Contest, low: f64, high: f64) {
    check_seeds(2, contest, low, high);
}

#[track_caller]
fn check_seeds(seeds: u64, contest: Contest, low: f64, high: f64) {
    let ratio = contest.ratio(seeds);
    assert!((low..=high).contains(&ratio), "{ratio:.3} is not in {low}..{high}: {contest:?}");
}

/// P. Heist, L4S tests, scenario 1: dualpi2 at 50 Mbit/s, each within a quarter. Prague of 2020
/// had no reduced dependence on the round trip.
#[test]
fn prague_shares_with_cubic_through_dualpi2_at_50_mbit() {
    for (rtt_ms, published) in [(10, 2.73), (20, 2.17), (80, 1.66)] {
        let contest = Contest::new(DUALPI2, 50, rtt_ms).dependent();
        check(contest, published * 0.75, published * 1.25);
    }
}

/// arXiv 2603.20166, the Linux testbed: 54 : 41 Mbit/s, and 2.25 : 7.2.
#[test]
fn prague_shares_with_cubic_through_dualpi2_at_100_and_10_mbit() {
    check(Contest::new(DUALPI2, 100, 5), 1.02, 1.62);
    check(Contest::new(DUALPI2, 10, 30), 0.25, 0.37);
}

/// L4STeam's Linux, issue 21: 63.4 : 28.6 Mbit/s. Between seeds the ratio varies by a fifth.
#[test]
fn prague_shares_with_cubic_through_dualpi2_at_60_ms() {
    check_seeds(24, Contest::new(DUALPI2, 100, 60), 1.7, 2.7);
}

/// P. Heist, L4S tests, scenario 6: 23 : 1 and 25 : 1.
#[test]
fn prague_shares_one_queue_with_cubic() {
    check(Contest::new("pie:profile=rfc,ecn=on", 50, 20), 11.0, 35.0);
    check(Contest::new("fq-codel:flows=1", 50, 20), 12.0, 38.0);
}

/// P. Heist, L4S tests: flows of 20 and 10 ms share 15.8 : 30.8 Mbit/s without reduced dependence
/// on the round trip. With it, their shares should be equal.
#[test]
fn prague_shares_with_prague_of_a_shorter_round_trip() {
    let contest = Contest { rival: Algorithm::Prague, ..Contest::new(DUALPI2, 50, 10) };
    let contest = Contest { longer_ms: 10, ..contest };
    check(contest, 1.0 / 1.3, 1.3);
    check(contest.dependent(), 0.75 / 1.94, 1.25 / 1.94);
}
