//! Time-based loss detection (RFC 8985): the newest delivered transmission and the reordering
//! window.

use underload_aqm::time::{Span, Time};

use super::rtt::RttEstimator;
use super::scoreboard::{Delivery, Newest, RackView, Scoreboard};
use crate::congestion::State;

#[derive(Debug, Default)]
pub(super) struct Rack {
    newest: Newest,
    /// Round trip of the latest delivery, even if it was sent before `newest`.
    latest_rtt: Span,
    /// The reordering window in quarters of the minimum round trip.
    steps: u32,
    /// Recoveries for which a widened window remains.
    persists: u32,
    /// A spurious retransmission was reported.
    duplicate_seen: bool,
    /// Segments delivered when the window was last widened.
    widened_at: u32,
}

impl Rack {
    pub(super) fn new() -> Self {
        Self { steps: 1, ..Self::default() }
    }

    /// Section 6.2, step 2. `Delivery::newest` excludes retransmissions that cannot have arrived.
    pub(super) fn on_delivery(&mut self, now: Time, delivery: &Delivery) {
        let Some(newest) = delivery.newest else { return };
        self.latest_rtt = now.since(newest.sent_at);
        if (newest.sent_at, newest.sequence) > (self.newest.sent_at, self.newest.sequence) {
            self.newest = newest;
        }
    }

    /// Section 6.2, step 4: widens the window for each round trip with a spurious retransmission.
    /// `prior_delivered` is the number of segments delivered when the newest one was sent.
    pub(super) fn adapt(&mut self, duplicate: bool, prior_delivered: u32, delivered: u32) {
        self.duplicate_seen |= duplicate;
        if (prior_delivered.wrapping_sub(self.widened_at) as i32) < 0 {
            self.duplicate_seen = false;
        }
        if self.duplicate_seen {
            self.steps = (self.steps + 1).min(MAX_STEPS);
            self.persists = PERSISTENCE;
            self.duplicate_seen = false;
            self.widened_at = delivered;
        } else if self.persists == 0 {
            self.steps = 1;
        }
    }

    /// Records the end of a justified recovery.
    pub(super) fn on_recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
    }

    pub(super) fn view(
        &self,
        now: Time,
        state: State,
        board: &Scoreboard,
        rtt: &RttEstimator,
    ) -> RackView {
        RackView {
            now,
            sent_at: self.newest.sent_at,
            sequence: self.newest.sequence,
            patience: self.latest_rtt + self.reordering_window(state, board, rtt),
        }
    }

    fn reordering_window(&self, state: State, board: &Scoreboard, rtt: &RttEstimator) -> Span {
        let repairing = matches!(state, State::Recovery | State::Timeout);
        let trusted = repairing || board.sacked >= DUPLICATE_THRESHOLD;
        if !board.reordering_seen && trusted {
            return Span::ZERO;
        }
        let window = Span::from_nanos((rtt.min.as_nanos() / 4).saturating_mul(self.steps.into()));
        window.min(rtt.smoothed.unwrap_or(window))
    }
}

/// Number of selectively acknowledged segments from which a gap is a loss at once (RFC 5681).
const DUPLICATE_THRESHOLD: u32 = 3;
/// Linux stores the steps in a byte.
const MAX_STEPS: u32 = 255;
/// RFC 8985 section 6.2: recoveries without a spurious retransmission.
const PERSISTENCE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_trip_with_a_duplicate_widens_the_window_once() {
        let mut rack = Rack::new();
        rack.adapt(true, 0, 100);
        assert_eq!(rack.steps, 2);
        rack.adapt(true, 99, 110);
        assert_eq!(rack.steps, 2, "sent before the window was widened");
        rack.adapt(false, 100, 120);
        assert_eq!(rack.steps, 2, "and forgotten");
        rack.adapt(true, 100, 120);
        assert_eq!(rack.steps, 3);
        for round in 2..400 {
            rack.adapt(true, 100 * round, 100 * round);
        }
        assert_eq!(rack.steps, 255);
        for recovery in 0..16 {
            rack.adapt(false, 40_000, 40_000);
            assert_eq!(rack.steps, 255, "{recovery}");
            rack.on_recovered();
        }
        rack.adapt(false, 40_000, 40_000);
        assert_eq!(rack.steps, 1);
    }

    #[test]
    fn the_newest_transmission_is_the_latest_and_of_those_the_highest() {
        let mut rack = Rack::new();
        let mut newest_after = |sent_ns, sequence| {
            let newest = Some(Newest { sent_at: Time::from_nanos(sent_ns), sequence });
            rack.on_delivery(Time::from_nanos(100), &Delivery { newest, ..Delivery::default() });
            (rack.newest.sent_at.as_nanos(), rack.newest.sequence, rack.latest_rtt.as_nanos())
        };
        assert_eq!(newest_after(10, 5), (10, 5, 90));
        assert_eq!(newest_after(10, 4), (10, 5, 90));
        assert_eq!(newest_after(10, 6), (10, 6, 90));
        assert_eq!(newest_after(9, 9), (10, 6, 91), "the round trip is that of the last delivery");
        assert_eq!(newest_after(20, 1), (20, 1, 80));
        rack.on_delivery(Time::from_nanos(300), &Delivery::default());
        assert_eq!(rack.latest_rtt, Span::from_nanos(80));
    }
}
