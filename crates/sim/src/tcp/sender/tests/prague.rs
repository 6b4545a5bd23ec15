//! Prague's requirements on the transport: growth and answers to losses while a mark is answered,
//! and a window that the transport does not reduce.

use super::*;
use crate::tcp::EcnUse;

/// A Prague sender that has sent ten of `segments` at 0 ms; the round trip is 100 ms.
fn prague(segments: u64) -> Script {
    let transfer_bytes = Some(segments * 1_448);
    let of_prague = TcpConfig::of(Algorithm::Prague);
    Script::with(&TcpConfig { transfer_bytes, ecn: EcnUse::L4s, ..of_prague }, 10)
}

/// The counter of marks after `marks`.
fn marked(marks: u8, ack: Acknowledgement) -> Acknowledgement {
    Acknowledgement { ce_count: (5 + marks) % 8, ..ack }
}

/// Returns the window after each acknowledgement of a flight; the first acknowledgement reports one
/// mark.
fn answer_a_mark(script: &mut Script) -> Vec<u32> {
    let sizes = [(100, 2), (101, 4), (102, 6), (103, 8), (104, 11)].map(|(ms, cumulative)| {
        script.ack(ms, marked(1, ack(cumulative, 0, &[])));
        script.sender.window.size
    });
    sizes.to_vec()
}

#[test]
fn the_window_grows_while_a_mark_is_answered_and_is_not_set_back_after() {
    let mut script = prague(400);
    // W is 5 at the first mark, and then 5.2, 5.6, 5.9, 6.3 and 6.6: the window approaches W by one
    // segment at a time.
    assert_eq!(answer_a_mark(&mut script), [9, 8, 7, 7, 7]);
    assert_eq!(script.sender.state, State::Open);
    assert_eq!((script.sender.stats().reductions, script.sender.window.threshold), (1, 5));
}

#[test]
fn marks_of_a_round_trip_are_one_reduction() {
    let mut script = prague(400);
    script.ack(100, marked(1, ack(2, 0, &[])));
    assert_eq!(script.sender.state, State::Reducing);
    script.ack(101, marked(2, ack(4, 0, &[])));
    assert_eq!(script.sender.stats().reductions, 1);
    // The segments sent before the first mark are acknowledged, and one sent after it.
    script.ack(200, marked(3, ack(11, 0, &[])));
    assert_eq!((script.sender.stats().reductions, script.sender.state), (2, State::Reducing));
}

#[test]
fn a_loss_halves_while_a_mark_is_answered() {
    let mut script = prague(400);
    script.ack(100, marked(1, ack(2, 0, &[])));
    assert_eq!((script.sender.state, script.sender.window.threshold), (State::Reducing, 5));
    script.ack(101, marked(1, ack(2, 0, &[(3, 6)])));
    assert_eq!(script.sender.state, State::Recovery);
    assert_eq!(script.sender.stats().reductions, 2);
    assert_eq!(script.sender.window.threshold, 3, "half of 5.2, rounded up");
    // The halving is undone if the segment was only late.
    script.ack(105, marked(1, ack(6, 0, &[])));
    assert_eq!((script.undone(), script.sender.state), (1, State::Open));
    assert!(script.sender.window.threshold >= 5, "{:?}", script.sender.window);
}

#[test]
fn a_loss_brings_the_window_down_by_one_segment_per_acknowledgement() {
    let mut script = prague(400);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    assert_eq!(script.sent()[0], (100, 0, true));
    // Proportional rate reduction would have set the window to the segments in flight.
    assert_eq!((script.sender.window.size, script.sender.window.threshold), (9, 5));
    for (arrived, size) in [(5, 8), (6, 7), (7, 6), (8, 5), (9, 5), (10, 5)] {
        script.ack(100 + u64::from(arrived), ack(0, 0, &[(1, arrived)]));
        assert_eq!(script.sender.window.size, size, "no growth while a loss is repaired");
    }
    script.ack(200, ack(10, 100, &[]));
    assert_eq!((script.sender.state, script.sender.window.size), (State::Open, 6));
}

#[test]
fn spurious_reductions_are_undone() {
    let mut script = prague(10);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    script.ack(105, ack(4, 0, &[]));
    assert_eq!((script.undone(), script.sender.state), (1, State::Open));
    let window = script.sender.window;
    assert!(window.size >= 10 && window.threshold == u32::MAX, "{window:?}");
}

#[test]
fn slow_start_after_a_timeout_ends_at_half_the_window() {
    let mut script = prague(10);
    script.timer(202);
    script.timer(502);
    assert_eq!((script.sender.window.size, script.sender.window.threshold), (1, 5));
    script.ack(602, ack(1, 502, &[]));
    assert_eq!(script.sender.window.size, 2);
    script.ack(702, ack(3, 602, &[]));
    assert_eq!(script.sender.window.size, 4);
}

#[test]
fn a_timeout_while_a_mark_is_answered_halves_too() {
    let mut script = prague(10);
    script.ack(100, marked(1, ack(2, 0, &[])));
    assert_eq!(script.sender.window.threshold, 5);
    let deadline = script.sender.deadline().as_millis();
    script.timer(deadline);
    assert_eq!((script.sender.stats().timeouts, script.sender.window.size), (1, 1));
    assert_eq!(script.sender.window.threshold, 3, "half of 5.2");
}
