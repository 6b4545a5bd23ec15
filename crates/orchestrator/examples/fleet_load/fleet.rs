//! A fleet in a store, and the requests of its devices.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Numbered, Results, ServerAddress};
use underload_fleet::orchestrator::{Orchestrator, Settings};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::request::{SessionSecrets, authenticate, open_session};
use underload_fleet::store::{Device, Needs, Server, Store as _};
use underload_orchestrator::store::SqlStore;

/// The header with the key of a body, for the baseline server.
pub const KEY: &str = "x-key";

/// A latency step and an upload, two markings each: four series per run.
pub const PLAN: &str = r#"
name = "load"
title = "What a benchmark sends"
runs_per_day = 6
start_within = "12h"
[lines]
count = 10000000
per_segment = 300
[[tier]]
up = "10mbit"
down = "100mbit"
[[step]]
name = "idle"
kind = "latency"
duration = "3s"
classes = [0, 45]
[[step]]
name = "up"
kind = "upload"
duration = "7s"
classes = [0, 45]
[servers]
count = 1
capacity = "1000gbit"
"#;

const FLEET_SECRET: [u8; 32] = [5; 32];
/// Devices that are inserted per transaction.
const AT_ONCE: u32 = 20_000;
/// Segments of ten million devices, 300 each.
const SEGMENTS: u32 = 33_333;
const CAPACITY_BIT_PER_S: u64 = 1_000_000_000_000;
/// Larger than the number of any device.
pub const SERVER: u32 = u32::MAX;

pub struct Sender {
    pub id: DeviceId,
    opened: SessionSecrets,
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

pub fn key(number: u32) -> anyhow::Result<Ed25519KeyPair> {
    let seed = digest(&SHA256, &number.to_be_bytes());
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).map_err(|_| anyhow!("no key"))
}

fn public_key(number: u32) -> anyhow::Result<[u8; 32]> {
    Ok(key(number)?.public_key().as_ref().try_into()?)
}

/// Creates a store with devices, a server and a plan. `stands` sets the schedule of a device.
///
/// The segments are those of ten million devices: if fewer devices send as many requests, more of
/// them share a segment at the same time, and are refused, than in reality.
pub fn fill(directory: &Path, devices: u32, stands: impl Fn(&mut Device)) -> anyhow::Result<()> {
    let per_segment = (devices / SEGMENTS).max(1);
    let mut store = SqlStore::sqlite(directory)?;
    let now_ms = now_ms();
    let mut tx = store.begin(&Needs::default())?;
    let seed = [6; 32];
    // Drawn at random, as by an orchestrator when it starts.
    tx.put_setting("fleet/secret", &FLEET_SECRET)?;
    tx.put_setting("fleet/lease-key", &seed)?;
    let lease_key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| anyhow!("no key"))?;
    let rules = Orchestrator::new(Settings::default(), lease_key, FLEET_SECRET);
    rules.apply_plan(&mut *tx, now_ms, "benchmark", PLAN, &[7; 32])??;
    tx.put_server(&server(public_key(SERVER)?, now_ms))?;
    tx.commit()?;
    for begin in (0..devices).step_by(AT_ONCE as usize) {
        let mut tx = store.begin(&Needs::default())?;
        for number in begin..devices.min(begin + AT_ONCE) {
            let mut device = device(public_key(number)?, number, now_ms);
            device.attributes.segment = format!("segment {}", number / per_segment);
            stands(&mut device);
            tx.put_device(&device)?;
        }
        tx.commit()?;
    }
    Ok(())
}

fn device(public_key: [u8; 32], number: u32, now_ms: u64) -> Device {
    let attributes = Attributes {
        model: ["XB7", "XB8", "TG3482G"][number as usize % 3].to_owned(),
        firmware: "6.5".to_owned(),
        tier_up_bit_per_s: 10_000_000,
        tier_down_bit_per_s: 100_000_000,
        region: format!("region {}", number % 10),
        ..Attributes::default()
    };
    Device::new(DeviceId::of_key(&public_key), public_key, attributes, now_ms - 86_400_000)
}

pub fn address() -> ServerAddress {
    ServerAddress {
        name: "east".to_owned(),
        address: "192.0.2.1:4862".to_owned(),
        fingerprint: format!("sha256:{}", "0".repeat(64)),
    }
}

fn server(public_key: [u8; 32], now_ms: u64) -> Server {
    Server {
        address: address(),
        device: DeviceId::of_key(&public_key),
        public_key,
        is_removed: false,
        up_bit_per_s: CAPACITY_BIT_PER_S,
        down_bit_per_s: CAPACITY_BIT_PER_S,
        reserved_up_bit_per_s: 0,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        sessions: 0,
        heard_ms: now_ms,
    }
}

impl Sender {
    /// Uses a session that was opened before.
    pub fn new(number: u32) -> anyhow::Result<Self> {
        let id = DeviceId::of_key(&public_key(number)?);
        Ok(Self { id, opened: open_session(&FLEET_SECRET, id, now_ms() + 3_600_000) })
    }

    /// Uses the session that an orchestrator opened.
    pub fn of_session(id: DeviceId, session: &str, key: &str) -> anyhow::Result<Self> {
        let key: Vec<u8> = HEXLOWER.decode(key.as_bytes())?;
        let key = key.as_slice().try_into()?;
        Ok(Self { id, opened: SessionSecrets { session: session.to_owned(), key } })
    }

    /// Returns a signed request of this sender.
    pub fn request(&self, path: &str, body: &str, number: u64) -> Vec<u8> {
        let at_ms = now_ms();
        let tag = authenticate(&self.opened.key, "POST", path, at_ms, body.as_bytes());
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             underload-session: {}\r\nunderload-time: {at_ms}\r\nunderload-tag: {tag}\r\n\
             {KEY}: {}/{number}\r\ncontent-length: {}\r\n\r\n{body}",
            self.opened.session,
            self.id,
            body.len()
        )
        .into_bytes()
    }
}

/// Returns a request without a session.
pub fn plain(path: &str, message: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let body = serde_json::to_string(message)?;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}");
    Ok(format!("{head}\r\ncontent-type: application/json\r\n\r\n{body}").into_bytes())
}

/// Returns a series of `probes`, spread over thirty bins.
fn series(dscp: u8, probes: u64) -> SeriesResult {
    let mut bins = Bins::default();
    (0..probes).for_each(|probe| bins.add_to(400 + (probe * probe % 30) as u16, 1));
    SeriesResult {
        dscp,
        sent: probes,
        lost: 0,
        bins,
        p50_us: Some(3_300),
        p99_us: Some(4_500),
        mean_us: Some(3_500),
        max_us: Some(4_510),
    }
}

/// Returns the result of a scheduled run, or of an unscheduled one (run 0), which measures latency
/// only.
pub fn result(run: u64, at_ms: u64) -> RunResult {
    let step = |name: &str, kind, goodput, classes: &[u8]| StepResult {
        step: name.to_owned(),
        inside: None,
        kind,
        goodput_bit_per_s: goodput,
        tier_percent: goodput.map(|_| 97.5),
        grade: None,
        series: classes.iter().map(|dscp| series(*dscp, 350)).collect(),
    };
    let steps = if run == 0 {
        vec![step("idle", Kind::Latency, None, &[0])]
    } else {
        let goodput = Some(9_750_000);
        vec![
            step("idle", Kind::Latency, None, &[0, 45]),
            step("up", Kind::Upload, goodput, &[0, 45]),
        ]
    };
    RunResult {
        plan: "load".to_owned(),
        run,
        at_ms,
        outcome: Outcome::Measured,
        reason: String::new(),
        server: "east".to_owned(),
        version: "underload 0.1.0".to_owned(),
        steps,
    }
}

/// Returns results with numbers from `first` on.
pub fn results(first: u64, results: Vec<RunResult>) -> String {
    let numbered = (first..).zip(results).map(|(sequence, result)| Numbered { sequence, result });
    let results = Results { epoch: 0, results: numbered.collect() };
    serde_json::to_string(&results).unwrap_or_default()
}
