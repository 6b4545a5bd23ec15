//! A tin: its flows, their order (DRR++), and the size of their turns.
//!
//! A flow is *sparse* while it sends less than a turn, and *bulk* once it has used up a turn and
//! has more to send. An empty flow remains, *decaying*, until COBALT has forgotten it. Sparse flows
//! go before bulk ones, and at most one decaying flow is visited per packet.

use alloc::vec;
use alloc::vec::Vec;

use super::cobalt::{Blue, Cobalt, Law};
use super::config::Isolation;
use super::rotation::{Linked, Links, Rotation};
use super::shaper::Pace;
use super::tins::Share;
use super::ways::{Hosts, QUEUES, home, places};
use crate::packet::Meta;
use crate::queue::store::fair::slab::Chain;
use crate::rng::Rng;
use crate::time::{Span, Time};

/// A class of traffic.
#[derive(Debug)]
pub(super) struct Tin {
    pub flows: Vec<Flow>,
    /// The hash of the current or last flow of each queue.
    tags: Vec<u32>,
    sources: Hosts,
    destinations: Hosts,
    fresh: Rotation,
    old: Rotation,
    decaying: Rotation,
    pub law: Law,
    /// Bytes of a turn, before they are divided among the flows of a host.
    quantum: u32,
    pub bulk_flows: u32,
    pub sparse_flows: u32,
    /// Flows whose BLUE drops packets.
    pub unresponsive_flows: u32,
    pub packets: u32,
    pub schedule: Schedule,
}

/// When a tin may send.
#[derive(Debug)]
pub(super) struct Schedule {
    /// With a shaper: when the tin is within its rate again.
    pub next: Time,
    pace: Pace,
    /// Without a shaper: bytes that the tin may still send in this round.
    pub deficit: i64,
    pub weight: u32,
}

/// A flow's queue, as large as a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    pub cobalt: Cobalt,
    pub chain: Chain,
    links: Links,
    /// Bytes that the flow may still send in this turn.
    deficit: i32,
    source: u16,
    destination: u16,
    state: State,
}

const _: () = assert!(size_of::<Flow>() == 64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// In the list of new flows.
    Sparse,
    /// Became empty in its first turn: in the list of old flows, but counted as sparse.
    SparseWaiting,
    /// In the list of old flows.
    Bulk,
    /// Empty, and still remembered.
    Decaying,
}

impl Linked for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Tin {
    /// Returns an empty tin with this share of the rate (bytes per second; zero if the queue does
    /// not shape).
    pub fn new(share: Share, law: Law) -> Self {
        let flow = || Flow {
            cobalt: Cobalt::default(),
            chain: Chain::EMPTY,
            links: Links::LOOSE,
            deficit: 0,
            source: 0,
            destination: 0,
            state: State::Idle,
        };
        Self {
            flows: (0..QUEUES).map(|_| flow()).collect(),
            tags: vec![0; QUEUES],
            sources: Hosts::new(),
            destinations: Hosts::new(),
            fresh: Rotation::EMPTY,
            old: Rotation::EMPTY,
            decaying: Rotation::EMPTY,
            law,
            quantum: quantum_bytes(share.rate),
            bulk_flows: 0,
            sparse_flows: 0,
            unresponsive_flows: 0,
            packets: 0,
            schedule: Schedule {
                next: Time::ZERO,
                pace: Pace::new(share.rate),
                deficit: 0,
                weight: share.weight,
            },
        }
    }

    /// Whether the tin stores a packet.
    #[inline]
    pub const fn is_active(&self) -> bool {
        self.sparse_flows + self.bulk_flows > 0
    }

    #[inline]
    pub fn flow_of(&mut self, meta: &Meta, isolation: Isolation) -> usize {
        if isolation == Isolation::None {
            return 0;
        }
        let hash = isolation.hash(meta);
        let direct = home(hash);
        if self.tags[direct] == hash && self.flows[direct].state != State::Idle {
            return direct;
        }
        self.allot(hash, meta, isolation)
    }

    /// Returns a queue for a flow that is not in its home queue: the queue that it already has,
    /// else an idle one, else its home, which it then shares.
    #[cold]
    fn allot(&mut self, hash: u32, meta: &Meta, isolation: Isolation) -> usize {
        let own = places(hash).find(|&place| self.tags[place] == hash);
        let idle = |place: &usize| self.flows[*place].state == State::Idle;
        let place = own.or_else(|| places(hash).find(idle));
        let index = place.unwrap_or(home(hash));
        self.tags[index] = hash;
        if own.is_none() || self.flows[index].state == State::Idle {
            self.assign_hosts(index, meta, isolation);
        }
        index
    }

    /// Assigns the packet's hosts to a queue, and moves its count of bulk flows to them.
    fn assign_hosts(&mut self, index: usize, meta: &Meta, isolation: Isolation) {
        let is_bulk = self.flows[index].state == State::Bulk;
        if is_bulk {
            self.count_bulk(index, isolation, Hosts::leave);
        }
        if isolation.shares_by_source() {
            self.flows[index].source = self.sources.place(meta.src);
        }
        if isolation.shares_by_destination() {
            self.flows[index].destination = self.destinations.place(meta.dst);
        }
        if is_bulk {
            self.count_bulk(index, isolation, Hosts::enter);
        }
    }

    /// Changes the numbers of bulk flows of a flow's hosts by `change`.
    fn count_bulk(&mut self, index: usize, isolation: Isolation, change: fn(&mut Hosts, u16)) {
        let flow = &self.flows[index];
        if isolation.shares_by_source() {
            change(&mut self.sources, flow.source);
        }
        if isolation.shares_by_destination() {
            change(&mut self.destinations, flow.destination);
        }
    }

    /// Returns the bytes of a flow's next turn: the quantum divided by the bulk flows of the busier
    /// of its hosts. A random number below a byte compensates the rounding in the long run. Hosts
    /// that get no equal shares count no flows.
    #[inline]
    fn turn_bytes(&self, index: usize, rng: &mut Rng) -> i32 {
        let flow = &self.flows[index];
        let part_q16 =
            self.sources.part_q16(flow.source).min(self.destinations.part_q16(flow.destination));
        let dither_q16 = rng.next_u32() >> 16;
        ((self.quantum * u32::from(part_q16) + dither_q16) >> 16) as i32
    }

    /// Called when a packet was stored in a queue, which is then in a list.
    #[inline]
    pub fn wake(&mut self, index: usize, isolation: Isolation, rng: &mut Rng) {
        match self.flows[index].state {
            State::Sparse | State::Bulk => {}
            State::SparseWaiting => self.become_bulk(index, isolation),
            state @ (State::Idle | State::Decaying) => {
                if state == State::Decaying {
                    self.decaying.remove(index, &mut self.flows);
                }
                self.fresh.push(index, &mut self.flows);
                self.flows[index].state = State::Sparse;
                self.sparse_flows += 1;
                self.flows[index].deficit = self.turn_bytes(index, rng);
            }
        }
    }

    fn become_bulk(&mut self, index: usize, isolation: Isolation) {
        self.flows[index].state = State::Bulk;
        self.sparse_flows -= 1;
        self.bulk_flows += 1;
        self.count_bulk(index, isolation, Hosts::enter);
    }

    /// Returns the flow whose turn it is; a decaying one only if `may_decay`, or if all decay.
    #[inline]
    pub fn next_flow(&self, may_decay: bool) -> Option<usize> {
        let decaying = self.decaying.first();
        let first = if may_decay { decaying } else { None };
        first.or(self.fresh.first()).or(self.old.first()).or(decaying)
    }

    /// Moves a flow that used up its turn behind all others. Returns `false` if it has not.
    #[inline]
    pub fn turn_over(&mut self, index: usize, isolation: Isolation, rng: &mut Rng) -> bool {
        if self.flows[index].deficit > 0 {
            return false;
        }
        self.list_of(index).remove(index);
        if self.flows[index].state == State::Sparse {
            if self.flows[index].chain.packets() > 0 {
                self.become_bulk(index, isolation);
            } else {
                self.flows[index].state = State::SparseWaiting;
            }
        }
        let turn_bytes = self.turn_bytes(index, rng);
        let flow = &mut self.flows[index];
        flow.deficit = flow.deficit.saturating_add(turn_bytes);
        self.old.push(index, &mut self.flows);
        true
    }

    /// Ends the turn of a flow that has no packet.
    pub fn retire(&mut self, now: Time, index: usize, isolation: Isolation) {
        let flow = &mut self.flows[index];
        let blue = flow.cobalt.on_empty(now, &self.law);
        let is_at_rest = flow.cobalt.is_at_rest(now);
        self.count_blue(blue);
        self.list_of(index).remove(index);
        match self.flows[index].state {
            State::Bulk => {
                self.bulk_flows -= 1;
                self.count_bulk(index, isolation, Hosts::leave);
            }
            State::Sparse | State::SparseWaiting => self.sparse_flows -= 1,
            State::Idle | State::Decaying => {}
        }
        if is_at_rest {
            self.flows[index].state = State::Idle;
        } else {
            self.flows[index].state = State::Decaying;
            self.decaying.push(index, &mut self.flows);
        }
    }

    pub const fn count_blue(&mut self, blue: Blue) {
        match blue {
            Blue::Woke => self.unresponsive_flows += 1,
            Blue::Slept => self.unresponsive_flows -= 1,
            Blue::Same => {}
        }
    }

    /// Charges a flow and its tin for `charged` bytes.
    #[inline]
    pub fn charge(&mut self, index: usize, charged: u32) {
        let flow = &mut self.flows[index];
        flow.deficit = flow.deficit.saturating_sub_unsigned(charged);
        self.schedule.deficit -= i64::from(charged);
    }

    fn list_of(&mut self, index: usize) -> ListOf<'_> {
        let list = match self.flows[index].state {
            State::Sparse => &mut self.fresh,
            State::SparseWaiting | State::Bulk => &mut self.old,
            State::Idle | State::Decaying => &mut self.decaying,
        };
        ListOf { list, flows: &mut self.flows }
    }
}

struct ListOf<'a> {
    list: &'a mut Rotation,
    flows: &'a mut [Flow],
}

impl ListOf<'_> {
    fn remove(self, index: usize) {
        self.list.remove(index, self.flows);
    }
}

impl Schedule {
    /// Called when a packet arrives in an empty tin: idle time earns no credit.
    pub fn wake(&mut self, now: Time) {
        self.next = self.next.max(now);
    }

    /// Advances by a packet of `charged` bytes that leaves at `now`. A late tin catches up; an
    /// early tin is delayed by no more than this packet.
    #[inline]
    pub fn advance(&mut self, now: Time, charged: u32) {
        let span = self.pace.time_for(charged);
        if self.next < now {
            self.next += span;
        } else {
            self.next = self.next.max(now + span);
        }
    }
}

/// Returns the bytes that a flow may send per turn: what the link sends in 1/4096 s, at least 300
/// and at most 1514.
fn quantum_bytes(bytes_per_second: u64) -> u32 {
    match bytes_per_second {
        0 => 1_514,
        rate => (rate >> 12).clamp(300, 1_514) as u32,
    }
}

/// Returns the control law of a tin, whose target is at least the time of one and a half largest
/// packets at the tin's rate.
pub(super) fn law_of(bytes_per_second: u64, mtu_bytes: u32, target: Span, rtt: Span) -> Law {
    let mtu_time = match bytes_per_second {
        0 => Span::ZERO,
        rate => Pace::new(rate).time_for(mtu_bytes),
    };
    let own = Span::from_nanos(mtu_time.as_nanos() * 3 / 2).max(target);
    let interval = (rtt + own.saturating_sub(target)).max(own * 2);
    Law { target: own, interval, mtu_time }
}
