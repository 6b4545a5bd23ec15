//! The traits of the design: [`Qdisc`] stores and schedules, [`Observer`] receives every packet
//! that does not leave unchanged.

use alloc::boxed::Box;
use core::ops::{Add, Sub};

use crate::packet::Packet;
use crate::service_flow::{Contract, Side, Waiting};
use crate::time::{Span, Time};

/// A queue discipline: stores packets and chooses which leaves next.
///
/// # Contract
/// * `now` never goes backwards on one instance (debug-asserted where cheap).
/// * Internal updates that fell due are replayed at their nominal instants first, so that a late
///   caller and a punctual caller reach the same state, and extra calls change nothing.
/// * There is no `peek`: an AQM cannot look without deciding.
/// * No allocation once warm.
pub trait Qdisc<P> {
    /// Offers a packet. Dropped packets, the offered one or stored ones, go to `observer`.
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit;

    /// Takes the packet to transmit from `now` on.
    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P>;

    /// Returns the packets and bytes that are stored.
    fn backlog(&self) -> Backlog;

    /// Returns the counters since creation; each only grows.
    fn stats(&self) -> Stats;

    /// Reports internal state worth plotting, by dotted name with its unit: `pie.probability`,
    /// `codel.count`, `docsis-pie.delay_ns`.
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}

    /// Returns the bytes of the packet that `dequeue` takes next unless it drops packets; `None` if
    /// the queue is empty or does not know.
    fn head_bytes(&self) -> Option<u32> {
        None
    }

    /// Returns start and end of the transmission of the packet that `dequeue` returned last, for a
    /// queue that has the rates of its link's users.
    fn on_air(&self) -> Option<(Time, Time)> {
        None
    }

    /// Returns the service flows of a queue whose flows wait for separate grants; `None` for a
    /// queue that is one flow.
    fn service_flows(&mut self) -> Option<&mut dyn ServiceFlows<P>> {
        None
    }
}

/// A queue discipline that may move to another thread.
pub type BoxedQdisc<P> = Box<dyn Qdisc<P> + Send>;

/// The fate of an offered packet. Dropped stored packets go to the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The packet is stored.
    Queued,
    /// The packet was dropped, and passed to the observer.
    Refused,
}

/// The answer of a queue that is asked for the next packet to transmit.
#[derive(Debug)]
#[must_use]
pub enum Dequeue<P> {
    /// The packet to transmit.
    Packet(Packet<P>),
    /// No packet is stored.
    Empty,
    /// The queue limits its rate: a stored packet may leave at this time. Calling earlier is
    /// harmless.
    NotBefore(Time),
}

/// The packets and bytes in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets of any size.
    pub packets: u32,
    /// Bytes as the link charges them.
    pub bytes: u64,
}

impl Backlog {
    /// Counts a packet of `len` bytes in.
    pub const fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// Counts a packet of `len` bytes out.
    pub const fn remove(&mut self, len: u32) {
        self.packets -= 1;
        self.bytes -= len as u64;
    }

    /// Returns the backlog behind a packet of `len` bytes that leaves.
    #[must_use]
    pub const fn without(mut self, len: u32) -> Self {
        self.remove(len);
        self
    }

    /// Whether the queue is empty.
    pub const fn is_empty(self) -> bool {
        self.packets == 0
    }
}

/// A number of packets and of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets of any size.
    pub packets: u64,
    /// Bytes as the link charges them.
    pub bytes: u64,
}

impl Count {
    /// Counts a packet of `len` bytes.
    pub const fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// Counters of a queue since its creation. Always `offered = sent + dropped + backlog`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that `enqueue` was called for.
    pub offered: Count,
    /// Packets that left by dequeue.
    pub sent: Count,
    /// Packets that were dropped on an arrival: the arrival, or stored ones in its favour.
    pub dropped_enqueue: Count,
    /// Packets that were dropped by a dequeue.
    pub dropped_dequeue: Count,
    /// Packets changed from ECT to CE.
    pub marked: u64,
    /// Packets that arrived while the AQM slept, and so passed it: RFC 8034's `INACTIVE` (appendix A).
    pub slept: u64,
}

/// Implements `+` and `-` for each field.
macro_rules! fieldwise {
    ($($Type:ident: $Operator:ident::$method:ident { $($field:ident),+ };)+) => {$(
        impl $Operator for $Type {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self { $($field: $Operator::$method(self.$field, other.$field)),+ }
            }
        }
    )+};
}

fieldwise! {
    Backlog: Add::add { packets, bytes };
    Count: Add::add { packets, bytes };
    Count: Sub::sub { packets, bytes };
    Stats: Add::add { offered, sent, dropped_enqueue, dropped_dequeue, marked, slept };
}

impl Stats {
    /// Computes `sent` from the other counters, for a queue that does not count it.
    #[must_use]
    pub(crate) fn with_sent(mut self, backlog: Backlog) -> Self {
        let held = Count { packets: u64::from(backlog.packets), bytes: backlog.bytes };
        self.sent = self.offered - self.dropped_enqueue - self.dropped_dequeue - held;
        self
    }
}

/// Receives every packet that does not leave unchanged. Dropped packets are moved to it, so that
/// buffers are recycled and no packet disappears silently.
pub trait Observer<P> {
    /// Called for every packet that was dropped.
    fn dropped(&mut self, now: Time, packet: Packet<P>, reason: DropReason);

    /// Called for a packet that was changed from ECT to CE.
    fn marked(&mut self, _now: Time, _packet: &Packet<P>, _reason: MarkReason) {}

    /// Called for an unchanged packet that queue protection moves to the classic queue. `score` is
    /// the time in which the score of its flow drains, including this packet's part.
    fn sanctioned(&mut self, _now: Time, _packet: &Packet<P>, _score: Span) {}

    /// Called for a packet that leaves the queue of `side` with a sojourn in bin `bin` of its
    /// histogram; see [`LatencyEdges`](crate::latency_bins::LatencyEdges).
    fn binned(&mut self, _side: Side, _bin: usize) {}

    /// Called for a packet that rule `rule` of a link, from 0, changed; see
    /// [`remark`](crate::remark).
    fn remarked(&mut self, _now: Time, _packet: &Packet<P>, _rule: usize) {}

    /// Called for a packet that a link transmits from `start` to `end`; its sojourn is `start -
    /// meta.arrived`.
    fn transmitted(&mut self, _start: Time, _end: Time, _packet: &Packet<P>) {}
}

/// A queue whose packets wait in two service flows for grants.
pub trait ServiceFlows<P> {
    /// Returns the parameters of the aggregate, which never change.
    fn contract(&self) -> Contract;

    /// Returns the backlog of each service flow, by [`Side`].
    fn waiting(&self) -> [Waiting; 2];

    /// Takes the next packet of `side` for a grant at `now`.
    fn serve(&mut self, now: Time, side: Side, observer: &mut dyn Observer<P>) -> Dequeue<P>;
}

impl<P> Observer<P> for () {
    fn dropped(&mut self, _now: Time, _packet: Packet<P>, _reason: DropReason) {}
}

crate::named! {
    /// Why a packet was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DropReason {
        /// The queue was full when the packet arrived.
        Overlimit = "overlimit",
        /// The packet was at the head when an arrival overfilled the queue.
        OverlimitHead = "overlimit-head",
        /// The packet was at the head of the fattest flow when an arrival overfilled the queue.
        OverlimitFattest = "overlimit-fattest",
        /// The packet alone is larger than the queue or the link can ever accept.
        Oversize = "oversize",
        /// An AQM chose the packet on arrival (RED, PIE).
        Early = "early",
        /// An AQM's control law chose the packet at the head (CoDel).
        ControlLaw = "control-law",
        /// The packet waited longer than the delay bound (BoDe).
        Bound = "bound",
        /// The link lost the packet after transmission.
        Loss = "loss",
    }
}

impl DropReason {
    /// Whether the drop happened in an `enqueue` call (the victim may have been stored before).
    pub const fn at_enqueue(self) -> bool {
        !matches!(self, Self::ControlLaw | Self::Bound | Self::Loss)
    }
}

crate::named! {
    /// Why a packet was marked.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum MarkReason {
        /// An AQM would have dropped the packet on arrival.
        Early = "early",
        /// An AQM's control law would have dropped the packet at the head.
        ControlLaw = "control-law",
        /// The packet waited longer than the CE threshold.
        Threshold = "threshold",
        /// The link marked the packet at random after transmission.
        Link = "link",
    }
}
