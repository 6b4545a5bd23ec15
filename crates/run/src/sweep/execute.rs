//! Computes a sweep on every core, and stores it in a directory.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use underload_store::StoreError;
use underload_store::sweep::{SweepCell, SweepDir, SweepRow};

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
    /// Called once at the start. `stored` of `trials` were finished by an earlier run.
    fn start(&mut self, _stored: u64, _trials: u64) {}
    /// Called with a note for the user.
    fn say(&mut self, _line: &str) {}
    /// Called for each computed trial.
    fn computed(&mut self) {}
    /// Called several times a second.
    fn tick(&mut self) {}
    /// Called before the tables are written.
    fn merging(&mut self) {}
    /// Called once no more trials are computed. `stored` are on the disk.
    fn end(&mut self, _stored: u64) {}
}

impl SweepProgress for () {}

/// Computes the missing trials of a sweep's directory, and writes its tables. Calls `take` with
/// every cell that has trials, in order, also if the sweep was complete already or is stopped.
/// Returns whether it is complete; false if the caller stopped it.
///
/// # Errors
/// Before [`SweepProgress::start`] is called, nothing has changed. After an error of the disk, the
/// rows that were stored remain.
pub fn run(
    sweep: &Sweep,
    settings: &SweepSettings,
    progress: &mut dyn SweepProgress,
    take: &mut dyn FnMut(SweepCell),
) -> Result<bool, StoreError> {
    let (mut directory, note) = SweepDir::open(&settings.directory, &sweep.manifest)?;
    if let Some(note) = note {
        progress.say(&note);
    }
    progress.start(directory.stored(), sweep.manifest.trials());
    let computed = compute_missing(sweep, settings, &mut directory, progress);
    // Stores the rows so far, also after an error.
    let flushed = directory.flush();
    let stored = directory.stored();
    progress.end(stored);
    computed?;
    flushed?;
    let is_complete = stored == sweep.manifest.trials() && {
        progress.merging();
        directory.finish(&settings.stop)?
    };
    directory.cells(take)?;
    Ok(is_complete)
}

/// How long finished rows may be in memory before they are written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of trials that a worker takes at once.
const MOST_TAKEN: u64 = 64;
/// Rows that wait for the disk, at most, so that a slow sync blocks no worker.
const WAITING: usize = 1 << 12;
const TICK: Duration = Duration::from_millis(200);

/// The ranges of trials that no worker has taken yet.
struct Work {
    ranges: VecDeque<Range<u64>>,
    /// Trials in all ranges.
    left: u64,
}

impl Work {
    /// Takes the next trials: a small share of what is left, so that all workers end together.
    fn take(&mut self, workers: usize) -> Option<Range<u64>> {
        let range = self.ranges.front_mut()?;
        let most = (self.left / (4 * workers as u64)).clamp(1, MOST_TAKEN);
        let taken = range.start..range.end.min(range.start + most);
        range.start = taken.end;
        self.left -= taken.end - taken.start;
        if range.is_empty() {
            self.ranges.pop_front();
        }
        Some(taken)
    }
}

fn compute_missing(
    sweep: &Sweep,
    settings: &SweepSettings,
    directory: &mut SweepDir,
    progress: &mut dyn SweepProgress,
) -> Result<(), StoreError> {
    let ranges: VecDeque<Range<u64>> = directory.missing().into();
    if ranges.is_empty() {
        return Ok(());
    }
    let stop: &AtomicBool = &settings.stop;
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = settings.workers.map_or_else(cores, NonZeroUsize::get);
    let left = ranges.iter().map(|range| range.end - range.start).sum();
    let work = Mutex::new(Work { ranges, left });
    let (sender, receiver) = mpsc::sync_channel::<SweepRow>(WAITING);
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take(workers);
                    let Some(trials) = taken else { return };
                    for row in sweep.compute(trials, stop) {
                        if sender.send(row).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        drop(sender);
        // Dropped with this closure, also after an error of the disk, so that no worker blocks.
        let receiver = receiver;
        let (mut ticked, mut flushed) = (Instant::now(), Instant::now());
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(row) => {
                    directory.append(&row)?;
                    progress.computed();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                progress.tick();
            }
            if flushed.elapsed() >= FLUSH_AFTER {
                flushed = Instant::now();
                directory.flush()?;
            }
        }
    })
}
