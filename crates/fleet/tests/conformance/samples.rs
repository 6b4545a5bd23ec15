//! Rows of every kind, drawn at random.

use underload_aqm::rng::Rng;
use underload_record::judgement::Grade;

use crate::admission::{Reason, Refusal};
use crate::device::{Attributes, DeviceId, Pseudonym};
use crate::line::{AttributeChange, Line};
use crate::message::ServerAddress;
use crate::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use crate::plan::Kind;
use crate::store::{
    Code, CodeFor, Device, HeldLease, LogEntry, OpenRun, PlanRow, Schedule, Server, StoredResult,
};

/// The largest number that is stored, except for fields that may be `u64::MAX`.
pub const LARGEST: u64 = i64::MAX as u64;

/// Texts with which stores are known to fail: quotes, patterns, other scripts, the maximum length
/// of an attribute, and texts that look like a number or like an empty value.
pub const TEXTS: [&str; 12] = [
    "",
    "XB7",
    "o'brien\"s",
    "'; DROP TABLE devices; --",
    "100%_\\",
    "Ärger / été",
    "測試",
    "🛰️ e\u{301}",
    "\u{202e}right to left",
    " 7 ",
    "null",
    "0123456789012345678901234567890123456789012345678901234567890123",
];

fn text(rng: &mut Rng) -> String {
    TEXTS[rng.below(TEXTS.len() as u32) as usize].to_owned()
}

/// An identifier that ends with `number`.
pub fn id(number: u8) -> DeviceId {
    let mut id = [0x80; 16];
    id[15] = number;
    DeviceId(id)
}

pub fn attributes(rng: &mut Rng) -> Attributes {
    let tiers = [0, 12_500_000, 35_000_000, 1_000_000_000_000_000];
    let mut tier = || tiers[rng.below(4) as usize];
    let (tier_up_bit_per_s, tier_down_bit_per_s) = (tier(), tier());
    Attributes {
        model: text(rng),
        firmware: text(rng),
        tier_up_bit_per_s,
        tier_down_bit_per_s,
        segment: text(rng),
        region: text(rng),
        configured: text(rng),
        measured: text(rng),
    }
}

/// A device with a schedule.
pub fn device(rng: &mut Rng, id: DeviceId) -> Device {
    let open = (1..=u64::from(rng.below(3))).map(|run| OpenRun { run, due_ms: 5, given_ms: 7 });
    let held_back = [
        None,
        Some(Reason::HomeBusy),
        Some(Reason::Refused(Refusal::SegmentBusy)),
        Some(Reason::Refused(Refusal::SegmentUnknown)),
    ];
    let schedule = Schedule {
        plan: text(rng),
        run: rng.next_u64() >> 1,
        due_ms: if rng.below(3) == 0 { u64::MAX } else { rng.next_u64() >> 1 },
        held_back: held_back[rng.below(4) as usize],
        refusals: rng.next_u32(),
        retry_ms: LARGEST,
        own_ms: LARGEST,
        open: open.collect(),
    };
    Device {
        id,
        public_key: std::array::from_fn(|_| rng.next_u32() as u8),
        attributes: attributes(rng),
        line: text(rng),
        is_retired: rng.below(4) == 0,
        enrolled_ms: rng.next_u64() >> 1,
        seen_ms: LARGEST,
        is_removed: rng.below(2) == 0,
        epoch: u32::MAX - 1,
        request: rng.next_u64() >> 1,
        waiting: LARGEST,
        dropped: 0,
        schedules: vec![schedule],
        settle_ms: u64::MAX,
        made: rng.next_u64() >> 1,
    }
}

/// A line with this identifier.
pub fn line(rng: &mut Rng, external_id: &str, device: Option<DeviceId>) -> Line {
    let (attribute, value) = ("region".to_owned(), text(rng));
    let change = AttributeChange { from_ms: LARGEST, attribute, value };
    let (external_id, name) = (external_id.to_owned(), text(rng));
    Line { external_id, name, device, changes: vec![change] }
}

/// A code that was not used.
pub fn code(rng: &mut Rng) -> Code {
    Code {
        hash: std::array::from_fn(|_| rng.next_u32() as u8),
        makes: CodeFor::Device,
        attributes: attributes(rng),
        line: text(rng),
        expires_ms: LARGEST,
        used_by: None,
    }
}

pub fn server(rng: &mut Rng, name: &str) -> Server {
    Server {
        address: ServerAddress {
            name: name.to_owned(),
            address: "[2001:db8::1]:9000".to_owned(),
            fingerprint: format!("sha256:{}", "a".repeat(64)),
        },
        device: DeviceId(std::array::from_fn(|_| rng.next_u32() as u8)),
        public_key: [255; 32],
        is_removed: false,
        up_bit_per_s: 1_000_000_000_000_000,
        down_bit_per_s: LARGEST,
        reserved_up_bit_per_s: 1,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: 3,
        carried_down_bit_per_s: LARGEST,
        sessions: u32::MAX,
        heard_ms: rng.next_u64() >> 1,
    }
}

pub fn lease(number: u64, device: DeviceId, server: &str, segment: Option<&str>) -> HeldLease {
    HeldLease {
        id: number,
        device,
        server: server.to_owned(),
        segment: segment.map(str::to_owned),
        up_bit_per_s: 35_000_000,
        down_bit_per_s: 0,
        plan: "trial".to_owned(),
        run: LARGEST,
        given_ms: 1_000,
        expires_ms: 2_000,
    }
}

pub fn plan(name: &str) -> PlanRow {
    PlanRow {
        name: name.to_owned(),
        text: format!("title = \"two\nlines\t{}\"\n", TEXTS.concat()),
        applied_ms: LARGEST,
        stopped_ms: None,
    }
}

pub fn log_entry(number: u64) -> LogEntry {
    let what = TEXTS[number as usize % TEXTS.len()];
    LogEntry { at_ms: number, who: "o'brien".to_owned(), what: format!("{number}: {what}") }
}

/// A result of the device `device`.
pub fn result(rng: &mut Rng, device: u8, epoch: u32, sequence: u64) -> StoredResult {
    let outcome = match rng.below(3) {
        0 => Outcome::ALL[rng.below(6) as usize],
        _ => Outcome::Measured,
    };
    let day_ms = 86_400_000;
    let steps = if outcome == Outcome::Measured { rng.below(4) } else { 0 };
    let result = RunResult {
        plan: ["trial", "comcast-study"][rng.below(2) as usize].to_owned(),
        run: u64::from(rng.below(9)),
        at_ms: day_ms * (20_000 + u64::from(rng.below(4))) + u64::from(rng.below(86_400_000)),
        outcome,
        reason: if outcome == Outcome::Measured { String::new() } else { text(rng) },
        server: text(rng),
        version: text(rng),
        steps: (0..steps).map(|place| step(rng, place)).collect(),
    };
    StoredResult {
        device: id(device),
        epoch,
        sequence,
        stored_ms: LARGEST,
        pseudonym: Pseudonym([device; 16]),
        cohort: ["", "aqm", "no-aqm"][rng.below(3) as usize].to_owned(),
        attributes: attributes(rng),
        result,
    }
}

fn step(rng: &mut Rng, place: u32) -> StepResult {
    let kind = [Kind::Latency, Kind::Upload, Kind::Download][place as usize % 3];
    let is_loaded = kind != Kind::Latency;
    StepResult {
        step: ["idle", "up", "down", "again"][place as usize % 4].to_owned(),
        kind,
        goodput_bit_per_s: is_loaded.then(|| rng.next_u64() >> 20),
        tier_percent: is_loaded.then(|| f64::from(rng.next_u32()) / 3.0e7),
        grade: is_loaded.then_some(Grade::ALL[place as usize % Grade::ALL.len()]),
        series: (0..rng.below(4)).map(|_| series(rng)).collect(),
        inside: (is_loaded && rng.below(2) == 0).then(|| SeriesResult { dscp: 0, ..series(rng) }),
    }
}

fn series(rng: &mut Rng) -> SeriesResult {
    let mut series = SeriesResult {
        dscp: [0, 8, 45, 63][rng.below(4) as usize],
        sent: 0,
        lost: u64::from(rng.below(3)),
        bins: crate::bins::Bins::default(),
        p50_us: None,
        p99_us: None,
        mean_us: None,
        max_us: None,
    };
    for _ in 0..rng.below(40) {
        let bin = rng.below(u32::from(crate::bins::BIN_MAX) + 1) as u16;
        series.bins.add_to(bin, 1 + u64::from(rng.below(1_000_000)));
    }
    series.sent = series.bins.count() + series.lost;
    let of = |share: f64| series.bins.quantile(share).map(|micros| micros as u64);
    (series.p50_us, series.p99_us) = (of(0.5), of(0.99));
    (series.mean_us, series.max_us) = (of(0.6), of(1.0));
    series
}
