//! Which addresses have proven that they are theirs, and what the others have paid.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// A fixed table: a flood of forged addresses overwrites entries and allocates nothing.
#[derive(Debug)]
pub(super) struct Addresses {
    // Keyed, so that nobody can aim at another's place.
    hasher: RandomState,
    entries: Vec<Option<Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: IpAddr,
    is_proven: bool,
    bytes_received: usize,
    seen_ns: u64,
}

const ENTRIES: usize = 4096;
/// How long packets sent to an address are held against it, ns.
const MEMORY_NS: u64 = 60_000_000_000;

impl Addresses {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), entries: vec![None; ENTRIES] }
    }

    /// Notes that `address` sent `bytes` and would get `reply_bytes`; true if it may: it is
    /// proven, or has sent at least as much as it has got and gets.
    pub(super) fn may_get(
        &mut self,
        now_ns: u64,
        address: IpAddr,
        bytes: usize,
        reply_bytes: usize,
    ) -> bool {
        let entry = self.entry(now_ns, address);
        if entry.is_proven {
            return true;
        }
        entry.bytes_received = entry.bytes_received.saturating_add(bytes);
        match entry.bytes_received.checked_sub(reply_bytes) {
            Some(rest) => {
                entry.bytes_received = rest;
                true
            }
            None => false,
        }
    }

    /// `address` has used a token that was sent to it.
    pub(super) fn prove(&mut self, now_ns: u64, address: IpAddr) {
        self.entry(now_ns, address).is_proven = true;
    }

    fn entry(&mut self, now_ns: u64, address: IpAddr) -> &mut Entry {
        let address = address.to_canonical();
        let index = self.hasher.hash_one(address) as usize % ENTRIES;
        let fresh = Entry { address, is_proven: false, bytes_received: 0, seen_ns: now_ns };
        let slot = &mut self.entries[index];
        let is_current = |entry: &Entry| {
            entry.address == address && now_ns.saturating_sub(entry.seen_ns) < MEMORY_NS
        };
        if !slot.as_ref().is_some_and(is_current) {
            *slot = None;
        }
        let entry = slot.get_or_insert(fresh);
        entry.seen_ns = now_ns;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_it_sent_until_it_is_proven() {
        let mut addresses = Addresses::new();
        let here: IpAddr = [192, 0, 2, 1].into();
        let (mut received, mut sent) = (0, 0);
        for round in 0..100 {
            received += 29;
            if addresses.may_get(round, here, 29, 37) {
                sent += 37;
            }
            assert!(sent <= received, "{sent} > {received}");
        }
        assert!(sent > 2_000, "it is answered all the same");
        addresses.prove(100, here);
        assert!(addresses.may_get(101, here, 0, 1_000));
        assert!(!addresses.may_get(101 + MEMORY_NS, here, 29, 37), "forgotten");
    }
}
