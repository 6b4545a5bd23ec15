//! Environments: the simulator, controlled step by step.

use std::sync::Arc;

use pyo3::prelude::*;
use underload_aqm::config::{Kind, Value};
use underload_aqm::time::{Span, Time};
use underload_scenario::simulation::configure_with;
use underload_scenario::{Phases, Ramp};
use underload_sim::env::{self, EnvironmentConfig, Steered};
use underload_sim::trial::TrialLabel;

use crate::errors::{OrRaise, raise};
use crate::own::Watch;
use crate::run::{Algorithms, brought};
use crate::scenario::Scenario;

/// The observation of a step, in the order of `underload_sim::env::Observation`.
type Seen = (u64, u64, u64, u64, u32, u32, u64, u64, u64, u64, u32);

/// A trial under way.
#[pyclass(unsendable, module = "underload._underload")]
pub struct Environment {
    inner: env::Environment,
    watch: Arc<Watch>,
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

/// In place of a scenario's phases: the load begins at once, and outlasts episodes.
const PHASES: Phases = Phases {
    idle: Span::ZERO,
    ramp: Ramp::Fixed(Span::ZERO),
    load: Span::from_secs(3_600),
    drain: Span::ZERO,
};

#[pymethods]
impl Environment {
    /// Sets up the first variant of a scenario.
    #[new]
    fn new(
        py: Python<'_>,
        scenario: &Scenario,
        own: Algorithms,
        limit_packets: Option<u32>,
        step: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let first = scenario.0.variants.first().cloned();
        let mut variant = first.ok_or_else(|| raise(py, "EnvError", ("no variant",)))?;
        variant.phases = PHASES;
        let watch = Watch::new(&Arc::default());
        let own = brought(py, own, &watch)?;
        let label = TrialLabel { variant: variant.name.clone(), ..TrialLabel::default() };
        let trial = configure_with(&variant, seed, label, &own);
        let mut trial = trial.or_raise(py, "EnvError")?;
        if variant.path.down.iter().all(|lane| lane.is_wide) {
            // A wide link only delays packets. Without the link a step is faster.
            for hop in trial.down.drain(..) {
                for flow in &mut trial.flows {
                    flow.extra.down = flow.extra.down + hop.link.delay;
                }
            }
        }
        let step = span(py, "step", step)?;
        let steered = limit_packets
            .map_or(Steered::Window, |limit_packets| Steered::Signals { limit_packets });
        let inner = env::Environment::new(EnvironmentConfig { trial, steered, step });
        let inner = inner.or_raise(py, "EnvError")?;
        let rtt = inner.base_rtt();
        let offered = inner.offered_bytes(Time::ZERO, Time::ZERO + rtt);
        let pipe_packets = offered.map_or(1.0, |bytes| bytes as f64 / 1_500.0).max(1.0);
        Ok(Self { inner, watch, pipe_packets, rtt_ns: rtt.as_nanos(), step_ns: step.as_nanos() })
    }

    /// Makes a step with a congestion window of `segments`.
    fn step_window(&mut self, py: Python<'_>, segments: u32) -> PyResult<Seen> {
        self.inner.set_window(segments);
        self.advance(py)
    }

    /// Makes a step in which each packet is signalled with `probability`.
    fn step_signals(&mut self, py: Python<'_>, probability: f64) -> PyResult<Seen> {
        // Not a number becomes 0.
        self.inner.set_signals((probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64);
        self.advance(py)
    }
}

impl Environment {
    fn advance(&mut self, py: Python<'_>) -> PyResult<Seen> {
        let seen = self.inner.advance();
        self.watch.check(py)?;
        Ok((
            seen.time_ns, seen.delivered_bytes, seen.capacity_bytes, seen.rtt_ns, seen.window,
            seen.in_flight, seen.retransmits, seen.marked, seen.dropped, seen.backlog_bytes,
            seen.backlog_packets,
        ))
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
