//! The delay of segments from first transmission to first arrival, including retransmissions.

use std::collections::VecDeque;

use underload_aqm::time::Time;
use underload_record::link::distribution;
use underload_record::schema::Distribution;
use underload_record::stats::Histogram;

/// Delays of one connection.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Times of first transmission, from segment `first` on; `None` once a segment has arrived.
    sent: VecDeque<Option<Time>>,
    first: u32,
    delays: Histogram,
}

impl Delivery {
    /// Records that the new segments before `next` were sent at `now`.
    pub(super) fn sent_before(&mut self, now: Time, next: u32) {
        let known = self.first + self.sent.len() as u32;
        self.sent.extend((known..next).map(|_| Some(now)));
    }

    /// Records an arrival; only the first one of a segment counts.
    pub(super) fn arrived(&mut self, now: Time, sequence: u32) {
        let Some(index) = sequence.checked_sub(self.first) else { return };
        if let Some(sent) = self.sent.get_mut(index as usize).and_then(Option::take) {
            self.delays.record(now.since(sent).as_nanos());
        }
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn distribution(&self) -> Option<Distribution> {
        distribution(&self.delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_counts_from_its_first_transmission_to_its_first_arrival() {
        let ms = Time::from_millis;
        let mut delivery = Delivery::default();
        delivery.sent_before(ms(10), 3);
        delivery.arrived(ms(15), 0);
        delivery.arrived(ms(17), 2);
        delivery.sent_before(ms(20), 4);
        // Segment 1 was lost and is sent again; its first transmission is already recorded.
        delivery.sent_before(ms(30), 4);
        delivery.arrived(ms(40), 1);
        delivery.arrived(ms(41), 1);
        delivery.arrived(ms(42), 3);
        delivery.arrived(ms(50), 99);
        let all = delivery.distribution().expect("four segments");
        assert_eq!((all.count, all.min_ns, all.max_ns), (4, 5_000_000, 30_000_000));
        assert_eq!(all.mean_ns, (5_000_000 + 7_000_000 + 30_000_000 + 22_000_000) / 4);
        assert!(delivery.sent.is_empty() && delivery.first == 4);
    }
}
