//! The scheduler between the two queues: weighted by bytes, the low latency queue first.

use crate::service_flow::Side;

/// A credit that changes only while both queues wait: it rises by the classic weight with every
/// byte of the low latency queue, and falls by the other weight with every byte of the classic
/// queue. The low latency queue sends while the credit is not positive. In the long run the bytes
/// divide as the weights do, and neither queue can starve the other (`c_protection` in Linux's
/// `sch_dualpi2.c`; a weighted round robin as RFC 9332 section 4.2.2 allows).
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    classic_weight: i64,
    low_latency_weight: i64,
    fresh: i64,
    value: i64,
}

impl Credit {
    /// Returns a scheduler that gives `classic_weight` parts of `total` to the classic queue. It
    /// starts in favour of the heavier queue, by one packet of `mtu_bytes`.
    pub fn new(classic_weight: u32, total: u32, mtu_bytes: u32) -> Self {
        let (classic, low_latency) =
            (i64::from(classic_weight), i64::from(total.saturating_sub(classic_weight)));
        let fresh = i64::from(mtu_bytes) * (classic - low_latency);
        Self { classic_weight: classic, low_latency_weight: low_latency, fresh, value: fresh }
    }

    /// Resets the credit, when both queues have been empty.
    pub const fn reset(&mut self) {
        self.value = self.fresh;
    }

    /// Returns the queue that sends next; `None` if neither waits.
    pub const fn choose(&self, low_latency_waits: bool, classic_waits: bool) -> Option<Side> {
        match (low_latency_waits, classic_waits) {
            (false, false) => None,
            (true, true) if self.value > 0 => Some(Side::Classic),
            (true, _) => Some(Side::LowLatency),
            (false, true) => Some(Side::Classic),
        }
    }

    /// Charges `len` bytes that `side` sends while the other one waits.
    pub fn charge(&mut self, side: Side, len: u32) {
        let change = match side {
            Side::LowLatency => self.classic_weight * i64::from(len),
            Side::Classic => -self.low_latency_weight * i64::from(len),
        };
        self.value = self.value.saturating_add(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_divide_as_the_weights_do() {
        let mut credit = Credit::new(26, 256, 1_500);
        let mut bytes = [0_u64; 2];
        for turn in 0..100_000_u32 {
            let side = credit.choose(true, true).expect("both wait");
            let len = if side == Side::Classic { 1_500 } else { 40 + turn % 1_400 };
            bytes[usize::from(side == Side::Classic)] += u64::from(len);
            credit.charge(side, len);
        }
        let share = bytes[1] as f64 / (bytes[0] + bytes[1]) as f64;
        assert!((share - 26.0 / 256.0).abs() < 0.001, "the classic queue got {share}");
    }

    #[test]
    fn the_low_latency_queue_goes_first_and_a_lone_queue_always() {
        let credit = Credit::new(10, 100, 1_514);
        assert_eq!(credit.choose(true, true), Some(Side::LowLatency));
        assert_eq!(credit.choose(false, true), Some(Side::Classic));
        assert_eq!(credit.choose(false, false), None);
    }
}
