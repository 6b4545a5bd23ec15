//! The counters and series of a hop.

use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};
use underload_record::tally::{Curves, Tally};

use super::Segment;
use super::watch::{Event, Post};

/// Counts the packets of a hop, and reports them to the watcher.
pub(crate) struct Recorder {
    pub(crate) tally: Tally,
    pub(crate) curves: Curves,
    /// The watcher of this hop's packets.
    pub(super) post: Option<Post>,
}

impl Recorder {
    /// `varying`: the link's rate is not constant.
    pub(crate) fn new(varying: bool) -> Self {
        Self { tally: Tally::new(Time::ZERO, varying), curves: Curves::default(), post: None }
    }
}

impl Observer<Segment> for Recorder {
    fn dropped(&mut self, now: Time, packet: Packet<Segment>, reason: DropReason) {
        if let Some(post) = &self.post {
            post.see(now, Event::Drop(reason), &packet);
        }
        self.tally.dropped(&packet.meta, reason);
    }

    fn marked(&mut self, now: Time, packet: &Packet<Segment>, reason: MarkReason) {
        if let Some(post) = &self.post {
            post.see(now, Event::Mark(reason), packet);
        }
        self.tally.marked(reason);
    }

    fn sanctioned(&mut self, now: Time, packet: &Packet<Segment>, score: Span) {
        self.tally.sanctioned(now, u32::from(packet.payload.flow), score);
    }

    fn binned(&mut self, side: Side, bin: usize) {
        self.tally.binned(side, bin);
    }

    fn remarked(&mut self, _now: Time, _packet: &Packet<Segment>, rule: usize) {
        self.tally.remarked(rule);
    }

    #[inline]
    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<Segment>) {
        if let Some(post) = &self.post {
            post.see(start, Event::Departure { end }, packet);
        }
        self.tally.transmitted(start, end, &packet.meta);
    }
}
