//! The fate of each packet as CSV, and a summary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use underload_aqm::registry::QueueSetup;
use underload_run::replay::{Replay, Settled};

pub const HEADER: &str = "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn";

pub fn write_row(output: &mut impl Write, row: &Settled) -> io::Result<()> {
    let (fate, reason) = (row.fate.name(), row.fate.reason());
    write!(output, "{},{},{fate},{reason},", row.id, row.arrival.as_nanos())?;
    if let (Some((start, end)), Some(sojourn)) = (row.transmission, row.sojourn()) {
        write!(output, "{},{},{}", start.as_nanos(), end.as_nanos(), sojourn.as_nanos())?;
    } else {
        write!(output, ",,")?;
    }
    writeln!(output, ",{}", row.ecn.name())
}

#[derive(Debug, Clone, Serialize)]
pub struct Numbers {
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
    /// `None` for a burst that arrives and leaves at one instant.
    pub throughput_bit_per_s: Option<u64>,
}

/// Returns a summary of one screen.
pub fn summary(replay: &Replay, queue: &QueueSetup, link: &str, rules: &[String]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let (tally, arrivals) = (replay.tally(), replay.arrivals());
    let (total, numbers) = (tally.total(), numbers(replay, queue, link));
    let share = |packets: u64| {
        let percent = 100.0 * packets as f64 / arrivals.packets.max(1) as f64;
        format!("{packets} ({percent:.2} %)")
    };
    line("queue", numbers.queue);
    line("link", numbers.link);
    line("packets", format!("{} ({} bytes)", numbers.packets, numbers.bytes));
    line("sent", share(numbers.sent));
    line("marked", share(numbers.marked));
    for (rule, changed) in rules.iter().zip(total.remarks()) {
        line("remarked", share(*changed) + " by " + rule);
    }
    let reasons: Vec<String> = total
        .drops()
        .map(|(reason, count)| format!("{} {}", reason.name(), count.packets))
        .collect();
    let detail =
        if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    line("dropped", share(numbers.dropped) + &detail);
    let Numbers { sojourn_p50_ms: p50, sojourn_p99_ms: p99, sojourn_max_ms: max, .. } = numbers;
    line("sojourn", format!("p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"));
    let (flows, packets) = tally
        .sanctions()
        .flows()
        .fold((0, 0), |(flows, packets), one| (flows + 1, packets + one.1.packets));
    if packets > 0 {
        line("redirected", format!("{} of {flows} flows, by queue protection", share(packets)));
    }
    for (side, edges) in queue.latency_bins() {
        let names = edges.spans().map(|edge| format!("to {edge}")).chain(["more".to_owned()]);
        let bins = names.zip(total.bins()[side as usize]);
        let bins: Vec<String> = bins.map(|(name, count)| format!("{name}: {count}")).collect();
        line(side.name(), bins.join(", "));
    }
    line("senders", "do not react: packets arrive as recorded (open loop)".to_owned());
    if let Some(rate) = replay.throughput_bit_per_s() {
        line("throughput", format!("{:.3} Mbit/s, link-layer overhead included", rate / 1e6));
    }
    text
}

pub fn numbers(replay: &Replay, queue: &QueueSetup, link: &str) -> Numbers {
    let (tally, arrivals) = (replay.tally(), replay.arrivals());
    let (total, sojourn) = (tally.total(), &tally.delays().sojourn);
    let drops = total.drops().map(|(reason, count)| (reason.name(), count.packets));
    let [p50, p99, max] = sojourn.quantiles([500, 990, 1_000]).map(|ns| ns as f64 / 1e6);
    Numbers {
        queue: queue.label.to_string(),
        link: link.to_owned(),
        packets: arrivals.packets,
        bytes: arrivals.bytes,
        sent: total.sent.packets,
        marked: total.marked_packets(),
        dropped: total.dropped_packets(),
        drops: drops.collect(),
        sojourn_p50_ms: p50,
        sojourn_p99_ms: p99,
        sojourn_max_ms: max,
        throughput_bit_per_s: replay.throughput_bit_per_s().map(|rate| rate as u64),
    }
}
