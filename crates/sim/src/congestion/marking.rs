//! The moving average of the fraction of marked segments (RFC 8257 section 3.3), shared by DCTCP
//! and Prague.

use super::Ack;

/// Alpha, updated once per round trip with gain 1/16.
#[derive(Debug)]
pub(super) struct MarkFraction {
    /// In units of 2^-20.
    alpha: u64,
    round_end: u32,
    delivered: u32,
    marked: u32,
}

/// 1 as an alpha.
pub(super) const ONE: u64 = 1 << 20;

impl MarkFraction {
    /// Starts at 1, so that the first mark halves (RFC 8257 section 4.2).
    pub(super) fn new() -> Self {
        Self { alpha: ONE, round_end: 0, delivered: 0, marked: 0 }
    }

    /// Takes in an acknowledgement; returns whether a round trip ended.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> bool {
        self.delivered += ack.delivered;
        self.marked += ack.marked;
        if ack.first_outstanding < self.round_end {
            return false;
        }
        let delivered = u64::from(self.delivered.max(1));
        let fraction = (u64::from(self.marked) * ONE / delivered).min(ONE);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (fraction >> GAIN_SHIFT);
        self.round_end = ack.next_sequence;
        (self.delivered, self.marked) = (0, 0);
        true
    }

    /// The window after a reduction by alpha / 2.
    pub(super) fn reduced(&self, window: u32) -> u32 {
        (window - ((u64::from(window) * self.alpha) >> 21) as u32).max(2)
    }

    /// In units of 2^-20.
    pub(super) fn alpha(&self) -> u64 {
        self.alpha
    }
}

/// g = 1/16.
const GAIN_SHIFT: u32 = 4;
