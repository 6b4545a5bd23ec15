//! A cable modem's separate queue for TCP acknowledgements, beside any discipline.
//!
//! The Buffer Control guideline (CM-GL-Buffer-V01, 5.2.1) says that many modems "accelerate
//! TCP-ACKs by queuing them separately from bulk upstream data", by means of their own that nobody
//! has published. Here acknowledgements are first in, first out, and leave before everything else. On
//! an upstream with requests and grants an acknowledgement overtakes once its own grant has begun:
//! before that it would use the grant of another packet, and a steady stream of acknowledgements would
//! stop all other packets, at any rate. No acknowledgement is dropped in favour of a later one.

use crate::link::grants::RequestGrant;
use crate::packet::Packet;
use crate::qdisc::{Admit, Backlog, BoxedQdisc, Dequeue, DropReason, Observer, Qdisc, Stats};
use crate::queue::store::{Limit, Ring};
use crate::time::Time;

/// A queue that stores TCP acknowledgements apart from other packets, and sends them first.
pub(crate) struct AcksApart<P> {
    acks: Ring<P>,
    limit: Limit,
    requests: Option<RequestGrant>,
    others: BoxedQdisc<P>,
}

impl<P> AcksApart<P> {
    /// Returns a queue of acknowledgements with `limit`, and `others` for all other packets, on an
    /// upstream with `requests`, if any.
    pub(crate) fn new(limit: Limit, requests: Option<RequestGrant>, others: BoxedQdisc<P>) -> Self {
        Self { acks: Ring::default(), limit, requests, others }
    }

    /// Whether the first acknowledgement, if any, may overtake at `now`.
    fn overtakes(&self, now: Time) -> bool {
        let Some(requests) = self.requests else { return true };
        self.acks.head().is_some_and(|head| requests.latest_grant(head.arrived) <= now)
    }
}

impl<P> Qdisc<P> for AcksApart<P> {
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        let len = packet.meta.len;
        if !packet.meta.is_pure_ack {
            return self.others.enqueue(now, packet, observer);
        }
        self.acks.offer(len);
        if !self.limit.admits(self.acks.backlog(), len) {
            self.acks.drop_enqueue(now, packet, DropReason::Overlimit, observer);
            return Admit::Refused;
        }
        self.acks.push(now, packet);
        Admit::Queued
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        if !self.overtakes(now) {
            let other = self.others.dequeue(now, observer);
            if matches!(other, Dequeue::Packet(_)) {
                return other;
            }
        }
        match self.acks.pop() {
            Some(ack) => Dequeue::Packet(ack),
            None => self.others.dequeue(now, observer),
        }
    }

    fn backlog(&self) -> Backlog {
        self.acks.backlog() + self.others.backlog()
    }

    fn stats(&self) -> Stats {
        self.acks.stats() + self.others.stats()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.others.gauges(visit);
    }
}
