//! The queue of a flow, and the table entry of a host: eight-way set-associative hashing. A hash
//! selects a home, and the eight places of its set are tried from there, so that flows share a
//! queue only if nine flows of one set are active at once.

use alloc::vec;
use alloc::vec::Vec;

use super::config::Isolation;
use crate::packet::Meta;
use crate::rng::Rng;

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

/// The hosts of a flow, by their entries.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    source: u16,
    destination: u16,
}

/// The hosts of a tin, whose bulk flows share the turns of their host.
#[derive(Debug)]
pub(super) struct Shares {
    /// The hosts of the flow in each queue.
    ends: Vec<Ends>,
    sources: Hosts,
    destinations: Hosts,
}

impl Shares {
    /// Returns the shares of hosts without bulk flows, whose turns have `quantum` bytes.
    pub fn new(quantum: u32, isolation: Isolation) -> Self {
        Self {
            ends: vec![Ends::default(); QUEUES],
            sources: Hosts::new(quantum, isolation.shares_by_source()),
            destinations: Hosts::new(quantum, isolation.shares_by_destination()),
        }
    }

    /// Assigns the packet's hosts to a queue.
    pub fn assign(&mut self, queue: usize, meta: &Meta) {
        let source = self.sources.place(meta.src);
        self.ends[queue] = Ends { source, destination: self.destinations.place(meta.dst) };
    }

    /// Counts a new bulk flow.
    pub fn enter(&mut self, queue: usize) {
        self.sources.enter(self.ends[queue].source);
        self.destinations.enter(self.ends[queue].destination);
    }

    /// Removes a bulk flow from the counts.
    pub fn leave(&mut self, queue: usize) {
        self.sources.leave(self.ends[queue].source);
        self.destinations.leave(self.ends[queue].destination);
    }

    /// Returns the bytes of a flow's next turn: the quantum divided by the bulk flows of the busier
    /// of its hosts. A random number below a byte compensates the rounding in the long run.
    #[inline]
    pub fn turn_bytes(&self, queue: usize, rng: &mut Rng) -> i32 {
        let Ends { source, destination } = self.ends[queue];
        let of_source = self.sources.turns_q16[usize::from(source)];
        let turn_q16 = of_source.min(self.destinations.turns_q16[usize::from(destination)]);
        ((turn_q16 + (rng.next_u32() >> 16)) >> 16) as i32
    }
}

/// The hosts of one side, sources or destinations.
#[derive(Debug)]
struct Hosts {
    tags: Vec<u32>,
    bulk_flows: Vec<u16>,
    /// The bytes of a turn of each of these flows, as a fraction of 2^16. They are stored, because
    /// turns are far more frequent than changes of the number of flows.
    turns_q16: Vec<u32>,
    quantum: u32,
    /// Whether the hosts get equal shares. Otherwise no flow is counted.
    is_shared: bool,
}

impl Hosts {
    fn new(quantum: u32, is_shared: bool) -> Self {
        let turns_q16 = vec![quantum * u32::from(u16::MAX); QUEUES];
        Self { tags: vec![0; QUEUES], bulk_flows: vec![0; QUEUES], turns_q16, quantum, is_shared }
    }

    /// Returns the host's entry: its own, else one without bulk flows, else its home, shared.
    fn place(&mut self, hash: u32) -> u16 {
        let own = places(hash).find(|&place| self.tags[place] == hash);
        let found = own.or_else(|| places(hash).find(|&place| self.bulk_flows[place] == 0));
        let place = found.unwrap_or(home(hash));
        self.tags[place] = hash;
        place as u16
    }

    /// Counts a new bulk flow, up to the number of queues.
    fn enter(&mut self, host: u16) {
        if self.is_shared {
            let count = self.bulk_flows[usize::from(host)] + 1;
            self.set(host, count.min(QUEUES as u16));
        }
    }

    fn leave(&mut self, host: u16) {
        self.set(host, self.bulk_flows[usize::from(host)].saturating_sub(1));
    }

    fn set(&mut self, host: u16, count: u16) {
        self.bulk_flows[usize::from(host)] = count;
        self.turns_q16[usize::from(host)] = self.quantum * u32::from(u16::MAX / count.max(1));
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
        let mut hosts = Hosts::new(300, true);
        // Nine hosts whose home is entry 8; each with a bulk flow.
        let entries: Vec<u16> = (1..=9)
            .map(|number| {
                let place = hosts.place(8 + 1_024 * number);
                hosts.enter(place);
                place
            })
            .collect();
        assert_eq!(entries, [8, 9, 10, 11, 12, 13, 14, 15, 8]);
        assert_eq!((hosts.bulk_flows[8], hosts.turns_q16[8]), (2, 300 * 32_767));
        // The ninth host has taken the entry of the first; the third host is found again.
        assert_eq!(hosts.place(8 + 1_024 * 3), 10);
        hosts.leave(12);
        assert_eq!(hosts.place(8 + 1_024), 12);
    }

    #[test]
    fn counts_of_bulk_flows_stay_within_their_bounds() {
        let mut hosts = Hosts::new(300, true);
        hosts.leave(3);
        assert_eq!((hosts.bulk_flows[3], hosts.turns_q16[3]), (0, 300 * 65_535));
        (0..2_000).for_each(|_| hosts.enter(3));
        assert_eq!((hosts.bulk_flows[3], hosts.turns_q16[3]), (1_024, 300 * 63));
    }
}
