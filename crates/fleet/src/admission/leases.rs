//! The leases that are held, found by their numbers and by when they end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use underload_aqm::time::Time;

use super::{Held, LeaseId};

/// A place for a lease, used again and again.
#[derive(Debug)]
struct Place {
    /// Counts the leases that were here: an old number finds nothing.
    generation: u32,
    held: Option<Held>,
}

/// No tree is walked for a lease: two are made for every run of a country.
#[derive(Debug, Default)]
pub(super) struct Leases {
    places: Vec<Place>,
    free: Vec<u32>,
    /// What was given back stays until its time is over.
    expiries: BinaryHeap<Reverse<(Time, LeaseId)>>,
}

impl Leases {
    pub fn add(&mut self, held: Held, expires: Time) -> LeaseId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, held: None });
            self.places.len() as u32 - 1
        });
        let Place { generation, held: empty } = &mut self.places[place as usize];
        *empty = Some(held);
        let id = LeaseId(u64::from(*generation) << 32 | u64::from(place));
        self.expiries.push(Reverse((expires, id)));
        id
    }

    pub fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let (generation, number) = ((id.0 >> 32) as u32, id.0 as u32);
        let place = self.places.get_mut(number as usize)?;
        if place.generation != generation {
            return None;
        }
        let held = place.held.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(number);
        Some(held)
    }

    /// A lease whose time is over at `now`.
    pub fn remove_expired(&mut self, now: Time) -> Option<Held> {
        while let Some(Reverse((expires, id))) = self.expiries.peek().copied() {
            if expires > now {
                return None;
            }
            self.expiries.pop();
            if let Some(held) = self.remove(id) {
                return Some(held);
            }
        }
        None
    }

    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
