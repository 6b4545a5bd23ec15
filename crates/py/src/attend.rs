//! Work without Python's lock, while its signals are still handled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::raise;

/// Between two looks at whether Python has a signal to handle.
pub const BETWEEN_SIGNALS: Duration = Duration::from_millis(20);

/// Does `work` on a thread of its own. A signal that Python answers by an exception raises `stop`,
/// and comes back in place of what the work gave.
pub fn attend<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    attend_with(py, stop, |_| (), work)
}

/// The same; from that signal on `stopping` is called again and again until the work is done.
pub fn attend_with<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    stopping: impl Fn(Python<'_>),
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    thread::scope(|scope| {
        let (sender, mut receiver) = mpsc::channel::<()>();
        let worker = scope.spawn(move || {
            let done = work();
            // Whoever waits hears that nothing will be sent any more.
            drop(sender);
            done
        });
        let mut broken = None;
        loop {
            let events = &mut receiver;
            match py.detach(move || events.recv_timeout(BETWEEN_SIGNALS)) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if broken.is_some() {
                stopping(py);
            } else if let Err(error) = py.check_signals() {
                stop.store(true, Ordering::Relaxed);
                broken = Some(error);
            }
        }
        let fault = || raise(py, "Error", ("a fault of this program",));
        let done = py.detach(|| worker.join()).map_err(|_| fault());
        broken.map_or(done, Err)
    })
}
