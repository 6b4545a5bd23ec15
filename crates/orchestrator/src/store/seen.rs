//! The sequence numbers of the results that each device has handed in, one bit each.
//!
//! A result may be handed in again after it was moved to files or folded into sums, so these bits
//! are stored apart from the results: for each device and epoch a row of [`WIDTH`] bits for each
//! [`WIDTH`] consecutive numbers of which at least one was seen. A device with gaps in its numbers
//! takes at most one row per result, and only its newest rows are stored: older numbers count as
//! seen ([`SEEN_ROWS`](underload_fleet::store::SEEN_ROWS)).

use std::collections::{BTreeMap, BTreeSet};

use underload_fleet::device::DeviceId;
use underload_fleet::orchestrator::MADE_EPOCH;
use underload_fleet::store::SEEN_WIDTH as WIDTH;

/// The key of a row: device, epoch, number divided by [`WIDTH`].
pub(super) type Place = (DeviceId, u32, u64);
/// The bits of a row, lowest number first, without trailing zero bytes.
pub(super) type Bits = Vec<u8>;

/// Returns the row of a number.
pub(super) fn place(device: DeviceId, epoch: u32, sequence: u64) -> Place {
    (device, epoch, sequence / WIDTH)
}

/// Sets the bit of a number. Returns whether it was not set before.
pub(super) fn set(bits: &mut Bits, sequence: u64) -> bool {
    let bit = (sequence % WIDTH) as usize;
    if bits.len() <= bit / 8 {
        bits.resize(bit / 8 + 1, 0);
    }
    let mask = 1 << (bit % 8);
    let is_new = bits[bit / 8] & mask == 0;
    bits[bit / 8] |= mask;
    is_new
}

/// Rows that a transaction has read.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: BTreeMap<Place, Row>,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    /// The stored bits; `None` if the row is not stored.
    pub(super) stored: Option<Bits>,
    pub(super) bits: Bits,
}

impl Rows {
    pub(super) fn has(&self, place: &Place) -> bool {
        self.rows.contains_key(place)
    }

    /// Adds a row as it is stored.
    pub(super) fn put(&mut self, place: Place, stored: Option<Bits>) {
        let bits = stored.clone().unwrap_or_default();
        self.rows.insert(place, Row { stored, bits });
    }

    /// Adds a row that is older than all stored rows: each of its numbers counts as seen.
    pub(super) fn put_forgotten(&mut self, place: Place) {
        self.put(place, Some(vec![u8::MAX; WIDTH as usize / 8]));
    }

    /// Returns the devices with rows that are not stored yet, and whether those rows are of
    /// outcomes that orchestrators made.
    pub(super) fn grown(&self) -> BTreeSet<(DeviceId, bool)> {
        let new = self.rows.iter().filter(|(_, row)| row.stored.is_none());
        new.map(|((device, epoch, _), _)| (*device, *epoch == MADE_EPOCH)).collect()
    }

    /// Marks a number as seen. Returns whether it was not seen before.
    pub(super) fn mark(&mut self, device: DeviceId, epoch: u32, sequence: u64) -> bool {
        let row = self.rows.entry(place(device, epoch, sequence)).or_default();
        set(&mut row.bits, sequence)
    }

    pub(super) fn changed(&self) -> impl Iterator<Item = (&Place, &Row)> {
        self.rows.iter().filter(|(_, row)| row.stored.as_ref() != Some(&row.bits))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sequence_number_is_accepted_once(sequences in prop::collection::vec(0_u64..2_000, 1..400)) {
            let mut rows = Rows::default();
            let mut seen = std::collections::BTreeSet::new();
            for sequence in sequences {
                let is_new = rows.mark(DeviceId([1; 16]), 3, sequence);
                prop_assert_eq!(is_new, seen.insert(sequence));
            }
            let longest = rows.changed().map(|(_, row)| row.bits.len()).max();
            prop_assert!(longest.is_some_and(|bytes| bytes <= 64));
        }
    }
}
