//! Computes a sweep on every core, and stores it in a directory.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use underload_store::StoreError;
use underload_store::sweep::{Ranges, SweepCell, SweepDir, SweepUnit};

use super::Sweep;

#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// A new or empty directory, or one with a part of the same sweep, which continues.
    pub directory: PathBuf,
    /// Threads that compute, which do not change the result; `None` for one per core.
    pub workers: Option<NonZeroUsize>,
    /// Set by the caller, from any thread, to stop the sweep and the trials under way.
    pub stop: Arc<AtomicBool>,
}

/// Receives the progress of a sweep. Methods do nothing by default; `()` ignores all.
pub trait SweepProgress {
    /// Called once at the start. `stored` of `units` were finished by an earlier run.
    fn start(&mut self, _stored: u64, _units: u64) {}
    /// Called with a note for the user.
    fn say(&mut self, _line: &str) {}
    /// Called with the numbers of further units and their trials.
    fn computed(&mut self, _units: u64, _trials: u64) {}
    /// Called several times a second.
    fn tick(&mut self) {}
    /// Called before the tables are written.
    fn merging(&mut self) {}
    /// Called once no more units are computed. `stored` units are on the disk.
    fn end(&mut self, _stored: u64) {}
}

impl SweepProgress for () {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepEnd {
    /// The tables are written.
    Complete,
    /// The caller stopped the sweep; `stored` units are in the directory.
    Interrupted { stored: u64 },
}

/// Why a sweep cannot begin, or ended before it was complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("files of the directory were damaged again after they were computed again")]
    Damaged(#[source] StoreError),
}

impl SweepError {
    /// Whether the caller has to name another directory.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SweepError::Store(error) if error.is_occupied())
    }

    /// Whether the sweep may continue in its directory, as after an error of the disk.
    pub fn can_continue(&self) -> bool {
        use StoreError::{Io, Table};
        matches!(self, SweepError::Damaged(_) | SweepError::Store(Io { .. } | Table { .. }))
    }
}

/// Computes the missing units of a sweep's directory, and writes its tables. Calls `take` with
/// every cell that has trials, in order, also if the sweep was complete already or is stopped.
///
/// # Errors
/// Returns an error with [`SweepError::is_refusal`] if the directory has another content; then
/// nothing has changed. After an error of the disk, the units that were stored remain.
pub fn run(
    sweep: &Sweep,
    settings: &SweepSettings,
    progress: &mut dyn SweepProgress,
    take: &mut dyn FnMut(SweepCell),
) -> Result<SweepEnd, SweepError> {
    for _ in 1..MOST_ATTEMPTS {
        match attempt(sweep, settings, progress, take) {
            // Damaged since the directory was opened: the next attempt reports and removes it.
            Err(SweepError::Damaged(_)) => {}
            ended => return ended,
        }
    }
    attempt(sweep, settings, progress, take)
}

/// Runs the sweep once; [`SweepError::Damaged`] if a part was damaged on the way.
fn attempt(
    sweep: &Sweep,
    settings: &SweepSettings,
    progress: &mut dyn SweepProgress,
    take: &mut dyn FnMut(SweepCell),
) -> Result<SweepEnd, SweepError> {
    let (mut directory, notes) = SweepDir::open(&settings.directory, sweep.manifest())?;
    for note in &notes {
        progress.say(note);
    }
    progress.start(directory.units().count(), sweep.units());
    let computed = compute_missing(sweep, settings, &mut directory, progress);
    // Stores the rows so far, also after an error.
    let flushed = directory.flush();
    let stored = directory.stored();
    progress.end(stored);
    computed?;
    flushed?;
    let is_whole = stored == sweep.units() && {
        progress.merging();
        directory.finish(&settings.stop).map_err(|error| match error {
            StoreError::Damaged { .. } if !directory.is_complete() => SweepError::Damaged(error),
            error => error.into(),
        })?
    };
    directory.cells(take)?;
    Ok(if is_whole { SweepEnd::Complete } else { SweepEnd::Interrupted { stored } })
}

const MOST_ATTEMPTS: u32 = 3;
/// How long finished units may be in memory before they are written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// The time that a worker should need for the units that it takes at once.
const WORTH_TAKING: Duration = Duration::from_millis(100);
/// Units that a worker takes at once, at most.
const MOST_TAKEN: u64 = 1_024;
/// Results of each worker that wait for the disk, at most, so that a slow sync blocks no worker.
const WAITING: usize = 32;
const TICK: Duration = Duration::from_millis(200);

/// The units that no worker has taken yet.
struct Work {
    stored: Ranges,
    next: u64,
    units: u64,
}

impl Work {
    /// Takes the next units, `most` at most.
    fn take(&mut self, most: u64) -> Option<Range<u64>> {
        let gap = self.stored.next_gap(self.next, self.units)?;
        let end = gap.end.min(gap.start + most);
        self.next = end;
        Some(gap.start..end)
    }
}

fn compute_missing(
    sweep: &Sweep,
    settings: &SweepSettings,
    directory: &mut SweepDir,
    progress: &mut dyn SweepProgress,
) -> Result<(), StoreError> {
    if directory.next_missing(0).is_none() {
        return Ok(());
    }
    let stop: &AtomicBool = &settings.stop;
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = settings.workers.map_or_else(cores, NonZeroUsize::get);
    let work =
        Mutex::new(Work { stored: directory.units().clone(), next: 0, units: sweep.units() });
    let (sender, receiver) = mpsc::sync_channel::<Vec<SweepUnit>>(WAITING * workers);
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || {
                let mut most = 1;
                while !stop.load(Ordering::Relaxed) {
                    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take(most);
                    let Some(units) = taken else { return };
                    let begun = Instant::now();
                    let computed = sweep.compute(units, stop);
                    most = next_size(most, begun.elapsed());
                    if sender.send(computed).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Dropped with this closure, also after an error of the disk, so that no worker blocks.
        let receiver = receiver;
        let mut flushed = Instant::now();
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(units) => {
                    directory.append(&units)?;
                    let trials: usize = units.iter().map(|unit| unit.rows.len()).sum();
                    progress.computed(units.len() as u64, trials as u64);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            progress.tick();
            if flushed.elapsed() >= FLUSH_AFTER {
                flushed = Instant::now();
                directory.flush()?;
            }
        }
    })
}

/// Adapts the units that a worker takes at once to [`WORTH_TAKING`].
fn next_size(size: u64, took: Duration) -> u64 {
    if took < WORTH_TAKING / 2 {
        (size * 2).min(MOST_TAKEN)
    } else if took > WORTH_TAKING * 2 {
        (size / 2).max(1)
    } else {
        size
    }
}
