//! Parsing of the tools' outputs.

use std::fmt;

use anyhow::Context;
use serde_json::Value;

/// Round trips of one tool.
pub struct Latency {
    sent: usize,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl Latency {
    pub fn of_ping(text: &str) -> anyhow::Result<Self> {
        let round_trips = text.lines().filter_map(|line| {
            let (_, after) = line.split_once("time=")?;
            after.strip_suffix(" ms")?.parse().ok()
        });
        let summary = text.lines().find(|line| line.contains("packets transmitted"));
        let sent = summary.and_then(|line| line.split(' ').next()?.parse().ok());
        Self::among(sent.context("ping printed no summary")?, round_trips.collect())
    }

    pub fn of_irtt(text: &str) -> anyhow::Result<Self> {
        let document: Value = serde_json::from_str(text)?;
        let sent = document.pointer("/stats/packets_sent").and_then(Value::as_u64);
        let sent = usize::try_from(sent.context("no packets_sent")?)?;
        let trips = document.pointer("/round_trips").and_then(Value::as_array);
        let nanoseconds = |trip: &Value| trip.pointer("/delay/rtt").and_then(Value::as_f64);
        let trips = trips.context("no round_trips")?.iter().filter_map(nanoseconds);
        Self::among(sent, trips.map(|trip| trip / 1e6).collect())
    }

    fn among(sent: usize, mut round_trips_ms: Vec<f64>) -> anyhow::Result<Self> {
        round_trips_ms.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (round_trips_ms.len() * percent).div_ceil(100);
            round_trips_ms.get(rank.max(1) - 1).copied().context("no round trip")
        };
        Ok(Self { sent, p50_ms: at(50)?, p90_ms: at(90)?, p99_ms: at(99)? })
    }

    /// Returns the percentage of `planned` probes that were not sent.
    #[expect(clippy::cast_precision_loss, reason = "counts of probes are far below 2^52")]
    pub fn skipped_percent(&self, planned: usize) -> f64 {
        100.0 * planned.saturating_sub(self.sent) as f64 / planned as f64
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, p50_ms, p90_ms, p99_ms } = self;
        let digits = if *p50_ms < 1.0 { 4 } else { 1 };
        write!(
            formatter,
            "p50 {p50_ms:.digits$}, p90 {p90_ms:.digits$}, p99 {p99_ms:.digits$} ms ({sent} sent)"
        )
    }
}

/// A document of `underload measure --json`.
pub struct Ours {
    finding: Value,
    /// Why the run is invalid, as a remark; empty if it is valid.
    pub doubt: String,
}

impl Ours {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let document: Value = serde_json::from_str(text)?;
        let finding = document.pointer("/findings/0").context("no finding")?.clone();
        let valid = finding["valid"].as_bool() == Some(true);
        let doubt = if valid { "" } else { ", invalid by its own rules" };
        Ok(Self { finding, doubt: doubt.to_string() })
    }

    pub fn latency(&self, phase: &str) -> anyhow::Result<Latency> {
        let all = self.finding["latencies"].as_array().context("no latencies")?;
        let of_phase = |latency: &&Value| latency["window"]["phase"] == phase;
        let one = all.iter().find(of_phase).context("no such phase")?;
        let number = |name: &str| {
            let ns = one["distribution"][name].as_f64();
            ns.map(|ns| ns / 1e6).with_context(|| format!("no {name} in phase {phase}"))
        };
        let sent = usize::try_from(one["sent"].as_u64().context("no sent")?)?;
        Ok(Latency {
            sent,
            p50_ms: number("p50_ns")?,
            p90_ms: number("p90_ns")?,
            p99_ms: number("p99_ns")?,
        })
    }

    /// Returns the payload that arrived in the load phase, bit/s.
    pub fn goodput_bit_s(&self) -> anyhow::Result<f64> {
        let mbit_s = self.finding["goodput_up_mbit_s"].as_f64().context("no goodput")?;
        Ok(mbit_s * 1e6)
    }
}

/// Returns the payload that arrived by the document of iperf3, bit/s.
pub fn iperf3_bit_s(text: &str) -> anyhow::Result<f64> {
    let document: Value = serde_json::from_str(text)?;
    let end = &document["end"];
    let received = &end["sum_received"]["bits_per_second"];
    let udp = end["sum"]["lost_percent"].as_f64();
    let arrived = match udp {
        Some(lost) => {
            end["sum"]["bits_per_second"].as_f64().map(|sent| sent * (1.0 - lost / 100.0))
        }
        None => received.as_f64(),
    };
    arrived.with_context(|| format!("iperf3 says no rate: {text}"))
}
