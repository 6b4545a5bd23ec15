//! A browser made of the same three libraries, against the table: no sockets, and time as it is
//! told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{Dtls, Output};
use is::stun::{StunMessage, TransId};
use proptest::collection::vec;
use proptest::prelude::*;
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier, ReliabilityType,
};
use underload_probe::service::CompatLedger;

use super::echo::PROBES_PER_SECOND_MAX;
use super::session::{Seat, Secrets, Session, Shown, hmac_sha1};
use super::table::Table;
use super::*;
use crate::{Places, places};

const BROWSER: &str = "192.0.2.1:40000";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A table with one session that was signalled, and a clock.
struct Server {
    table: Table,
    shown: Shown,
    now: Instant,
    places: Places,
    /// Bytes to each address, and from it.
    sent: usize,
    got: usize,
}

impl Server {
    fn new() -> Self {
        let shown = server::shown(&ChannelLimits::default()).unwrap();
        let (table, now) = (Table::default(), Instant::now());
        Self { table, shown, now, places: places(9, 9), sent: 0, got: 0 }
    }

    fn signal(&mut self, name: &str, fingerprint: [u8; 32]) -> Secrets {
        let secrets = Secrets {
            name: name.to_owned(),
            password: "0123456789abcdef0123456789abcdef".to_owned(),
            theirs: "theirs".to_owned(),
            fingerprint,
        };
        let from = address(BROWSER).ip();
        let share = CompatLedger::unlimited().enter(from, Duration::from_mins(1)).unwrap();
        let seat = Seat::take(&self.places, self.now, from).unwrap();
        let limits = ChannelLimits::default();
        let session = Session::new(self.now, secrets.clone(), &limits, share, seat);
        self.table.insert(&secrets, session);
        secrets
    }

    /// What it says to a datagram.
    fn hear(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        let mut send = |bytes: &[u8], to: SocketAddr| {
            assert_eq!(to, from, "answers go where the question came from");
            said.push(bytes.to_vec());
        };
        self.table.datagram(self.now, from, datagram, &self.shown, &mut send);
        self.got += datagram.len();
        self.sent += said.iter().map(Vec::len).sum::<usize>();
        said
    }

    fn wait(&mut self, time: Duration) -> Vec<Vec<u8>> {
        self.now += time;
        let mut said = Vec::new();
        self.table.tick(self.now, &mut |bytes: &[u8], _| said.push(bytes.to_vec()));
        said
    }
}

/// A check of ICE as a browser sends it.
fn check(secrets: &Secrets, password: &str) -> Vec<u8> {
    let name = format!("{}:{}", secrets.name, secrets.theirs);
    let message = StunMessage::binding_request(&name, TransId::new(), true, 1, 1, true);
    let mut bytes = [0; 256];
    let len = message.to_bytes(Some(password.as_bytes()), &mut bytes, hmac_sha1).unwrap();
    bytes[..len].to_vec()
}

/// The browser's end, behind ICE.
struct Browser {
    dtls: Dtls,
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    answers: Vec<[u8; 8]>,
    is_closed: bool,
}

impl Browser {
    fn new(now: Instant, shown: &Shown) -> Self {
        let mut dtls = Dtls::new_12(Arc::clone(&shown.config), shown.certificate.clone(), now);
        dtls.set_active(true);
        dtls.handle_timeout(now).unwrap();
        let endpoint = Endpoint::new(Arc::new(EndpointConfig::new()), None);
        Self { dtls, endpoint, association: None, answers: Vec::new(), is_closed: false }
    }

    /// What it sends now.
    fn say(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            match self.dtls.poll_output(&mut buffer) {
                Output::Packet(bytes) => said.push(bytes.to_vec()),
                Output::Connected => {
                    let nowhere = address("127.0.0.1:5000");
                    self.association =
                        Some(self.endpoint.connect(ClientConfig::new(), nowhere).unwrap());
                }
                Output::ApplicationData(bytes) => {
                    let bytes = bytes.to_vec();
                    self.take(now, &bytes);
                }
                Output::CloseNotify => self.is_closed = true,
                Output::Timeout(_) => {
                    let Some((_, association)) = &mut self.association else { return said };
                    let Some(transmit) = association.poll_transmit(now) else { return said };
                    let Payload::RawEncode(parts) = transmit.payload else { continue };
                    for part in parts {
                        self.dtls.send_application_data(&part).unwrap();
                    }
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, now: Instant, packet: &[u8]) {
        let (_, association) = self.association.as_mut().unwrap();
        let nowhere = address("127.0.0.1:5000");
        let taken = self.endpoint.handle(now, nowhere, None, None, packet.to_vec().into());
        if let Some((_, DatagramEvent::AssociationEvent(event))) = taken {
            association.handle_event(event);
        }
        while let Some(event) = association.poll() {
            if matches!(event, Event::Connected) {
                let kind = PayloadProtocolIdentifier::Binary;
                let mut stream = association.open_stream(0, kind).unwrap();
                stream.set_reliability_params(true, ReliabilityType::Rexmit, 0).unwrap();
            }
        }
        let Ok(mut stream) = association.stream(0) else { return };
        while let Ok(Some(message)) = stream.read_sctp() {
            let mut answer = [0; 8];
            assert_eq!(message.read(&mut answer).unwrap(), 8);
            self.answers.push(answer);
        }
    }

    fn write(&mut self, stream: u16, bytes: &[u8]) {
        let (_, association) = self.association.as_mut().unwrap();
        let kind = PayloadProtocolIdentifier::Binary;
        if association.stream(stream).is_err() {
            association.open_stream(stream, kind).unwrap();
        }
        association.stream(stream).unwrap().write_with_ppi(bytes, kind).unwrap();
    }

    fn is_ready(&mut self) -> bool {
        self.association.as_mut().is_some_and(|(_, association)| association.stream(0).is_ok())
    }
}

/// Lets both talk until neither has anything to say.
fn talk(server: &mut Server, browser: &mut Browser) {
    for _ in 0..100 {
        let said = browser.say(server.now);
        if said.is_empty() {
            return;
        }
        for datagram in said {
            for answer in server.hear(address(BROWSER), &datagram) {
                browser.dtls.handle_timeout(server.now).unwrap();
                browser.dtls.handle_packet(&answer).unwrap();
            }
        }
    }
    panic!("they never come to an end");
}

/// Both, with an open channel.
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
fn what_is_lost_on_the_way_is_not_sent_again_and_is_missing_in_the_count() {
    let (mut server, mut browser) = open();
    for number in 0..10 {
        browser.write(0, &probe(number));
        let said = browser.say(server.now);
        assert!(!said.is_empty());
        // 3 is lost on the way there, 5 on the way back.
        for datagram in said.iter().filter(|_| number != 3) {
            for answer in server.hear(address(BROWSER), datagram) {
                if number != 5 {
                    browser.dtls.handle_packet(&answer).unwrap();
                }
            }
        }
        browser.say(server.now);
    }
    // Long after, too.
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
fn nobody_gets_more_than_he_sent_before_he_has_shown_that_he_receives() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    for _ in 0..20 {
        server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    }
    let mut browser = Browser::new(server.now, &server.shown);
    let hello = browser.say(server.now);
    for datagram in &hello {
        // As often as he likes: without the cookie he gets no further.
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
    // The first one that speaks DTLS is the only one from then on.
    assert!(!server.hear(others[2], &said.remove(0)).is_empty());
    assert!(server.hear(others[3], &good).is_empty());
    assert!(!server.hear(others[2], &good).is_empty());
}

/// Checks that a session of somebody else's sends with a forged sender, before and after the
/// channel is open, take nothing from it; nor does that session's end.
#[test]
fn nobody_takes_the_address_of_anothers_channel() {
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
    // The other one, which never opened, loses its place.
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
fn who_falls_silent_half_way_loses_the_place_and_so_does_who_stays_too_long() {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    server.signal("never", fingerprint);
    server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    let mut browser = Browser::new(server.now, &server.shown);
    // As far as the server's certificate, and no answer to it.
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
fn a_channel_that_is_silent_or_closed_is_over() {
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
fn what_is_no_probe_or_comes_too_fast_gets_no_answer() {
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

    /// Whatever arrives, strangers get nothing, and an open channel goes on.
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
