//! The fixed schedule of an open-loop prober.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub class: u16,
    /// Number of the slot in its class, from 0; skipped slots count.
    pub sequence: u32,
    pub scheduled_ns: u64,
}

/// The schedule of all classes. Slot `i` of class `c` of `n` is due at
/// `start + i * interval + c * interval / n`: classes are spread over the interval, so that they do
/// not queue behind each other.
#[derive(Clone, Debug)]
pub struct Schedule {
    start_ns: u64,
    interval_ns: u64,
    classes: u16,
    end_ns: u64,
    /// Index of the next slot over all classes.
    next: u64,
    skipped: Vec<u64>,
}

impl Schedule {
    /// Returns a schedule without an end, see [`Schedule::end_at`]. An interval of 0 counts as 1
    /// ns, no class as one class.
    pub fn new(start_ns: u64, interval_ns: u64, classes: u16) -> Self {
        let classes = classes.max(1);
        Self {
            start_ns,
            interval_ns: interval_ns.max(1),
            classes,
            end_ns: u64::MAX,
            next: 0,
            skipped: vec![0; usize::from(classes)],
        }
    }

    /// Schedules no slot at or after `end_ns`.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// Returns when the next slot is due; `None` after the end.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.slot(self.next).map(|slot| slot.scheduled_ns)
    }

    /// Returns the slot to send now; `None` if none is due. Skips and counts slots that are late by
    /// an interval or more.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Slot> {
        loop {
            let slot = self.slot(self.next).filter(|slot| slot.scheduled_ns <= now_ns)?;
            self.next += 1;
            if now_ns - slot.scheduled_ns < self.interval_ns {
                return Some(slot);
            }
            self.skipped[usize::from(slot.class)] += 1;
        }
    }

    /// Returns the slots of this class that were due so far, sent or skipped.
    pub fn planned(&self, class: u16) -> u64 {
        let classes = u64::from(self.classes);
        (self.next + classes - 1).saturating_sub(u64::from(class)) / classes
    }

    /// Returns the slots of this class that were skipped.
    pub fn skipped(&self, class: u16) -> u64 {
        self.skipped.get(usize::from(class)).copied().unwrap_or(0)
    }

    /// Returns `None` after the end, and after the last sequence number: the packet's field has 32
    /// bits.
    fn slot(&self, index: u64) -> Option<Slot> {
        let classes = u64::from(self.classes);
        let (round, class) = (index / classes, index % classes);
        let sequence = u32::try_from(round).ok()?;
        let spread_ns = (u128::from(self.interval_ns) * u128::from(class)) / u128::from(classes);
        let scheduled_ns = self
            .start_ns
            .checked_add(round.checked_mul(self.interval_ns)?)?
            .checked_add(spread_ns as u64)?;
        (scheduled_ns < self.end_ns).then_some(Slot { class: class as u16, sequence, scheduled_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_spread_over_the_interval() {
        let mut schedule = Schedule::new(100, 30, 3);
        schedule.end_at(160);
        let mut slots = Vec::new();
        while let Some(due) = schedule.next_due_ns() {
            slots.extend(schedule.take_due(due));
        }
        let seen: Vec<_> = slots.iter().map(|s| (s.scheduled_ns, s.class, s.sequence)).collect();
        let expected =
            [(100, 0, 0), (110, 1, 0), (120, 2, 0), (130, 0, 1), (140, 1, 1), (150, 2, 1)];
        assert_eq!(seen, expected);
        assert_eq!((schedule.planned(0), schedule.planned(2)), (2, 2));
        assert_eq!(schedule.take_due(1_000), None);
    }

    #[test]
    fn no_packet_is_due_early() {
        let mut schedule = Schedule::new(100, 30, 1);
        assert_eq!(schedule.take_due(99), None);
        assert_eq!(schedule.planned(0), 0);
        assert_eq!(schedule.take_due(100).map(|slot| slot.sequence), Some(0));
        assert_eq!(schedule.take_due(100), None);
    }

    #[test]
    fn a_stall_skips_slots_and_shifts_none() {
        let mut schedule = Schedule::new(0, 10, 1);
        assert_eq!(schedule.take_due(0).map(|slot| slot.sequence), Some(0));
        // The thread slept until 47: slots 10, 20 and 30 are at least an interval late, slot 40 is
        // less late.
        let slot = schedule.take_due(47).unwrap();
        assert_eq!((slot.sequence, slot.scheduled_ns), (4, 40));
        assert_eq!((schedule.skipped(0), schedule.planned(0)), (3, 5));
        assert_eq!(schedule.next_due_ns(), Some(50));
    }

    proptest! {
        #[test]
        fn every_slot_is_sent_or_skipped_once(
            interval in 1u64..50,
            classes in 1u16..5,
            pauses in prop::collection::vec(0u64..200, 0..60),
        ) {
            let mut schedule = Schedule::new(7, interval, classes);
            let mut now = 0;
            let mut sent = vec![Vec::new(); usize::from(classes)];
            for pause in pauses {
                now += pause;
                while let Some(slot) = schedule.take_due(now) {
                    prop_assert!(slot.scheduled_ns <= now && now - slot.scheduled_ns < interval);
                    sent[usize::from(slot.class)].push(slot.sequence);
                }
            }
            for class in 0..classes {
                let sequences = &sent[usize::from(class)];
                prop_assert!(sequences.is_sorted_by(|a, b| a < b));
                let accounted = sequences.len() as u64 + schedule.skipped(class);
                prop_assert_eq!(accounted, schedule.planned(class));
                let first_ns = 7 + interval * u64::from(class) / u64::from(classes);
                let due = if now < first_ns { 0 } else { (now - first_ns) / interval + 1 };
                prop_assert_eq!(schedule.planned(class), due);
            }
        }
    }
}
