//! Admission by rule, by example and in any order.

use proptest::prelude::*;
use underload_aqm::rng::Rng;

use super::*;

const GBIT: u64 = 1_000_000_000;
const SECOND: Span = Span::from_secs(1);

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// An admission with servers of one gigabit that are alive.
fn admission(servers: u32, rules: Rules) -> Admission {
    let mut admission = Admission::new(rules);
    for _ in 0..servers {
        let server = admission.add_server(GBIT);
        admission.heartbeat(Time::ZERO, server);
    }
    admission
}

/// A loaded run of 10 s at 100 Mbit/s up.
fn run(line: u32, segment: u32) -> Request {
    Request {
        line: LineId(line),
        segment: SegmentId(segment),
        is_loaded: true,
        up_bit_per_s: 100_000_000,
        down_bit_per_s: 1_000_000,
        lasts: SECOND * 10,
    }
}

#[test]
fn concurrent_requests_for_one_server_are_admitted_up_to_its_capacity() {
    let mut admission = admission(1, Rules::default());
    let mut rng = Rng::new(1);
    let asked = (0..64).map(|line| admission.reserve(at(1), &run(line, line), &mut rng));
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked.iter().filter(|it| it.is_ok()).count(), 10);
    assert!(asked[10..].iter().all(|it| *it == Err(Refusal::ServersFull)));
    assert_eq!(admission.servers()[0].reserved.up, GBIT);
}

#[test]
fn a_reservation_is_complete_or_refused_with_a_reason() {
    let mut admission = admission(1, Rules::default());
    let mut rng = Rng::new(1);
    let mut ask = |request: Request| admission.reserve(at(1), &request, &mut rng);
    assert!(ask(run(1, 7)).is_ok());
    assert_eq!(ask(run(1, 8)), Err(Refusal::LineBusy));
    assert_eq!(ask(run(2, 7)), Err(Refusal::SegmentBusy));
    // A neighbour may still measure latency alone.
    assert!(ask(Request { is_loaded: false, up_bit_per_s: 40_000, ..run(2, 7) }).is_ok());
    let down = Request { down_bit_per_s: GBIT - 1_999_999, ..run(3, 9) };
    assert_eq!(ask(down), Err(Refusal::ServersFull), "up has room, down has not");
    assert_eq!(ask(Request { up_bit_per_s: GBIT + 1, ..run(4, 4) }), Err(Refusal::TooLarge));
    // Refused requests reserved nothing: their lines and segments are free.
    assert!(ask(run(3, 9)).is_ok() && ask(run(4, 4)).is_ok());
    assert_eq!(admission.leases(), 4);
}

#[test]
fn a_vanished_lines_reservation_is_freed_when_its_lease_expires() {
    let mut admission = admission(1, Rules::default());
    let mut rng = Rng::new(1);
    let lease = admission.reserve(at(1), &run(1, 7), &mut rng).expect("room");
    assert_eq!(lease.expires, at(1 + 10 + 15));
    let ask = |admission: &mut Admission, seconds, line| {
        admission.heartbeat(at(seconds), ServerId(0));
        admission.reserve(at(seconds), &run(line, 7), &mut Rng::new(1)).map(|lease| lease.id)
    };
    assert_eq!(ask(&mut admission, 25, 2), Err(Refusal::SegmentBusy));
    let second = ask(&mut admission, 26, 1).expect("all is free");
    assert_ne!(second, lease.id);
    // A late release does not change the present leases.
    assert!(!admission.release(lease.id) && !admission.release(LeaseId(99)));
    assert_eq!(ask(&mut admission, 27, 3), Err(Refusal::SegmentBusy));
    assert!(admission.release(second) && !admission.release(second));
    assert_eq!(admission.servers()[0].reserved.up, 0);
}

#[test]
fn a_silent_server_gets_no_leases() {
    let mut admission = Admission::new(Rules::default());
    let mut rng = Rng::new(1);
    assert_eq!(admission.reserve(at(0), &run(1, 1), &mut rng), Err(Refusal::NoServer));
    let servers = [0; 2].map(|_| admission.add_server(GBIT));
    assert_eq!(admission.reserve(at(0), &run(1, 1), &mut rng), Err(Refusal::NoServer));
    admission.heartbeat(at(5), servers[1]);
    admission.heartbeat(at(5), ServerId(77));
    for (seconds, line) in [(6, 1), (35, 2)] {
        let lease = admission.reserve(at(seconds), &run(line, line), &mut rng).expect("room");
        assert_eq!(lease.server, servers[1]);
    }
    assert_eq!(admission.reserve(at(36), &run(3, 3), &mut rng), Err(Refusal::NoServer));
}

#[test]
fn few_random_choices_balance_the_load() {
    let mut admission = admission(100, Rules::default());
    let mut rng = Rng::new(1);
    for line in 0..500 {
        admission.reserve(at(1), &run(line, line), &mut rng).expect("half of it is free");
    }
    let used: Vec<u64> = admission.servers().iter().map(|server| server.reserved.up).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(*least >= 300_000_000 && *most <= 700_000_000, "{least} to {most}");
}

#[derive(Debug, Clone)]
enum Step {
    Ask(u32, u32, bool, u64, u64),
    Release(usize),
    Wait(u64),
    Hear(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u32, 0..4_u32, any::<bool>(), 0..2 * GBIT, 0..2 * GBIT)
            .prop_map(|(line, segment, loads, up, down)| Step::Ask(line, segment, loads, up, down)),
        2 => (0..40_usize).prop_map(Step::Release),
        1 => (0..40_u64).prop_map(Step::Wait),
        1 => (0..4_u32).prop_map(Step::Hear),
    ]
}

proptest! {
    /// Any order of requests, releases and expiries reserves nothing twice, and in the end
    /// everything is free.
    #[test]
    fn no_capacity_is_reserved_twice(
        steps in prop::collection::vec(step(), 1..200),
        limit in 1..3_u32,
    ) {
        let rules = Rules { loaded_per_segment: Some(limit), ..Rules::default() };
        let mut admission = admission(3, rules);
        let (mut rng, mut now) = (Rng::new(1), Time::ZERO);
        let mut given = Vec::new();
        for step in steps {
            match step {
                Step::Ask(line, segment, is_loaded, up, down) => {
                    let request = Request {
                        is_loaded, up_bit_per_s: up, down_bit_per_s: down, ..run(line, segment)
                    };
                    admission.expire(now);
                    let before = admission.leases();
                    let outcome = admission.reserve(now, &request, &mut rng);
                    prop_assert_eq!(admission.leases(), before + usize::from(outcome.is_ok()));
                    given.extend(outcome.map(|lease| lease.id));
                }
                // Some are released twice, or after they expired.
                Step::Release(place) => {
                    if let Some(id) = given.get(place) {
                        admission.release(*id);
                    }
                }
                Step::Wait(seconds) => now += SECOND * seconds,
                Step::Hear(server) => admission.heartbeat(now, ServerId(server)),
            }
            for server in admission.servers() {
                prop_assert!(server.reserved.up.max(server.reserved.down) <= GBIT);
            }
            for segment in 0..4 {
                prop_assert!(admission.loaded_in(SegmentId(segment)) <= limit);
            }
        }
        admission.expire(Time::MAX);
        prop_assert_eq!(admission.leases(), 0);
        let is_free = |server: &ServerLoad| server.reserved == Rates::default();
        prop_assert!(admission.servers().iter().all(is_free));
        prop_assert!((0..4).all(|segment| admission.loaded_in(SegmentId(segment)) == 0));
    }
}
