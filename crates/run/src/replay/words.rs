//! The result of a replay in words: a summary of one queue, and a table of several.

use std::fmt::Write as _;

use underload_aqm::packet::Dscp;
use underload_aqm::registry::QueueSetup;

use super::{Replay, Summary};

/// Returns a summary of one screen. `rules` are the names of the link's rules for remarking.
pub fn text(replay: &Replay, queue: &QueueSetup, rules: &[String], summary: &Summary) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let tally = replay.tally();
    let share = |packets: u64| {
        let percent = 100.0 * packets as f64 / summary.packets.max(1) as f64;
        format!("{packets} ({percent:.2} %)")
    };
    line("queue", summary.queue.clone());
    line("link", summary.link.clone());
    line("packets", format!("{} ({} bytes)", summary.packets, summary.bytes));
    if summary.markings.iter().any(|it| it.tos != 0) {
        for (row, it) in summary.markings.iter().enumerate() {
            let nqb = if it.dscp == Dscp::NON_QUEUE_BUILDING.value() { " (NQB)" } else { "" };
            let value = format!("tos 0x{:02x} = DSCP {}{nqb}, {}: ", it.tos, it.dscp, it.ecn);
            line(if row == 0 { "markings" } else { "" }, value + &share(it.packets));
        }
    }
    line("sent", share(summary.sent));
    line("marked", share(summary.marked));
    for (rule, changed) in rules.iter().zip(tally.total().remarks()) {
        line("remarked", share(*changed) + " by " + rule);
    }
    let reasons = tally.total().drops();
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{} {}", reason.name(), count.packets)).collect();
    let separator = if reasons.is_empty() { "" } else { ": " };
    line("dropped", share(summary.dropped) + separator + &reasons.join(", "));
    let Summary { sojourn_p50_ms: p50, sojourn_p99_ms: p99, sojourn_max_ms: max, .. } = summary;
    line("sojourn", format!("p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"));
    let redirected: u64 = tally.sanctions().flows().map(|(_, count)| count.packets).sum();
    if redirected > 0 {
        let flows = tally.sanctions().flows().count();
        line("redirected", format!("{} of {flows} flows, by queue protection", share(redirected)));
    }
    for (side, edges) in queue.latency_bins() {
        let names = edges.spans().map(|edge| format!("to {edge}")).chain(["more".to_owned()]);
        let bins = names.zip(tally.total().bins()[side as usize]);
        let bins: Vec<String> = bins.map(|(name, count)| format!("{name}: {count}")).collect();
        line(side.name(), bins.join(", "));
    }
    line("senders", "do not react: packets arrive as recorded (open loop)".to_owned());
    if let Some(rate) = summary.throughput_bit_per_s {
        let rate = rate as f64 / 1e6;
        line("throughput", format!("{rate:.3} Mbit/s, link-layer overhead included"));
    }
    text
}

/// Returns a table with a row for each queue.
pub fn table(summaries: &[Summary]) -> String {
    let width = summaries.iter().map(|it| it.queue.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8}\n",
        "queue", "packets", "sent", "marked", "dropped", "p50 ms", "p99 ms", "Mbit/s"
    );
    for it in summaries {
        let rate = it.throughput_bit_per_s.map(|rate| format!("{:.3}", rate as f64 / 1e6));
        let _ = writeln!(
            text,
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9.3}  {:>9.3}  {:>8}",
            it.queue,
            it.packets,
            it.sent,
            it.marked,
            it.dropped,
            it.sojourn_p50_ms,
            it.sojourn_p99_ms,
            rate.as_deref().unwrap_or("-")
        );
    }
    text + "p50 and p99: sojourn in the queue. Senders do not react: packets arrive as recorded.\n"
}
