//! Accurate ECN feedback (RFC 9768): the receiver counts packets marked CE, and every
//! acknowledgement carries the counter's last three bits.
//!
//! If an acknowledgement newly acknowledges fewer than eight packets, the counter cannot have
//! wrapped and the sender reads it exactly. If it acknowledges more, because acknowledgements
//! between were lost, the sender assumes as many marks as fit, which is the safe side (section
//! 3.2.2.5.2, appendix A.2.1). Acknowledgements of nothing new may be out of order and are ignored.
//! The option with byte counters and the handshake's encoding of the IP-ECN field are not modelled:
//! both counters begin at 5.

/// The receiver's count of packets marked CE (`r.cep`, less its initial value).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MarkCounter(u32);

/// The sender's copy of the count (`s.cep`, less its initial value).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MarkReader(u32);

impl MarkCounter {
    /// Counts a data packet that arrived marked.
    pub(super) fn count(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    pub(super) fn field(self) -> u8 {
        (self.0.wrapping_add(INITIAL) % CYCLE) as u8
    }
}

impl MarkReader {
    /// Returns the marks that an acknowledgement with this field reports if it newly acknowledges
    /// `packets`.
    pub(super) fn read(&mut self, field: u8, packets: u32) -> u32 {
        if packets == 0 {
            return 0;
        }
        let least = u32::from(field).wrapping_sub(INITIAL).wrapping_sub(self.0) % CYCLE;
        let marks = if packets < CYCLE { least } else { packets - (packets - least) % CYCLE };
        self.0 = self.0.wrapping_add(marks);
        marks
    }
}

// Section 3.2.2.1.
const INITIAL: u32 = 5;
/// Values of a field of three bits.
const CYCLE: u32 = 8;

#[cfg(test)]
mod tests {
    use underload_aqm::rng::Rng;

    use super::*;

    /// Sends batches of packets of which some are marked, each acknowledged once; returns the true
    /// and the reported number of marks.
    fn exchange(batches: u32, largest: u32, marked_of_8: u32) -> (u32, u32) {
        let (mut counter, mut reader) = (MarkCounter::default(), MarkReader::default());
        let mut rng = Rng::new(3);
        let (mut marked, mut reported) = (0, 0);
        for _ in 0..batches {
            let packets = 1 + rng.below(largest);
            for _ in 0..packets {
                if rng.below(8) < marked_of_8 {
                    counter.count();
                    marked += 1;
                }
            }
            reported += reader.read(counter.field(), packets);
        }
        (marked, reported)
    }

    #[test]
    fn every_mark_is_reported_while_fewer_than_eight_packets_are_acknowledged_at_once() {
        for marked_of_8 in [0, 1, 4, 8] {
            let (marked, reported) = exchange(10_000, 7, marked_of_8);
            assert_eq!(marked, reported);
            assert_eq!(marked == 0, marked_of_8 == 0);
        }
    }

    #[test]
    fn when_acknowledgements_are_lost_marks_are_never_underestimated() {
        for marked_of_8 in [1, 4, 8] {
            let (marked, reported) = exchange(10_000, 40, marked_of_8);
            assert!(reported >= marked, "{reported} of {marked}");
        }
        // If all packets are marked, the safe assumption is exact.
        let (marked, reported) = exchange(10_000, 40, 8);
        assert_eq!(marked, reported);
    }

    #[test]
    fn an_acknowledgement_that_comes_too_late_changes_nothing() {
        let (mut counter, mut reader) = (MarkCounter::default(), MarkReader::default());
        let old = counter.field();
        counter.count();
        assert_eq!(reader.read(counter.field(), 2), 1);
        assert_eq!(reader.read(old, 0), 0, "seven marks, if it were new");
        counter.count();
        assert_eq!(reader.read(counter.field(), 1), 1);
    }
}
