//! Objects of classes in Python, their calls, and their first failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use underload_sim::trial::TrialLabel;

use crate::errors::raise;

/// An algorithm written in Python: its SPEC, the name of its class, and a function that creates an
/// object from a seed and returns its methods.
#[derive(FromPyObject)]
pub struct PythonAlgorithm(String, String, Py<PyAny>);

/// The first failure of an object.
pub struct Fault {
    /// The class and the method.
    what: String,
    trial: Option<TrialLabel>,
    error: PyErr,
}

/// Watches the objects of one run, replay or queue.
#[derive(Default)]
pub struct Watch {
    /// The flag that stops the run; a failure of an object sets it.
    stop: Arc<AtomicBool>,
    fault: Mutex<Option<Fault>>,
    /// Python's identifier of the thread that calls the objects; 0 before the first call.
    thread: AtomicU64,
}

impl Watch {
    /// Watches Python objects. A fault of one sets `stop`, which ends the run.
    pub fn new(stop: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { stop: Arc::clone(stop), ..Self::default() })
    }

    fn fail(&self, what: String, trial: Option<&TrialLabel>, error: PyErr) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(Fault { what, trial: trial.cloned(), error });
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the first failure, and forgets it.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Raises the failure of a queue, which works again afterwards.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        if !self.stop.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.fault().map_or(Ok(()), |fault| Err(fault.raised(py, None::<()>)))
    }

    /// Interrupts a method that does not return.
    pub fn interrupt(&self, py: Python<'_>) {
        let thread = self.thread.load(Ordering::Relaxed);
        if thread != 0 {
            // If the thread has ended, the caller notices that by itself.
            let _ = py
                .import("underload._own")
                .and_then(|own| own.call_method1("interrupt_thread", (thread,)));
        }
    }

    /// Runs `work` on a thread that Python does not know, with one thread state of Python: a state
    /// per call would cost more than the calls.
    pub fn hosts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        Python::attach(|py| py.detach(work))
    }
}

impl Fault {
    /// Returns the exception of the failure, with the part of the run before it; returns Ctrl-C
    /// unchanged.
    pub fn raised<'py>(self, py: Python<'py>, rest: Option<impl IntoPyObject<'py>>) -> PyErr {
        let Self { what, trial, error } = self;
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return error;
        }
        let place = trial.map_or_else(String::new, |trial| {
            let TrialLabel { index, variant, repeat } = trial;
            format!(", variant {variant}, trial {index} (repeat {repeat})")
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

/// Creates the objects of one class.
pub(super) struct Maker {
    class: Arc<str>,
    make: Py<PyAny>,
    watch: Arc<Watch>,
}

impl Maker {
    pub(super) fn new(brought: PythonAlgorithm, watch: &Arc<Watch>) -> (String, Self) {
        let PythonAlgorithm(spec, class, make) = brought;
        (spec, Self { class: class.into(), make, watch: Arc::clone(watch) })
    }

    /// Creates an object for a trial. Returns it with what `read` returns, `None` after a failure.
    pub(super) fn object<T>(
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

/// An object of a user's class, with the names that errors show.
pub(super) struct Object {
    class: Arc<str>,
    trial: Option<TrialLabel>,
    watch: Arc<Watch>,
}

impl Object {
    /// Calls a method and reads its answer; `None` if it fails or a method failed before.
    pub(super) fn ask<T>(
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

    /// Runs `work`, and reports its exception as a failure of the method `name`.
    fn guard<T>(&self, name: &str, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        let fail = |error| {
            self.watch.fail(format!("{}.{name}", self.class), self.trial.as_ref(), error);
        };
        Python::attach(|py| work(py).map_err(fail)).ok()
    }
}

/// Drops Python's objects on the thread that used them, as some require.
pub(super) fn give_up<T>(owned: T) {
    // `None` after Python has ended, when its objects no longer exist.
    Python::try_attach(|_| drop(owned));
}

/// Returns the start of an answer, for an error.
pub(super) fn said(answer: &Bound<'_, PyAny>) -> String {
    let said = answer.repr().map_or_else(|_| "?".to_owned(), |it| it.to_string());
    said.chars().take(MOST_SAID).collect()
}

const MOST_SAID: usize = 200;
