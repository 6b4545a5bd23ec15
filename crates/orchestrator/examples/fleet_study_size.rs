//! How long the queries of a study take over many stored series: `cargo xtask bench
//! fleet-study-size [MILLIONS] [DIR]`.
//!
//! A stored series is the histogram of one class in one step of one run, with the attributes of its
//! line: a row of the archive's Parquet files. Results of 100,000 lines, six runs a day with four
//! series each, are appended to an SQLite store, folded, and moved to files once their day has
//! ended. Then the example runs the first query of the study page, the same for one segment, which
//! needs single runs, and the whole study of the program.

#![expect(clippy::print_stdout, reason = "a benchmark tells what it found")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
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
const LINES: u64 = 100_000;
const RUNS_PER_DAY: u64 = 6;
const SERIES_PER_RUN: u64 = 4;
const BATCH: usize = 5_000;
/// Histograms per class that runs are drawn from: enough that compression finds few of them twice
/// in one block.
const SHAPES: usize = 16_384;
const PROBES: u32 = 350;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let millions: f64 = arguments.next().map_or(Ok(10.0), |text| text.parse())?;
    let kept = arguments.next().map(PathBuf::from);
    let scratch = underload_disk::faults::private_tempdir()?;
    let folder = kept.as_deref().unwrap_or(scratch.path());
    let runs = (millions * 1e6) as u64 / SERIES_PER_RUN;
    let start = Instant::now();
    let store = SqlStore::sqlite(folder)?;
    let mut archive = store.archive()?;
    if archive.plans()?.is_empty() {
        drop(archive);
        fill(store, runs)?;
        println!("{:>10.0} s  to append, fold and move all", start.elapsed().as_secs_f64());
        archive = SqlArchive::sqlite(folder)?;
    }
    let bytes = size(&folder.join("archive"))?;
    let series = runs * SERIES_PER_RUN;
    println!("{series:>12} series of {LINES} lines in {:.2} GB of files", bytes as f64 / 1e9);
    println!("{:>12.1} bytes each", bytes as f64 / series as f64);
    println!(
        "{:>12.2} GB database",
        std::fs::metadata(folder.join("fleet.sqlite"))?.len() as f64 / 1e9
    );
    ask(&mut archive, series)
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
        if filter == plan() && tests != series {
            return Err(format!("{tests} series instead of {series}").into());
        }
    }
    let start = Instant::now();
    let found = study(archive, PLAN, &Question::default())?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{seconds:>12.3} s  the whole study, line by line: {} results", found.results);
    Ok(())
}

fn fill(mut store: SqlStore, runs: u64) -> Result<(), Failure> {
    let text = Plan::built_in(PLAN).ok_or("no such plan")?.to_owned();
    let mut tx = store.begin(&Needs::default())?;
    let row = PlanRow { name: PLAN.to_owned(), text, applied_ms: START_MS, stopped_ms: None };
    tx.put_plan(&row)?;
    tx.commit()?;
    let retention = Retention { raw_days: 1, bins_days: 10_000 };
    let mut keeper = store.housekeeping(None, retention)?;
    let shapes = Shapes::new(&mut Rng::new(1));
    let mut rng = Rng::new(2);
    let per_day = LINES * RUNS_PER_DAY;
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
        while keeper.step(now_ms)?.what != Work::Nothing {}
    }
    Ok(())
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
}

impl Shapes {
    fn new(rng: &mut Rng) -> Self {
        let mut series = Vec::new();
        for kind in 0..8 {
            let (is_loaded, is_low, is_treated) = (kind & 1 > 0, kind & 2 > 0, kind & 4 > 0);
            let queue_us = match (is_loaded, is_low && is_treated) {
                (false, _) => 1_000.0,
                (true, true) => 4_000.0,
                (true, false) => 60_000.0,
            };
            for _ in 0..SHAPES {
                series.push(one(rng, 8_000.0, queue_us, if is_low { 45 } else { 0 }));
            }
        }
        Self { series }
    }

    fn result(&self, rng: &mut Rng, run: u64) -> StoredResult {
        let (line, sequence) = (run % LINES, run / LINES + 1);
        let is_treated = line.is_multiple_of(2);
        let mut step = |name: &str, kind: Kind, is_loaded: bool| {
            let series = [false, true].map(|is_low| {
                let class =
                    usize::from(is_loaded) + 2 * usize::from(is_low) + 4 * usize::from(is_treated);
                self.series[class * SHAPES + rng.below(SHAPES as u32) as usize].clone()
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
        let day = run / (LINES * RUNS_PER_DAY);
        let of_day = run % (LINES * RUNS_PER_DAY);
        let at_ms = START_MS + day * DAY_MS + of_day * (DAY_MS / (LINES * RUNS_PER_DAY));
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

fn one(rng: &mut Rng, base_us: f64, queue_us: f64, dscp: u8) -> SeriesResult {
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
        dscp,
        sent: u64::from(PROBES),
        lost: 0,
        p50_us: us(0.5),
        p99_us: us(0.99),
        mean_us: Some((sum / f64::from(PROBES)) as u64),
        max_us: Some(most as u64),
        bins,
    }
}
