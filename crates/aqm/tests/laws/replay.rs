//! Whole scripts through a link: the same fates for the same seed, and however often the link is
//! polled.

use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::script::{overload, varied};
use crate::subject::{LINK, Subject, subjects};

/// All that happened to packets, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Dropped { id: u32, at: Time, reason: DropReason },
    Marked { id: u32, at: Time, reason: MarkReason },
    Sent { id: u32, start: Time, end: Time, ecn: u8 },
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

/// When a link is polled beside what its contract asks for.
pub enum Polls {
    /// Only once, long after everything.
    Late,
    /// Whenever it says that something is due.
    WhenDue,
    /// At every multiple of this.
    Every(Span),
    /// At random gaps of up to 1 ms.
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

/// Sends `script` through `subject` in front of a 10 Mbit/s link.
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
    assert!(link.queue().backlog().is_empty(), "{}: not drained in a minute", subject.spec);
    log.0
}

#[test]
fn the_same_seed_gives_the_same_fates_and_every_subject_signals() {
    let script = varied(1, Time::ZERO);
    for subject in subjects() {
        let events = replay(&subject, &script, Polls::WhenDue);
        assert_eq!(events, replay(&subject, &script, Polls::WhenDue), "{}", subject.spec);
        let signals = events.iter().filter(|event| !matches!(event, Event::Sent { .. })).count();
        assert!(signals > 0, "{}: the script provokes neither drop nor mark", subject.spec);
    }
}

#[test]
fn extra_polls_change_nothing() {
    let script = varied(2, Time::ZERO);
    for subject in subjects() {
        let late = replay(&subject, &script, Polls::Late);
        for (polls, name) in [
            (Polls::WhenDue, "when due"),
            (Polls::Every(Span::from_millis(1)), "every ms"),
            (Polls::Random(Rng::new(5)), "at random"),
        ] {
            assert!(late == replay(&subject, &script, polls), "{}, {name}", subject.spec);
        }
    }
}

#[test]
fn polls_every_microsecond_change_nothing() {
    let mut rng = Rng::new(3);
    let script = overload(&mut rng, Time::ZERO, Span::from_millis(250), 400);
    for subject in subjects() {
        let late = replay(&subject, &script, Polls::Late);
        let polled = replay(&subject, &script, Polls::Every(Span::from_micros(1)));
        assert!(late == polled, "{}", subject.spec);
    }
}
