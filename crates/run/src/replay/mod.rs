//! Sends recorded packets through a queue and a link, and reports the fate of each.
//!
//! [`Replay`] accepts one packet after another and reports their fates in the same order, as soon
//! as they are known: its memory grows with the queue's backlog and not with the input.
//! [`replay_columns`] replays whole columns.

mod words;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use underload_aqm::link::Link;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{Count, DropReason, MarkReason, Observer};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};
use underload_record::tally::Tally;

pub use words::{table, text};

#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Position in the input, from 0.
    pub id: u64,
    /// When the first byte arrives at the queue.
    pub time: Time,
    pub meta: Meta,
}

/// A packet whose fate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Position in the input, from 0.
    pub id: u64,
    pub arrival: Time,
    pub fate: Fate,
    /// Start and end of the transmission; `None` if it was never sent.
    pub transmission: Option<(Time, Time)>,
    /// ECN field at the departure.
    pub ecn: Ecn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Sent,
    /// Sent with a CE mark.
    Marked(MarkReason),
    /// The packet was dropped in the queue, or lost behind the link.
    Dropped(DropReason),
    /// Still in the queue after the last event.
    Queued,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Marked(_) => "marked",
            Self::Dropped(reason) if reason.at_enqueue() => "dropped-enqueue",
            Self::Dropped(_) => "dropped-dequeue",
            Self::Queued => "queued",
        }
    }

    /// Returns the name of the reason; empty for a fate without one.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Marked(reason) => reason.name(),
            Self::Dropped(reason) => reason.name(),
            Self::Sent | Self::Queued => "",
        }
    }
}

impl Settled {
    /// Returns the start of the transmission minus the arrival; `None` if it was never sent.
    pub fn sojourn(&self) -> Option<Span> {
        self.transmission.map(|(start, _)| start.since(self.arrival))
    }

    /// Writes a row of CSV with the columns of [`CSV_HEADER`].
    pub fn write_csv(&self, output: &mut impl Write) -> io::Result<()> {
        let (fate, reason) = (self.fate.name(), self.fate.reason());
        write!(output, "{},{},{fate},{reason},", self.id, self.arrival.as_nanos())?;
        if let (Some((start, end)), Some(sojourn)) = (self.transmission, self.sojourn()) {
            write!(output, "{},{},{}", start.as_nanos(), end.as_nanos(), sojourn.as_nanos())?;
        } else {
            write!(output, ",,")?;
        }
        writeln!(output, ",{}", self.ecn.name())
    }
}

pub const CSV_HEADER: &str = "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn";

/// Counts, sojourn times and rate of a recording's packets in a queue and a link.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub queue: String,
    pub link: String,
    pub packets: u64,
    pub bytes: u64,
    pub sent: u64,
    pub marked: u64,
    pub dropped: u64,
    pub drops: BTreeMap<&'static str, u64>,
    pub sojourn_p50_ms: f64,
    pub sojourn_p99_ms: f64,
    pub sojourn_max_ms: f64,
    /// Rate of the packets sent, with overhead. `None` for a burst that arrives and leaves at one
    /// instant.
    pub throughput_bit_per_s: Option<u64>,
    /// Markings of the recorded packets, those of most packets first.
    pub markings: Vec<Marking>,
}

/// Packets of one DSCP and ECN codepoint.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Marking {
    pub dscp: u8,
    pub ecn: &'static str,
    /// Both fields as the byte that packet captures show.
    pub tos: u8,
    pub packets: u64,
}

/// A queue and a link through which packets are sent.
pub struct Replay {
    link: Link<u64>,
    fates: Fates,
    arrived: u64,
    previous: Time,
}

/// The packets whose fates are unknown, and settled packets that arrived after one of them.
struct Fates {
    pending: VecDeque<Row>,
    /// Index of the first row of `pending`, in order of arrival.
    first: u64,
    arrivals: Count,
    /// Arrivals by the byte of DSCP and ECN.
    markings: Box<[u64; 256]>,
    first_arrival: Option<Time>,
    tally: Tally,
    last_end: Time,
}

/// A packet whose fate is [`Fate::Queued`] until it is settled.
struct Row {
    packet: Settled,
    marked: Option<MarkReason>,
}

impl Replay {
    pub fn new(link: Link<u64>) -> Self {
        let fates = Fates {
            pending: VecDeque::new(),
            first: 0,
            arrivals: Count::default(),
            markings: Box::new([0; 256]),
            first_arrival: None,
            tally: Tally::new(Time::ZERO, false),
            last_end: Time::ZERO,
        };
        Self { link, fates, arrived: 0, previous: Time::ZERO }
    }

    /// Sends the next packet, which must not arrive before the previous one. Calls `settle` once
    /// with every packet whose fate is known by then.
    #[inline]
    pub fn arrive<E>(
        &mut self,
        arrival: &Arrival,
        settle: &mut impl FnMut(Settled) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(arrival.time >= self.previous, "packets come in order of time");
        // Events before this instant come first, which bounds the memory; events at this instant
        // come after its arrivals.
        if arrival.time > self.previous {
            self.deliver(Time::from_nanos(arrival.time.as_nanos() - 1));
        }
        self.fates.arrived(arrival);
        let packet = Packet { meta: arrival.meta, payload: self.arrived };
        self.link.send(arrival.time, packet, &mut self.fates);
        self.arrived += 1;
        self.previous = arrival.time;
        self.fates.settle(settle)
    }

    /// Settles the remaining packets after the last one was sent.
    pub fn finish<E>(&mut self, take: &mut impl FnMut(Settled) -> Result<(), E>) -> Result<(), E> {
        while let Some(event) = self.link.next_event() {
            self.deliver(event);
            self.fates.settle(take)?;
        }
        while let Some(row) = self.fates.take_first() {
            take(row)?;
        }
        Ok(())
    }

    /// Returns how many packets wait for their fates, or for those of earlier packets.
    pub fn waiting(&self) -> usize {
        self.fates.pending.len()
    }

    pub fn tally(&self) -> &Tally {
        &self.fates.tally
    }

    /// Sums up the packets settled so far; `queue` and `link` are their names.
    pub fn summary(&self, queue: String, link: String) -> Summary {
        let Fates { arrivals, tally, last_end, first_arrival, .. } = &self.fates;
        let (total, sojourn) = (tally.total(), &tally.delays().sojourn);
        let drops = total.drops().map(|(reason, count)| (reason.name(), count.packets));
        let [p50, p99, max] = sojourn.quantiles([500, 990, 1_000]).map(|ns| ns as f64 / 1e6);
        let span_ns = last_end.since(first_arrival.unwrap_or_default()).as_nanos();
        let rate = || (total.sent.bytes as f64 * 8e9 / span_ns as f64) as u64;
        Summary {
            queue,
            link,
            packets: arrivals.packets,
            bytes: arrivals.bytes,
            sent: total.sent.packets,
            marked: total.marked_packets(),
            dropped: total.dropped_packets(),
            drops: drops.collect(),
            sojourn_p50_ms: p50,
            sojourn_p99_ms: p99,
            sojourn_max_ms: max,
            throughput_bit_per_s: (span_ns > 0).then(rate),
            markings: self.fates.markings(),
        }
    }

    fn deliver(&mut self, now: Time) {
        while let Some((_, packet)) = self.link.poll(now, &mut self.fates) {
            self.fates.delivered(packet.payload);
        }
    }
}

impl Fates {
    #[inline]
    fn arrived(&mut self, arrival: &Arrival) {
        self.arrivals.add(arrival.meta.len);
        self.markings[usize::from(arrival.meta.dscp.value() << 2 | arrival.meta.ecn.bits())] += 1;
        self.first_arrival.get_or_insert(arrival.time);
        let Arrival { id, time, meta } = *arrival;
        let (fate, transmission) = (Fate::Queued, None);
        let packet = Settled { id, arrival: time, fate, transmission, ecn: meta.ecn };
        self.pending.push_back(Row { packet, marked: None });
    }

    fn markings(&self) -> Vec<Marking> {
        let marking = |(tos, packets): (u8, &u64)| {
            let (dscp, ecn) = (Dscp::from_tos(tos).value(), Ecn::from_bits(tos).name());
            Marking { dscp, ecn, tos, packets: *packets }
        };
        let counted = (0..=u8::MAX).zip(&self.markings[..]).filter(|(_, packets)| **packets > 0);
        let mut markings: Vec<Marking> = counted.map(marking).collect();
        markings.sort_by_key(|marking| std::cmp::Reverse(marking.packets));
        markings
    }

    #[inline]
    fn delivered(&mut self, number: u64) {
        if let Some(row) = self.row(number) {
            row.packet.fate = row.marked.map_or(Fate::Sent, Fate::Marked);
        }
    }

    /// Reports the packets before the first whose fate is unknown.
    #[inline]
    fn settle<E>(&mut self, settle: &mut impl FnMut(Settled) -> Result<(), E>) -> Result<(), E> {
        while self.pending.front().is_some_and(|row| row.packet.fate != Fate::Queued) {
            if let Some(row) = self.take_first() {
                settle(row)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn row(&mut self, number: u64) -> Option<&mut Row> {
        self.pending.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    #[inline]
    fn take_first(&mut self) -> Option<Settled> {
        let row = self.pending.pop_front()?;
        self.first += 1;
        Some(row.packet)
    }
}

impl Observer<u64> for Fates {
    fn dropped(&mut self, _now: Time, packet: Packet<u64>, reason: DropReason) {
        self.tally.dropped(&packet.meta, reason);
        if let Some(row) = self.row(packet.payload) {
            row.packet.fate = Fate::Dropped(reason);
        }
    }

    fn marked(&mut self, _now: Time, packet: &Packet<u64>, reason: MarkReason) {
        self.tally.marked(reason);
        if let Some(row) = self.row(packet.payload) {
            row.marked = Some(reason);
            row.packet.ecn = packet.meta.ecn;
        }
    }

    fn sanctioned(&mut self, now: Time, packet: &Packet<u64>, score: Span) {
        self.tally.sanctioned(now, packet.meta.flow, score);
    }

    fn binned(&mut self, side: Side, bin: usize) {
        self.tally.binned(side, bin);
    }

    fn remarked(&mut self, _now: Time, packet: &Packet<u64>, rule: usize) {
        self.tally.remarked(rule);
        if let Some(row) = self.row(packet.payload) {
            row.packet.ecn = packet.meta.ecn;
        }
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<u64>) {
        self.tally.transmitted(start, end, &packet.meta);
        self.last_end = end;
        if let Some(row) = self.row(packet.payload) {
            row.packet.transmission = Some((start, end));
        }
    }
}

/// Columns with a value for each packet; `None` for zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketColumns<'a> {
    /// Arrivals at the queue, ns; not decreasing.
    pub time_ns: &'a [u64],
    /// Bytes, at least 1.
    pub len: &'a [u32],
    /// Numbers of the packets' flows.
    pub flow: Option<&'a [u32]>,
    /// Differentiated Services codepoints, 0 to 63.
    pub dscp: Option<&'a [u8]>,
    /// The two bits of the ECN field: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    #[error("{column}: {found} values where time_ns has {expected}; expected one per packet")]
    Length { column: &'static str, found: usize, expected: usize },
    #[error("time_ns: packet {packet} is earlier than the previous one; expected order of time")]
    Order { packet: usize },
    #[error("{column}: packet {packet} has {value}; expected {expected}")]
    Value { column: &'static str, packet: usize, value: u64, expected: &'static str },
}

impl PacketColumns<'_> {
    /// Checks lengths, order and values, and returns the first error.
    pub fn check(&self) -> Result<(), ColumnsError> {
        let expected = self.time_ns.len();
        let lengths = [
            ("len", Some(self.len.len())),
            ("flow", self.flow.map(<[u32]>::len)),
            ("dscp", self.dscp.map(<[u8]>::len)),
            ("ecn", self.ecn.map(<[u8]>::len)),
        ];
        for (column, found) in lengths {
            if let Some(found) = found.filter(|found| *found != expected) {
                return Err(ColumnsError::Length { column, found, expected });
            }
        }
        if let Some(at) = self.time_ns.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(ColumnsError::Order { packet: at + 1 });
        }
        let ecn = "0 (not-ECT), 1 (ECT(1)), 2 (ECT(0)) or 3 (CE)";
        first_outside("len", self.len, 1..=MOST_BYTES, "1 to 16777216 bytes")?;
        first_outside("dscp", self.dscp.unwrap_or_default(), 0..=63, "0 to 63")?;
        first_outside("ecn", self.ecn.unwrap_or_default(), 0..=3, ecn)
    }

    #[inline]
    fn arrival(&self, packet: usize) -> Arrival {
        let mut meta = Meta::new(self.len[packet], self.flow.map_or(0, |flow| flow[packet]));
        meta.dscp = self.dscp.and_then(|it| Dscp::new(it[packet])).unwrap_or_default();
        meta.ecn = self.ecn.map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn[packet]));
        Arrival { id: packet as u64, time: Time::from_nanos(self.time_ns[packet]), meta }
    }
}

/// Returns the error of the first value outside of `range`.
fn first_outside<T: Copy + PartialOrd + Into<u64>>(
    column: &'static str,
    values: &[T],
    range: RangeInclusive<T>,
    expected: &'static str,
) -> Result<(), ColumnsError> {
    match values.iter().position(|value| !range.contains(value)) {
        None => Ok(()),
        Some(packet) => {
            let value = values[packet].into();
            Err(ColumnsError::Value { column, packet, value, expected })
        }
    }
}

const MOST_BYTES: u32 = 1 << 24;

/// The fates of columns of packets, in the order of the input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FateColumns {
    pub fate: Vec<Fate>,
    /// Start of the transmission, ns; 0 if the packet was never sent.
    pub start_ns: Vec<u64>,
    /// End of the transmission, ns; 0 if the packet was never sent.
    pub end_ns: Vec<u64>,
    /// Start of the transmission minus the arrival, ns; 0 if the packet was never sent.
    pub sojourn_ns: Vec<u64>,
    /// ECN field at the departure, as in [`PacketColumns::ecn`].
    pub ecn: Vec<u8>,
    pub was_sent: Vec<bool>,
}

impl FateColumns {
    fn with_capacity(packets: usize) -> Self {
        Self {
            fate: Vec::with_capacity(packets),
            start_ns: Vec::with_capacity(packets),
            end_ns: Vec::with_capacity(packets),
            sojourn_ns: Vec::with_capacity(packets),
            ecn: Vec::with_capacity(packets),
            was_sent: Vec::with_capacity(packets),
        }
    }

    #[inline]
    fn push(&mut self, row: &Settled) {
        let (start, end) = row.transmission.unwrap_or_default();
        self.fate.push(row.fate);
        self.start_ns.push(start.as_nanos());
        self.end_ns.push(end.as_nanos());
        self.sojourn_ns.push(row.sojourn().unwrap_or_default().as_nanos());
        self.ecn.push(row.ecn.bits());
        self.was_sent.push(row.transmission.is_some());
    }
}

/// Sends columns of packets through a link; `None` if stopped. Errors precede any sending.
pub fn replay_columns(
    link: Link<u64>,
    packets: &PacketColumns<'_>,
    stop: &AtomicBool,
) -> Result<Option<(FateColumns, Tally)>, ColumnsError> {
    packets.check()?;
    let count = packets.time_ns.len();
    let mut fates = FateColumns::with_capacity(count);
    let mut replay = Replay::new(link);
    let mut settle = |row: Settled| {
        fates.push(&row);
        Ok::<(), Infallible>(())
    };
    for packet in 0..count {
        if packet % STOP_INTERVAL == 0 && stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Ok(()) = replay.arrive(&packets.arrival(packet), &mut settle);
    }
    let Ok(()) = replay.finish(&mut settle);
    Ok(Some((fates, replay.fates.tally)))
}

/// Packets between two checks of `stop`.
const STOP_INTERVAL: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use underload_aqm::registry::{LinkSetup, QueueSetup};
    use underload_aqm::rng::Rng;

    fn link(queue: &str, link: &str) -> Link<u64> {
        let link = LinkSetup::parse(link).expect("a link");
        let queue = QueueSetup::parse(queue, &link.facts()).expect("a queue");
        link.build(queue.build(&Rng::new(1)), &Rng::new(1))
    }

    fn replayed(queue: &str, packets: &PacketColumns<'_>) -> FateColumns {
        let stop = AtomicBool::new(false);
        let done = replay_columns(link(queue, "8mbit"), packets, &stop).expect("good columns");
        done.expect("not stopped").0
    }

    #[test]
    fn fates_follow_from_the_arithmetic_of_the_link() {
        // 1000 bytes take 1 ms; two wait, the fourth finds two packets in the queue.
        let packets = PacketColumns { time_ns: &[0; 4], len: &[1_000; 4], ..Default::default() };
        let fates = replayed("fifo:limit=3p", &packets);
        assert_eq!(fates.start_ns, [0, 1_000_000, 2_000_000, 0]);
        assert_eq!(fates.sojourn_ns, [0, 1_000_000, 2_000_000, 0]);
        assert_eq!(fates.was_sent, [true, true, true, false]);
        assert_eq!(fates.fate[3], Fate::Dropped(DropReason::Overlimit));
    }

    #[test]
    fn markings_are_counted_as_the_byte_of_a_capture() {
        let mut replay = Replay::new(link("fifo", "8mbit"));
        for (id, (dscp, ecn)) in
            [(45, Ecn::Ect1), (45, Ecn::Ce), (45, Ecn::Ect1)].iter().enumerate()
        {
            let mut meta = Meta::new(158, 0);
            (meta.dscp, meta.ecn) = (Dscp::new(*dscp).expect("a codepoint"), *ecn);
            let (id, time) = (id as u64, Time::ZERO);
            let Ok(()) =
                replay.arrive(&Arrival { id, time, meta }, &mut |_| Ok::<(), Infallible>(()));
        }
        let markings = replay.summary(String::new(), String::new()).markings;
        let told: Vec<_> =
            markings.iter().map(|it| (it.tos, it.dscp, it.ecn, it.packets)).collect();
        // The bytes that the captures of NANOG 90 show.
        assert_eq!(told, [(0xb5, 45, "ect1", 2), (0xb7, 45, "ce", 1)]);
    }

    #[test]
    fn invalid_columns_are_rejected() {
        let (time_ns, len) = ([0, 5, 4].as_slice(), [1, 1, 1].as_slice());
        let good = PacketColumns { time_ns: &[0, 4, 5], len, ..Default::default() };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(
            PacketColumns { time_ns, ..good }.check(),
            Err(ColumnsError::Order { packet: 2 })
        );
        let said = |columns: PacketColumns<'_>| columns.check().expect_err("wrong").to_string();
        assert!(said(PacketColumns { len: &[1, 1], ..good }).starts_with("len: 2 values"));
        assert!(said(PacketColumns { len: &[1, 0, 1], ..good }).contains("packet 1 has 0"));
        assert!(said(PacketColumns { dscp: Some(&[0, 0, 64]), ..good }).contains("0 to 63"));
        assert!(said(PacketColumns { ecn: Some(&[4, 0, 0]), ..good }).starts_with("ecn: packet 0"));
    }

    #[test]
    fn a_replay_can_be_stopped() {
        let packets = PacketColumns { time_ns: &[0], len: &[1], ..Default::default() };
        let stopped = replay_columns(link("fifo", "8mbit"), &packets, &AtomicBool::new(true));
        assert!(stopped.expect("good columns").is_none());
    }
}
