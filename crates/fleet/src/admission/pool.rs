//! Room on the servers.

use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

use super::Refusal;

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

/// Of one run, bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    pub up: u64,
    pub down: u64,
}

#[derive(Debug)]
struct Server {
    reserved: ServerUse,
    /// When it was heard of last; `None`: never.
    heard: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    servers: Vec<Server>,
}

/// So many servers are tried for a run: a line is told no more of them.
pub(super) const TRIED_MAX: u32 = 4;

impl Server {
    fn is_alive(&self, since: Time) -> bool {
        self.heard.is_some_and(|heard| heard >= since)
    }

    fn has_room(&self, rates: Rates) -> bool {
        let ServerUse { capacity_bit_per_s, up_bit_per_s, down_bit_per_s } = self.reserved;
        let fits = |used: u64, more: u64| more <= capacity_bit_per_s.saturating_sub(used);
        fits(up_bit_per_s, rates.up) && fits(down_bit_per_s, rates.down)
    }

    /// The fuller direction, of 2^32.
    fn fullness(&self) -> u64 {
        let used = self.reserved.up_bit_per_s.max(self.reserved.down_bit_per_s);
        let capacity = u128::from(self.reserved.capacity_bit_per_s.max(1));
        ((u128::from(used) << 32) / capacity) as u64
    }
}

impl Pool {
    pub fn add(&mut self, capacity_bit_per_s: u64) -> ServerId {
        let reserved = ServerUse { capacity_bit_per_s, up_bit_per_s: 0, down_bit_per_s: 0 };
        self.servers.push(Server { reserved, heard: None });
        ServerId(self.servers.len() as u32 - 1)
    }

    pub fn heartbeat(&mut self, now: Time, server: ServerId) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.heard = Some(now);
        }
    }

    /// Takes room on the emptiest of a few servers that are drawn at random. Choosing among a few
    /// spreads almost as well as knowing all of them (Mitzenmacher 2001), and keeps lines that ask
    /// at once from all being sent to the same one.
    pub fn take(&mut self, rates: Rates, since: Time, rng: &mut Rng) -> Result<ServerId, Refusal> {
        let most = self.servers.iter().map(|server| server.reserved.capacity_bit_per_s).max();
        let Some(most) = most else { return Err(Refusal::NoServer) };
        if rates.up.max(rates.down) > most {
            return Err(Refusal::TooLarge);
        }
        let chosen = self.choose(rates, since, rng);
        let Some(place) = chosen else {
            let is_any_alive = self.servers.iter().any(|server| server.is_alive(since));
            return Err(if is_any_alive { Refusal::ServersFull } else { Refusal::NoServer });
        };
        let reserved = &mut self.servers[place].reserved;
        reserved.up_bit_per_s += rates.up;
        reserved.down_bit_per_s += rates.down;
        Ok(ServerId(place as u32))
    }

    fn choose(&self, rates: Rates, since: Time, rng: &mut Rng) -> Option<usize> {
        let count = self.servers.len() as u32;
        let fits = |place: &usize| {
            self.servers[*place].is_alive(since) && self.servers[*place].has_room(rates)
        };
        let emptiest = |places: &mut dyn Iterator<Item = usize>| {
            places.filter(fits).min_by_key(|place| self.servers[*place].fullness())
        };
        if count <= TRIED_MAX {
            return emptiest(&mut (0..count as usize));
        }
        emptiest(&mut (0..TRIED_MAX).map(|_| rng.below(count) as usize))
    }

    pub fn give_back(&mut self, server: ServerId, rates: Rates) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.reserved.up_bit_per_s -= rates.up;
            server.reserved.down_bit_per_s -= rates.down;
        }
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerUse> {
        self.servers.iter().map(|server| server.reserved)
    }
}
