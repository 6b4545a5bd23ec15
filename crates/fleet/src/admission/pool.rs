//! Room on the servers.

use underload_aqm::time::Time;

use super::{Rates, Room};

/// A server, by its place among those that were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// What is reserved of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUse {
    /// What it takes and what it sends at most, bit/s.
    pub capacity_bit_per_s: u64,
    /// Reserved of what it takes, bit/s.
    pub up_bit_per_s: u64,
    /// Reserved of what it sends, bit/s.
    pub down_bit_per_s: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    servers: Vec<Room>,
}

impl Pool {
    pub fn add(&mut self, capacity_bit_per_s: u64) -> ServerId {
        let capacity = Rates { up: capacity_bit_per_s, down: capacity_bit_per_s };
        self.servers.push(Room { capacity, reserved: Rates::default(), heard: None });
        ServerId(self.servers.len() as u32 - 1)
    }

    pub fn heartbeat(&mut self, now: Time, server: ServerId) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.heard = Some(now);
        }
    }

    pub fn rooms(&self) -> &[Room] {
        &self.servers
    }

    pub fn take(&mut self, place: usize, rates: Rates) -> ServerId {
        self.servers[place].reserve(rates);
        ServerId(place as u32)
    }

    pub fn give_back(&mut self, server: ServerId, rates: Rates) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.give_back(rates);
        }
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerUse> {
        self.servers.iter().map(|server| ServerUse {
            capacity_bit_per_s: server.capacity.up,
            up_bit_per_s: server.reserved.up,
            down_bit_per_s: server.reserved.down,
        })
    }
}
