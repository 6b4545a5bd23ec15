//! What goes on beside the requests: results are put together, and days age from form to form.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http::{Clock, Tell};
use crate::store::Housekeeping;

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What failed is tried again after so long.
const AGAIN: Duration = Duration::from_mins(1);
/// From one look to the next at most: somebody may have set the clock.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl Background {
    pub fn start(
        mut housekeeping: Housekeeping,
        clock: Clock,
        tell: Tell,
    ) -> std::io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut told = String::new();
            while !stopped.load(Ordering::Relaxed) {
                let now_ms = clock();
                let pause = match housekeeping.step(now_ms) {
                    Ok(did) => {
                        told.clear();
                        Duration::from_millis(did.next_ms.saturating_sub(now_ms)).min(PAUSE_MAX)
                    }
                    // Until it can, questions are answered from the results themselves.
                    Err(error) => {
                        let words = format!("keeping the store in order: {error}");
                        if words != told {
                            tell(&words);
                            told = words;
                        }
                        AGAIN
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
        // What it is at takes a second or so.
        let _ = thread.join();
    }
}
