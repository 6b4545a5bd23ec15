//! DiffServ: strict priority over classes chosen by DSCP, any discipline in each class
//! (RFC 2474 and RFC 2475 for the codepoint and the classes).
//!
//! # Principle
//! A packet goes to the class that claims its DSCP, or else to the lowest class. The link serves
//! the highest class that has a packet to send. A lower class may starve, as in any strict
//! priority; its own discipline and counters show that.
//!
//! # Parameters
//! Codepoints served first are NQB (RFC 9956) and EF (RFC 3246); served second is AF4x, interactive
//! video (RFC 4594).
//!
//! The defaults are the classes of the BoDe paper (section VII-C), which does not name its
//! codepoints.
//!
//! # Where implementations differ
//! The BoDe authors' queue picks classes by the UDP or TCP source port, found by scanning the
//! packet for the byte 0x45, and never maintains its size counters. Ours goes by DSCP as their
//! paper describes, and its totals are the sums over the classes.
//!
//! # How it is validated
//! Unit tests check order, totals and classes that shape; the law suite reports starvation. See
//! `docs/queues/diffserv.md`.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::config::{ConfigError, DscpSet, Key, Spec, Values, params};
use crate::packet::{Dscp, Packet};
use crate::qdisc::{Admit, Backlog, BoxedQdisc, Dequeue, Observer, Qdisc, Stats};
use crate::rng::Rng;
use crate::time::Time;

/// The queues of the classes, by priority.
pub struct DiffServ<P> {
    classes: Vec<BoxedQdisc<P>>,
    /// The index of each codepoint's class.
    class_of: [u8; 64],
}

impl<P> DiffServ<P> {
    /// Creates the classes, highest priority first, from the codepoints of each as a bit set (bit
    /// `n` for codepoint `n`) and its queue. A codepoint in no set belongs to the last class, one
    /// in several sets to the highest. At least one class is required.
    pub fn new(classes: Vec<(u64, BoxedQdisc<P>)>) -> Self {
        assert!(!classes.is_empty(), "configuration always gives classes");
        let last = classes.len() - 1;
        let class_of = core::array::from_fn(|codepoint| {
            let claims = |(set, _): &(u64, _)| set >> codepoint & 1 == 1;
            classes.iter().position(claims).unwrap_or(last) as u8
        });
        Self { classes: classes.into_iter().map(|(_, queue)| queue).collect(), class_of }
    }

    fn class(&self, dscp: Dscp) -> usize {
        usize::from(self.class_of[usize::from(dscp.value())])
    }
}

impl<P> Qdisc<P> for DiffServ<P> {
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        let class = self.class(packet.meta.dscp);
        self.classes[class].enqueue(now, packet, observer)
    }

    /// Serves the highest class that has a packet. While a class shapes, lower ones may send.
    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        let mut earliest: Option<Time> = None;
        for class in &mut self.classes {
            match class.dequeue(now, observer) {
                Dequeue::Packet(packet) => return Dequeue::Packet(packet),
                Dequeue::Empty => {}
                Dequeue::NotBefore(time) => {
                    earliest = Some(earliest.map_or(time, |earlier| earlier.min(time)));
                }
            }
        }
        earliest.map_or(Dequeue::Empty, Dequeue::NotBefore)
    }

    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, class| sum + class.backlog())
    }

    fn stats(&self) -> Stats {
        self.classes.iter().fold(Stats::default(), |sum, class| sum + class.stats())
    }

    /// Reports only the backlog of each class: gauges of its disciplines may have equal names.
    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        for (class, name) in self.classes.iter().zip(BACKLOG_GAUGES) {
            visit(name, class.backlog().bytes as f64);
        }
    }
}

const BACKLOG_GAUGES: [&str; 3] =
    ["diffserv.high_bytes", "diffserv.medium_bytes", "diffserv.low_bytes"];

/// DiffServ, ready to build; `Q` is the configuration of any discipline.
#[derive(Clone, Debug)]
pub struct DiffServConfig<Q> {
    /// Each class's codepoints as a bit set, and its queue; highest priority first.
    pub classes: Vec<(u64, Q)>,
}

impl<Q> DiffServConfig<Q> {
    /// Returns an empty queue; `build` makes its classes from their configurations.
    pub(crate) fn build_with<P: Send + 'static>(
        &self,
        rng: &Rng,
        build: impl Fn(&Q, &Rng) -> BoxedQdisc<P>,
    ) -> BoxedQdisc<P> {
        let class = |(number, (set, queue)): (usize, &(u64, Q))| {
            (*set, build(queue, &rng.child(&format!("class {number}"))))
        };
        Box::new(DiffServ::new(self.classes.iter().enumerate().map(class).collect()))
    }
}

params! {
    define DEFINITION: "diffserv",
        "strict priority over three classes chosen by DSCP, any queue in each",
        source: "RFC 2475; classes of the BoDe paper, section VII-C";
    HIGH: Spec = "high", "[bode:bound=50ms]", "queue of the class served first";
    HIGH_DSCP: DscpSet = "high-dscp", "45+46", "codepoints of the class served first";
    MEDIUM: Spec = "medium", "[bode:bound=100ms]", "queue of the class served second";
    MEDIUM_DSCP: DscpSet = "medium-dscp", "34+36+38", "codepoints of the class served second";
    LOW: Spec = "low", "[fifo:limit=1000p]", "queue of every other codepoint, served last";
}

/// Reads the parameters; `understand` makes the configuration of a class from its SPEC.
pub(crate) fn configure<Q>(
    values: &Values,
    understand: impl Fn(&Spec) -> Result<Q, ConfigError>,
) -> Result<DiffServConfig<Q>, ConfigError> {
    let high = values.get(HIGH_DSCP);
    let medium = values.get(MEDIUM_DSCP);
    if high & medium != 0 {
        return Err(values.refuse(MEDIUM_DSCP, "codepoints that high-dscp does not have"));
    }
    let class = |(set, key): (u64, Key<Spec>)| {
        let queue = understand(&values.get(key));
        let inside = |error| ConfigError::inside(DEFINITION.name, key.name(), error);
        Ok((set, queue.map_err(inside)?))
    };
    let classes = [(high, HIGH), (medium, MEDIUM), (0, LOW)];
    Ok(DiffServConfig { classes: classes.into_iter().map(class).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::packet::Meta;
    use crate::qdisc::Count;
    use crate::registry::QueueSetup;
    use alloc::string::ToString;

    fn diffserv(spec: &str) -> Box<dyn Qdisc<u32>> {
        QueueSetup::parse(spec, &LinkFacts::default()).expect(spec).build(&Rng::new(0))
    }

    fn offer(queue: &mut dyn Qdisc<u32>, dscp: u8, id: u32) -> Admit {
        let mut meta = Meta::new(1_000, 0);
        meta.dscp = Dscp::new(dscp).expect("a codepoint");
        queue.enqueue(Time::ZERO, Packet { meta, payload: id }, &mut ())
    }

    fn served(queue: &mut dyn Qdisc<u32>, now: Time) -> Vec<u32> {
        let mut served = Vec::new();
        while let Dequeue::Packet(packet) = queue.dequeue(now, &mut ()) {
            served.push(packet.payload);
        }
        served
    }

    #[test]
    fn classes_are_served_in_order_and_counted_together() {
        let mut queue = diffserv("diffserv");
        for (dscp, id) in [(0, 0), (34, 1), (46, 2), (0, 3), (45, 4), (10, 5)] {
            offer(queue.as_mut(), dscp, id);
        }
        assert_eq!(queue.backlog(), Backlog { packets: 6, bytes: 6_000 });
        assert_eq!(served(queue.as_mut(), Time::ZERO), [2, 4, 1, 0, 3, 5]);
        assert_eq!(queue.stats().sent, Count { packets: 6, bytes: 6_000 });
        assert!(queue.backlog().is_empty());
    }

    #[test]
    fn each_class_has_its_own_bound_and_limit() {
        let spec = "diffserv:high=[bode:bound=50ms,exempt=0p],medium=[bode:bound=100ms,exempt=0p]";
        let mut queue = diffserv(&(spec.to_string() + ",low=[fifo:limit=1p]"));
        for (dscp, id) in [(46, 0), (34, 1), (0, 2), (0, 3)] {
            offer(queue.as_mut(), dscp, id);
        }
        assert_eq!(served(queue.as_mut(), Time::from_millis(50)), [1, 2]);
        let stats = queue.stats();
        assert_eq!((stats.dropped_enqueue.packets, stats.dropped_dequeue.packets), (1, 1));
    }

    #[test]
    fn the_label_names_the_profiles_inside() {
        let spec = "diffserv:high=[codel:target=5ms],low=[diffserv:high=[pie:profile=rfc]]";
        let setup = QueueSetup::parse(spec, &LinkFacts::default()).expect(spec);
        let label = setup.label.to_string();
        assert_eq!(
            label,
            "diffserv:high=[codel:profile=linux,target=5ms],low=[diffserv:high=[pie:profile=rfc]]"
        );
        let again = QueueSetup::parse(&label, &LinkFacts::default()).expect("its own label");
        assert_eq!(again.label, setup.label);
    }

    #[test]
    fn refusals_name_the_class() {
        for (spec, expected) in [
            ("diffserv:high=[bode:bond=5ms]", "in `high`: `bode` has no parameter `bond`"),
            ("diffserv:low=[nope]", "in `low`: there is no queue `nope`"),
            ("diffserv:medium-dscp=46", "expected codepoints that high-dscp does not have"),
            ("diffserv:high=fifo", "in `high`"),
        ] {
            let error = QueueSetup::parse(spec, &LinkFacts::default()).expect_err(spec);
            assert!(error.to_string().contains(expected), "{spec}: {error}");
        }
    }
}
