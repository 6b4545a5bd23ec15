//! DCTCP (RFC 8257): Reno's growth; once per window with marks, a reduction by alpha / 2, where
//! alpha is the averaged fraction of marked segments (g = 1/16, first alpha 1, in 1/1024 as Linux).
//!
//! Loss is answered as Reno answers it, even while a mark is being answered by a smaller reduction
//! (RFC 8257, section 3.5; Linux' `dctcp_react_to_loss`). A timeout then halves the window too,
//! while Linux keeps the threshold of the mark. Slow start ends at the first mark; no HyStart.
//! Feedback is an exact count of marks with an acknowledgement at each change, which the state
//! machine of RFC 8257 section 3.2 approximates with one bit.

use super::{Ack, Cause, CongestionControl, Loss, Window, marking};

/// Alpha in 1/1024, as in Linux. The rounding matters if few packets are marked: an alpha below
/// 1/64 forgets all rounds but the last.
type MarkFraction = marking::MarkFraction<10>;

#[derive(Debug)]
pub struct Dctcp {
    fraction: MarkFraction,
}

impl Dctcp {
    /// Returns the window after a reduction by alpha / 2.
    fn reduced(&self, window: u32) -> u32 {
        (window - ((u64::from(window) * self.fraction.alpha) >> 11) as u32).max(2)
    }
}

impl Default for Dctcp {
    fn default() -> Self {
        Self { fraction: MarkFraction::new(MarkFraction::ONE) }
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if self.fraction.count(ack) {
            self.fraction.drop_rest();
            self.fraction.average();
            self.fraction.begin_round(ack.next_sequence);
        }
        window.grow_as_reno(ack, |acknowledged| acknowledged);
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        window.threshold = match loss.cause {
            Cause::Mark => self.reduced(window.size),
            Cause::Loss | Cause::Timeout => (window.size / 2).max(2),
        };
    }

    fn answers_loss_while_reducing(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::congestion::tests::ack;

    /// Runs rounds of 100 segments; `marked` has the number of marked segments of each round.
    fn after(marked: impl Iterator<Item = u32>) -> Dctcp {
        let mut dctcp = Dctcp::default();
        let mut window = Window::new(100);
        window.threshold = 100;
        for (round, marked) in (0..).zip(marked) {
            let mut step = ack(100);
            (step.marked, step.first_outstanding) = (marked, round * 100);
            step.next_sequence = (round + 1) * 100;
            dctcp.on_ack(&step, &mut window);
        }
        dctcp
    }

    #[test]
    fn a_steady_fraction_of_marks_becomes_alpha_and_half_of_it_the_reduction() {
        let dctcp = after(iter::repeat_n(20, 200));
        let alpha = dctcp.fraction.alpha as f64 / MarkFraction::ONE as f64;
        assert!((alpha - 0.2).abs() < 1.0 / 64.0, "{alpha}");
        let reduced = dctcp.reduced(1_000);
        assert!((892..=908).contains(&reduced), "1 - 0.2 / 2: {reduced}");
    }

    /// Linux' `dctcp_update_alpha` by hand: 1/16 of 5 % in 1/1024 is 3, and an alpha below 16 is
    /// zero before the next round adds to it. Half of 3/1024 of 200 segments rounds to zero.
    #[test]
    fn few_marks_after_a_pause_reduce_a_small_window_by_nothing() {
        assert_eq!(after(iter::repeat_n(0, 100)).fraction.alpha, 0);
        let dctcp = after(iter::repeat_n(0, 100).chain(iter::repeat_n(5, 100)));
        assert_eq!(dctcp.fraction.alpha, 3);
        assert_eq!((dctcp.reduced(200), dctcp.reduced(1_000)), (200, 999));
    }
}
