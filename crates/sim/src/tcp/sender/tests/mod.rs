//! Checks the exact transmissions for given acknowledgements and timers.

mod prague;

use std::cell::RefCell;
use std::num::NonZeroI16;
use std::rc::Rc;

use underload_aqm::packet::Dscp;
use underload_aqm::rng::Rng;

use crate::congestion::tests::setup;
use crate::congestion::{Algorithm, Setup};
use crate::endpoint::Address;
use crate::net::{Event, ExtraDelay, Network, SackBlock, SharedWatcher, Sighting, Watcher};

use super::*;

/// Records what was sent: the time in ms, the segment, and whether it was a retransmission.
#[derive(Default)]
struct Log(Vec<(u64, u32, bool)>);

impl Watcher for Log {
    fn see(&mut self, sighting: &Sighting<'_>) {
        if let (Event::Sent, Body::Data(data)) = (sighting.event, &sighting.packet.payload.body) {
            let ms = sighting.time.as_millis();
            self.0.push((ms, data.sequence, data.retransmission));
        }
    }
}

/// A Reno sender with a window of ten segments and a round trip of 100 ms from the handshake, so
/// that its timeout is 300 ms and a tail loss probe comes after 202 ms.
struct Script {
    sender: Sender,
    network: Network,
    log: Rc<RefCell<Log>>,
}

impl Script {
    /// Sends ten of `segments` at 0 ms.
    fn new(segments: u64) -> Self {
        let transfer_bytes = Some(segments * 1_448);
        Self::with(&TcpConfig { transfer_bytes, ..TcpConfig::of(Algorithm::Reno) }, 10)
    }

    /// Sends `first` segments at 0 ms.
    fn with(config: &TcpConfig, first: u32) -> Self {
        let setup = Setup { prague: config.prague, ..setup() };
        let control = Controller::new(config.algorithm, setup);
        let delays = [ExtraDelay::default()];
        let mut network = Network::new(Vec::new(), Vec::new(), &delays, &Rng::new(1));
        let log = Rc::new(RefCell::new(Log::default()));
        let watcher: SharedWatcher = log.clone();
        network.watch(&watcher);
        let mut script = Self { sender: Sender::new(config, Direction::Up, control), network, log };
        script.sender.accept(Time::ZERO, Some(Span::from_millis(100)));
        script.at(0, |sender, port| sender.write(port, 0));
        let first: Vec<_> = (0..first).map(|sequence| (0, sequence, false)).collect();
        assert_eq!(script.sent(), first, "the premise");
        script
    }

    fn at(&mut self, ms: u64, act: impl FnOnce(&mut Sender, &mut Port<'_>)) {
        let address = Address { flow: 0, channel: 0, label: 0, host: 0, dscp: Dscp::DEFAULT };
        let now = Time::from_millis(ms);
        act(&mut self.sender, &mut Port { now, address, network: &mut self.network });
    }

    /// Returns what was sent since the last call.
    fn sent(&self) -> Vec<(u64, u32, bool)> {
        std::mem::take(&mut self.log.borrow_mut().0)
    }

    fn ack(&mut self, ms: u64, ack: Acknowledgement) {
        self.at(ms, |sender, port| sender.on_ack(port, &ack));
    }

    /// Fires the next timer, which must be due at `ms`.
    fn timer(&mut self, ms: u64) {
        assert_eq!(self.sender.deadline(), Time::from_millis(ms));
        self.at(ms, Sender::on_timer);
    }

    fn undone(&self) -> u64 {
        self.sender.stats().undone
    }
}

/// An acknowledgement that echoes `stamp_ms` and reports `blocks`.
fn ack(cumulative: u32, stamp_ms: u64, blocks: &[(u16, u16)]) -> Acknowledgement {
    let mut all = [SackBlock::default(); 3];
    for (block, (start, end)) in all.iter_mut().zip(blocks) {
        let base = cumulative as u16;
        *block = SackBlock { start: start - base, end: end - base };
    }
    let echoed = Stamp::of(Time::from_millis(stamp_ms));
    Acknowledgement { cumulative, echoed, blocks: all, ce_count: 5, echo: false, duplicate: None }
}

/// Ten segments, a probe at 202 ms, a timeout 300 ms later.
fn timed_out(segments: u64) -> Script {
    let mut script = Script::new(segments);
    script.timer(202);
    let probe = if segments > 10 { (202, 10, false) } else { (202, 9, true) };
    assert_eq!(script.sent(), [probe]);
    script.timer(502);
    assert_eq!(script.sent(), [(502, 0, true)]);
    assert_eq!(script.sender.window.size, 1);
    script
}

#[test]
fn a_reduction_resets_the_window_growth() {
    let mut script = Script::new(400);
    script.sender.window.threshold = 10;
    script.ack(100, ack(9, 0, &[]));
    assert_eq!(script.sender.window.size, 10, "the premise: nine of the ten that one more takes");
    // Segment 9 is lost. Recovery ends when all segments that were sent by then have arrived.
    script.ack(200, ack(9, 100, &[(10, 13)]));
    script.ack(210, ack(9, 100, &[(10, 18)]));
    script.ack(300, ack(19, 200, &[]));
    assert_eq!((script.sender.state, script.sender.window.size), (State::Open, 5));
}

#[test]
fn the_reordering_timer_retransmits_as_much_as_one_delivered_segment_allows() {
    let mut script = Script::new(20);
    script.ack(100, ack(0, 0, &[(3, 5)]));
    assert_eq!(script.sent(), [(100, 10, false), (100, 11, false)], "the premise");
    script.timer(127);
    assert_eq!(script.sent(), [(127, 0, true)], "of three that are lost");
}

#[test]
fn a_timeout_is_undone_by_an_echo_from_before_the_first_retransmission() {
    let mut script = timed_out(10);
    script.ack(600, ack(1, 0, &[]));
    assert_eq!((script.undone(), script.sent()), (1, vec![]), "nothing is sent a second time");
    assert!(script.sender.window.size >= 10, "{}", script.sender.window.size);
    for (ms, cumulative) in [(601, 2), (602, 5), (603, 10)] {
        script.ack(ms, ack(cumulative, 0, &[]));
    }
    assert_eq!(script.sent(), []);
    assert_eq!(script.sender.stats().finished, Some(Time::from_millis(603)));
}

#[test]
fn a_timeout_is_not_undone_by_its_own_retransmission() {
    let mut script = timed_out(10);
    script.ack(602, ack(1, 502, &[]));
    assert_eq!((script.undone(), script.sent()), (0, vec![(602, 1, true), (602, 2, true)]));
    assert_eq!(script.sender.window.size, 2, "slow start from one segment");
}

#[test]
fn after_a_timeout_new_data_are_sent_first_and_an_original_undoes_it() {
    let mut script = timed_out(40);
    // RFC 5682 section 3.1, step 2.b: two new segments, not the next two that seem lost.
    script.ack(602, ack(1, 502, &[]));
    assert_eq!(script.sent(), [(602, 11, false), (602, 12, false)]);
    // Step 3.b: a segment that was sent once and before the timeout has arrived.
    script.ack(610, ack(1, 502, &[(5, 6)]));
    assert_eq!((script.undone(), script.sent()), (1, vec![]));
    assert_eq!(script.sender.window.size, 10);
    assert_eq!(script.sender.state, State::Open);
}

#[test]
fn after_a_timeout_a_gap_before_new_data_says_that_the_loss_was_real() {
    let mut script = timed_out(40);
    script.ack(602, ack(1, 502, &[]));
    script.sent();
    // Step 3.a.
    script.ack(702, ack(1, 502, &[(11, 12)]));
    assert_eq!((script.undone(), script.sent()), (0, vec![(702, 1, true)]));
    assert_eq!(script.sender.state, State::Timeout);
}

#[test]
fn consecutive_timeouts_double_until_progress() {
    let mut script = timed_out(10);
    script.timer(502 + 600);
    script.timer(502 + 600 + 1_200);
    assert_eq!(script.sent(), [(1_102, 0, true), (2_302, 0, true)]);
    script.ack(2_402, ack(1, 2_302, &[]));
    let timeout = script.sender.deadline().since(Time::from_millis(2_402));
    assert_eq!(timeout, script.sender.rtt.timeout(), "a round trip of 100 ms by its time stamp");
    assert_eq!(timeout, Span::from_millis(300));
}

/// Segments 0 and 4 are missing at 100 ms, and sent again.
fn two_sent_again() -> Script {
    let mut script = Script::new(10);
    script.ack(100, ack(0, 0, &[(5, 10), (1, 4)]));
    assert_eq!(script.sent(), [(100, 0, true), (100, 4, true)]);
    script
}

#[test]
fn an_earlier_retransmission_does_not_mark_later_ones_lost() {
    let mut script = two_sent_again();
    script.timer(400);
    assert_eq!(script.sent(), [(400, 0, true)]);
    // The echoed time stamp belongs to the retransmission at 100 ms, 350 ms ago. Read as that at
    // 400 ms, 50 ms ago, it would make segment 4 overdue.
    script.ack(450, ack(4, 100, &[(5, 10)]));
    assert_eq!(script.sent(), []);
    // The awaited segment was still in flight: recovery continues with the previous window.
    assert_eq!((script.sender.state, script.undone()), (State::Recovery, 1));
    script.ack(451, ack(10, 100, &[]));
    assert_eq!(script.sender.stats().finished, Some(Time::from_millis(451)));
}

#[test]
fn a_delivered_retransmission_marks_earlier_ones_lost() {
    let mut script = two_sent_again();
    script.timer(400);
    script.sent();
    script.ack(500, ack(4, 400, &[(5, 10)]));
    assert_eq!(script.sent(), [(500, 4, true)]);
    assert_eq!(script.undone(), 0);
}

#[test]
fn a_fast_recovery_is_undone_by_an_echo_from_before_it() {
    let mut script = Script::new(10);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    assert_eq!(script.sent(), [(100, 0, true)]);
    assert!(script.sender.window.threshold <= 5);
    script.ack(105, ack(4, 0, &[]));
    assert_eq!((script.undone(), script.sent()), (1, vec![]));
    assert_eq!(script.sender.state, State::Open);
    assert!(script.sender.window.size >= 10, "{}", script.sender.window.size);
}

#[test]
fn a_fast_recovery_is_undone_when_all_its_retransmissions_were_duplicates() {
    let mut script = Script::new(10);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    // The echoed time stamp does not prove that the retransmission was spurious.
    script.ack(105, ack(4, 100, &[]));
    assert_eq!(script.undone(), 0);
    let mut duplicate = ack(4, 100, &[]);
    duplicate.duplicate = NonZeroI16::new(-4);
    script.ack(106, duplicate);
    assert_eq!((script.undone(), script.sender.state), (1, State::Open));
    assert!(script.sender.window.size >= 10, "{}", script.sender.window.size);
}

#[test]
fn a_duplicate_from_before_the_recovery_does_not_undo_it() {
    let mut script = Script::new(20);
    script.ack(90, ack(2, 0, &[]));
    script.ack(100, ack(2, 0, &[(3, 6)]));
    let mut duplicate = ack(6, 100, &[]);
    duplicate.duplicate = NonZeroI16::new(-5);
    script.ack(105, duplicate);
    assert_eq!((script.undone(), script.sender.state), (0, State::Recovery));
    duplicate.duplicate = NonZeroI16::new(-4);
    script.ack(106, duplicate);
    assert_eq!(script.undone(), 1, "segment 2, which was sent again");
}

#[test]
fn reports_of_what_was_sent_before_it_give_a_retransmission_another_timeout() {
    let mut script = Script::new(10);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    assert_eq!(script.sender.deadline(), Time::from_millis(400));
    script.ack(350, ack(0, 0, &[(1, 5)]));
    let timeout = script.sender.rtt.timeout();
    assert_eq!(script.sender.deadline(), Time::from_millis(350) + timeout);
}

#[test]
fn segments_of_a_filled_gap_grow_the_window_and_others_do_not() {
    let mut script = Script::new(400);
    script.ack(100, ack(0, 0, &[(1, 4)]));
    // A segment moves the left edge by ten and ends recovery.
    script.ack(150, ack(0, 0, &[(1, 10)]));
    let threshold = script.sender.window.threshold;
    script.ack(200, ack(10, 100, &[]));
    assert_eq!(script.sender.state, State::Open);
    assert_eq!(script.sender.window.size, threshold, "ten segments' growth would be two");
}

#[test]
fn a_reordered_segment_is_awaited_for_a_quarter_of_a_round_trip() {
    let mut script = Script::new(10);
    script.ack(100, ack(0, 0, &[(1, 2)]));
    assert_eq!(script.sent(), []);
    // RFC 8985 section 6.2: the round trip of the delivered segment, and min_rtt / 4; Linux' timer
    // fires 2 ms later.
    script.timer(127);
    assert_eq!(script.sent(), [(127, 0, true)]);
    assert_eq!(script.sender.stats().reductions, 1);
}

#[test]
fn a_reordered_segment_within_the_wait_causes_no_reduction() {
    let mut script = Script::new(20);
    script.ack(100, ack(0, 0, &[(1, 2)]));
    assert_eq!(script.sent(), [(100, 10, false)]);
    script.ack(120, ack(2, 0, &[]));
    assert!(script.sent().iter().all(|&(_, _, again)| !again));
    assert_eq!((script.sender.stats().reductions, script.sender.state), (0, State::Open));
}

/// A tail loss probe repeated segment 9; then three more segments were sent.
fn probed() -> Script {
    let mut script = Script::new(10);
    script.timer(202);
    assert_eq!(script.sent(), [(202, 9, true)]);
    script.ack(215, ack(9, 0, &[]));
    script.at(220, |sender, port| sender.write(port, 3 * 1_448));
    assert_eq!(script.sent(), [(220, 10, false), (220, 11, false), (220, 12, false)]);
    script
}

#[test]
fn a_probe_that_repaired_a_loss_halves_the_window() {
    let mut script = probed();
    // RFC 8985 section 7.4: the acknowledgement is beyond the probe, and no duplicate was reported.
    script.ack(302, ack(10, 202, &[]));
    assert_eq!(script.sender.stats().reductions, 0, "not known yet");
    script.ack(320, ack(13, 220, &[]));
    assert_eq!(script.sender.stats().reductions, 1);
}

#[test]
fn a_probe_with_a_delivered_original_causes_no_reduction() {
    let mut script = probed();
    let mut duplicate = ack(10, 202, &[]);
    duplicate.duplicate = NonZeroI16::new(-1);
    script.ack(302, duplicate);
    script.ack(320, ack(13, 220, &[]));
    assert_eq!(script.sender.stats().reductions, 0);
}

#[test]
fn a_recovery_sends_half_the_window_spread_over_the_round_trip() {
    let mut script = Script::new(40);
    let mut sent = Vec::new();
    script.ack(100, ack(0, 0, &[(1, 4)]));
    sent.append(&mut script.sent());
    assert_eq!(sent, [(100, 0, true), (100, 10, false)], "half of three, the loss first");
    for arrived in 5..=10 {
        script.ack(100 + u64::from(arrived), ack(0, 0, &[(1, arrived)]));
        let now = script.sent();
        assert!(now.len() <= 1, "RFC 6937: {now:?}");
        sent.extend(now);
    }
    assert_eq!(sent.len(), 5, "half of nine, rounded up: {sent:?}");
    assert_eq!(script.sender.window.threshold, 5);
}

#[test]
fn marks_of_one_round_trip_halve_the_window_once() {
    let mut script = Script::new(400);
    let mut marked = |ms, cumulative| {
        script.ack(ms, Acknowledgement { echo: true, ..ack(cumulative, 0, &[]) });
        (script.sender.stats().reductions, script.sender.state)
    };
    assert_eq!(marked(100, 2), (1, State::Reducing), "RFC 3168 section 6.1.2");
    assert_eq!(marked(101, 4), (1, State::Reducing));
    // The segments sent before the first mark are acknowledged, and then the first one after it
    // (Linux `tcp_fastretrans_alert`): the next round trip starts.
    assert_eq!(marked(200, 10), (1, State::Reducing));
    assert_eq!(marked(201, 11), (2, State::Reducing));
    assert_eq!(script.sender.window.threshold, 2, "half of five");
}

#[test]
fn flight_is_limited_by_the_receive_window() {
    let receive_window_bytes = 4 * 1_448;
    let config = TcpConfig { receive_window_bytes, ..TcpConfig::of(Algorithm::Reno) };
    let mut script = Script::with(&config, 4);
    script.ack(100, ack(2, 0, &[]));
    assert_eq!(script.sent(), [(100, 4, false), (100, 5, false)]);
    let size = script.sender.window.size;
    script.ack(200, ack(6, 100, &[]));
    assert_eq!(script.sent().len(), 4);
    assert_eq!(script.sender.window.size, size, "a window that is not used does not grow");
}

/// Linux' `dctcp_react_to_loss`: half of the current window, regardless of an earlier mark.
#[test]
fn dctcp_answers_a_loss_while_it_answers_a_mark() {
    let transfer_bytes = Some(400 * 1_448);
    let of_dctcp = TcpConfig::of(Algorithm::Dctcp);
    let mut script = Script::with(&TcpConfig { transfer_bytes, ..of_dctcp }, 10);
    script.ack(100, Acknowledgement { ce_count: 6, echo: true, ..ack(2, 0, &[]) });
    let first = script.sender.window;
    assert_eq!((script.sender.state, script.sender.stats().reductions), (State::Reducing, 1));
    let half = (first.size / 2).max(2);
    script.ack(101, Acknowledgement { ce_count: 6, ..ack(2, 0, &[(3, 6)]) });
    assert_eq!((script.sender.state, script.sender.stats().reductions), (State::Recovery, 2));
    assert_eq!(script.sender.window.threshold, half, "{first:?}");
    assert!(half < first.threshold, "the mark alone had left more: {first:?}");
}
