//! What goes on beside the requests: results are put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Tell;
use crate::store::Keeper;

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Results that are put together in one transaction at most.
const PUT_TOGETHER_MAX: usize = 4_096;
/// From one look to the next, while there is nothing to do.
const PAUSE: Duration = Duration::from_secs(5);

impl Background {
    pub fn start(mut keeper: Box<dyn Keeper>, tell: Tell) -> std::io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut told = String::new();
            while !stopped.load(Ordering::Relaxed) {
                let pause = match keeper.roll_up(PUT_TOGETHER_MAX) {
                    Ok(done) => {
                        told.clear();
                        if done == 0 { PAUSE } else { Duration::ZERO }
                    }
                    // Until it can, questions are answered from the results themselves.
                    Err(error) => {
                        let words = format!("putting results together: {error}");
                        if words != told {
                            tell(&words);
                            told = words;
                        }
                        PAUSE
                    }
                };
                if !pause.is_zero() && !stopped.load(Ordering::Relaxed) {
                    std::thread::park_timeout(pause);
                }
            }
        };
        let thread = std::thread::Builder::new().name("keeper".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // What it is at is at most one transaction.
        let _ = thread.join();
    }
}
