//! CAKE's parts together: shares, order and victims of an overflow.

use super::*;
use crate::config::LinkFacts;
use crate::packet::{Dscp, Meta};
use crate::registry::{QueueConfig, QueueSetup};
use crate::time::Span;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

fn cake(spec: &str) -> Cake<u32> {
    let setup = QueueSetup::parse(spec, &LinkFacts::UNKNOWN).expect(spec);
    let QueueConfig::Cake(config) = setup.config else { panic!("{spec} is not CAKE") };
    Cake::new(config, &Rng::new(1))
}

/// A packet whose payload is `kind`.
fn packet(kind: u32, meta: Meta) -> Packet<u32> {
    Packet { meta, payload: kind }
}

fn of_dscp(len: u32, flow: u32, dscp: u8) -> Meta {
    Meta { dscp: Dscp::new(dscp).expect("a codepoint"), ..Meta::new(len, flow) }
}

/// Keeps 20 packets of each of `kinds` queued, sends `count`, one every `gap`, and counts them by
/// kind.
fn shares(cake: &mut Cake<u32>, kinds: &[(u32, Meta)], count: u32, gap: Span) -> Vec<u32> {
    let mut sent = BTreeMap::new();
    for (kind, meta) in kinds {
        sent.insert(*kind, 0);
        (0..20).for_each(|_| {
            cake.enqueue(Time::ZERO, packet(*kind, *meta), &mut ());
        });
    }
    let mut now = Time::ZERO;
    let mut left = count;
    while left > 0 {
        now += gap;
        match cake.dequeue(now, &mut ()) {
            Dequeue::Packet(gone) => {
                *sent.get_mut(&gone.payload).expect("a kind") += 1;
                left -= 1;
                cake.enqueue(now, packet(gone.payload, gone.meta), &mut ());
            }
            Dequeue::NotBefore(time) => now = now.max(time - gap),
            Dequeue::Empty => panic!("empty"),
        }
    }
    sent.into_values().collect()
}

/// Host 1 has eight flows, host 2 one; each flow goes to another host.
fn two_sources() -> Vec<(u32, Meta)> {
    let flow = |number: u32| {
        let src = if number < 8 { 1 } else { 2 };
        (src, Meta { src, dst: 100 + number, ..Meta::new(1_000, number) })
    };
    (0..9).map(flow).collect()
}

#[test]
fn hosts_share_before_flows() {
    let one_second = Span::from_micros(1);
    for (isolation, expected) in [
        ("triple-isolate", [500, 500]),
        ("dual-srchost", [500, 500]),
        ("srchost", [500, 500]),
        ("dual-dsthost", [889, 111]),
        ("flows", [889, 111]),
    ] {
        let mut cake = cake(&alloc::format!("cake:isolation={isolation},rtt=100s"));
        let sent = shares(&mut cake, &two_sources(), 9_000, one_second);
        for (sent, expected) in sent.iter().zip(expected) {
            assert!((sent / 9).abs_diff(expected) < 10, "{isolation}: {sent} of 9000");
        }
    }
}

#[test]
fn destinations_are_isolated_like_sources() {
    let turned: Vec<(u32, Meta)> = two_sources()
        .into_iter()
        .map(|(kind, meta)| (kind, Meta { src: meta.dst, dst: meta.src, ..meta }))
        .collect();
    for (isolation, expected) in [
        ("triple-isolate", 4_500_u32),
        ("dual-dsthost", 4_500),
        ("dsthost", 4_500),
        ("dual-srchost", 1_000),
    ] {
        let mut cake = cake(&alloc::format!("cake:isolation={isolation},rtt=100s"));
        let sent = shares(&mut cake, &turned, 9_000, Span::from_micros(1))[1];
        assert!(sent.abs_diff(expected) < 90, "{isolation}: {sent} of 9000");
    }
}

#[test]
fn each_pair_of_hosts_is_a_flow() {
    let mut cake = cake("cake:isolation=hosts,rtt=100s");
    let pair = |number: u32, dst: u32| (dst, Meta { src: 1, dst, ..Meta::new(1_000, number) });
    let kinds: Vec<_> = (0..3).map(|number| pair(number, 4)).chain([pair(3, 6)]).collect();
    let sent = shares(&mut cake, &kinds, 1_000, Span::from_micros(1));
    assert!(sent[0].abs_diff(500) < 10, "{sent:?}");
}

/// Best effort, background, video and voice, all with more packets than their share.
fn four_classes() -> [(u32, Meta); 4] {
    [(0, 0), (1, 8), (2, 34), (3, 46)]
        .map(|(kind, dscp)| (kind, of_dscp(1_250, u32::from(dscp), dscp)))
}

#[test]
fn shaped_tins_get_their_share_of_the_rate_and_best_effort_the_rest() {
    let mut cake = cake("cake:rate=10mbit,tins=diffserv4,rtt=100s");
    let sent = shares(&mut cake, &four_classes(), 10_000, Span::from_millis(1));
    // Shares 1/4 voice, 1/2 video, 1/16 background.
    for (sent, expected) in sent.iter().zip([1_875_u32, 625, 5_000, 2_500]) {
        assert!(sent.abs_diff(expected) < 20, "{sent} for {expected}");
    }
}

#[test]
fn tins_without_a_shaper_take_turns_by_weight() {
    let mut cake = cake("cake:tins=diffserv4,rtt=100s");
    let sent = shares(&mut cake, &four_classes(), 18_560, Span::from_micros(1));
    // Weights 1024 : 64 : 512 : 256.
    for (sent, expected) in sent.iter().zip([10_240_u32, 640, 5_120, 2_560]) {
        assert!(sent.abs_diff(expected) < 40, "{sent} for {expected}");
    }
}

#[test]
fn a_sparse_flow_passes_a_bulk_flow() {
    let mut cake = cake("cake");
    for _ in 0..10 {
        cake.enqueue(Time::ZERO, packet(1, Meta::new(1_500, 1)), &mut ());
    }
    for _ in 0..3 {
        let _ = cake.dequeue(Time::ZERO, &mut ());
    }
    cake.enqueue(Time::ZERO, packet(2, Meta::new(100, 2)), &mut ());
    let next = cake.dequeue(Time::ZERO, &mut ());
    assert!(matches!(next, Dequeue::Packet(packet) if packet.payload == 2));
}

/// At 10 Mbit/s, 1250 bytes take 1 ms, 1.0304 ms with 38 bytes of overhead, and with ATM cells the
/// time of 27 times 53 bytes.
#[test]
fn the_shaper_spaces_what_the_line_charges() {
    for (options, gap_ns) in [
        ("", 1_000_000),
        (",overhead=38B", 1_030_400),
        (",mpu=256B", 1_000_000),
        (",framing=atm", 27 * 53 * 800),
        (",framing=ptm", 1_270 * 800),
    ] {
        let mut cake = cake(&alloc::format!("cake:rate=10mbit{options}"));
        for _ in 0..2 {
            cake.enqueue(Time::ZERO, packet(0, Meta::new(1_250, 1)), &mut ());
        }
        assert!(matches!(cake.dequeue(Time::ZERO, &mut ()), Dequeue::Packet(_)));
        let Dequeue::NotBefore(time) = cake.dequeue(Time::ZERO, &mut ()) else {
            panic!("{options}: not shaped")
        };
        assert_eq!(time.as_nanos(), gap_ns, "{options}");
        assert!(matches!(cake.dequeue(time, &mut ()), Dequeue::Packet(_)));
    }
}

/// Offers 20 Mbit/s for `seconds`. Returns the bytes sent and the number of packets dropped.
fn overloaded(spec: &str, seconds: u64) -> (u64, u64) {
    let mut cake = cake(spec);
    for half_ms in 0..seconds * 2_000 {
        let now = Time::from_micros(500 * half_ms);
        cake.enqueue(now, packet(0, Meta::new(1_250, half_ms as u32 % 4)), &mut ());
        while let Dequeue::Packet(_) = cake.dequeue(now, &mut ()) {}
    }
    let stats = cake.stats();
    (stats.sent.bytes, stats.dropped_enqueue.bytes + stats.dropped_dequeue.bytes)
}

#[test]
fn in_ingress_mode_a_dropped_packet_costs_transmission_time() {
    let (sent, _) = overloaded("cake:rate=10mbit,memory=100000B", 20);
    assert!(sent.abs_diff(25_000_000) < 10_000, "{sent}");
    let (sent, dropped) = overloaded("cake:rate=10mbit,memory=100000B,ingress=on", 20);
    assert!(dropped > 0);
    // Dropped packets are charged, too, and still two thirds of the rate are sent.
    assert!(sent.abs_diff(16_666_667) < 50_000, "{sent}");
}

#[test]
fn an_overflow_takes_from_the_head_of_the_longest_queue() {
    let mut cake = cake("cake:memory=6000B");
    for (id, len, flow) in [(0, 1_500, 1), (1, 1_500, 1), (2, 1_000, 2), (3, 1_000, 3)] {
        assert_eq!(
            cake.enqueue(Time::ZERO, packet(id, Meta::new(len, flow)), &mut ()),
            Admit::Queued
        );
    }
    assert_eq!(cake.enqueue(Time::ZERO, packet(4, Meta::new(1_400, 4)), &mut ()), Admit::Queued);
    let mut served = Vec::new();
    while let Dequeue::Packet(packet) = cake.dequeue(Time::ZERO, &mut ()) {
        served.push(packet.payload);
    }
    served.sort_unstable();
    assert_eq!(served, [1, 2, 3, 4]);
    assert_eq!(cake.stats().dropped_enqueue.packets, 1);
    assert_eq!(cake.enqueue(Time::ZERO, packet(5, Meta::new(6_001, 9)), &mut ()), Admit::Refused);
}

#[test]
fn packets_without_bytes_are_bounded_too() {
    let mut cake = cake("cake:memory=6400B");
    for id in 0..1_000 {
        cake.enqueue(Time::ZERO, packet(id, Meta::new(0, id)), &mut ());
    }
    assert_eq!(cake.backlog(), Backlog { packets: 100, bytes: 0 });
}

/// A sender that never slows down fills the memory: BLUE begins to drop, and stops once the sender
/// has ended.
#[test]
fn blue_drops_packets_of_an_unresponsive_flow_and_stops_after_it_ends() {
    let mut cake = cake("cake:memory=100000B,tins=besteffort");
    let unresponsive = |cake: &Cake<u32>| {
        let mut value = -1.0;
        cake.gauges(&mut |name, gauge| {
            if name == "cake.unresponsive_flows" {
                value = gauge;
            }
        });
        value as i32
    };
    for ms in 0..1_000 {
        for _ in 0..3 {
            cake.enqueue(Time::from_millis(ms), packet(0, Meta::new(1_250, 1)), &mut ());
        }
        let _ = cake.dequeue(Time::from_millis(ms), &mut ());
    }
    assert_eq!(unresponsive(&cake), 1);
    for ms in 1_000..200_000 {
        cake.enqueue(Time::from_millis(ms), packet(0, Meta::new(100, 2)), &mut ());
        while let Dequeue::Packet(_) = cake.dequeue(Time::from_millis(ms), &mut ()) {}
    }
    assert_eq!(unresponsive(&cake), 0);
    assert!(cake.tins[0].flows.iter().all(|flow| flow.chain.packets() == 0));
}

/// Nine flows of one set share eight queues; nine flows of nine sets do not.
#[test]
fn only_the_ninth_flow_of_a_set_shares_a_queue() {
    for (stride, expected) in [(1_024, 8), (1_032, 9)] {
        let mut cake = cake("cake:isolation=flows");
        for number in 0..9 {
            cake.enqueue(Time::ZERO, packet(0, Meta::new(100, 8 + stride * number)), &mut ());
        }
        assert_eq!(cake.tins[0].sparse_flows, expected);
    }
}

/// Each turn draws a random number, as in Linux, and a turn has `1514 / flows` bytes.
#[test]
fn a_packet_takes_as_many_turns_as_its_host_has_bulk_flows() {
    for flows in [10_u32, 50, 200] {
        let mut cake = cake("cake");
        for id in 0..20 * flows {
            cake.enqueue(Time::ZERO, packet(id, Meta::new(1_500, id % flows)), &mut ());
        }
        let mut pass = |packets| {
            for _ in 0..packets {
                assert!(matches!(cake.dequeue(Time::ZERO, &mut ()), Dequeue::Packet(_)));
            }
            cake.rng.clone()
        };
        let (mut draws, end) = (pass(5 * flows), pass(10 * flows).next_u64());
        let mut turns = 0;
        while draws.clone().next_u64() != end {
            draws.next_u32();
            turns += 1;
        }
        let per_packet = f64::from(turns) / f64::from(10 * flows);
        assert!((0.98..1.0).contains(&(per_packet / f64::from(flows))), "{flows}: {per_packet}");
    }
}
