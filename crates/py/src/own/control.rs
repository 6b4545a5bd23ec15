//! Congestion controls that a class in Python makes.

use std::sync::Arc;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use underload_aqm::time::{Span, Time};
use underload_run::own::MakeControl;
use underload_sim::congestion::{self, Cause, CongestionControl, Delivered, Loss, Setup, State};
use underload_sim::congestion::{MAX_WINDOW, PacketRate, Window};
use underload_sim::tcp::EcnUse;
use underload_sim::trial::TrialLabel;

use super::{Brought, Maker, Object, Watch, give_up, said};

/// An acknowledgement, as a class is told of it.
#[pyclass(frozen, module = "underload._underload")]
pub struct Ack(congestion::Ack);

#[pymethods]
impl Ack {
    /// When it arrived, ns.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.0.now.as_nanos()
    }

    /// Segments by which a window may grow.
    #[getter]
    fn acknowledged(&self) -> u32 {
        self.0.acknowledged
    }

    /// Segments newly known to have arrived.
    #[getter]
    fn delivered(&self) -> u32 {
        self.0.delivered
    }

    /// Segments newly considered lost.
    #[getter]
    fn lost(&self) -> u32 {
        self.0.lost
    }

    /// Segments newly reported as marked.
    #[getter]
    fn marked(&self) -> u32 {
        self.0.marked
    }

    /// Round trip of the last segment that it acknowledges, ns.
    #[getter]
    fn rtt_ns(&self) -> Option<u64> {
        self.0.rtt.map(Span::as_nanos)
    }

    /// Smallest round trip seen, ns.
    #[getter]
    fn min_rtt_ns(&self) -> u64 {
        self.0.min_rtt.as_nanos()
    }

    /// Smoothed round trip, ns.
    #[getter]
    fn smoothed_rtt_ns(&self) -> u64 {
        self.0.smoothed_rtt.as_nanos()
    }

    /// Segments in flight before it.
    #[getter]
    fn prior_in_flight(&self) -> u32 {
        self.0.prior_in_flight
    }

    /// Segments in flight after it.
    #[getter]
    fn in_flight(&self) -> u32 {
        self.0.in_flight
    }

    /// Segments delivered since the connection began.
    #[getter]
    fn total_delivered(&self) -> u32 {
        self.0.total_delivered
    }

    /// Segments that had been delivered when the one that it samples was sent.
    #[getter]
    fn prior_delivered(&self) -> Option<u32> {
        self.0.rate.map(|rate| rate.prior_delivered)
    }

    /// Delivery rate, segments per second.
    #[getter]
    fn delivery_rate(&self) -> Option<f64> {
        let Delivered { segments, interval, .. } = self.0.rate?;
        (interval > Span::ZERO).then(|| f64::from(segments) * 1e9 / interval.as_nanos() as f64)
    }

    /// Whether the application limited that rate.
    #[getter]
    fn app_limited(&self) -> bool {
        self.0.rate.is_some_and(|rate| rate.app_limited)
    }

    /// Whether the window limits the sender.
    #[getter]
    fn window_limited(&self) -> bool {
        self.0.window_limited
    }

    /// The transport's state.
    #[getter]
    fn state(&self) -> &'static str {
        match self.0.state {
            State::Open => "open",
            State::Reducing => "reducing",
            State::Recovery => "recovery",
            State::Timeout => "timeout",
        }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A loss, a mark or a timeout, as a class is told of it.
#[pyclass(frozen, module = "underload._underload")]
pub struct CongestionEvent(Loss);

#[pymethods]
impl CongestionEvent {
    /// When it was found, ns.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.0.now.as_nanos()
    }

    /// Segments in flight.
    #[getter]
    fn in_flight(&self) -> u32 {
        self.0.in_flight
    }

    /// Smallest round trip seen, ns.
    #[getter]
    fn min_rtt_ns(&self) -> u64 {
        self.0.min_rtt.as_nanos()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl Brought {
    /// Its name in scenarios, and what makes it for each connection.
    pub fn controls(self, watch: &Arc<Watch>) -> (String, Arc<MakeControl>) {
        let (spec, maker) = Maker::of(self, watch);
        (spec, Arc::new(move |trial: &TrialLabel, setup| maker.control(trial, setup)))
    }
}

/// What an accurate class reads of marks, by its name.
pub fn ecn_use(name: Option<&str>) -> PyResult<Option<EcnUse>> {
    match name {
        None => Ok(None),
        Some("accurate") => Ok(Some(EcnUse::Accurate)),
        Some("l4s") => Ok(Some(EcnUse::L4s)),
        Some(other) => {
            let problem = format!("ecn: {other:?}; expected None, \"accurate\" or \"l4s\"");
            Err(PyValueError::new_err(problem))
        }
    }
}

impl Maker {
    fn control(&self, trial: &TrialLabel, setup: Setup) -> Box<dyn CongestionControl> {
        let Setup { segment_bytes, packet_bytes, initial_window, mut rng, .. } = setup;
        let facts = (segment_bytes, packet_bytes, initial_window);
        let arguments = (rng.next_u64(), facts);
        let (object, made) =
            self.object(Some(trial), arguments, |made| made.extract::<(Py<PyAny>, Methods)>());
        let (state, methods) = made.map_or_else(Default::default, |(it, them)| (Some(it), them));
        let window = initial_window.max(1);
        Box::new(Control { object, state, methods, window, pacing: None })
    }
}

/// Methods of an object; `None`: what its class leaves as it is, where that does nothing.
type Methods = [Option<Py<PyAny>>; 6];

/// Names of [`Methods`].
const NAMES: [&str; 6] = ["on_ack", "on_loss", "on_ecn", "on_timeout", "on_undo", "on_restart"];
const ACK: usize = 0;
const LOSS: usize = 1;
const MARK: usize = 2;
const TIMEOUT: usize = 3;
const UNDO: usize = 4;
const RESTART: usize = 5;

/// An object that controls a connection.
struct Control {
    object: Object,
    /// Where the window and the pacing rate stand; `None`: it could not be made.
    state: Option<Py<PyAny>>,
    methods: Methods,
    /// Segments.
    window: u32,
    pacing: Option<PacketRate>,
}

impl Control {
    fn call(&mut self, method: usize, arguments: impl for<'py> PyCallArgs<'py>) {
        let (Some(state), Some(callable)) = (&self.state, &self.methods[method]) else { return };
        let read = |answer: &Bound<'_, PyAny>| settings(state.bind(answer.py()));
        let answer = self.object.ask(NAMES[method], callable, arguments, read);
        (self.window, self.pacing) = answer.unwrap_or((self.window, self.pacing));
    }

    fn show(&self, window: &mut Window) {
        // Not below its threshold: it grows as its owner says, and only when it is used up.
        (window.size, window.threshold) = (self.window, self.window);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        give_up((self.state.take(), std::mem::take(&mut self.methods)));
    }
}

impl CongestionControl for Control {
    fn on_ack(&mut self, ack: &congestion::Ack, window: &mut Window) {
        self.call(ACK, (Ack(*ack),));
        self.show(window);
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        let method = match loss.cause {
            Cause::Loss => LOSS,
            Cause::Mark => MARK,
            Cause::Timeout => TIMEOUT,
        };
        self.call(method, (CongestionEvent(*loss),));
        self.show(window);
    }

    fn on_undo(&mut self) {
        self.call(UNDO, ());
    }

    fn on_restart(&mut self, now: Time, idle: Span, window: &mut Window) {
        self.call(RESTART, (now.as_nanos(), idle.as_nanos()));
        self.show(window);
    }

    fn pacing(&self) -> Option<PacketRate> {
        self.pacing
    }

    fn owns_window(&self) -> bool {
        true
    }

    fn answers_loss_while_reducing(&self) -> bool {
        true
    }
}

/// Reads the window in segments and the pacing rate of an object.
fn settings(object: &Bound<'_, PyAny>) -> PyResult<(u32, Option<PacketRate>)> {
    let py = object.py();
    let wrong = |name: &str, value: &Bound<'_, PyAny>, expected: &str| {
        Err(PyTypeError::new_err(format!("{name} is {}; expected {expected}", said(value))))
    };
    let cwnd = object.getattr(intern!(py, "cwnd"))?;
    let window = match cwnd.extract::<f64>() {
        Ok(segments) if segments >= 0.0 => (segments.min(f64::from(MAX_WINDOW)) as u32).max(1),
        _ => return wrong("cwnd", &cwnd, "a number of segments, from 1 to 65000"),
    };
    let rate = object.getattr(intern!(py, "pacing_rate"))?;
    if rate.is_none() {
        return Ok((window, None));
    }
    match rate.extract::<f64>() {
        Ok(bytes) if bytes > 0.0 => {
            let bytes_per_s = (bytes.min(MOST_RATE) as u64).max(1);
            Ok((window, Some(PacketRate::from_bytes_per_s(bytes_per_s))))
        }
        _ => wrong("pacing_rate", &rate, "None or a number of bytes per second above 0"),
    }
}

/// Bytes per second, at most: faster than any link.
const MOST_RATE: f64 = 1e12;
