//! How long the queries of a study take over many stored series: `cargo xtask bench
//! fleet-study-size [MILLIONS] [raw] [lines=COUNT] [DIR]`.
//!
//! A stored series is the histogram of one class in one step of one run, with the attributes of its
//! line: a row of the archive's Parquet files. Results of 100,000 or `lines` lines, six runs a day
//! with six series each, are appended to an SQLite store, folded, and moved to files once their day
//! has ended; with `raw` they are only appended, and only the study is asked for. Another process then runs the first query of
//! the study page, the same for one segment, which needs single runs, and the whole study of the
//! program, and prints the processor time and the peak memory of each so far. With DIR, the store
//! remains there, and a second call only asks.

#![expect(clippy::print_stdout, reason = "a benchmark tells what it found")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use underload_aqm::rng::Rng;
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::retention::Retention;
use underload_fleet::store::{
    Archive, Dimension, Filter, Needs, PlanRow, Store as _, StoredResult,
};
use underload_orchestrator::store::{SqlArchive, SqlStore, Work};
use underload_orchestrator::study::{Question, study};

const PLAN: &str = "low-latency-trial";
/// The start of 2026-01-01, UTC.
const START_MS: u64 = 1_767_225_600_000;
const DAY_MS: u64 = 86_400_000;
const RUNS_PER_DAY: u64 = 6;
const SERIES_PER_RUN: u64 = 6;
/// The classes of the plan.
const CLASSES: [u8; 3] = [0, 8, 45];
const BATCH: usize = 5_000;
/// Histograms per class that runs are drawn from: enough that compression finds few of them twice
/// in one block.
const SHAPES: usize = 16_384;
const PROBES: u32 = 350;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let millions: f64 = arguments.next().map_or(Ok(10.0), |text| text.parse())?;
    let (mut is_raw, mut lines, mut kept) = (false, 100_000, None);
    for argument in arguments {
        match argument.strip_prefix("lines=") {
            Some(count) => lines = count.parse()?,
            None if argument == "raw" => is_raw = true,
            None => kept = Some(PathBuf::from(argument)),
        }
    }
    let scratch = underload_disk::faults::private_tempdir()?;
    let folder = kept.as_deref().unwrap_or(scratch.path());
    let runs = (millions * 1e6) as u64 / SERIES_PER_RUN;
    let series = runs * SERIES_PER_RUN;
    if folder.join("fleet.sqlite").exists() {
        let mut archive = SqlArchive::sqlite(folder)?;
        if !is_raw {
            ask(&mut archive, series)?;
        }
        return whole_study(&mut archive);
    }
    let start = Instant::now();
    fill(SqlStore::sqlite(folder)?, runs, lines, is_raw)?;
    println!("{:>10.0} s  to append, fold and move all", start.elapsed().as_secs_f64());
    let (files, database) =
        (size(&folder.join("archive"))?, size_of(&folder.join("fleet.sqlite"))?);
    println!("{series:>12} series of {lines} lines");
    println!(
        "{:>12.2} GB of files, {:.2} GB of database",
        files as f64 / 1e9,
        database as f64 / 1e9
    );
    println!("{:>12.1} bytes each", (files + database) as f64 / series as f64);
    // In a process that has not filled the store, for its memory.
    let mut again = Command::new(std::env::current_exe()?);
    let status =
        again.arg(millions.to_string()).args(is_raw.then_some("raw")).arg(folder).status()?;
    if status.success() { Ok(()) } else { Err("the questions failed".into()) }
}

/// Prints the processor time, user and system, and the peak memory of this process.
fn print_use() -> Result<(), Failure> {
    let (stat, status) = (
        std::fs::read_to_string("/proc/self/stat")?,
        std::fs::read_to_string("/proc/self/status")?,
    );
    // After the name, which may have any characters, user and system time are the fields 12 and 13.
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace().collect();
    let seconds = |place: usize| Ok::<_, Failure>(fields[place].parse::<f64>()? / 100.0);
    let (user, system) = (seconds(11)?, seconds(12)?);
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    println!("              so far {user:.1} s user, {system:.1} s system, peak {}", peak.trim());
    Ok(())
}

fn ask(archive: &mut SqlArchive, series: u64) -> Result<(), Failure> {
    let by = [Dimension::Cohort, Dimension::Step, Dimension::Kind, Dimension::Dscp];
    let plan = || Filter { plan: Some(PLAN.to_owned()), ..Filter::default() };
    let line = |name: &str, value: &str| Filter {
        attributes: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..plan()
    };
    let questions = [
        ("cohorts and classes, all lines", plan()),
        ("the same of one region", line("region", "north")),
        ("the same for one hour of the day", Filter { hour: Some(20), ..plan() }),
        ("the same of one segment", line("segment", "segment-17")),
    ];
    for (name, filter) in questions {
        let start = Instant::now();
        let sums = archive.sums(&filter, &by)?;
        let tests: u64 = sums.iter().map(|sum| sum.tests).sum();
        println!("{:>12.3} s  {name}: {tests} series", start.elapsed().as_secs_f64());
        print_use()?;
        if filter == plan() && tests != series {
            return Err(format!("{tests} series instead of {series}").into());
        }
    }
    Ok(())
}

fn whole_study(archive: &mut SqlArchive) -> Result<(), Failure> {
    let start = Instant::now();
    let found = study(archive, PLAN, &Question::default())?;
    let seconds = start.elapsed().as_secs_f64();
    let devices: u64 = found.cohorts.iter().map(|cohort| cohort.devices).sum();
    let results = found.results;
    println!("{seconds:>12.3} s  the whole study: {devices} lines with {results} results");
    print_use()
}

fn fill(mut store: SqlStore, runs: u64, lines: u64, is_raw: bool) -> Result<(), Failure> {
    let text = Plan::built_in(PLAN).ok_or("no such plan")?.to_owned();
    let mut tx = store.begin(&Needs::default())?;
    let row = PlanRow { name: PLAN.to_owned(), text, applied_ms: START_MS, stopped_ms: None };
    tx.put_plan(&row)?;
    tx.commit()?;
    let retention = Retention { raw_days: 1, bins_days: 10_000 };
    let mut keeper = store.housekeeping(None, retention)?;
    let shapes = Shapes::new(&mut Rng::new(1), lines);
    let mut rng = Rng::new(2);
    let per_day = lines * RUNS_PER_DAY;
    for first in (0..runs).step_by(per_day as usize) {
        let day = first / per_day;
        let of_day: Vec<u64> = (first..runs.min(first + per_day)).collect();
        for batch in of_day.chunks(BATCH) {
            let results: Vec<_> = batch.iter().map(|run| shapes.result(&mut rng, *run)).collect();
            let mut tx = store.begin(&Needs::default())?;
            tx.append(&results)?;
            tx.commit()?;
        }
        // An hour into the next day.
        let now_ms = START_MS + (day + 1) * DAY_MS + 3_600_000;
        while !is_raw && keeper.step(now_ms)?.what != Work::Nothing {}
    }
    Ok(())
}

fn size_of(file: &Path) -> std::io::Result<u64> {
    Ok(std::fs::metadata(file)?.len())
}

fn size(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { size(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

/// Histograms of idle and loaded lines, by cohort and class.
struct Shapes {
    series: Vec<SeriesResult>,
    lines: u64,
}

impl Shapes {
    fn new(rng: &mut Rng, lines: u64) -> Self {
        let mut series = Vec::new();
        for kind in 0..8 {
            let (is_loaded, is_low, is_treated) = (kind & 1 > 0, kind & 2 > 0, kind & 4 > 0);
            let queue_us = match (is_loaded, is_low && is_treated) {
                (false, _) => 1_000.0,
                (true, true) => 4_000.0,
                (true, false) => 60_000.0,
            };
            for _ in 0..SHAPES {
                series.push(one(rng, 8_000.0, queue_us));
            }
        }
        Self { series, lines }
    }

    fn result(&self, rng: &mut Rng, run: u64) -> StoredResult {
        let (line, sequence) = (run % self.lines, run / self.lines + 1);
        let is_treated = line.is_multiple_of(2);
        let mut step = |name: &str, kind: Kind, is_loaded: bool| {
            let series = CLASSES.map(|dscp| {
                let is_low = dscp == 45;
                let class =
                    usize::from(is_loaded) + 2 * usize::from(is_low) + 4 * usize::from(is_treated);
                let shape = &self.series[class * SHAPES + rng.below(SHAPES as u32) as usize];
                SeriesResult { dscp, ..shape.clone() }
            });
            StepResult {
                step: name.to_owned(),
                inside: None,
                kind,
                goodput_bit_per_s: is_loaded.then_some(34_000_000),
                tier_percent: is_loaded.then_some(97.0),
                grade: None,
                series: series.to_vec(),
            }
        };
        let steps = vec![step("idle", Kind::Latency, false), step("loaded", Kind::Upload, true)];
        let mut id = [3; 16];
        id[..8].copy_from_slice(&line.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let per_day = self.lines * RUNS_PER_DAY;
        let (day, of_day) = (run / per_day, run % per_day);
        let at_ms = START_MS + day * DAY_MS + of_day * DAY_MS / per_day;
        StoredResult {
            device: DeviceId(id),
            epoch: 1,
            sequence,
            stored_ms: at_ms + 60_000,
            pseudonym: Pseudonym(id.map(|byte| byte ^ 0x55)),
            cohort: if is_treated { "low-latency" } else { "classic" }.to_owned(),
            attributes: attributes(line, is_treated),
            result: RunResult {
                plan: PLAN.to_owned(),
                run: sequence,
                at_ms,
                outcome: Outcome::Measured,
                reason: String::new(),
                server: "east".to_owned(),
                version: "underload-agent 0.1.0".to_owned(),
                steps,
            },
        }
    }
}

fn attributes(line: u64, is_treated: bool) -> Attributes {
    Attributes {
        model: if is_treated { "CGM4981COM" } else { "TG4482A" }.to_owned(),
        firmware: format!("7.{}", line % 3),
        tier_up_bit_per_s: [35, 100, 200][(line % 7 % 3) as usize] * 1_000_000,
        tier_down_bit_per_s: 800_000_000,
        segment: format!("segment-{}", line / 300),
        region: ["north", "south", "east", "west"][(line / 300 % 4) as usize].to_owned(),
        configured: if is_treated { "low-latency" } else { "docsis-pie" }.to_owned(),
        measured: String::new(),
    }
}

fn one(rng: &mut Rng, base_us: f64, queue_us: f64) -> SeriesResult {
    let mut bins = Bins::default();
    let base_us = base_us * (1.0 + f64::from(rng.below(1_000)) / 1_000.0);
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for _ in 0..PROBES {
        let share = (f64::from(rng.next_u32()) + 1.0) / 4_294_967_297.0;
        let delay_us = base_us - queue_us / 3.0 * share.ln();
        bins.add(delay_us);
        sum += delay_us;
        most = most.max(delay_us);
    }
    let us = |share| bins.quantile(share).map(|us| us as u64);
    SeriesResult {
        dscp: 0,
        sent: u64::from(PROBES),
        lost: 0,
        p50_us: us(0.5),
        p99_us: us(0.99),
        mean_us: Some((sum / f64::from(PROBES)) as u64),
        max_us: Some(most as u64),
        bins,
    }
}
