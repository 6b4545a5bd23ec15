//! Watchers of packets, for packet records and captures.
//!
//! Without a watcher (`trial::run_attended`) each point of the path costs one branch that is never
//! taken.

use std::cell::RefCell;
use std::rc::Rc;

use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{DropReason, MarkReason};
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use super::Segment;

/// Events of a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An endpoint sent the packet.
    Sent,
    /// The packet reached a queue, which has not admitted it yet.
    Arrival,
    /// The queue changed the packet's ECN field to CE.
    Mark(MarkReason),
    /// The queue or the link dropped it.
    Drop(DropReason),
    /// The packet's transmission on a link started and lasts until `end`.
    Departure { end: Time },
    /// The packet reached the far end of the link.
    Delivery,
    /// The other endpoint received it.
    Received,
}

/// An event of a packet at one point of the path. The sightings of one link are in order of time,
/// and so are those of the endpoints.
#[derive(Debug)]
pub struct Sighting<'a> {
    pub time: Time,
    pub direction: Direction,
    /// Position of the link in the direction's chain; `None` at an endpoint.
    pub hop: Option<usize>,
    pub event: Event,
    pub packet: &'a Packet<Segment>,
    /// Bytes at the IP layer, without the overhead that the link charges.
    pub len: u32,
}

pub trait Watcher {
    /// Called for each event, as it happens in virtual time.
    fn see(&mut self, sighting: &Sighting<'_>);
}

pub type SharedWatcher = Rc<RefCell<dyn Watcher>>;

#[derive(Clone)]
pub(crate) struct Post {
    watcher: SharedWatcher,
    direction: Direction,
    hop: usize,
    overhead_bytes: u32,
    /// Whether packets arrive here from an endpoint.
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
        if self.is_entry {
            report(&self.watcher, now, self.direction, Event::Sent, packet);
        }
        self.see(now, Event::Arrival, packet);
    }

    /// Reports an event of a packet at this link.
    pub(super) fn see(&self, time: Time, event: Event, packet: &Packet<Segment>) {
        // The link has already subtracted its overhead from a packet that is lost behind it.
        let overhead_bytes = match event {
            Event::Arrival | Event::Delivery | Event::Drop(DropReason::Loss) => 0,
            _ => self.overhead_bytes,
        };
        let (direction, hop) = (self.direction, Some(self.hop));
        let len = packet.meta.len - overhead_bytes;
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
