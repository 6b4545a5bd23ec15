//! Benchmarks of sweeps: compared with runs, killed and resumed, and by size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::numbers::median;
use crate::process::{build_program, fresh_folder, peak_kib, target};

pub const NAME: &str = "sweep";
pub const WHAT: &str =
    "the study of cable lines as a sweep beside a run; kills; memory (`study`, `kill`, `memory`)";

/// Lines of each variant of the study by default.
const LINES: u32 = 13_000;
/// Interleaved runs of each, of which the median is shown.
const ROUNDS: usize = 3;
const KILLS: u32 = 3;

/// Runs all parts, or the part that is named first, with its size.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let program = fs::canonicalize(build_program()?)?;
    let folder = target().join("bench-sweep");
    let size = |position: usize, usual: u32| -> anyhow::Result<u32> {
        arguments.get(position).map_or(Ok(usual), |text| Ok(text.parse()?))
    };
    match arguments {
        [] => {
            study(&program, &folder, LINES)?;
            kill(&program, &folder, 100_000)?;
            memory(&program, &folder, 100_000)
        }
        ["study", ..] => study(&program, &folder, size(1, LINES)?),
        ["kill", ..] => kill(&program, &folder, size(1, 100_000)?),
        ["memory", ..] => memory(&program, &folder, size(1, 100_000)?),
        [other, ..] => bail!("there is no `{other}`; known: study, kill, memory"),
    }
}

/// Runs the study of `lines` lines of each variant, as a run and as a sweep.
fn study(program: &Path, folder: &Path, lines: u32) -> anyhow::Result<()> {
    println!("comcast/study, {lines} lines of each variant; median of {ROUNDS} interleaved runs");
    fresh_folder(folder)?;
    let file = folder.join("study.toml");
    fs::write(&file, format!("scenario = \"comcast/study\"\nrepeats = {lines}\n"))?;
    let (mut runs, mut sweeps) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let out = folder.join(format!("run-{round}"));
        let repeats = lines.to_string();
        let mut command = Command::new(program);
        command.args(["-q", "run", "comcast/study", "--world", "sim", "--no-cache", "--repeat"]);
        command.arg(repeats).arg("--out").arg(&out);
        runs.push(Usage::measure(&mut command)?);
        let out = folder.join(format!("sweep-{round}"));
        sweeps.push(Usage::measure(sweep(program, &file).arg("--output").arg(&out))?);
    }
    let median = |usages: &[Usage]| Usage::median(usages).context("no run");
    let (run, sweep) = (median(&runs)?, median(&sweeps)?);
    run.print("underload run");
    sweep.print("underload sweep");
    let ratio = |own: f64, other: f64| own / other;
    println!(
        "sweep over run: {:.3} of the time, {:.3} of the processor time\n",
        ratio(sweep.seconds, run.seconds),
        ratio(sweep.processor_seconds, run.processor_seconds)
    );
    Ok(())
}

/// Compares a sweep that is killed several times with one that is not.
fn kill(program: &Path, folder: &Path, cells: u32) -> anyhow::Result<()> {
    println!("{cells} cells, killed {KILLS} times with SIGKILL, beside the same left alone");
    fresh_folder(folder)?;
    let file = short_trials(folder, cells)?;
    let (whole, killed) = (folder.join("whole"), folder.join("killed"));
    let usage = Usage::measure(sweep(program, &file).arg("--output").arg(&whole))?;
    usage.print("left alone");
    // Late enough that some rows are stored, and early enough that some are missing.
    let after = Duration::from_secs_f64(usage.seconds / f64::from(KILLS + 1));
    for number in 1..=KILLS {
        let mut child = sweep(program, &file).arg("--output").arg(&killed).spawn()?;
        thread::sleep(after);
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "it ended before its kill {number}: {ended:?}");
        child.kill()?;
        child.wait()?;
        println!("  kill {number} after {:.1} s", after.as_secs_f64());
    }
    let stored = fs::read_to_string(killed.join("rows.jsonl"))?.lines().count();
    ensure!(stored > 0, "no kill came after rows had reached the disk; take more cells");
    println!("  {stored} trials were stored");
    let last = Usage::measure(sweep(program, &file).arg("--output").arg(&killed))?;
    last.print("to the end");
    for table in ["trials.parquet", "cells.parquet"] {
        let [own, other] = [&whole, &killed].map(|folder| fs::read(folder.join(table)));
        let (own, other) = (own?, other?);
        ensure!(own == other, "{table} differs");
        println!("  {table}: {} bytes, the same", own.len());
    }
    println!();
    Ok(())
}

/// Prints the peak memory of sweeps of several sizes.
fn memory(program: &Path, folder: &Path, cells: u32) -> anyhow::Result<()> {
    println!("peak memory by number of cells");
    for cells in [cells / 100, cells / 10, cells] {
        fresh_folder(folder)?;
        let file = short_trials(folder, cells)?;
        let out = folder.join("out");
        Usage::measure(sweep(program, &file).arg("--output").arg(&out))?
            .print(&format!("{cells} cells"));
    }
    println!();
    Ok(())
}

fn sweep(program: &Path, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["-q", "sweep"]).arg(file).stdout(Stdio::null());
    command
}

/// Writes a sweep of `cells` short trials.
fn short_trials(folder: &Path, cells: u32) -> anyhow::Result<PathBuf> {
    fs::write(folder.join("line.toml"), LINE)?;
    let file = folder.join("short.toml");
    let axes = "[[axis]]\nkey = \"path.up\"\nfrom = \"2mbit\"\nto = \"50mbit\"\nscale = \"log\"\n\
                [[axis]]\nkey = \"path.rtt\"\nfrom = \"2ms\"\nto = \"80ms\"\n";
    let points = cells / 2;
    let head = format!(
        "scenario = \"line.toml\"\nset = [\"phases.load=200ms\", \"flow.probe.interval=10ms\"]\n\
         repeats = 1\ndesign = \"random\"\nsamples = {points}\n"
    );
    fs::write(&file, head + axes)?;
    Ok(file)
}

/// Two variants with trials of a quarter of a second.
const LINE: &str = include_str!("../../crates/run/tests/data/line.toml");

/// Time and memory that a program used.
#[derive(Debug, Clone, Copy)]
struct Usage {
    seconds: f64,
    processor_seconds: f64,
    peak_mib: f64,
}

impl Usage {
    /// Runs a command, which must succeed.
    fn measure(command: &mut Command) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut child = command.stdout(Stdio::null()).spawn().context("starting the program")?;
        let mut usage = Self { seconds: 0.0, processor_seconds: 0.0, peak_mib: 0.0 };
        loop {
            usage.look(&child);
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "{command:?}: {status}");
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        usage.seconds = begun.elapsed().as_secs_f64();
        Ok(usage)
    }

    /// Reads the kernel's counters of a running program.
    fn look(&mut self, child: &Child) {
        self.peak_mib = peak_kib(child).map_or(self.peak_mib, |kib| kib as f64 / 1024.0);
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        // After the name in parentheses: user and system time are the 12th and 13th.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        let ticks: f64 = ticks.flatten().sum();
        self.processor_seconds = self.processor_seconds.max(ticks / TICKS_PER_SECOND);
    }

    /// Returns the median of each number; `None` without runs.
    fn median(all: &[Self]) -> Option<Self> {
        let of = |number: fn(&Self) -> f64| median(all.iter().map(number));
        Some(Self {
            seconds: of(|usage| usage.seconds)?,
            processor_seconds: of(|usage| usage.processor_seconds)?,
            peak_mib: of(|usage| usage.peak_mib)?,
        })
    }

    fn print(&self, name: &str) {
        let Self { seconds, processor_seconds, peak_mib } = self;
        println!(
            "  {name:<18}{seconds:>9.1} s{processor_seconds:>10.1} s of processors\
             {peak_mib:>9.0} MiB at most"
        );
    }
}

/// The unit of Linux in `/proc`, independent of its timer.
const TICKS_PER_SECOND: f64 = 100.0;
