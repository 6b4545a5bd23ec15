//! What became of each packet, written in order of arrival as soon as it is settled.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write;

use hdrhistogram::Histogram;
use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer};
use underload_aqm::time::Time;

use crate::replay::input::Arrival;

/// Collects fates. Holds only packets that are not settled, and settled ones behind them.
pub struct Fates {
    output: Box<dyn Write>,
    pending: VecDeque<Row>,
    /// Number of the first row in `pending`, in order of arrival.
    first: u64,
    tally: Tally,
}

struct Row {
    /// Place in the input.
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

struct Tally {
    packets: u64,
    bytes: u64,
    sent: u64,
    marked: u64,
    drops: BTreeMap<DropReason, u64>,
    sojourn_ns: Histogram<u64>,
    first_arrival: Option<Time>,
    last_end: Time,
    sent_bytes: u64,
}

impl Fates {
    /// Starts the output with its header.
    pub fn new(mut output: Box<dyn Write>) -> anyhow::Result<Self> {
        writeln!(output, "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn")?;
        Ok(Self { output, pending: VecDeque::new(), first: 0, tally: Tally::new()? })
    }

    /// The next packet of the input has arrived.
    pub fn arrived(&mut self, arrival: &Arrival) {
        self.tally.packets += 1;
        self.tally.bytes += u64::from(arrival.meta.len);
        self.tally.first_arrival.get_or_insert(arrival.time);
        self.pending.push_back(Row {
            id: arrival.id,
            arrival: arrival.time,
            ecn: arrival.meta.ecn,
            transmission: None,
            marked: None,
            end: None,
        });
    }

    /// The packet of that number, in order of arrival, has reached the far end.
    pub fn delivered(&mut self, number: u64) {
        if let Some(row) = self.row(number) {
            row.end = Some(End::Delivered);
        }
    }

    /// Writes every row that has no unsettled row before it.
    pub fn write_settled(&mut self) -> anyhow::Result<()> {
        while let Some(Row { end: Some(_), .. }) = self.pending.front() {
            self.write_first()?;
        }
        Ok(())
    }

    /// Writes what is left when nothing more can happen.
    pub fn write_rest_as_queued(&mut self) -> anyhow::Result<()> {
        while !self.pending.is_empty() {
            self.write_first()?;
        }
        Ok(())
    }

    /// Hands everything written so far to the system.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.output.flush()?)
    }

    /// One screen about the whole replay.
    pub fn summary(&self, queue: &str, link: &str) -> String {
        self.tally.summary(queue, link)
    }

    fn row(&mut self, number: u64) -> Option<&mut Row> {
        self.pending.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn write_first(&mut self) -> anyhow::Result<()> {
        let Some(row) = self.pending.pop_front() else { return Ok(()) };
        self.first += 1;
        let id = row.id;
        let (fate, reason) = row.fate();
        write!(self.output, "{id},{},{fate},{reason},", row.arrival.as_nanos())?;
        if let Some((start, end)) = row.transmission {
            let sojourn = start.since(row.arrival).as_nanos();
            write!(self.output, "{},{},{sojourn}", start.as_nanos(), end.as_nanos())?;
        } else {
            write!(self.output, ",,")?;
        }
        writeln!(self.output, ",{}", row.ecn.name())?;
        Ok(())
    }
}

impl Row {
    fn fate(&self) -> (&'static str, &'static str) {
        match (&self.end, self.marked) {
            (Some(End::Delivered), Some(reason)) => ("marked", reason.name()),
            (Some(End::Delivered), None) => ("sent", ""),
            (Some(End::Dropped(reason)), _) if reason.at_enqueue() => {
                ("dropped-enqueue", reason.name())
            }
            (Some(End::Dropped(reason)), _) => ("dropped-dequeue", reason.name()),
            (None, _) => ("queued", ""),
        }
    }
}

impl Observer<u64> for Fates {
    fn dropped(&mut self, _now: Time, packet: Packet<u64>, reason: DropReason) {
        *self.tally.drops.entry(reason).or_default() += 1;
        if let Some(row) = self.row(packet.payload) {
            row.end = Some(End::Dropped(reason));
        }
    }

    fn marked(&mut self, _now: Time, packet: &Packet<u64>, reason: MarkReason) {
        self.tally.marked += 1;
        if let Some(row) = self.row(packet.payload) {
            row.marked = Some(reason);
            row.ecn = packet.meta.ecn;
        }
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<u64>) {
        self.tally.sent += 1;
        self.tally.sent_bytes += u64::from(packet.meta.len);
        self.tally.last_end = end;
        self.tally.sojourn_ns.saturating_record(start.since(packet.meta.arrived).as_nanos());
        if let Some(row) = self.row(packet.payload) {
            row.transmission = Some((start, end));
        }
    }
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            packets: 0,
            bytes: 0,
            sent: 0,
            marked: 0,
            drops: BTreeMap::new(),
            // 1 ns to 1 hour with 3 significant digits.
            sojourn_ns: Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?,
            first_arrival: None,
            last_end: Time::ZERO,
            sent_bytes: 0,
        })
    }

    fn summary(&self, queue: &str, link: &str) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<12}{value}");
        };
        let percent = |part: u64| 100.0 * part as f64 / self.packets.max(1) as f64;
        line("queue", queue.to_string());
        line("link", link.to_string());
        line("packets", format!("{} ({} bytes)", self.packets, self.bytes));
        line("sent", format!("{} ({:.2} %)", self.sent, percent(self.sent)));
        line("marked", format!("{} ({:.2} %)", self.marked, percent(self.marked)));
        let dropped: u64 = self.drops.values().sum();
        let reasons: Vec<String> =
            self.drops.iter().map(|(reason, count)| format!("{} {count}", reason.name())).collect();
        let detail =
            if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        line("dropped", format!("{dropped} ({:.2} %){detail}", percent(dropped)));
        let ms = |quantile: f64| self.sojourn_ns.value_at_quantile(quantile) as f64 / 1e6;
        let max = self.sojourn_ns.max() as f64 / 1e6;
        line("sojourn", format!("p50 {:.3} ms, p99 {:.3} ms, max {max:.3} ms", ms(0.5), ms(0.99)));
        let span = self.last_end.since(self.first_arrival.unwrap_or_default()).as_nanos();
        let rate = self.sent_bytes as f64 * 8e3 / span.max(1) as f64;
        line("throughput", format!("{rate:.3} Mbit/s, link-layer overhead included"));
        text
    }
}
