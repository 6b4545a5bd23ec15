//! What a hop did to its packets.

use std::collections::BTreeMap;

use underload_aqm::packet::Packet;
use underload_aqm::qdisc::{Count, DropReason, MarkReason, Observer};
use underload_aqm::time::Time;
use underload_record::schema::PacketCount;

use super::Segment;
use super::histogram::Histogram;
use super::watch::Post;

/// Counts what leaves a hop and what does not.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) sent: Count,
    drops: [Count; DropReason::ALL.len()],
    marks: [u64; MARK_REASONS.len()],
    pub(crate) sojourn: Histogram,
    /// Sojourn and own transmission, where the second is not size over rate.
    pub(crate) queuing_delay: Option<Histogram>,
    /// Largest sojourn since the last sample of the curves.
    pub(crate) sojourn_peak_ns: u64,
    /// Who watches this hop, if anybody does.
    pub(super) post: Option<Post>,
}

const MARK_REASONS: [MarkReason; 3] =
    [MarkReason::Early, MarkReason::ControlLaw, MarkReason::Threshold];

impl Recorder {
    /// `varying`: the link's rate is not constant.
    pub(crate) fn new(varying: bool) -> Self {
        Self {
            sent: Count::default(),
            drops: Default::default(),
            marks: Default::default(),
            sojourn: Histogram::new(),
            queuing_delay: varying.then(Histogram::new),
            sojourn_peak_ns: 0,
            post: None,
        }
    }

    /// Forgets the delays so far: a window begins.
    pub(crate) fn clear_delays(&mut self) {
        self.sojourn.clear();
        self.queuing_delay.as_mut().map(Histogram::clear);
    }

    pub(crate) fn dropped_packets(&self) -> u64 {
        self.drops.iter().map(|count| count.packets).sum()
    }

    pub(crate) fn marked_packets(&self) -> u64 {
        self.marks.iter().sum()
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters { sent: self.sent, drops: self.drops, marks: self.marks }
    }
}

impl Observer<Segment> for Recorder {
    fn dropped(&mut self, now: Time, packet: Packet<Segment>, reason: DropReason) {
        if let Some(post) = &self.post {
            post.dropped(now, &packet, reason);
        }
        self.drops[reason as usize].add(packet.meta.len);
    }

    fn marked(&mut self, now: Time, packet: &Packet<Segment>, reason: MarkReason) {
        if let Some(post) = &self.post {
            post.marked(now, packet, reason);
        }
        self.marks[reason as usize] += 1;
    }

    #[inline]
    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<Segment>) {
        if let Some(post) = &self.post {
            post.departed(start, end, packet);
        }
        let sojourn = start.since(packet.meta.arrived).as_nanos();
        self.sent.add(packet.meta.len);
        self.sojourn.add(sojourn);
        if let Some(queuing_delay) = &mut self.queuing_delay {
            queuing_delay.add(end.since(packet.meta.arrived).as_nanos());
        }
        self.sojourn_peak_ns = self.sojourn_peak_ns.max(sojourn);
    }
}

/// The counters at one instant; the difference of two is a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Count,
    drops: [Count; DropReason::ALL.len()],
    marks: [u64; MARK_REASONS.len()],
}

impl Counters {
    /// Packets dropped since `earlier`, by reason.
    pub(crate) fn drops_since(&self, earlier: &Self) -> BTreeMap<String, PacketCount> {
        DropReason::ALL
            .iter()
            .map(|&reason| {
                let (now, then) = (self.drops[reason as usize], earlier.drops[reason as usize]);
                (reason.name().to_owned(), difference(now, then))
            })
            .filter(|(_, count)| count.packets > 0)
            .collect()
    }

    /// Packets marked since `earlier`, by reason.
    pub(crate) fn marks_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        MARK_REASONS
            .iter()
            .map(|&reason| {
                let marked = self.marks[reason as usize] - earlier.marks[reason as usize];
                (reason.name().to_owned(), marked)
            })
            .filter(|(_, marked)| *marked > 0)
            .collect()
    }
}

/// Packets and bytes counted between two instants.
pub(crate) fn difference(now: Count, then: Count) -> PacketCount {
    PacketCount { packets: now.packets - then.packets, bytes: now.bytes - then.bytes }
}
