//! Admission: who may run now.
//!
//! A run needs three things at once: its line, the segment of the access network that the line
//! shares, and capacity of a server in each direction. It gets all of them or none, in one step, so
//! that two requests cannot both take the last. A granted run gets a lease that expires: a line
//! that vanishes during a run frees its reservations without help. Capacity counts as used unless
//! it is known to be free.

mod decide;
mod leases;

use serde::{Deserialize, Serialize};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use decide::{Choice, Demand, Rates, ServerLoad};
use leases::Leases;

/// Number of a line. Lines are numbered consecutively: memory is allocated for all numbers below
/// the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineId(pub u32);

/// Number of a segment of the access network, consecutive like those of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// Number of a server, in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// Unique number of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// A request for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub line: LineId,
    pub segment: SegmentId,
    /// Whether the run fills the line, and with it part of the segment.
    pub is_loaded: bool,
    /// Highest rate towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Highest rate from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Longest duration of the run.
    pub lasts: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub server: ServerId,
    /// When the reservations end.
    pub expires: Time,
}

underload_aqm::named! {
    /// Why a line may not run now.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Refusal {
        /// The line already has a lease.
        LineBusy = "line busy",
        /// Another line of the segment is being loaded.
        SegmentBusy = "segment busy",
        /// The servers that were tried have not enough free capacity.
        ServersFull = "servers full",
        /// No server is known to be alive.
        NoServer = "no server alive",
        /// No server has enough capacity, so that no retry can succeed.
        TooLarge = "larger than any server",
        /// The plan's lines share segments, and the segment of this line is unknown.
        SegmentUnknown = "segment unknown",
    }
}

/// Why a due run could not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The home used its line.
    HomeBusy,
    /// The run was not admitted.
    Refused(Refusal),
}

impl Reason {
    /// Whether no retry can succeed.
    pub fn is_final(self) -> bool {
        self == Self::Refused(Refusal::TooLarge)
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::HomeBusy => "home busy",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

/// Rules for all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Lines of a segment that may be loaded at once; `None` for any number.
    pub loaded_per_segment: Option<u32>,
    /// Time between the end of a run and the expiry of its lease.
    pub lease_grace: Span,
    /// A server without a heartbeat for this long is not used.
    pub heartbeat_timeout: Span,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            loaded_per_segment: Some(1),
            lease_grace: Span::from_secs(15),
            heartbeat_timeout: Span::from_secs(30),
        }
    }
}

/// Leases and reservations of a fleet.
#[derive(Debug, Default)]
pub struct Admission {
    rules: Rules,
    servers: Vec<ServerLoad>,
    leases: Leases,
    /// A bit for each line with a lease.
    lines: Vec<u64>,
    /// Lines being loaded in each segment.
    segments: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Reservation {
    line: LineId,
    /// `None` for a run that does not load its line.
    segment: Option<SegmentId>,
    server: ServerId,
    rates: Rates,
}

/// Returns an element; extends the list up to it.
fn grown<T: Default + Clone>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

impl Admission {
    /// An admission without servers and leases.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Adds a server with this capacity in each direction. It is used from its first heartbeat on.
    pub fn add_server(&mut self, capacity_bit_per_s: u64) -> ServerId {
        let capacity = Rates { up: capacity_bit_per_s, down: capacity_bit_per_s };
        self.servers.push(ServerLoad { capacity, reserved: Rates::default(), heard: None });
        ServerId(self.servers.len() as u32 - 1)
    }

    /// Records a heartbeat. Unknown servers are ignored.
    pub fn heartbeat(&mut self, now: Time, server: ServerId) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.heard = Some(now);
        }
    }

    /// Reserves everything that a run needs.
    ///
    /// # Errors
    /// Returns why the run is refused; nothing is reserved then.
    pub fn reserve(&mut self, now: Time, asked: &Request, rng: &mut Rng) -> Result<Lease, Refusal> {
        self.expire(now);
        let segment = asked.is_loaded.then_some(asked.segment);
        let rates = Rates { up: asked.up_bit_per_s, down: asked.down_bit_per_s };
        let demand = Demand {
            rates,
            has_lease: self.is_running(asked.line),
            loaded_in_segment: segment.map(|segment| self.loaded_in(segment)),
        };
        let choice = self.rules.decide(now, &demand, &self.servers, rng)?;
        self.servers[choice.first()].reserve(rates);
        let server = ServerId(choice.first() as u32);
        let expires = now + asked.lasts + self.rules.lease_grace;
        let reservation = Reservation { line: asked.line, segment, server, rates };
        let id = self.leases.add(reservation, expires);
        let (word, bit) = word_and_bit(asked.line);
        *grown(&mut self.lines, word) |= bit;
        if let Some(segment) = segment {
            *grown(&mut self.segments, segment.0 as usize) += 1;
        }
        Ok(Lease { id, server, expires })
    }

    /// Ends a lease. Returns false if it does not exist any more.
    pub fn release(&mut self, id: LeaseId) -> bool {
        let reservation = self.leases.remove(id);
        if let Some(reservation) = reservation {
            self.free(&reservation);
        }
        reservation.is_some()
    }

    /// Ends the leases that have expired; every reservation does so first.
    pub fn expire(&mut self, now: Time) {
        while let Some(reservation) = self.leases.remove_expired(now) {
            self.free(&reservation);
        }
    }

    fn free(&mut self, reservation: &Reservation) {
        let (word, bit) = word_and_bit(reservation.line);
        *grown(&mut self.lines, word) &= !bit;
        self.servers[reservation.server.0 as usize].release(reservation.rates);
        if let Some(segment) = reservation.segment {
            *grown(&mut self.segments, segment.0 as usize) -= 1;
        }
    }

    fn is_running(&self, line: LineId) -> bool {
        let (word, bit) = word_and_bit(line);
        self.lines.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Number of lines of a segment that are being loaded.
    pub fn loaded_in(&self, segment: SegmentId) -> u32 {
        self.segments.get(segment.0 as usize).copied().unwrap_or(0)
    }

    pub fn leases(&self) -> usize {
        self.leases.count()
    }

    /// Returns the capacity and reservations of every server, in the order of their numbers.
    pub fn servers(&self) -> &[ServerLoad] {
        &self.servers
    }
}

/// Index of the word, and mask, of a line's bit.
fn word_and_bit(line: LineId) -> (usize, u64) {
    (line.0 as usize / 64, 1 << (line.0 % 64))
}

#[cfg(test)]
mod tests;
