//! BLUE (Feng, Shin, Kandlur and Saha, IEEE/ACM Transactions on Networking 10(4), 2002), in profile
//! `feng`.
//!
//! # Principle
//! Events, and not the length of the queue, change one probability, with which arrivals are marked
//! or dropped. A full queue (or one longer than `threshold`) shows too few signals: the probability
//! rises by `increment`. An idle link shows too many: it falls by `decrement`. After each step it
//! is constant for `freeze`, so that the senders' reaction is visible before the next step.
//!
//! # Parameters
//! `freeze`, `increment` and `decrement` are the paper's `freeze_time`, `d1` and `d2` (section
//! III), and `threshold` its `L`.
//!
//! The defaults are those of the ns-3 port of the authors' own simulator code. The step down is
//! smaller than the step up, because an idle link can have two reasons, too many signals or too
//! little traffic, and a loss only one.
//!
//! # Where the paper leaves room
//! * A link that stays idle: it counts as one idle event per `freeze`, so that a later sender does
//!   not meet a probability from busier times.
//! * When idleness begins: when the last packet has been transmitted at the link's rate, or has
//!   left the queue if the rate is unknown.
//! * The next step may be made exactly `freeze` after the previous one.
//!
//! # Divergences
//! Unlike the ns-3 port: there the loss event counts only the limit, and an idle period is one
//! event, which the next arrival detects.
//!
//! # Validation
//! Tests compare steps, freezing and idleness with numbers computed by hand, and check the
//! equilibrium with senders that do not react and the paper's main claim, less loss than RED with
//! small buffers (`crates/sim/tests/shelf.rs`). See `docs/queues/blue.md`.

use crate::aqm::{Aqm, Store, Verdict};
use crate::config::{LinkFacts, PacketsOrBytes, Probability, Profile, from_values, params};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::queue::store::Limit;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};

from_values! {
    /// Parameters of [`Blue`]; the table of `blue` below explains them. `freeze` is not zero.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BlueConfig(values, link: &LinkFacts) {
        /// Minimum time between two changes of the probability.
        pub freeze: Span = values.get(FREEZE),
        /// Rise of the probability, as a fraction of 2^32.
        pub increment_q32: u64 = values.get(INCREMENT),
        /// Fall of the probability, as a fraction of 2^32.
        pub decrement_q32: u64 = values.get(DECREMENT),
        /// A longer queue than this counts as a loss.
        pub threshold: Option<Limit> = values.get(THRESHOLD).map(Limit::from),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
        /// The rate of the link, which determines the end of the last transmission.
        pub rate: Option<Rate> = link.rate.filter(|rate| !rate.is_zero()),
    }
}

/// The BLUE algorithm of one queue.
#[derive(Clone, Debug)]
pub struct Blue {
    config: BlueConfig,
    probability_q32: u64,
    /// The probability does not change before this.
    frozen_until: Time,
    /// While nothing is stored: the time up to which idleness has been counted, or its start.
    idle_from: Time,
    rng: Rng,
}

impl Blue {
    /// Returns a controller in its initial state that draws from `rng`.
    pub fn new(config: BlueConfig, rng: Rng) -> Self {
        Self { config, probability_q32: 0, frozen_until: Time::ZERO, idle_from: Time::ZERO, rng }
    }

    /// Steps down for idleness up to `now`.
    fn account_for_idleness(&mut self, now: Time) {
        let first = self.idle_from.max(self.frozen_until);
        // The drop of this arrival may leave the link idle.
        self.idle_from = self.idle_from.max(now);
        if first >= now {
            return;
        }
        let events = now.since(first).as_nanos().div_ceil(self.config.freeze.as_nanos());
        let fall_q32 = self.config.decrement_q32.saturating_mul(events);
        self.probability_q32 = self.probability_q32.saturating_sub(fall_q32);
        self.frozen_until = first + self.config.freeze * events;
    }

    /// Steps up for a loss, unless the probability is frozen.
    fn lose(&mut self, now: Time) {
        if now >= self.frozen_until {
            self.probability_q32 = (self.probability_q32 + self.config.increment_q32).min(ONE_Q32);
            self.frozen_until = now + self.config.freeze;
        }
    }
}

impl Aqm for Blue {
    fn on_enqueue(&mut self, now: Time, _meta: &Meta, backlog: Backlog) -> Verdict {
        if backlog.is_empty() {
            self.account_for_idleness(now);
        }
        if self.config.threshold.is_some_and(|threshold| !threshold.holds(backlog)) {
            self.lose(now);
        }
        let signals = u64::from(self.rng.next_u32()) < self.probability_q32;
        Verdict::new(signals, self.config.ecn)
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        if !backlog.is_empty() {
            self.lose(now);
        }
    }

    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let packet = store.pop()?;
        if store.head().is_none() {
            let len = u64::from(packet.meta.len);
            let transmission = self.config.rate.and_then(|rate| rate.time_for(len));
            self.idle_from = now + transmission.unwrap_or_default();
        }
        Some(packet)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("blue.probability", self.probability_q32 as f64 / ONE_Q32 as f64);
    }
}

const ONE_Q32: u64 = 1 << 32;

one_queue!(BlueQueue, BlueConfig, |queue, rng| Blue::new(queue.config, rng.child("blue")));

params! {
    define DEFINITION: "blue", "BLUE: signals more after a loss, less while the link is idle",
        source: "Feng, Shin, Kandlur and Saha 2002",
        profiles: &[Profile { name: "feng", doc: "the paper's BLUE, defaults of its ns-3 port" }];
    FREEZE: Span = "freeze", "100ms" in "1us".."60s", "least time between two steps";
    INCREMENT: Probability = "increment", "0.25%", "step up after a loss for lack of room";
    DECREMENT: Probability = "decrement", "0.025%", "step down while the link is idle";
    THRESHOLD: Option<PacketsOrBytes> = "threshold", ("none"),
        "a queue longer than this counts as a loss";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    use LIMIT;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::qdisc::{Admit, Qdisc};
    use crate::queue::store::{Overflow, Single};
    use crate::registry::{QueueConfig, QueueSetup};

    fn configured(spec: &str, rate: Option<Rate>) -> BlueQueue {
        let facts = LinkFacts { rate, ..LinkFacts::default() };
        match QueueSetup::parse(spec, &facts).expect(spec).config {
            QueueConfig::Blue(queue) => queue,
            other => panic!("{other:?}"),
        }
    }

    fn blue(spec: &str) -> Blue {
        let rate = Some(Rate::from_megabits_per_second(8));
        Blue::new(configured(spec, rate).config, Rng::new(3))
    }

    const PACKET: Meta = Meta::new(1_000, 0);
    const STANDING: Backlog = Backlog { packets: 10, bytes: 10_000 };
    const QUARTER_PERCENT: u64 = ONE_Q32 / 400;

    #[test]
    fn losses_raise_the_probability_once_per_freeze() {
        let mut blue = blue("blue");
        for ms in [0, 1, 99, 100, 150, 200, 320] {
            blue.on_refused(Time::from_millis(ms), &PACKET, STANDING);
        }
        // At 0, 100, 200 and 320 ms.
        assert_eq!(blue.probability_q32, 4 * QUARTER_PERCENT);
        blue.on_refused(Time::from_secs(1), &PACKET, Backlog::default());
        assert_eq!(
            blue.probability_q32,
            4 * QUARTER_PERCENT,
            "too large a packet is no congestion"
        );
        blue.config.increment_q32 = ONE_Q32;
        blue.on_refused(Time::from_secs(2), &PACKET, STANDING);
        assert_eq!(blue.probability_q32, ONE_Q32);
    }

    #[test]
    fn a_queue_beyond_the_threshold_counts_as_a_loss() {
        for (spec, raised) in [
            ("blue", false),
            ("blue:threshold=10p", false),
            ("blue:threshold=9p", true),
            ("blue:threshold=10000B", false),
            ("blue:threshold=9999B", true),
        ] {
            let mut blue = blue(spec);
            blue.on_enqueue(Time::ZERO, &Meta::new(1_000, 0), STANDING);
            assert_eq!(blue.probability_q32 > 0, raised, "{spec}");
        }
    }

    /// Sends one capable packet of 1000 bytes (1 ms) through an empty queue at each instant.
    fn send_alone(queue: &mut Single<Blue, ()>, at_us: impl IntoIterator<Item = u64>) {
        for us in at_us {
            let now = Time::from_micros(us);
            let meta = Meta { ecn: Ecn::Ect0, ..PACKET };
            queue.enqueue(now, Packet { meta, payload: () }, &mut ());
            let _ = queue.dequeue(now, &mut ());
        }
    }

    fn alone(probability_q32: u64) -> Single<Blue, ()> {
        let mut blue = blue("blue:ecn=on");
        blue.probability_q32 = probability_q32;
        blue.idle_from = Time::from_secs(10);
        Single::new(blue, Limit::packets(10), Overflow::Tail)
    }

    #[test]
    fn each_freeze_of_idleness_lowers_the_probability() {
        let step = configured("blue", None).config.decrement_q32;
        let mut queue = alone(100 * step);
        // Idle from 10 s on: at 10.0, 10.1, 10.2 s, and not yet at 10.3 s.
        send_alone(&mut queue, [10_300_000]);
        assert_eq!(queue.aqm().probability_q32, 97 * step);
        // Transmits to 10.301 s; idle at 10.301 s, next due at 10.401 s.
        send_alone(&mut queue, [10_302_000, 10_304_000, 10_401_000]);
        assert_eq!(queue.aqm().probability_q32, 96 * step);
        send_alone(&mut queue, [3_600_000_000]);
        assert_eq!(queue.aqm().probability_q32, 0);
    }

    #[test]
    fn a_link_that_is_busy_without_a_queue_is_not_idle() {
        let step = configured("blue", None).config.decrement_q32;
        let mut queue = alone(100 * step);
        // Packets back to back: each arrives when the previous one has been transmitted.
        send_alone(&mut queue, (0..1_000).map(|number| 10_000_000 + 1_000 * number));
        assert_eq!(queue.aqm().probability_q32, 100 * step);
        // Without a known rate the link counts as idle between any two packets.
        let mut blue = Blue::new(configured("blue:ecn=on", None).config, Rng::new(3));
        (blue.probability_q32, blue.idle_from) = (100 * step, Time::from_secs(10));
        let mut queue = Single::new(blue, Limit::packets(10), Overflow::Tail);
        send_alone(&mut queue, (0..1_000).map(|number| 10_000_000 + 1_000 * number));
        assert_eq!(queue.aqm().probability_q32, 90 * step);
    }

    #[test]
    fn arrivals_are_dropped_or_marked_with_ecn_at_the_probability() {
        for (spec, verdict) in [("blue", Verdict::Drop), ("blue:ecn=on", Verdict::Signal)] {
            let mut blue = blue(spec);
            blue.probability_q32 = ONE_Q32 / 5;
            let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_000, 0) };
            let verdicts = (0..100_000).map(|_| blue.on_enqueue(Time::ZERO, &meta, STANDING));
            let signals = verdicts.filter(|&one| one == verdict).count() as f64;
            // Three standard deviations of 100,000 draws at 20 %.
            assert!((signals - 20_000.0).abs() < 380.0, "{spec}: {signals}");
        }
    }

    /// A packet is signalled if a random number of 32 bits is below the probability.
    #[test]
    fn a_draw_equal_to_the_probability_does_not_signal() {
        let mut blue = blue("blue");
        for (above, verdict) in [(0, Verdict::Pass), (1, Verdict::Drop)] {
            blue.probability_q32 = u64::from(blue.rng.clone().next_u32()) + above;
            assert_eq!(blue.on_enqueue(Time::ZERO, &PACKET, STANDING), verdict);
        }
    }

    /// Senders that do not react offer 125 % of the link's rate, so BLUE must drop a fifth. With
    /// steps of 0.25 % per 100 ms it reaches that in 8 s. From then on, losses because of a full
    /// buffer only compensate the steps down.
    #[test]
    fn settles_where_accepted_packets_fill_the_link() {
        let blue = blue("blue");
        let mut queue: Single<Blue, ()> = Single::new(blue, Limit::packets(50), Overflow::Tail);
        let (mut arrival, mut early, mut refused, mut served) = (Time::ZERO, 0, 0, 0);
        for ms in 0..120_000 {
            let now = Time::from_millis(ms);
            while arrival <= now {
                let was_full = queue.backlog().packets == 50;
                let packet = Packet { meta: Meta::new(1_000, 0), payload: () };
                let lost = queue.enqueue(arrival, packet, &mut ()) == Admit::Refused;
                if ms >= 20_000 && lost {
                    *if was_full { &mut refused } else { &mut early } += 1;
                }
                arrival += Span::from_micros(800);
            }
            let sent = matches!(queue.dequeue(now, &mut ()), crate::qdisc::Dequeue::Packet(_));
            served += u32::from(sent && ms >= 20_000);
        }
        let probability = queue.aqm().probability_q32 as f64 / ONE_Q32 as f64;
        assert!((0.19..0.21).contains(&probability), "{probability}");
        assert!(served > 99_000, "the link stays busy: {served}");
        assert!(early > 24_000 && refused < 1_000, "{early} early, {refused} for lack of room");
    }
}
