//! Converts errors of the libraries to the package's exceptions, with the same messages.

use std::error::Error;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use underload_record::text::in_full;
use underload_scenario::{ScenarioError, ScenarioErrors};

/// Returns an exception of the package `underload` by its name.
pub fn raise<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class = py.import("underload")?.getattr(class)?;
        Ok(PyErr::from_value(class.call1(arguments)?))
    };
    made().unwrap_or_else(|error| error)
}

/// Returns an exception with the message of an error and its causes.
pub fn raise_words(py: Python<'_>, class: &str, error: &(dyn Error + 'static)) -> PyErr {
    raise(py, class, (in_full(error),))
}

/// Converts errors of the libraries to exceptions.
pub trait OrRaise<T> {
    /// Raises the exception `class` with the error and its causes.
    fn or_raise(self, py: Python<'_>, class: &str) -> PyResult<T>;
}

impl<T, E: Error + 'static> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>, class: &str) -> PyResult<T> {
        self.map_err(|error| raise_words(py, class, &error))
    }
}

/// Returns one exception for all errors in a scenario.
pub fn scenario(py: Python<'_>, errors: &ScenarioErrors) -> PyErr {
    let fault = |error: &ScenarioError| {
        (error.scenario.clone(), error.line, error.key.clone(), error.problem.clone())
    };
    let faults: Vec<_> = errors.0.iter().map(fault).collect();
    raise(py, "ScenarioError", (errors.to_string(), faults))
}
