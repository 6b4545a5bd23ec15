//! Work without Python's lock, while Python's signals are still handled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors::raise;

/// How often Python's signals are checked.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(20);

/// Runs `work` on a separate thread. A signal that Python answers with an exception raises `stop`;
/// the exception is returned when the work has ended.
pub fn run_interruptible<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    run_interruptible_with(py, stop, |_| (), work)
}

/// Like [`run_interruptible`]. Between a signal and the end of the work it calls `stopping` again
/// and again.
pub fn run_interruptible_with<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    stopping: impl Fn(Python<'_>),
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<()>();
        let worker = scope.spawn(move || {
            let done = work();
            drop(sender);
            done
        });
        let waits = |_| {
            stopping(py);
            true
        };
        let broken = follow(py, receiver, stop, |()| Ok(()), waits);
        let fault = || raise(py, "Error", ("a fault of this program",));
        let done = py.detach(|| worker.join()).map_err(|_| fault());
        broken.map_or(done, Err)
    })
}

/// Passes events to `hear` until all senders are dropped. A signal, or an error of `hear`, raises
/// `stop` and is returned. From then on no event is passed; `waits` is called repeatedly with the
/// time since the signal, and ends the wait by returning `false`.
pub fn follow<E: Send>(
    py: Python<'_>,
    mut receiver: Receiver<E>,
    stop: &AtomicBool,
    mut hear: impl FnMut(E) -> PyResult<()>,
    mut waits: impl FnMut(Duration) -> bool,
) -> Option<PyErr> {
    let mut broken: Option<(PyErr, Instant)> = None;
    loop {
        let events = &mut receiver;
        let event = match py.detach(move || events.recv_timeout(BETWEEN_SIGNALS)) {
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => None,
            Ok(event) => Some(event),
        };
        match &broken {
            Some((_, since)) if !waits(since.elapsed()) => break,
            Some(_) => {}
            None => {
                let heard = event.map_or(Ok(()), &mut hear).and_then(|()| py.check_signals());
                if let Err(error) = heard {
                    stop.store(true, Ordering::Relaxed);
                    broken = Some((error, Instant::now()));
                }
            }
        }
    }
    broken.map(|(error, _)| error)
}
