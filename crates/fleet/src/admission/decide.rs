//! Whether a run may begin, and at which server: the decision that simulated and real runs share.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::{Refusal, Rules};

/// Rates in both directions, bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    pub up: u64,
    pub down: u64,
}

impl Rates {
    fn fit(self, within: Self) -> bool {
        self.up <= within.up && self.down <= within.down
    }
}

/// Capacity and reservations of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLoad {
    pub capacity: Rates,
    pub reserved: Rates,
    /// Time of the last heartbeat; `None` before the first.
    pub heard: Option<Time>,
}

impl ServerLoad {
    /// Whether the last heartbeat is at most `timeout` old. A heartbeat after `now` was dated by
    /// another clock: slightly later by another orchestrator's, much later by this one before it
    /// was set back.
    pub fn is_alive(&self, now: Time, timeout: Span) -> bool {
        self.heard.is_some_and(|heard| heard >= now - timeout && heard <= now + timeout)
    }

    fn has_free(&self, rates: Rates) -> bool {
        let Self { capacity, reserved, .. } = self;
        rates.fit(Rates {
            up: capacity.up.saturating_sub(reserved.up),
            down: capacity.down.saturating_sub(reserved.down),
        })
    }

    /// Reserved share of the fuller direction, as a fraction of 2^32.
    fn fullness(&self) -> u64 {
        let share = |used: u64, all: u64| (u128::from(used) << 32) / u128::from(all.max(1));
        let up = share(self.reserved.up, self.capacity.up);
        let down = share(self.reserved.down, self.capacity.down);
        u64::try_from(up.max(down)).unwrap_or(u64::MAX)
    }

    /// Reserves rates that [`Rules::decide`] found free.
    pub fn reserve(&mut self, rates: Rates) {
        self.reserved.up = self.reserved.up.saturating_add(rates.up);
        self.reserved.down = self.reserved.down.saturating_add(rates.down);
    }

    pub fn release(&mut self, rates: Rates) {
        debug_assert!(rates.fit(self.reserved), "{rates:?} of {:?}", self.reserved);
        self.reserved.up = self.reserved.up.saturating_sub(rates.up);
        self.reserved.down = self.reserved.down.saturating_sub(rates.down);
    }
}

/// The properties of a run that its admission depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Highest rates of the run.
    pub rates: Rates,
    /// Whether the line already has a lease.
    pub has_lease: bool,
    /// Lines of the segment that are being loaded; `None` if the run loads no segment.
    pub loaded_in_segment: Option<u32>,
}

/// Maximum number of servers that are tried for a run.
pub(crate) const TRIED_MAX: usize = 4;
/// Maximum number of draws to find [`TRIED_MAX`] servers that are alive.
const DRAWS_MAX: usize = 16;

/// Indices of servers with enough free capacity for a run, the emptiest first; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    places: [usize; TRIED_MAX],
    count: usize,
}

impl Choice {
    pub fn first(&self) -> usize {
        self.places[0]
    }
    pub fn places(&self) -> &[usize] {
        &self.places[..self.count]
    }
}

impl Rules {
    /// Decides whether a run may begin now, and at which of these servers. Reserves nothing.
    ///
    /// # Errors
    /// Returns the first reason: the line is checked before its segment, and servers last.
    pub fn decide(
        &self,
        now: Time,
        demand: &Demand,
        servers: &[ServerLoad],
        rng: &mut Rng,
    ) -> Result<Choice, Refusal> {
        if demand.has_lease {
            return Err(Refusal::LineBusy);
        }
        let limit = self.loaded_per_segment;
        let is_over = |loaded: u32| limit.is_some_and(|most| loaded >= most);
        if demand.loaded_in_segment.is_some_and(is_over) {
            return Err(Refusal::SegmentBusy);
        }
        if servers.is_empty() {
            return Err(Refusal::NoServer);
        }
        if !servers.iter().any(|server| demand.rates.fit(server.capacity)) {
            return Err(Refusal::TooLarge);
        }
        self.choose(now, demand.rates, servers, rng).ok_or_else(|| {
            let mut alive = servers.iter().filter(|it| it.is_alive(now, self.heartbeat_timeout));
            if alive.next().is_some() { Refusal::ServersFull } else { Refusal::NoServer }
        })
    }

    /// Draws a few servers at random and returns those with enough free capacity. Choosing among a
    /// few spreads almost as well as choosing among all (Mitzenmacher 2001), and keeps simultaneous
    /// requests from choosing the same server.
    fn choose(
        &self,
        now: Time,
        rates: Rates,
        servers: &[ServerLoad],
        rng: &mut Rng,
    ) -> Option<Choice> {
        let mut drawn = Choice { places: [0; TRIED_MAX], count: 0 };
        let mut alive = 0;
        let mut look = |place: usize| {
            let server = &servers[place];
            if server.is_alive(now, self.heartbeat_timeout) {
                alive += 1;
                if server.has_free(rates) && !drawn.places().contains(&place) {
                    drawn.places[drawn.count] = place;
                    drawn.count += 1;
                }
            }
            alive < TRIED_MAX
        };
        if servers.len() <= TRIED_MAX {
            (0..servers.len()).all(&mut look);
        } else {
            (0..DRAWS_MAX).all(|_| look(rng.below(servers.len() as u32) as usize));
        }
        // Stable: of two servers that are equally full, the one drawn first comes first.
        drawn.places[..drawn.count].sort_by_key(|place| servers[*place].fullness());
        (drawn.count > 0).then_some(drawn)
    }
}
