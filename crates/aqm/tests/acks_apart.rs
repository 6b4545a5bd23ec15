//! TCP acknowledgements in a separate queue of a cable modem (`acks=apart` of a `docsis` link),
//! in virtual time.

use proptest::prelude::*;
use underload_aqm::link::Link;
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{DropReason, Observer};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

const TOKENS: &str = "docsis:rate=2mbit,burst=9kB,peak=7mbit";
/// Boundaries every 2 ms, grants 3 ms after them, sent at 40 Mbit/s: 1000 bytes in 200 us.
const GRANTS: &str = "docsis:rate=20mbit,peak=40mbit,map=2ms,grant=3ms";
/// Grants of at most 500 bytes.
const FRAGMENTS: &str = "docsis:rate=2mbit,peak=2mbit,map=2ms,grant=3ms";
const LINKS: [&str; 4] =
    [TOKENS, GRANTS, FRAGMENTS, "docsis:generation=2.0,rate=2mbit,peak=7mbit,busy=30%"];
const QUEUES: [&str; 5] =
    ["fifo:limit=9kB", "buffer-control:24KiB", "docsis-pie", "codel", "fq-codel"];

#[derive(Default)]
struct Log {
    /// Numbers of the packets by start of transmission, with that start.
    sent: Vec<(usize, Time)>,
    dropped: Vec<(usize, DropReason)>,
}

impl Observer<usize> for Log {
    fn dropped(&mut self, _now: Time, packet: Packet<usize>, reason: DropReason) {
        self.dropped.push((packet.payload, reason));
    }

    fn transmitted(&mut self, start: Time, _end: Time, packet: &Packet<usize>) {
        self.sent.push((packet.payload, start));
    }
}

fn link(spec: &str, queue: &str) -> Link<usize> {
    let setup = LinkSetup::parse(spec).expect(spec);
    let queue = QueueSetup::parse(queue, &setup.facts()).expect(queue);
    let rng = Rng::new(11);
    setup.build(queue.build(&rng), &rng)
}

fn packet(id: usize, len: u32, is_pure_ack: bool) -> Packet<usize> {
    Packet { meta: Meta { is_pure_ack, ..Meta::new(len, 0) }, payload: id }
}

fn drain(link: &mut Link<usize>, log: &mut Log) {
    while let Some(event) = link.next_event() {
        while link.poll(event, log).is_some() {}
    }
}

/// Sends packets (gap in microseconds, bytes, acknowledgement), and polls every `every` as well.
fn outcome(spec: &str, queue: &str, script: &[(u64, u32, bool)], every: Option<Span>) -> Log {
    let (mut link, mut log) = (link(spec, queue), Log::default());
    let (mut now, mut polled) = (Time::ZERO, Time::ZERO);
    for (id, &(gap_us, len, is_ack)) in script.iter().enumerate() {
        now += Span::from_micros(gap_us);
        while let Some(every) = every.filter(|every| polled + *every < now) {
            polled += every;
            while link.poll(polled, &mut log).is_some() {}
        }
        link.send(now, packet(id, len, is_ack), &mut log);
    }
    drain(&mut link, &mut log);
    assert!(link.queue().backlog().is_empty(), "{spec}");
    let stats = link.queue().stats();
    assert_eq!(stats.offered.packets, script.len() as u64, "{spec}");
    assert_eq!(stats.sent.packets, log.sent.len() as u64, "{spec}");
    log
}

#[test]
fn acknowledgements_overtake_data_and_keep_their_order() {
    let mut script = vec![(0, 1_000, false); 6];
    script.extend([(0, 52, true), (0, 64, true), (0, 1_000, false), (0, 52, true)]);
    for spec in [TOKENS, GRANTS] {
        let behind: Vec<_> = (0..10).collect();
        let order = |log: Log| log.sent.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(order(outcome(spec, "fifo", &script, None)), behind, "{spec}");
        let apart = order(outcome(&format!("{spec},acks=apart"), "fifo", &script, None));
        assert_eq!(apart, [6, 7, 9, 0, 1, 2, 3, 4, 5, 8], "{spec}");
    }
}

#[test]
fn an_acknowledgement_waits_for_its_own_grant_and_counts_in_requests() {
    let (mut link, mut log) = (link(&format!("{GRANTS},acks=apart"), "fifo"), Log::default());
    link.send(Time::from_micros(300), packet(0, 52, true), &mut log);
    link.send(Time::from_micros(300), packet(1, 1_000, false), &mut log);
    drain(&mut link, &mut log);
    // Requested at 2 ms; 52 bytes take 10.4 us.
    assert_eq!(log.sent, [(0, Time::from_micros(5_000)), (1, Time::from_nanos(5_010_400))]);
    let mut requested = 0;
    link.gauges(&mut |name, value| {
        if name == "grants.requested_bytes" {
            requested = value as u64;
        }
    });
    assert_eq!(requested, 1_052);
}

#[test]
fn the_rest_of_a_packet_that_is_partly_sent_leaves_first() {
    let (mut link, mut log) = (link(&format!("{FRAGMENTS},acks=apart"), "fifo"), Log::default());
    link.send(Time::ZERO, packet(0, 1_400, false), &mut log);
    link.send(Time::ZERO, packet(1, 1_400, false), &mut log);
    // The first grant begins at 3 ms with 500 of the 1400 bytes.
    drain_until(&mut link, &mut log, Time::from_millis(4));
    link.send(Time::from_millis(4), packet(2, 52, true), &mut log);
    drain(&mut link, &mut log);
    let order: Vec<_> = log.sent.iter().map(|(id, _)| *id).collect();
    assert_eq!(order, [0, 2, 1]);
}

fn drain_until(link: &mut Link<usize>, log: &mut Log, until: Time) {
    while let Some(event) = link.next_event().filter(|event| *event <= until) {
        while link.poll(event, log).is_some() {}
    }
}

#[test]
fn each_queue_has_its_own_limit() {
    let mut script = vec![(0, 52, true); 12];
    script.extend(vec![(0, 1_000, false); 4]);
    let spec = format!("{GRANTS},acks=apart,acks-limit=520B");
    let log = outcome(&spec, "fifo:limit=3000B", &script, None);
    let full = DropReason::Overlimit;
    assert_eq!(log.dropped, [(10, full), (11, full), (15, full)]);
}

#[test]
fn contradictions_are_refused_by_name() {
    let error = LinkSetup::parse(&format!("{GRANTS},acks-limit=9kB")).expect_err("no queue");
    assert!(error.to_string().contains("`acks=apart` with it"), "{error}");
    let facts = LinkSetup::parse(&format!("{GRANTS},acks=apart")).expect("a link").facts();
    let error = QueueSetup::parse("docsis-lld", &facts).expect_err("two flows");
    assert!(error.to_string().contains("`acks=apart`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn acknowledgements_are_packets_like_others_unless_they_are_apart(
        script in prop::collection::vec((0_u64..3_000, 40_u32..1_500, any::<bool>()), 1..120),
    ) {
        let plain: Vec<_> = script.iter().map(|(gap, len, _)| (*gap, *len, false)).collect();
        for spec in LINKS {
            for queue in QUEUES.into_iter().chain(["docsis-lld", "cake"]) {
                let (marked, plain) =
                    (outcome(spec, queue, &script, None), outcome(spec, queue, &plain, None));
                prop_assert_eq!(marked.sent, plain.sent, "{} {}", queue, spec);
                prop_assert_eq!(marked.dropped, plain.dropped, "{} {}", queue, spec);
            }
        }
    }

    /// Acknowledgements use a part of an upstream that is not full, and not the grants of others.
    #[test]
    fn a_steady_stream_of_acknowledgements_does_not_stop_other_packets(
        (map_us, grant_us) in (300_u64..4_000, 135_u64..9_000),
        request in prop::sample::select(vec![
            "contention-start", "contention-random", "contention-only",
        ]),
        freed in prop::sample::select(vec!["grant", "preparation"]),
        outstanding in prop::sample::select(vec!["many", "one,max-burst=16kB"]),
        (busy, gap_us) in (0_u64..=40, 150_u64..600),
    ) {
        let mut script = Vec::new();
        for _ in 0..40 {
            script.push((0, 64, false));
            script.extend(vec![(gap_us, 64, true); 60]);
        }
        let spec = format!(
            "docsis:rate=40mbit,peak=40mbit,map={map_us}us,grant={grant_us}us,request={request},\
             freed={freed},outstanding={outstanding},busy={busy}%,busy-variation={busy}%"
        );
        let longest = |spec: &str| {
            let (log, mut arrived, mut now) = (outcome(spec, "fifo", &script, None), vec![], 0);
            for (gap_us, ..) in &script {
                now += gap_us;
                arrived.push(Time::from_micros(now));
            }
            let data = log.sent.iter().filter(|(id, _)| !script[*id].2);
            data.map(|(id, start)| start.since(arrived[*id])).max().expect("data")
        };
        let (one, apart) = (longest(&spec), longest(&format!("{spec},acks=apart")));
        let more = Span::from_micros(2 * map_us);
        prop_assert!(apart <= one + more, "{}: {} against {}", spec, apart, one);
    }

    #[test]
    fn every_packet_leaves_once_or_is_dropped_and_both_kinds_keep_their_order(
        script in prop::collection::vec((0_u64..3_000, 40_u32..1_500, any::<bool>()), 1..120),
    ) {
        for spec in LINKS.map(|spec| format!("{spec},acks=apart,acks-limit=2kB")) {
            for queue in QUEUES {
                let log = outcome(&spec, queue, &script, None);
                let polled = outcome(&spec, queue, &script, Some(Span::from_nanos(777_777)));
                prop_assert_eq!(&polled.sent, &log.sent, "{} {}", queue, &spec);
                let mut ids: Vec<_> = log.sent.iter().map(|(id, _)| *id).collect();
                for is_ack in [true, false] {
                    let of_kind = ids.iter().filter(|id| script[**id].2 == is_ack);
                    prop_assert!(of_kind.is_sorted(), "{} {}", queue, &spec);
                }
                ids.extend(log.dropped.iter().map(|(id, _)| *id));
                ids.sort_unstable();
                prop_assert!(ids.into_iter().eq(0..script.len()), "{} {}", queue, &spec);
            }
        }
    }
}
