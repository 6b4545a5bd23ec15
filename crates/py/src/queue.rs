//! Queues and links step by step, and replays of whole arrays of packets.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int64Array, StringArray, UInt8Array, UInt64Array};
use arrow_buffer::NullBuffer;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use underload_aqm::config::{LinkFacts, Spec};
use underload_aqm::link::Link as AqmLink;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{Admit, BoxedQdisc, Dequeue, DropReason, MarkReason, Observer};
use underload_aqm::queue::own::OwnSpec;
use underload_aqm::registry::{LinkSetup, QUEUES, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_run::replay::{ColumnsError, Fate, FateColumns, PacketColumns, replay_columns};
use underload_scenario::modem_file;

use crate::errors::OrRaise;
use crate::frame::Frame;
use crate::interruptible::run_interruptible_with;
use crate::own::{PythonAlgorithm, Watch};

fn link_setup(py: Python<'_>, spec: &str) -> PyResult<LinkSetup> {
    modem_file::link_of(spec).or_raise(py, "SpecError")
}

fn queue_setup(py: Python<'_>, spec: &str, link: &LinkFacts) -> PyResult<QueueSetup> {
    modem_file::queue_of(spec, link).or_raise(py, "SpecError")
}

/// Returns the queue of a SPEC, or a queue with an algorithm in Python.
fn any_queue(
    py: Python<'_>,
    spec: &str,
    link: &LinkFacts,
    own: Option<PythonAlgorithm>,
    watch: &Arc<Watch>,
) -> PyResult<QueueSetup> {
    match own {
        Some(own) => own.queue(py, watch),
        None => queue_setup(py, spec, link),
    }
}

#[pyfunction]
pub fn queue_names() -> Vec<&'static str> {
    QUEUES.iter().map(|entry| entry.definition.name).collect()
}

/// Returns a queue's complete SPEC, in front of `link` if one is given.
#[pyfunction]
pub fn queue_label(py: Python<'_>, spec: &str, link: Option<&str>) -> PyResult<String> {
    let facts = facts(py, link)?;
    let own = Spec::parse(spec).and_then(|spec| OwnSpec::read(&spec));
    if let Some(own) = own.or_raise(py, "SpecError")? {
        return Ok(own.label.to_string());
    }
    Ok(queue_setup(py, spec, &facts)?.label.to_string())
}

fn facts(py: Python<'_>, link: Option<&str>) -> PyResult<LinkFacts> {
    link.map_or(Ok(LinkFacts::default()), |link| Ok(link_setup(py, link)?.facts()))
}

/// A packet that left or was dropped: number, bytes, flow, DSCP, ECN bits, arrival in ns.
type Row = (u64, u32, u32, u8, u8, u64);

fn row(packet: &Packet<u64>) -> Row {
    let meta = &packet.meta;
    let (dscp, ecn) = (meta.dscp.value(), meta.ecn.bits());
    (packet.payload, meta.len, meta.flow, dscp, ecn, meta.arrived.as_nanos())
}

/// A drop or a mark: time in ns, number, kind, and reason.
type Event = (u64, u64, &'static str, &'static str);

/// The drops and marks that Python has not read yet.
#[derive(Default)]
struct Events(Vec<Event>);

/// Unread events that are stored; older ones are dropped.
const MOST_EVENTS: usize = 1 << 20;

impl Events {
    fn add(&mut self, event: Event) {
        if self.0.len() >= MOST_EVENTS {
            self.0.drain(..MOST_EVENTS / 2);
        }
        self.0.push(event);
    }
}

impl Observer<u64> for Events {
    fn dropped(&mut self, now: Time, packet: Packet<u64>, reason: DropReason) {
        self.add((now.as_nanos(), packet.payload, "dropped", reason.name()));
    }

    fn marked(&mut self, now: Time, packet: &Packet<u64>, reason: MarkReason) {
        self.add((now.as_nanos(), packet.payload, "marked", reason.name()));
    }
}

/// Makes a packet from Python's values.
fn packet(number: u64, (len, flow, dscp, ecn): (u32, u32, u8, u8)) -> PyResult<Packet<u64>> {
    let told = |what: &str| Err(PyValueError::new_err(what.to_owned()));
    let mut meta = Meta::new(len, flow);
    if !(1..=1 << 24).contains(&len) {
        return told(&format!("length: {len}; expected 1 to 16777216 bytes"));
    }
    let Some(dscp_value) = Dscp::new(dscp) else {
        return told(&format!("dscp: {dscp}; expected 0 to 63"));
    };
    if ecn > 3 {
        return told(&format!("ecn: {ecn}; expected 0 to 3"));
    }
    (meta.dscp, meta.ecn) = (dscp_value, Ecn::from_bits(ecn));
    Ok(Packet { meta, payload: number })
}

/// Checks that time does not go backwards, as queues and links require.
#[derive(Default)]
struct Clock(u64);

impl Clock {
    fn advance(&mut self, now_ns: u64) -> PyResult<Time> {
        if now_ns < self.0 {
            let problem =
                format!("now_ns: {now_ns}; expected at least {}, the previous time", self.0);
            return Err(PyValueError::new_err(problem));
        }
        self.0 = now_ns;
        Ok(Time::from_nanos(now_ns))
    }
}

/// Returns what a mutex contains, without locking it. Python may drop its objects on any thread, so
/// they must be `Sync`; `&mut` proves that no other thread uses this one.
fn exclusive<T>(contents: &mut Mutex<T>) -> &mut T {
    contents.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// A queue that Python fills and empties.
#[pyclass(module = "underload._underload")]
pub struct Queue {
    discipline: Mutex<BoxedQdisc<u64>>,
    watch: Arc<Watch>,
    events: Events,
    clock: Clock,
    next: u64,
    not_before: Option<u64>,
}

#[pymethods]
impl Queue {
    #[new]
    fn new(
        py: Python<'_>,
        spec: &str,
        link: Option<&str>,
        seed: u64,
        own: Option<PythonAlgorithm>,
    ) -> PyResult<Self> {
        let watch = Arc::new(Watch::default());
        let setup = any_queue(py, spec, &facts(py, link)?, own, &watch)?;
        let discipline = Mutex::new(setup.build(&Rng::new(seed)));
        watch.check(py)?;
        let (events, clock) = (Events::default(), Clock::default());
        Ok(Self { discipline, watch, events, clock, next: 0, not_before: None })
    }

    /// Offers a packet. Returns its number, and whether it was stored.
    fn enqueue(
        &mut self,
        py: Python<'_>,
        now_ns: u64,
        length: u32,
        flow: u32,
        dscp: u8,
        ecn: u8,
    ) -> PyResult<(u64, bool)> {
        let packet = packet(self.next, (length, flow, dscp, ecn))?;
        let now = self.clock.advance(now_ns)?;
        let number = self.next;
        self.next += 1;
        let admit = exclusive(&mut self.discipline).enqueue(now, packet, &mut self.events);
        self.watch.check(py)?;
        Ok((number, admit == Admit::Queued))
    }

    /// Takes the next packet.
    fn dequeue(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<Option<Row>> {
        let now = self.clock.advance(now_ns)?;
        self.not_before = None;
        let answer = exclusive(&mut self.discipline).dequeue(now, &mut self.events);
        self.watch.check(py)?;
        Ok(match answer {
            Dequeue::Packet(packet) => Some(row(&packet)),
            Dequeue::Empty => None,
            Dequeue::NotBefore(time) => {
                self.not_before = Some(time.as_nanos());
                None
            }
        })
    }

    /// Returns the time at which a shaping queue may send its next packet, as of the last dequeue.
    #[getter]
    fn not_before_ns(&self) -> Option<u64> {
        self.not_before
    }

    /// Returns the stored packets and bytes.
    fn backlog(&mut self) -> (u32, u64) {
        let backlog = exclusive(&mut self.discipline).backlog();
        (backlog.packets, backlog.bytes)
    }

    fn stats(&mut self) -> Vec<(&'static str, u64)> {
        let stats = exclusive(&mut self.discipline).stats();
        vec![
            ("offered", stats.offered.packets),
            ("sent", stats.sent.packets),
            ("dropped_enqueue", stats.dropped_enqueue.packets),
            ("dropped_dequeue", stats.dropped_dequeue.packets),
            ("marked", stats.marked),
        ]
    }

    /// Returns the internal state by dotted name.
    fn gauges(&mut self) -> Vec<(&'static str, f64)> {
        let mut gauges = Vec::new();
        exclusive(&mut self.discipline).gauges(&mut |name, value| gauges.push((name, value)));
        gauges
    }

    /// Returns the drops and marks since the last call.
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events.0)
    }
}

#[pyclass(module = "underload._underload")]
pub struct Link {
    path: Mutex<AqmLink<u64>>,
    watch: Arc<Watch>,
    events: Events,
    clock: Clock,
    next: u64,
}

#[pymethods]
impl Link {
    #[new]
    fn new(
        py: Python<'_>,
        link: &str,
        queue: &str,
        seed: u64,
        own: Option<PythonAlgorithm>,
    ) -> PyResult<Self> {
        let link = link_setup(py, link)?;
        let watch = Arc::new(Watch::default());
        let queue = any_queue(py, queue, &link.facts(), own, &watch)?;
        let rng = Rng::new(seed);
        let path = Mutex::new(link.build_behind(&queue, &rng));
        watch.check(py)?;
        Ok(Self { path, watch, events: Events::default(), clock: Clock::default(), next: 0 })
    }

    /// Offers a packet to the link's queue. Returns the packet's number.
    fn send(
        &mut self,
        py: Python<'_>,
        now_ns: u64,
        length: u32,
        flow: u32,
        dscp: u8,
        ecn: u8,
    ) -> PyResult<u64> {
        let packet = packet(self.next, (length, flow, dscp, ecn))?;
        let now = self.clock.advance(now_ns)?;
        self.next += 1;
        exclusive(&mut self.path).send(now, packet, &mut self.events);
        self.watch.check(py)?;
        Ok(self.next - 1)
    }

    /// Returns the packets that reached the far end by `now_ns`, each with its time.
    fn poll(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<Vec<(u64, Row)>> {
        let now = self.clock.advance(now_ns)?;
        let mut arrived = Vec::new();
        while let Some((time, packet)) = exclusive(&mut self.path).poll(now, &mut self.events) {
            arrived.push((time.as_nanos(), row(&packet)));
        }
        self.watch.check(py)?;
        Ok(arrived)
    }

    /// Returns the time of the next poll; `None` if no event is due before another packet is sent.
    fn next_ns(&mut self) -> Option<u64> {
        // Packets that arrived before the last call can be polled now.
        exclusive(&mut self.path).next_event().map(|time| time.as_nanos().max(self.clock.0))
    }

    /// Returns the packets and bytes in the queue.
    fn backlog(&mut self) -> (u32, u64) {
        let backlog = exclusive(&mut self.path).queue().backlog();
        (backlog.packets, backlog.bytes)
    }

    /// Returns the drops and marks since the last call.
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events.0)
    }
}

/// Sends columns of packets through a queue and a link.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the columns of packets")]
pub fn replay(
    py: Python<'_>,
    queue: &str,
    own: Option<PythonAlgorithm>,
    link: &str,
    seed: u64,
    time_ns: PyReadonlyArray1<'_, u64>,
    len: PyReadonlyArray1<'_, u32>,
    flow: Option<PyReadonlyArray1<'_, u32>>,
    dscp: Option<PyReadonlyArray1<'_, u8>>,
    ecn: Option<PyReadonlyArray1<'_, u8>>,
) -> PyResult<Frame> {
    let link = link_setup(py, link)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (watch, is_own) = (Watch::new(&stop), own.is_some());
    let queue = any_queue(py, queue, &link.facts(), own, &watch)?;
    let packets = PacketColumns {
        time_ns: time_ns.as_slice()?,
        len: len.as_slice()?,
        flow: flow.as_ref().map(|it| it.as_slice()).transpose()?,
        dscp: dscp.as_ref().map(|it| it.as_slice()).transpose()?,
        ecn: ecn.as_ref().map(|it| it.as_slice()).transpose()?,
    };
    let work = || {
        let rng = Rng::new(seed);
        let built = link.build_behind(&queue, &rng);
        let fates = replay_columns(built, &packets, &stop)?;
        Ok(fates.map(|(fates, _)| arrays(&packets, fates)))
    };
    let work = move || if is_own { Watch::hosts(work) } else { work() };
    let replayed = run_interruptible_with(py, &stop, |py| watch.interrupt(py), work)?;
    if let Some(fault) = watch.fault() {
        return Err(fault.raised(py, None::<()>));
    }
    let replayed: Result<_, ColumnsError> = replayed;
    let replayed = replayed.or_raise(py, "PacketsError")?;
    Frame::of_arrays(py, replayed.unwrap_or_default())
}

/// Returns the columns that `underload replay` writes.
fn arrays(packets: &PacketColumns<'_>, fates: FateColumns) -> Vec<(&'static str, ArrayRef)> {
    let count = fates.fate.len() as u64;
    let FateColumns { fate, start_ns, end_ns, sojourn_ns, ecn, was_sent } = fates;
    let sent = NullBuffer::from(was_sent);
    let times = |values: Vec<u64>| -> ArrayRef {
        let values: Vec<i64> = values.into_iter().map(u64::cast_signed).collect();
        Arc::new(Int64Array::new(values.into(), Some(sent.clone())))
    };
    let arrival: Vec<i64> = packets.time_ns.iter().map(|time| time.cast_signed()).collect();
    let names = |words: &[&str], keys: UInt8Array| -> ArrayRef {
        let words = Arc::new(StringArray::from(words.to_vec()));
        Arc::new(DictionaryArray::<UInt8Type>::new(keys, words))
    };
    let fates: UInt8Array = fate.iter().map(|fate| Some(fate_key(*fate))).collect();
    let all = reason_names();
    let place = |reason: MarkReason| all.iter().position(|name| *name == reason.name());
    let marks = MarkReason::ALL.map(|reason| place(reason).unwrap_or_default() as u8);
    let reasons: UInt8Array = fate.iter().map(|fate| reason_key(*fate, marks)).collect();
    vec![
        ("id", Arc::new(UInt64Array::from_iter_values(0..count))),
        ("arrival_ns", Arc::new(Int64Array::from(arrival))),
        ("fate", names(&FATES.map(Fate::name), fates)),
        ("reason", names(&all, reasons)),
        ("start_ns", times(start_ns)),
        ("end_ns", times(end_ns)),
        ("sojourn_ns", times(sojourn_ns)),
        ("ecn", names(&[0, 1, 2, 3].map(|bits| Ecn::from_bits(bits).name()), ecn.into())),
    ]
}

/// A fate of each kind, in the order of [`fate_key`].
const FATES: [Fate; 5] = [
    Fate::Sent,
    Fate::Marked(MarkReason::Early),
    Fate::Dropped(DropReason::Early),
    Fate::Dropped(DropReason::ControlLaw),
    Fate::Queued,
];

fn fate_key(fate: Fate) -> u8 {
    match fate {
        Fate::Sent => 0,
        Fate::Marked(_) => 1,
        Fate::Dropped(reason) if reason.at_enqueue() => 2,
        Fate::Dropped(_) => 3,
        Fate::Queued => 4,
    }
}

/// Returns the reasons of drops, then those that only marks have.
fn reason_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = DropReason::ALL.into_iter().map(DropReason::name).collect();
    for reason in MarkReason::ALL {
        if !names.contains(&reason.name()) {
            names.push(reason.name());
        }
    }
    names
}

/// Returns the index of the fate's reason in [`reason_names`]; `marks` has the reasons of marks.
fn reason_key(fate: Fate, marks: [u8; MarkReason::ALL.len()]) -> Option<u8> {
    match fate {
        Fate::Sent | Fate::Queued => None,
        Fate::Dropped(reason) => Some(reason as u8),
        Fate::Marked(reason) => Some(marks[reason as usize]),
    }
}
