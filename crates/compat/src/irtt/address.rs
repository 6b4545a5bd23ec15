//! The addresses that are proven, and how many bytes the others have sent.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// A fixed table of addresses: a flood of forged addresses overwrites entries and allocates
/// nothing.
#[derive(Debug)]
pub(super) struct Addresses {
    // Keyed, so that a sender cannot choose the slot of another address.
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
/// How long an address is remembered, ns.
const MEMORY_NS: u64 = 60_000_000_000;

impl Addresses {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), entries: vec![None; ENTRIES] }
    }

    /// Counts `bytes` that arrived from `address`. Returns true if a reply of `reply_bytes` may be
    /// sent there: to a proven address always, to another as long as no more bytes were sent to it
    /// than arrived from it, this reply included.
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
        let rest = entry.bytes_received.checked_sub(reply_bytes);
        entry.bytes_received = rest.unwrap_or(entry.bytes_received);
        rest.is_some()
    }

    /// Marks `address` as proven: it has used a token that was sent to it.
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
