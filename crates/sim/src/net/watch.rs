//! Whoever watches packets pass, for records and captures of them.
//!
//! A trial is watched only where somebody asks for it (`trial::run_attended`); elsewhere each place
//! costs one branch that is never taken.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{DropReason, MarkReason};
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use super::Segment;

/// Events of a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An endpoint sent it.
    Sent,
    /// It reached a queue; whether it is admitted shows next.
    Arrival,
    /// The queue changed its ECN field to CE.
    Mark(MarkReason),
    /// The queue or the link dropped it.
    Drop(DropReason),
    /// Its transmission on a link began.
    Departure {
        /// When its transmission ends.
        end: Time,
    },
    /// It reached the far end of the link.
    Delivery,
    /// The other endpoint received it.
    Received,
}

/// A packet at one place and instant. The sightings of one link are in the order of time, and so
/// are those of the endpoints.
#[derive(Debug)]
pub struct Sighting<'a> {
    /// When.
    pub time: Time,
    /// Direction in which the packet travels.
    pub direction: Direction,
    /// Position of the link in the direction's chain; `None` at an endpoint.
    pub hop: Option<usize>,
    /// The event.
    pub event: Event,
    /// The packet as it is then.
    pub packet: &'a Packet<Segment>,
    /// Its bytes at the IP layer, without what the link charges on top.
    pub len: u32,
}

/// Sees packets pass.
pub trait Watcher {
    /// Is told of each, as it happens in virtual time.
    fn see(&mut self, sighting: &Sighting<'_>);
}

/// A watcher that all places of a trial share.
pub type SharedWatcher = Rc<RefCell<dyn Watcher>>;

/// A place that is watched.
#[derive(Clone)]
pub(crate) struct Post {
    watcher: SharedWatcher,
    direction: Direction,
    hop: usize,
    overhead_bytes: u32,
    /// Whether what arrives here comes from an endpoint.
    is_entry: bool,
}

impl Post {
    pub(super) fn new(
        watcher: &SharedWatcher,
        direction: Direction,
        hop: usize,
        overhead_bytes: u32,
    ) -> Self {
        let watcher = Rc::clone(watcher);
        Self { watcher, direction, hop, overhead_bytes, is_entry: hop == 0 }
    }

    pub(super) fn arrived(&self, now: Time, packet: &Packet<Segment>) {
        let len = packet.meta.len;
        if self.is_entry {
            report(&self.watcher, now, self.direction, Event::Sent, packet);
        }
        self.tell(now, Event::Arrival, packet, len);
    }

    pub(super) fn delivered(&self, now: Time, packet: &Packet<Segment>) {
        self.tell(now, Event::Delivery, packet, packet.meta.len);
    }

    pub(super) fn dropped(&self, now: Time, packet: &Packet<Segment>, reason: DropReason) {
        // What is lost behind the link has had the link's overhead taken off again.
        let charged = if reason == DropReason::Loss { 0 } else { self.overhead_bytes };
        self.tell(now, Event::Drop(reason), packet, packet.meta.len - charged);
    }

    pub(super) fn marked(&self, now: Time, packet: &Packet<Segment>, reason: MarkReason) {
        self.tell(now, Event::Mark(reason), packet, packet.meta.len - self.overhead_bytes);
    }

    pub(super) fn departed(&self, start: Time, end: Time, packet: &Packet<Segment>) {
        let len = packet.meta.len - self.overhead_bytes;
        self.tell(start, Event::Departure { end }, packet, len);
    }

    fn tell(&self, time: Time, event: Event, packet: &Packet<Segment>, len: u32) {
        let (direction, hop) = (self.direction, Some(self.hop));
        self.watcher.borrow_mut().see(&Sighting { time, direction, hop, event, packet, len });
    }
}

/// Reports the event of a packet at an endpoint.
pub(super) fn report(
    watcher: &SharedWatcher,
    time: Time,
    direction: Direction,
    event: Event,
    packet: &Packet<Segment>,
) {
    let len = packet.meta.len;
    watcher.borrow_mut().see(&Sighting { time, direction, hop: None, event, packet, len });
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post")
            .field("direction", &self.direction)
            .field("hop", &self.hop)
            .finish_non_exhaustive()
    }
}
