//! Cable modem configuration files.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use underload_docsis::check::{Severity, check};
use underload_docsis::mic::Secret;
use underload_docsis::qos::Direction;
use underload_docsis::recommend::{Choice, Service, table_2};
use underload_docsis::{Config, Limits, text};

use crate::errors::{OrRaise, raise};

fn decoded(py: Python<'_>, bytes: &[u8], is_lenient: bool) -> PyResult<Config> {
    if is_lenient {
        let decoded = Config::decode_lenient(bytes, &Limits::default());
        return Ok(decoded.or_raise(py, "DocsisError")?.0);
    }
    Config::decode(bytes).or_raise(py, "DocsisError")
}

/// Decodes a file to text: `toml` or `main`.
#[pyfunction]
pub fn docsis_decode(
    py: Python<'_>,
    bytes: &[u8],
    form: &str,
    is_lenient: bool,
) -> PyResult<String> {
    let config = decoded(py, bytes, is_lenient)?;
    match form {
        "toml" => Ok(text::to_toml(&config)),
        "main" => Ok(text::to_main(&config)),
        other => {
            let problem = format!("form: `{other}`; expected toml or main");
            Err(raise(py, "DocsisError", (problem,)))
        }
    }
}

/// Decodes a file to a tree, in JSON.
#[pyfunction]
pub fn docsis_describe(py: Python<'_>, bytes: &[u8], is_lenient: bool) -> PyResult<String> {
    let config = decoded(py, bytes, is_lenient)?;
    serde_json::to_string(&config.describe()).or_raise(py, "DocsisError")
}

/// Encodes text of either form. With a secret all MICs are computed; without one those of the text
/// are kept. A file that breaks the rules is refused unless `is_forced`; then the MICs that need no
/// secret are computed.
#[pyfunction]
pub fn docsis_encode<'py>(
    py: Python<'py>,
    words: &str,
    secret: Option<&[u8]>,
    is_forced: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut config = text::read(words).or_raise(py, "DocsisError")?;
    let secret = secret.map(Secret::new);
    if secret.is_some() || is_forced {
        config.seal(secret.as_ref()).or_raise(py, "DocsisError")?;
    }
    let bytes = config.encode().or_raise(py, "DocsisError")?;
    let findings = check(&bytes, secret.as_ref());
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    if !errors.is_empty() && !is_forced {
        return Err(raise(py, "DocsisError", (errors.join("\n"),)));
    }
    Ok(PyBytes::new(py, &bytes))
}

/// Returns the findings about a file, as JSON and as sentences.
#[pyfunction]
pub fn docsis_check(
    py: Python<'_>,
    bytes: &[u8],
    secret: Option<&[u8]>,
) -> PyResult<(String, Vec<String>)> {
    let secret = secret.map(Secret::new);
    let findings = check(bytes, secret.as_ref());
    let json = serde_json::to_string(&findings).or_raise(py, "DocsisError")?;
    Ok((json, findings.iter().map(ToString::to_string).collect()))
}

/// Returns the settings for an upstream as text, and the guideline's buffer for its rate, bytes.
#[pyfunction]
pub fn docsis_recommend(
    py: Python<'_>,
    sustained_bit_per_s: u64,
    peak_bit_per_s: u64,
    burst_bytes: u32,
    choice: &str,
    target_ms: u8,
) -> PyResult<(String, u32)> {
    let refuse = |problem: String| Err(raise(py, "DocsisError", (problem,)));
    if sustained_bit_per_s == 0 || peak_bit_per_s < sustained_bit_per_s {
        return refuse("expected a rate above 0, and a peak rate not below it".to_owned());
    }
    let (_, buffer_bytes) = table_2(sustained_bit_per_s);
    let choice = match choice {
        "buffer" => Choice::Buffer(buffer_bytes),
        "docsis-pie" => Choice::DocsisPie(target_ms),
        "low-latency" => Choice::LowLatency(target_ms),
        other => {
            return refuse(format!("`{other}`; expected buffer, docsis-pie or low-latency"));
        }
    };
    let direction = Direction::Upstream;
    let upstream = Service { direction, sustained_bit_per_s, peak_bit_per_s, burst_bytes };
    Ok((text::to_toml(&upstream.configuration(choice)), buffer_bytes))
}
