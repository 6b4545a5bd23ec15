//! Archives that several pages ask at once, each on a thread that may wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use underload_fleet::store::{Archive, StoreError};

use super::problem::Problem;

/// A page waits for an archive at most so long.
const WAIT: Duration = Duration::from_secs(10);

/// Archives that are free.
pub(super) struct Readers {
    free: Mutex<Vec<Box<dyn Archive>>>,
    seats: Semaphore,
}

/// One of them, given back however its question ends.
struct Borrowed {
    archive: Option<Box<dyn Archive>>,
    home: Arc<Readers>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut free = self.home.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.archive.take());
    }
}

impl Readers {
    pub(super) fn new(archives: Vec<Box<dyn Archive>>) -> Arc<Self> {
        let seats = Semaphore::new(archives.len());
        Arc::new(Self { free: Mutex::new(archives), seats })
    }

    /// What an archive answers.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&mut dyn Archive) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || Problem::Busy("Every reader of the store is at work.", 5);
        let seat = tokio::time::timeout(WAIT, self.seats.acquire()).await;
        let _seat = seat.map_err(|_| busy())?.map_err(|_| busy())?;
        let archive = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut borrowed = Borrowed { archive, home: Arc::clone(self) };
        let answer = tokio::task::spawn_blocking(move || {
            let archive = borrowed.archive.as_mut().ok_or_else(busy)?;
            question(archive.as_mut())
        });
        let broken = |_| StoreError::Broken { what: "a question to the archive panicked".into() };
        answer.await.map_err(broken)?
    }
}
