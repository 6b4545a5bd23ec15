//! Tests of the irtt responder with hand-made packets.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use underload_service::{Identity, Limits, Service, ServiceConfig};

#[expect(clippy::unnecessary_wraps, reason = "the signature of a source that may fail")]
fn tokens() -> Option<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Some(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn at(run_ns: u64) -> Instants {
    Instants { run_ns, unix_ns: 1_700_000_000_000_000_000 + run_ns }
}

fn client(network: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, network, 1], port))
}

fn request(flags: u8, rest: &[u8]) -> Vec<u8> {
    [&[0x14, 0xa7, 0x5b, flags], rest].concat()
}

fn open_request() -> Vec<u8> {
    let mut rest = Vec::new();
    let asked = Parameters {
        version: 1,
        duration_ns: 1_000_000_000,
        interval_ns: 10_000_000,
        length: 64,
        received_stats: 3,
        stamp_at: 3,
        clock: 3,
        ..Parameters::default()
    };
    asked.encode(&mut rest);
    request(OPEN, &rest)
}

fn echo_request(token: u64, sequence: u32, bytes: usize) -> Vec<u8> {
    let mut rest = [token.to_le_bytes().as_slice(), &sequence.to_le_bytes()].concat();
    rest.resize(bytes - 4, 0);
    request(0, &rest)
}

fn say(
    responder: &mut Responder,
    now_ns: u64,
    from: SocketAddr,
    bytes: &[u8],
) -> (ResponderReply, Vec<u8>) {
    let mut out = Vec::new();
    let reply = responder.answer(at(now_ns), from, bytes, || at(now_ns + 5), &mut out);
    (reply, out)
}

fn opened(responder: &mut Responder, now_ns: u64, from: SocketAddr) -> Option<u64> {
    let bytes = open_request();
    let (mut reply, mut out) = say(responder, now_ns, from, &bytes);
    if reply == ResponderReply::Limited {
        (reply, out) = say(responder, now_ns, from, &bytes);
    }
    assert_eq!(reply, ResponderReply::Send { traffic_class: 0 });
    let is_open = out[3] & CLOSE == 0;
    is_open.then(|| u64::from_le_bytes(out[4..12].try_into().unwrap()))
}

#[test]
fn the_first_request_of_an_address_pays_for_the_answer_to_the_second() {
    let mut responder =
        Responder::new(IrttLimits::default(), None, CompatLedger::unlimited(), tokens);
    let bytes = open_request();
    assert_eq!(say(&mut responder, 0, client(1, 5), &bytes).0, ResponderReply::Limited);
    assert_eq!(responder.sessions(), 0, "and allocates nothing");
    let (reply, out) = say(&mut responder, 1, client(1, 5), &bytes);
    assert_eq!(reply, ResponderReply::Send { traffic_class: 0 });
    assert!(out.len() <= 2 * bytes.len());
    let token = u64::from_le_bytes(out[4..12].try_into().unwrap());
    let (reply, out) = say(&mut responder, 2, client(1, 5), &echo_request(token, 0, 64));
    assert!(matches!(reply, ResponderReply::Send { .. }));
    assert_eq!(out.len(), 64);
    // The address is proven, so the next test opens at once, from any port.
    let (reply, _) = say(&mut responder, 3, client(1, 6), &bytes);
    assert!(matches!(reply, ResponderReply::Send { .. }));
}

#[test]
fn a_token_serves_only_the_address_it_was_given_to() {
    let mut responder =
        Responder::new(IrttLimits::default(), None, CompatLedger::unlimited(), tokens);
    let token = opened(&mut responder, 0, client(1, 5)).unwrap();
    let probe = echo_request(token, 0, 64);
    assert_eq!(say(&mut responder, 1, client(2, 5), &probe).0, ResponderReply::Ignored);
    assert_eq!(say(&mut responder, 1, client(1, 6), &probe).0, ResponderReply::Ignored);
    let close = request(CLOSE, &token.to_le_bytes());
    assert_eq!(say(&mut responder, 1, client(2, 5), &close).0, ResponderReply::Ignored);
    assert_eq!(say(&mut responder, 1, client(1, 5), &close).0, ResponderReply::Closed);
    assert_eq!(say(&mut responder, 1, client(1, 5), &probe).0, ResponderReply::Ignored);
    assert_eq!(responder.sessions(), 0);
}

#[test]
fn a_short_probe_draws_no_longer_answer() {
    let mut responder =
        Responder::new(IrttLimits::default(), None, CompatLedger::unlimited(), tokens);
    let token = opened(&mut responder, 0, client(1, 5)).unwrap();
    let (reply, _) = say(&mut responder, 1, client(1, 5), &echo_request(token, 0, 63));
    assert_eq!(reply, ResponderReply::Limited);
}

#[test]
fn sessions_are_bounded_and_unused_ones_expire() {
    let limits = IrttLimits { sessions_max: 3, sessions_per_network_max: 2, ..Default::default() };
    let mut responder = Responder::new(limits, None, CompatLedger::unlimited(), tokens);
    let used = opened(&mut responder, 0, client(1, 5)).unwrap();
    say(&mut responder, 1, client(1, 5), &echo_request(used, 0, 64));
    let repeated = opened(&mut responder, 1, client(2, 5)).unwrap();
    assert_eq!(opened(&mut responder, 2, client(2, 5)), Some(repeated), "the same token again");
    opened(&mut responder, 3, client(2, 6)).unwrap();
    assert_eq!(opened(&mut responder, 4, client(2, 7)), None, "two of one network");
    opened(&mut responder, 5, client(3, 5)).unwrap();
    assert_eq!(responder.sessions(), 3, "the oldest unused one made room");
    let (reply, _) = say(&mut responder, 6, client(1, 5), &echo_request(used, 1, 64));
    assert!(matches!(reply, ResponderReply::Send { .. }), "a used one is never taken away");
    opened(&mut responder, 11_000_000_000, client(4, 5)).unwrap();
    assert_eq!(responder.sessions(), 2, "the used one and the new one");
}

#[test]
fn a_test_that_takes_too_long_is_closed() {
    let mut responder =
        Responder::new(IrttLimits::default(), None, CompatLedger::unlimited(), tokens);
    let token = opened(&mut responder, 0, client(1, 5)).unwrap();
    say(&mut responder, 0, client(1, 5), &echo_request(token, 0, 64));
    let late_ns = 3_000_000_001;
    let (reply, out) = say(&mut responder, late_ns, client(1, 5), &echo_request(token, 1, 64));
    assert!(matches!(reply, ResponderReply::Send { .. }));
    assert_eq!(out[3] & CLOSE, CLOSE);
    assert_eq!(responder.sessions(), 0);
}

#[test]
fn who_has_nothing_left_gets_no_session_and_no_answers() {
    let limits = Limits { compat_bit_per_s: 8_000, ..Limits::default() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let service =
        Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config }).unwrap();
    let mut responder = Responder::new(IrttLimits::default(), None, service.compat(), tokens);
    let token = opened(&mut responder, 0, client(1, 5)).unwrap();
    let mut answered = 0;
    for sequence in 0..2_000 {
        let now_ns = u64::from(sequence) * 1_000_000;
        let probe = echo_request(token, sequence, 1_000);
        let (reply, _) = say(&mut responder, now_ns, client(1, 5), &probe);
        answered += u64::from(matches!(reply, ResponderReply::Send { .. }));
    }
    // A kilobyte per second, plus the ledger's burst.
    assert!((1..1_000).contains(&answered), "{answered} of 2000 kilobytes");
    service.drain();
    assert_eq!(opened(&mut responder, 0, client(2, 5)), None);
}

proptest! {
    #[test]
    fn unproven_addresses_never_get_more_than_they_sent(
        datagrams in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..40), 0u8..16, any::<bool>()), 1..60),
    ) {
        let limits = IrttLimits::default();
        let mut responder = Responder::new(limits, None, CompatLedger::unlimited(), tokens);
        let (mut received, mut sent) = (0, 0);
        for (rest, flags, is_proper) in datagrams {
            let bytes = if is_proper { open_request() } else { request(flags, &rest) };
            received += bytes.len();
            let (reply, out) = say(&mut responder, 0, client(1, 5), &bytes);
            if matches!(reply, ResponderReply::Send { .. }) {
                sent += out.len();
            }
            prop_assert!(sent <= received);
            prop_assert!(responder.sessions() <= IrttLimits::default().sessions_max);
        }
    }
}
