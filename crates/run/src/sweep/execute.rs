//! Every core, one directory: who computes what, and what becomes of it.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use underload_store::StoreError;
use underload_store::sweep::{Ranges, SweepCell, SweepDir, SweepRows};

use super::Sweep;

/// How a sweep is run.
#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// Its directory: new, empty, or with the same sweep, which goes on.
    pub directory: PathBuf,
    /// Threads that compute; the result is the same. `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// Raised by the caller, from any thread, to stop it and the trials under way.
    pub stop: Arc<AtomicBool>,
}

/// Hears how a sweep goes. Every method may be left out; `()` hears nothing.
pub trait SweepProgress {
    /// It begins, or goes on: so many units are stored of all.
    fn start(&mut self, _stored: u64, _units: u64) {}
    /// Something that the user should know.
    fn say(&mut self, _line: &str) {}
    /// So many units more were computed, of so many trials.
    fn computed(&mut self, _units: u64, _trials: u64) {}
    /// Called now and then, also while nothing is finished.
    fn tick(&mut self) {}
    /// All units are computed; its tables are being written.
    fn merging(&mut self) {}
    /// No more is computed.
    fn end(&mut self) {}
}

impl SweepProgress for () {}

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepEnd {
    /// Its tables are there.
    Complete,
    /// The caller stopped it; what was computed is stored.
    Interrupted {
        /// Units that are stored.
        stored: u64,
    },
}

/// Why a sweep cannot begin, or did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The directory cannot be used, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part that was right when it was written is damaged again and again.
    #[error("the directory's files are damaged as fast as they are written")]
    Damaged(#[source] StoreError),
}

impl SweepError {
    /// Whether the caller has to name another directory.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SweepError::Store(error) if error.is_occupied())
    }
}

/// Computes what a sweep's directory lacks, and writes its tables; `take` is given every cell of
/// which there are trials, in order: also of a sweep that was complete already, or is stopped.
///
/// # Errors
/// [`SweepError::is_refusal`] where the directory holds something else; then nothing has changed.
/// What the disk said; the units that were stored by then are kept.
pub fn run(
    sweep: &Sweep,
    settings: &SweepSettings,
    progress: &mut dyn SweepProgress,
    take: &mut dyn FnMut(SweepCell),
) -> Result<SweepEnd, SweepError> {
    for _ in 1..MOST_TIMES {
        match attempt(sweep, settings, progress, take) {
            // It was right when it was opened: opened again, it is found and told.
            Err(SweepError::Damaged(_)) => {}
            ended => return ended,
        }
    }
    attempt(sweep, settings, progress, take)
}

/// One time through; [`SweepError::Damaged`] where a part that was right at first is so no longer.
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
    // What came so far is kept, whatever ended it.
    let flushed = directory.flush();
    progress.end();
    computed?;
    flushed?;
    let stored = directory.units().count();
    let is_whole = stored == sweep.units() && {
        progress.merging();
        directory.finish(&settings.stop).map_err(|error| match error {
            StoreError::Damaged { .. } if !directory.is_complete() => SweepError::Damaged(error),
            error => error.into(),
        })?
    };
    // The user who stopped it wants to see what there is, and soon.
    directory.cells(&AtomicBool::new(false), &mut |cell| {
        take(cell);
        Ok(())
    })?;
    Ok(if is_whole { SweepEnd::Complete } else { SweepEnd::Interrupted { stored } })
}

/// Times that damaged files are computed again.
const MOST_TIMES: u32 = 3;
/// Rows go to the disk after a twentieth of the time that a sweep has taken, within these two; of
/// a long one after a thousandth, so that it has some thousands of files and not a million.
const FLUSH_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
const FLUSHES: (u32, u32) = (20, 1_000);
/// How long a worker is to be busy with what it takes at once.
const WORTH_TAKING: Duration = Duration::from_millis(100);
/// Units that a worker takes at once, at most.
const MOST_TAKEN: u64 = 1_024;
/// Pieces of each worker that wait for the disk, at most: a slow sync stops nobody for seconds.
const WAITING: usize = 32;
const TICK: Duration = Duration::from_millis(200);

/// What is still to be given to a worker.
struct Work {
    stored: Ranges,
    next: u64,
    units: u64,
}

impl Work {
    /// The next units, at most so many.
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
    let (sender, receiver) = mpsc::sync_channel::<(u64, SweepRows)>(WAITING * workers);
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || {
                let mut most = 1;
                while !stop.load(Ordering::Relaxed) {
                    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take(most);
                    let Some(units) = taken else { return };
                    let count = units.end - units.start;
                    let begun = Instant::now();
                    let rows = sweep.compute(units, stop);
                    most = next_size(most, begun.elapsed());
                    if sender.send((count, rows)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // It ends with this closure, also where the disk fails: nobody waits to send for ever.
        let receiver = receiver;
        let mut times = FlushTimes::default();
        loop {
            match receiver.recv_timeout(TICK) {
                Ok((units, rows)) => {
                    let trials = rows.len() as u64;
                    directory.append(rows)?;
                    progress.computed(units, trials);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            progress.tick();
            if times.is_due() {
                directory.flush()?;
            }
        }
    })
}

/// When the rows that wait in memory go to the disk.
#[derive(Debug)]
pub struct FlushTimes {
    begun: Instant,
    flushed: Instant,
}

impl Default for FlushTimes {
    /// Of a sweep that begins now.
    fn default() -> Self {
        let now = Instant::now();
        Self { begun: now, flushed: now }
    }
}

impl FlushTimes {
    /// Whether it is time; the next time is counted from then on.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.flushed.elapsed() >= flush_after(self.begun.elapsed());
        if is_due {
            self.flushed = Instant::now();
        }
        is_due
    }
}

/// How long rows may wait in memory, in a sweep that has taken so long.
fn flush_after(elapsed: Duration) -> Duration {
    let (soon, late) = FLUSH_AFTER;
    (elapsed / FLUSHES.0).clamp(soon, late).max(elapsed / FLUSHES.1)
}

/// More or fewer units at once, so that a worker asks neither all the time nor once an hour.
fn next_size(size: u64, took: Duration) -> u64 {
    if took < WORTH_TAKING / 2 {
        (size * 2).min(MOST_TAKEN)
    } else if took > WORTH_TAKING * 2 {
        (size / 2).max(1)
    } else {
        size
    }
}
