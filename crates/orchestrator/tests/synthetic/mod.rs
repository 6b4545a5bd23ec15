//! A fleet that never was: lines, servers and results by a seed, for the pages to show.

pub mod served;

use underload_aqm::rng::Rng;
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::message::ServerAddress;
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::store::{
    Device, LogEntry, Needs, PlanRow, Schedule, Server, Store, StoreError, StoredResult,
};

/// 2026-11-22 12:00 UTC.
pub const NOW_MS: u64 = 1_795_348_800_000;
/// The plan that all take part in.
pub const PLAN: &str = "low-latency-trial";
/// A region of so few devices that no viewer is to see it.
pub const SMALL_REGION: &str = "island";
/// Devices in it.
pub const SMALL_REGION_DEVICES: u32 = 3;

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub devices: u32,
    /// Days until now, one run of each device a day.
    pub days: u32,
    /// Probes of a series.
    pub probes: u32,
}

/// Puts it into a store.
pub fn fill(store: &mut dyn Store, size: Size) -> Result<(), StoreError> {
    let mut rng = Rng::new(5);
    let mut tx = store.begin(&Needs::default())?;
    for (name, share) in [("east", 40), ("west", 10)] {
        tx.put_server(&server(name, share))?;
    }
    let text = Plan::built_in(PLAN).expect("it is built in").to_owned();
    let began_ms = NOW_MS - u64::from(size.days) * 86_400_000;
    let plan = PlanRow { name: PLAN.to_owned(), text, applied_ms: began_ms, stopped_ms: None };
    tx.put_plan(&plan)?;
    let what = format!("applied plan {PLAN}");
    tx.log(&LogEntry { at_ms: began_ms, who: "ana".to_owned(), what })?;
    tx.commit()?;
    for from in (0..size.devices).step_by(BATCH as usize) {
        let mut tx = store.begin(&Needs::default())?;
        let mut results = Vec::new();
        for number in from..size.devices.min(from + BATCH) {
            let device = device(number, &mut rng);
            tx.put_device(&device)?;
            results.extend((1..=size.days).map(|day| result(&device, number, day, size, &mut rng)));
        }
        tx.append(&results)?;
        tx.commit()?;
    }
    Ok(())
}

/// Devices of a transaction.
const BATCH: u32 = 1_000;

fn server(name: &str, reserved_percent: u64) -> Server {
    let rate = 10_000_000_000;
    Server {
        address: ServerAddress {
            name: name.to_owned(),
            address: format!("{name}.example:9090"),
            fingerprint: format!("sha256:{}", "0".repeat(64)),
        },
        device: DeviceId([0; 16]),
        public_key: [0; 32],
        is_removed: false,
        up_bit_per_s: rate,
        down_bit_per_s: rate,
        reserved_up_bit_per_s: rate / 100 * reserved_percent,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: rate / 100 * reserved_percent / 2,
        carried_down_bit_per_s: 1_000_000,
        sessions: 7,
        heard_ms: NOW_MS - 4_000,
    }
}

/// The identifier of the device of that number.
pub fn id(number: u32) -> DeviceId {
    let mut id = [0x5a; 16];
    id[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    DeviceId(id)
}

fn device(number: u32, rng: &mut Rng) -> Device {
    let small = number < SMALL_REGION_DEVICES;
    let regions = ["north", "south", "east"];
    let region = if small { SMALL_REGION } else { regions[number as usize % regions.len()] };
    let (up, down) = if number.is_multiple_of(4) { (10, 300) } else { (35, 800) };
    let has_aqm = number.is_multiple_of(2);
    Device {
        id: id(number),
        public_key: [0; 32],
        attributes: Attributes {
            model: if has_aqm { "CGM4140COM" } else { "TG3482G" }.to_owned(),
            firmware: if rng.next_u64().is_multiple_of(3) { "6.5" } else { "6.8" }.to_owned(),
            tier_up_bit_per_s: up * 1_000_000,
            tier_down_bit_per_s: down * 1_000_000,
            segment: format!("cmts{}-{:02}", number % 7, number / 300 % 100),
            region: region.to_owned(),
            configured: if has_aqm { "docsis-pie" } else { "250 ms" }.to_owned(),
            measured: if has_aqm { "pie-like" } else { "drop-tail" }.to_owned(),
        },
        enrolled_ms: NOW_MS - 40 * 86_400_000,
        seen_ms: NOW_MS - u64::from(number % 3_600) * 1_000,
        is_removed: false,
        epoch: 1,
        request: 9,
        waiting: u64::from(number % 2),
        dropped: 0,
        settle_ms: u64::MAX,
        made: 0,
        schedules: vec![Schedule {
            plan: PLAN.to_owned(),
            run: 31,
            due_ms: NOW_MS + 3_600_000,
            refusals: 0,
            retry_ms: 0,
            held_back: None,
            open: Vec::new(),
        }],
    }
}

fn result(device: &Device, number: u32, day: u32, size: Size, rng: &mut Rng) -> StoredResult {
    let of_day = rng.next_u64() % 86_400_000;
    let at_ms = NOW_MS / 86_400_000 * 86_400_000 - u64::from(size.days - day) * 86_400_000;
    let at_ms = (at_ms + of_day).min(NOW_MS);
    let (outcome, reason) = match rng.next_u64() % 100 {
        0..90 => (Outcome::Measured, ""),
        90..94 => (Outcome::Refused, "segment busy"),
        94..96 => (Outcome::Refused, "servers full"),
        96..98 => (Outcome::CrossTraffic, ""),
        98 => (Outcome::Failed, "the server did not answer"),
        _ => (Outcome::Missed, ""),
    };
    let loaded_ms = if number.is_multiple_of(2) { 25.0 } else { 240.0 };
    let mut series = |dscp, middle_ms| series(dscp, middle_ms, size.probes, rng);
    let step = |name: &str, kind, series| StepResult {
        step: name.to_owned(),
        kind,
        goodput_bit_per_s: (kind == Kind::Upload).then_some(34_000_000),
        tier_percent: (kind == Kind::Upload).then_some(97.1),
        series,
    };
    let steps = match outcome {
        Outcome::Measured => vec![
            step("idle", Kind::Latency, vec![series(8, 11.0), series(45, 11.0)]),
            step("loaded", Kind::Upload, vec![series(8, loaded_ms), series(45, 14.0)]),
        ],
        _ => Vec::new(),
    };
    StoredResult {
        device: device.id,
        epoch: 1,
        sequence: u64::from(day),
        stored_ms: at_ms + 20_000,
        pseudonym: Pseudonym(device.id.0),
        cohort: if number.is_multiple_of(2) { "aqm" } else { "control" }.to_owned(),
        attributes: device.attributes.clone(),
        result: RunResult {
            plan: PLAN.to_owned(),
            run: u64::from(day),
            at_ms,
            outcome,
            reason: reason.to_owned(),
            server: "east".to_owned(),
            version: "underload 0.1.0".to_owned(),
            steps,
        },
    }
}

/// Round trips around that delay, some of them twice as long.
fn series(dscp: u8, middle_ms: f64, probes: u32, rng: &mut Rng) -> SeriesResult {
    let mut unit = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let lost = u64::from(unit() < 0.1);
    let mut delays: Vec<f64> = (0..u64::from(probes) - lost)
        .map(|_| {
            let spread = 0.7 + 0.6 * unit() * unit();
            let tail = if unit() > 0.98 { 1.0 + unit() } else { 1.0 };
            middle_ms * 1e3 * spread * tail
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    let mut bins = Bins::default();
    for delay in &delays {
        bins.add(*delay);
    }
    let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).map(|us| *us as u64);
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    SeriesResult {
        dscp,
        sent: u64::from(probes),
        lost,
        bins,
        p50_us: at(0.5),
        p99_us: at(0.99),
        mean_us: Some(mean as u64),
        max_us: delays.last().map(|us| *us as u64),
    }
}
