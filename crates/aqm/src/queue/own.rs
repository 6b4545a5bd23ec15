//! A queue with a user's algorithm: a first-in first-out queue under a [`Judge`] that the program
//! receives at run time, such as an object of a scripting language.
//!
//! The judge decides and the queue stores. A judge never has a packet, so it can neither lose nor
//! duplicate nor delay one, nor change the order: for any answers, the laws of all queues hold. Its
//! answers have the meaning that they have for every [`Aqm`].
//!
//! A SPEC names such a queue (`own:BoDe,limit=1000p,bound_ns=20000000`), but the registry cannot
//! build it: the owner of the judge makes an [`OwnQueue`] from the SPEC, and passes it to
//! [`QueueSetup::own`]. A discipline in Rust implements [`Aqm`] itself, as `examples/own_queue.rs`
//! does, and needs no indirection per packet.
//!
//! [`QueueSetup::own`]: crate::registry::QueueSetup::own

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use crate::aqm::{Aqm, Store, Verdict, signal};
use crate::config::{ConfigError, Definition, Spec};
use crate::packet::{Meta, Packet};
use crate::qdisc::{Backlog, BoxedQdisc, DropReason};
use crate::queue::fifo::{self, LIMIT};
use crate::queue::store::{Limit, Overflow, Single};
use crate::rng::Rng;
use crate::time::Time;

/// A user's algorithm, which decides about the packets of an [`OwnQueue`].
pub trait Judge: Send {
    /// Judges an arrival that is within the limit. `backlog` excludes it.
    fn on_enqueue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
        Verdict::Pass
    }

    /// Judges the head when the link is free: [`Verdict::Pass`] sends it; [`Verdict::Signal`] marks
    /// and sends it if it is ECN-capable, and drops it otherwise. After a drop the next packet is
    /// judged. `backlog` includes the head.
    fn on_dequeue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
        Verdict::Pass
    }

    /// Called for an arrival that exceeds the limit.
    fn on_refused(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) {}
}

/// Makes the judge of one queue. The judge draws its random numbers from the given stream.
pub type MakeJudge = dyn Fn(Rng) -> Box<dyn Judge> + Send + Sync;

/// A queue with a user's algorithm, ready to build.
#[derive(Clone)]
pub struct OwnQueue {
    /// The size of the queue.
    pub limit: Limit,
    /// Makes the judge of an empty queue.
    pub make: Arc<MakeJudge>,
}

impl fmt::Debug for OwnQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnQueue").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl OwnQueue {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        let judged = Judged((self.make)(rng.child("own")));
        Box::new(Single::new(judged, self.limit, Overflow::Tail))
    }
}

/// The SPEC of a queue with a user's algorithm.
#[derive(Clone, Debug)]
pub struct OwnSpec {
    /// The SPEC as written, whose text names the queue.
    pub label: Spec,
    /// The size of the queue.
    pub limit: Limit,
}

impl OwnSpec {
    /// Parses `own:NAME,limit=1000p,KEY=VALUE...`. Returns `None` if the SPEC does not begin with
    /// `own:`.
    pub fn read(spec: &Spec) -> Result<Option<Self>, ConfigError> {
        if spec.name != DEFINITION.name {
            return Ok(None);
        }
        if spec.items.first().is_none_or(|item| item.key.is_some()) {
            let expected = "own:NAME, the name under which the program provides the queue";
            return Err(ConfigError::missing(DEFINITION.name, NAME, expected));
        }
        let limit = fifo::limit(&DEFINITION.resolve(spec)?)?;
        Ok(Some(Self { label: spec.clone(), limit }))
    }
}

/// The name of the queue is the item without a key.
const NAME: &str = "name";

/// This definition is not in the registry: the registry can build all its disciplines from text
/// alone.
const DEFINITION: Definition = Definition {
    name: "own",
    summary: "a queue whose decisions come from the program that runs it",
    source: "its owner",
    params: &[LIMIT.param()],
    positional: Some(NAME),
    // The judge's owner checks other keys.
    free_key: Some(|_| true),
    ..Definition::BARE
};

/// An AQM that follows a judge.
struct Judged(Box<dyn Judge>);

impl Aqm for Judged {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        self.0.on_enqueue(now, meta, backlog)
    }

    fn on_refused(&mut self, now: Time, meta: &Meta, backlog: Backlog) {
        self.0.on_refused(now, meta, backlog);
    }

    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        loop {
            let verdict = self.0.on_dequeue(now, store.head()?, store.backlog());
            let packet = store.pop()?;
            match verdict {
                Verdict::Pass => return Some(packet),
                Verdict::Signal => {
                    if let Some(packet) = signal(true, packet, store) {
                        return Some(packet);
                    }
                }
                Verdict::Drop => store.drop(packet, DropReason::ControlLaw),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::packet::Ecn;
    use crate::qdisc::{Admit, Dequeue, MarkReason, Observer, Qdisc};
    use crate::registry::QueueSetup;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// Answers with the flow of a packet: 0 passes, 1 signals, all others drop.
    struct ByFlow;

    fn verdict(meta: &Meta) -> Verdict {
        match meta.flow {
            0 => Verdict::Pass,
            1 => Verdict::Signal,
            _ => Verdict::Drop,
        }
    }

    /// Judges small packets on arrival, and full ones at the head.
    impl Judge for ByFlow {
        fn on_enqueue(&mut self, _now: Time, meta: &Meta, _backlog: Backlog) -> Verdict {
            if meta.len < 1_000 { verdict(meta) } else { Verdict::Pass }
        }

        fn on_dequeue(&mut self, _now: Time, meta: &Meta, _backlog: Backlog) -> Verdict {
            if meta.len < 1_000 { Verdict::Pass } else { verdict(meta) }
        }
    }

    fn own(make: impl Fn(Rng) -> Box<dyn Judge> + Send + Sync + 'static) -> Box<dyn Qdisc<u32>> {
        let spec = Spec::parse("own:by-flow,limit=10p").expect("a SPEC");
        let OwnSpec { label, limit } = OwnSpec::read(&spec).expect("a limit").expect("own");
        QueueSetup::own(label, OwnQueue { limit, make: Arc::new(make) }).build(&Rng::new(1))
    }

    #[derive(Default)]
    struct Recorder(Vec<(u32, &'static str)>);

    impl Observer<u32> for Recorder {
        fn dropped(&mut self, _now: Time, packet: Packet<u32>, reason: DropReason) {
            self.0.push((packet.payload, reason.name()));
        }

        fn marked(&mut self, _now: Time, packet: &Packet<u32>, reason: MarkReason) {
            self.0.push((packet.payload, reason.name()));
        }
    }

    #[test]
    fn verdicts_apply_on_arrival_and_at_the_head() {
        let mut queue = own(|_| Box::new(ByFlow));
        let mut told = Recorder::default();
        let mut number = 0;
        for len in [500, 1_500] {
            for (flow, ecn) in
                [(0, Ecn::NotEct), (1, Ecn::Ect0), (1, Ecn::NotEct), (1, Ecn::Ce), (2, Ecn::Ect0)]
            {
                let meta = Meta { ecn, ..Meta::new(len, flow) };
                queue.enqueue(Time::ZERO, Packet { meta, payload: number }, &mut told);
                number += 1;
            }
        }
        assert_eq!(told.0, [(1, "early"), (2, "early"), (4, "early")]);
        told.0.clear();
        let mut left = Vec::new();
        while let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO, &mut told) {
            left.push((packet.payload, packet.meta.ecn == Ecn::Ce));
        }
        assert_eq!(left, [(0, false), (1, true), (3, true), (5, false), (6, true), (8, true)]);
        assert_eq!(told.0, [(6, "control-law"), (7, "control-law"), (9, "control-law")]);
    }

    #[test]
    fn a_judge_is_notified_of_refusals_and_draws_from_the_seed() {
        struct Refused(Rng, u32);
        impl Judge for Refused {
            fn on_refused(&mut self, _now: Time, _meta: &Meta, backlog: Backlog) {
                assert_eq!(backlog.packets, 10);
                self.1 += 1;
            }
            fn on_dequeue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
                assert_eq!(self.1, 2);
                if self.0.below(2) == 0 { Verdict::Pass } else { Verdict::Drop }
            }
        }
        let survivors = || {
            let mut queue = own(|rng| Box::new(Refused(rng, 0)));
            let packet = |payload| Packet { meta: Meta::new(100, 0), payload };
            let admits = (0..12).map(|id| queue.enqueue(Time::ZERO, packet(id), &mut ()));
            let refused = admits.filter(|admit| *admit == Admit::Refused).count();
            assert_eq!(refused, 2);
            let mut left = Vec::new();
            while let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO, &mut ()) {
                left.push(packet.payload);
            }
            left
        };
        assert_eq!(survivors(), survivors());
        assert!((1..10).contains(&survivors().len()), "the premise: some pass, some do not");
    }

    #[test]
    fn a_spec_names_a_custom_queue_and_the_registry_does_not_build_it() {
        let read = |text: &str| OwnSpec::read(&Spec::parse(text).expect("a SPEC"));
        assert!(read("codel").expect("no fault").is_none());
        let own = read("own:BoDe,bound_ns=1,limit=64KiB").expect("a SPEC").expect("own");
        assert_eq!(own.limit, Limit::bytes(65_536));
        assert_eq!(own.label.to_string(), "own:BoDe,bound_ns=1,limit=64KiB");
        for (text, word) in [("own", "own:NAME"), ("own:limit=1p", "own:NAME")] {
            assert!(read(text).expect_err(text).to_string().contains(word), "{text}");
        }
        assert!(read("own:A,limit=ten").expect_err("a limit").to_string().contains("limit"));
        let error = QueueSetup::parse("own:BoDe", &LinkFacts::default());
        assert!(error.expect_err("not in the registry").to_string().contains("own"));
    }
}
