//! Checks any sequence of requests of devices, servers and operators: each gets an answer, no
//! request ends in an error of the store, and reservations are the sum of the leases.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Deserialize;
use underload_aqm::rng::Rng;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{
    Enrol, Heartbeat, Move, Next, OpenSession, Release, Results, ServerAddress,
};
use underload_fleet::orchestrator::{Answer, NewCode, Orchestrator, Settings};
use underload_fleet::store::{
    Archive, CodeFor, Device, Memory, Needs, PlanRow, Server, Store as _, Transaction,
};

const START_MS: u64 = 1_800_000_000_000;
/// Maximum number of requests in one input.
const LINES_MAX: usize = 60;
/// The first of these keys belong to devices, the last ones to servers.
const SENDERS: u8 = 5;
const DEVICES: u8 = 3;
const PLAN: &str = include_str!("../corpus/fleet_requests/plan.toml");

/// All state of the rules is in the store, so they are created once for all inputs.
static RULES: LazyLock<Orchestrator> =
    LazyLock::new(|| Orchestrator::new(Settings::default(), key(255), [7; 32]));
static KEYS: LazyLock<Vec<Ed25519KeyPair>> = LazyLock::new(|| (0..SENDERS).map(key).collect());
static APPLIED: LazyLock<PlanRow> = LazyLock::new(|| {
    let mut memory = Memory::new();
    let mut tx = memory.begin(&Needs::default()).expect("memory");
    let applied = RULES.apply_plan(&mut *tx, START_MS, "me", PLAN, &[3; 32]);
    applied.expect("memory").expect("it is a plan")
});

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed is a key")
}

struct Fleet {
    memory: Memory,
    rng: Rng,
    now_ms: u64,
}

// A line is a digit for the sender, a letter for the request, and the request's JSON; or `+` and
// seconds.
fuzz_target!(|text: &str| {
    let mut fleet = Fleet::new();
    for line in text.lines().take(LINES_MAX) {
        if let Some(seconds) = line.strip_prefix('+') {
            let seconds: u32 = seconds.parse().unwrap_or(1);
            fleet.now_ms += u64::from(seconds) * 1_000;
            fleet.change(|it, tx, now, rng| it.settle(tx, now, rng, 8).map(Ok));
        } else if let Some((head, json)) = line.split_at_checked(2) {
            let [sender, kind] = *head.as_bytes() else { continue };
            fleet.request(usize::from(sender.wrapping_sub(b'0') % SENDERS), kind, json);
        }
        fleet.check();
    }
});

impl Fleet {
    fn new() -> Self {
        let (memory, rng) = (Memory::new(), Rng::new(1));
        let mut fleet = Self { memory, rng, now_ms: START_MS };
        let mut memory = fleet.memory.clone();
        let mut tx = memory.begin(&Needs::default()).expect("memory");
        for sender in 0..SENDERS {
            let public_key = public_key(sender.into());
            if sender < DEVICES {
                tx.put_device(&device(public_key)).expect("memory");
            } else {
                tx.put_server(&server(public_key, ["east", "west"][usize::from(sender - DEVICES)]))
                    .expect("memory");
            }
        }
        tx.put_plan(&APPLIED).expect("memory");
        tx.put_setting("study-key/always", &[3; 32]).expect("memory");
        tx.commit().expect("memory");
        for (makes, secret) in [(CodeFor::Device, 1), (CodeFor::Server, 2)] {
            let (attributes, valid_ms) = (Attributes::default(), 3_600_000);
            let line = String::new();
            let new = NewCode { makes, attributes, line, valid_ms, secret: [secret; 16] };
            fleet.change(|it, tx, now, _| it.new_codes(tx, now, "me", &[new]));
        }
        fleet
    }

    fn change<T>(
        &mut self,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) {
        let mut memory = self.memory.clone();
        let mut tx = memory.begin(&Needs::default()).expect("memory");
        let done = by(&RULES, &mut *tx, self.now_ms, &mut self.rng);
        // A store in memory never fails, so an error of the store was caused by the request.
        let _ = done.expect("a peer causes no error of the store");
        tx.commit().expect("memory");
    }

    fn request(&mut self, sender: usize, kind: u8, json: &str) {
        let id = DeviceId::of_key(&public_key(sender));
        match kind {
            b'n' => {
                self.handle::<Next, _>(json, |it, tx, now, rng, m| it.next(tx, now, rng, id, m));
            }
            b'd' => self.handle::<Results, _>(json, |it, tx, now, _, m| it.results(tx, now, id, m)),
            b'h' => {
                self.handle::<Heartbeat, _>(json, |it, tx, now, _, m| it.heartbeat(tx, now, id, m));
            }
            b'm' => {
                let held = self.lease_of(id);
                self.handle::<Move, _>(json, |it, tx, now, rng, m| {
                    m.lease_id = if m.lease_id == 0 { held } else { m.lease_id };
                    it.move_lease(tx, now, rng, id, m)
                });
            }
            b'r' => {
                let held = self.lease_of(id);
                self.handle::<Release, _>(json, |it, tx, _, _, m| {
                    m.lease_id = if m.lease_id == 0 { held } else { m.lease_id };
                    it.release(tx, id, m)
                });
            }
            b'e' => self.handle::<Enrol, _>(json, |it, tx, now, _, m| {
                if m.proof.is_empty() {
                    m.public_key = HEXLOWER.encode(&public_key(sender));
                    m.proof = HEXLOWER.encode(KEYS[sender].sign(m.code.as_bytes()).as_ref());
                }
                it.enrol(tx, now, m)
            }),
            b's' => self.handle::<OpenSession, _>(json, |it, tx, now, _, m| {
                if m.signature.is_empty() {
                    (m.device, m.at_ms) = (id, now);
                    let text = OpenSession::signed(id, now);
                    m.signature = HEXLOWER.encode(KEYS[sender].sign(text.as_bytes()).as_ref());
                }
                it.open_session(tx, now, m)
            }),
            b'p' => self.change(|it, tx, now, _| it.apply_plan(tx, now, "me", json, &[3; 32])),
            b'q' => self.change(|it, tx, now, _| it.stop_plan(tx, now, "me", json)),
            b'x' => self.change(|it, tx, now, rng| it.remove_device(tx, now, rng, "me", id)),
            _ => {}
        }
    }

    fn handle<M: for<'de> Deserialize<'de>, A>(
        &mut self,
        json: &str,
        ask: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng, &mut M) -> Answer<A>,
    ) {
        if let Ok(mut message) = serde_json::from_str(json) {
            self.change(|it, tx, now, rng| ask(it, tx, now, rng, &mut message));
        }
    }

    /// Returns the number of the device's lease; 0 if it has none.
    fn lease_of(&self, id: DeviceId) -> u64 {
        self.memory.leases().iter().find(|lease| lease.device == id).map_or(0, |lease| lease.id)
    }

    fn check(&mut self) {
        let mut held: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let leases = self.memory.leases();
        for lease in &leases {
            let sums = held.entry(lease.server.clone()).or_default();
            *sums = (sums.0 + lease.up_bit_per_s, sums.1 + lease.down_bit_per_s);
            assert_eq!(leases.iter().filter(|it| it.device == lease.device).count(), 1);
        }
        for server in Archive::servers(&mut self.memory).expect("memory") {
            let reserved = (server.reserved_up_bit_per_s, server.reserved_down_bit_per_s);
            assert_eq!(held.remove(&server.address.name).unwrap_or_default(), reserved);
        }
        assert!(held.is_empty(), "leases of servers that are not there: {held:?}");
    }
}

fn public_key(sender: usize) -> [u8; 32] {
    KEYS[sender].public_key().as_ref().try_into().expect("32 bytes")
}

fn device(public_key: [u8; 32]) -> Device {
    Device::new(DeviceId::of_key(&public_key), public_key, Attributes::default(), START_MS)
}

fn server(public_key: [u8; 32], name: &str) -> Server {
    let fingerprint = format!("sha256:{}", "0".repeat(64));
    Server {
        address: ServerAddress {
            name: name.to_owned(),
            address: "192.0.2.1:4433".to_owned(),
            fingerprint,
        },
        device: DeviceId::of_key(&public_key),
        public_key,
        is_removed: false,
        up_bit_per_s: 20_000_000,
        down_bit_per_s: 20_000_000,
        reserved_up_bit_per_s: 0,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        sessions: 0,
        heard_ms: START_MS,
    }
}
