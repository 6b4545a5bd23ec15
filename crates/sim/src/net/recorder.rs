//! What a hop did to its packets.

use underload_aqm::link::tally::{Curves, Tally};
use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};

use super::Segment;
use super::watch::Post;

/// Counts what leaves a hop and what does not, and shows it to whoever watches.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) tally: Tally,
    pub(crate) curves: Curves,
    /// The watcher of this hop's packets, if there is one.
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
            post.dropped(now, &packet, reason);
        }
        self.tally.dropped(&packet.meta, reason);
    }

    fn marked(&mut self, now: Time, packet: &Packet<Segment>, reason: MarkReason) {
        if let Some(post) = &self.post {
            post.marked(now, packet, reason);
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
            post.departed(start, end, packet);
        }
        self.tally.transmitted(start, end, &packet.meta);
    }
}
