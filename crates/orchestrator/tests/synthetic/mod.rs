//! A synthetic fleet for the pages: lines, servers and results, made from a seed.

pub mod served;

use underload_aqm::rng::Rng;
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::message::ServerAddress;
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::rollout::{Decision, Event, Look, Measure, Pause, Row, append};
use underload_fleet::store::{
    Device, LogEntry, Needs, PlanRow, Schedule, Server, Store, StoreError, StoredResult,
    Transaction,
};
use underload_orchestrator::rollout::event_words;
use underload_record::cohorts::Effect;

/// 2026-11-22 12:00 UTC.
pub const NOW_MS: u64 = 1_795_348_800_000;
/// The plan of the newer trial; all lines take part in both.
pub const PLAN: &str = "low-latency-trial";
/// The plan that compares lines with and without queue management.
pub const STUDY: &str = "comcast-study";
/// A region with too few devices to be shown to viewers.
pub const SMALL_REGION: &str = "island";
pub const SMALL_REGION_DEVICES: u32 = 3;

/// The size of the fleet.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub devices: u32,
    /// Days of data up to now, with one run per day of each device and plan.
    pub days: u32,
    /// Probes of each series.
    pub probes: u32,
}

/// Writes the fleet into a store.
pub fn fill(store: &mut dyn Store, size: Size) -> Result<(), StoreError> {
    let mut rng = Rng::new(5);
    let mut tx = store.begin(&Needs::default())?;
    for (name, share) in [("east", 40), ("west", 10)] {
        tx.put_server(&server(name, share))?;
    }
    let began_ms = NOW_MS - u64::from(size.days) * 86_400_000;
    for name in [STUDY, PLAN] {
        let text = Plan::built_in(name).expect("it is built in").to_owned();
        let applied_ms = began_ms + u64::from(name == PLAN);
        let plan = PlanRow { name: name.to_owned(), text, applied_ms, stopped_ms: None };
        tx.put_plan(&plan)?;
        let what = format!("applied plan {name}");
        tx.log(&LogEntry { at_ms: began_ms, who: "ana".to_owned(), what })?;
    }
    rollout(&mut *tx)?;
    tx.commit()?;
    for from in (0..size.devices).step_by(BATCH as usize) {
        let mut tx = store.begin(&Needs::default())?;
        let mut results = Vec::new();
        for number in from..size.devices.min(from + BATCH) {
            let device = device(number, &mut rng);
            tx.put_device(&device)?;
            for day in 1..=size.days {
                results.extend([STUDY, PLAN].map(|plan| {
                    let run = Run { plan, queue: Queue::of_device(number), day };
                    result(&device, run, size, &mut rng)
                }));
            }
        }
        tx.append(&results)?;
        tx.commit()?;
    }
    Ok(())
}

/// Stores a rollout whose first stage was watched for eight days.
fn rollout(tx: &mut dyn Transaction) -> Result<(), StoreError> {
    let text = format!(
        "name = 'pie'\nplan = '{PLAN}'\nstep = 'loaded'\ncommand = ['true']\n\
         [[file]]\npath = 'pie.cm'\n"
    );
    let today = (NOW_MS / 86_400_000) as u32;
    let (devices, failed) = ((0..25).map(id).collect(), Vec::new());
    let sent = Event::Sent { stage: 0, is_former: false, devices, failed, is_last: true };
    let mut events = vec![Event::Started { is_dry_run: false }, sent];
    for day in 1..=8 {
        let half = 0.3 / f64::from(day).sqrt();
        let look = |measure, value| Look {
            group: String::new(),
            measure,
            effect: Effect { value, low: value - half, high: value + half, lines: 2_500 },
        };
        let looks = vec![look(Measure::P99, -0.6), look(Measure::Harmed, -0.12)];
        let pause = Decision::Pause(Pause::Person);
        let decision = if day < 8 { Decision::Wait } else { pause };
        events.push(Event::Looked { day: today - 9 + day, looks, decision });
    }
    for (known, event) in events.into_iter().enumerate() {
        let at_ms = NOW_MS - 86_400_000 * 9_u64.saturating_sub(known as u64);
        let row = Row { at_ms, who: "ana".to_owned(), event };
        assert!(append(tx, "pie", &text, known, (&row, &event_words(&row.event)))?, "row {known}");
    }
    Ok(())
}

/// Devices that are inserted per transaction.
const BATCH: u32 = 1_000;

/// Returns a measurement server with the given share of its rate reserved.
pub fn server(name: &str, reserved_percent: u64) -> Server {
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

/// Returns the identifier of the device with that number.
pub fn id(number: u32) -> DeviceId {
    let mut id = [0x5a; 16];
    id[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    DeviceId(id)
}

/// The queue in a line's modem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    LowLatency,
    Pie,
    DropTail,
}

impl Queue {
    fn of_device(number: u32) -> Self {
        match number % 4 {
            0 => Self::LowLatency,
            2 => Self::Pie,
            _ => Self::DropTail,
        }
    }

    /// Returns the typical loaded round trip of that marking, in milliseconds.
    fn loaded_ms(self, kind: Kind, dscp: u8) -> f64 {
        match (self, kind, dscp) {
            (_, Kind::Latency, _) => 11.0,
            (_, Kind::Download, _) => 34.0,
            (Self::LowLatency, _, 45) => 13.0,
            (Self::LowLatency | Self::Pie, ..) => 25.0,
            (Self::DropTail, ..) => 240.0,
        }
    }

    /// Returns the attributes `configured` and `measured` of the queue.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::LowLatency => ("low-latency", "dual queue"),
            Self::Pie => ("docsis-pie", "PIE-like"),
            Self::DropTail => ("250 ms", "drop-tail"),
        }
    }
}

/// A scheduled run of a device.
#[derive(Debug, Clone, Copy)]
struct Run {
    plan: &'static str,
    queue: Queue,
    /// The number of the day; the first is 1.
    day: u32,
}

impl Run {
    fn cohort(self) -> &'static str {
        match (self.plan, self.queue) {
            (PLAN, Queue::LowLatency) => "low-latency",
            (PLAN, _) => "classic",
            (_, Queue::DropTail) => "without-aqm",
            _ => "with-aqm",
        }
    }
}

fn device(number: u32, rng: &mut Rng) -> Device {
    let small = number < SMALL_REGION_DEVICES;
    let regions = ["north", "south", "east"];
    let region = if small { SMALL_REGION } else { regions[number as usize % regions.len()] };
    let (up, down) = if number.is_multiple_of(4) { (10, 300) } else { (35, 800) };
    let queue = Queue::of_device(number);
    let (configured, measured) = queue.words();
    let attributes = Attributes {
        model: if queue == Queue::DropTail { "TG3482G" } else { "CGM4140COM" }.to_owned(),
        firmware: if rng.next_u64().is_multiple_of(3) { "6.5" } else { "6.8" }.to_owned(),
        tier_up_bit_per_s: up * 1_000_000,
        tier_down_bit_per_s: down * 1_000_000,
        segment: format!("cmts{}-{:02}", number % 7, number / 300 % 100),
        region: region.to_owned(),
        configured: configured.to_owned(),
        measured: measured.to_owned(),
    };
    Device {
        seen_ms: NOW_MS - u64::from(number % 3_600) * 1_000,
        epoch: 1,
        request: 9,
        waiting: u64::from(number % 2),
        schedules: vec![Schedule {
            plan: PLAN.to_owned(),
            run: 31,
            due_ms: NOW_MS + 3_600_000,
            refusals: 0,
            retry_ms: 0,
            own_ms: 0,
            held_back: None,
            open: Vec::new(),
        }],
        ..Device::new(id(number), [0; 32], attributes, NOW_MS - 40 * 86_400_000)
    }
}

/// Returns a device with one result in addition to those of [`fill`].
#[allow(dead_code, reason = "not every test adds to what there is")]
pub fn measured(number: u32, size: Size) -> (Device, StoredResult) {
    let mut rng = Rng::new(9);
    let device = device(number, &mut rng);
    let run = Run { plan: PLAN, queue: Queue::of_device(number), day: size.days + 1 };
    loop {
        let result = result(&device, run, size, &mut rng);
        if result.result.outcome == Outcome::Measured {
            return (device, result);
        }
    }
}

fn result(device: &Device, run: Run, size: Size, rng: &mut Rng) -> StoredResult {
    let of_day = rng.next_u64() % 86_400_000;
    let at_ms = NOW_MS / 86_400_000 * 86_400_000
        - u64::from(size.days.saturating_sub(run.day)) * 86_400_000;
    let at_ms = (at_ms + of_day).min(NOW_MS);
    let (outcome, reason) = match rng.next_u64() % 100 {
        0..90 => (Outcome::Measured, ""),
        90..94 => (Outcome::Refused, "segment busy"),
        94..96 => (Outcome::Refused, "servers full"),
        96..98 => (Outcome::CrossTraffic, ""),
        98 => (Outcome::Failed, "the server did not answer"),
        _ => (Outcome::Missed, ""),
    };
    let mut step = |name: &str, kind, classes: &[u8]| StepResult {
        step: name.to_owned(),
        inside: None,
        kind,
        goodput_bit_per_s: (kind == Kind::Upload).then_some(34_000_000),
        tier_percent: (kind == Kind::Upload).then_some(97.1),
        grade: None,
        series: classes
            .iter()
            .map(|dscp| series(*dscp, run.queue.loaded_ms(kind, *dscp), size.probes, rng))
            .collect(),
    };
    let steps = match (outcome, run.plan) {
        (Outcome::Measured, PLAN) => vec![
            step("idle", Kind::Latency, &[0, 8, 45]),
            step("loaded", Kind::Upload, &[0, 8, 45]),
        ],
        (Outcome::Measured, _) => vec![
            step("idle", Kind::Latency, &[0]),
            step("down", Kind::Download, &[0]),
            step("up", Kind::Upload, &[0]),
        ],
        _ => Vec::new(),
    };
    StoredResult {
        device: device.id,
        epoch: 1,
        sequence: u64::from(run.day) * 2 + u64::from(run.plan == PLAN),
        stored_ms: at_ms + 20_000,
        pseudonym: Pseudonym(device.id.0),
        cohort: run.cohort().to_owned(),
        attributes: device.attributes.clone(),
        result: RunResult {
            plan: run.plan.to_owned(),
            run: 1 + u64::from(run.day),
            at_ms,
            outcome,
            reason: reason.to_owned(),
            server: "east".to_owned(),
            version: "underload 0.1.0".to_owned(),
            steps,
        },
    }
}

/// Draws round trips around `middle_ms`; some are twice as long.
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
