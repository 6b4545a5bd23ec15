//! A tin: its flows, their order (DRR++), and the size of their turns.
//!
//! A flow is *sparse* while it sends less than a turn, and *bulk* once it has used up a turn and
//! has more to send. An empty flow remains, *decaying*, until COBALT has forgotten it. Sparse flows
//! go before bulk ones, and at most one decaying flow is visited per packet.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::cobalt::{Blue, Cobalt, Law};
use super::config::Isolation;
use super::rotation::{Lists, Seat, rotate};
use super::shaper::Pace;
use super::tins::Share;
use super::ways::{QUEUES, Shares, home, places};
use crate::packet::Meta;
use crate::queue::store::fair::slab::Chain;
use crate::rng::Rng;
use crate::time::{Span, Time};

/// The lists of a tin.
const FRESH: usize = QUEUES;
const DECAYING: usize = QUEUES + 1;

/// A class of traffic.
#[derive(Debug)]
pub(super) struct Tin {
    pub flows: Vec<Flow>,
    /// The hash of the current or last flow of each queue.
    tags: Vec<u32>,
    shares: Shares,
    isolation: Isolation,
    lists: Lists,
    old: VecDeque<Seat>,
    pub law: Law,
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
    /// Bytes that the flow may still send in its first turn. Later ones are counted in the ring.
    deficit: i32,
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

impl Tin {
    /// Returns an empty tin with this share of the rate (bytes per second; zero if the queue does
    /// not shape).
    pub fn new(share: Share, law: Law, isolation: Isolation) -> Self {
        let flow = || Flow {
            cobalt: Cobalt::default(),
            chain: Chain::EMPTY,
            deficit: 0,
            state: State::Idle,
        };
        Self {
            flows: (0..QUEUES).map(|_| flow()).collect(),
            tags: vec![0; QUEUES],
            shares: Shares::new(quantum_bytes(share.rate), isolation),
            isolation,
            lists: Lists::new(DECAYING + 1),
            old: VecDeque::with_capacity(QUEUES),
            law,
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
    pub fn flow_of(&mut self, meta: &Meta) -> usize {
        if self.isolation == Isolation::None {
            return 0;
        }
        let hash = self.isolation.hash(meta);
        let direct = home(hash);
        if self.tags[direct] == hash && self.flows[direct].state != State::Idle {
            return direct;
        }
        self.allot(hash, meta)
    }

    /// Returns a queue for a flow that is not in its home queue: the queue that it already has,
    /// else an idle one, else its home, which it then shares.
    #[cold]
    fn allot(&mut self, hash: u32, meta: &Meta) -> usize {
        let own = places(hash).find(|&place| self.tags[place] == hash);
        let idle = |place: &usize| self.flows[*place].state == State::Idle;
        let place = own.or_else(|| places(hash).find(idle));
        let index = place.unwrap_or(home(hash));
        self.tags[index] = hash;
        if own.is_none() || self.flows[index].state == State::Idle {
            self.assign_hosts(index, meta);
        }
        index
    }

    /// Assigns the packet's hosts to a queue, and moves its count of bulk flows to them.
    fn assign_hosts(&mut self, index: usize, meta: &Meta) {
        let is_bulk = self.flows[index].state == State::Bulk;
        if is_bulk {
            self.shares.leave(index);
        }
        self.shares.assign(index, meta);
        if is_bulk {
            self.shares.enter(index);
        }
    }

    /// Called when a packet was stored in a queue, which is then in a list.
    #[inline]
    pub fn wake(&mut self, index: usize, rng: &mut Rng) {
        match self.flows[index].state {
            State::Sparse | State::Bulk => {}
            State::SparseWaiting => self.become_bulk(index),
            state @ (State::Idle | State::Decaying) => {
                if state == State::Decaying {
                    self.lists.remove(index);
                }
                self.lists.push(FRESH, index);
                self.flows[index].state = State::Sparse;
                self.sparse_flows += 1;
                self.flows[index].deficit = self.shares.turn_bytes(index, rng);
            }
        }
    }

    fn become_bulk(&mut self, index: usize) {
        self.flows[index].state = State::Bulk;
        self.sparse_flows -= 1;
        self.bulk_flows += 1;
        self.shares.enter(index);
    }

    /// Returns the flow that may send: a decaying one if `may_decay`, else the first with a positive
    /// deficit. Flows before it have used up their turns, and move behind all others.
    #[inline]
    pub fn next_flow(&mut self, may_decay: bool, rng: &mut Rng) -> Option<usize> {
        if may_decay && let Some(decaying) = self.lists.first(DECAYING) {
            return Some(decaying);
        }
        while let Some(index) = self.lists.first(FRESH) {
            if self.flows[index].deficit > 0 {
                return Some(index);
            }
            self.lists.remove(index);
            if self.flows[index].chain.packets() > 0 {
                self.become_bulk(index);
            } else {
                self.flows[index].state = State::SparseWaiting;
            }
            let deficit = self.flows[index].deficit + self.shares.turn_bytes(index, rng);
            self.old.push_back(Seat { queue: index as u16, deficit });
        }
        rotate(&mut self.old, &self.shares, rng)
    }

    /// Ends the turn of a flow that has no packet.
    pub fn retire(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let blue = flow.cobalt.on_empty(now, &self.law);
        let is_at_rest = flow.cobalt.is_at_rest(now);
        self.count_blue(blue);
        let flow = &self.flows[index];
        match flow.state {
            State::Bulk => {
                self.bulk_flows -= 1;
                self.shares.leave(index);
            }
            State::Sparse | State::SparseWaiting => self.sparse_flows -= 1,
            State::Idle | State::Decaying => {}
        }
        if matches!(flow.state, State::Bulk | State::SparseWaiting) {
            self.old.pop_front();
        } else {
            self.lists.remove(index);
        }
        if is_at_rest {
            self.flows[index].state = State::Idle;
        } else {
            self.flows[index].state = State::Decaying;
            self.lists.push(DECAYING, index);
        }
    }

    pub const fn count_blue(&mut self, blue: Blue) {
        match blue {
            Blue::Woke => self.unresponsive_flows += 1,
            Blue::Slept => self.unresponsive_flows -= 1,
            Blue::Same => {}
        }
    }

    /// Charges the flow that may send, and the tin, for `charged` bytes.
    #[inline]
    pub fn charge(&mut self, index: usize, charged: u32) {
        let flow = &mut self.flows[index];
        let deficit = match self.old.front_mut() {
            Some(seat) if flow.state != State::Sparse => &mut seat.deficit,
            _ => &mut flow.deficit,
        };
        *deficit = deficit.saturating_sub_unsigned(charged);
        self.schedule.deficit -= i64::from(charged);
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
