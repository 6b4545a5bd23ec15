//! Requests of hostile clients: forged, oversized, and slow.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underload_fleet::message::{NextAnswer, Problem, REQUEST_MAX, Release, Stored};
use underload_fleet::store::{CodeFor, Memory, Needs, Store, StoreError, Transaction};
use underload_orchestrator::http::Limits;
use underload_orchestrator::operator::Role;

use super::client::{Fleet, Sender, enrol, json, key, open, read, request};
use super::{next, results, run_of, with_plan};

fn patient() -> Limits {
    Limits { strangers_per_minute: 100_000, ..Limits::default() }
}

/// Sends a request with some of its headers replaced.
fn altered(fleet: &Fleet, sender: &Sender, change: &[(usize, &str)]) -> (u16, String) {
    let body = json(&next(1));
    let mut headers = sender.headers(fleet.now_ms(), "/v1/next", &body);
    for (place, value) in change {
        (*value).clone_into(&mut headers[*place].1);
    }
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    fleet.post("/v1/next", &headers, &body).problem()
}

#[test]
fn a_request_needs_its_sessions_signature_and_a_fresh_time() {
    let fleet = Fleet::new(patient());
    let (one, other) = (fleet.enrolled(1, None), fleet.enrolled(2, None));
    let (body, now_ms) = (json(&next(1)), fleet.now_ms());
    let refused = |status: &str| (401, status.to_owned());
    assert_eq!(fleet.post("/v1/next", &[], &body).problem(), refused("no-session"));
    let made_up = one.session.session.replace('.', ".9");
    assert_eq!(altered(&fleet, &one, &[(0, &made_up)]), refused("no-session"));
    assert_eq!(altered(&fleet, &one, &[(0, &other.session.session)]), refused("forged"));
    assert_eq!(altered(&fleet, &one, &[(1, &(now_ms + 1).to_string())]), refused("forged"));
    // A time has exactly one accepted spelling.
    for time in ["soon", &format!("+{now_ms}"), &format!("0{now_ms}")] {
        assert_eq!(altered(&fleet, &one, &[(1, time)]), refused("no-session"), "{time}");
    }
    assert_eq!(altered(&fleet, &one, &[(2, "")]), refused("forged"));
    // A signature over another path or another body is refused.
    let headers = one.headers(now_ms, "/v1/release", &body);
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(fleet.post("/v1/next", &headers, &body).problem(), refused("forged"));
    let headers = one.headers(now_ms, "/v1/next", &body);
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let queried = fleet.post("/v1/next?x=1", &headers, &body);
    assert_eq!(queried.problem(), refused("forged"), "a query that was not signed");
    let longer = format!("{body} ");
    assert_eq!(fleet.post("/v1/next", &headers, &longer).problem(), refused("forged"));
    assert_eq!(fleet.post("/v1/next", &headers, &body).status, 200, "the premise");
    // A replayed request gets the same answer and has no other effect.
    assert_eq!(fleet.post("/v1/next", &headers, &body).status, 200);
    fleet.pass(300_001);
    assert_eq!(fleet.post("/v1/next", &headers, &body).problem(), refused("stale"));
    fleet.pass(3_300_000);
    assert_eq!(fleet.signed(&one, "/v1/next", &next(2)).problem(), refused("session-over"));
}

#[test]
fn a_session_requires_the_devices_key() {
    let fleet = Fleet::new(patient());
    let device = fleet.enrolled(1, None);
    let now_ms = fleet.now_ms();
    let with = |open| fleet.ask("/v1/session", &open).problem().0;
    let mut forged = open(&key(2), now_ms);
    forged.device = device.id;
    assert!((400..500).contains(&with(forged)), "somebody else's signature");
    let mut later = open(&device.key, now_ms);
    later.at_ms += 1;
    assert!((400..500).contains(&with(later)), "another time than was signed");
    assert!((400..500).contains(&with(open(&device.key, now_ms - 600_000))), "too old");
    assert!((400..500).contains(&with(open(&key(3), now_ms))), "nobody");
    // `enrolled` opened a session at this instant, so the same request is a replay.
    assert!((400..500).contains(&with(open(&device.key, now_ms))), "a replay");
    let again = open(&device.key, now_ms + 1);
    assert_eq!(fleet.ask("/v1/session", &again).status, 200, "the premise");
    assert!((400..500).contains(&with(again)), "a replay");
}

#[test]
fn codes_are_valid_once_for_one_key_until_they_expire() {
    let fleet = Fleet::new(patient());
    let code = fleet.code(CodeFor::Device, 1, 1_000);
    let with = |code: &str, seed, server| {
        let enrol = enrol(code, &key(seed), server);
        fleet.ask("/v1/enrol", &enrol).status
    };
    assert_eq!(with("GUESS", 1, None), 403);
    assert_eq!(with(&code, 1, Some("east")), 403, "it makes devices");
    let mut stolen = enrol(&code, &key(1), None);
    stolen.proof = enrol(&code, &key(2), None).proof;
    assert!((400..500).contains(&fleet.ask("/v1/enrol", &stolen).status), "not its own key");
    assert_eq!(with(&code, 1, None), 200);
    assert_eq!(with(&code, 1, None), 200, "the answer was lost");
    assert_eq!(with(&code, 2, None), 403, "another key");
    let code = fleet.code(CodeFor::Device, 3, 1_000);
    fleet.pass(1_000);
    assert_eq!(with(&code, 3, None), 403, "too late");
}

#[test]
fn devices_cannot_use_leases_or_results_of_others() {
    let fleet = Fleet::new(patient());
    let server = with_plan(&fleet);
    let (one, other) = (fleet.enrolled(1, None), fleet.enrolled(2, None));
    let (_, answer) = run_of(&fleet, &server, &one);
    let run = answer.run.expect("it has one");
    let release = Release { lease_id: run.lease_id };
    assert_eq!(fleet.signed(&other, "/v1/release", &release).problem().0, 403);
    assert_eq!(fleet.memory.leases().len(), 1, "it is held still");
    // A result does not name its device: it belongs to its sender, which was not given that run.
    let stored: Stored = fleet.signed(&other, "/v1/results", &results(run.run, 1)).good();
    assert_eq!((stored.new, stored.refused), (0, 1));
    assert!(fleet.memory.results().iter().all(|result| result.epoch != 0));
    assert_eq!(fleet.signed(&server, "/v1/next", &next(1)).problem().0, 403, "a server");
    let beat = super::heartbeat("east");
    assert_eq!(fleet.signed(&one, "/v1/heartbeat", &beat).problem().0, 403, "a device");
    let chief = fleet.token("chief", Role::Operator);
    let remove = serde_json::json!({ "device": one.id });
    assert_eq!(fleet.operator(&chief, "/v1/operator/devices/remove", &remove).status, 200);
    let gone = fleet.signed(&one, "/v1/results", &results(run.run, 1));
    assert_eq!(gone.problem(), (410, "removed".to_owned()));
    let problem: Problem = serde_json::from_str(&gone.body).expect("a problem");
    let removal = problem.removal.expect("it is stated");
    assert!(removal.is_signed_by(&fleet.running.core.rules.lease_key()), "{removal:?}");
    assert_eq!(removal.device, one.id);
    assert_eq!(fleet.signed(&one, "/v1/next", &next(9)).problem().0, 410);
    assert_eq!(fleet.ask("/v1/session", &open(&one.key, fleet.now_ms())).problem().0, 410);
}

#[test]
fn oversized_and_malformed_requests_are_refused() {
    let fleet = Fleet::new(patient());
    let device = fleet.enrolled(1, None);
    let head = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n")
    };
    // The server does not wait for the body.
    let hundred_megabytes = fleet.send(head("/v1/enrol", 100 << 20).as_bytes());
    assert_eq!(hundred_megabytes.problem(), (413, "too-large".to_owned()));
    let body = " ".repeat(REQUEST_MAX + 1);
    let headers = device.headers(fleet.now_ms(), "/v1/results", &body);
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let large = fleet.post("/v1/results", &headers, &body);
    assert_eq!(large.problem(), (413, "too-large".to_owned()));
    let chunk = format!("{:x}\r\n{}\r\n", 20_000, " ".repeat(20_000));
    let chunked =
        "POST /v1/enrol HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let chunked = fleet.send((chunked + &chunk).as_bytes());
    assert_eq!(chunked.problem(), (413, "too-large".to_owned()), "its length was not told");
    let deep = "[".repeat(10_000);
    for body in ["", "{", "null", r#"{"code":1}"#, r#"{"code":"a","code":"b"}"#, &deep] {
        let (status, code) = fleet.post("/v1/enrol", &[], body).problem();
        assert_eq!((status, &*code), (400, "not-json"), "{body}");
    }
    for method in ["GET", "PUT", "DELETE", "BREW"] {
        let answer = fleet.send(&request(method, "/v1/next", &[], ""));
        assert_eq!(answer.problem(), (405, "wrong-method".to_owned()), "{method}");
        assert_eq!(answer.header("allow"), Some("post"), "{answer:?}");
    }
    for path in ["/", "/v1", "/v1/", "/v2/next", "/v1/next/", "/v1/../v1/next", "/%00"] {
        let answer = fleet.post(path, &[], "{}");
        assert_eq!(answer.problem(), (404, "not-found".to_owned()), "{path}");
    }
    let long = [("x-long", &*"y".repeat(20_000))];
    let long = fleet.send(&request("POST", "/v1/next", &long, "{}"));
    assert_eq!(long.status, 431, "{long:?}");
    assert_eq!(fleet.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n").status, 400);
    let _: NextAnswer = fleet.signed(&device, "/v1/next", &next(1)).good();
}

#[test]
fn slow_clients_are_disconnected() {
    let brief = Duration::from_millis(300);
    let limits = Limits { idle_max: brief, body_max: brief, ..patient() };
    let fleet = Fleet::new(limits);
    let bytes = request("POST", "/v1/enrol", &[], &json(&enrol("CODE", &key(1), None)));
    let body_at = bytes.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
    // Sends the head byte by byte: one time limit covers all of it.
    let mut head = fleet.connect();
    let mut sent = 0;
    while sent < body_at && head.write_all(&bytes[sent..=sent]).is_ok() {
        sent += 1;
        std::thread::sleep(brief / 10);
    }
    assert!(sent < body_at, "it was closed before the head was there");
    assert!(matches!(read(&mut head).status, 0 | 408));
    let mut body = fleet.connect();
    body.write_all(&bytes[..bytes.len() - 1]).expect("it is sent");
    assert_eq!(read(&mut body).problem(), (408, "too-slow".to_owned()));
    let mut idle = fleet.connect();
    assert_eq!(read(&mut idle).status, 0, "an idle connection is closed");
}

#[test]
fn a_thousand_idle_connections_do_not_block_others() {
    let limits = Limits { connections: 1_010, connections_per_network: 1_005, ..patient() };
    let fleet = Fleet::new(limits);
    let idle: Vec<TcpStream> = (0..1_000).map(|_| fleet.connect()).collect();
    let device = fleet.enrolled(1, None);
    let _: NextAnswer = fleet.signed(&device, "/v1/next", &next(1)).good();
    // At the limit of its network a new connection replaces the oldest silent one.
    let more: Vec<TcpStream> = (0..10).map(|_| fleet.connect()).collect();
    let status = || fleet.signed(&device, "/v1/next", &next(2)).status;
    let is_in = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        status() == 200
    });
    assert!(is_in);
    drop((idle, more));
}

/// A store that fails while `is_away` is set.
struct Unsteady {
    memory: Memory,
    is_away: Arc<AtomicBool>,
}

impl Store for Unsteady {
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::temporary("db.internal: no route"));
        }
        self.memory.begin(needs)
    }
}

#[test]
fn without_the_store_no_result_is_acknowledged() {
    let (memory, is_away) = (Memory::new(), Arc::new(AtomicBool::new(false)));
    let store = Unsteady { memory: memory.clone(), is_away: Arc::clone(&is_away) };
    let fleet = Fleet::with(memory, Box::new(store), patient());
    let server = with_plan(&fleet);
    let device = fleet.enrolled(1, None);
    let (_, answer) = run_of(&fleet, &server, &device);
    let results = results(answer.run.expect("it has one").run, 1);
    is_away.store(true, Ordering::SeqCst);
    let refused = fleet.signed(&device, "/v1/results", &results);
    assert_eq!(refused.problem(), (503, "store-away".to_owned()));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(!refused.body.contains("db.internal"), "that is for its operator: {refused:?}");
    let status = |path: &str| fleet.send(&request("GET", path, &[], "")).status;
    assert_eq!(["/healthz", "/readyz"].map(status), [200, 503]);
    let kept = |fleet: &Fleet| fleet.memory.results().iter().filter(|it| it.epoch == 0).count();
    assert_eq!(kept(&fleet), 0);
    is_away.store(false, Ordering::SeqCst);
    assert_eq!(status("/readyz"), 200);
    let stored: Stored = fleet.signed(&device, "/v1/results", &results).good();
    assert_eq!((stored.new, kept(&fleet)), (1, 1));
}
