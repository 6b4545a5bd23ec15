//! `--every`: repeats a measurement; one directory contains all runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use underload_aqm::rng::Rng;
use underload_disk::{self as disk, Access};
use underload_line::series::{Keeper, Rhythm};
use underload_probe::network::Line;
use underload_report::one_line;
use underload_store::{RunDir, StoreError};
use underload_terminal::console::{note, warning};
use underload_terminal::exit::OrBadInput as _;
use underload_terminal::interrupt::Interrupt;

use super::arguments::Arguments;
use super::{foreign, once, show_notice};
use crate::history::watch;
use crate::present::open_in_desktop;

/// Measures until interrupted or `--times` is reached. A failed measurement is reported and does
/// not end the series: the server may be reachable again at the next one. An interruption is an
/// error only with `--times`.
///
/// The series does not measure while an interface of `unless_metered` is metered.
pub fn run(
    arguments: &Arguments,
    every: Duration,
    unless_metered: Line,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let directory = arguments.out.clone().unwrap_or_else(|| PathBuf::from("runs/history"));
    // The directory of a series has files beside its runs, so it is not empty when it continues.
    if !Keeper::is_series(&directory) {
        RunDir::check_vacant(&directory).bad_input_if(StoreError::is_occupied)?;
    }
    let created = disk::create_directory(&directory, Access::Usual);
    created.with_context(|| directory.display().to_string())?;
    let seed = seed();
    let mut random = Rng::new(seed);
    let series = Keeper::open(&directory, &format!("{seed:016x}"), arguments.keep, show_notice)?;
    let rhythm = if foreign::is_public(arguments) {
        Rhythm::Memoryless { mean: every }
    } else {
        Rhythm::Steady { every, jitter: arguments.jitter }
    };
    // Restarting the program must not shorten the pause that M-Lab requires.
    if let Some(pause) = foreign::pause_before_first(arguments)? {
        wait_until(Instant::now() + pause, interrupt);
        if interrupt.is_requested() {
            return interrupt.explain(Err(anyhow!("interrupted before the first measurement")));
        }
    }
    let (mut done, mut failed, mut is_open) = (0, 0, false);
    let is_complete = |done| arguments.times.is_some_and(|times| done >= times);
    let mut courtesy = arguments.courtesy.courtesy(arguments.dev.first().map(String::as_str));
    courtesy.unless_metered = unless_metered;
    courtesy.is_load_fixed = foreign::is_wanted(&arguments.host);
    while let Some(grant) = courtesy.wait(&directory, interrupt.flag(), &|| false)? {
        let start = Instant::now();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let measured = courtesy.charge(&directory, &grant, |bytes_max| {
            let measured = once(arguments, Some(&series), bytes_max, interrupt);
            (measured.map(drop), series.take_moved())
        });
        drop(grant);
        done += 1;
        let was_interrupted = interrupt.is_requested() && measured.is_err();
        if let Err(error) = measured {
            failed += 1;
            warning!("{}", one_line(&format!("{now}: {error:#}")));
        }
        series.prune();
        is_open |= arguments.watch && draw(&directory, arguments.show.open && !is_open);
        if !was_interrupted && is_complete(done) {
            return judge(done, failed);
        }
        let from = if rhythm.is_from_start() { start } else { Instant::now() };
        wait_until(from + rhythm.pause(&mut random), interrupt);
    }
    // An interruption ends a series without `--times` as intended.
    let ended = match arguments.times {
        Some(times) => {
            Err(anyhow!("interrupted; {} of {times} measurements succeeded", done - failed))
        }
        None => Ok(()),
    };
    interrupt.explain(judge(done, failed).and(ended))
}

/// Writes the page of the series. Returns whether it was also opened, which `opens` asks for.
fn draw(directory: &Path, opens: bool) -> bool {
    let page = watch(directory).unwrap_or_else(|error| {
        warning!("{}", one_line(&format!("{error:#}")));
        None
    });
    page.filter(|_| opens).as_deref().map(open_in_desktop).is_some()
}

fn wait_until(next: Instant, interrupt: &Interrupt) {
    let left = || next.saturating_duration_since(Instant::now());
    if !interrupt.is_requested() {
        note!("next in {:.0} s", left().as_secs_f64());
    }
    while left() > Duration::ZERO && !interrupt.is_requested() {
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Fails if there were measurements and every one failed.
fn judge(done: u64, failed: u64) -> anyhow::Result<()> {
    ensure!(failed < done || done == 0, "of {done} measurements none succeeded");
    Ok(())
}

/// Returns a number that differs between processes.
pub fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64) ^ u64::from(std::process::id()) << 32
}
