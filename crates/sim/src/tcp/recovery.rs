//! Proportional rate reduction (RFC 6937, in Linux's variant with the slow start bound).

use crate::congestion::Window;

/// Reduces the window to its threshold over about a round trip, clocked by deliveries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    prior_window: u32,
    delivered: u32,
    sent: u32,
}

/// An acknowledgement during a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) in_flight: u32,
    pub(super) delivered: u32,
    pub(super) lost: u32,
    pub(super) advanced: bool,
}

impl Reduction {
    /// Starts from the window, as Linux, or from `in_flight` (RFC 6937's `RecoverFS`) if more
    /// segments are in flight than the window allows, as after C2TCP has set it to one segment.
    pub(super) fn start(window: &Window, in_flight: u32) -> Self {
        Self { prior_window: window.size.max(in_flight), delivered: 0, sent: 0 }
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn on_ack(&mut self, step: Step, window: &mut Window) {
        if step.delivered == 0 || self.prior_window == 0 {
            return;
        }
        self.delivered += step.delivered;
        let room = i64::from(window.threshold) - i64::from(step.in_flight);
        let allowed = if room < 0 {
            let proportion = (u64::from(window.threshold) * u64::from(self.delivered))
                .div_ceil(u64::from(self.prior_window));
            proportion as i64 - i64::from(self.sent)
        } else {
            let owed = i64::from(self.delivered) - i64::from(self.sent);
            let bonus = i64::from(step.advanced && step.lost == 0);
            (owed.max(i64::from(step.delivered)) + bonus).min(room)
        };
        // The first retransmission never waits.
        let allowed = allowed.max(i64::from(self.sent == 0));
        window.size = (i64::from(step.in_flight) + allowed).max(1) as u32;
    }
}

/// The segments that a sender may transmit after an acknowledgement during a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Lost segments first, then new ones.
    All,
    /// New segments only: it is not known yet whether anything is lost.
    New,
}

/// A tail loss probe in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// The number after the highest segment sent.
    pub(super) high: u32,
    /// Whether the probe was a retransmission, not a new segment.
    pub(super) again: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_twenty_halves_over_one_round_trip() {
        // RFC 6937 section 4's example: 20 segments, the first lost, 19 acknowledgements.
        let mut window = Window::new(20);
        window.threshold = 10;
        let mut reduction = Reduction::start(&window, 19);
        let mut in_flight = 19_u32;
        let mut sent = 0;
        for ack in 0..19 {
            in_flight -= 1;
            let lost = u32::from(ack == 2);
            reduction.on_ack(Step { in_flight, delivered: 1, lost, advanced: false }, &mut window);
            while in_flight < window.size {
                in_flight += 1;
                sent += 1;
                reduction.on_sent();
            }
        }
        assert_eq!((in_flight, sent), (10, 10));
    }

    #[test]
    fn a_flight_beyond_the_window_shrinks() {
        let mut window = Window::new(1);
        window.threshold = 2;
        let mut reduction = Reduction::start(&window, 49);
        let mut in_flight = 49_u32;
        for _ in 0..49 {
            in_flight -= 1;
            let step = Step { in_flight, delivered: 1, lost: 0, advanced: false };
            reduction.on_ack(step, &mut window);
            while in_flight < window.size {
                in_flight += 1;
                reduction.on_sent();
            }
        }
        assert_eq!(in_flight, 2, "twice what was delivered would be sent, were the window counted");
    }

    /// `tcp_cwnd_reduction` of Linux, by hand: from 20 to 10.
    #[test]
    fn each_acknowledgement_allows_the_bytes_of_the_rule() {
        let mut window = Window::new(20);
        window.threshold = 10;
        let mut reduction = Reduction::start(&window, 19);
        let mut size_after = |sent: u32, in_flight, delivered, lost, advanced| {
            (0..sent).for_each(|_| reduction.on_sent());
            reduction.on_ack(Step { in_flight, delivered, lost, advanced }, &mut window);
            window.size
        };
        assert_eq!(size_after(0, 5, 0, 0, true), 20, "nothing was delivered");
        assert_eq!(size_after(0, 18, 1, 1, false), 18 + 1, "half of 1, upwards");
        assert_eq!(size_after(1, 17, 1, 0, false), 17, "half of 2, and 1 was sent");
        assert_eq!(size_after(0, 16, 1, 0, true), 16 + 1);
        assert_eq!(size_after(1, 10, 6, 0, false), 10, "at the threshold");
        assert_eq!(size_after(2, 2, 1, 1, true), 2 + 6, "delivered 10, sent 4");
        assert_eq!(size_after(0, 2, 0, 0, true), 8);
        assert_eq!(size_after(0, 2, 1, 0, false), 2 + 7);
        assert_eq!(size_after(7, 2, 1, 0, true), 2 + 2, "one for one, and one for progress");
        assert_eq!(size_after(0, 2, 3, 1, true), 2 + 4, "15 less 11: a loss is no progress");
        assert_eq!(size_after(0, 9, 3, 0, true), 10, "no further than the threshold");
    }

    #[test]
    fn the_first_retransmission_never_waits_and_one_segment_always_may() {
        let mut window = Window::new(4);
        window.threshold = 2;
        let mut reduction = Reduction::start(&window, 4);
        let step = |in_flight| Step { in_flight, delivered: 1, lost: 0, advanced: false };
        reduction.on_ack(step(2), &mut window);
        assert_eq!(window.size, 3);
        (0..9).for_each(|_| reduction.on_sent());
        reduction.on_ack(step(2), &mut window);
        assert_eq!(window.size, 2);
        window.threshold = 0;
        reduction.on_ack(step(0), &mut window);
        assert_eq!(window.size, 1);
        let mut untouched = Window::new(7);
        Reduction::default().on_ack(step(1), &mut untouched);
        assert_eq!(untouched.size, 7, "no reduction has begun");
    }
}
