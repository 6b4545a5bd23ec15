//! Leases by number and by expiry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use underload_aqm::time::Time;

use super::{LeaseId, Reservation};

/// A slot for a lease, which is reused.
#[derive(Debug)]
struct Slot {
    /// Number of leases that ended in this slot, so that the number of an earlier lease matches no
    /// lease.
    generation: u32,
    reservation: Option<Reservation>,
}

/// Slots instead of a tree, because two leases are looked up for every run of a country.
#[derive(Debug, Default)]
pub(super) struct Leases {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// An entry of a lease that was released stays until it expires.
    expiries: BinaryHeap<Reverse<(Time, LeaseId)>>,
}

impl Leases {
    pub fn add(&mut self, reservation: Reservation, expires: Time) -> LeaseId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, reservation: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        slot.reservation = Some(reservation);
        let id = LeaseId(u64::from(slot.generation) << 32 | u64::from(number));
        self.expiries.push(Reverse((expires, id)));
        id
    }

    pub fn remove(&mut self, id: LeaseId) -> Option<Reservation> {
        let (generation, number) = ((id.0 >> 32) as u32, id.0 as u32);
        let slot = self.slots.get_mut(number as usize)?;
        if slot.generation != generation {
            return None;
        }
        let reservation = slot.reservation.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
        Some(reservation)
    }

    /// Removes a lease that has expired at `now`, until none is left.
    pub fn remove_expired(&mut self, now: Time) -> Option<Reservation> {
        while let Some(Reverse((expires, id))) = self.expiries.peek().copied() {
            if expires > now {
                return None;
            }
            self.expiries.pop();
            if let Some(reservation) = self.remove(id) {
                return Some(reservation);
            }
        }
        None
    }

    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
