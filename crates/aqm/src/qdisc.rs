//! The traits that carry the whole design: [`Qdisc`] stores and schedules, [`Observer`] is told of
//! every packet that does not leave unchanged.

use core::ops::{Add, Sub};

use crate::packet::Packet;
use crate::service_flow::{Contract, Granted, Side, Waiting};
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
    /// Offers a packet. Whatever is dropped, it or another, goes back through `observer`.
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit;

    /// Asks for the packet to transmit from `now` on.
    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P>;

    /// Packets and bytes that are stored.
    fn backlog(&self) -> Backlog;

    /// Counters since creation; each only grows.
    fn stats(&self) -> Stats;

    /// Internal state worth plotting, by dotted name with its unit: `pie.probability`,
    /// `codel.count`, `docsis-pie.delay_ns`.
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}

    /// The service flows of a queue that waits for grants of its own for each of them; `None`: the
    /// link takes what comes.
    fn service_flows(&mut self) -> Option<&mut dyn ServiceFlows<P>> {
        None
    }
}

/// The fate of the packet that was offered. Victims among the stored ones go to the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The packet is in the queue.
    Queued,
    /// The packet was dropped, and the observer has it.
    Refused,
}

/// The answer of a queue that is asked for a packet.
#[derive(Debug)]
#[must_use]
pub enum Dequeue<P> {
    /// Transmit this one.
    Packet(Packet<P>),
    /// The queue is empty.
    Empty,
    /// The queue shapes: something is stored, and may leave at this instant. Asking earlier is
    /// harmless.
    NotBefore(Time),
}

/// Packets and bytes that a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets stored.
    pub packets: u32,
    /// Bytes of these packets, as the link charges them.
    pub bytes: u64,
}

impl Add for Backlog {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
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

    /// What is left behind a packet of `len` bytes that leaves.
    #[must_use]
    pub const fn without(mut self, len: u32) -> Self {
        self.remove(len);
        self
    }

    /// Whether nothing is stored.
    pub const fn is_empty(self) -> bool {
        self.packets == 0
    }
}

/// Packets and bytes counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the link charges them.
    pub bytes: u64,
}

impl Add for Count {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl Sub for Count {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { packets: self.packets - other.packets, bytes: self.bytes - other.bytes }
    }
}

impl Count {
    /// Counts a packet of `len` bytes.
    pub const fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// Counters of a queue since its creation. `offered = sent + dropped + backlog`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Everything that was offered.
    pub offered: Count,
    /// Everything that left by dequeue.
    pub sent: Count,
    /// Everything dropped while enqueuing.
    pub dropped_enqueue: Count,
    /// Everything dropped while dequeuing.
    pub dropped_dequeue: Count,
    /// Packets whose field was changed from ECT to CE.
    pub marked: u64,
}

/// The counters of a discipline made of several queues.
impl Add for Stats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            sent: self.sent + other.sent,
            dropped_enqueue: self.dropped_enqueue + other.dropped_enqueue,
            dropped_dequeue: self.dropped_dequeue + other.dropped_dequeue,
            marked: self.marked + other.marked,
        }
    }
}

impl Stats {
    /// These counters with `sent` worked out from the law above, for a queue that holds `backlog`
    /// and spares itself the counting.
    #[must_use]
    pub(crate) fn with_sent(mut self, backlog: Backlog) -> Self {
        let held = Count { packets: u64::from(backlog.packets), bytes: backlog.bytes };
        self.sent = self.offered - self.dropped_enqueue - self.dropped_dequeue - held;
        self
    }
}

/// Told of every packet that does not leave unchanged; takes dropped packets back, so that
/// buffers recycle and nothing disappears silently.
pub trait Observer<P> {
    /// `packet` was dropped and is the observer's now.
    fn dropped(&mut self, now: Time, packet: Packet<P>, reason: DropReason);

    /// A packet was changed from ECT to CE.
    fn marked(&mut self, _now: Time, _packet: &Packet<P>, _reason: MarkReason) {}

    /// Queue protection sends `packet`, not yet changed in any way, to the classic queue.
    /// `score`: how long the score of its flow takes to drain, this packet's part in it.
    fn sanctioned(&mut self, _now: Time, _packet: &Packet<P>, _score: Span) {}

    /// A packet leaves the queue of `side`, and its sojourn falls into that bin of the histogram
    /// that the queue is to keep; see [`LatencyEdges`](crate::latency_bins::LatencyEdges).
    fn binned(&mut self, _side: Side, _bin: usize) {}

    /// Rule number `rule` of a link changed `packet`, from 0; see [`remark`](crate::remark).
    fn remarked(&mut self, _now: Time, _packet: &Packet<P>, _rule: usize) {}

    /// A link transmits `packet` from `start` to `end`; its sojourn is `start - meta.arrived`.
    fn transmitted(&mut self, _start: Time, _end: Time, _packet: &Packet<P>) {}
}

/// A queue whose packets wait in two service flows for grants.
pub trait ServiceFlows<P> {
    /// Returns the parameters of the aggregate, which never change.
    fn contract(&self) -> Contract;

    /// Returns the backlog of each service flow, by [`Side`].
    fn waiting(&self) -> [Waiting; 2];

    /// Takes the next packet of `side` for a grant at `now`.
    fn serve(&mut self, now: Time, side: Side, observer: &mut dyn Observer<P>)
    -> Option<Packet<P>>;

    /// Stores the cumulative grants of each flow, by [`Side`], which the queue reports among its
    /// gauges. Proactive grants that pass while nothing waits are counted when the next packet
    /// arrives.
    fn note_grants(&mut self, granted: [Granted; 2]);
}

/// An observer that drops what it is given.
impl<P> Observer<P> for () {
    fn dropped(&mut self, _now: Time, _packet: Packet<P>, _reason: DropReason) {}
}

/// An enum of reasons with one list of them: a reason that is added here has its name, and its
/// place in every array of `ALL.len()` counters.
macro_rules! reasons {
    ($(#[$about:meta])* $Reasons:ident { $($(#[$doc:meta])* $Reason:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Reasons {
            $($(#[$doc])* $Reason,)*
        }

        impl $Reasons {
            /// Every reason, in the order of declaration: `ALL[reason as usize]` is `reason`.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Reason),*];

            /// The name in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Why a packet was dropped.
    DropReason {
        /// The queue was full when it arrived.
        Overlimit = "overlimit",
        /// It was at the head when an arrival overfilled the queue.
        OverlimitHead = "overlimit-head",
        /// It was at the head of the fattest flow when an arrival overfilled the queue.
        OverlimitFattest = "overlimit-fattest",
        /// It alone is larger than the queue or the link can ever take.
        Oversize = "oversize",
        /// An AQM chose it on arrival (RED, PIE).
        Early = "early",
        /// An AQM's control law chose it at the head (CoDel).
        ControlLaw = "control-law",
        /// It waited longer than the delay bound (BoDe).
        Bound = "bound",
        /// The link lost it after transmission.
        Loss = "loss",
    }
}

impl DropReason {
    /// Whether the drop happened in an `enqueue` call (the victim may have been stored before).
    pub const fn at_enqueue(self) -> bool {
        !matches!(self, Self::ControlLaw | Self::Bound | Self::Loss)
    }
}

reasons! {
    /// Why a packet was marked.
    MarkReason {
        /// An AQM would have dropped it on arrival.
        Early = "early",
        /// An AQM's control law would have dropped it at the head.
        ControlLaw = "control-law",
        /// It waited longer than the CE threshold.
        Threshold = "threshold",
        /// The link marked it at random after transmission.
        Link = "link",
    }
}
