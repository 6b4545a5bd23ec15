//! Tests of the fair queue by RFC 8290 and by hand.

use super::*;
use crate::packet::Meta;
use crate::queue::store::NoAqm;
use alloc::vec::Vec;

const LINUX: FairConfig = FairConfig {
    flows: 1_024,
    limit_packets: 10_240,
    memory_bytes: 32 << 20,
    quantum_bytes: 1_514,
    overflow: FairOverflow::Fattest { drop_batch: 64 },
    turn_ends_at_zero: true,
};

fn fair(config: FairConfig) -> Fair<NoAqm, u32> {
    Fair::new(config, |_| NoAqm)
}

fn offer(queue: &mut Fair<NoAqm, u32>, flow: u32, len: u32, id: u32) -> Admit {
    queue.enqueue(Time::ZERO, Packet { meta: Meta::new(len, flow), payload: id }, &mut ())
}

fn served(queue: &mut Fair<NoAqm, u32>) -> Vec<u32> {
    let mut served = Vec::new();
    while let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO, &mut ()) {
        served.push(packet.payload);
    }
    served
}

/// The credits that ns-3's suite expects with a quantum of 90 bytes and packets of 120.
#[test]
fn credits_follow_the_deficit_round_robin() {
    let mut queue = fair(FairConfig { quantum_bytes: 90, ..LINUX });
    for id in 0..3 {
        offer(&mut queue, 1, 120, id);
    }
    for id in 10..12 {
        offer(&mut queue, 2, 120, id);
    }
    let mut credits = Vec::from([(queue.flows[1].credit, queue.flows[2].credit)]);
    for _ in 0..5 {
        let _ = queue.dequeue(Time::ZERO, &mut ());
        credits.push((queue.flows[1].credit, queue.flows[2].credit));
    }
    assert_eq!(credits, [(90, 90), (-30, 90), (60, -30), (-60, 60), (30, -60), (-90, 30)]);
    // A credit of -90 + 90 = 0 is not a turn yet: Linux adds another quantum.
    assert!(matches!(queue.dequeue(Time::ZERO, &mut ()), Dequeue::Empty));
    assert_eq!(queue.flows[1].credit, 90);
}

#[test]
fn at_zero_credit_the_rfc_serves_the_flow_once_more() {
    for (turn_ends_at_zero, expected) in [(true, [0, 10, 1, 11]), (false, [0, 1, 10, 11])] {
        let mut queue = fair(FairConfig { quantum_bytes: 100, turn_ends_at_zero, ..LINUX });
        for (flow, id) in [(1, 0), (1, 1), (2, 10), (2, 11)] {
            offer(&mut queue, flow, 100, id);
        }
        assert_eq!(served(&mut queue), expected, "at zero: {turn_ends_at_zero}");
    }
}

#[test]
fn a_sparse_flow_passes_a_bulk_flow() {
    let mut queue = fair(LINUX);
    for id in 0..10 {
        offer(&mut queue, 1, 1_500, id);
    }
    for _ in 0..3 {
        let _ = queue.dequeue(Time::ZERO, &mut ());
    }
    offer(&mut queue, 2, 100, 99);
    assert_eq!(served(&mut queue)[0], 99);
}

/// A flow that sends whenever it runs empty must not come back as new each time, with a fresh
/// credit and before all others: it first passes through the old list.
#[test]
fn a_new_flow_that_runs_empty_passes_through_the_old_list() {
    let mut queue = fair(FairConfig { quantum_bytes: 1_000, ..LINUX });
    for id in 0..50 {
        offer(&mut queue, 1, 1_000, id);
    }
    let _ = queue.dequeue(Time::ZERO, &mut ());
    offer(&mut queue, 2, 100, 1_000);
    let mut next = || {
        let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO, &mut ()) else { return None };
        Some((packet.meta.flow, queue.flows[2].is_active(), queue.flows[2].credit))
    };
    assert_eq!(next(), Some((2, true, 900)));
    // The flow was found empty while new: it is old now, and removed only when found empty again.
    assert_eq!(next(), Some((1, true, 900)));
    assert_eq!(next(), Some((1, false, 900)));
}

/// ns-3's suite: the limit is 4, with three packets of one flow and two of another. Two of the fat
/// flow are dropped.
#[test]
fn overflow_takes_half_of_the_fattest_flow_from_its_head() {
    let mut queue = fair(FairConfig { limit_packets: 4, ..LINUX });
    for (flow, id) in [(1, 0), (1, 1), (1, 2), (2, 10)] {
        assert_eq!(offer(&mut queue, flow, 100, id), Admit::Queued);
    }
    assert_eq!(offer(&mut queue, 2, 100, 11), Admit::Queued);
    assert_eq!(served(&mut queue), [2, 10, 11]);
    assert_eq!(queue.stats().dropped_enqueue.packets, 2);
}

#[test]
fn overflow_takes_no_more_than_a_batch() {
    let mut queue = fair(FairConfig { limit_packets: 999, ..LINUX });
    for id in 0..1_000 {
        offer(&mut queue, 1, 100, id);
    }
    assert_eq!(queue.stats().dropped_enqueue.packets, 64);
    assert_eq!(served(&mut queue)[0], 64);
}

#[test]
fn memory_is_a_hard_limit_and_an_arrival_above_it_is_refused() {
    let mut queue = fair(FairConfig { memory_bytes: 1_000, ..LINUX });
    for id in 0..10 {
        assert_eq!(offer(&mut queue, id, 100, id), Admit::Queued);
    }
    assert_eq!(offer(&mut queue, 77, 1_001, 10), Admit::Refused);
    assert_eq!(queue.backlog(), Backlog { packets: 10, bytes: 1_000 });
}

#[test]
fn packets_without_bytes_overflow_too() {
    let mut queue = fair(FairConfig { limit_packets: 2, ..LINUX });
    for id in 0..5 {
        offer(&mut queue, 7, 0, id);
    }
    assert_eq!(queue.backlog(), Backlog { packets: 2, bytes: 0 });
    assert_eq!(served(&mut queue), [3, 4]);
}

#[test]
fn at_the_tail_limit_the_arrival_is_refused_and_its_flow_notified() {
    #[derive(Clone)]
    struct CountsRefusals(u32, Backlog);
    impl Aqm for CountsRefusals {
        fn on_refused(&mut self, _now: Time, _meta: &Meta, backlog: Backlog) {
            *self = Self(self.0 + 1, backlog);
        }
    }
    let config =
        FairConfig { limit_packets: 3, memory_bytes: 1_000, overflow: FairOverflow::Tail, ..LINUX };
    let mut queue = Fair::new(config, |_| CountsRefusals(0, Backlog::default()));
    let mut offer = |flow, len, id| {
        let packet = Packet { meta: Meta::new(len, flow), payload: id };
        queue.enqueue(Time::ZERO, packet, &mut ())
    };
    // The fourth packet exceeds the three that fit, and so does the fifth, of another flow.
    let admits = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4)].map(|(flow, id)| offer(flow, 100, id));
    let (in_, out) = (Admit::Queued, Admit::Refused);
    assert_eq!(admits, [in_, in_, in_, out, out]);
    assert_eq!((queue.flows[1].aqm.0, queue.flows[2].aqm.0), (1, 1));
    assert_eq!(queue.flows[1].aqm.1, Backlog { packets: 3, bytes: 300 });
    let _ = queue.dequeue(Time::ZERO, &mut ());
    // A limit of one packet, and one of 800 bytes.
    let mut offer = |len, id| {
        let packet = Packet { meta: Meta::new(len, 3), payload: id };
        queue.enqueue(Time::ZERO, packet, &mut ())
    };
    assert_eq!([offer(801, 5), offer(800, 6)], [out, in_]);
    assert_eq!(queue.stats().dropped_enqueue.packets, 3);
}
