//! Tests of the table of sessions, with the browser of `harness`.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::echo::PROBES_PER_SECOND_MAX;
use super::harness::{BROWSER, Browser, Server, address, check, talk};
use super::session::Secrets;

fn open() -> (Server, Browser) {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    let checked = server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    assert_eq!(checked.len(), 1, "a good check is answered");
    let mut browser = Browser::new(server.now, &server.shown);
    talk(&mut server, &mut browser);
    assert!(browser.is_ready(), "the channel opens");
    (server, browser)
}

fn probe(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read(answer: [u8; 8]) -> (u32, u32) {
    let half = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
    (half(0), half(4))
}

#[test]
fn probes_come_back_with_how_many_have_arrived() {
    let (mut server, mut browser) = open();
    for number in [7, 9, 8] {
        browser.write(0, &probe(number));
        talk(&mut server, &mut browser);
    }
    let answers: Vec<(u32, u32)> = browser.answers.iter().copied().map(read).collect();
    assert_eq!(answers, [(7, 1), (9, 2), (8, 3)]);
    assert_eq!(server.table.answered(), 3);
}

#[test]
fn lost_probes_are_not_resent_and_missing_in_the_count() {
    let (mut server, mut browser) = open();
    for number in 0..10 {
        browser.write(0, &probe(number));
        let said = browser.say(server.now);
        assert!(!said.is_empty());
        // Probe 3 is lost on the way to the server, probe 5 on the way back.
        for datagram in said.iter().filter(|_| number != 3) {
            for answer in server.hear(address(BROWSER), datagram) {
                if number != 5 {
                    browser.dtls.handle_packet(&answer).unwrap();
                }
            }
        }
        browser.say(server.now);
    }
    // Lost answers are not sent again later.
    for _ in 0..10 {
        for answer in server.wait(Duration::from_millis(900)) {
            browser.dtls.handle_packet(&answer).unwrap();
        }
        browser.dtls.handle_timeout(server.now).unwrap();
        talk(&mut server, &mut browser);
    }
    let answers: Vec<(u32, u32)> = browser.answers.iter().copied().map(read).collect();
    let expected = [(0, 1), (1, 2), (2, 3), (4, 4), (6, 6), (7, 7), (8, 8), (9, 9)];
    assert_eq!(answers, expected);
}

#[test]
fn answers_never_exceed_received_bytes_before_the_address_is_verified() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    for _ in 0..20 {
        server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    }
    let mut browser = Browser::new(server.now, &server.shown);
    let hello = browser.say(server.now);
    for datagram in &hello {
        // A `ClientHello` without a cookie, however often it is repeated.
        for _ in 0..20 {
            server.hear(address(BROWSER), datagram);
        }
    }
    assert!(server.sent > 0 && server.sent <= server.got, "{} for {}", server.sent, server.got);
    let before = server.sent;
    for _ in 0..40 {
        let said: usize = server.wait(Duration::from_millis(200)).iter().map(Vec::len).sum();
        server.sent += said;
    }
    assert_eq!(server.sent, before, "nothing by itself");
}

#[test]
fn strangers_and_other_addresses_get_no_answer() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    let browser = address(BROWSER);
    assert!(server.hear(browser, &check(&secrets, "another password")).is_empty());
    let other = Secrets { theirs: "others".to_owned(), ..secrets.clone() };
    assert!(server.hear(browser, &check(&other, &secrets.password)).is_empty());
    let mut said = Browser::new(server.now, &server.shown).say(server.now);
    assert!(server.hear(browser, &said[0]).is_empty(), "no DTLS before a check");
    let good = check(&secrets, &secrets.password);
    let others: Vec<SocketAddr> = (1..12).map(|n| address(&format!("192.0.2.1:{n}"))).collect();
    let answered = others.iter().filter(|from| !server.hear(**from, &good).is_empty()).count();
    assert_eq!(answered, 8, "so many addresses may one browser have");
    // The first address that sends DTLS is the only one from then on.
    assert!(!server.hear(others[2], &said.remove(0)).is_empty());
    assert!(server.hear(others[3], &good).is_empty());
    assert!(!server.hear(others[2], &good).is_empty());
}

/// Another session sends valid checks of that session with this browser's address as their sender,
/// before and after the channel is open, and then ends. The channel must stay open.
#[test]
fn a_channels_address_cannot_be_taken_over() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let [own, others] = ["ours", "others"].map(|name| server.signal(name, fingerprint));
    let forged = check(&others, &others.password);
    server.hear(address(BROWSER), &forged);
    assert_eq!(server.hear(address(BROWSER), &check(&own, &own.password)).len(), 1);
    let mut browser = Browser::new(server.now, &server.shown);
    talk(&mut server, &mut browser);
    assert!(browser.is_ready(), "the channel opens");
    assert!(server.hear(address(BROWSER), &forged).is_empty(), "it is taken");
    browser.write(0, &probe(1));
    talk(&mut server, &mut browser);
    // The other session, which never opened a channel, loses its place.
    server.wait(Duration::from_secs(9));
    assert!(!server.hear(address(BROWSER), &check(&own, &own.password)).is_empty());
    server.wait(Duration::from_secs(2));
    assert_eq!(server.table.len(), 1);
    browser.dtls.handle_timeout(server.now).unwrap();
    browser.write(0, &probe(2));
    talk(&mut server, &mut browser);
    assert_eq!(browser.answers.len(), 2);
}

#[test]
fn another_certificate_than_the_announced_one_ends_the_session() {
    let mut server = Server::new();
    let secrets = server.signal("ours", [1; 32]);
    server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    let mut browser = Browser::new(server.now, &server.shown);
    talk(&mut server, &mut browser);
    assert!(!browser.is_ready());
    assert_eq!((server.table.len(), server.places.taken()), (0, 0));
}

#[test]
fn stalled_handshakes_and_overlong_channels_are_closed() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    server.signal("never", fingerprint);
    server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    let mut browser = Browser::new(server.now, &server.shown);
    // The handshake up to the server's certificate, which the browser does not answer.
    let mut said = browser.say(server.now);
    for _ in 0..2 {
        for answer in server.hear(address(BROWSER), &said[0]) {
            browser.dtls.handle_packet(&answer).unwrap();
        }
        said = browser.say(server.now);
    }
    let mut again = 0;
    for _ in 0..60 {
        assert_eq!(server.table.len(), 2);
        again += server.wait(Duration::from_millis(160)).len();
    }
    assert!((1..40).contains(&again), "{again} datagrams to who may have lost them");
    server.wait(Duration::from_secs(1));
    assert_eq!((server.table.len(), server.places.taken()), (0, 0));

    let (mut server, mut browser) = open();
    for second in 0..60 {
        assert_eq!(server.table.len(), 1, "after {second} s");
        browser.write(0, &probe(second));
        talk(&mut server, &mut browser);
        server.wait(Duration::from_secs(1));
        browser.dtls.handle_timeout(server.now).unwrap();
    }
    let goodbye = server.wait(Duration::from_secs(1));
    assert_eq!((server.table.len(), goodbye.len()), (0, 1));
    browser.dtls.handle_packet(&goodbye[0]).unwrap();
    browser.say(server.now);
    assert!(browser.is_closed, "the browser is told");
    assert_eq!(server.table.answered(), 60);
}

#[test]
fn silent_and_closed_channels_are_removed() {
    let (mut server, _) = open();
    server.wait(Duration::from_secs(9));
    assert_eq!(server.table.len(), 1);
    server.wait(Duration::from_secs(2));
    assert_eq!(server.table.len(), 0);
    let (mut server, mut browser) = open();
    browser.dtls.close().unwrap();
    for datagram in browser.say(server.now) {
        server.hear(address(BROWSER), &datagram);
    }
    assert_eq!((server.table.len(), server.places.taken()), (0, 0));
}

#[test]
fn invalid_and_excess_probes_get_no_answer() {
    let (mut server, mut browser) = open();
    for length in [1, 7, 9, 200] {
        browser.write(0, &vec![0; length]);
        talk(&mut server, &mut browser);
    }
    assert!(browser.answers.is_empty());
    for number in 0..PROBES_PER_SECOND_MAX + 50 {
        browser.write(0, &probe(number));
        talk(&mut server, &mut browser);
    }
    assert_eq!(browser.answers.len(), PROBES_PER_SECOND_MAX as usize);
    server.wait(Duration::from_secs(1));
    browser.dtls.handle_timeout(server.now).unwrap();
    browser.write(0, &probe(0));
    talk(&mut server, &mut browser);
    assert_eq!(browser.answers.len(), PROBES_PER_SECOND_MAX as usize + 1);
}

#[test]
fn a_second_stream_ends_the_channel() {
    let (mut server, mut browser) = open();
    browser.write(3, &probe(0));
    for datagram in browser.say(server.now) {
        server.hear(address(BROWSER), &datagram);
    }
    assert_eq!(server.table.len(), 0);
}

#[test]
fn datagrams_that_were_changed_break_nothing() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    let good = check(&secrets, &secrets.password);
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 0x41;
        server.hear(address(BROWSER), &changed);
        server.hear(address(BROWSER), &good[..at]);
    }
    server.hear(address(BROWSER), &good);
    let mut browser = Browser::new(server.now, &server.shown);
    let hello = browser.say(server.now).remove(0);
    for at in 0..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 0x41;
        server.hear(address(BROWSER), &changed);
        server.hear(address(BROWSER), &hello[..at]);
    }
    server.wait(Duration::from_secs(11));
    assert_eq!((server.table.len(), server.places.taken()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Garbage from an address without a session gets no answer, and the session stays.
    #[test]
    fn garbage_gets_no_answer(
        datagrams in vec(vec(any::<u8>(), 0..200), 1..20),
        first in prop_oneof![0..4u8, 20..64u8],
    ) {
        let mut server = Server::new();
        server.signal("ours", [0; 32]);
        for mut datagram in datagrams {
            if let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            prop_assert!(server.hear(address(BROWSER), &datagram).is_empty());
        }
        prop_assert_eq!(server.table.len(), 1);
    }
}
