//! Congestion controls that a class in Python makes.

use std::sync::Arc;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use underload_aqm::time::{Span, Time};
use underload_scenario::own::MakeControl;
use underload_sim::congestion::{self, Cause, CongestionControl, Delivered, Loss, Setup, State};
use underload_sim::congestion::{MAX_WINDOW, PacketRate, Window};
use underload_sim::tcp::EcnUse;
use underload_sim::trial::TrialLabel;

use super::object::{Maker, Object, PythonAlgorithm, Watch, give_up, said};

/// An acknowledgement, as a congestion control sees it.
#[pyclass(frozen, module = "underload._underload")]
pub struct Ack(congestion::Ack);

getters! {
    Ack(inner): format!("{inner:?}");
    /// When the acknowledgement arrived, ns.
    now_ns: u64 => inner.now.as_nanos();
    /// Segments by which a window may grow.
    acknowledged: u32 => inner.acknowledged;
    /// Segments newly known to have arrived.
    delivered: u32 => inner.delivered;
    /// Segments newly considered lost.
    lost: u32 => inner.lost;
    /// Segments newly reported as marked.
    marked: u32 => inner.marked;
    /// Round trip of the last acknowledged segment, ns.
    rtt_ns: Option<u64> => inner.rtt.map(Span::as_nanos);
    /// Smallest round trip seen, ns.
    min_rtt_ns: u64 => inner.min_rtt.as_nanos();
    /// Smoothed round trip, ns.
    smoothed_rtt_ns: u64 => inner.smoothed_rtt.as_nanos();
    /// Segments in flight before the acknowledgement.
    prior_in_flight: u32 => inner.prior_in_flight;
    /// Segments in flight after the acknowledgement.
    in_flight: u32 => inner.in_flight;
    /// Segments delivered since the connection began.
    total_delivered: u32 => inner.total_delivered;
    /// Segments delivered before the sampled segment was sent.
    prior_delivered: Option<u32> => inner.rate.map(|rate| rate.prior_delivered);
    /// Delivery rate, segments per second.
    delivery_rate: Option<f64> => {
        let Delivered { segments, interval, .. } = inner.rate?;
        (interval > Span::ZERO).then(|| f64::from(segments) * 1e9 / interval.as_nanos() as f64)
    };
    /// Whether the application limited that rate.
    app_limited: bool => inner.rate.is_some_and(|rate| rate.app_limited);
    /// Whether the window limits the sender.
    window_limited: bool => inner.window_limited;
    /// The state of the transport: `open`, `reducing`, `recovery` or `timeout`.
    state: &'static str => match inner.state {
        State::Open => "open",
        State::Reducing => "reducing",
        State::Recovery => "recovery",
        State::Timeout => "timeout",
    };
}

/// A loss, a mark or a timeout, as a congestion control sees it.
#[pyclass(frozen, module = "underload._underload")]
pub struct CongestionEvent(Loss);

getters! {
    CongestionEvent(inner): format!("{inner:?}");
    /// When the event was detected, ns.
    now_ns: u64 => inner.now.as_nanos();
    /// Segments in flight at the event.
    in_flight: u32 => inner.in_flight;
    /// Smallest round trip seen, ns.
    min_rtt_ns: u64 => inner.min_rtt.as_nanos();
}

impl PythonAlgorithm {
    /// Returns the name in scenarios, and what makes the control of each connection.
    pub fn controls(self, watch: &Arc<Watch>) -> (String, Arc<MakeControl>) {
        let (spec, maker) = Maker::new(self, watch);
        (spec, Arc::new(move |trial: &TrialLabel, setup| maker.control(trial, setup)))
    }
}

/// Parses the use of ECN that a class names.
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
        let read = |made: &Bound<'_, PyAny>| {
            let (state, methods) = made.extract::<(Py<PyAny>, Methods)>()?;
            settings(state.bind(made.py()))?;
            Ok((state, methods))
        };
        let (object, made) = self.object(Some(trial), arguments, read);
        let (state, methods) = made.map_or_else(Default::default, |(it, them)| (Some(it), them));
        let window = initial_window.max(1);
        Box::new(Control { object, state, methods, window, pacing: None })
    }
}

/// The methods of an object; `None` if its class does not override one that does nothing.
type Methods = [Option<Py<PyAny>>; 6];

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
    /// The object with the window and the pacing rate; `None` if it could not be created.
    state: Option<Py<PyAny>>,
    methods: Methods,
    /// The window in segments.
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
        // At its threshold: the window grows only as the class decides.
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
    let window = match number(&cwnd) {
        Some(segments) if segments >= 1.0 => segments.min(f64::from(MAX_WINDOW)) as u32,
        _ => return wrong("cwnd", &cwnd, "a number of segments, from 1 to 65000"),
    };
    let rate = object.getattr(intern!(py, "pacing_rate"))?;
    if rate.is_none() {
        return Ok((window, None));
    }
    match number(&rate) {
        Some(bytes) if bytes > 0.0 => {
            let bytes_per_s = (bytes.min(MOST_RATE) as u64).max(1);
            Ok((window, Some(PacketRate::from_bytes_per_s(bytes_per_s))))
        }
        _ => wrong("pacing_rate", &rate, "None or a number of bytes per second above 0"),
    }
}

/// Returns a finite number. True is a number in Python, and a mistake here.
fn number(value: &Bound<'_, PyAny>) -> Option<f64> {
    let number = value.extract().ok().filter(|number: &f64| number.is_finite());
    number.filter(|_| !value.is_instance_of::<PyBool>())
}

/// Faster than any link, bytes per second.
const MOST_RATE: f64 = 1e12;
