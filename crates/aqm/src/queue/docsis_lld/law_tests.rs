//! Laws of the two queues, tested through their public calls only.

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::rate::Rate;

/// At 10 Mbit/s, 1250 bytes take 1 ms.
fn config() -> DocsisLldConfig {
    DocsisLldConfig {
        protection: false,
        ..DocsisLldConfig::for_rate(Rate::from_megabits_per_second(10))
    }
}

fn build(config: DocsisLldConfig) -> DocsisLld<()> {
    DocsisLld::new(config, &Rng::new(1))
}

fn offer(queue: &mut DocsisLld<()>, at_ms: u64, packets: u32, ecn: Ecn) {
    for _ in 0..packets {
        let meta = Meta { ecn, ..Meta::new(1_250, 3) };
        queue.enqueue(Time::from_millis(at_ms), Packet { meta, payload: () }, &mut ());
    }
}

fn take(queue: &mut DocsisLld<()>, at_ms: u64, packets: u32) {
    for _ in 0..packets {
        let sent = queue.dequeue(Time::from_millis(at_ms), &mut ());
        assert!(matches!(sent, Dequeue::Packet(_)), "at {at_ms} ms: {sent:?}");
    }
}

fn shown(queue: &DocsisLld<()>) -> BTreeMap<&'static str, f64> {
    let mut shown = BTreeMap::new();
    queue.gauges(&mut |name, value| _ = shown.insert(name, value));
    shown
}

/// Two equal queues: the first is called after every update, the second only at the end.
fn punctual_and_late(prepare: impl Fn(&mut DocsisLld<()>), from_ms: u64, to_ms: u64) {
    let [mut punctual, mut late] = [config(), config()].map(build);
    for queue in [&mut punctual, &mut late] {
        prepare(queue);
    }
    let before = shown(&punctual);
    for at_ms in from_ms..=to_ms {
        punctual.advance(Time::from_millis(at_ms));
    }
    late.advance(Time::from_millis(to_ms));
    assert_ne!(before, shown(&punctual), "the premise");
    assert_eq!(shown(&punctual), shown(&late));
}

#[test]
fn late_and_punctual_polls_compute_equal_coupling() {
    let prepare = |queue: &mut DocsisLld<()>| {
        offer(queue, 0, 60, Ecn::NotEct);
        for at_ms in 0..160 {
            queue.advance(Time::from_millis(at_ms));
        }
        offer(queue, 160, 2, Ecn::Ect1);
        take(queue, 160, 62);
        assert!(shown(queue)["docsis-lld.coupled_probability"] > 0.0);
    };
    // With nothing stored, PIE's probability falls by 2 % per update.
    punctual_and_late(prepare, 161, 400);
}

#[test]
fn late_polls_know_when_the_low_latency_flow_became_idle() {
    let prepare = |queue: &mut DocsisLld<()>| {
        offer(queue, 0, 1, Ecn::NotEct);
        // Equal shares of each of three intervals.
        for at_ms in [1, 17, 33] {
            offer(queue, at_ms, 4, Ecn::Ect1);
            take(queue, at_ms, 4);
        }
        assert_eq!(queue.pair.classic.backlog().packets, 1, "it waits for its turn");
    };
    // 1250 bytes behind 2.5 of 10 Mbit/s take 1.33 ms, then 1 ms.
    punctual_and_late(prepare, 34, 100);
}

#[test]
fn updates_of_an_idle_year_are_skipped() {
    let mut queue = build(config());
    offer(&mut queue, 0, 1, Ecn::Ect1);
    take(&mut queue, 0, 1);
    queue.advance(Time::from_secs(3_600 * 24 * 365));
    assert!(queue.classic.is_asleep());
}

/// The standard requires space for a largest frame, 2000 bytes, and no more.
#[test]
fn the_low_latency_queue_is_full_where_a_largest_frame_would_not_fit() {
    for (limit_bytes, stored) in [(12_000, 8), (12_001, 9), (13_250, 9)] {
        let mut queue = build(DocsisLldConfig { low_latency_limit_bytes: limit_bytes, ..config() });
        offer(&mut queue, 0, 15, Ecn::Ect1);
        assert_eq!(queue.pair.low_latency.backlog().packets, stored, "{limit_bytes}");
        assert!(queue.pair.classic.backlog().is_empty());
    }
}

#[derive(Default)]
struct Marks(BTreeSet<MarkReason>);

impl Observer<()> for Marks {
    fn dropped(&mut self, _: Time, _: Packet<()>, _: DropReason) {}

    fn marked(&mut self, _: Time, _: &Packet<()>, reason: MarkReason) {
        self.0.insert(reason);
    }
}

#[test]
fn a_mark_names_the_queue_whose_law_caused_it() {
    let reasons = |coupled_q56, stored| {
        let mut queue = build(config());
        offer(&mut queue, 0, stored, Ecn::Ect1);
        queue.coupled_q56 = coupled_q56;
        let mut marks = Marks::default();
        // The probabilities of certain packets add up to a sum that must exceed one, which happens
        // with the second packet.
        for _ in 0..2 {
            let meta = Meta { ecn: Ecn::Ect1, ..Meta::new(1_250, 3) };
            queue.enqueue(Time::ZERO, Packet { meta, payload: () }, &mut marks);
        }
        marks.0
    };
    assert_eq!(reasons(ONE_Q56, 0), BTreeSet::from([MarkReason::Early]), "the classic queue");
    // A delay of 8 ms is beyond the ramp.
    assert_eq!(reasons(ONE_Q56 / 2, 7), BTreeSet::from([MarkReason::Threshold]), "its own");
}
