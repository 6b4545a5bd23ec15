//! Many connections, malformed requests, and replayed requests.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use underload_fleet::message::{Move, Next, NextAnswer, Release, Stored};
use underload_fleet::store::CodeFor;
use underload_orchestrator::http::Limits;
use underload_orchestrator::operator::Role;

use super::client::{Answer, Fleet, Sender, enrol, json, key, open, read, request};
use super::{next, results, run_of, with_plan};

fn patient() -> Limits {
    Limits { strangers_per_minute: 100_000, ..Limits::default() }
}

/// Connects from another address of the loopback network.
fn connect_from(fleet: &Fleet, last: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    socket.bind(&from.into()).expect("an address of this machine");
    socket.connect(&fleet.address().into()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
    socket.into()
}

fn ask_from(fleet: &Fleet, last: u8, bytes: &[u8]) -> Answer {
    let mut stream = connect_from(fleet, last);
    let _ = stream.write_all(bytes);
    read(&mut stream)
}

#[test]
fn ten_thousand_connections_of_one_address_do_not_block_others() {
    let limits = Limits { connections: 64, connections_per_network: 32, ..patient() };
    let fleet = Fleet::new(Limits { idle_max: Duration::from_mins(10), ..limits });
    let describe = request("GET", "/v1/openapi.json", &[], "");
    let mut held: VecDeque<TcpStream> = VecDeque::new();
    for number in 0..10_000 {
        held.push_back(fleet.connect());
        held.truncate(200);
        if number % 1_000 == 999 {
            assert_eq!(ask_from(&fleet, 2, &describe).status, 200, "{number}");
        }
    }
    // A new connection of the same address replaces the oldest one, once that has had its minimum
    // time.
    let is_in = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        fleet.send(&describe).status == 200
    });
    assert!(is_in);
}

#[test]
fn full_connections_take_the_oldest_of_the_fullest_network() {
    let limits = Limits { connections: 64, connections_per_network: 16, ..patient() };
    let fleet = Fleet::new(Limits { idle_max: Duration::from_mins(10), ..limits });
    let describe = request("GET", "/v1/openapi.json", &[], "");
    // A slow peer, which has sent half of a request.
    let mut slow = connect_from(&fleet, 2);
    slow.write_all(&describe[..10]).expect("it reads");
    let mut held: Vec<TcpStream> = Vec::new();
    for round in 0..5 {
        held.extend((0..64).map(|number| connect_from(&fleet, 3 + (number % 4) as u8)));
        assert_eq!(ask_from(&fleet, 20 + round, &describe).status, 200, "{round}");
    }
    slow.write_all(&describe[10..]).expect("it reads");
    assert_eq!(read(&mut slow).status, 200, "a slow peer of another network kept its place");
    let mut oldest = held.swap_remove(0);
    assert_eq!(read(&mut oldest).status, 0, "the premise: all places were taken");
}

#[test]
fn a_batch_of_200_results_is_read_while_others_drip_theirs() {
    let limits = Limits { body_bytes: 6 << 20, body_max: Duration::from_mins(10), ..patient() };
    let fleet = Fleet::new(limits);
    let server = with_plan(&fleet);
    let honest = fleet.enrolled(9, None);
    let (_, answer) = run_of(&fleet, &server, &honest);
    let run = answer.run.expect("it has one").run;
    let mut held: Vec<TcpStream> = Vec::new();
    for seed in 1..=4 {
        let device = fleet.enrolled(seed, None);
        // Two bodies of 700 kB have arrived; of thirty others only the headers and one byte.
        for arrived in (0..32).map(|number| if number < 2 { 700_000 } else { 1 }) {
            let headers = device.headers(fleet.now_ms(), "/v1/results", "{}");
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            let whole = request("POST", "/v1/results", &headers, &" ".repeat(1 << 20));
            let mut stream = connect_from(&fleet, 10 + seed);
            let _ = stream.write_all(&whole[..whole.len() - (1 << 20) + arrived]);
            held.push(stream);
        }
    }
    let mut batch = results(run, 1);
    batch.results = (1..=200).map(|number| results(run, number).results[0].clone()).collect();
    let stored: Stored = fleet.signed(&honest, "/v1/results", &batch).good();
    assert_eq!((stored.new, stored.known), (1, 199), "one outcome of one run");
    // Another body, as large as each of those two.
    let mut large = connect_from(&fleet, 9);
    let padded = format!("{}{}", json(&batch), " ".repeat(700_000));
    let headers = honest.headers(fleet.now_ms(), "/v1/results", &padded);
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    large.write_all(&request("POST", "/v1/results", &headers, &padded)).expect("it reads");
    assert_eq!(read(&mut large).status, 200);
    let is_cut = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
        let mut byte = [0; 1];
        !matches!(stream.read(&mut byte), Err(error) if error.kind() != ErrorKind::ConnectionReset)
    };
    let cut = held.iter_mut().filter_map(|stream| is_cut(stream).then_some(())).count();
    assert!((1..held.len()).contains(&cut), "the premise: memory was full; {cut}");
}

#[test]
fn malformed_requests_are_rejected_before_the_fleet_rules() {
    let fleet = Fleet::new(patient());
    let code = fleet.code(CodeFor::Device, 1, 1_000);
    let body = json(&enrol(&code, &key(1), None));
    let length = body.len();
    let with = |head: &str, body: &str| {
        let head = format!("POST /v1/enrol HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{head}");
        fleet.send(format!("{head}\r\n\r\n{body}").as_bytes()).status
    };
    assert_eq!(with("content-length: -1", &body), 400);
    assert_eq!(with("content-length: 0x10", &body), 400);
    assert_eq!(with("content-length: 99999999999999999999999", &body), 400);
    assert_eq!(with(&format!("content-length: {length}\r\ncontent-length: 1"), &body), 400);
    let shorter = length - 1;
    assert_eq!(with(&format!("content-length: {shorter}"), &body), 400, "cut off");
    for bad in ["zz\r\nx", "-1\r\nx", "ffffffffffffffffff\r\nx", "2\r\n{}}}0\r\n"] {
        let status = with("transfer-encoding: chunked", &format!("{bad}\r\n"));
        assert!(matches!(status, 0 | 400), "{bad}: {status}");
    }
    assert!(matches!(with("transfer-encoding: gzip", &body), 400 | 411 | 501));
    let many = "x-many: y\r\n".repeat(200);
    assert_eq!(with(&format!("{many}content-length: {length}"), &body), 431);
    // Requests of other protocols, and no request at all.
    let no_request: [&[u8]; 5] = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"POST /v1/enrol HTTP/9.9\r\n\r\n",
        b"POST  /v1/enrol HTTP/1.1\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ];
    for bytes in no_request {
        let answer = fleet.send(bytes);
        assert!(matches!(answer.status, 0 | 400 | 505), "{answer:?}");
    }
    assert_eq!(with(&format!("content-length: {length}"), &body), 200, "the code is still good");
}

#[test]
fn a_second_request_cannot_be_hidden_in_the_first() {
    let fleet = Fleet::new(patient());
    let hidden = String::from_utf8(request("GET", "/v1/openapi.json", &[], "")).expect("text");
    // A parser that uses the length sees a body; one that uses the chunks sees an empty body and a
    // second request.
    let chunks = format!("0\r\n\r\n{hidden}");
    let both = format!(
        "POST /v1/enrol HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\
         transfer-encoding: chunked\r\n\r\n{chunks}",
        chunks.len()
    );
    let answer = fleet.send(both.as_bytes());
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(!answer.body.contains("openapi"), "{answer:?}");
}

#[test]
fn replayed_requests_change_nothing_in_any_order() {
    let fleet = Fleet::new(patient());
    let server = with_plan(&fleet);
    let device = fleet.enrolled(1, None);
    let (request, answer) = run_of(&fleet, &server, &device);
    let run = answer.run.expect("it has one");
    let signed = |path: &str, body: String| {
        let headers = device.headers(fleet.now_ms(), path, &body);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        super::client::request("POST", path, &headers, &body)
    };
    let seen = [
        signed("/v1/next", json(&next(request))),
        signed("/v1/results", json(&results(run.run, 1))),
        signed("/v1/release", json(&Release { lease_id: run.lease_id })),
        // A busy home gets no run, even if a run is already due.
        signed("/v1/next", json(&Next { is_busy: true, ..next(request + 1) })),
    ];
    for bytes in &seen {
        assert_eq!(fleet.send(bytes).status, 200);
    }
    let stands = (fleet.memory.results(), fleet.memory.leases());
    assert_eq!(stands.1.len(), 0, "the premise: given back");
    for bytes in seen.iter().rev().chain(&seen) {
        let status = fleet.send(bytes).status;
        assert!(matches!(status, 200 | 409), "{status}");
        assert_eq!((fleet.memory.results(), fleet.memory.leases()), stands);
    }
    assert_eq!(fleet.signed(&device, "/v1/next", &next(request)).problem().0, 409, "an old one");
}

#[test]
fn a_device_clock_may_differ_by_five_minutes() {
    let fleet = Fleet::new(patient());
    let device = fleet.enrolled(1, None);
    let at = |offset_ms: i64| {
        let body = json(&next(1));
        let at_ms = fleet.now_ms().saturating_add_signed(offset_ms);
        let headers = device.headers(at_ms, "/v1/next", &body);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        fleet.post("/v1/next", &headers, &body)
    };
    for offset_ms in [-300_000, 300_000] {
        assert_eq!(at(offset_ms).status, 200, "{offset_ms}");
    }
    for offset_ms in [-300_001, 300_001, i64::MAX, -1_800_000_000_000] {
        assert_eq!(at(offset_ms).problem(), (401, "stale".to_owned()), "{offset_ms}");
    }
    for offset_ms in [-300_001_i64, 300_001] {
        let at_ms = fleet.now_ms().saturating_add_signed(offset_ms);
        let (status, code) = fleet.ask("/v1/session", &open(&device.key, at_ms)).problem();
        assert_eq!((status, &*code), (401, "stale"), "{offset_ms}");
    }
}

#[test]
fn only_the_holder_sees_or_moves_a_lease() {
    let fleet = Fleet::new(patient());
    let server = with_plan(&fleet);
    let (one, other) = (fleet.enrolled(1, None), fleet.enrolled(2, None));
    let (_, answer) = run_of(&fleet, &server, &one);
    let run = answer.run.expect("it has one");
    let held = fleet.memory.leases();
    let to_move = Move { lease_id: run.lease_id, tried: vec![] };
    let refused = fleet.signed(&other, "/v1/move", &to_move);
    assert_eq!(refused.problem().0, 403);
    assert!(!refused.body.contains("ull1."), "{refused:?}");
    // The request has the same number as the holder's request; the answer must be about the
    // sender's own run.
    let told: NextAnswer = fleet.signed(&other, "/v1/next", &next(1)).good();
    assert!(told.run.is_none_or(|run| run.lease_id != held[0].id));
    assert_eq!(fleet.memory.leases()[0], held[0]);
}

#[test]
fn a_second_session_shares_the_allowance() {
    let fleet = Fleet::new(Limits { device_per_minute: 4, ..patient() });
    let device = fleet.enrolled(1, None);
    fleet.pass(1);
    let session = fleet.ask("/v1/session", &open(&device.key, fleet.now_ms())).good();
    let again = Sender { id: device.id, key: key(1), session };
    assert_ne!(again.session.session, device.session.session, "the premise");
    for number in 1..=2 {
        assert_eq!(fleet.signed(&device, "/v1/next", &next(2 * number)).status, 200);
        assert_eq!(fleet.signed(&again, "/v1/next", &next(2 * number + 1)).status, 200);
    }
    for sender in [&device, &again] {
        assert_eq!(fleet.signed(sender, "/v1/next", &next(9)).problem().0, 429);
    }
}

#[test]
fn guessed_codes_exhaust_only_the_guessers_limit() {
    let fleet = Fleet::new(Limits { strangers_per_minute: 20, ..Limits::default() });
    let code = fleet.code(CodeFor::Device, 1, 1_000);
    let bytes = |code: &str| request("POST", "/v1/enrol", &[], &json(&enrol(code, &key(1), None)));
    // A guess that differs in one place gets the same answer as one that differs everywhere.
    let near = |place: usize| {
        let mut near = code.clone().into_bytes();
        near[place] = if near[place] == b'A' { b'B' } else { b'A' };
        String::from_utf8(near).expect("letters")
    };
    let told = |guess: &str| {
        let answer = fleet.send(&bytes(guess));
        (answer.status, answer.body)
    };
    let far = told("GUESS");
    assert_eq!(far.0, 403);
    for place in 0..19 {
        assert_eq!(told(&near(place)), far, "{place}");
    }
    assert_eq!(told(&code).0, 429, "too many, also with the right one");
    assert_eq!(ask_from(&fleet, 3, &bytes(&code)).status, 200, "from elsewhere");
}

#[test]
fn unauthorised_bodies_are_not_read() {
    let fleet = Fleet::new(patient());
    let viewer = fleet.token("viewer", Role::Viewer);
    // The request announces a megabyte, and the answer arrives before any of it is sent.
    let head = |token: &str| {
        format!(
            "POST /v1/operator/plans HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             authorization: Bearer {token}\r\ncontent-length: 100000\r\n\r\n"
        )
    };
    for (token, status) in [("ulo1.viewer.00", 401), (viewer.as_str(), 403)] {
        let mut stream = fleet.connect();
        stream.write_all(head(token).as_bytes()).expect("it is sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(&first[9..], status.to_string().as_bytes(), "{token}");
    }
    let device = fleet.enrolled(1, None);
    let stored = fleet.signed(&device, "/v1/results", &results(1, 1));
    let stored: Stored = stored.good();
    assert_eq!((stored.new, stored.refused), (0, 1));
}

#[test]
fn clients_of_a_trusted_proxy_have_limits_of_their_own() {
    let proxy = vec!["127.0.0.1".parse().expect("an address")].leak();
    let limits =
        Limits { strangers_per_minute: 3, connections_per_network: 2, ..Limits::default() };
    let fleet = Fleet::new(Limits { trusted_proxies: proxy, ..limits });
    let enrol = json(&enrol("GUESS", &key(1), None));
    let from = |client: &str| request("POST", "/v1/enrol", &[("x-forwarded-for", client)], &enrol);
    for _ in 0..3 {
        assert_eq!(fleet.send(&from("192.0.2.7")).status, 403);
    }
    assert_eq!(fleet.send(&from("192.0.2.7")).status, 429);
    assert_eq!(fleet.send(&from("192.0.2.7, 192.0.2.8")).status, 403, "another client");
    // The header of a peer that is no trusted proxy is ignored.
    for client in 0..3 {
        assert_eq!(ask_from(&fleet, 2, &from(&format!("192.0.2.1{client}"))).status, 403);
    }
    assert_eq!(ask_from(&fleet, 2, &from("192.0.2.20")).status, 429);
    // More connections than one address may have.
    let held: Vec<TcpStream> = (0..4).map(|_| connect_from(&fleet, 1)).collect();
    for mut stream in held {
        stream.write_all(&request("GET", "/healthz", &[], "")).expect("it reads");
        assert_eq!(read(&mut stream).status, 200);
    }
}

#[test]
fn clients_of_a_balancer_have_limits_of_their_own() {
    let balancer = vec!["127.0.0.1".parse().expect("an address")].leak();
    let limits = Limits { strangers_per_minute: 3, connections_per_network: 2, ..patient() };
    let idle_max = Duration::from_secs(2);
    let fleet = Fleet::new(Limits { proxy_protocol: balancer, idle_max, ..limits });
    let enrol = request("POST", "/v1/enrol", &[], &json(&enrol("GUESS", &key(1), None)));
    let from = |client: u8| {
        let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
        let addresses = [192, 0, 2, client, 10, 0, 0, 1, 0x0f, 0xa0, 1, 0xbb];
        [&header[..], &addresses, &enrol].concat()
    };
    for _ in 0..3 {
        assert_eq!(ask_from(&fleet, 1, &from(7)).status, 403);
    }
    assert_eq!(ask_from(&fleet, 1, &from(7)).status, 429);
    assert_eq!(ask_from(&fleet, 1, &from(8)).status, 403, "another client");
    // A balancer that sends no header, or only a part of it, gets no answer.
    let silent: Vec<TcpStream> = [&enrol[..], &from(9)[..20], b""]
        .map(|bytes| {
            let mut stream = connect_from(&fleet, 1);
            stream.write_all(bytes).expect("it is connected");
            stream
        })
        .into();
    for mut stream in silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    // A header from another address is no request.
    assert_eq!(ask_from(&fleet, 2, &from(7)).status, 400);
    assert_eq!(ask_from(&fleet, 2, &enrol).status, 403);
}

#[test]
fn metrics_count_answers_for_who_may_look() {
    let fleet = Fleet::new(patient());
    let viewer = fleet.token("eve", Role::Viewer);
    let bearer = format!("Bearer {viewer}");
    let look =
        |token: &str| fleet.send(&request("GET", "/metrics", &[("authorization", token)], ""));
    assert_eq!(fleet.send(&request("GET", "/metrics", &[], "")).status, 401);
    assert_eq!(look("Bearer ulo1.viewer.00").status, 401);
    let enrol = json(&enrol("GUESS", &key(1), None));
    for _ in 0..3 {
        assert_eq!(fleet.send(&request("POST", "/v1/enrol", &[], &enrol)).status, 403);
    }
    let answer = look(&bearer);
    assert_eq!(answer.status, 200);
    let has = |line: &str| answer.body.lines().any(|it| it == line);
    let count = "underload_fleet_answer_seconds_count";
    assert!(has(&format!("{count}{{path=\"/v1/enrol\",status=\"403\"}} 3")), "{}", answer.body);
    assert!(has(&format!("{count}{{path=\"/metrics\",status=\"401\"}} 2")), "{}", answer.body);
    assert!(has("underload_fleet_waiting 0") && answer.body.ends_with("# EOF\n"));
    // Paths that anybody can think of are counted together.
    for path in ["/a", "/b", "/v1/a", "/v1/b"] {
        fleet.send(&request("GET", path, &[("authorization", &bearer)], ""));
    }
    let rows = look(&bearer).body.lines().filter(|it| it.starts_with(count)).count();
    assert!(rows <= 5, "{rows}");
}
