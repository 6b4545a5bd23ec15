//! The thread of the background work on the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use underload_orchestrator::http::{Clock, Tell};
use underload_orchestrator::store::{Housekeeping, Work};

/// A thread, which dropping this stops.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const RETRY_AFTER: Duration = Duration::from_mins(1);
/// Maximum pause, in case the system clock is changed meanwhile.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl Background {
    pub fn start(mut keeper: Housekeeping, clock: Clock, tell: Tell) -> std::io::Result<Self> {
        let stop = keeper.stop_flag();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut told = String::new();
            while !stopped.load(Ordering::Relaxed) {
                let (now_ms, start) = (clock(), Instant::now());
                let pause = match keeper.step(now_ms) {
                    Ok(did) => {
                        told.clear();
                        // A pause in which uploads may write, between two transactions that change
                        // sums.
                        let changes_sums = matches!(did.what, Work::PutTogether(_));
                        let least = if changes_sums { start.elapsed() } else { Duration::ZERO };
                        let pause = Duration::from_millis(did.next_ms.saturating_sub(now_ms));
                        pause.max(least).min(PAUSE_MAX)
                    }
                    Err(_) if stopped.load(Ordering::Relaxed) => return,
                    // Until the fold succeeds, queries read the unfolded results themselves.
                    Err(error) => {
                        let words = format!("keeping the store in order: {}", error.in_full());
                        if words != told {
                            tell(&words);
                            told = words;
                        }
                        RETRY_AFTER
                    }
                };
                if !pause.is_zero() && !stopped.load(Ordering::Relaxed) {
                    std::thread::park_timeout(pause);
                }
            }
        };
        let thread = std::thread::Builder::new().name("housekeeping".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let _ = thread.join();
    }
}
