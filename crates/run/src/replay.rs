//! Packets through a queue and a link: what would have become of each.
//!
//! [`Replay`] takes one packet after another and tells what became of each, in their order, as soon
//! as it is settled: its memory grows with the queue's backlog, never with the input.
//! [`replay_columns`] does so with whole columns.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use underload_aqm::link::Link;
use underload_aqm::link::tally::Tally;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{Count, DropReason, MarkReason, Observer};
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};

/// A packet that reaches the queue.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Its place in the input, from 0.
    pub id: u64,
    /// When its first byte is at the queue.
    pub time: Time,
    /// Length and header fields that the queue sees.
    pub meta: Meta,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Its place in the input, from 0.
    pub id: u64,
    /// When it reached the queue.
    pub arrival: Time,
    /// What became of it.
    pub fate: Fate,
    /// Beginning and end of its transmission; `None` if it was never sent.
    pub transmission: Option<(Time, Time)>,
    /// Its ECN field as it left.
    pub ecn: Ecn,
}

/// What became of a packet, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It left as it was.
    Sent,
    /// It left with the mark of congestion.
    Marked(MarkReason),
    /// It was dropped in the queue, or lost behind the link.
    Dropped(DropReason),
    /// It was still in the queue when nothing more could happen.
    Queued,
}

impl Fate {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Marked(_) => "marked",
            Self::Dropped(reason) if reason.at_enqueue() => "dropped-enqueue",
            Self::Dropped(_) => "dropped-dequeue",
            Self::Queued => "queued",
        }
    }

    /// The name of its reason; empty where it needs none.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Marked(reason) => reason.name(),
            Self::Dropped(reason) => reason.name(),
            Self::Sent | Self::Queued => "",
        }
    }
}

impl Settled {
    /// Start of its transmission less its arrival; `None` if it was never sent.
    pub fn sojourn(&self) -> Option<Span> {
        self.transmission.map(|(start, _)| start.since(self.arrival))
    }
}

/// A queue and a link under way.
pub struct Replay {
    link: Link<u64>,
    fates: Fates,
    arrived: u64,
    previous: Time,
}

/// Holds only packets that are not settled, and settled ones behind them.
struct Fates {
    pending: VecDeque<Row>,
    /// Number of the first row in `pending`, in order of arrival.
    first: u64,
    arrivals: Count,
    first_arrival: Option<Time>,
    tally: Tally,
    last_end: Time,
}

struct Row {
    id: u64,
    arrival: Time,
    ecn: Ecn,
    transmission: Option<(Time, Time)>,
    marked: Option<MarkReason>,
    end: Option<End>,
}

enum End {
    Delivered,
    Dropped(DropReason),
}

impl Replay {
    /// Through this link, with the queue in front of it.
    pub fn new(link: Link<u64>) -> Self {
        let fates = Fates {
            pending: VecDeque::new(),
            first: 0,
            arrivals: Count::default(),
            first_arrival: None,
            tally: Tally::new(Time::ZERO, false),
            last_end: Time::ZERO,
        };
        Self { link, fates, arrived: 0, previous: Time::ZERO }
    }

    /// The next packet, not earlier than the one before, arrives. `settle` is told of every packet
    /// whose fate is known by then, and of none twice.
    ///
    /// # Errors
    /// What `settle` says.
    #[inline]
    pub fn arrive<E>(
        &mut self,
        arrival: &Arrival,
        settle: &mut impl FnMut(Settled) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(arrival.time >= self.previous, "packets come in order of time");
        // What the link finished before this instant is settled first, so that memory stays
        // bounded; what it does at this instant comes after the arrivals of this instant.
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

    /// No packet follows: the rest are seen through to their fates.
    ///
    /// # Errors
    /// What `settle` says.
    pub fn finish<E>(
        &mut self,
        settle: &mut impl FnMut(Settled) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(event) = self.link.next_event() {
            self.deliver(event);
            self.fates.settle(settle)?;
        }
        while let Some(row) = self.fates.take_first() {
            settle(row)?;
        }
        Ok(())
    }

    /// What the link did so far.
    pub fn tally(&self) -> &Tally {
        &self.fates.tally
    }

    /// Packets and bytes that arrived, at the lengths that the input states.
    pub fn arrivals(&self) -> Count {
        self.fates.arrivals
    }

    /// From the first arrival to the end of the last transmission.
    pub fn span(&self) -> Span {
        self.fates.last_end.since(self.fates.first_arrival.unwrap_or_default())
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
        self.first_arrival.get_or_insert(arrival.time);
        self.pending.push_back(Row {
            id: arrival.id,
            arrival: arrival.time,
            ecn: arrival.meta.ecn,
            transmission: None,
            marked: None,
            end: None,
        });
    }

    #[inline]
    fn delivered(&mut self, number: u64) {
        if let Some(row) = self.row(number) {
            row.end = Some(End::Delivered);
        }
    }

    /// Tells of every packet that has no unsettled one before it.
    #[inline]
    fn settle<E>(&mut self, settle: &mut impl FnMut(Settled) -> Result<(), E>) -> Result<(), E> {
        while let Some(Row { end: Some(_), .. }) = self.pending.front() {
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
        let Row { id, arrival, ecn, transmission, marked, end } = self.pending.pop_front()?;
        self.first += 1;
        let fate = match (end, marked) {
            (Some(End::Delivered), Some(reason)) => Fate::Marked(reason),
            (Some(End::Delivered), None) => Fate::Sent,
            (Some(End::Dropped(reason)), _) => Fate::Dropped(reason),
            (None, _) => Fate::Queued,
        };
        Some(Settled { id, arrival, fate, transmission, ecn })
    }
}

impl Observer<u64> for Fates {
    fn dropped(&mut self, _now: Time, packet: Packet<u64>, reason: DropReason) {
        self.tally.dropped(&packet.meta, reason);
        if let Some(row) = self.row(packet.payload) {
            row.end = Some(End::Dropped(reason));
        }
    }

    fn marked(&mut self, _now: Time, packet: &Packet<u64>, reason: MarkReason) {
        self.tally.marked(reason);
        if let Some(row) = self.row(packet.payload) {
            row.marked = Some(reason);
            row.ecn = packet.meta.ecn;
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
            row.ecn = packet.meta.ecn;
        }
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<u64>) {
        self.tally.transmitted(start, end, &packet.meta);
        self.last_end = end;
        if let Some(row) = self.row(packet.payload) {
            row.transmission = Some((start, end));
        }
    }
}

/// Columns of packets, a value each; those that are left out are zero for all.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketColumns<'a> {
    /// When each reaches the queue, ns; not decreasing.
    pub time_ns: &'a [u64],
    /// Bytes, at least 1.
    pub len: &'a [u32],
    /// Number of its flow.
    pub flow: Option<&'a [u32]>,
    /// Differentiated Services codepoint, 0 to 63.
    pub dscp: Option<&'a [u8]>,
    /// The two bits of its ECN field: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: Option<&'a [u8]>,
}

/// What is wrong with columns of packets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// Two columns differ in length.
    #[error("{column}: {found} values where time_ns has {expected}; expected one per packet")]
    Length {
        /// The column's name.
        column: &'static str,
        /// Its values.
        found: usize,
        /// Packets.
        expected: usize,
    },
    /// A packet comes before the one before it.
    #[error("time_ns: packet {packet} comes before the one before it; expected order of time")]
    Order {
        /// Its place, from 0.
        packet: usize,
    },
    /// A value that a packet cannot have.
    #[error("{column}: packet {packet} has {value}; expected {expected}")]
    Value {
        /// The column's name.
        column: &'static str,
        /// The packet's place, from 0.
        packet: usize,
        /// What it has.
        value: u64,
        /// What would be accepted.
        expected: &'static str,
    },
}

impl PacketColumns<'_> {
    /// Checks lengths, order and values.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
        let value = |column, packet, value: u64, expected| {
            Err(ColumnsError::Value { column, packet, value, expected })
        };
        if let Some(at) = self.len.iter().position(|len| !(1..=MOST_BYTES).contains(len)) {
            return value("len", at, u64::from(self.len[at]), "1 to 16777216 bytes");
        }
        let above = |values: Option<&[u8]>, most: u8| {
            let values = values?;
            let at = values.iter().position(|value| *value > most)?;
            Some((at, u64::from(values[at])))
        };
        if let Some((at, found)) = above(self.dscp, 63) {
            return value("dscp", at, found, "0 to 63");
        }
        if let Some((at, found)) = above(self.ecn, 3) {
            return value("ecn", at, found, "0 (not-ECT), 1 (ECT(1)), 2 (ECT(0)) or 3 (CE)");
        }
        Ok(())
    }

    #[inline]
    fn arrival(&self, packet: usize) -> Arrival {
        let mut meta = Meta::new(self.len[packet], self.flow.map_or(0, |flow| flow[packet]));
        meta.dscp = self.dscp.and_then(|it| Dscp::new(it[packet])).unwrap_or_default();
        meta.ecn = self.ecn.map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn[packet]));
        Arrival { id: packet as u64, time: Time::from_nanos(self.time_ns[packet]), meta }
    }
}

/// Bytes of a packet, at most.
const MOST_BYTES: u32 = 1 << 24;

/// What became of columns of packets, a value each, in the order of the input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FateColumns {
    /// Each packet's fate.
    pub fate: Vec<Fate>,
    /// Start of its transmission, ns; 0 if it was never sent.
    pub start_ns: Vec<u64>,
    /// End of its transmission, ns; 0 if it was never sent.
    pub end_ns: Vec<u64>,
    /// Start less arrival, ns; 0 if it was never sent.
    pub sojourn_ns: Vec<u64>,
    /// Its ECN field as it left, as in [`PacketColumns::ecn`].
    pub ecn: Vec<u8>,
    /// Whether it was sent.
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

/// Sends columns of packets through a link; `None` where it was stopped before its end.
///
/// # Errors
/// What is wrong with the columns; then nothing has been sent.
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
        if packet % BETWEEN_LOOKS == 0 && stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Ok(()) = replay.arrive(&packets.arrival(packet), &mut settle);
    }
    let Ok(()) = replay.finish(&mut settle);
    Ok(Some((fates, replay.fates.tally)))
}

/// Packets between two looks at whether to stop.
const BETWEEN_LOOKS: usize = 1 << 14;

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
    fn what_no_packet_can_be_is_refused() {
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
