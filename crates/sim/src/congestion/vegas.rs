//! Vegas (Brakmo, O'Malley and Peterson 1994) as Linux `tcp_vegas.c` has it: once per round trip
//! the window grows or shrinks by a segment, so that two to four of the flow's segments wait in
//! queues.
//!
//! The segments that wait are the window times the share of the round trip that exceeds the
//! smallest one; the round trip is the shortest of the last round. Slow start ends once more than
//! one segment waits. A loss halves the window as in Reno; after a round with fewer than three
//! samples the window grows as Reno's. Difference from the paper, as in Linux: slow start doubles
//! the window in every round, not in every second one, and losses are found by the transport.

use underload_aqm::time::Span;

use super::{Ack, CongestionControl, Loss, State, Window};

#[derive(Debug)]
pub struct Vegas {
    /// Smallest round trip of the connection, and of the current round.
    base_rtt: Span,
    round_rtt: Span,
    samples: u32,
    /// The round ends when this segment is acknowledged.
    round_end: u32,
}

impl Default for Vegas {
    fn default() -> Self {
        let unknown = Span::from_nanos(u64::MAX);
        Self { base_rtt: unknown, round_rtt: unknown, samples: 0, round_end: 0 }
    }
}

impl Vegas {
    fn begin_round(&mut self, ack: &Ack) {
        self.round_rtt = Span::from_nanos(u64::MAX);
        self.samples = 0;
        self.round_end = ack.next_sequence;
    }

    /// Moves the window by a segment, or ends slow start.
    fn adjust(&self, ack: &Ack, window: &mut Window) {
        let [base, rtt] = [self.base_rtt, self.round_rtt].map(|rtt| rtt.as_nanos().max(1));
        let waiting = (f64::from(window.size) * (rtt - base) as f64 / base as f64) as u32;
        if window.in_slow_start() && waiting <= GAMMA {
            window.slow_start(ack.acknowledged);
        } else if window.in_slow_start() {
            let unqueued = (f64::from(window.size) * base as f64 / rtt as f64) as u32;
            window.size = window.size.min(unqueued + 1).max(2);
            window.threshold = window.size - 1;
        } else if waiting > BETA {
            window.size = (window.size - 1).max(2);
            window.threshold = window.threshold.min(window.size - 1).max(2);
        } else if waiting < ALPHA && ack.may_grow() {
            window.size = (window.size + 1).min(super::MAX_WINDOW);
        }
    }
}

impl CongestionControl for Vegas {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if let Some(rtt) = ack.rtt {
            self.base_rtt = self.base_rtt.min(rtt);
            self.round_rtt = self.round_rtt.min(rtt);
            self.samples += 1;
        }
        if !matches!(ack.state, State::Open | State::Timeout) {
            // Round trips during a recovery do not show the queue.
            self.begin_round(ack);
        } else if ack.first_outstanding > self.round_end {
            if self.samples > FEWEST_SAMPLES {
                self.adjust(ack, window);
            } else {
                window.grow_as_reno(ack, |acknowledged| acknowledged);
            }
            self.begin_round(ack);
        } else if window.in_slow_start() && ack.may_grow() {
            window.slow_start(ack.acknowledged);
        }
    }

    fn on_loss(&mut self, _loss: &Loss, window: &mut Window) {
        window.threshold = (window.size / 2).max(2);
    }
}

/// Fewest and most segments that may wait, and those that end slow start.
const ALPHA: u32 = 2;
const BETA: u32 = 4;
const GAMMA: u32 = 1;
/// With delayed acknowledgements two samples may both have waited for the second segment.
const FEWEST_SAMPLES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::ack;

    /// A round of four acknowledgements with this round trip.
    fn round(vegas: &mut Vegas, window: &mut Window, rtt: Span) {
        let first = vegas.round_end;
        for at in 1..=4 {
            let acked = Ack { first_outstanding: first + at / 4, rtt: Some(rtt), ..ack(1) };
            vegas.on_ack(&Ack { next_sequence: first + 2, ..acked }, window);
        }
    }

    #[test]
    fn the_window_moves_by_one_until_two_to_four_segments_wait() {
        let (mut vegas, mut window) = (Vegas::default(), Window::new(20));
        window.threshold = 10;
        round(&mut vegas, &mut window, Span::from_millis(100));
        assert_eq!(window.size, 21, "nothing waits");
        // 21 segments in 115 ms over 100 ms: three wait.
        round(&mut vegas, &mut window, Span::from_millis(115));
        assert_eq!(window.size, 21);
        round(&mut vegas, &mut window, Span::from_millis(130));
        assert_eq!(window.size, 20, "six wait");
    }

    #[test]
    fn slow_start_ends_when_two_segments_wait() {
        let (mut vegas, mut window) = (Vegas::default(), Window::new(20));
        round(&mut vegas, &mut window, Span::from_millis(100));
        assert!(window.in_slow_start() && window.size > 20, "{window:?}");
        let before = window.size;
        round(&mut vegas, &mut window, Span::from_millis(120));
        assert!(!window.in_slow_start() && window.size < before + 3, "{window:?}");
    }
}
