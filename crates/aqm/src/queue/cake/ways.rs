//! The queue of a flow, and the table entry of a host: eight-way set-associative hashing. A hash
//! selects a home, and the eight places of its set are tried from there, so that flows share a
//! queue only if nine flows of one set are active at once.

use alloc::vec;
use alloc::vec::Vec;

/// Queues of a tin, and entries of its tables of hosts.
pub(super) const QUEUES: usize = 1_024;

const WAYS: usize = 8;

/// Returns the places of the set of `hash`, its home first.
#[inline]
pub(super) fn places(hash: u32) -> impl Iterator<Item = usize> {
    let home = home(hash);
    let set = home - home % WAYS;
    (0..WAYS).map(move |way| set + (home + way) % WAYS)
}

/// Returns the preferred place of `hash`.
#[inline]
pub(super) const fn home(hash: u32) -> usize {
    hash as usize % QUEUES
}

/// The hosts of one side, sources or destinations, with their numbers of bulk flows.
#[derive(Debug)]
pub(super) struct Hosts {
    tags: Vec<u32>,
    bulk_flows: Vec<u16>,
    /// The part of a quantum that a turn of each of these flows has, as a fraction of 2^16. It is
    /// stored because turns are far more frequent than changes of the number of flows.
    parts_q16: Vec<u16>,
}

impl Hosts {
    pub fn new() -> Self {
        Self {
            tags: vec![0; QUEUES],
            bulk_flows: vec![0; QUEUES],
            parts_q16: vec![u16::MAX; QUEUES],
        }
    }

    /// Returns the host's entry: its own, else one without bulk flows, else its home, shared.
    pub fn place(&mut self, hash: u32) -> u16 {
        let own = places(hash).find(|&place| self.tags[place] == hash);
        let found = own.or_else(|| places(hash).find(|&place| self.bulk_flows[place] == 0));
        let place = found.unwrap_or(home(hash));
        self.tags[place] = hash;
        place as u16
    }

    #[inline]
    pub fn part_q16(&self, host: u16) -> u16 {
        self.parts_q16[usize::from(host)]
    }

    /// Counts a new bulk flow, up to the number of queues.
    pub fn enter(&mut self, host: u16) {
        let count = self.bulk_flows[usize::from(host)] + 1;
        self.set(host, count.min(QUEUES as u16));
    }

    /// Removes a bulk flow from the count.
    pub fn leave(&mut self, host: u16) {
        self.set(host, self.bulk_flows[usize::from(host)].saturating_sub(1));
    }

    fn set(&mut self, host: u16, count: u16) {
        self.bulk_flows[usize::from(host)] = count;
        self.parts_q16[usize::from(host)] = u16::MAX / count.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_searched_from_the_home_slot_and_wraps_around() {
        let walked: Vec<usize> = places(1_024 + 21).collect();
        assert_eq!(walked, [21, 22, 23, 16, 17, 18, 19, 20]);
    }

    #[test]
    fn hosts_share_an_entry_only_where_a_set_is_busy() {
        let mut hosts = Hosts::new();
        // Nine hosts whose home is entry 8; each with a bulk flow.
        let entries: Vec<u16> = (1..=9)
            .map(|number| {
                let place = hosts.place(8 + 1_024 * number);
                hosts.enter(place);
                place
            })
            .collect();
        assert_eq!(entries, [8, 9, 10, 11, 12, 13, 14, 15, 8]);
        assert_eq!((hosts.bulk_flows[8], hosts.part_q16(8)), (2, u16::MAX / 2));
        // The ninth host has taken the entry of the first; the third host is found again.
        assert_eq!(hosts.place(8 + 1_024 * 3), 10);
        hosts.leave(12);
        assert_eq!(hosts.place(8 + 1_024), 12);
    }

    #[test]
    fn counts_of_bulk_flows_stay_within_their_bounds() {
        let mut hosts = Hosts::new();
        hosts.leave(3);
        assert_eq!((hosts.bulk_flows[3], hosts.part_q16(3)), (0, u16::MAX));
        (0..2_000).for_each(|_| hosts.enter(3));
        assert_eq!((hosts.bulk_flows[3], hosts.part_q16(3)), (1_024, u16::MAX / 1_024));
    }
}
