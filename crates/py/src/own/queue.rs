//! Queues whose decisions a class in Python makes.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use underload_aqm::aqm::Verdict;
use underload_aqm::config::Spec;
use underload_aqm::packet::Meta;
use underload_aqm::qdisc::Backlog as Held;
use underload_aqm::queue::own::{Judge, MakeJudge, OwnQueue, OwnSpec};
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_run::own::MakeQueue;
use underload_sim::trial::TrialLabel;

use super::{Brought, Maker, Object, Watch, give_up, said};
use crate::errors::raise_words;

/// What a class that decides about packets is told of one.
#[pyclass(frozen, module = "underload._underload")]
pub struct PacketMeta(Meta);

#[pymethods]
impl PacketMeta {
    /// Bytes.
    #[getter]
    fn length(&self) -> u32 {
        self.0.len
    }

    /// Number or hash of its flow.
    #[getter]
    fn flow(&self) -> u32 {
        self.0.flow
    }

    /// Differentiated Services codepoint.
    #[getter]
    fn dscp(&self) -> u8 {
        self.0.dscp.value()
    }

    /// Name of its ECN field.
    #[getter]
    fn ecn(&self) -> &'static str {
        self.0.ecn.name()
    }

    /// When it was stored, ns; of an arrival that is not yet.
    #[getter]
    fn arrived_ns(&self) -> u64 {
        self.0.arrived.as_nanos()
    }

    fn __repr__(&self) -> String {
        let (length, flow, dscp) = (self.0.len, self.0.flow, self.0.dscp.value());
        let (ecn, arrived_ns) = (self.0.ecn.name(), self.0.arrived.as_nanos());
        format!(
            "PacketMeta(length={length}, flow={flow}, dscp={dscp}, ecn={ecn:?}, \
             arrived_ns={arrived_ns})"
        )
    }
}

/// Packets and bytes that a queue holds.
#[pyclass(frozen, module = "underload._underload")]
pub struct Backlog(Held);

#[pymethods]
impl Backlog {
    /// Packets.
    #[getter]
    fn packets(&self) -> u32 {
        self.0.packets
    }

    /// Bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn __repr__(&self) -> String {
        format!("Backlog(packets={}, bytes={})", self.0.packets, self.0.bytes)
    }
}

impl Brought {
    /// Its SPEC, and what makes its queues in trials.
    pub fn queues(self, watch: &Arc<Watch>) -> (String, Arc<MakeQueue>) {
        let (spec, maker) = Maker::of(self, watch);
        (spec, Arc::new(move |trial: &TrialLabel, rng| maker.judge(Some(trial), rng)))
    }

    /// A queue outside of trials.
    pub fn queue(self, py: Python<'_>, watch: &Arc<Watch>) -> PyResult<QueueSetup> {
        let (spec, maker) = Maker::of(self, watch);
        let read = Spec::parse(&spec).and_then(|spec| OwnSpec::read(&spec));
        let read = read.map_err(|error| raise_words(py, "SpecError", &error))?;
        let Some(OwnSpec { label, limit }) = read else {
            return Err(PyValueError::new_err(format!("{spec} names no own queue")));
        };
        let make: Arc<MakeJudge> = Arc::new(move |rng| maker.judge(None, rng));
        Ok(QueueSetup::own(label, OwnQueue { limit, make }))
    }
}

impl Maker {
    fn judge(&self, trial: Option<&TrialLabel>, mut rng: Rng) -> Box<dyn Judge> {
        let (object, made) =
            self.object(trial, (rng.next_u64(),), |made| made.extract::<Methods>());
        let [on_enqueue, on_dequeue, on_refused] = made.unwrap_or_default();
        Box::new(Decider { object, on_enqueue, on_dequeue, on_refused })
    }
}

/// What is called of an object.
type Methods = [Option<Py<PyAny>>; 3];

/// An object that decides about packets; `None`: what its class leaves as it is.
struct Decider {
    object: Object,
    on_enqueue: Option<Py<PyAny>>,
    on_dequeue: Option<Py<PyAny>>,
    on_refused: Option<Py<PyAny>>,
}

impl Drop for Decider {
    fn drop(&mut self) {
        give_up([self.on_enqueue.take(), self.on_dequeue.take(), self.on_refused.take()]);
    }
}

impl Judge for Decider {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Held) -> Verdict {
        let Some(method) = &self.on_enqueue else { return Verdict::Pass };
        let arguments = (now.as_nanos(), PacketMeta(*meta), Backlog(backlog));
        self.object.ask("on_enqueue", method, arguments, verdict).unwrap_or(Verdict::Pass)
    }

    fn on_dequeue(&mut self, now: Time, meta: &Meta, backlog: Held) -> Verdict {
        let Some(method) = &self.on_dequeue else { return Verdict::Pass };
        let arguments = (now.as_nanos(), PacketMeta(*meta), Backlog(backlog));
        self.object.ask("on_dequeue", method, arguments, verdict).unwrap_or(Verdict::Pass)
    }

    fn on_refused(&mut self, now: Time, meta: &Meta, backlog: Held) {
        let Some(method) = &self.on_refused else { return };
        let arguments = (now.as_nanos(), PacketMeta(*meta), Backlog(backlog));
        self.object.ask("on_refused", method, arguments, |_| Ok(()));
    }
}

/// An answer, in the words of `underload.Verdict`.
fn verdict(answer: &Bound<'_, PyAny>) -> PyResult<Verdict> {
    match answer.cast::<PyString>().ok().map(|text| text.to_str()).transpose()? {
        Some("pass") => Ok(Verdict::Pass),
        Some("signal") => Ok(Verdict::Signal),
        Some("drop") => Ok(Verdict::Drop),
        _ => {
            let expected = "expected \"pass\", \"signal\" or \"drop\"";
            Err(PyTypeError::new_err(format!("returned {}; {expected}", said(answer))))
        }
    }
}
