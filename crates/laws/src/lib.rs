//! The laws of every queue discipline, as tests that also apply to a discipline of your own:
//!
//! ```
//! use underload_aqm::aqm::Aqm;
//! use underload_aqm::queue::store::{Limit, Overflow, Single};
//! use underload_laws::{Subject, keeps_its_books};
//!
//! /// A queue of your own: here one that decides nothing.
//! struct Mine;
//! impl Aqm for Mine {}
//!
//! let build = |_seed| Box::new(Single::new(Mine, Limit::packets(100), Overflow::Tail)) as _;
//! keeps_its_books(&Subject::new("mine", build));
//! ```
//!
//! [`laws!`](crate::laws!) makes a test of each law:
//!
//! | law | meaning |
//! |---|---|
//! | [`keeps_its_books`] | under any operations: offered = sent + dropped + backlog, in packets and bytes; each drop and mark is reported once; no packet leaves twice; no flow is reordered; Not-ECT is never marked, CE never cleared, no other field changed; never `Empty` while a packet is stored; counters only grow; a limit is never exceeded |
//! | [`repeats_itself`] | with the same seed every packet has the same fate; the script of operations has to make the queue drop or mark |
//! | [`does_not_feel_polls`] | a link that polls more often changes nothing |
//! | [`forgets_in_a_minute`] | after a minute of idleness, a packet that finds the queue empty passes unchanged |
//! | [`survives_the_wrap_of_a_clock`] | the wrap of 32 bits of microseconds, or of 1024 ns, changes nothing |
//! | [`survives_a_giant`] | a packet beyond every limit does no lasting harm |
//! | [`serves_every_flow`] | every flow is served, with packets of 64 kB, too |
//!
//! `aqm` applies the laws to its disciplines (`tests/laws`). Each function panics if its
//! law is broken.

mod ledger;
mod operations;
mod replay;
mod script;

use underload_aqm::packet::Ecn;
use underload_aqm::qdisc::{Admit, Backlog, BoxedQdisc};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use ledger::Supervised;
pub use operations::{Operation, STARTS, perform};
pub use replay::{Event, Polls, replay};
pub use script::{Script, overload, trickle, varied};

/// The link behind every subject.
pub const LINK: &str = "10mbit";
/// The hosts that packets go to, from 0: those of a flow go to one host.
pub const HOSTS: u32 = 4;

/// A discipline under test.
pub struct Subject {
    name: String,
    build: Box<dyn Fn(u64) -> BoxedQdisc<u32>>,
    limit: Option<Backlog>,
    order: Order,
    may_mark: bool,
}

/// The packets that leave in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The packets of one flow keep their order.
    Flow,
    /// The packets of one flow keep their order on each side of a dual queue: ECT(1) or CE, or not.
    FlowAndScalability,
    /// Any order: queue protection moves a flow to the other queue (RFC 9957 section 4).
    None,
}

impl Subject {
    /// Returns a subject; `name` is for messages, and `build` makes an empty queue whose random
    /// numbers follow from the given seed.
    pub fn new(name: &str, build: impl Fn(u64) -> BoxedQdisc<u32> + 'static) -> Self {
        Self {
            name: name.to_string(),
            build: Box::new(build),
            limit: None,
            order: Order::Flow,
            may_mark: true,
        }
    }

    /// Declares that the queue never exceeds `limit`.
    #[must_use]
    pub fn limited_to(mut self, limit: Backlog) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Declares which packets keep their order.
    #[must_use]
    pub fn ordered_by(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Declares that the queue never marks.
    #[must_use]
    pub fn without_marks(mut self) -> Self {
        self.may_mark = false;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn limit(&self) -> Option<Backlog> {
        self.limit
    }

    /// Returns an empty queue whose random numbers follow from `seed`.
    pub fn build(&self, seed: u64) -> BoxedQdisc<u32> {
        (self.build)(seed)
    }
}

/// Declares a test of each law for an expression that makes a [`Subject`].
#[macro_export]
macro_rules! laws {
    ($subject:expr) => {
        $crate::laws!($subject; keeps_its_books, repeats_itself, does_not_feel_polls,
            forgets_in_a_minute, survives_the_wrap_of_a_clock, survives_a_giant,
            serves_every_flow);
    };
    ($subject:expr; $($law:ident),+) => {
        $(
            #[test]
            fn $law() {
                $crate::$law(&$subject);
            }
        )+
    };
}

/// Sequences of operations that [`keeps_its_books`] tries from each start.
const SEQUENCES: u64 = 48;
const MOST_OPERATIONS: u32 = 250;

/// Checks the queue's counters, order and marks under random operations.
pub fn keeps_its_books(subject: &Subject) {
    for (number, start) in STARTS.into_iter().enumerate() {
        for seed in 0..SEQUENCES {
            let mut rng = Rng::new(seed + SEQUENCES * number as u64).child("operations");
            let count = 1 + rng.below(MOST_OPERATIONS);
            let operations: Vec<_> = (0..count).map(|_| Operation::random(&mut rng)).collect();
            perform(subject, start, &operations);
        }
    }
}

/// Checks that the same seed gives the same fates. The script of overload, silence, bursts and a
/// trickle must make the queue drop or mark.
pub fn repeats_itself(subject: &Subject) {
    let script = varied(1, Time::ZERO);
    let events = replay(subject, &script, Polls::WhenDue);
    assert_eq!(events, replay(subject, &script, Polls::WhenDue), "{}", subject.name);
    let signals = events.iter().filter(|event| !matches!(event, Event::Sent { .. })).count();
    assert!(signals > 0, "{}: the script provokes neither drop nor mark", subject.name);
}

/// Checks that unnecessary and late polls change nothing.
pub fn does_not_feel_polls(subject: &Subject) {
    let script = varied(2, Time::ZERO);
    let late = replay(subject, &script, Polls::Late);
    for (polls, name) in [
        (Polls::WhenDue, "when due"),
        (Polls::Every(Span::from_millis(1)), "every ms"),
        (Polls::Random(Rng::new(5)), "at random"),
    ] {
        assert!(late == replay(subject, &script, polls), "{}, {name}", subject.name);
    }
    let script = overload(&mut Rng::new(3), Time::ZERO, Span::from_millis(250), 400);
    let late = replay(subject, &script, Polls::Late);
    let polled = replay(subject, &script, Polls::Every(Span::from_micros(1)));
    assert!(late == polled, "{}, every us", subject.name);
}

/// Checks that a minute of silence erases any history.
pub fn forgets_in_a_minute(subject: &Subject) {
    let mut script = varied(4, Time::ZERO);
    let first = script.len() as u32;
    script.extend(trickle(Time::from_secs(70), Span::from_millis(50), 100));
    let events = replay(subject, &script, Polls::WhenDue);
    let sent = |event: &&Event| matches!(event, Event::Sent { id, .. } if *id >= first);
    assert_eq!(events.iter().filter(sent).count(), 100, "{}", subject.name);
}

/// Checks that a run across the wrap of a clock has the same fates as one at the start: 32 bits of
/// 1024 ns wrap after 73 minutes 18 s, those of microseconds after 71 minutes 35 s. The offset is a
/// multiple of 1024 ns and of every usual update interval.
pub fn survives_the_wrap_of_a_clock(subject: &Subject) {
    for wrap_nanos in [1_u64 << 42, (1 << 32) * 1_000] {
        let offset = Span::from_nanos((wrap_nanos - 1_000_000_000) / 6_000_000_000 * 6_000_000_000);
        // The script is long enough to pass the wrap when it starts at the offset.
        let passes = (wrap_nanos - offset.as_nanos()) / 6_000_000_000 + 1;
        let script = |start: Time| {
            let pass = |number| varied(number, start + Span::from_secs(6) * number);
            (0..=passes).flat_map(pass).collect::<Vec<_>>()
        };
        let early = replay(subject, &script(Time::from_secs(6)), Polls::WhenDue);
        let late = replay(subject, &script(Time::from_secs(6) + offset), Polls::WhenDue);
        let fates = |events: &[Event]| {
            let fate = |event: &Event| match event {
                Event::Dropped { id, reason, .. } => (*id, reason.name(), 0),
                Event::Marked { id, reason, .. } => (*id, reason.name(), 1),
                Event::Sent { id, ecn, .. } => (*id, "sent", *ecn),
            };
            events.iter().map(fate).collect::<Vec<_>>()
        };
        assert!(fates(&early) == fates(&late), "{}: wrap at {wrap_nanos} ns", subject.name);
    }
}

/// Checks that a packet beyond all limits is dropped or passes alone, and breaks nothing.
pub fn survives_a_giant(subject: &Subject) {
    let mut queue = Supervised::new(subject, 1);
    for round in 0..3 {
        let now = Time::from_secs(round * 100);
        queue.enqueue(now, 1, 100_000_000, Ecn::Ect0);
        while queue.dequeue(now).is_some() {}
        let later = now + Span::from_secs(90);
        let admit = queue.enqueue(later, 2, 1_500, Ecn::Ect0);
        assert_eq!(admit, Admit::Queued, "{}", subject.name);
        assert!(queue.dequeue(later).is_some(), "{}", subject.name);
    }
}

/// Checks that every flow is served with 64 kB packets, which exceed quantum and guard.
pub fn serves_every_flow(subject: &Subject) {
    let mut queue = Supervised::new(subject, 1);
    let mut served = [0_u32; 5];
    let mut flow_of = Vec::new();
    for turn in 0..2_000_u64 {
        // A packet takes 52 ms at 10 Mbit/s; packets are offered at slightly less than that rate.
        let now = Time::from_millis(turn * 60);
        let flow = (turn % 5) as u32;
        flow_of.push(flow);
        queue.enqueue(now, flow, 65_535, Ecn::NotEct);
        if let Some((id, _)) = queue.dequeue(now) {
            served[flow_of[id as usize] as usize] += 1;
        }
    }
    let holds_one = subject.limit.is_none_or(|limit| limit.bytes >= 65_535);
    assert!(!holds_one || served.iter().all(|&n| n > 300), "{}: {served:?}", subject.name);
}
