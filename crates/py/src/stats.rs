//! The statistics of `record`, over lists or arrays of numbers.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyList;
use underload_aqm::rng::Rng;
use underload_record::schema::Estimate;
use underload_record::stats::{self, Alternative, BinnedClusters, RankMethod};

use crate::errors::raise;

/// A list of numbers, or an array of floats, which is not copied.
pub enum Numbers<'py> {
    Array(PyReadonlyArray1<'py, f64>),
    List(Vec<f64>),
}

impl<'py> Numbers<'py> {
    fn extract(values: &Bound<'py, PyAny>) -> PyResult<Self> {
        // Lists first: extracting an array imports NumPy.
        if values.is_instance_of::<PyList>() {
            return values.extract().map(Self::List);
        }
        Ok(Self::Array(values.extract()?))
    }

    fn slice(&self) -> PyResult<&[f64]> {
        match self {
            Self::Array(array) => Ok(array.as_slice()?),
            Self::List(list) => Ok(list),
        }
    }
}

fn none(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "StatisticsError", (what.to_owned(),))
}

const NO_GROUP: &str = "expected two groups, neither of them empty, of finite numbers";

/// Mean, both ends of its interval, confidence and count.
type MeanInterval = (f64, Option<f64>, Option<f64>, f64, u32);

/// Returns the mean of independent values, and its interval.
#[pyfunction]
pub fn mean_interval(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    confidence: f64,
) -> PyResult<MeanInterval> {
    check_confidence(py, confidence)?;
    let numbers = Numbers::extract(values)?;
    let interval = stats::mean_interval(numbers.slice()?, confidence);
    let interval =
        interval.ok_or_else(|| none(py, "expected finite numbers, at least one of them"))?;
    Ok((interval.mean, interval.low, interval.high, interval.confidence, interval.repeats))
}

fn check_confidence(py: Python<'_>, confidence: f64) -> PyResult<()> {
    if confidence > 0.0 && confidence < 1.0 {
        return Ok(());
    }
    let problem = format!("confidence: {confidence}; expected a number between 0 and 1");
    Err(none(py, &problem))
}

/// Returns U, p-value, superiority, and how the p-value was computed.
#[pyfunction]
pub fn mann_whitney(
    py: Python<'_>,
    first: &Bound<'_, PyAny>,
    second: &Bound<'_, PyAny>,
    alternative: &str,
) -> PyResult<(f64, f64, f64, &'static str)> {
    let alternative = match alternative {
        "two-sided" => Alternative::TwoSided,
        "less" => Alternative::Less,
        "greater" => Alternative::Greater,
        other => {
            let problem = format!("alternative: `{other}`; expected two-sided, less or greater");
            return Err(none(py, &problem));
        }
    };
    let (first, second) = (Numbers::extract(first)?, Numbers::extract(second)?);
    let (first, second) = (first.slice()?, second.slice()?);
    let test = py.detach(|| stats::mann_whitney(first, second, alternative));
    let test = test.ok_or_else(|| none(py, NO_GROUP))?;
    let method = match test.method {
        RankMethod::Exact => "exact",
        RankMethod::Normal => "normal",
    };
    Ok((test.u, test.p_value, test.superiority, method))
}

/// Returns the estimate, both ends of its interval, and the confidence.
#[pyfunction]
pub fn hodges_lehmann(
    py: Python<'_>,
    first: &Bound<'_, PyAny>,
    second: &Bound<'_, PyAny>,
    confidence: f64,
    is_ratio: bool,
) -> PyResult<(f64, Option<f64>, Option<f64>, f64)> {
    check_confidence(py, confidence)?;
    let (first, second) = (Numbers::extract(first)?, Numbers::extract(second)?);
    let (first, second) = (first.slice()?, second.slice()?);
    let compare = if is_ratio { stats::hodges_lehmann_ratio } else { stats::hodges_lehmann_shift };
    let shift = py.detach(|| compare(first, second, confidence));
    let expected = if is_ratio { format!("{NO_GROUP} above 0") } else { NO_GROUP.to_owned() };
    let shift = shift.ok_or_else(|| none(py, &expected))?;
    let Estimate { value, low, high } = shift;
    Ok((value, low, high, confidence))
}

/// The estimate, and both ends of its interval.
type Quantile = (Option<f64>, Option<f64>, Option<f64>);

/// Returns quantiles of values that come in clusters: estimate and both ends of each.
#[pyfunction]
pub fn cluster_quantiles(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    clusters: Vec<usize>,
    shares: Vec<f64>,
    confidence: f64,
    seed: u64,
) -> PyResult<Vec<Quantile>> {
    check_confidence(py, confidence)?;
    let numbers = Numbers::extract(values)?;
    let numbers = numbers.slice()?;
    let binned = BinnedClusters::of_values(numbers, &clusters);
    let binned = binned.ok_or_else(|| {
        none(py, "expected positive numbers, each with the number of its cluster, not too many")
    })?;
    let mut rng = Rng::new(seed);
    let quantiles = py.detach(|| binned.quantiles(&shares, confidence, &mut rng));
    Ok(quantiles.into_iter().map(|it| (it.estimate, it.low, it.high)).collect())
}
