//! Tests of the ledger: granted rates, volumes and waiting times.

use super::super::session_rate::KEPT_SHARE;
use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const LIMITS: Limits = Limits {
    sessions_max: 4,
    sessions_per_network_max: 2,
    up_bit_per_s: 100,
    down_bit_per_s: 200,
    session_bit_per_s: 200,
    duration_max: Duration::from_micros(1),
    network_bytes_per_hour: 1 << 40,
    token_bytes_per_hour: 1 << 40,
    anonymous_bytes_per_hour: 1 << 40,
    compat_bit_per_s: 0,
};

fn ask(up_bit_per_s: u64, down_bit_per_s: u64, nanos: u64) -> Ask {
    Ask {
        up_bit_per_s: Some(up_bit_per_s),
        down_bit_per_s: Some(down_bit_per_s),
        duration: Duration::from_nanos(nanos),
    }
}

/// Returns an address in a separate network.
fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, number, 1).into()
}

/// A network gets three quarters of the rate and two places. A reservation is granted in addition,
/// completely or not at all.
#[test]
fn a_lease_keeps_its_reservation_beside_others_of_its_network() {
    let mut ledger = Ledger::new(LIMITS);
    let lease = |number| {
        Some(Admitted { id: [number; 16], rate_bit_per_s: None, expires: 0, is_reserved: true })
    };
    let mut granted = |up, token| {
        let grant = ledger.grant(0, ask(up, 0, 100), address(1), token);
        grant.map(|grant| grant.up_bit_per_s)
    };
    assert_eq!(granted(40, None), Ok(40));
    assert_eq!(granted(40, None), Ok(35), "what its network may hold");
    assert!(granted(1, None).is_err());
    assert_eq!(granted(20, lease(1)), Ok(20));
    assert!(granted(6, lease(2)).is_err(), "5 are left, and half is not enough");
    assert_eq!(granted(5, lease(2)), Ok(5));
}

/// A client that leaves frees only its own place: 32 places per network, 128 in total.
#[test]
fn a_client_of_another_tool_that_leaves_frees_one_place() {
    let mut ledger = Ledger::new(LIMITS);
    let enter = |ledger: &mut Ledger, number| {
        let network = Payer::of(address(number));
        ledger.enter_compat(0, network, Duration::from_secs(1), COMPAT_VOLUME_MIN).is_ok()
    };
    let entered = (0..40).filter(|_| enter(&mut ledger, 1)).count();
    assert_eq!(entered, 32);
    ledger.leave_compat(Payer::of(address(1)), 0);
    assert!(enter(&mut ledger, 1) && !enter(&mut ledger, 1));
    let others = (0..120).filter(|number| enter(&mut ledger, 2 + number / 30)).count();
    assert_eq!(32 + others, 128);
    // All clients of a network leave; further calls free nothing.
    for left in 1..=40 {
        ledger.leave_compat(Payer::of(address(1)), 0);
        let networks = if left < 32 { 5 } else { 4 };
        assert_eq!(ledger.compat.len(), networks, "those without a client are forgotten");
    }
    assert_eq!((0..40).filter(|_| enter(&mut ledger, 7)).count(), 32);
}

#[test]
fn a_client_of_another_tool_needs_a_mebibyte_of_its_quota() {
    let mut ledger = Ledger::new(LIMITS);
    let network = Payer::of(address(1));
    let second = Duration::from_secs(1);
    assert!(ledger.enter_compat(0, network, second, COMPAT_VOLUME_MIN - 1).is_err());
    let grant = ledger.enter_compat(0, network, second, COMPAT_VOLUME_MIN).expect("room");
    assert_eq!(grant.volume_bytes, COMPAT_VOLUME_MIN);
}

#[test]
fn permanent_and_temporary_refusals_differ() {
    let mut ledger = Ledger::new(LIMITS);
    let most = ask(100, 200, 1_000);
    assert_eq!(ledger.grant(0, most, address(1), None).map(|grant| grant.up_bit_per_s), Ok(75));
    ledger = Ledger::new(LIMITS);
    let mut grant = |now_ns, ask, number| ledger.grant(now_ns, ask, address(number), None);
    let never = |denial| matches!(denial, Err(Denial::TooMuch(_)));
    assert!(never(grant(0, ask(101, 0, 1), 1)));
    assert!(never(grant(0, ask(0, 201, 1), 1)));
    let Err(Denial::TooMuch(reason)) = grant(0, ask(0, 0, 1_001), 1) else { panic!() };
    assert_eq!(reason, "a session of 0.000001001 s is too long, at most 0.000001 s");
    let first = grant(0, ask(60, 0, 300), 1).unwrap();
    assert_eq!((first.id, first.end_ns, first.volume_bytes), (0, 300, 16 << 20));
    // Three quarters of the remaining rate are less than half of the requested one.
    let Err(Denial::Busy(wait, _)) = grant(100, ask(61, 0, 300), 2) else { panic!() };
    assert_eq!(wait, Duration::from_nanos(200));
    let second = grant(100, ask(40, 0, 300), 2).unwrap();
    assert_eq!((second.up_bit_per_s, second.end_ns), (30, 400));
    assert_eq!(grant(300, ask(40, 0, 1), 2).unwrap().up_bit_per_s, 40);
    let Err(Denial::Busy(_, reason)) = grant(300, ask(0, 0, 1), 2) else { panic!() };
    assert!(reason.contains("network"));
    ledger.release(1, 0);
    ledger.release(1, 0);
    assert_eq!(ledger.grant(300, ask(30, 0, 1), address(2), None).unwrap().id, 3);
}

#[test]
fn one_network_cannot_reserve_all_rates() {
    let mut ledger = Ledger::new(LIMITS);
    let open = Ask { up_bit_per_s: None, ..ask(0, 0, 100) };
    let mut up =
        |ask, number| ledger.grant(0, ask, address(number), None).map(|grant| grant.up_bit_per_s);
    assert_eq!(up(ask(90, 0, 100), 1), Ok(75), "at least half of what it named");
    assert!(up(open, 1).is_err(), "its neighbours wait");
    assert_eq!(up(open, 2), Ok(18));
    assert!(matches!(up(open, 3), Err(Denial::Busy(..))), "less than a session is worth");
    assert_eq!(up(ask(5, 0, 100), 3), Ok(5));
    assert_eq!(ledger.granted(), (98, 0));
}

#[test]
fn no_session_is_admitted_to_a_full_line() {
    let mut ledger = Ledger::new(LIMITS);
    let mut down = |line, down_bit_per_s| {
        ledger.note_line(line);
        let ask = Ask { down_bit_per_s, ..ask(0, 0, 100) };
        let granted = ledger.grant(0, ask, address(1), None);
        if let Ok(granted) = granted {
            ledger.release(granted.id, 0);
        }
        granted.map(|grant| grant.down_bit_per_s)
    };
    assert_eq!(down(None, None), Ok(150));
    assert_eq!(down(Some([0, 120]), None), Ok(80), "what the line has left");
    assert_eq!(down(Some([0, 120]), Some(80)), Ok(80));
    let Err(Denial::Busy(_, reason)) = down(Some([0, 120]), Some(81)) else { panic!() };
    assert!(reason.contains("line"), "{reason}");
    assert!(down(Some([0, 195]), None).is_err());
    assert_eq!(down(Some([0, 500]), Some(1)), Err(Denial::Busy(LINE_BUSY_RETRY, LINE_FULL)));
    assert_eq!(down(Some([500, 0]), Some(1)), Ok(1), "the other direction");
}

#[test]
fn a_full_line_and_reserved_rates_have_different_refusals() {
    let limits = Limits { sessions_per_network_max: 1, ..LIMITS };
    let down = |line, down_bit_per_s| {
        let mut ledger = Ledger::new(limits);
        ledger.grant(0, ask(0, 160, 1_000), address(1), None).expect("150 of 200");
        ledger.note_line(line);
        let ask = Ask { down_bit_per_s, ..ask(0, 0, 100) };
        ledger.grant(0, ask, address(2), None).map(|grant| grant.down_bit_per_s)
    };
    let others = Err(Denial::Busy(Duration::from_micros(1), OTHERS));
    let full = Err(Denial::Busy(LINE_BUSY_RETRY, LINE_FULL));
    assert_eq!(down(None, None), Ok(37), "three quarters of 50");
    assert_eq!(down(None, Some(74)), Ok(37));
    assert_eq!(down(None, Some(75)), others);
    assert_eq!(down(Some([0, 200 - 37]), Some(74)), Ok(37));
    assert_eq!(down(Some([0, 200 - 36]), Some(74)), full);
    // A sixteenth of 200 is the least rate of a session.
    assert_eq!(down(Some([0, 200 - 12]), None), Ok(12));
    assert_eq!(down(Some([0, 200 - 11]), None), full);
    assert_eq!(down(Some([0, 200]), Some(75)), full, "both");
}

#[test]
fn a_tokens_rate_limits_a_session_and_reserves_nothing() {
    let token = |bit_per_s| {
        Some(Admitted {
            id: [1; 16],
            rate_bit_per_s: Some(bit_per_s),
            expires: 0,
            is_reserved: false,
        })
    };
    let open = Ask { up_bit_per_s: None, down_bit_per_s: None, ..ask(0, 0, 100) };
    let rates = |held_by_others, token| {
        let mut ledger = Ledger::new(LIMITS);
        ledger.grant(0, ask(0, held_by_others, 1_000), address(1), None).expect("room");
        let granted = ledger.grant(0, open, address(2), token);
        granted.map(|grant| (grant.up_bit_per_s, grant.down_bit_per_s))
    };
    assert_eq!(rates(0, token(50)), Ok((50, 50)));
    assert_eq!(rates(0, token(1_000)), Ok((75, 150)), "more than the server has is no fault");
    assert_eq!(rates(150, token(200)), Ok((75, 37)), "nor is less than half of it");
    assert_eq!(rates(0, token(0)), Err(Denial::Busy(Duration::from_micros(1), OTHERS)));
}

#[test]
fn limits_of_a_lab_stop_no_measurement() {
    let mut ledger = Ledger::new(Limits::generous());
    let two_hours = Duration::from_hours(2);
    let all = Ask { up_bit_per_s: None, down_bit_per_s: None, duration: two_hours };
    let client = Payer::of(address(1));
    let bytes_of_compat = 1 << 50;
    let other = ledger.enter_compat(0, client, two_hours, bytes_of_compat).expect("room");
    assert_eq!((other.up_bit_per_s, other.volume_bytes), (1 << 44, bytes_of_compat));
    // 47 sessions of one network, each at 17 Tbit/s.
    for number in 0..47 {
        let duration = if number == 0 { two_hours } else { Duration::from_mins(1) };
        let grant = ledger.grant(0, Ask { duration, ..all }, address(1), None).expect("room");
        assert_eq!((grant.up_bit_per_s, grant.down_bit_per_s), (1 << 44, 1 << 44));
        assert_eq!(grant.volume_bytes, volume_of(1 << 44, 1 << 44, duration));
    }
    let token = Admitted { id: [1; 16], rate_bit_per_s: None, expires: 0, is_reserved: false };
    let grant = ledger.grant(0, all, address(2), Some(token)).expect("room");
    assert_eq!(grant.volume_bytes, volume_of(1 << 44, 1 << 44, two_hours));
    assert_eq!(ledger.limits.sessions_max, 64);
}

#[test]
fn clients_of_other_tools_have_a_rate_that_no_session_gets() {
    let mut ledger = Ledger::new(Limits { compat_bit_per_s: 60, ..LIMITS });
    let open = Ask { up_bit_per_s: None, down_bit_per_s: None, ..ask(0, 0, 100) };
    let granted = ledger.grant(0, open, address(1), None).unwrap();
    assert_eq!((granted.up_bit_per_s, granted.down_bit_per_s), (30, 105));
}

#[test]
fn a_rate_that_goes_unused_is_lent_and_comes_back_when_it_is_needed() {
    const SECOND: u64 = 1_000_000_000;
    let limits = Limits { duration_max: Duration::from_hours(1), ..Limits::default() };
    let mut ledger = Ledger::new(limits);
    let all = Ask { up_bit_per_s: None, down_bit_per_s: None, duration: limits.duration_max };
    let idle = ledger.grant(0, all, address(1), None).unwrap();
    let many = Ask { up_bit_per_s: Some(500_000_000), ..all };
    let seen = |moved: u64| move |id| (id == 0).then_some([moved, 0]);
    ledger.update(SECOND, seen(0));
    assert!(ledger.grant(14 * SECOND, many, address(2), None).is_err(), "perhaps it begins");
    ledger.update(15 * SECOND, seen(0));
    let busy = ledger.grant(15 * SECOND, many, address(2), None).unwrap();
    assert_eq!(busy.up_bit_per_s, 500_000_000);
    let (up, _) = ledger.granted();
    assert!(up <= limits.up_bit_per_s, "{up}");
    let less = ledger.rate_of(idle.id, Direction::Up).unwrap();
    assert!(less < idle.up_bit_per_s && less >= idle.up_bit_per_s / KEPT_SHARE, "{less}");
    // The session starts to use its rate, and gets less until capacity is free.
    ledger.update(16 * SECOND, seen(less / 8));
    assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(less));
    ledger.release(busy.id, 0);
    ledger.update(17 * SECOND, seen(less / 8 + less / 32));
    assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(less), "a quarter is no need");
    ledger.update(18 * SECOND, seen(less / 4));
    assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(idle.up_bit_per_s));
}

#[test]
fn thirty_two_mebibytes_of_a_quota_are_worth_a_session() {
    for (left, is_granted) in [(VOLUME_MIN_BYTES - 1, false), (VOLUME_MIN_BYTES, true)] {
        let limits = Limits { anonymous_bytes_per_hour: left, ..Limits::default() };
        let ask = Ask { duration: Duration::from_secs(10), ..ask(750_000_000, 0, 0) };
        let granted = Ledger::new(limits).grant(0, ask, address(1), None);
        assert_eq!(granted.map(|grant| grant.volume_bytes).ok(), is_granted.then_some(left));
    }
}

#[test]
fn an_exhausted_quota_delays_and_unused_bytes_are_refunded() {
    let limits = Limits { anonymous_bytes_per_hour: 48 << 20, ..Limits::default() };
    let mut ledger = Ledger::new(limits);
    let ask = Ask { duration: Duration::from_secs(10), ..ask(750_000_000, 0, 0) };
    // Less volume than wanted, but more than the least that is granted.
    let first = ledger.grant(0, ask, address(1), None).unwrap();
    assert_eq!(first.volume_bytes, 48 << 20);
    ledger.release(first.id, 40 << 20);
    let second = ledger.grant(0, ask, address(1), None).unwrap();
    assert_eq!(second.volume_bytes, 40 << 20);
    ledger.release(second.id, 0);
    let Err(Denial::Busy(wait, reason)) = ledger.grant(0, ask, address(1), None) else { panic!() };
    assert_eq!((wait, reason.contains("quota")), (Duration::from_mins(40), true));
    // A session with a token is charged to both the token's quota and the network's.
    let token = Admitted { id: [1; 16], rate_bit_per_s: None, expires: 0, is_reserved: false };
    let tokened = ledger.grant(0, ask, address(1), Some(token)).unwrap();
    // 10 s of 750 Mbit/s, and of 16 Mbit/s of probes in each direction.
    assert_eq!(tokened.volume_bytes, (750 + 32) * 1_250_000 + VOLUME_MARGIN_BYTES);
}

proptest! {
    #[test]
    fn grants_never_exceed_the_limits(
        steps in prop::collection::vec(
            (0u64..400, prop::option::of(0u64..130), prop::option::of(0u64..250),
             0u64..1_200, 0u8..4, any::<bool>()), 0..80),
    ) {
        let mut ledger = Ledger::new(LIMITS);
        let mut now_ns = 0;
        let mut running: Vec<(Grant, u8)> = Vec::new();
        for (pause, up_bit_per_s, down_bit_per_s, length, number, releases) in steps {
            now_ns += pause;
            running.retain(|session| session.0.end_ns > now_ns);
            if releases && let Some(session) = running.pop() {
                ledger.release(session.0.id, 0);
            }
            let duration = Duration::from_nanos(length);
            let wanted = Ask { up_bit_per_s, down_bit_per_s, duration };
            if let Ok(grant) = ledger.grant(now_ns, wanted, address(number), None) {
                let asked = [up_bit_per_s, down_bit_per_s].map(|it| it.unwrap_or(u64::MAX));
                prop_assert!(grant.up_bit_per_s <= asked[0]);
                prop_assert!(grant.down_bit_per_s <= asked[1]);
                running.push((grant, number));
            }
            running.retain(|session| session.0.end_ns > now_ns);
            prop_assert!(running.len() <= LIMITS.sessions_max);
            let up: u64 = running.iter().map(|session| session.0.up_bit_per_s).sum();
            let down: u64 = running.iter().map(|session| session.0.down_bit_per_s).sum();
            prop_assert!(up <= LIMITS.up_bit_per_s && down <= LIMITS.down_bit_per_s);
            for number in 0..4 {
                let from_one = running.iter().filter(|s| s.1 == number).count();
                prop_assert!(from_one <= LIMITS.sessions_per_network_max);
            }
        }
    }
}
