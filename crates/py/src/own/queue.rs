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
use underload_scenario::own::MakeQueue;
use underload_sim::trial::TrialLabel;

use super::object::{Maker, Object, PythonAlgorithm, Watch, give_up, said};
use crate::errors::OrRaise;

/// A packet, as a class that decides about packets sees it.
#[pyclass(frozen, module = "underload._underload")]
pub struct PacketMeta(Meta);

getters! {
    PacketMeta(inner): {
        let (length, flow, dscp) = (inner.len, inner.flow, inner.dscp.value());
        let (ecn, arrived_ns) = (inner.ecn.name(), inner.arrived.as_nanos());
        format!(
            "PacketMeta(length={length}, flow={flow}, dscp={dscp}, ecn={ecn:?}, \
             arrived_ns={arrived_ns})"
        )
    };
    /// Length of the packet, bytes.
    length: u32 => inner.len;
    /// Number or hash of the flow.
    flow: u32 => inner.flow;
    /// The Differentiated Services codepoint, 0 to 63.
    dscp: u8 => inner.dscp.value();
    /// Name of the ECN codepoint.
    ecn: &'static str => inner.ecn.name();
    /// When the packet was stored, ns; undefined for an arrival.
    arrived_ns: u64 => inner.arrived.as_nanos();
}

/// Packets and bytes that a queue holds.
#[pyclass(frozen, module = "underload._underload")]
pub struct Backlog(Held);

getters! {
    Backlog(inner): format!("Backlog(packets={}, bytes={})", inner.packets, inner.bytes);
    packets: u32 => inner.packets;
    /// Bytes, as the link charges them.
    bytes: u64 => inner.bytes;
}

impl PythonAlgorithm {
    /// Returns the SPEC, and what makes the queues of trials.
    pub fn queues(self, watch: &Arc<Watch>) -> (String, Arc<MakeQueue>) {
        let (spec, maker) = Maker::new(self, watch);
        (spec, Arc::new(move |trial: &TrialLabel, rng| maker.judge(Some(trial), rng)))
    }

    /// Returns a queue outside of trials.
    pub fn queue(self, py: Python<'_>, watch: &Arc<Watch>) -> PyResult<QueueSetup> {
        let (spec, maker) = Maker::new(self, watch);
        let read =
            Spec::parse(&spec).and_then(|spec| OwnSpec::read(&spec)).or_raise(py, "SpecError")?;
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

/// The methods of an object; `None` if its class does not override one.
type Methods = [Option<Py<PyAny>>; 3];

/// An object that decides about packets.
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
