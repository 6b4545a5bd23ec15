//! The fields of delivered packets that a link changes, and those that it leaves alone.

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::remark::Rules;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// The packets that a link reported.
#[derive(Default)]
struct Recorder {
    lost: Vec<usize>,
    marked: Vec<usize>,
    /// Packets changed, by rule.
    remarked: [Vec<usize>; Rules::MOST],
}

impl Observer<usize> for Recorder {
    fn dropped(&mut self, _now: Time, packet: Packet<usize>, reason: DropReason) {
        assert_eq!(reason, DropReason::Loss);
        self.lost.push(packet.payload);
    }

    fn marked(&mut self, _now: Time, packet: &Packet<usize>, reason: MarkReason) {
        assert_eq!((packet.meta.ecn, reason), (Ecn::Ce, MarkReason::Link));
        self.marked.push(packet.payload);
    }

    fn remarked(&mut self, _now: Time, packet: &Packet<usize>, rule: usize) {
        self.remarked[rule].push(packet.payload);
    }
}

/// A packet whose DSCP and ECN fields together are the `tos` byte.
fn packet(id: usize, tos: u8) -> Packet<usize> {
    let (dscp, ecn) = (Dscp::from_tos(tos), Ecn::from_bits(tos));
    Packet { meta: Meta { dscp, ecn, ..Meta::new(1_000, 0) }, payload: id }
}

/// Sends packets with these fields, one per millisecond. Returns the fields on arrival, by packet.
fn deliver(spec: &str, sent: &[u8]) -> (Vec<(usize, u8)>, Recorder) {
    let setup = LinkSetup::parse(spec).expect(spec);
    let queue = QueueSetup::parse("fifo", &LinkFacts::default()).expect("a queue");
    let rng = Rng::new(4);
    let mut link = setup.build::<usize>(queue.build(&rng), &rng);
    let (mut told, mut arrived) = (Recorder::default(), Vec::new());
    for (id, byte) in sent.iter().enumerate() {
        link.send(Time::from_millis(id as u64), packet(id, *byte), &mut told);
    }
    let end = Time::from_millis(sent.len() as u64) + Span::from_secs(1);
    while let Some((_, packet)) = link.poll(end, &mut told) {
        assert_eq!(packet.meta.len, 1_000, "{spec}: a length");
        arrived.push((packet.payload, packet.meta.tos()));
    }
    assert_eq!(arrived.len() + told.lost.len(), sent.len(), "{spec}: a packet vanished");
    (arrived, told)
}

#[test]
fn only_ect_packets_are_marked_with_the_requested_probability() {
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
    // Of 40,000 packets 20 % are lost, and half of the rest is ECT: 16,000 draws with a deviation
    // of 38.
    assert!((15_700..16_300).contains(&capable), "{capable}");
    assert!((1_450..1_750).contains(&told.marked.len()), "{}", told.marked.len());
    assert!(told.marked.iter().all(|id| !told.lost.contains(id)), "a lost packet was marked");
}

#[test]
fn probability_one_marks_all_packets_and_zero_marks_none() {
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

#[test]
fn every_middlebox_profile_changes_its_field() {
    for (profile, changed) in [
        ("comcast-edge", &[(40, 45), (46, 45), (56, 45)][..]),
        ("peer-45", &[(45, 0)]),
        ("wifi", &[(45, 40), (46, 40), (10, 8), (63, 56)]),
    ] {
        let sent: Vec<u8> = (0..=255).collect();
        let (arrived, told) = deliver(&format!("1gbit:remark={profile}"), &sent);
        for (id, byte) in arrived {
            let expected = match changed.iter().find(|(from, _)| *from == id >> 2) {
                Some((_, to)) => to << 2 | id & 3,
                None if profile == "wifi" => id & 0xe3,
                None => id,
            };
            assert_eq!(usize::from(byte), expected, "{profile}: {id}");
            assert_eq!(told.remarked[0].contains(&id), expected != id, "{profile}: {id}");
        }
    }
    let (arrived, told) = deliver("1gbit:remark=home-bleach", &[0, 1, 45 << 2, 0xff]);
    assert!(arrived.iter().all(|(_, byte)| *byte == 0), "{arrived:?}");
    assert_eq!(told.remarked[0], [1, 2, 3], "a packet without markings is not counted");
}

#[test]
fn rules_follow_each_other_and_come_after_marks() {
    // The link sets CE, and then rules change CE to ECT(1), ECT(1) to Not-ECT, and Not-ECT to
    // ECT(0).
    let spec = "1gbit:mark=100%,remark=ecn:ce>ect1+ecn:ect1>not-ect+ecn:not-ect>ect0";
    let (arrived, told) = deliver(spec, &[0, 1, 2, 3]);
    assert!(arrived.iter().all(|(_, byte)| *byte == 2), "{arrived:?}");
    assert_eq!(told.marked, [1, 2]);
    assert_eq!(told.remarked[..3], [vec![1, 2, 3], vec![1, 2, 3], vec![0, 1, 2, 3]]);
    // Two rules that undo each other: both count the packet, which is unchanged.
    let (arrived, told) = deliver("1gbit:remark=dscp:45>0+dscp:0>45", &[45 << 2, 0]);
    assert_eq!(arrived, [(0, 45 << 2), (1, 45 << 2)]);
    assert_eq!(told.remarked[..2], [vec![0], vec![0, 1]]);
}

#[test]
fn a_share_is_of_the_delivered_packets_and_shifts_no_other_random_number() {
    let sent = vec![45 << 2; 20_000];
    let spec = "1gbit:loss=10%,jitter=9ms,jitter-order=free";
    let ids = |arrived: &[(usize, u8)]| arrived.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let (plain, _) = deliver(spec, &sent);
    let parts = format!("{spec},remark=dscp:45>0@0%..30%+dscp:45>46@30%..50%");
    let (arrived, told) = deliver(&parts, &sent);
    assert_eq!(ids(&arrived), ids(&plain));
    // Deviations of about 18,000 draws: 61 and 54.
    let [zero, other] = [0, 46 << 2].map(|tos| arrived.iter().filter(|a| a.1 == tos).count());
    assert!((5_100..5_700).contains(&zero) && (3_300..3_900).contains(&other), "{zero} {other}");
    assert_eq!([zero, other], [told.remarked[0].len(), told.remarked[1].len()]);
    let lost: Vec<_> = told.lost.iter().filter(|id| told.remarked[0].contains(id)).collect();
    assert!(lost.is_empty(), "lost packets are not remarked");
}

#[test]
fn a_spec_prints_all_rules_and_errors_name_them() {
    let setup = LinkSetup::parse("20mbit:remark=peer-45+ecn:bleach@0%..30%").expect("a link");
    assert_eq!(setup.rule_names(), ["dscp:45>0", "ecn:bleach@0..0.3"]);
    let cellular = LinkSetup::parse("unlimited:remark=peer-45").expect("a link");
    assert_eq!(cellular.label.to_string(), "unlimited:remark=dscp:45>0");
    let error = LinkSetup::parse("20mbit:remark=peer-45+dscp:70>0").expect_err("no codepoint");
    let expected = "`rate`: in `remark`: rule 2, `dscp:70>0`: expected dscp:A>B with 0 to 63";
    assert!(error.to_string().starts_with(expected), "{error}");
}
