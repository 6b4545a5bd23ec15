//! Prober and reflector over loopback: packets are answered, recorded and marked as requested.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use underload_probe::RunClock;
use underload_probe::endpoint::{
    ProbeClass, Prober, ProberConfig, Reflector, ReflectorConfig, ReflectorCounts, Requester,
    RequesterConfig, ThreadTiming,
};
use underload_probe::session::match_replies;
use underload_probe::wire::MarkingPolicy;
use underload_record::schema::{Ecn, Marking};

const LAB: ReflectorConfig = ReflectorConfig {
    packets_per_second_max: 100_000,
    policy: MarkingPolicy::LAB,
    timing: ThreadTiming { real_time_priority: None, spin_ns: 0 },
};

fn class(name: &str, dscp: u8, ecn: Ecn) -> ProbeClass {
    ProbeClass { name: name.to_owned(), marking: Marking { dscp, ecn } }
}

fn bind(address: &str) -> Option<UdpSocket> {
    UdpSocket::bind(address).inspect_err(|e| eprintln!("SKIPPED over {address}: {e}")).ok()
}

/// Slots of 300 ms with a packet every 5 ms in each of three classes.
const SLOTS: u64 = 180;

/// Probes between sockets bound to these addresses, with `asked` as the reflector's address.
fn probe_over(near: &str, far: &str, asked: &str) {
    // A machine that is too busy for all slots skips them; then the test is repeated.
    let found = (0..20).any(|_| {
        let (Some(near), Some(far)) = (bind(near), bind(far)) else { return true };
        probe(near, far, asked)
    });
    assert!(found, "no probe was sent in twenty tries");
}

/// Returns false if no probe was sent.
fn probe(near: UdpSocket, far: UdpSocket, asked: &str) -> bool {
    let target = SocketAddr::new(asked.parse().unwrap(), far.local_addr().unwrap().port());
    let reflector = Reflector::start(vec![far], LAB).unwrap();
    let clock = RunClock::start();
    let config = ProberConfig {
        classes: vec![
            class("best-effort", 0, Ecn::NotEct),
            class("nqb", 45, Ecn::Ect1),
            class("marked", 8, Ecn::Ce),
        ],
        interval: Duration::from_millis(5),
        payload_bytes: 200,
        start_ns: 10_000_000,
        timing: LAB.timing,
        first_session: 65_535,
    };
    let markings: Vec<_> = config.classes.iter().map(|class| class.marking).collect();
    let prober = Prober::start(near, target, config, clock).unwrap();
    prober.end_at(310_000_000);
    // The prober may be late: wait until everything is sent and answered, at most five seconds,
    // which is the limit for a skipped slot.
    while clock.now_ns() < 310_000_000 {
        clock.sleep_until(310_000_000);
    }
    wait_for(|| {
        let (sent, received) = prober.progress();
        sent >= SLOTS && received >= sent
    });
    let log = prober.finish().unwrap();
    assert_eq!(log.planned, SLOTS);
    assert_eq!(log.sent.len() as u64 + log.skipped + log.refused, log.planned);
    assert_eq!((log.ignored, log.without_kernel_stamp), (0, 0));

    let collected = match_replies(&log.sent, &log.replies, 5_000_000_000, &markings, &[]);
    assert_eq!(collected.samples.is_empty(), log.sent.is_empty());
    let answered = log.replies.len() as u64;
    assert_eq!(settled(&reflector, answered).answered, answered);
    for sample in &collected.samples {
        let Some(rtt_ns) = sample.rtt_ns else { panic!("lost on loopback: {sample:?}") };
        assert_eq!(sample.marking_sent, markings[usize::from(sample.flow)]);
        assert_eq!(sample.marking_far, Some(sample.marking_sent));
        assert_eq!(sample.marking_near, Some(sample.marking_sent));
        assert!(sample.sent_ns >= sample.scheduled_ns);
        // The one-way delays add up to the round trip, except for the rounding of four time stamps
        // and for the adjustment of the wall clock between them.
        let sum = sample.one_way_up_ns.unwrap() + sample.one_way_down_ns.unwrap();
        assert!((sum - rtt_ns as i64).abs() < 100_000, "{sum} {rtt_ns}");
    }
    !log.sent.is_empty()
}

#[test]
fn probes_over_ipv4_come_back_with_their_marking() {
    probe_over("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1");
}

#[test]
fn probes_over_ipv6_come_back_with_their_marking() {
    probe_over("[::1]:0", "[::1]:0", "::1");
}

/// A server that listens on all addresses answers from the address of the request, not from the one
/// that the kernel would choose.
#[test]
#[cfg(target_os = "linux")]
fn probes_to_one_of_many_addresses_come_back_from_it() {
    probe_over("127.0.0.1:0", "0.0.0.0:0", "127.0.0.2");
}

#[test]
fn requests_follow_answers() {
    let (Some(near), Some(far)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0")) else { return };
    let target = far.local_addr().unwrap();
    let _reflector = Reflector::start(vec![far], LAB).unwrap();
    let clock = RunClock::start();
    let config = RequesterConfig {
        marking: Marking::default(),
        payload_bytes: 64,
        start_ns: 0,
        timeout: Duration::from_secs(1),
        timing: LAB.timing,
        session: 9,
    };
    let requester = Requester::start(near, target, config, clock).unwrap();
    requester.end_at(100_000_000);
    clock.sleep_until(200_000_000);
    let log = requester.finish().unwrap();
    assert!(log.sent.len() > 10, "only {} requests in 100 ms", log.sent.len());
    for pair in log.sent.windows(2) {
        let answer = log.replies.iter().find(|reply| reply.sequence == pair[0].sequence);
        assert!(answer.is_some_and(|reply| reply.received_ns <= pair[1].sent_ns));
    }
}

#[test]
fn without_a_reflector_everything_is_lost_and_nothing_hangs() {
    let Some(near) = bind("127.0.0.1:0") else { return };
    // This socket is bound and silent, so that no other program answers on its port.
    let silent = bind("127.0.0.1:0").unwrap();
    let clock = RunClock::start();
    let config = ProberConfig { timing: LAB.timing, ..ProberConfig::default() };
    let markings = [Marking::default()];
    let prober = Prober::start(near, silent.local_addr().unwrap(), config, clock).unwrap();
    clock.sleep_until(100_000_000);
    let log = prober.finish().unwrap();
    let collected = match_replies(&log.sent, &log.replies, 1_000_000, &markings, &[]);
    assert!(collected.counts[0].sent > 0);
    assert_eq!(collected.counts[0].lost, collected.counts[0].sent);
}

#[test]
fn a_reflector_limits_its_rate_and_ignores_invalid_packets() {
    let (Some(near), Some(far)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0")) else { return };
    near.connect(far.local_addr().unwrap()).unwrap();
    near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let config = ReflectorConfig { packets_per_second_max: 1, ..LAB };
    let reflector = Reflector::start(vec![far], config).unwrap();
    near.send(&[7; 60]).unwrap();
    let mut buffer = [0; 2000];
    assert_eq!(near.recv(&mut buffer).unwrap(), 60);
    near.send(&[7; 60]).unwrap();
    near.send(&[7; 60]).unwrap();
    let counts = ReflectorCounts { answered: 1, limited: 2, ..ReflectorCounts::default() };
    assert_eq!(settled(&reflector, 3), counts);

    let far = bind("127.0.0.1:0").unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    let reflector = Reflector::start(vec![far], LAB).unwrap();
    near.send(&[7; 13]).unwrap();
    near.send(&[7; 1900]).unwrap();
    near.send(&[7; 14]).unwrap();
    assert_eq!(near.recv(&mut buffer).unwrap(), 14);
    let counts = ReflectorCounts { answered: 1, malformed: 2, ..ReflectorCounts::default() };
    assert_eq!(settled(&reflector, 3), counts);
}

/// Returns the counts once `datagrams` have been processed, or after five seconds.
fn settled(reflector: &Reflector, datagrams: u64) -> ReflectorCounts {
    wait_for(|| {
        let counts = reflector.counts();
        counts.answered + counts.limited + counts.malformed + counts.refused >= datagrams
    });
    reflector.counts()
}

/// Waits for a condition, at most five seconds.
fn wait_for(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(5);
    while !condition() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
}
