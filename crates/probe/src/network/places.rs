//! A limited number of places that networks share: connections, channels, memory for messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

/// A fixed number of places, shared by the threads of a server.
///
/// If all places are taken, the network with the most places loses its oldest holder that can be
/// evicted. A network at its own limit loses its oldest holder once that holder has had its place
/// for [`PlaceLimits::grace`]; before that the newcomer is refused.
pub struct Places<N>(Arc<Shared<N>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Places of all networks together.
    pub in_all: usize,
    pub per_network: usize,
    /// Time in which no newcomer of the same network can evict a holder.
    pub grace: Duration,
}

/// Ends a holder whose place is needed.
pub type Evict = Box<dyn FnOnce() + Send>;

/// The places of one holder, freed when this is dropped.
pub struct Place<N: Clone + Ord> {
    places: Places<N>,
    network: N,
    number: AtomicU64,
}

struct Shared<N> {
    limits: PlaceLimits,
    taken: Mutex<Taken<N>>,
}

struct Taken<N> {
    next_number: u64,
    in_all: usize,
    networks: BTreeMap<N, Network>,
}

#[derive(Default)]
struct Network {
    taken: usize,
    /// Holders by number, which increases with [`Holder::since`].
    holders: BTreeMap<u64, Holder>,
}

struct Holder {
    places: usize,
    since: Instant,
    /// `None` for a holder that cannot be evicted.
    evict: Option<Evict>,
    /// True if the holder must not be evicted any more. `evict` is not dropped then, because
    /// dropping it may end the holder, too.
    is_kept: bool,
}

struct Wanted<N> {
    network: N,
    places: usize,
    per_network: usize,
    /// Holders of the same network from before this instant may be replaced; `None` for no holder.
    own_before: Option<Instant>,
}

impl<N: Clone + Ord> Places<N> {
    pub fn new(limits: PlaceLimits) -> Self {
        let taken = Taken { next_number: 0, in_all: 0, networks: BTreeMap::new() };
        Self(Arc::new(Shared { limits, taken: Mutex::new(taken) }))
    }

    /// Takes one place; `None` if `network` may not have another one. `evict` ends the new holder;
    /// without it the holder is never evicted.
    pub fn take(&self, now: Instant, network: N, evict: Option<Evict>) -> Option<Place<N>> {
        self.take_of(self.0.limits.per_network, now, network, evict)
    }

    /// Takes one place with another limit for this network.
    pub fn take_of(
        &self,
        per_network: usize,
        now: Instant,
        network: N,
        evict: Option<Evict>,
    ) -> Option<Place<N>> {
        let own_before = now.checked_sub(self.0.limits.grace);
        let wanted = Wanted { network, places: 1, per_network, own_before };
        let number = self.change(|taken, limits, evicted| {
            taken.make_room(limits, &wanted, evicted).then(|| {
                let holder = Holder { places: 1, since: now, evict, is_kept: false };
                taken.insert(&wanted.network, holder)
            })
        })?;
        Some(Place {
            places: self.clone(),
            network: wanted.network,
            number: AtomicU64::new(number),
        })
    }

    /// Returns true if `network` can get a new place only in exchange for one that it already has.
    pub fn is_full_for(&self, network: &N) -> bool {
        let (taken, limits) = (self.lock(), &self.0.limits);
        let own = taken.of(network);
        let is_full = taken.in_all >= limits.in_all && taken.oldest_of_fullest(own).is_none();
        own >= limits.per_network || is_full
    }

    pub fn taken(&self) -> usize {
        self.lock().in_all
    }

    /// Changes the places, and evicts holders after the lock is released.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Taken<N>, &PlaceLimits, &mut Vec<Evict>) -> T,
    ) -> T {
        let mut evicted = Vec::new();
        let done = change(&mut self.lock(), &self.0.limits, &mut evicted);
        for evict in evicted {
            evict();
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, Taken<N>> {
        // No code panics half-way through a change under this lock.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Clone + Ord> Place<N> {
    /// Takes `more` places. Returns false, and takes none, if the network's limit or the number of
    /// places would be exceeded and no fuller network can lose a holder.
    pub fn grow(&self, more: usize) -> bool {
        let per_network = self.places.0.limits.per_network;
        let wanted =
            Wanted { network: self.network.clone(), places: more, per_network, own_before: None };
        self.places.change(|taken, limits, evicted| {
            if !taken.make_room(limits, &wanted, evicted) {
                return false;
            }
            let number = self.number.load(Ordering::Relaxed);
            taken.grow(&self.network, number, more)
        })
    }

    /// Makes this holder the newest of its network, so that the network's other holders are evicted
    /// first.
    pub fn renew(&self, now: Instant) {
        self.places.change(|taken, _, _| {
            let number = self.number.load(Ordering::Relaxed);
            if let Some(holder) = taken.remove(&self.network, number) {
                let number = taken.insert(&self.network, Holder { since: now, ..holder });
                self.number.store(number, Ordering::Relaxed);
            }
        });
    }

    /// Prevents the holder's eviction.
    pub fn keep(&self) {
        let number = self.number.load(Ordering::Relaxed);
        let mut taken = self.places.lock();
        let network = taken.networks.get_mut(&self.network);
        if let Some(holder) = network.and_then(|it| it.holders.get_mut(&number)) {
            holder.is_kept = true;
        }
    }
}

impl<N: Clone + Ord> Taken<N> {
    fn of(&self, network: &N) -> usize {
        self.networks.get(network).map_or(0, |it| it.taken)
    }

    /// Evicts holders until the wanted places are free. Returns false if that is impossible.
    fn make_room(
        &mut self,
        limits: &PlaceLimits,
        wanted: &Wanted<N>,
        evicted: &mut Vec<Evict>,
    ) -> bool {
        loop {
            let own = self.of(&wanted.network);
            let is_crowded = own.saturating_add(wanted.places) > wanted.per_network;
            if !is_crowded && self.in_all.saturating_add(wanted.places) <= limits.in_all {
                return true;
            }
            let fuller = if is_crowded { None } else { self.oldest_of_fullest(own) };
            let victim = fuller.or_else(|| self.oldest_of_own(wanted));
            let Some((network, number)) = victim else { return false };
            evicted.extend(self.remove(&network, number).and_then(|holder| holder.evict));
        }
    }

    /// Returns the oldest holder that can be evicted among the networks with the most places, if
    /// these have more than `own`.
    fn oldest_of_fullest(&self, own: usize) -> Option<(N, u64)> {
        let fuller = self.networks.iter().filter(|(_, it)| it.taken > own);
        let oldest = fuller.filter_map(|(network, it)| Some((it.taken, it.oldest()?.0, network)));
        let (_, number, network) =
            oldest.max_by_key(|(taken, number, _)| (*taken, Reverse(*number)))?;
        Some((network.clone(), number))
    }

    fn oldest_of_own(&self, wanted: &Wanted<N>) -> Option<(N, u64)> {
        let before = wanted.own_before?;
        let (number, holder) = self.networks.get(&wanted.network)?.oldest()?;
        (holder.since <= before).then(|| (wanted.network.clone(), number))
    }

    fn insert(&mut self, network: &N, holder: Holder) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.in_all += holder.places;
        let network = self.networks.entry(network.clone()).or_default();
        network.taken += holder.places;
        network.holders.insert(number, holder);
        number
    }

    fn remove(&mut self, network: &N, number: u64) -> Option<Holder> {
        let of_network = self.networks.get_mut(network)?;
        let holder = of_network.holders.remove(&number)?;
        of_network.taken -= holder.places;
        self.in_all -= holder.places;
        if of_network.holders.is_empty() {
            self.networks.remove(network);
        }
        Some(holder)
    }

    /// Returns false if the holder was evicted.
    fn grow(&mut self, network: &N, number: u64, more: usize) -> bool {
        let Some(of_network) = self.networks.get_mut(network) else { return false };
        let Some(holder) = of_network.holders.get_mut(&number) else { return false };
        holder.places += more;
        of_network.taken += more;
        self.in_all += more;
        true
    }
}

impl Network {
    fn oldest(&self) -> Option<(u64, &Holder)> {
        let (number, holder) =
            self.holders.iter().find(|(_, it)| it.evict.is_some() && !it.is_kept)?;
        Some((*number, holder))
    }
}

impl<N: Clone + Ord> Drop for Place<N> {
    fn drop(&mut self) {
        let number = self.number.load(Ordering::Relaxed);
        // `evict` is dropped after the lock is released: its captures may run any code on drop.
        let _holder = self.places.lock().remove(&self.network, number);
    }
}

impl<N> Clone for Places<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N: Clone + Ord + fmt::Debug> fmt::Debug for Place<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("network", &self.network).finish_non_exhaustive()
    }
}

/// Returns the output of `wanted`, or `None` if `end` is ready first. A holder that waits for both
/// can be evicted.
pub async fn unless<W: Future>(
    mut end: Pin<&mut impl Future>,
    mut wanted: Pin<&mut W>,
) -> Option<W::Output> {
    poll_fn(|context| {
        if end.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        wanted.as_mut().poll(context).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places, and the numbers of the evicted holders.
    struct Door {
        places: Places<u16>,
        evicted: Arc<Mutex<Vec<u32>>>,
        start: Instant,
    }

    impl Door {
        fn new(in_all: usize, per_network: usize) -> Self {
            let limits = PlaceLimits { in_all, per_network, grace: Duration::from_secs(1) };
            let (evicted, start) = (Arc::default(), Instant::now() + Duration::from_hours(1));
            Self { places: Places::new(limits), evicted, start }
        }

        fn take(&self, ms: u64, network: u16, number: u32) -> Option<Place<u16>> {
            let evicted = Arc::clone(&self.evicted);
            let evict = Box::new(move || evicted.lock().unwrap().push(number));
            self.places.take(self.start + Duration::from_millis(ms), network, Some(evict))
        }

        fn evicted(&self) -> Vec<u32> {
            self.evicted.lock().unwrap().clone()
        }
    }

    #[test]
    fn a_network_at_its_limit_replaces_its_oldest_holder_after_the_grace() {
        let door = Door::new(100, 16);
        let held: Vec<_> = (0..16).map(|number| door.take(0, 1, number).unwrap()).collect();
        assert!(door.take(999, 1, 99).is_none(), "the same network");
        assert!(door.take(0, 2, 100).is_some(), "another network");
        assert_eq!(door.evicted(), Vec::<u32>::new());
        let late = door.take(1_000, 1, 101);
        assert!(late.is_some());
        assert_eq!(door.evicted(), [0]);
        held[1].renew(door.start + Duration::from_secs(1));
        let later = door.take(1_000, 1, 102);
        assert_eq!(door.evicted(), [0, 2], "a renewed holder is the youngest");
        drop((held, late, later));
        assert_eq!(door.places.taken(), 0);
    }

    #[test]
    fn full_places_take_the_oldest_of_the_fullest_network() {
        let door = Door::new(256, 16);
        let take = |number: u32| door.take(0, (number / 16) as u16, number).unwrap();
        let mut held: Vec<_> = (0..256).map(take).collect();
        // Network 0 has one place less than the others.
        held.remove(5);
        held.push(door.take(1, 100, 1_000).unwrap());
        held.push(door.take(1, 101, 1_001).unwrap());
        assert_eq!(door.evicted(), [16]);
        for number in 0..150 {
            held.extend(door.take(2, 102 + number, 2_000 + u32::from(number)));
        }
        assert_eq!(door.places.taken(), 256);
        let evicted = door.evicted();
        assert!(evicted.iter().all(|number| *number < 1_000), "{evicted:?}");
    }

    #[test]
    fn holders_that_keep_their_places_are_never_evicted() {
        let door = Door::new(3, 2);
        let first = door.take(0, 1, 1).unwrap();
        let _second = door.places.take(door.start, 1, None).unwrap();
        first.keep();
        let third = door.take(0, 2, 3).unwrap();
        assert!(door.places.is_full_for(&1) && !door.places.is_full_for(&3));
        assert!(door.take(60_000, 1, 4).is_none(), "its own holders keep their places");
        let fourth = door.take(0, 3, 5).unwrap();
        assert_eq!(door.evicted(), [3], "of the fullest network that has one to give");
        fourth.keep();
        assert!(door.take(60_000, 4, 6).is_none(), "all keep their places");
        drop((third, fourth));
        assert!(door.take(0, 4, 7).is_some());
    }

    #[test]
    fn growth_takes_from_fuller_networks_alone() {
        let door = Door::new(10, 8);
        let large = door.take(0, 1, 1).unwrap();
        assert!(large.grow(7));
        assert!(!large.grow(1), "its network's limit");
        let small = door.take(0, 2, 2).unwrap();
        assert!(small.grow(1));
        assert_eq!((door.places.taken(), door.evicted().len()), (10, 0));
        assert!(small.grow(5), "network 1 has more");
        assert_eq!((door.evicted(), door.places.taken()), (vec![1], 7));
        assert!(!large.grow(1), "it was evicted");
        drop(large);
        assert_eq!(door.places.taken(), 7);
        assert!(door.take(0, 3, 3).unwrap().grow(3) && !small.grow(4));
    }
}
