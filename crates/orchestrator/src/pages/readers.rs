//! Connections for concurrent queries of pages, each on a thread that may block.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use underload_fleet::store::{Archive, StoreError};

use super::problem::Problem;

/// How long a page waits for a connection.
const WAIT: Duration = Duration::from_secs(10);

pub(super) struct Readers {
    free: Mutex<Vec<Box<dyn Archive>>>,
    seats: Arc<Semaphore>,
    /// Per token, by its name: all archives but one. So a visitor with many or long queries leaves
    /// one to all others.
    each: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    seats_each: usize,
}

/// A borrowed archive, returned when dropped.
struct Borrowed {
    archive: Option<Box<dyn Archive>>,
    home: Arc<Readers>,
    /// Released with the archive, even if the visitor stops waiting earlier.
    _seats: [OwnedSemaphorePermit; 2],
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut free = self.home.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.archive.take());
    }
}

impl Readers {
    pub(super) fn new(archives: Vec<Box<dyn Archive>>) -> Arc<Self> {
        let seats = Arc::new(Semaphore::new(archives.len()));
        let seats_each = archives.len().saturating_sub(1).max(1);
        Arc::new(Self { free: Mutex::new(archives), seats, each: Mutex::default(), seats_each })
    }

    /// The seats of a token, which are never removed: there are few tokens.
    fn seats_of(&self, who: &str) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = each.get(who) {
            return Arc::clone(own);
        }
        let own = Arc::new(Semaphore::new(self.seats_each));
        each.insert(who.to_owned(), Arc::clone(&own));
        own
    }

    /// Runs `ask` on an archive for the owner of a token; the empty name means the program itself.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        who: &str,
        question: impl FnOnce(&mut dyn Archive) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || Problem::Busy("All readers of the store are busy.", 5);
        let (own, all) = (self.seats_of(who), Arc::clone(&self.seats));
        let seats = async {
            Ok::<_, AcquireError>([own.acquire_owned().await?, all.acquire_owned().await?])
        };
        let seats = tokio::time::timeout(WAIT, seats).await.map_err(|_| busy())?;
        let seats = seats.map_err(|_| busy())?;
        let archive = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut borrowed = Borrowed { archive, home: Arc::clone(self), _seats: seats };
        let answer = tokio::task::spawn_blocking(move || {
            let archive = borrowed.archive.as_mut().ok_or_else(busy)?;
            question(archive.as_mut())
        });
        let broken = |_| StoreError::broken("a question to the archive panicked");
        answer.await.map_err(broken)?
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use tokio::runtime::{Builder, Runtime};
    use underload_fleet::store::Memory;

    use super::*;

    fn readers(count: usize) -> (Runtime, Arc<Readers>) {
        let runtime = Builder::new_multi_thread().enable_time().build().expect("it starts");
        let archives = (0..count).map(|_| Box::new(Memory::new()) as _).collect();
        (runtime, Readers::new(archives))
    }

    /// A long query, which signals when it begins and ends when the sender is dropped.
    fn long(begun: mpsc::Sender<()>) -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), Problem>) {
        let (end, ended) = mpsc::channel::<()>();
        let question = move || {
            begun.send(()).expect("the test receives");
            ended.recv().expect_err("the sender is dropped");
            Ok(())
        };
        (end, question)
    }

    fn waits<T>(asked: Pin<&mut impl Future<Output = T>>) -> bool {
        asked.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[test]
    fn a_cancelled_request_does_not_free_its_busy_reader() {
        let (runtime, readers) = readers(1);
        let (begin, begun) = mpsc::channel();
        let (end, question) = long(begin);
        runtime.block_on(async {
            let asking = Arc::clone(&readers);
            let gone = tokio::spawn(async move { asking.ask("eve", move |_| question()).await });
            begun.recv().expect("it is asked");
            gone.abort();
            assert!(gone.await.expect_err("it is over").is_cancelled());
            let mut next = Box::pin(readers.ask("ana", |_| Ok(7)));
            assert!(waits(next.as_mut()));
            drop(end);
            assert_eq!(next.await.expect("the reader is free again"), 7);
        });
    }

    #[test]
    fn one_client_cannot_occupy_all_readers() {
        let (runtime, readers) = readers(2);
        let (begin, begun) = mpsc::channel();
        let (end, first) = long(begin.clone());
        let (other_end, second) = long(begin);
        runtime.block_on(async {
            let mut first = Box::pin(readers.ask("eve", move |_| first()));
            assert!(waits(first.as_mut()));
            begun.recv().expect("it is asked");
            let mut second = Box::pin(readers.ask("eve", move |_| second()));
            assert!(waits(second.as_mut()));
            assert_eq!(readers.ask("ana", |_| Ok(7)).await.expect("one is left"), 7);
            assert!(begun.try_recv().is_err(), "the second waits for the first");
            drop((end, other_end));
            first.await.expect("it is answered");
            second.await.expect("it is answered, too");
        });
    }
}
