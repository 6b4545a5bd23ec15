//! Rate limits for the first messages of address proofs. Their source addresses may be forged, so
//! they have separate limits and consume nothing of clients with a session.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use underload_probe::network::CustomerNetwork;

/// The instants up to which the rate of each network, by a keyed hash, and of all is used.
pub(crate) struct Openings {
    networks: Vec<AtomicU64>,
    all: AtomicU64,
    keyed: RandomState,
}

/// Networks in the same slot share a limit; the hash is keyed, so that a sender cannot choose the
/// slot.
const SLOTS: usize = 4096;
/// Fifty per second and network, with a burst of one second.
const NETWORK_COST_NS: u64 = 20_000_000;
const NETWORK_BURST_NS: u64 = 1_000_000_000;
/// Twenty thousand per second, with a burst of a tenth of a second.
const ALL_COST_NS: u64 = 50_000;
const ALL_BURST_NS: u64 = 100_000_000;

impl Openings {
    pub(crate) fn new() -> Self {
        let networks = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { networks, all: AtomicU64::new(0), keyed: RandomState::new() }
    }

    /// Returns true if a message from this address may be answered now.
    pub(crate) fn admits(&self, now_ns: u64, address: IpAddr) -> bool {
        let index = self.keyed.hash_one(CustomerNetwork::of(address)) as usize % SLOTS;
        let Some(network) = self.networks.get(index) else { return false };
        takes(network, now_ns, NETWORK_COST_NS, NETWORK_BURST_NS)
            && takes(&self.all, now_ns, ALL_COST_NS, ALL_BURST_NS)
    }
}

fn takes(until: &AtomicU64, now_ns: u64, cost_ns: u64, burst_ns: u64) -> bool {
    let after = |until_ns: u64| {
        let after_ns = until_ns.max(now_ns).saturating_add(cost_ns);
        (after_ns <= now_ns.saturating_add(burst_ns)).then_some(after_ns)
    };
    until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_are_limited_per_network_and_in_total() {
        let openings = Openings::new();
        let admitted = |now_ns: u64, network: u32| {
            let address = IpAddr::from((network << 8 | 1).to_be_bytes());
            (0..100_000).take_while(|_| openings.admits(now_ns, address)).count()
        };
        assert_eq!(admitted(0, 1), 50);
        assert_eq!(admitted(1_000_000_000, 1), 50);
        assert_eq!(admitted(1_100_000_000, 1), 5);
        let forged: usize = (100..100_000).map(|network| admitted(2_000_000_000, network)).sum();
        assert_eq!(forged, 2_000, "a tenth of a second of all");
    }
}
