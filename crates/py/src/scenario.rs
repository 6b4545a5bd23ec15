//! Scenarios: by name, from a file's text, or from the keys that Python set.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};
use underload_scenario::question::Question;
use underload_scenario::source::{Source, load_file};
use underload_scenario::study::Quantity;
use underload_scenario::{self as scenario, Keys, Options, builtin};

use crate::errors::{self, OrRaise, raise};

#[pyclass(frozen, module = "underload._underload")]
pub struct Scenario(pub Arc<scenario::Scenario>);

/// The overrides of a scenario, see [`Options`].
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Overrides {
    short: bool,
    set: Vec<String>,
    variants: Vec<String>,
    repeats: Option<u32>,
    seed: Option<u64>,
}

impl From<Overrides> for Options {
    fn from(overrides: Overrides) -> Self {
        let Overrides { short, set, variants, repeats, seed } = overrides;
        Options { short, set, variants, repeats, seed, ..Options::default() }
    }
}

#[pymethods]
impl Scenario {
    /// Returns a built-in scenario by its name, or the file at a path.
    #[staticmethod]
    fn find(py: Python<'_>, name: &str, overrides: Overrides) -> PyResult<Self> {
        let source = Source::find(name).or_raise(py, "ScenarioError")?;
        Self::of_source(py, &source, overrides)
    }

    /// Parses the text of a scenario file.
    #[staticmethod]
    fn parse(py: Python<'_>, name: String, text: String, overrides: Overrides) -> PyResult<Self> {
        Self::of_source(py, &Source { name, text }, overrides)
    }

    /// Returns the scenario of a question, in the words of `underload try`: the line, and options with
    /// their values.
    #[staticmethod]
    fn asked(py: Python<'_>, line: Option<&str>, options: Vec<(String, String)>) -> PyResult<Self> {
        let options: Vec<(&str, String)> =
            options.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let refused = |words: String| raise(py, "ScenarioError", (words, Vec::<String>::new()));
        let words: Vec<String> = line.into_iter().map(str::to_owned).collect();
        let question =
            Question::asked(&words, &options, false).map_err(|fault| refused(fault.to_string()))?;
        let made = question.scenario("try").map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            refused(lines.join("\n"))
        });
        Ok(Self(Arc::new(made?)))
    }

    /// Builds a scenario from keys: those at the top level, of path and phases; flows with name and
    /// kind; variants with a name; and axes to sweep over.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the sections of a scenario file")]
    fn build(
        py: Python<'_>,
        name: &str,
        head: &Bound<'_, PyDict>,
        path: &Bound<'_, PyDict>,
        phases: &Bound<'_, PyDict>,
        flows: Vec<(String, String, Bound<'_, PyDict>)>,
        variants: Vec<(String, Bound<'_, PyDict>)>,
        sweeps: Vec<(String, Bound<'_, PyList>)>,
        overrides: Overrides,
    ) -> PyResult<Self> {
        let mut builder = scenario::Scenario::build(name);
        for (key, value) in head {
            let key: String = key.extract()?;
            builder = builder.set(&key, toml_value(&key, &value, 0)?);
        }
        builder = builder.path(keys(path)?).phases(keys(phases)?);
        for (name, kind, values) in flows {
            builder = builder.flow(&name, &kind, keys(&values)?);
        }
        for (name, values) in variants {
            builder = builder.variant(&name, keys(&values)?);
        }
        for (key, values) in sweeps {
            let each = values.iter().map(|value| toml_value(&key, &value, 0));
            builder = builder.sweep(&key, each.collect::<PyResult<Vec<Value>>>()?);
        }
        let load = &mut |file: &str| load_file(name, file);
        let made = builder.finish_with(&overrides.into(), load);
        Ok(Self(Arc::new(made.map_err(|error| errors::scenario(py, &error))?)))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    #[getter]
    fn text(&self) -> &str {
        &self.0.text
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    #[getter]
    fn repeats(&self) -> u32 {
        self.0.repeats
    }

    #[getter]
    fn variants(&self) -> Vec<(String, String)> {
        self.0.variants.iter().map(|variant| (variant.name.clone(), variant.label())).collect()
    }

    /// Returns the worlds that can run the scenario.
    #[getter]
    fn worlds(&self) -> Vec<&'static str> {
        self.0.worlds().iter().map(|world| world.name()).collect()
    }
}

impl Scenario {
    fn of_source(py: Python<'_>, source: &Source, overrides: Overrides) -> PyResult<Self> {
        let made = py.detach(|| source.scenario(&overrides.into(), &[]));
        Ok(Self(Arc::new(made.map_err(|error| errors::scenario(py, &error))?)))
    }
}

#[pyfunction]
pub fn scenario_names() -> Vec<&'static str> {
    builtin::scenarios().map(|known| known.name).collect()
}

#[pyfunction]
pub fn congestion_controls() -> Vec<String> {
    scenario::simulated_controls()
}

/// Returns the time, rate, size or number at a share of the way between two, in equal ratios; `None`
/// if the two have different units or are not above 0.
#[pyfunction]
pub fn quantity_between(first: &str, last: &str, share: f64) -> Option<String> {
    let (first, last) = (Quantity::read(first)?, Quantity::read(last)?);
    let is_range = first.unit == last.unit && first.amount > 0.0 && last.amount > 0.0;
    let amount = first.amount * (last.amount / first.amount).powf(share);
    is_range.then(|| Quantity { amount, ..first }.to_string())
}

/// Converts keys and values, in Python's order.
pub fn keys(values: &Bound<'_, PyDict>) -> PyResult<Keys> {
    let mut keys = Keys::new();
    for (key, value) in values {
        let key: String = key.extract()?;
        keys = keys.set(&key, toml_value(&key, &value, 0)?);
    }
    Ok(keys)
}

/// The deepest nesting of lists and tables.
const MOST_NESTED: usize = 16;

/// Converts a value of Python to one of a scenario file.
fn toml_value(key: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let list = |values: &Bound<'_, PyAny>| {
        let each = values.try_iter()?.map(|value| toml_value(key, &value?, depth + 1));
        Ok(Value::Array(each.collect::<PyResult<_>>()?))
    };
    if depth > MOST_NESTED {
        return Err(wrong(key, value, "is nested too deeply"));
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Boolean(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract().map(Value::Integer);
        return number.map_err(|_| wrong(key, value, "is too large a number"));
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map(Value::Float);
    }
    if value.is_instance_of::<PyString>() {
        return value.extract().map(Value::String);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return list(value);
    }
    if let Ok(values) = value.cast::<PyDict>() {
        let mut table = Table::new();
        for (name, value) in values {
            table.insert(name.extract()?, toml_value(key, &value, depth + 1)?);
        }
        return Ok(Value::Table(table));
    }
    // The scalars and arrays of NumPy, and columns of data frames.
    if let Some(plain) = value.getattr_opt("tolist")? {
        return toml_value(key, &plain.call0()?, depth + 1);
    }
    match value.getattr_opt("spec")? {
        Some(spec) if spec.is_instance_of::<PyString>() => spec.extract().map(Value::String),
        _ => Err(wrong(key, value, "is not a value that a scenario can contain")),
    }
}

fn wrong(key: &str, value: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let expected = "expected text with a unit, a number, True or False, a list or a dict of those, \
        a queue or a link";
    raise(value.py(), "ScenarioTypeError", (key.to_owned(), format!("{kind} {what}; {expected}")))
}
