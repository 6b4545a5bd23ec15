//! Whether a run may begin, and where: the decision that simulated and real runs share.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::{Refusal, Rules};

/// Towards a server and from it, bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Towards it.
    pub up: u64,
    /// From it.
    pub down: u64,
}

impl Rates {
    fn fit(self, within: Self) -> bool {
        self.up <= within.up && self.down <= within.down
    }
}

/// A server and what is reserved of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What there is.
    pub capacity: Rates,
    /// What of it is reserved.
    pub reserved: Rates,
    /// When it was heard of last; `None`: never.
    pub heard: Option<Time>,
}

impl Room {
    /// Whether it was heard of within that time. What was heard later than now was heard by
    /// another clock: a little, of another orchestrator; more, before this one was set back.
    pub fn is_alive(&self, now: Time, timeout: Span) -> bool {
        self.heard.is_some_and(|heard| heard >= now - timeout && heard <= now + timeout)
    }

    fn has_room(&self, rates: Rates) -> bool {
        let Self { capacity, reserved, .. } = self;
        rates.fit(Rates {
            up: capacity.up.saturating_sub(reserved.up),
            down: capacity.down.saturating_sub(reserved.down),
        })
    }

    /// The fuller direction, of 2^32.
    fn fullness(&self) -> u64 {
        let of = |used: u64, all: u64| (u128::from(used) << 32) / u128::from(all.max(1));
        let up = of(self.reserved.up, self.capacity.up);
        u64::try_from(up.max(of(self.reserved.down, self.capacity.down))).unwrap_or(u64::MAX)
    }

    /// Reserves what [`Rules::decide`] found room for.
    pub fn reserve(&mut self, rates: Rates) {
        self.reserved.up = self.reserved.up.saturating_add(rates.up);
        self.reserved.down = self.reserved.down.saturating_add(rates.down);
    }

    /// Gives back what was reserved.
    pub fn give_back(&mut self, rates: Rates) {
        debug_assert!(rates.fit(self.reserved), "{rates:?} of {:?}", self.reserved);
        self.reserved.up = self.reserved.up.saturating_sub(rates.up);
        self.reserved.down = self.reserved.down.saturating_sub(rates.down);
    }
}

/// What is known of a run that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The most that it sends and takes at once.
    pub rates: Rates,
    /// Its line holds a lease.
    pub has_lease: bool,
    /// Lines of its segment that are being loaded; `None` where it loads no segment.
    pub loaded_in_segment: Option<u32>,
}

/// So many servers are tried for a run: a line is told no more of them.
pub(crate) const TRIED_MAX: usize = 4;
/// So often a server is drawn to find [`TRIED_MAX`] that are alive.
const DRAWS_MAX: usize = 16;

/// Servers with room for a run, by their places, the emptiest first; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    places: [usize; TRIED_MAX],
    count: usize,
}

impl Choice {
    /// The one to run at.
    pub fn first(&self) -> usize {
        self.places[0]
    }

    /// All of them.
    pub fn places(&self) -> &[usize] {
        &self.places[..self.count]
    }
}

impl Rules {
    /// Whether a run may begin now, and at which of these servers. Nothing is reserved yet.
    ///
    /// # Errors
    /// What there is none of: the line is asked about first, then its segment, then the servers.
    pub fn decide(
        &self,
        now: Time,
        asked: &Asked,
        servers: &[Room],
        rng: &mut Rng,
    ) -> Result<Choice, Refusal> {
        if asked.has_lease {
            return Err(Refusal::LineBusy);
        }
        let limit = self.loaded_per_segment;
        let is_over = |loaded: u32| limit.is_some_and(|most| loaded >= most);
        if asked.loaded_in_segment.is_some_and(is_over) {
            return Err(Refusal::SegmentBusy);
        }
        if servers.is_empty() {
            return Err(Refusal::NoServer);
        }
        if !servers.iter().any(|server| asked.rates.fit(server.capacity)) {
            return Err(Refusal::TooLarge);
        }
        self.choose(now, asked.rates, servers, rng).ok_or_else(|| {
            let mut alive = servers.iter().filter(|it| it.is_alive(now, self.heartbeat_timeout));
            if alive.next().is_some() { Refusal::ServersFull } else { Refusal::NoServer }
        })
    }

    /// Those with room of a few servers that are drawn at random. Choosing among a few spreads
    /// almost as well as knowing all of them (Mitzenmacher 2001), and keeps lines that ask at once
    /// from all being sent to the same one.
    fn choose(&self, now: Time, rates: Rates, servers: &[Room], rng: &mut Rng) -> Option<Choice> {
        let mut drawn = Choice { places: [0; TRIED_MAX], count: 0 };
        let mut alive = 0;
        let mut look = |place: usize| {
            let server = &servers[place];
            if server.is_alive(now, self.heartbeat_timeout) {
                alive += 1;
                if server.has_room(rates) && !drawn.places().contains(&place) {
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
        // Stable: of two that are equally full the one that was drawn first.
        drawn.places[..drawn.count].sort_by_key(|place| servers[*place].fullness());
        (drawn.count > 0).then_some(drawn)
    }
}
