//! Requests and what they change.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_aqm::rng::Rng;

use super::*;
use crate::device::Attributes;
use crate::message::{Numbered, ServerAddress};
use crate::outcome::{Outcome, RunResult};
use crate::store::{Archive as _, CodeFor, Filter, Memory, Needs, Schedule, Server, Store as _};

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

    /// With a plan and a server.
    fn ready() -> Self {
        let mut fleet = Self::new();
        fleet.apply(PLAN).expect("it is new");
        fleet.enrol_server(200, "east").expect("it is new");
        fleet.heartbeat(200, "east").expect("it is known");
        fleet
    }

    fn change<T>(
        &mut self,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
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
        let new = NewCode { makes, attributes, valid_ms: 60 * MINUTE, secret: [secret; 16] };
        self.change(|it, tx, now, _| it.new_code(tx, now, "me", &new)).expect("it is new")
    }

    fn enrol_with(
        &mut self,
        seed: u8,
        code: &str,
        server: Option<ServerAddress>,
    ) -> Result<Enrolled, Rejection> {
        let key = pair(seed);
        let enrol = Enrol {
            code: code.to_owned(),
            public_key: hex(key.public_key().as_ref()),
            proof: hex(key.sign(code.as_bytes()).as_ref()),
            attributes: Attributes { model: "told".to_owned(), ..Attributes::default() },
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

    /// On to when the device's next run is due, all servers being alive.
    fn until_due(&mut self, id: DeviceId) {
        self.next(id);
        self.now = self.schedule(id).wake_ms().max(self.now);
        self.heartbeat(200, "east").expect("it is known");
    }

    /// The run that a device gets when it is due.
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
        let counts = self.store.outcomes(&Filter::default()).expect("memory");
        counts.into_iter().map(|it| (it.outcome, it.reason, it.count)).collect()
    }
}

use crate::message::Assignment;

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
    // 12 s of steps, 3 s for each of the two, to begin within 30 s, and 15 s.
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
