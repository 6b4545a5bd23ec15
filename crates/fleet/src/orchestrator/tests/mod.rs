//! Requests and the changes that they make.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_aqm::rng::Rng;

use super::*;
use crate::device::Attributes;
use crate::lease::SKEW_MS;
use crate::message::{
    Assignment, Enrol, Enrolled, Heartbeat, HeartbeatAnswer, HeldLeases, Move, Moved, Next,
    NextAnswer, Numbered, OpenSession, Release, Released, Results, ServerAddress, Stored,
};
use crate::outcome::{Outcome, RunResult};
use crate::store::{Archive as _, CodeFor, Filter, Memory, Needs, Schedule, Server, Store as _};

mod lines;
mod results;

const PLAN: &str = r#"
name = "trial"
title = "one upload"
runs_per_day = 24
start_within = "20min"
[lines]
count = 1000
[[tier]]
up = "100mbit"
down = "1gbit"
[[step]]
name = "idle"
kind = "latency"
duration = "2s"
[[step]]
name = "loaded"
kind = "upload"
duration = "7s"
warm_up = "3s"
[servers]
count = 1
capacity = "1gbit"
"#;

const START: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

struct Fleet {
    store: Memory,
    orchestrator: Orchestrator,
    rng: Rng,
    now: u64,
    requests: u64,
}

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed is a key")
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn address(name: &str) -> ServerAddress {
    ServerAddress {
        name: name.to_owned(),
        address: format!("{name}.example:9000"),
        fingerprint: format!("sha256:{}", "0".repeat(64)),
    }
}

impl Fleet {
    fn new() -> Self {
        Self {
            store: Memory::new(),
            orchestrator: Orchestrator::new(Settings::default(), pair(255), [7; 32]),
            rng: Rng::new(1),
            now: START,
            requests: 0,
        }
    }

    /// A fleet with a plan and a server.
    fn ready() -> Self {
        let mut fleet = Self::new();
        fleet.apply(PLAN).expect("it is new");
        fleet.enrol_server(200, "east").expect("it is new");
        fleet.heartbeat(200, "east").expect("it is known");
        fleet
    }

    fn change<T>(
        &mut self,
        by: impl FnOnce(&Orchestrator, Tx<'_>, u64, &mut Rng) -> Answer<T>,
    ) -> Result<T, Rejection> {
        let mut tx = self.store.begin(&Needs::default()).expect("memory");
        let done = by(&self.orchestrator, &mut *tx, self.now, &mut self.rng).expect("memory");
        tx.commit().expect("memory");
        done
    }

    fn apply(&mut self, text: &str) -> Result<PlanRow, Rejection> {
        self.change(|it, tx, now, _| it.apply_plan(tx, now, "me", text, &[3; 32]))
    }

    fn code(&mut self, makes: CodeFor, secret: u8, attributes: Attributes) -> String {
        self.code_of("", makes, secret, attributes).expect("it is new")
    }

    fn enrol_with(
        &mut self,
        seed: u8,
        code: &str,
        server: Option<ServerAddress>,
    ) -> Result<Enrolled, Rejection> {
        let attributes = Attributes { model: "told".to_owned(), ..Attributes::default() };
        self.enrol_as(seed, code, attributes, server)
    }

    fn enrol_as(
        &mut self,
        seed: u8,
        code: &str,
        attributes: Attributes,
        server: Option<ServerAddress>,
    ) -> Result<Enrolled, Rejection> {
        let key = pair(seed);
        let enrol = Enrol {
            code: code.to_owned(),
            public_key: hex(key.public_key().as_ref()),
            proof: hex(key.sign(code.as_bytes()).as_ref()),
            attributes,
            server,
        };
        self.change(|it, tx, now, _| it.enrol(tx, now, &enrol))
    }

    fn enrol(&mut self, seed: u8, segment: &str) -> DeviceId {
        let segment = segment.to_owned();
        let attributes = Attributes { segment, ..Attributes::default() };
        let code = self.code(CodeFor::Device, seed, attributes);
        self.enrol_with(seed, &code, None).expect("the code is good").device
    }

    fn enrol_server(&mut self, seed: u8, name: &str) -> Result<DeviceId, Rejection> {
        let code = self.code(CodeFor::Server, seed, Attributes::default());
        self.enrol_with(seed, &code, Some(address(name))).map(|enrolled| enrolled.device)
    }

    fn heartbeat(&mut self, seed: u8, name: &str) -> Result<HeartbeatAnswer, Rejection> {
        self.say(seed, &Heartbeat { address: address(name), ..HEARTBEAT })
    }

    fn say(&mut self, seed: u8, it: &Heartbeat) -> Result<HeartbeatAnswer, Rejection> {
        let sender = id_of(seed);
        self.change(|by, tx, now, _| by.heartbeat(tx, now, sender, it))
    }

    fn next(&mut self, device: DeviceId) -> NextAnswer {
        self.next_as(device, false, 0)
    }

    fn next_as(&mut self, device: DeviceId, is_busy: bool, waiting: u64) -> NextAnswer {
        self.requests += 1;
        let next = Next { request: self.requests, is_busy, waiting, ..NEXT };
        self.ask(device, &next).expect("it may ask")
    }

    fn ask(&mut self, device: DeviceId, next: &Next) -> Result<NextAnswer, Rejection> {
        self.change(|it, tx, now, rng| it.next(tx, now, rng, device, next))
    }

    fn device(&mut self, id: DeviceId) -> Device {
        let mut tx = self.store.begin(&Needs::default()).expect("memory");
        tx.device(id).expect("memory").expect("it is enrolled")
    }

    fn schedule(&mut self, id: DeviceId) -> Schedule {
        self.device(id).schedules[0].clone()
    }

    fn server(&mut self, name: &str) -> Server {
        let servers = self.store.servers().expect("memory");
        servers.into_iter().find(|server| server.address.name == name).expect("it is there")
    }

    /// Advances to the device's next due run, with all servers alive.
    fn until_due(&mut self, id: DeviceId) {
        self.next(id);
        self.now = self.schedule(id).wake_ms().max(self.now);
        self.heartbeat(200, "east").expect("it is known");
    }

    /// The run that a device is assigned when it is due.
    fn given(&mut self, id: DeviceId) -> Assignment {
        self.until_due(id);
        self.next(id).run.expect("all is free")
    }

    fn hand_in(&mut self, id: DeviceId, sequence: u64, run: u64) -> Result<Stored, Rejection> {
        let results = Results { epoch: 0, results: vec![numbered(sequence, run)] };
        self.change(|it, tx, now, _| it.results(tx, now, id, &results))
    }

    fn release(&mut self, id: DeviceId, lease_id: u64) -> Result<Released, Rejection> {
        self.change(|it, tx, _, _| it.release(tx, id, &Release { lease_id }))
    }

    fn outcomes(&mut self) -> Vec<(Outcome, String, u64)> {
        let outcomes = self.store.outcomes(&Filter::default()).expect("memory");
        outcomes.counts.into_iter().map(|it| (it.outcome, it.reason, it.count)).collect()
    }
}

const NEXT: Next =
    Next { epoch: 0, request: 1, is_busy: false, waiting: 0, dropped: 0, attributes: None };

const HEARTBEAT: Heartbeat = Heartbeat {
    address: ServerAddress {
        name: String::new(),
        address: String::new(),
        fingerprint: String::new(),
    },
    up_bit_per_s: 1_000_000_000,
    down_bit_per_s: 1_000_000_000,
    sessions: 0,
    carried_up_bit_per_s: 0,
    carried_down_bit_per_s: 0,
    ended: Vec::new(),
    held: None,
    is_leaving: false,
};

fn id_of(seed: u8) -> DeviceId {
    DeviceId::of_key(pair(seed).public_key().as_ref().try_into().expect("32 bytes"))
}

fn numbered(sequence: u64, run: u64) -> Numbered {
    let result = RunResult {
        plan: "trial".to_owned(),
        run,
        at_ms: 0,
        outcome: Outcome::Measured,
        reason: String::new(),
        server: "east".to_owned(),
        version: String::new(),
        steps: Vec::new(),
    };
    Numbered { sequence, result }
}

#[test]
fn a_run_from_the_plan_to_its_outcome() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "cmts-1");
    let early = fleet.next(device);
    assert_eq!((early.run, early.refusal), (None, None));
    let due = fleet.schedule(device).due_ms;
    assert!(early.next_poll_ms <= due && due > START);
    let run = fleet.given(device);
    assert_eq!((run.run, run.steps.len(), run.servers.len()), (1, 2, 1));
    let keys = [fleet.orchestrator.lease_key()];
    let claims = Claims::verify(&run.lease, &keys, "east", fleet.now).expect("it is signed");
    // 12 s of steps, 3 s for each of the two steps, 30 s to begin, and 15 s of grace.
    assert_eq!(
        (claims.lasts_ms, claims.expires_ms),
        (18_000, fleet.now + 30_000 + 18_000 + 15_000)
    );
    assert_eq!((claims.up_bit_per_s, claims.device), (100_000_000, device));
    let used = fleet.server("east");
    assert_eq!((used.reserved_up_bit_per_s, used.reserved_down_bit_per_s), (100_000_000, 40_000));
    fleet.now += 20_000;
    assert_eq!(fleet.release(device, run.lease_id), Ok(Released { was_held: true }));
    assert_eq!(fleet.release(device, run.lease_id), Ok(Released { was_held: false }));
    assert_eq!(fleet.server("east").reserved_up_bit_per_s, 0);
    let new = Stored { new: 1, known: 0, refused: 0 };
    assert_eq!(fleet.hand_in(device, 1, 1), Ok(new));
    let known = Stored { new: 0, known: 1, refused: 0 };
    assert_eq!(fleet.hand_in(device, 1, 1), Ok(known), "again");
    assert_eq!(fleet.hand_in(device, 2, 1), Ok(known), "the run has its outcome");
    let refused = Stored { new: 0, known: 0, refused: 1 };
    assert_eq!(fleet.hand_in(device, 3, 99), Ok(refused), "it was not given that run");
    fleet.now += MINUTE;
    fleet.next(device);
    assert_eq!(fleet.outcomes(), [(Outcome::Measured, String::new(), 1)]);
}

#[test]
fn a_code_is_valid_once_and_for_its_purpose() {
    let mut fleet = Fleet::new();
    let operator = Attributes { region: "north".to_owned(), ..Attributes::default() };
    let code = fleet.code(CodeFor::Device, 1, operator);
    let refused = |done: Result<Enrolled, Rejection>| done.expect_err("it is not good").code;
    assert_eq!(refused(fleet.enrol_with(1, "GUESSED", None)), "code-unknown");
    assert_eq!(refused(fleet.enrol_with(1, &code, Some(address("east")))), "for-a-device");
    // A code as a person types it.
    let typed = format!(" {}-{}", &code[..5].to_lowercase(), &code[5..]);
    let enrolled = fleet.enrol_with(1, &typed, None).expect("it is good");
    assert_eq!(
        (enrolled.device, &enrolled.lease_key[..]),
        (id_of(1), &hex(&fleet.orchestrator.lease_key())[..])
    );
    let known = fleet.device(id_of(1)).attributes;
    assert_eq!((known.region.as_str(), known.model.as_str()), ("north", "told"));
    // The answer was lost: the same key may use the code again, even after it expired.
    fleet.now += 61 * MINUTE;
    assert_eq!(fleet.enrol_with(1, &code, None), Ok(enrolled.clone()));
    assert_eq!(refused(fleet.enrol_with(2, &code, None)), "code-used");
    let late = fleet.code(CodeFor::Server, 3, Attributes::default());
    fleet.now += 60 * MINUTE;
    assert_eq!(refused(fleet.enrol_with(3, &late, Some(address("east")))), "code-expired");
    let removed = fleet.change(|it, tx, now, rng| it.remove_device(tx, now, rng, "me", id_of(1)));
    assert_eq!(removed, Ok(()));
    assert_eq!(refused(fleet.enrol_with(1, &code, None)), "removed");
    let ended = fleet.ask(id_of(1), &NEXT).expect_err("it was removed").removed.expect("stated");
    let again = fleet.code(CodeFor::Device, 4, Attributes::default());
    fleet.now += 1;
    let enrolled_again = fleet.enrol_with(1, &again, None).expect("the code is new");
    assert!(!fleet.device(id_of(1)).is_removed);
    // The removal was of the previous enrolment.
    assert_eq!((ended.device, Some(ended.enrolled_ms)), (id_of(1), enrolled.enrolled_ms));
    assert_eq!(enrolled_again.enrolled_ms, Some(fleet.now));
    let removal = fleet.orchestrator.sign_removal(ended, fleet.now);
    assert!(removal.is_signed_by(&fleet.orchestrator.lease_key()));
    // Signed by another key than the one in the request.
    let key = pair(9);
    let enrol = Enrol {
        code: again.clone(),
        public_key: hex(key.public_key().as_ref()),
        proof: hex(pair(8).sign(again.as_bytes()).as_ref()),
        attributes: Attributes::default(),
        server: None,
    };
    let done = fleet.change(|it, tx, now, _| it.enrol(tx, now, &enrol));
    assert_eq!(refused(done), "bad-proof");
}

#[test]
fn a_lease_that_no_session_used_is_freed_and_one_in_use_is_not() {
    let mut fleet = Fleet::new();
    // Unless it is freed, the lease lasts for the five minutes of its load.
    fleet.apply(&PLAN.replace("\"7s\"", "\"5min\"")).expect("it is new");
    fleet.enrol_server(200, "east").expect("it is new");
    fleet.heartbeat(200, "east").expect("it is known");
    let device = fleet.enrol(1, "cmts-1");
    let run = fleet.given(device);
    let given = fleet.now;
    let beat = |fleet: &mut Fleet, after_ms: u64, held: Option<Vec<u64>>| {
        fleet.now = given + after_ms;
        let held = held.map(|ids| HeldLeases { at_ms: fleet.now, ids });
        let sent = Heartbeat { address: address("east"), held, ..HEARTBEAT };
        fleet.say(200, &sent).expect("it is known");
        fleet.store.leases().len()
    };
    // A session may begin within 30 s, by clocks that differ by 5 s, and is in the next heartbeat,
    // up to 10 s later.
    assert_eq!(beat(&mut fleet, 50_000, Some(vec![])), 1);
    assert_eq!(beat(&mut fleet, 60_000, None), 1, "a server that does not report them");
    assert_eq!(beat(&mut fleet, 60_000, Some(vec![run.lease_id])), 1, "a session holds it");
    // A list that was made before the session began arrives after it.
    fleet.now = given + 90_000;
    let held = Some(HeldLeases { at_ms: given + 20_000, ids: vec![] });
    let late = Heartbeat { address: address("east"), held, ..HEARTBEAT };
    fleet.say(200, &late).expect("it is known");
    assert_eq!(fleet.store.leases().len(), 1, "the session began meanwhile");
    assert!(fleet.server("east").reserved_up_bit_per_s > 0);
    assert_eq!(beat(&mut fleet, 60_001, Some(vec![run.lease_id ^ 1])), 0);
    assert_eq!(fleet.server("east").reserved_up_bit_per_s, 0);
}

#[test]
fn agents_use_the_address_of_the_operator_not_of_the_server() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let at = |fleet: &mut Fleet| {
        let answer = fleet.next(device);
        let alone = answer.alone.expect("a plan is applied");
        (alone.servers[0].address.clone(), alone.servers[0].fingerprint.clone())
    };
    let (enrolled_at, fingerprint) = at(&mut fleet);
    let elsewhere = |address: &str, digit: &str| {
        let fingerprint = format!("sha256:{}", digit.repeat(64));
        let address = address.to_owned();
        let name = "east".to_owned();
        Heartbeat { address: ServerAddress { name, address, fingerprint }, ..HEARTBEAT }
    };
    let answer = fleet.say(200, &elsewhere("victim.example:443", "0")).expect("it is alive");
    assert_eq!(
        answer.agents_sent_to.as_deref(),
        Some(&*enrolled_at),
        "the server receives the address"
    );
    assert_eq!(at(&mut fleet), (enrolled_at.clone(), fingerprint));
    // A new certificate does not change the address.
    fleet.say(200, &elsewhere(&enrolled_at, "1")).expect("it is alive");
    assert_eq!(at(&mut fleet), (enrolled_at, format!("sha256:{}", "1".repeat(64))));
    let mut set = |name: &str, address: &str| {
        fleet.change(|it, tx, now, _| it.set_server_address(tx, now, "me", name, address))
    };
    assert_eq!(set("north", "new.example:1").expect_err("unknown").kind.status(), 404);
    assert_eq!(set("east", "new.example").expect_err("no port").kind.status(), 400);
    assert_eq!(set("east", "new.example:1"), Ok(()));
    assert_eq!(at(&mut fleet).0, "new.example:1");
    let answer = fleet.say(200, &elsewhere("new.example:1", "1")).expect("it is alive");
    assert_eq!(answer.agents_sent_to, None);
    let log = crate::store::Archive::log(&mut fleet.store.clone(), 10).expect("memory");
    assert!(log.iter().any(|it| it.who == "me" && it.what.contains("east to new.example:1")));
}

#[test]
fn server_names_and_keys_are_unique() {
    let mut fleet = Fleet::ready();
    let taken = fleet.enrol_server(201, "east").expect_err("the name is taken");
    assert_eq!((taken.kind.status(), taken.code), (409, "name-taken"));
    fleet.enrol_server(202, "west").expect("it is new");
    let foreign = fleet.heartbeat(202, "east").expect_err("not its name");
    assert_eq!((foreign.kind.status(), foreign.code), (403, "another-name"));
    let device = fleet.enrol(1, "");
    let sent = Heartbeat { address: address("east"), ..HEARTBEAT };
    let none = fleet.change(|it, tx, now, _| it.heartbeat(tx, now, device, &sent));
    assert_eq!(none.expect_err("a device").code, "not-a-server");
    let server = fleet.ask(id_of(200), &NEXT).expect_err("a server");
    assert_eq!((server.kind.status(), server.code), (403, "not-a-device"));
    fleet.change(|it, tx, now, rng| it.remove_device(tx, now, rng, "me", id_of(200))).expect("ok");
    assert_eq!(fleet.heartbeat(200, "east").expect_err("removed").kind.status(), 410);
    assert_eq!(fleet.enrol_server(201, "east"), Ok(id_of(201)), "its place is free");
}

/// A signature that anyone can make is valid for such a key.
#[test]
fn a_key_without_a_secret_cannot_enrol() {
    let mut fleet = Fleet::ready();
    let code = fleet.code(CodeFor::Device, 1, Attributes::default());
    let identity = format!("01{}", "0".repeat(62));
    let order_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
    let other_sign = format!("01{}80", "0".repeat(60));
    for public_key in [identity, other_sign, order_8.to_owned()] {
        let proof = format!("01{}", "0".repeat(126));
        let (code, attributes, server) = (code.clone(), Attributes::default(), None);
        let enrol = Enrol { code, public_key, proof, attributes, server };
        let rejection = fleet.change(|it, tx, now, _| it.enrol(tx, now, &enrol));
        assert_eq!(rejection.expect_err("refused").code, "bad-key", "{enrol:?}");
    }
}

#[test]
fn a_session_requires_the_devices_key() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let mut open = |seed: u8, device: DeviceId, at_ms: u64| {
        let text = OpenSession::signed(device, at_ms);
        let signature = hex(pair(seed).sign(text.as_bytes()).as_ref());
        let it = OpenSession { device, at_ms, signature };
        fleet.change(|by, tx, now, _| by.open_session(tx, now, &it))
    };
    let session = open(1, device, START + 299_000).expect("it has the key");
    assert_eq!(session.expires_ms, START + 3_600_000);
    assert!(open(200, id_of(200), START).is_ok(), "a server, too");
    assert!(open(1, device, START + 299_500).is_ok(), "a later one");
    for (seed, of, at, code) in [
        (2, device, START, "bad-signature"),
        (1, id_of(2), START, "not-enrolled"),
        (1, device, START + 300_001, "stale"),
        (1, device, 0, "stale"),
        // Whoever saw a request that was answered would learn the session's key.
        (1, device, START + 299_500, "stale"),
        (1, device, START + 299_000, "stale"),
    ] {
        let rejection = open(seed, of, at).expect_err(code);
        assert_eq!((rejection.kind.status(), rejection.code), (401, code));
    }
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_an_older_one_an_error() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "cmts-1");
    let run = fleet.given(device);
    let asked = Next { request: fleet.requests, ..NEXT };
    fleet.now += 2_000;
    let again = fleet.ask(device, &asked).expect("it may ask").run.expect("the same");
    assert_eq!((again.lease, again.run), (run.lease.clone(), run.run));
    assert_eq!(fleet.store.leases().len(), 1);
    // The run could not begin any more.
    fleet.now += START_MS;
    assert_eq!(fleet.ask(device, &asked).expect("it may ask").run, None);
    let older = fleet.ask(device, &Next { request: asked.request - 1, ..NEXT });
    let older = older.expect_err("a newer one was answered");
    assert_eq!((older.kind.status(), older.code), (409, "outdated"));
    let made = fleet.ask(device, &Next { epoch: MADE_EPOCH, ..NEXT }).expect_err("not its epoch");
    assert_eq!(made.kind.status(), 400);
    // The numbers of a new epoch start at 1; an existing lease is not granted twice.
    let answer = fleet.ask(device, &Next { epoch: 1, ..NEXT }).expect("a new epoch");
    assert_eq!(answer.run, None);
    assert_eq!(fleet.outcomes(), [], "its run may be under way");
    fleet.now = fleet.store.leases()[0].expires_ms;
    fleet.ask(device, &Next { epoch: 1, request: 2, ..NEXT }).expect("it may ask");
    let missed = (Outcome::Missed, "no result was handed in".to_owned(), 1);
    assert_eq!(fleet.outcomes(), [missed]);
}

#[test]
fn a_delayed_run_is_retried_and_ends_with_its_reason() {
    let mut fleet = Fleet::ready();
    let (first, second) = (fleet.enrol(1, "cmts-1"), fleet.enrol(2, "cmts-1"));
    fleet.until_due(second);
    let due = fleet.schedule(second).due_ms;
    // A neighbour has reserved the segment.
    let lease = crate::store::HeldLease {
        expires_ms: u64::MAX >> 1,
        ..crate::store::conformance::samples::lease(7, first, "east", Some("cmts-1"))
    };
    let hold = |fleet: &mut Fleet| {
        let mut tx = fleet.store.begin(&Needs::default()).expect("memory");
        tx.put_lease(&lease).expect("memory");
        let mut server = tx.servers().expect("memory").remove(0);
        server.reserved_up_bit_per_s += lease.up_bit_per_s;
        tx.put_server(&server).expect("memory");
        tx.commit().expect("memory");
    };
    hold(&mut fleet);
    let (mut refused, mut last_asked) = (0, 0);
    while fleet.schedule(second).run == 1 {
        fleet.heartbeat(200, "east").expect("it is known");
        let answer = fleet.next(second);
        assert_eq!((answer.run, answer.refusal), (None, Some(Refusal::SegmentBusy)));
        (refused, last_asked) = (refused + 1, fleet.now);
        fleet.now = fleet.now.max(answer.next_poll_ms);
    }
    let mut outcomes = vec![(Outcome::Refused, "segment busy".to_owned(), 1)];
    assert_eq!(fleet.outcomes(), outcomes);
    assert!(refused > 2 && last_asked <= due + 20 * MINUTE, "{refused}");
    assert_eq!(fleet.orchestrator.held_back()[2], (Reason::Refused(Refusal::SegmentBusy), refused));
    // The home is busy until the time to begin the run has passed.
    fleet.until_due(second);
    while fleet.schedule(second).run == 2 {
        let answer = fleet.next_as(second, true, 0);
        assert_eq!((answer.run, answer.refusal), (None, None));
        fleet.now = fleet.now.max(answer.next_poll_ms);
    }
    outcomes.push((Outcome::CrossTraffic, "home busy".to_owned(), 1));
    outcomes.sort();
    assert_eq!(fleet.outcomes(), outcomes);
}

#[test]
fn runs_of_silent_devices_get_an_outcome() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device);
    // The device requests none of its 24 runs a day for ten days; the assigned run stays open.
    let mut settled = 0;
    for _ in 0..20 {
        fleet.now += 12 * 60 * MINUTE;
        while fleet.change(|it, tx, now, rng| Ok(Ok(it.settle(tx, now, rng, 9)?))) == Ok(1) {
            settled += 1;
        }
    }
    let [(Outcome::Missed, reason, missed)] = &fleet.outcomes()[..] else { panic!("missed only") };
    assert_eq!(reason, "the device did not ask in time");
    // 240 on average, with a standard deviation of 16.
    assert!(missed.abs_diff(240) < 70, "{missed}");
    assert!(settled <= 40, "{settled} times");
    // The device comes back with the result, and its runs continue from the next due one.
    assert_eq!(fleet.hand_in(device, 1, run.run).map(|stored| stored.new), Ok(1));
    assert!(fleet.schedule(device).due_ms + 20 * MINUTE >= fleet.now);
    // A month later no run is open.
    let late = fleet.given(device).run;
    fleet.now += OWED_MS + 1;
    for _ in 0..4 {
        fleet.change(|it, tx, now, rng| Ok(Ok(it.settle(tx, now, rng, 9)?))).expect("it may");
    }
    let known = Stored { new: 0, known: 1, refused: 0 };
    assert_eq!(fleet.hand_in(device, 2, late), Ok(known));
}

#[test]
fn a_stopped_plan_ends_due_runs_and_cannot_restart() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device);
    let stop =
        |fleet: &mut Fleet| fleet.change(|it, tx, now, _| it.stop_plan(tx, now, "me", "trial"));
    stop(&mut fleet).expect("it is there");
    assert_eq!(fleet.apply(PLAN).expect_err("its name is taken").code, "name-taken");
    fleet.now += 60_000;
    assert_eq!(fleet.hand_in(device, 1, run.run).map(|stored| stored.new), Ok(1));
    fleet.now += 24 * 60 * MINUTE;
    let answer = fleet.next(device);
    assert_eq!((answer.run, answer.alone), (None, None));
    assert_eq!(fleet.outcomes().len(), 1, "nothing was due after it stopped");
    let of_device = |fleet: &mut Fleet| {
        let Device { schedules, settle_ms, .. } = fleet.device(device);
        (schedules.len(), settle_ms)
    };
    assert_eq!(of_device(&mut fleet), (1, u64::MAX));
    // Runs that the device made without an assignment before the end are stored.
    assert_eq!(fleet.hand_in(device, 2, 0).map(|stored| stored.new), Ok(1));
    fleet.now += OWED_MS;
    fleet.next(device);
    assert_eq!(of_device(&mut fleet), (0, u64::MAX));
    assert_eq!(fleet.hand_in(device, 3, 0).map(|stored| stored.refused), Ok(1));
    let unknown = fleet.change(|it, tx, now, _| it.stop_plan(tx, now, "me", "no such"));
    assert_eq!(unknown.expect_err("no such plan").kind.status(), 404);
    let written: Vec<_> =
        fleet.store.log(2).expect("memory").into_iter().map(|it| it.what).collect();
    assert_eq!(written, ["stopped the plan trial", "made 1 codes for devices"]);
}

#[test]
fn invalid_plans_and_those_beyond_the_budget_are_refused() {
    let mut fleet = Fleet::new();
    for (from, to, code) in [
        ("name = \"trial\"", "", "no-name"),
        ("count = 1\n", "count = 0\n", "bad-plan"),
        ("[servers]", "[budget]\nline_per_month = \"1MB\"\n[servers]", "over-budget"),
        // The day before START.
        ("title", "until = \"2027-01-14\"\ntitle", "over"),
    ] {
        let refused = fleet.apply(&PLAN.replacen(from, to, 1)).expect_err(code);
        assert_eq!(refused.code, code, "{refused}");
    }
    let last_day = PLAN.replacen("\"trial\"", "\"day\"\nuntil = \"2027-01-15\"", 1);
    let row = fleet.apply(&last_day).expect("its last day is not over");
    fleet.change(|it, tx, now, _| it.stop_plan(tx, now, "me", &row.name)).expect("it runs");
    let row = fleet.apply(PLAN).expect("it is one");
    fleet.now += 1;
    assert_eq!(fleet.apply(PLAN), Ok(row), "the same again");
    let changed = fleet.apply(&PLAN.replace("= 24", "= 23")).expect_err("another of that name");
    assert_eq!(changed.code, "name-taken");
    for number in 1..PLANS_MAX {
        fleet.apply(&PLAN.replace("\"trial\"", &format!("\"p{number}\""))).expect("there is room");
    }
    let one_more = fleet.apply(&PLAN.replace("\"trial\"", "\"one-more\""));
    assert_eq!(one_more.expect_err("too many").code, "too-many-plans");
}

#[test]
fn a_lease_moves_with_its_whole_reservation_or_ends() {
    let mut fleet = Fleet::ready();
    fleet.enrol_server(202, "west").expect("it is new");
    let device = fleet.enrol(1, "cmts-1");
    fleet.until_due(device);
    fleet.heartbeat(202, "west").expect("it is known");
    let run = fleet.next(device).run.expect("all is free");
    let first = run.servers[0].name.clone();
    let other = if first == "east" { "west" } else { "east" };
    let go = |fleet: &mut Fleet, tried: &[&str], sender: DeviceId| {
        let tried = tried.iter().map(|it| (*it).to_owned()).collect();
        let it = Move { lease_id: run.lease_id, tried };
        fleet.change(|by, tx, now, rng| by.move_lease(tx, now, rng, sender, &it))
    };
    let stranger = fleet.enrol(2, "");
    assert_eq!(go(&mut fleet, &[&first], stranger).expect_err("not its").code, "not-yours");
    assert_eq!(fleet.release(stranger, run.lease_id).expect_err("not its").code, "not-yours");
    for _ in 0..2 {
        let moved = go(&mut fleet, &[&first], device).expect("it may");
        let lease = moved.lease.expect("there is room");
        let keys = [fleet.orchestrator.lease_key()];
        assert!(
            Claims::verify(&lease, &keys, other, fleet.now).is_ok_and(|it| it.id == run.lease_id)
        );
        assert_eq!(moved.server.map(|it| it.name).as_deref(), Some(other), "also when repeated");
        let used = [first.as_str(), other].map(|name| fleet.server(name).reserved_up_bit_per_s);
        assert_eq!(used, [0, 100_000_000]);
    }
    // A report of the first server does not end the lease that has moved.
    let old_seed = if first == "east" { 200 } else { 202 };
    let told = Heartbeat { address: address(&first), ended: vec![run.lease_id], ..HEARTBEAT };
    fleet.say(old_seed, &told).expect("it is known");
    assert_eq!(fleet.store.leases().len(), 1);
    let none = Moved { lease: None, server: None };
    // A repeated request does not end it either, after the run has begun.
    let begun = std::mem::replace(&mut fleet.now, run.not_after_ms + 1);
    assert_eq!(go(&mut fleet, &[&first], device), Ok(none.clone()));
    assert_eq!(fleet.store.leases().len(), 1);
    fleet.now = begun;
    assert_eq!(go(&mut fleet, &[&first, other], device), Ok(none.clone()));
    assert_eq!((fleet.store.leases(), fleet.server(other).reserved_up_bit_per_s), (Vec::new(), 0));
    assert_eq!(go(&mut fleet, &[&first], device), Ok(none), "it is over");
}

#[test]
fn leases_of_a_silent_server_end_once_none_can_start() {
    let mut fleet = Fleet::ready();
    let (first, second) = (fleet.enrol(1, "cmts-1"), fleet.enrol(2, "cmts-1"));
    fleet.enrol_server(202, "west").expect("it is new");
    fleet.next(second);
    let run = fleet.given(first);
    assert_eq!(run.servers[0].name, "east");
    let given = fleet.now;
    // West sends heartbeats, east does not. Is the segment free for a neighbour whose run is due?
    let is_free = |fleet: &mut Fleet| {
        fleet.heartbeat(202, "west").expect("it is known");
        fleet.change(|it, tx, now, rng| Ok(Ok(it.settle(tx, now, rng, 1)?))).expect("it may");
        fleet.store.leases().is_empty()
    };
    fleet.now = given + START_MS + 2 * SKEW_MS;
    assert!(!is_free(&mut fleet), "it may have begun, and end with its server's silence");
    fleet.now += 1;
    assert!(is_free(&mut fleet), "before it expires");
    assert_eq!(fleet.server("east").reserved_up_bit_per_s, 0);
    let back = fleet.heartbeat(200, "east").expect("it is known");
    assert_eq!((back.lease_keys.len(), back.next_ms), (1, fleet.now + HEARTBEAT_MS));
}

#[test]
fn after_the_clock_is_set_back_a_server_is_silent_until_its_next_report() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    fleet.until_due(device);
    let due = fleet.now;
    fleet.now += 365 * 24 * 60 * MINUTE;
    fleet.heartbeat(200, "east").expect("it is known");
    fleet.now = due;
    assert_eq!(fleet.next(device).refusal, Some(Refusal::NoServer), "heard a year from now");
    fleet.heartbeat(200, "east").expect("it is known");
    assert_eq!(fleet.server("east").heard_ms, due);
    // The clock is earlier than at the last heartbeat: the time of the last heartbeat does not go back.
    fleet.now = due - SKEW_MS;
    fleet.heartbeat(200, "east").expect("it is known");
    assert_eq!(fleet.server("east").heard_ms, due);
}

/// A machine whose clock stops while it is off starts with a wrong time until the network sets it.
#[test]
fn a_time_that_the_clock_skipped_makes_no_missed_runs() {
    const DAY: u64 = 24 * 60 * MINUTE;
    for wrong in [START - 400 * DAY, START - DAY / 2, START + 60 * DAY] {
        let mut fleet = Fleet::ready();
        let device = fleet.enrol(1, "");
        fleet.next(device);
        let settle = |fleet: &mut Fleet| {
            for _ in 0..4 {
                fleet.change(|it, tx, now, rng| Ok(Ok(it.settle(tx, now, rng, 9)?))).expect("done");
            }
        };
        settle(&mut fleet);
        for now in [wrong, START + MINUTE] {
            fleet.now = now;
            fleet.heartbeat(200, "east").expect("it is known");
            fleet.next(device);
            settle(&mut fleet);
        }
        assert_eq!(fleet.outcomes(), [], "{wrong}");
        // The device's runs go on, and those that it misses from now on are counted.
        fleet.given(device);
        for _ in 0..4 {
            fleet.now += DAY / 2;
            settle(&mut fleet);
        }
        let missed: u64 = fleet.outcomes().iter().map(|(.., count)| count).sum();
        assert!(missed.abs_diff(48) < 30, "{missed} after {wrong}");
    }
}

#[test]
fn a_clock_set_back_delays_no_device() {
    let mut fleet = Fleet::ready();
    let now = fleet.now;
    fleet.now += 30 * 24 * 60 * MINUTE;
    let first = fleet.enrol(1, "cmts-1");
    let others = [fleet.enrol(2, "cmts-1"), fleet.enrol(3, "cmts-1")];
    let run = fleet.given(first);
    for other in others {
        fleet.next(other);
    }
    fleet.now = now;
    fleet.heartbeat(200, "east").expect("it is known");
    let settle = |fleet: &mut Fleet| {
        fleet.change(|it, tx, now, rng| Ok(Ok(it.settle(tx, now, rng, 9)?))).expect("it may");
    };
    settle(&mut fleet);
    // The lease lasts from now on for as long as a run that has begun.
    let lease = fleet.store.leases().remove(0);
    let lasts = run.not_after_ms - run.not_before_ms + 12_000 + 2 * STEP_EXTRA_MS + 15_000;
    assert_eq!((lease.given_ms, lease.expires_ms), (now, now + lasts));
    fleet.now = now + lasts;
    settle(&mut fleet);
    assert_eq!((fleet.store.leases(), fleet.server("east").reserved_up_bit_per_s), (vec![], 0));
    for device in others {
        fleet.next(device);
        let wakes = fleet.schedule(device).wake_ms();
        assert!(wakes < fleet.now + 24 * 60 * MINUTE, "{wakes}");
        assert_eq!(fleet.schedule(device).retry_ms, 0);
    }
    fleet.given(others[0]);
}

#[test]
fn a_loaded_line_of_an_unknown_segment_is_refused_where_lines_share_some() {
    let mut fleet = Fleet::new();
    fleet.apply(&PLAN.replace("count = 1000", "count = 1000\nper_segment = 300")).expect("new");
    fleet.enrol_server(200, "east").expect("it is new");
    let device = fleet.enrol(1, "");
    fleet.until_due(device);
    let answer = fleet.next(device);
    assert_eq!((answer.run, answer.refusal), (None, Some(Refusal::SegmentUnknown)));
    let alone = answer.alone.expect("its latency it may measure");
    assert!(alone.steps.iter().all(|step| step.kind == crate::plan::Kind::Latency));
}
