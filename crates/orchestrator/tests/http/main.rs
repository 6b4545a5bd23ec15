//! HTTP requests of devices, servers and operators, and of attackers.

mod abuse;
mod client;
mod hostile;
mod openapi;
mod schemathesis;
mod tls;

use underload_fleet::device::DeviceId;
use underload_fleet::lease::Claims;
use underload_fleet::message::{
    Heartbeat, HeartbeatAnswer, Next, NextAnswer, Numbered, Release, Released, Results, Stored,
};
use underload_fleet::operator::{Codes, ListedLines, PutLinesAnswer};
use underload_fleet::orchestrator::Orchestrator;
use underload_fleet::outcome::{Outcome, RunResult};
use underload_fleet::store::{Archive as _, CodeFor, LogEntry};
use underload_orchestrator::http::{Config, Core, Limits, StartError, serve, system_clock};
use underload_orchestrator::operator::Role;

use client::{Fleet, NOW_MS, Sender, address, enrol, json, key, nobody};

/// A plan under which every line is always due.
pub const PLAN: &str = r#"
name = "always"
title = "As often as it goes"
runs_per_day = 5000
[lines]
count = 1000
[[tier]]
up = "10mbit"
down = "100mbit"
[[step]]
name = "up"
kind = "upload"
duration = "5s"
[servers]
count = 1
capacity = "1gbit"
"#;

const GO_ON: &[u8; 25] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Returns the heartbeat of a server with free capacity.
pub fn heartbeat(name: &str) -> Heartbeat {
    Heartbeat {
        address: address(name),
        up_bit_per_s: 1_000_000_000,
        down_bit_per_s: 1_000_000_000,
        sessions: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        ended: vec![],
        held: None,
        is_leaving: false,
    }
}

/// Returns the request of a device without results to hand in.
pub fn next(request: u64) -> Next {
    let (is_busy, waiting, dropped, attributes) = (false, 0, 0, None);
    Next { epoch: 0, request, is_busy, waiting, dropped, attributes }
}

/// Returns the results of a run that failed.
pub fn results(run: u64, sequence: u64) -> Results {
    let result = RunResult {
        plan: "always".to_owned(),
        run,
        at_ms: NOW_MS,
        outcome: Outcome::Failed,
        reason: "a test".to_owned(),
        server: "east".to_owned(),
        version: String::new(),
        steps: vec![],
    };
    Results { epoch: 0, results: vec![Numbered { sequence, result }] }
}

/// Applies [`PLAN`], and sends a heartbeat of a server.
pub fn with_plan(fleet: &Fleet) -> Sender {
    let token = fleet.token("chief", Role::Operator);
    let text = serde_json::json!({ "text": PLAN });
    let applied = fleet.operator(&token, "/v1/operator/plans", &text);
    assert_eq!(applied.status, 200, "{applied:?}");
    let server = fleet.enrolled(200, Some("east"));
    let _: HeartbeatAnswer = fleet.signed(&server, "/v1/heartbeat", &heartbeat("east")).good();
    server
}

/// Requests runs until one is granted.
pub fn run_of(fleet: &Fleet, server: &Sender, device: &Sender) -> (u64, NextAnswer) {
    for request in 1..100 {
        let _: HeartbeatAnswer = fleet.signed(server, "/v1/heartbeat", &heartbeat("east")).good();
        let answer: NextAnswer = fleet.signed(device, "/v1/next", &next(request)).good();
        if answer.run.is_some() {
            return (request, answer);
        }
        fleet.pass(5_000);
    }
    panic!("it was never due");
}

#[test]
fn a_device_enrols_polls_measures_and_uploads() {
    let fleet = Fleet::new(Limits::default());
    let server = with_plan(&fleet);
    let device = fleet.enrolled(1, None);
    let (request, answer) = run_of(&fleet, &server, &device);
    let run = answer.run.clone().expect("it has one");
    let lease_key: [u8; 32] = fleet.running.core.rules.lease_key();
    let claims = Claims::verify(&run.lease, &[lease_key], "east", fleet.now_ms());
    assert_eq!(claims.expect("the server honours it").device, device.id);
    let again: NextAnswer = fleet.signed(&device, "/v1/next", &next(request)).good();
    assert_eq!(again.run, answer.run, "the same request has the same answer");
    let stored: Stored = fleet.signed(&device, "/v1/results", &results(run.run, 1)).good();
    assert_eq!((stored.new, stored.known), (1, 0));
    let stored: Stored = fleet.signed(&device, "/v1/results", &results(run.run, 1)).good();
    assert_eq!((stored.new, stored.known), (0, 1), "sent again");
    let release = Release { lease_id: run.lease_id };
    for was_held in [true, false] {
        let released: Released = fleet.signed(&device, "/v1/release", &release).good();
        assert_eq!(released, Released { was_held });
    }
    let kept = fleet.memory.results();
    let handed_in = kept.iter().filter(|result| result.epoch == 0).count();
    assert_eq!(handed_in, 1, "{kept:?}");
}

/// A path and a body of each request of an operator.
fn operator_requests(device: &str) -> [(&'static str, String); 7] {
    [
        ("/v1/operator/codes", r#"{"makes":"device","attributes":[{}],"valid_days":1}"#.to_owned()),
        ("/v1/operator/plans", serde_json::json!({ "text": PLAN }).to_string()),
        ("/v1/operator/plans/stop", r#"{"name":"always"}"#.to_owned()),
        ("/v1/operator/devices/remove", format!(r#"{{"device":"{device}"}}"#)),
        ("/v1/operator/servers/address", r#"{"name":"east","address":"a.example:1"}"#.to_owned()),
        (
            "/v1/operator/lines",
            r#"{"lines":[{"external_id":"ACC-1","attributes":{"region":"north"}}],"from_ms":null,
                "is_import":true,"is_check":false}"#
                .to_owned(),
        ),
        ("/v1/operator/lines/list", r#"{"external_id":"ACC-1"}"#.to_owned()),
    ]
}

#[test]
fn operators_create_codes_apply_and_stop_plans_and_remove_devices() {
    let fleet = Fleet::new(Limits::default());
    let server = with_plan(&fleet);
    let chief = fleet.token("chief", Role::Operator);
    let device = DeviceId([0; 16]).to_string();
    let requests = operator_requests(&device);
    let viewer = fleet.token("viewer", Role::Viewer);
    let lapsed = fleet.token("lapsed", Role::Operator);
    for (path, body) in &requests {
        let with = |token: &str| fleet.post(path, &[("authorization", token)], body).problem();
        assert_eq!(fleet.post(path, &[], body).problem(), (401, "no-token".to_owned()));
        for wrong in ["Bearer ulo1.chief.00", "Bearer ulo1.nobody.00", "Basic YTpi", "Bearer "] {
            assert_eq!(with(wrong), (401, "no-token".to_owned()), "{path} {wrong}");
        }
        assert_eq!(with(&format!("Bearer {viewer}")), (403, "viewer".to_owned()));
    }
    let body = serde_json::json!({
        "makes": "device", "attributes": [{ "model": "A" }, { "model": "B" }], "valid_days": 1 });
    let codes: Codes = fleet.operator(&chief, requests[0].0, &body).good();
    assert_eq!(codes.codes.len(), 2);
    let enrolled = fleet.ask("/v1/enrol", &enrol(&codes.codes[1], &key(9), None));
    assert_eq!(enrolled.status, 200, "{enrolled:?}");
    let over = PLAN.replace("always", "dear") + "[budget]\nservers = \"1mbit\"\n";
    let over = fleet.operator(&chief, requests[1].0, &serde_json::json!({ "text": over }));
    assert_eq!(over.problem(), (409, "over-budget".to_owned()));
    let none = fleet.operator(&chief, requests[3].0, &serde_json::json!({ "device": device }));
    assert_eq!(none.problem().0, 404);
    let address = serde_json::json!({ "name": "east", "address": "a.example:1" });
    assert_eq!(fleet.operator(&chief, requests[4].0, &address).status, 200);
    let remove = serde_json::json!({ "device": server.id });
    assert_eq!(fleet.operator(&chief, requests[3].0, &remove).status, 200);
    let late = fleet.signed(&server, "/v1/heartbeat", &heartbeat("east"));
    assert_eq!(late.problem().0, 410, "the server was removed");
    let stop = serde_json::json!({ "name": "always" });
    assert_eq!(fleet.operator(&chief, requests[2].0, &stop).status, 200);
    for what in [
        "applied the plan always",
        "made 2 codes for devices",
        "set the address of the server east",
        "removed the server",
        "stopped the plan",
    ] {
        assert_logged(&fleet, what);
    }
    fleet.pass(86_400_001);
    let (status, _) = fleet.operator(&lapsed, requests[2].0, &stop).problem();
    assert_eq!(status, 401, "the token is over");
}

/// Asserts that the log says that the operator `chief` did something.
fn assert_logged(fleet: &Fleet, what: &str) {
    let log = fleet.memory.clone().log(100).expect("it is there");
    let is_it = |entry: &LogEntry| entry.who == "chief" && entry.what.contains(what);
    assert!(log.iter().any(is_it), "{what}: {log:?}");
}

#[test]
fn operators_record_and_look_at_lines() {
    let fleet = Fleet::new(Limits::default());
    let chief = fleet.token("chief", Role::Operator);
    let requests = operator_requests("");
    let put: serde_json::Value = serde_json::from_str(&requests[5].1).expect("it is JSON");
    let recorded: PutLinesAnswer = fleet.operator(&chief, requests[5].0, &put).good();
    assert_eq!(recorded, PutLinesAnswer { created: 1, changed: 0 });
    let show: serde_json::Value = serde_json::from_str(&requests[6].1).expect("it is JSON");
    let shown: ListedLines = fleet.operator(&chief, requests[6].0, &show).good();
    assert_eq!((shown.lines.len(), &*shown.lines[0].attributes.region), (1, "north"));
    let new = serde_json::json!({
        "makes": "device", "attributes": [{}], "lines": ["ACC-2"], "valid_days": 1,
    });
    assert_eq!(fleet.operator(&chief, requests[0].0, &new).problem().0, 404, "no such line");
    for what in ["set the line `ACC-1`", "looked at the line `ACC-1`"] {
        assert_logged(&fleet, what);
    }
}

#[test]
fn excess_requests_get_retry_after() {
    let limits = Limits { device_per_minute: 3, strangers_per_minute: 6, ..Limits::default() };
    let fleet = Fleet::new(limits);
    let (one, other) = (fleet.enrolled(1, None), fleet.enrolled(2, None));
    for request in 1..=3 {
        let _: NextAnswer = fleet.signed(&one, "/v1/next", &next(request)).good();
    }
    let refused = fleet.signed(&one, "/v1/next", &next(4));
    assert_eq!(refused.problem(), (429, "too-often".to_owned()));
    let after: u64 = refused.header("retry-after").and_then(|it| it.parse().ok()).expect("seconds");
    assert!((1..=120).contains(&after), "{after}");
    let _: NextAnswer = fleet.signed(&other, "/v1/next", &next(1)).good();
    let guess = enrol("GUESS", &key(3), None);
    assert_eq!(fleet.ask("/v1/enrol", &guess).problem().0, 403);
    assert_eq!(fleet.ask("/v1/enrol", &guess).problem().0, 403);
    assert_eq!(fleet.ask("/v1/enrol", &guess).problem(), (429, "too-often".to_owned()));
    fleet.pass(60_000);
    let _: NextAnswer = fleet.signed(&one, "/v1/next", &next(4)).good();
}

#[test]
fn two_orchestrators_of_one_store_are_one_fleet() {
    let first = Fleet::new(Limits::default());
    let device = first.enrolled(1, None);
    let memory = first.memory.clone();
    let second = Fleet::with(memory.clone(), Box::new(memory), Limits::default());
    let _: NextAnswer = second.signed(&device, "/v1/next", &next(1)).good();
    let key = |fleet: &Fleet| Orchestrator::lease_key(&fleet.running.core.rules);
    assert_eq!(key(&first), key(&second));
    let another = Fleet::new(Limits::default());
    let refused = another.signed(&device, "/v1/next", &next(1));
    assert_eq!(refused.problem(), (401, "no-session".to_owned()));
}

#[test]
fn plain_http_is_served_on_loopback_only() {
    let memory = Box::new(underload_fleet::store::Memory::new());
    let limits = Limits::default();
    let core = Core::start(vec![memory], system_clock(), &limits, &nobody()).expect("it starts");
    let listen = "0.0.0.0:0".parse().expect("an address");
    let refused = serve(core, Config { listen, tls: None, limits, pages: None });
    assert!(matches!(refused, Err(StartError::Plain(_))), "{refused:?}");
}

#[test]
fn requests_in_flight_are_answered_before_shutdown() {
    let fleet = Fleet::new(Limits::default());
    let code = fleet.code(CodeFor::Device, 1, 1_000);
    let body = json(&enrol(&code, &key(1), None));
    let bytes = client::request("POST", "/v1/enrol", &[("expect", "100-continue")], &body);
    let (mut stream, mut idle) = (fleet.connect(), fleet.connect());
    // Sends all but the last byte. The server's `100 Continue` shows that it has begun the request.
    std::io::Write::write_all(&mut stream, &bytes[..bytes.len() - 1]).expect("it is sent");
    let mut told = [0; GO_ON.len()];
    std::io::Read::read_exact(&mut stream, &mut told).expect("an error message");
    assert_eq!(&told, GO_ON);
    let address = fleet.address();
    let Fleet { running, .. } = fleet;
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| running.stop());
        let answer = client::read(&mut idle);
        assert_eq!(answer.status, 0, "an idle connection is closed: {answer:?}");
        std::io::Write::write_all(&mut stream, &bytes[bytes.len() - 1..]).expect("it is sent");
        assert_eq!(client::read(&mut stream).status, 200);
        stopped.join().expect("it stops");
    });
    let late = std::net::TcpStream::connect(address);
    assert!(late.is_err(), "nobody listens any more");
}
