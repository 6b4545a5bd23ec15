//! Active queue management without the storage of packets: the interface of CoDel, PIE, RED and
//! BoDe.
//!
//! The kernel makes the same cut (`codel_impl.h`, `pie_drop_early`): one algorithm then serves a
//! single queue ([`Single`](crate::queue::store::Single)) and each flow of a fair queue alike.

use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::{Backlog, DropReason, MarkReason};
use crate::time::Time;

/// An active queue management algorithm.
pub trait Aqm {
    /// Judges an arrival. `backlog` is the backlog of its queue without the arrival.
    fn on_enqueue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
        Verdict::Pass
    }

    /// Removes the packet to transmit from `store`; drops and marks on the way. The loop belongs to
    /// the algorithm: several drop a packet and judge the next one in one decision.
    fn dequeue<P>(&mut self, _now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        store.pop()
    }

    /// Called instead of `on_enqueue` for an arrival beyond a limit. `backlog` is that of the
    /// arrival's queue.
    fn on_refused(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) {}

    /// Called after packets were dropped from the head because a limit was exceeded.
    fn on_overlimit(&mut self, _now: Time, _packets: u32) {}

    /// Returns the number of packets that passed while the AQM was asleep.
    fn slept(&self) -> u64 {
        0
    }

    /// Reports internal state worth plotting; see [`Qdisc::gauges`](crate::qdisc::Qdisc::gauges).
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}
}

/// Decision of an AQM about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let the packet in.
    Pass,
    /// Mark the packet if it is ECN-capable, else drop it.
    Signal,
    /// Drop the packet, ECN-capable or not.
    Drop,
}

impl Verdict {
    /// Returns [`Pass`](Self::Pass) unless the AQM `signals` congestion; then
    /// [`Signal`](Self::Signal) if it uses ECN (`ecn`), else [`Drop`](Self::Drop).
    #[inline]
    pub const fn new(signals: bool, ecn: bool) -> Self {
        match (signals, ecn) {
            (false, _) => Self::Pass,
            (true, true) => Self::Signal,
            (true, false) => Self::Drop,
        }
    }
}

/// The packets of one queue while its AQM dequeues.
pub trait Store<P> {
    /// Returns the head. Judging it in place saves a copy of a packet, which is large.
    fn head(&self) -> Option<&Meta>;

    /// Removes the head; `None` if the queue is empty.
    fn pop(&mut self) -> Option<Packet<P>>;

    /// Returns the packets and bytes of this queue.
    fn backlog(&self) -> Backlog;

    /// Returns the backlog of the whole discipline, of which this queue may be one flow.
    fn total_backlog(&self) -> Backlog {
        self.backlog()
    }

    /// Drops `packet`: counts it and hands it to the observer.
    fn drop(&mut self, packet: Packet<P>, reason: DropReason);

    /// Counts a mark of `packet`, and reports it to the observer.
    fn marked(&mut self, packet: &Packet<P>, reason: MarkReason);
}

/// Marks `packet` and returns it, or drops it if `ecn` is off or it is not ECN-capable.
pub(crate) fn signal<P>(
    ecn: bool,
    mut packet: Packet<P>,
    store: &mut impl Store<P>,
) -> Option<Packet<P>> {
    match if ecn { mark_if_capable(&mut packet.meta) } else { Marking::NotCapable } {
        Marking::NotCapable => {
            store.drop(packet, DropReason::ControlLaw);
            return None;
        }
        Marking::AlreadyCe => {}
        Marking::Marked => store.marked(&packet, MarkReason::ControlLaw),
    }
    Some(packet)
}

/// Marks a packet if it is ECN-capable. One that already has CE is signalled, not marked.
pub(crate) fn mark_if_capable(meta: &mut Meta) -> Marking {
    match meta.ecn {
        Ecn::NotEct => Marking::NotCapable,
        Ecn::Ce => Marking::AlreadyCe,
        Ecn::Ect0 | Ecn::Ect1 => {
            meta.ecn = Ecn::Ce;
            Marking::Marked
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    Marked,
    AlreadyCe,
    NotCapable,
}
