//! The rules one by one, on delays that are written down.

use underload_record::schema::Phase;

use super::*;

const MS: u64 = 1_000_000;
const IDLE: PhaseWindow = PhaseWindow { phase: Phase::Idle, start_ns: 0, end_ns: 2_000 * MS };
const LOAD: PhaseWindow =
    PhaseWindow { phase: Phase::Load, start_ns: 2_000 * MS, end_ns: 7_000 * MS };

/// A queue that fills and drains twice per second, from 60 to 100 ms.
fn queue_ms(at_ms: u64) -> u64 {
    60 + (at_ms % 500) * 40 / 500
}

/// Probes every 20 ms, with the round trip in ms at each time in ms.
fn hop(hop: PathHop, round_trip_ms: impl Fn(u64) -> Option<u64>) -> HopProbes {
    let probe = |at_ms| PathProbe {
        sent_ns: at_ms * MS,
        round_trip_ns: round_trip_ms(at_ms).map(|ms| ms * MS),
    };
    let probes = (0..350).map(|slot| probe(slot * 20)).collect();
    HopProbes { hop, address: String::new(), distance: None, probes }
}

/// A hop that is delayed by the queue under load if `is_behind` it.
fn honest(kind: PathHop, base_ms: u64, is_behind: bool) -> HopProbes {
    hop(kind, |at_ms| {
        let is_late = is_behind && at_ms >= 2_000;
        Some(base_ms + if is_late { queue_ms(at_ms) } else { 0 })
    })
}

/// The path with a queue in front of the hops from this one on.
fn path(first_late: PathHop) -> ([HopProbes; 2], HopProbes) {
    let of = |kind, base_ms| honest(kind, base_ms, kind >= first_late);
    ([of(PathHop::Router, 1), of(PathHop::Provider, 10)], of(PathHop::FarEnd, 20))
}

fn located(near: &[HopProbes], far: &HopProbes) -> Location {
    located_with(near, far, &far.probes)
}

fn located_with(near: &[HopProbes], far: &HopProbes, far_echoes: &[PathProbe]) -> Location {
    let (idle, load, local_share) = (IDLE, LOAD, None);
    locate(&PathProbes { near, far, far_echoes, idle, load, local_share })
}

fn reason(location: &Location) -> &str {
    location.not_known_because.as_deref().expect("a reason")
}

#[test]
fn the_segment_in_front_of_the_first_late_hop_is_named() {
    for (first_late, segment) in [
        (PathHop::Router, PathSegment::Local),
        (PathHop::Provider, PathSegment::Access),
        (PathHop::FarEnd, PathSegment::Beyond),
    ] {
        let (near, far) = path(first_late);
        let location = located(&near, &far);
        assert_eq!(location.verdict, Some(segment), "{location:?}");
        let row = location.segments.iter().find(|it| it.covers == [segment]).unwrap();
        assert!(row.share_percent > 95.0, "{row:?}");
        let p90_ms = row.added.p90_ns as f64 / 1e6;
        assert!((p90_ms - 95.0).abs() < 3.0, "{p90_ms}");
    }
}

#[test]
fn a_router_that_is_slow_to_answer_is_not_blamed() {
    let (mut near, far) = path(PathHop::FarEnd);
    near[1] = hop(PathHop::Provider, |at_ms| Some(if at_ms < 2_000 { 10 } else { 310 }));
    let location = located(&near, &far);
    assert_eq!(location.verdict, None);
    assert_eq!(
        reason(&location),
        "access line and beyond cannot be told apart: the provider's first hop answers later than \
         the hosts behind it"
    );
    // The local network is judged as before.
    let (mut near, far) = path(PathHop::Router);
    near[1] = hop(PathHop::Provider, |at_ms| Some(if at_ms < 2_000 { 10 } else { 310 }));
    assert_eq!(located(&near, &far).verdict, Some(PathSegment::Local));
    // Enough prompt answers among slow ones show the queue.
    near[1] = hop(PathHop::Provider, |at_ms| {
        let queue_ms = if at_ms < 2_000 { 0 } else { queue_ms(at_ms) };
        Some(10 + queue_ms + if at_ms % 60 == 0 { 0 } else { 200 })
    });
    let location = located(&near, &far);
    assert!(location.hops.iter().all(|it| it.unused_because.is_none()), "{location:?}");
}

#[test]
fn silent_hops_merge_segments_and_are_named() {
    let (mut near, far) = path(PathHop::Provider);
    near[0].probes.clear();
    let location = located(&near, &far);
    assert_eq!(location.segments[0].covers, [PathSegment::Local, PathSegment::Access]);
    assert_eq!(
        reason(&location),
        "local network and access line cannot be told apart: the router does not answer"
    );
    // The segment behind the provider's first hop is found without a router.
    let (mut near, far) = path(PathHop::FarEnd);
    near[0].probes.clear();
    assert_eq!(located(&near, &far).verdict, Some(PathSegment::Beyond));
    near[1].probes.truncate(110);
    let location = located(&near, &far);
    let unused = location.hops[1].unused_because.as_deref().unwrap();
    assert!(unused.starts_with("answered only 100 probes without load and 10 of"), "{unused}");
}

#[test]
fn the_local_network_loaded_alone_replaces_a_silent_router() {
    let ([_, provider], far) = path(PathHop::Provider);
    let silent = HopProbes { probes: Vec::new(), ..honest(PathHop::Router, 1, false) };
    let near = [silent, provider];
    let (far_echoes, idle, load) = (&far.probes, IDLE, LOAD);
    let judged = |local_share| {
        locate(&PathProbes { near: &near, far: &far, far_echoes, idle, load, local_share })
    };
    for (local_share, verdict) in [
        (None, None),
        (Some(0.1), Some(PathSegment::Access)),
        (Some(0.69), Some(PathSegment::Access)),
        (Some(0.8), None),
        (Some(0.95), Some(PathSegment::Local)),
        // The peer is slower than the line, by its own interface or processor.
        (Some(1.6), None),
    ] {
        let location = judged(local_share);
        assert_eq!(location.verdict, verdict, "{local_share:?}: {location:?}");
        assert!(verdict.is_none_or(|it| location.segments[0].covers == [it]));
    }
    // Echoes that wait in a local network which carries ten times the load prove nothing.
    let (near, far) = path(PathHop::Router);
    let (near, far_echoes, local_share) = (&near[..], &far.probes[..], Some(0.1));
    let location = locate(&PathProbes { near, far: &far, far_echoes, idle, load, local_share });
    assert!(reason(&location).starts_with("the local network alone carried more (10 %"));
}

#[test]
fn a_peer_separates_the_delay_of_the_wifi_from_the_routers() {
    for (peer_is_late, segment) in [(true, PathSegment::Local), (false, PathSegment::Router)] {
        let (near, far) = path(PathHop::Router);
        let [router, provider] = near;
        let near = [honest(PathHop::Peer, 2, peer_is_late), router, provider];
        assert_eq!(located(&near, &far).verdict, Some(segment));
    }
    // A peer that does not answer changes nothing.
    let ([router, provider], far) = path(PathHop::Router);
    let location = located(&[hop(PathHop::Peer, |_| None), router, provider], &far);
    assert_eq!(location.verdict, Some(PathSegment::Local));
    assert_eq!(location.segments.len(), 3);
}

#[test]
fn a_machine_without_a_router_has_no_local_network() {
    let ([_, provider], far) = path(PathHop::Provider);
    let location = located(&[provider], &far);
    assert_eq!(location.verdict, Some(PathSegment::Access));
    assert_eq!(location.segments.len(), 2);
}

#[test]
fn echoes_that_pass_the_queue_prove_nothing() {
    let (near, far) = path(PathHop::FarEnd);
    let prompt = honest(PathHop::FarEnd, 20, false);
    let location = located_with(&near, &far, &prompt.probes);
    assert_eq!(location.verdict, None);
    assert!(reason(&location).starts_with("echoes do not wait where other packets do"));
    let location = located_with(&near, &far, &[]);
    assert!(reason(&location).starts_with("the far end answers no echoes"), "{location:?}");
}

#[test]
fn no_segment_is_blamed_without_delay_or_answers() {
    let (near, _) = path(PathHop::FarEnd);
    let location = located(&near, &honest(PathHop::FarEnd, 20, false));
    assert_eq!(reason(&location), "the load adds less than 5 ms");
    let silent = hop(PathHop::FarEnd, |at_ms| (at_ms < 2_000).then_some(20));
    let location = located(&near, &silent);
    assert!(reason(&location).starts_with("the far end answered only 100 probes"), "{location:?}");
    assert!(location.total.is_none() && location.segments.is_empty());
    let lossy = hop(PathHop::FarEnd, |at_ms| (at_ms < 2_000 || at_ms % 60 == 0).then_some(20));
    assert!(reason(&located(&near, &lossy)).ends_with("of 250 probes under load"));
    let nothing = HopProbes { probes: Vec::new(), ..lossy };
    assert_eq!(reason(&located(&[], &nothing)), "the far end does not answer");
}

#[test]
fn two_queues_of_one_length_are_not_blamed_on_one_segment() {
    let (mut near, _) = path(PathHop::Provider);
    near[0] = honest(PathHop::Router, 1, false);
    let far = hop(PathHop::FarEnd, |at_ms| {
        Some(20 + if at_ms < 2_000 { 0 } else { 2 * queue_ms(at_ms) })
    });
    let location = located(&near, &far);
    assert_eq!(
        reason(&location),
        "no segment adds most of the delay: local network 0 %, access line 50 %, beyond 50 %"
    );
}

/// Times and numbers of a hostile or broken source.
#[test]
fn any_numbers_are_judged_without_a_panic() {
    let wild = |kind, offset: u64| {
        let probe = |slot: u64| PathProbe {
            sent_ns: slot.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(offset as u32),
            round_trip_ns: (!slot.is_multiple_of(3)).then_some(u64::MAX >> (slot % 64)),
        };
        let mut probes: Vec<PathProbe> = (0..300).map(probe).collect();
        probes.extend((0..350).map(|slot| PathProbe {
            sent_ns: slot * 20 * MS,
            round_trip_ns: Some(u64::MAX >> (slot % 64)),
        }));
        probes.sort_by_key(|it| it.sent_ns);
        HopProbes { hop: kind, address: String::new(), distance: None, probes }
    };
    let near = [wild(PathHop::Router, 1), wild(PathHop::Provider, 9)];
    let location = located(&near, &wild(PathHop::FarEnd, 17));
    assert!(location.verdict.is_none() || location.not_known_because.is_none());
    let empty = PhaseWindow { phase: Phase::Load, start_ns: 5, end_ns: 5 };
    let far = &near[0];
    let (near, far_echoes, local_share) = (&[], &[], None);
    let none = PathProbes { near, far, far_echoes, idle: empty, load: empty, local_share };
    assert!(locate(&none).verdict.is_none());
}
