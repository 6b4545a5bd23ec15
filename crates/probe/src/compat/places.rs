//! Who may be served at once: so many in all, so many of one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places of a server, shared by its threads.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    in_all_max: usize,
    per_address_max: usize,
}

/// One place, given back when it is dropped, however its holder ends.
#[derive(Debug)]
pub struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    /// So many places in all, and of these so many for one address.
    pub fn new(in_all_max: usize, per_address_max: usize) -> Self {
        Self { taken: Arc::default(), in_all_max, per_address_max }
    }

    /// A place for `address`, or `None` while there is none. An IPv4 address counts as the same
    /// whether it came over an IPv4 or a dual-stack socket.
    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut taken = self.lock();
        let of_address = taken.get(&address).copied().unwrap_or(0);
        if of_address >= self.per_address_max || taken.values().sum::<usize>() >= self.in_all_max {
            return None;
        }
        taken.insert(address, of_address + 1);
        Some(Place { places: self.clone(), address })
    }

    /// True if `address` would get no place.
    pub fn is_full_for(&self, address: IpAddr) -> bool {
        let taken = self.lock();
        let of_address = taken.get(&address.to_canonical()).copied().unwrap_or(0);
        of_address >= self.per_address_max || taken.values().sum::<usize>() >= self.in_all_max
    }

    /// Places taken now.
    pub fn taken(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_per_address_and_come_back() {
        let places = Places::new(3, 2);
        let [a, b]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let first = places.take(a).unwrap();
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        let _second = places.take(mapped).unwrap();
        assert!(places.take(a).is_none(), "two of one address");
        let _third = places.take(b).unwrap();
        assert!(places.take(b).is_none(), "three in all");
        drop(first);
        assert_eq!(places.taken(), 2);
        assert!(places.take(b).is_some());
    }
}
