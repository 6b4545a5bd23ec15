//! Environments: the simulator, controlled step by step.

use pyo3::prelude::*;
use underload_aqm::config::{Kind, Value};
use underload_aqm::time::{Span, Time};
use underload_sim::congestion::Algorithm;
use underload_sim::env::{self, EnvironmentConfig, Steered};
use underload_sim::net::HopConfig;

use crate::errors::{OrRaise, raise};

/// The observation of a step, in the order of `underload_sim::env::Observation`.
type Seen = (u64, u64, u64, u64, u32, u32, u64, u64, u64, u64, u32);

/// A trial under way.
#[pyclass(unsendable, module = "underload._underload")]
pub struct Environment {
    inner: env::Environment,
    /// Bandwidth times base round trip, packets of 1500 bytes.
    #[pyo3(get)]
    pipe_packets: f64,
    /// Base round trip, ns.
    #[pyo3(get)]
    rtt_ns: u64,
    /// Length of a step, ns.
    #[pyo3(get)]
    step_ns: u64,
}

#[pymethods]
impl Environment {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what an environment is made of")]
    fn new(
        py: Python<'_>,
        link: &str,
        queue: &str,
        rtt: &str,
        flows: Vec<String>,
        ecn: bool,
        limit_packets: Option<u32>,
        step: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let hop = HopConfig::parse(queue, link).or_raise(py, "SpecError")?;
        let flow = |name: &String| {
            let known = Algorithm::from_name(name);
            let problem = || format!("flows: `{name}`; expected {}", Algorithm::names());
            known.ok_or_else(|| raise(py, "EnvError", (problem(),)))
        };
        let config = EnvironmentConfig {
            rtt: span(py, "rtt", rtt)?,
            flows: flows.iter().map(flow).collect::<PyResult<_>>()?,
            ecn,
            steered: limit_packets
                .map_or(Steered::Window, |limit_packets| Steered::Signals { limit_packets }),
            step: span(py, "step", step)?,
            seed,
            hop,
        };
        let inner = env::Environment::new(&config).or_raise(py, "EnvError")?;
        let offered = inner.offered_bytes(Time::ZERO, Time::ZERO + config.rtt);
        let pipe_packets = offered.map_or(1.0, |bytes| bytes as f64 / 1_500.0).max(1.0);
        let (rtt_ns, step_ns) = (config.rtt.as_nanos(), config.step.as_nanos());
        Ok(Self { inner, pipe_packets, rtt_ns, step_ns })
    }

    /// Makes a step with a congestion window of `segments`.
    fn step_window(&mut self, segments: u32) -> Seen {
        self.inner.set_window(segments);
        self.advance()
    }

    /// Makes a step in which each packet is signalled with `probability`.
    fn step_signals(&mut self, probability: f64) -> Seen {
        // Not a number becomes 0.
        self.inner.set_signals((probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64);
        self.advance()
    }
}

impl Environment {
    fn advance(&mut self) -> Seen {
        let seen = self.inner.advance();
        (
            seen.time_ns, seen.delivered_bytes, seen.capacity_bytes, seen.rtt_ns, seen.window,
            seen.in_flight, seen.retransmits, seen.marked, seen.dropped, seen.backlog_bytes,
            seen.backlog_packets,
        )
    }
}

fn span(py: Python<'_>, what: &str, text: &str) -> PyResult<Span> {
    match Kind::Span.read(text) {
        Some(Value::Span(span)) => Ok(span),
        _ => {
            let expected = Kind::Span.expectation();
            let problem = format!("{what}: `{text}`; expected {expected}");
            Err(raise(py, "EnvError", (problem,)))
        }
    }
}
