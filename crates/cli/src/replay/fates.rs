//! What became of each packet, written in order of arrival as soon as it is settled.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;
use underload_aqm::link::tally::Tally;
use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::qdisc::{Count, DropReason, MarkReason, Observer};
use underload_aqm::registry::QueueSetup;
use underload_aqm::service_flow::Side;
use underload_aqm::time::{Span, Time};

use crate::replay::input::Arrival;

/// Collects fates. Holds only packets that are not settled, and settled ones behind them.
pub struct Fates {
    output: Box<dyn Write>,
    pending: VecDeque<Row>,
    /// Number of the first row in `pending`, in order of arrival.
    first: u64,
    /// The input, at the lengths that it states.
    arrivals: Count,
    first_arrival: Option<Time>,
    tally: Tally,
    /// End of the last transmission.
    last_end: Time,
}

/// What became of all packets.
#[derive(Debug, Clone, Serialize)]
pub struct Numbers {
    pub queue: String,
    pub link: String,
    pub packets: u64,
    pub bytes: u64,
    pub sent: u64,
    pub marked: u64,
    pub dropped: u64,
    /// By reason.
    pub drops: BTreeMap<&'static str, u64>,
    pub sojourn_p50_ms: f64,
    pub sojourn_p99_ms: f64,
    pub sojourn_max_ms: f64,
    /// Link-layer overhead included.
    pub throughput_bit_per_s: u64,
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

impl Fates {
    /// Starts the output with its header.
    pub fn new(mut output: Box<dyn Write>) -> anyhow::Result<Self> {
        writeln!(output, "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn")?;
        Ok(Self {
            output,
            pending: VecDeque::new(),
            first: 0,
            arrivals: Count::default(),
            first_arrival: None,
            tally: Tally::new(Time::ZERO, false),
            last_end: Time::ZERO,
        })
    }

    /// The next packet of the input has arrived.
    pub fn arrived(&mut self, arrival: &Arrival) {
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

    /// A summary of the whole replay, of one screen.
    pub fn summary(&self, queue: &QueueSetup, link: &str, rules: &[String]) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<12}{value}");
        };
        let (total, sojourn) = (self.tally.total(), &self.tally.delays().sojourn);
        let of_all = |packets: u64| {
            let percent = 100.0 * packets as f64 / self.arrivals.packets.max(1) as f64;
            format!("{packets} ({percent:.2} %)")
        };
        line("queue", queue.label.to_string());
        line("link", link.to_string());
        line("packets", format!("{} ({} bytes)", self.arrivals.packets, self.arrivals.bytes));
        line("sent", of_all(total.sent.packets));
        line("marked", of_all(total.marked_packets()));
        for (rule, changed) in rules.iter().zip(total.remarks()) {
            line("remarked", of_all(*changed) + " by " + rule);
        }
        let reasons: Vec<String> = total
            .drops()
            .map(|(reason, count)| format!("{} {}", reason.name(), count.packets))
            .collect();
        let detail =
            if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        line("dropped", of_all(total.dropped_packets()) + &detail);
        let [p50, p99, max] = sojourn.quantiles([500, 990, 1_000]).map(|ns| ns as f64 / 1e6);
        line("sojourn", format!("p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"));
        let (flows, packets) = self
            .tally
            .sanctions()
            .flows()
            .fold((0, 0), |(flows, packets), one| (flows + 1, packets + one.1.packets));
        if packets > 0 {
            line("sent away", format!("{} of {flows} flows, by queue protection", of_all(packets)));
        }
        for (side, edges) in queue.latency_bins() {
            let names = edges.spans().map(|edge| format!("to {edge}")).chain(["more".to_owned()]);
            let bins = names.zip(total.bins()[side as usize]);
            let bins: Vec<String> = bins.map(|(name, count)| format!("{name}: {count}")).collect();
            line(side.name(), bins.join(", "));
        }
        let span = self.last_end.since(self.first_arrival.unwrap_or_default()).as_nanos();
        let rate = total.sent.bytes as f64 * 8e3 / span.max(1) as f64;
        line("senders", "do not react: the packets come as they came (open loop)".to_owned());
        line("throughput", format!("{rate:.3} Mbit/s, link-layer overhead included"));
        text
    }

    /// The same numbers for a program.
    pub fn numbers(&self, queue: &QueueSetup, link: &str) -> Numbers {
        let (total, sojourn) = (self.tally.total(), &self.tally.delays().sojourn);
        let drops = total.drops().map(|(reason, count)| (reason.name(), count.packets));
        let [p50, p99, max] = sojourn.quantiles([500, 990, 1_000]).map(|ns| ns as f64 / 1e6);
        let span = self.last_end.since(self.first_arrival.unwrap_or_default()).as_nanos();
        Numbers {
            queue: queue.label.to_string(),
            link: link.to_owned(),
            packets: self.arrivals.packets,
            bytes: self.arrivals.bytes,
            sent: total.sent.packets,
            marked: total.marked_packets(),
            dropped: total.dropped_packets(),
            drops: drops.collect(),
            sojourn_p50_ms: p50,
            sojourn_p99_ms: p99,
            sojourn_max_ms: max,
            throughput_bit_per_s: (total.sent.bytes as f64 * 8e9 / span.max(1) as f64) as u64,
        }
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
