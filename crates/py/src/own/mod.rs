//! Algorithms written in Python, asked by the simulator: what a class is told, what it may answer,
//! and what becomes of a run whose class fails.
//!
//! An object's first failure ends the run: it is kept in the [`Watch`] of the run, which raises the
//! run's stop, and nothing of Python is called any more.

mod control;
mod queue;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use underload_sim::trial::TrialLabel;

use crate::errors::raise;
use crate::run::Run;

pub use control::{Ack, CongestionEvent, ecn_use};
pub use queue::{Backlog, PacketMeta};

/// An algorithm that Python brings along: its SPEC, the name of its class, and what makes an object
/// of a seed and gives what is called of it.
#[derive(FromPyObject)]
pub struct Brought(String, String, Py<PyAny>);

/// The first failure of an object.
pub struct Fault {
    /// Class and method.
    what: String,
    trial: Option<TrialLabel>,
    error: PyErr,
}

/// Looks after the objects of one run, replay or queue.
#[derive(Default)]
pub struct Watch {
    /// Raised by a failure; the run's own, so that it ends.
    stop: Arc<AtomicBool>,
    fault: Mutex<Option<Fault>>,
    /// Python's name for the thread that the objects work on; 0: none yet.
    thread: AtomicU64,
}

impl Watch {
    /// Looks after what `stop` ends.
    pub fn new(stop: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { stop: Arc::clone(stop), ..Self::default() })
    }

    fn fail(&self, what: String, trial: Option<&TrialLabel>, error: PyErr) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(Fault { what, trial: trial.cloned(), error });
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The failure, if there was one.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Raises the failure of a queue that goes on afterwards.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        if !self.stop.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.fault().map_or(Ok(()), |fault| Err(fault.raised(py, None)))
    }

    /// Interrupts an object that does not come back by itself.
    pub fn interrupt(&self, py: Python<'_>) {
        let thread = self.thread.load(Ordering::Relaxed);
        if thread != 0 {
            // Whether it is still there does not matter: the wait for it goes on.
            let _ = py
                .import("underload._own")
                .and_then(|own| own.call_method1("interrupt_thread", (thread,)));
        }
    }

    /// Does `work`, on a thread that Python does not know, with a state of Python's that lasts
    /// until its end: one for each call would cost more than the calls.
    pub fn hosts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        Python::attach(|py| py.detach(work))
    }
}

impl Fault {
    /// The exception that it becomes, with what was finished before it; Ctrl-C stays what it is.
    pub fn raised(self, py: Python<'_>, rest: Option<Run>) -> PyErr {
        let Self { what, trial, error } = self;
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return error;
        }
        let place = trial.map_or_else(String::new, |trial| {
            let TrialLabel { index, arm, repeat } = trial;
            format!(", arm {arm}, trial {index} (repeat {repeat})")
        });
        let kind = error.get_type(py).name().map_or_else(|_| "?".to_owned(), |it| it.to_string());
        let words = error.value(py).str().map_or_else(|_| String::new(), |it| it.to_string());
        let colon = if words.is_empty() { "" } else { ": " };
        let said = format!("{what}{place}: {kind}{colon}{words}");
        let raised = raise(py, "OwnCodeError", (said, rest));
        raised.set_cause(py, Some(error));
        raised
    }
}

/// Makes the objects of one class.
struct Maker {
    class: Arc<str>,
    make: Py<PyAny>,
    watch: Arc<Watch>,
}

impl Maker {
    fn of(brought: Brought, watch: &Arc<Watch>) -> (String, Self) {
        let Brought(spec, class, make) = brought;
        (spec, Self { class: class.into(), make, watch: Arc::clone(watch) })
    }

    /// An object for a trial, and what `read` finds of it; `None`: it could not be made.
    fn object<T>(
        &self,
        trial: Option<&TrialLabel>,
        arguments: impl for<'py> PyCallArgs<'py>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> (Object, Option<T>) {
        let (class, watch) = (Arc::clone(&self.class), Arc::clone(&self.watch));
        let object = Object { class, trial: trial.cloned(), watch };
        let made = object.guard("__init__", |py| {
            let thread = py.import("threading")?.call_method0("get_ident")?.extract()?;
            self.watch.thread.store(thread, Ordering::Relaxed);
            read(&self.make.bind(py).call1(arguments)?)
        });
        (object, made)
    }
}

/// An object of somebody's class, by what an error has to name.
struct Object {
    class: Arc<str>,
    trial: Option<TrialLabel>,
    watch: Arc<Watch>,
}

impl Object {
    /// Calls a method and reads its answer; `None` where it failed, or one did before.
    fn ask<T>(
        &self,
        name: &str,
        method: &Py<PyAny>,
        arguments: impl for<'py> PyCallArgs<'py>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        if self.watch.stop.load(Ordering::Relaxed) {
            return None;
        }
        self.guard(name, |py| read(&method.bind(py).call1(arguments)?))
    }

    /// Does something with Python; what goes wrong is this object's method's.
    fn guard<T>(&self, name: &str, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        let fail = |error| {
            self.watch.fail(format!("{}.{name}", self.class), self.trial.as_ref(), error);
        };
        Python::attach(|py| work(py).map_err(fail)).ok()
    }
}

/// Gives up what Python owns on the thread that used it, as some of Python's objects demand.
fn give_up<T>(owned: T) {
    // None: Python has ended, and all of it is gone.
    Python::try_attach(|_| drop(owned));
}

/// An answer as an error repeats it.
fn said(answer: &Bound<'_, PyAny>) -> String {
    let said = answer.repr().map_or_else(|_| "?".to_owned(), |it| it.to_string());
    said.chars().take(MOST_SAID).collect()
}

/// Characters of a wrong answer that an error repeats.
const MOST_SAID: usize = 200;
