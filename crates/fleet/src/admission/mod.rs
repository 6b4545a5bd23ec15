//! Who may run now.
//!
//! A run takes three things at once: its line, the segment of the access network that the line
//! shares, and room on a server in each direction. It gets all of them or none, in one step, so
//! that two requests cannot both take the last. What it gets is a lease that ends by itself: a
//! line that vanishes in the middle of a run frees what it held without anybody's help. Whatever
//! is not known to be free is refused.

mod decide;
mod leases;
mod pool;

use serde::{Deserialize, Serialize};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use decide::{Asked, Choice, Rates, Room};
use leases::Leases;
use pool::Pool;
pub use pool::{ServerId, ServerUse};

/// A line, by the number that it was enrolled under. Numbers are given one after the other: memory
/// is taken for all below the largest that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineId(pub u32);

/// A segment of the access network; numbered as lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// A lease, unique for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// What a line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The line.
    pub line: LineId,
    /// Its segment.
    pub segment: SegmentId,
    /// Whether the run fills the line, and with it a part of the segment.
    pub is_loaded: bool,
    /// The most that it sends to the server at once, bit/s.
    pub up_bit_per_s: u64,
    /// The most that it takes from the server at once, bit/s.
    pub down_bit_per_s: u64,
    /// How long it takes.
    pub lasts: Span,
}

/// What a line got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// To give it back by.
    pub id: LeaseId,
    /// The server that has room for it.
    pub server: ServerId,
    /// From then on nothing is reserved for it any more.
    pub expires: Time,
}

/// Why a line may not run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It holds a lease already.
    LineBusy,
    /// Another line of its segment is being loaded.
    SegmentBusy,
    /// No server of those that were tried has room.
    ServersFull,
    /// No server is known to be alive.
    NoServer,
    /// No server could ever have room for it: it need not ask again.
    TooLarge,
    /// The plan's lines share segments, and nobody said which one this is in.
    SegmentUnknown,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 6] = [
        Self::LineBusy,
        Self::SegmentBusy,
        Self::ServersFull,
        Self::NoServer,
        Self::TooLarge,
        Self::SegmentUnknown,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::LineBusy => "line busy",
            Self::SegmentBusy => "segment busy",
            Self::ServersFull => "servers full",
            Self::NoServer => "no server alive",
            Self::TooLarge => "larger than any server",
            Self::SegmentUnknown => "segment unknown",
        }
    }
}

/// Why a run that was due did not begin when it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The home sent or received itself.
    HomeBusy,
    /// It was not admitted.
    Refused(Refusal),
}

impl Reason {
    /// Asking again would not help.
    pub fn is_final(self) -> bool {
        self == Self::Refused(Refusal::TooLarge)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::HomeBusy => "home busy",
            Self::Refused(refusal) => refusal.words(),
        }
    }
}

/// What holds for all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Lines of a segment that may be loaded at once; `None` for any number.
    pub loaded_per_segment: Option<u32>,
    /// A lease lasts as long as its run and this.
    pub lease_grace: Span,
    /// A server that was not heard of for so long has no room.
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

/// What is reserved.
#[derive(Debug)]
pub struct Admission {
    rules: Rules,
    pool: Pool,
    leases: Leases,
    /// A bit for each line with a lease.
    lines: Vec<u64>,
    /// Lines being loaded in each segment.
    segments: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    line: LineId,
    /// Of a run that loads its line.
    segment: Option<SegmentId>,
    server: ServerId,
    rates: Rates,
}

/// The element of that number, with what was missing below it.
fn grown<T: Default + Clone>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

impl Admission {
    /// Nothing is reserved, and no server known.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            pool: Pool::default(),
            leases: Leases::default(),
            lines: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// Adds a server that takes and sends so much, bit/s. It has room from its first heartbeat on.
    pub fn add_server(&mut self, capacity_bit_per_s: u64) -> ServerId {
        self.pool.add(capacity_bit_per_s)
    }

    /// A server is alive. One that is not known changes nothing.
    pub fn heartbeat(&mut self, now: Time, server: ServerId) {
        self.pool.heartbeat(now, server);
    }

    /// Reserves all that a run takes, or nothing.
    ///
    /// # Errors
    /// What there is none of.
    pub fn reserve(
        &mut self,
        now: Time,
        request: &Request,
        rng: &mut Rng,
    ) -> Result<Lease, Refusal> {
        self.expire(now);
        let segment = request.is_loaded.then_some(request.segment);
        let rates = Rates { up: request.up_bit_per_s, down: request.down_bit_per_s };
        let asked = Asked {
            rates,
            has_lease: self.is_running(request.line),
            loaded_in_segment: segment.map(|segment| self.loaded_in(segment)),
        };
        let choice = self.rules.decide(now, &asked, self.pool.rooms(), rng)?;
        let server = self.pool.take(choice.first(), rates);
        let expires = now + request.lasts + self.rules.lease_grace;
        let id = self.leases.add(Held { line: request.line, segment, server, rates }, expires);
        let (word, bit) = word_and_bit(request.line);
        *grown(&mut self.lines, word) |= bit;
        if let Some(segment) = segment {
            *grown(&mut self.segments, segment.0 as usize) += 1;
        }
        Ok(Lease { id, server, expires })
    }

    /// A run is over. False where the lease has ended before, or never was.
    pub fn release(&mut self, id: LeaseId) -> bool {
        let held = self.leases.remove(id);
        if let Some(held) = held {
            self.free(&held);
        }
        held.is_some()
    }

    /// Ends the leases whose time is over; every reservation does so first.
    pub fn expire(&mut self, now: Time) {
        while let Some(held) = self.leases.remove_expired(now) {
            self.free(&held);
        }
    }

    fn free(&mut self, held: &Held) {
        let (word, bit) = word_and_bit(held.line);
        *grown(&mut self.lines, word) &= !bit;
        self.pool.give_back(held.server, held.rates);
        if let Some(segment) = held.segment {
            *grown(&mut self.segments, segment.0 as usize) -= 1;
        }
    }

    fn is_running(&self, line: LineId) -> bool {
        let (word, bit) = word_and_bit(line);
        self.lines.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Lines of a segment that are being loaded.
    pub fn loaded_in(&self, segment: SegmentId) -> u32 {
        self.segments.get(segment.0 as usize).copied().unwrap_or(0)
    }

    /// Leases that are held.
    pub fn leases(&self) -> usize {
        self.leases.count()
    }

    /// What is reserved of every server.
    pub fn servers(&self) -> impl Iterator<Item = ServerUse> {
        self.pool.servers()
    }
}

/// Where the bit of a line is.
fn word_and_bit(line: LineId) -> (usize, u64) {
    (line.0 as usize / 64, 1 << (line.0 % 64))
}

#[cfg(test)]
mod tests;
