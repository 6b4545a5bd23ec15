//! Signals spread evenly over packets.

use crate::queue::control::ONE_Q56;

/// `recur()` of RFC 9332 appendix A: probabilities add up, and each whole one is a signal. Unlike
/// random draws, this never signals twice in a row at a low probability.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recur {
    sum_q56: u64,
}

impl Recur {
    /// Whether this packet is signalled at `probability_q56`, at most one.
    pub fn signals(&mut self, probability_q56: u64) -> bool {
        self.sum_q56 += probability_q56.min(ONE_Q56);
        let signals = self.sum_q56 > ONE_Q56;
        if signals {
            self.sum_q56 -= ONE_Q56;
        }
        signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::control::ratio_q56;

    #[test]
    fn a_probability_of_one_in_eight_signals_every_eighth_time() {
        let mut recur = Recur::default();
        let signals: alloc::vec::Vec<u32> =
            (1..=40).filter(|_| recur.signals(ratio_q56(1, 8))).collect();
        assert_eq!(signals, [9, 17, 25, 33], "the sum must pass one, not reach it");
    }
}
