//! Who may be served at once: so many in all, so many of one network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use underload_probe::network::CustomerNetwork;

/// The places of a server, shared by its threads.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<Mutex<BTreeMap<CustomerNetwork, usize>>>,
    in_all_max: usize,
    per_network_max: usize,
}

/// One place, given back when it is dropped, however its holder ends.
#[derive(Debug)]
pub struct Place {
    places: Places,
    network: CustomerNetwork,
}

impl Places {
    /// So many places in all, and of these so many for one network.
    pub fn new(in_all_max: usize, per_network_max: usize) -> Self {
        Self { taken: Arc::default(), in_all_max, per_network_max }
    }

    /// A place for the network of `address`, or `None` while there is none.
    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let network = CustomerNetwork::of(address);
        let mut taken = self.lock();
        let of_network = taken.get(&network).copied().unwrap_or(0);
        if of_network >= self.per_network_max || taken.values().sum::<usize>() >= self.in_all_max {
            return None;
        }
        taken.insert(network, of_network + 1);
        Some(Place { places: self.clone(), network })
    }

    /// True if `address` would get no place.
    pub fn is_full_for(&self, address: IpAddr) -> bool {
        let taken = self.lock();
        let of_network = taken.get(&CustomerNetwork::of(address)).copied().unwrap_or(0);
        of_network >= self.per_network_max || taken.values().sum::<usize>() >= self.in_all_max
    }

    /// Places taken now.
    pub fn taken(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CustomerNetwork, usize>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_per_network_and_come_back() {
        let places = Places::new(3, 2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = places.take(address("192.0.2.1")).unwrap();
        let _second = places.take(address("::ffff:192.0.2.200")).unwrap();
        assert!(places.take(address("192.0.2.3")).is_none(), "two of one network");
        assert!(places.is_full_for(address("192.0.2.4")));
        let _third = places.take(address("192.0.3.1")).unwrap();
        assert!(places.take(address("198.51.100.1")).is_none(), "three in all");
        drop(first);
        assert_eq!(places.taken(), 2);
        assert!(places.take(address("198.51.100.1")).is_some());
    }

    #[test]
    fn one_customer_of_ipv6_is_one_network() {
        let places = Places::new(100, 2);
        let take = |text: &str| places.take(text.parse().unwrap());
        let _held = [take("2001:db8:0:100::1").unwrap(), take("2001:db8:0:1ff:9::1").unwrap()];
        assert!(take("2001:db8:0:1aa::7").is_none(), "its /56 has 2^72 addresses");
        assert!(take("2001:db8:0:200::1").is_some());
    }
}
