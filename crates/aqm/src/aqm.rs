//! The decision alone, without the storage: what CoDel, PIE, RED and BoDe are.
//!
//! The kernel makes the same cut (`codel_impl.h`, `pie_drop_early`): one algorithm then serves a
//! single queue ([`Single`](crate::queue::store::Single)) and each flow of a fair queue alike.

use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::{Backlog, DropReason, MarkReason, Observer};
use crate::time::Time;

/// An active queue management algorithm.
pub trait Aqm {
    /// Judges an arrival. `backlog` is what its queue holds before it.
    fn on_enqueue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
        Verdict::Pass
    }

    /// Takes the packet to transmit out of `store`, dropping and marking on the way as the
    /// algorithm wants. The whole loop is the algorithm's, because several need to drop and look
    /// at the next packet within one decision.
    fn dequeue<P, S: Store<P>>(
        &mut self,
        _now: Time,
        store: &mut S,
        _observer: &mut dyn Observer<P>,
    ) -> Option<Packet<P>> {
        store.pop()
    }

    /// Told that an arrival was refused for lack of room, so that `on_enqueue` never saw it.
    /// `backlog` is what its queue holds.
    fn on_refused(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) {}

    /// Told that packets were taken from the head for lack of room, not by the AQM's own choice.
    fn on_overlimit(&mut self, _now: Time, _packets: u32) {}

    /// Internal state worth plotting; see [`Qdisc::gauges`](crate::qdisc::Qdisc::gauges).
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}
}

/// Decision of an AQM about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it in.
    Pass,
    /// Signal congestion: mark it where it is ECN-capable, else drop it.
    Signal,
    /// Drop it, ECN-capable or not.
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

/// The stored packets of one queue, as its AQM sees them while dequeuing.
pub trait Store<P> {
    /// What stands at the head, without deciding. Packets are large: an algorithm that judges the
    /// head in place and then takes it copies it once.
    fn head(&self) -> Option<&Meta>;

    /// Takes the head.
    fn pop(&mut self) -> Option<Packet<P>>;

    /// Packets and bytes that are stored in this queue.
    fn backlog(&self) -> Backlog;

    /// What the whole discipline holds: more than `backlog` where this is one flow of many.
    fn total_backlog(&self) -> Backlog {
        self.backlog()
    }

    /// Counts `packet` as dropped by the AQM and hands it to `observer`.
    fn drop(
        &mut self,
        now: Time,
        packet: Packet<P>,
        reason: DropReason,
        observer: &mut dyn Observer<P>,
    );

    /// Counts `packet`, already changed to CE, as marked.
    fn marked(
        &mut self,
        now: Time,
        packet: &Packet<P>,
        reason: MarkReason,
        observer: &mut dyn Observer<P>,
    );
}

/// Marks `packet` where it is ECN-capable and says whether it was; the one place that decides.
/// A packet that is CE already stays CE and counts as signalled, not as newly marked.
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

/// Outcome of [`mark_if_capable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    Marked,
    AlreadyCe,
    NotCapable,
}
