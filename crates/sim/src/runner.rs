//! Trials spread over processor cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::trial::{SimConfig, SimError, TrialOutcome, run};

/// Executes `count` trials on up to `threads` threads (`None`: one per core). `configure` builds
/// the trial of an index, in the thread that executes it; `finished` is called in the calling
/// thread, in order of completion. A trial's outcome does not depend on how many run beside it.
pub fn run_trials(
    count: usize,
    threads: Option<NonZeroUsize>,
    configure: impl Fn(usize) -> SimConfig + Sync,
    mut finished: impl FnMut(usize, Result<TrialOutcome, SimError>),
) {
    let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.map_or_else(available, NonZeroUsize::get).min(count);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(2 * threads.max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, configure) = (sender.clone(), &next, &configure);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, run(configure(index)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, outcome) in receiver {
            finished(index, outcome);
        }
    });
}
