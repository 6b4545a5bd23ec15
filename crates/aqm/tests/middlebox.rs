//! What a link changes in the packets that it delivers, and what it leaves alone.

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// What a link told of its packets.
#[derive(Default)]
struct Told {
    lost: Vec<usize>,
    marked: Vec<usize>,
}

impl Observer<usize> for Told {
    fn dropped(&mut self, _now: Time, packet: Packet<usize>, reason: DropReason) {
        assert_eq!(reason, DropReason::Loss);
        self.lost.push(packet.payload);
    }

    fn marked(&mut self, _now: Time, packet: &Packet<usize>, reason: MarkReason) {
        assert_eq!((packet.meta.ecn, reason), (Ecn::Ce, MarkReason::Link));
        self.marked.push(packet.payload);
    }
}

/// A packet whose DSCP and ECN fields together are the `tos` byte.
fn packet(id: usize, tos: u8) -> Packet<usize> {
    let (dscp, ecn) = (Dscp::from_tos(tos), Ecn::from_bits(tos));
    Packet { meta: Meta { dscp, ecn, ..Meta::new(1_000, 0) }, payload: id }
}

const fn tos(meta: &Meta) -> u8 {
    meta.dscp.value() << 2 | meta.ecn.bits()
}

/// Sends packets of these fields, one each millisecond; the fields on arrival, by packet.
fn deliver(spec: &str, sent: &[u8]) -> (Vec<(usize, u8)>, Told) {
    let setup = LinkSetup::parse(spec).expect(spec);
    let queue = QueueSetup::parse("fifo", &LinkFacts::default()).expect("a queue");
    let rng = Rng::new(4);
    let mut link = setup.build::<usize>(queue.build(&rng), &rng);
    let (mut told, mut arrived) = (Told::default(), Vec::new());
    for (id, byte) in sent.iter().enumerate() {
        link.send(Time::from_millis(id as u64), packet(id, *byte), &mut told);
    }
    let end = Time::from_millis(sent.len() as u64) + Span::from_secs(1);
    while let Some((_, packet)) = link.poll(end, &mut told) {
        assert_eq!(packet.meta.len, 1_000, "{spec}: a length");
        arrived.push((packet.payload, tos(&packet.meta)));
    }
    assert_eq!(arrived.len() + told.lost.len(), sent.len(), "{spec}: a packet vanished");
    (arrived, told)
}

#[test]
fn marks_fall_on_ect_packets_alone_with_the_probability_asked_for() {
    let sent: Vec<u8> = (0..40_000_u32).map(|id| id as u8).collect();
    let (arrived, told) = deliver("1gbit:mark=10%,loss=20%,overhead=18B", &sent);
    assert!(arrived.is_sorted());
    let mut capable = 0;
    for (id, byte) in &arrived {
        let was = Ecn::from_bits(sent[*id]);
        let is_marked = told.marked.binary_search(id).is_ok();
        let expected = if is_marked { sent[*id] | 3 } else { sent[*id] };
        assert_eq!(*byte, expected, "packet {id}");
        assert!(!is_marked || matches!(was, Ecn::Ect0 | Ecn::Ect1), "{was:?} was marked");
        capable += u32::from(matches!(was, Ecn::Ect0 | Ecn::Ect1));
    }
    // 20 % of 40,000 are lost, half of the rest is ECT: 16,000 draws, whose deviation is 38.
    assert!((15_700..16_300).contains(&capable), "{capable}");
    assert!((1_450..1_750).contains(&told.marked.len()), "{}", told.marked.len());
    assert!(told.marked.iter().all(|id| !told.lost.contains(id)), "a lost packet was marked");
}

#[test]
fn certain_marks_are_all_and_none_are_none() {
    let sent = [0, 1, 2, 3];
    let fields = |spec: &str| deliver(spec, &sent).0.iter().map(|(_, tos)| *tos).collect();
    let (all, none): (Vec<u8>, Vec<u8>) = (fields("1gbit:mark=100%"), fields("1gbit:mark=0%"));
    assert_eq!((all, none), (vec![0, 3, 3, 3], vec![0, 1, 2, 3]));
}

#[test]
fn marking_shifts_no_other_random_number() {
    let sent = [1; 2_000];
    let ids = |spec: &str| deliver(spec, &sent).0.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let without = ids("1gbit:loss=30%,jitter=9ms,jitter-order=free");
    assert_eq!(ids("1gbit:loss=30%,jitter=9ms,jitter-order=free,mark=50%"), without);
}
