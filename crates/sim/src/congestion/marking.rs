//! The moving average of the fraction of marked segments (RFC 8257 section 3.3), shared by DCTCP
//! and Prague.

use super::Ack;

/// Alpha, a moving average with gain 1/16, in units of 2^-`BITS`. The caller ends the rounds.
#[derive(Debug, Default)]
pub(super) struct MarkFraction<const BITS: u32> {
    pub(super) alpha: u64,
    /// The round trip ends when this segment is acknowledged.
    pub(super) round_end: u32,
    delivered: u32,
    marked: u32,
}

impl<const BITS: u32> MarkFraction<BITS> {
    /// 1 as an alpha.
    pub(super) const ONE: u64 = 1 << BITS;

    pub(super) const fn new(alpha: u64) -> Self {
        Self { alpha, round_end: 0, delivered: 0, marked: 0 }
    }

    /// Counts the segments of an acknowledgement; returns whether all segments sent before the
    /// start of the round are acknowledged.
    pub(super) fn count(&mut self, ack: &Ack) -> bool {
        self.delivered += ack.delivered;
        self.marked += ack.marked;
        ack.first_outstanding >= self.round_end
    }

    /// Averages the fraction of the round into alpha.
    pub(super) fn average(&mut self) {
        let delivered = u64::from(self.delivered.max(1));
        let fraction = (u64::from(self.marked) * Self::ONE / delivered).min(Self::ONE);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (fraction >> GAIN_SHIFT);
    }

    /// Sets alpha to zero if a sixteenth of it rounds to zero, as Linux' DCTCP does: with few bits
    /// it would otherwise never return to zero.
    pub(super) fn drop_rest(&mut self) {
        if self.alpha >> GAIN_SHIFT == 0 {
            self.alpha = 0;
        }
    }

    /// Starts a round that ends when all segments before `next_sequence` are acknowledged.
    pub(super) fn begin_round(&mut self, next_sequence: u32) {
        self.round_end = next_sequence;
        (self.delivered, self.marked) = (0, 0);
    }
}

// g = 1/16.
const GAIN_SHIFT: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::ack;

    type Fraction = MarkFraction<20>;

    #[test]
    fn a_round_ends_when_what_it_began_with_is_acknowledged() {
        let mut fraction = Fraction::new(0);
        fraction.begin_round(10);
        let at = |first_outstanding| Ack { first_outstanding, ..ack(1) };
        assert!(!fraction.count(&at(9)));
        assert!(fraction.count(&at(10)));
        assert!(fraction.count(&at(11)), "until the next one is begun");
        fraction.begin_round(12);
        assert!(!fraction.count(&at(11)));
    }

    #[test]
    fn alpha_moves_a_sixteenth_towards_the_fraction_of_each_round() {
        let mut fraction = Fraction::new(Fraction::ONE / 2);
        fraction.count(&Ack { marked: 1, ..ack(4) });
        fraction.average();
        // The average 1/2 moves towards 1/4 by a sixteenth of the difference.
        assert_eq!(fraction.alpha, Fraction::ONE * 31 / 64);
        fraction.begin_round(0);
        fraction.average();
        assert_eq!(fraction.alpha, Fraction::ONE * 31 / 64 * 15 / 16, "nothing was delivered");
    }

    #[test]
    fn more_marks_than_segments_are_a_fraction_of_one() {
        let mut fraction = Fraction::new(Fraction::ONE);
        fraction.count(&Ack { marked: 9, ..ack(2) });
        fraction.average();
        assert_eq!(fraction.alpha, Fraction::ONE);
    }
}
