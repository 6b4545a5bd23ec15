//! Many requests in one transaction.
//!
//! A disk commits a few hundred times a second, and a fleet sends thousands of requests. So each
//! store has one thread that takes up to [`BATCH_MAX`] waiting requests, executes them one after
//! the other in one transaction, commits, and answers them. Requests that arrive during the commit
//! form the next batch, so batches grow with the load. On a fast disk there would be many small
//! batches, each at the cost of a commit, so transactions begin at least [`BETWEEN`] apart; a
//! request after a pause does not wait. A request is answered only after its changes are on disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use underload_aqm::rng::Rng;
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

use crate::random;

/// Milliseconds since 1970, by the orchestrator's clock.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Reports a message to the operator.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Turn<'a> {
    pub tx: &'a mut dyn Transaction,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// Seeded by the system; not for secrets.
    pub rng: &'a mut Rng,
}

/// Why a request failed. Its changes are not stored, unless only the confirmation of the commit was
/// lost: rules accept the same request again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    #[error("too many requests wait")]
    Full,
    /// The store is unreachable or full.
    #[error("the store is away: {what}")]
    Away { what: String },
    /// The store is damaged, or a rule has a defect.
    #[error("{what}")]
    Broken { what: String },
}

/// The threads that write to the stores.
#[derive(Debug)]
pub struct Writers {
    queues: Vec<mpsc::Sender<Box<dyn Work>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Maximum number of requests of a transaction.
pub const BATCH_MAX: usize = 512;
/// Minimum time from the beginning of one transaction to that of the next.
pub const BETWEEN: Duration = Duration::from_millis(5);
/// After this many consecutive failures the rest of a batch fails without being tried.
const FAILURES_MAX: usize = 3;

trait Work: Send {
    fn needs(&self) -> &Needs;
    /// Returns false once the sender of the request has disconnected.
    fn is_awaited(&self) -> bool;
    fn apply(&mut self, turn: &mut Turn<'_>) -> Result<(), StoreError>;
    fn tell(self: Box<Self>, outcome: Result<(), NotDone>);
}

struct QueuedRequest<A, F> {
    needs: Needs,
    work: F,
    answer: Option<A>,
    reply: oneshot::Sender<Result<A, NotDone>>,
}

impl<A, F> Work for QueuedRequest<A, F>
where
    A: Send,
    F: FnMut(&mut Turn<'_>) -> Result<A, StoreError> + Send,
{
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    fn apply(&mut self, turn: &mut Turn<'_>) -> Result<(), StoreError> {
        self.answer = Some((self.work)(turn)?);
        Ok(())
    }

    fn tell(self: Box<Self>, outcome: Result<(), NotDone>) {
        let Self { answer, reply, .. } = *self;
        let never = || NotDone::Broken { what: "the request was not executed".to_owned() };
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(never)));
    }
}

impl Writers {
    /// Starts a thread for each store, with a queue of at most `waiting_max` requests. `tell`
    /// reports when a store fails, with its error, and when it works again.
    pub fn start(
        stores: Vec<Box<dyn Store>>,
        waiting_max: usize,
        clock: &Clock,
        tell: &Tell,
    ) -> std::io::Result<Self> {
        let mut writers = Self { queues: Vec::new(), threads: Vec::new() };
        for store in stores {
            let (queue, waiting) = mpsc::channel(waiting_max.max(1));
            let seed = random::bytes().map_err(std::io::Error::other)?;
            let writer = Writer {
                store,
                clock: Arc::clone(clock),
                rng: Rng::new(u64::from_le_bytes(seed)),
                tell: Arc::clone(tell),
                last_failure: None,
            };
            let thread = thread::Builder::new().name("writer".to_owned());
            writers.threads.push(thread.spawn(move || writer.run(waiting))?);
            writers.queues.push(queue);
        }
        Ok(writers)
    }

    /// Executes `work` in a transaction, and returns once that is on disk. Calls `work` again if
    /// the transaction failed. Requests with equal `sender` keep their order.
    pub async fn ask<A: Send + 'static>(
        &self,
        sender: u64,
        needs: Needs,
        work: impl FnMut(&mut Turn<'_>) -> Result<A, StoreError> + Send + 'static,
    ) -> Result<A, NotDone> {
        let (reply, answer) = oneshot::channel();
        let request = QueuedRequest { needs, work, answer: None, reply };
        let queue = &self.queues[(sender % self.queues.len().max(1) as u64) as usize];
        queue.try_send(Box::new(request)).map_err(|_| NotDone::Full)?;
        // A thread that ends without an answer has not committed the request.
        answer
            .await
            .map_err(|_| NotDone::Away { what: "the orchestrator is stopping".to_owned() })?
    }

    /// Number of requests in the queues.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.max_capacity() - queue.capacity()).sum()
    }
}

/// Waits for the requests in the queues.
impl Drop for Writers {
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // The last request may own the last handle of these writers. Its thread cannot join
            // itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

struct Writer {
    store: Box<dyn Store>,
    clock: Clock,
    rng: Rng,
    tell: Tell,
    last_failure: Option<ReportedFailure>,
}

struct ReportedFailure {
    words: String,
    at_ms: u64,
    is_over: bool,
}

/// Minimum time between two reports of one failure.
const TELL_AGAIN_MS: u64 = 60_000;

impl Writer {
    fn run(mut self, mut waiting: mpsc::Receiver<Box<dyn Work>>) {
        let mut earliest = Instant::now();
        while let Some(first) = waiting.blocking_recv() {
            if waiting.len() + 1 < BATCH_MAX {
                thread::sleep(earliest.saturating_duration_since(Instant::now()));
            }
            earliest = Instant::now() + BETWEEN;
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX {
                let Ok(next) = waiting.try_recv() else { break };
                batch.push(next);
            }
            // A sender that disconnected retries its request.
            batch.retain(|work| work.is_awaited());
            if !batch.is_empty() {
                self.answer(batch);
            }
        }
    }

    fn answer(&mut self, mut batch: Vec<Box<dyn Work>>) {
        let error = match self.commit(&mut batch) {
            Ok(()) => return batch.into_iter().for_each(|work| work.tell(Ok(()))),
            Err(error) => error,
        };
        if batch.len() == 1 {
            return batch.into_iter().for_each(|work| work.tell(Err(error.clone())));
        }
        // Retries each request in a separate transaction, so that only the requests that caused the
        // failure fail.
        let mut failures = Vec::new();
        for mut work in batch {
            let outcome = match failures.last() {
                Some(error) if failures.len() >= FAILURES_MAX => Err(NotDone::clone(error)),
                _ => self.commit(std::slice::from_mut(&mut work)),
            };
            match &outcome {
                Ok(()) => failures.clear(),
                Err(error) => failures.push(error.clone()),
            }
            work.tell(outcome);
        }
    }

    /// Executes all requests in one transaction, or none.
    fn commit(&mut self, batch: &mut [Box<dyn Work>]) -> Result<(), NotDone> {
        let all = || self.try_commit(batch);
        // A defect in a rule must not end the service.
        let outcome = catch_unwind(AssertUnwindSafe(all))
            .unwrap_or_else(|_| Err(StoreError::broken("a rule panicked")));
        let outcome = outcome.map_err(|error| match (error.in_full(), error) {
            (what, StoreError::Temporary { .. }) => NotDone::Away { what },
            (what, StoreError::Broken { .. }) => NotDone::Broken { what },
        });
        self.tell(&outcome);
        outcome
    }

    /// Reports a failure, or its end, to the operator. Senders do not get the store's error.
    fn tell(&mut self, outcome: &Result<(), NotDone>) {
        match (outcome, &mut self.last_failure) {
            (Ok(()), Some(failure)) if !failure.is_over => {
                failure.is_over = true;
                (self.tell)("the store works again");
            }
            (Ok(()), _) => {}
            (Err(error), failure) => {
                let (words, now_ms) = (error.to_string(), (self.clock)());
                let is_known = failure.as_ref().is_some_and(|failure| {
                    failure.words == words && now_ms < failure.at_ms.saturating_add(TELL_AGAIN_MS)
                });
                if !is_known {
                    (self.tell)(&format!("a request failed: {words}"));
                    *failure = Some(ReportedFailure { words, at_ms: now_ms, is_over: false });
                }
            }
        }
    }

    fn try_commit(&mut self, batch: &mut [Box<dyn Work>]) -> Result<(), StoreError> {
        let mut needs = Needs::default();
        for work in batch.iter() {
            let Needs { devices, leases, admits } = work.needs();
            needs.devices.extend(devices);
            needs.leases.extend(leases);
            needs.admits |= admits;
        }
        let now_ms = (self.clock)();
        let mut tx = self.store.begin(&needs)?;
        for work in batch {
            work.apply(&mut Turn { tx: &mut *tx, now_ms, rng: &mut self.rng })?;
        }
        tx.commit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc as channel;
    use std::task::Poll;

    use underload_fleet::store::Memory;

    use super::*;

    /// Counts transactions, and delays the start of each until the test opens the gate.
    struct Counted {
        memory: Memory,
        come: channel::Sender<()>,
        begun: Arc<AtomicUsize>,
        gate: Mutex<channel::Receiver<()>>,
    }

    impl Store for Counted {
        fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
            // Few tests receive these signals.
            let _ = self.come.send(());
            // A disconnected gate counts as open.
            let _ = self.gate.lock().expect("no thread panicked").recv();
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.memory.begin(needs)
        }
    }

    struct Scene {
        writers: Writers,
        memory: Memory,
        /// Receives a signal when the thread waits at the gate.
        come: channel::Receiver<()>,
        begun: Arc<AtomicUsize>,
        gate: channel::Sender<()>,
        runtime: tokio::runtime::Runtime,
        words: Arc<Mutex<Vec<String>>>,
    }

    fn scene(waiting_max: usize) -> Scene {
        let (memory, begun) = (Memory::new(), Arc::new(AtomicUsize::new(0)));
        let ((gate, opened), (has_come, come)) = (channel::channel(), channel::channel());
        let (begun_there, gated) = (Arc::clone(&begun), Mutex::new(opened));
        let store =
            Counted { memory: memory.clone(), come: has_come, begun: begun_there, gate: gated };
        let clock: Clock = Arc::new(|| 0);
        let words = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&words);
        let tell: Tell = Arc::new(move |said| {
            heard.lock().expect("no thread panicked").push(said.to_owned());
        });
        let writers = Writers::start(vec![Box::new(store)], waiting_max, &clock, &tell);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Scene { writers: writers.expect("a thread"), memory, come, begun, gate, runtime, words }
    }

    fn kept(memory: &Memory, name: &str) -> bool {
        let mut memory = memory.clone();
        let mut tx = memory.begin(&Needs::default()).expect("it begins");
        tx.setting(name).expect("it can be read").is_some()
    }

    fn put(turn: &mut Turn<'_>, name: &str) -> Result<(), StoreError> {
        turn.tx.put_setting(name, b"kept")
    }

    /// Polls all requests once, so that all are queued, then opens the gate and waits for the
    /// answers.
    fn all<F: Future>(scene: &Scene, asked: Vec<F>) -> Vec<F::Output> {
        let gate = &scene.gate;
        scene.runtime.block_on(async {
            let mut asked: Vec<_> = asked.into_iter().map(Box::pin).collect();
            let mut done: Vec<Option<F::Output>> = asked.iter().map(|_| None).collect();
            let mut is_open = false;
            std::future::poll_fn(|context| {
                for (future, answer) in asked.iter_mut().zip(&mut done) {
                    if answer.is_none()
                        && let Poll::Ready(it) = future.as_mut().poll(context)
                    {
                        *answer = Some(it);
                    }
                }
                if !is_open {
                    is_open = true;
                    (0..1_000).for_each(|_| gate.send(()).expect("the thread lives"));
                }
                let is_over = done.iter().all(Option::is_some);
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            done.into_iter().flatten().collect()
        })
    }

    #[test]
    fn waiting_transactions_are_committed_together() {
        let scene = scene(100);
        let ask = |number: usize| {
            let name = format!("{number}");
            scene.writers.ask(0, Needs::default(), move |turn| put(turn, &name))
        };
        let answers = all(&scene, (0..64).map(ask).collect());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert!((0..64).all(|number| kept(&scene.memory, &number.to_string())));
        // The first request may have had its own transaction; the next one has those that arrived
        // meanwhile.
        let begun = scene.begun.load(Ordering::SeqCst);
        assert!(begun <= 3, "{begun} transactions for 64 requests");
    }

    #[test]
    fn sequential_transactions_are_spaced() {
        let scene = scene(100);
        (0..10).for_each(|_| scene.gate.send(()).expect("the thread lives"));
        let begun = Instant::now();
        for number in 0..10 {
            let name = format!("{number}");
            let asked = scene.writers.ask(0, Needs::default(), move |turn| put(turn, &name));
            scene.runtime.block_on(asked).expect("it is kept");
        }
        assert!(begun.elapsed() >= BETWEEN * 9, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_failing_or_panicking_transaction_harms_no_other() {
        let scene = scene(100);
        let ask = |number: usize| {
            let name = format!("{number}");
            scene.writers.ask(0, Needs::default(), move |turn| {
                put(turn, &name)?;
                match number {
                    7 => Err(StoreError::temporary("no")),
                    9 => panic!("a bug"),
                    _ => Ok(()),
                }
            })
        };
        let answers = all(&scene, (0..32).map(ask).collect());
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer.is_ok(), !matches!(number, 7 | 9), "{number}: {answer:?}");
            assert_eq!(kept(&scene.memory, &number.to_string()), answer.is_ok(), "{number}");
        }
        assert_eq!(answers[7], Err(NotDone::Away { what: "no".to_owned() }));
        assert!(matches!(answers[9], Err(NotDone::Broken { .. })), "{:?}", answers[9]);
        let words = scene.words.lock().expect("no thread panicked");
        let told = |what: &str| words.iter().filter(|said| said.contains(what)).count();
        assert!((1..=2).contains(&told("a request failed: the store is away: no")), "{words:?}");
        assert!((1..=2).contains(&told("a request failed: a rule panicked")), "{words:?}");
        assert!(told("again") >= 1, "{words:?}");
    }

    #[test]
    fn transactions_beyond_the_limit_are_refused_at_once() {
        let scene = scene(4);
        let ask = |number: usize| {
            let name = format!("{number}");
            scene.writers.ask(0, Needs::default(), move |turn| put(turn, &name))
        };
        // The thread executes one request, so four of the other twenty fit in the queue.
        let mut first = Box::pin(ask(0));
        let asking = std::future::poll_fn(|context| Poll::Ready(first.as_mut().poll(context)));
        assert_eq!(scene.runtime.block_on(asking), Poll::Pending);
        scene.come.recv().expect("the thread comes to the gate");
        let answers = all(&scene, (1..21).map(ask).collect());
        let full = answers.iter().filter(|answer| **answer == Err(NotDone::Full)).count();
        assert_eq!(full, 16, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 4, "{answers:?}");
        assert_eq!(scene.runtime.block_on(first), Ok(()));
    }
}
