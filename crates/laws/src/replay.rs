//! Sends whole scripts of packets through a link.

use super::{LINK, Subject};
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Dropped {
        /// The packet's index in the script.
        id: u32,
        at: Time,
        reason: DropReason,
    },
    Marked {
        /// The packet's index in the script.
        id: u32,
        at: Time,
        reason: MarkReason,
    },
    Sent {
        /// The packet's index in the script.
        id: u32,
        start: Time,
        end: Time,
        /// The bits of the ECN field.
        ecn: u8,
    },
}

#[derive(Default)]
struct Log(Vec<Event>);

impl Observer<u32> for Log {
    fn dropped(&mut self, at: Time, packet: Packet<u32>, reason: DropReason) {
        self.0.push(Event::Dropped { id: packet.payload, at, reason });
    }

    fn marked(&mut self, at: Time, packet: &Packet<u32>, reason: MarkReason) {
        self.0.push(Event::Marked { id: packet.payload, at, reason });
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<u32>) {
        let ecn = packet.meta.ecn.bits();
        self.0.push(Event::Sent { id: packet.payload, start, end, ecn });
    }
}

/// When a link is polled in addition to the polls that its contract requires.
pub enum Polls {
    /// Once, long after the last packet.
    Late,
    /// At the times that the link announces.
    WhenDue,
    /// Polls at every multiple of this time.
    Every(Span),
    /// After random gaps of up to 1 ms.
    Random(Rng),
}

impl Polls {
    fn next_gap(&mut self) -> Option<Span> {
        match self {
            Self::Late | Self::WhenDue => None,
            Self::Every(span) => Some(*span),
            Self::Random(rng) => Some(Span::from_nanos(u64::from(rng.below(1_000_000)))),
        }
    }
}

/// Sends `script` through `subject` in front of a 10 Mbit/s link. Returns the fates in order.
pub fn replay(subject: &Subject, script: &[(Time, Meta)], mut polls: Polls) -> Vec<Event> {
    let rng = Rng::new(11);
    let link = LinkSetup::parse(LINK).expect("a link");
    let mut link = link.build(subject.build(11), &rng);
    let mut log = Log::default();
    let mut next_poll = script[0].0;
    for (id, &(arrival, meta)) in script.iter().enumerate() {
        if let Polls::WhenDue = polls {
            while let Some(due) = link.next_event().filter(|due| *due < arrival) {
                while link.poll(due, &mut log).is_some() {}
            }
        }
        while next_poll < arrival
            && let Some(gap) = polls.next_gap()
        {
            while link.poll(next_poll, &mut log).is_some() {}
            next_poll += gap;
        }
        link.send(arrival, Packet { meta, payload: id as u32 }, &mut log);
    }
    let end = script[script.len() - 1].0 + Span::from_secs(60);
    while link.poll(end, &mut log).is_some() {}
    assert!(link.queue().backlog().is_empty(), "{}: not drained in a minute", subject.name());
    log.0
}
