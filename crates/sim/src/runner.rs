//! Runs trials on several processor cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Calls `work` for each index below `count` on up to `threads` threads (`None`: one per core), and
/// `finished` in the calling thread, in order of completion. With one thread, all work is done in
/// the calling thread.
pub fn spread<T: Send>(
    count: usize,
    threads: Option<NonZeroUsize>,
    work: impl Fn(usize) -> T + Sync,
    mut finished: impl FnMut(usize, T),
) {
    let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.map_or_else(available, NonZeroUsize::get).min(count);
    if threads <= 1 {
        return (0..count).for_each(|index| finished(index, work(index)));
    }
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(2 * threads.max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, work(index))).is_err() {
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
