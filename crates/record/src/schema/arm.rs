//! What the valid trials of one arm say together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats;

use super::{
    Direction, Distribution, LatencyHistogram, LatencyMeasure, PacketCount, Phase, Quantile,
    Sanction,
};

/// Results of one arm, over all its valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmSummary {
    /// [`super::ArmRecord::name`].
    pub arm: String,
    /// Trials that count.
    pub trials_valid: u32,
    /// Trials left out because the machine was late.
    pub trials_invalid: u32,
    /// Latency per probe, measure and phase.
    pub latencies: Vec<ArmLatency>,
    /// Rates per direction, in the load phase where the trial has one.
    pub throughputs: Vec<ArmThroughput>,
    /// Queues per hop and direction.
    pub bottlenecks: Vec<ArmBottleneck>,
    /// Application numbers, per flow.
    pub metrics: Vec<ArmMetric>,
}

/// Latency of one probe in one phase, over an arm's valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmLatency {
    /// The probe's flow name.
    pub probe: String,
    /// The delay that is summarised.
    pub measure: LatencyMeasure,
    /// True for a request-response probe.
    pub closed_loop: bool,
    /// Phase.
    pub phase: Phase,
    /// Length of the phase's windows added up, ns.
    pub window_ns: u64,
    /// Probes sent.
    pub sent: u64,
    /// Probes lost.
    pub lost: u64,
    /// All samples of all trials as one; `None` when none came back.
    pub pooled: Option<Distribution>,
    /// Quantiles of the round trips of all probes sent, ns, see
    /// [`super::LatencySummary::of_sent_ns`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sent_ns: BTreeMap<Quantile, Option<i64>>,
    /// Each statistic over repeats, in ns; empty with no trial.
    pub over_repeats: BTreeMap<Quantile, Interval>,
    /// For a closed-loop probe: each time-weighted statistic over repeats, in ns; else empty.
    #[serde(default)]
    pub time_weighted: BTreeMap<Quantile, Interval>,
}

/// A quantile of all probes sent, by which steps, arms and lines are judged: a lost probe is longer
/// than every answer, so a queue that drops does not do better than one that delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judged {
    /// An answered probe, ns.
    Answered(i64),
    /// The quantile falls on a lost probe.
    Lost,
}

impl Judged {
    /// The quantile of all probes `sent`, of which `lost` were lost. Where `of_sent_ns` lacks it,
    /// it is that of the answered probes, unless it is a lost one: earlier versions did not record
    /// it, and the largest and the mean are of answered probes.
    pub fn new(
        quantile: Quantile,
        answered_ns: i64,
        (sent, lost): (u64, u64),
        of_sent_ns: &BTreeMap<Quantile, Option<i64>>,
    ) -> Self {
        let is_lost = |share| stats::rank(sent as usize, share) as u64 > sent.saturating_sub(lost);
        match of_sent_ns.get(&quantile) {
            Some(known) => known.map_or(Self::Lost, Self::Answered),
            None if quantile.share().is_some_and(is_lost) => Self::Lost,
            None => Self::Answered(answered_ns),
        }
    }

    /// As a number, ns: infinite for a lost probe.
    pub fn as_ns(self) -> f64 {
        match self {
            Self::Answered(ns) => ns as f64,
            Self::Lost => f64::INFINITY,
        }
    }
}

/// A mean over repeats and where the true one lies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Mean over the repeats.
    pub mean: f64,
    /// Lower end of the interval (Student's t); `None` with fewer than two repeats.
    pub low: Option<f64>,
    /// Upper end of the interval; `None` with fewer than two repeats.
    pub high: Option<f64>,
    /// Confidence level, for example 0.95.
    pub confidence: f64,
    /// Repeats behind it.
    pub repeats: u32,
}

/// Throughput of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmThroughput {
    /// Direction.
    pub direction: Direction,
    /// Payload of all flows, bit/s, over repeats; `None` when no flow reported it.
    pub goodput_bit_per_s: Option<Interval>,
    /// Sent by the last bottleneck of the direction, bit/s, over repeats; `None` without one.
    pub link_bit_per_s: Option<Interval>,
    /// Share of that link's capacity, percent, over repeats; `None` when it is unknown.
    pub utilisation_percent: Option<Interval>,
    /// Jain's index over the goodput of the bulk flows, 1/n to 1; `None` with fewer than two flows.
    pub jain_index: Option<Interval>,
    /// Goodput of the first entry with bulk flows over that of each further one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<ArmRatio>,
}

/// What one entry's bulk flows got over what another's did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmRatio {
    /// Name of the entry.
    pub flow: String,
    /// Name of the entry that it is divided by.
    pub over: String,
    /// Ratio of their goodput in each trial, over repeats.
    pub value: Interval,
}

/// What a queue did, over an arm's valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmBottleneck {
    /// Name of the hop, empty when there is one.
    #[serde(default)]
    pub hop: String,
    /// Direction.
    pub direction: Direction,
    /// Phase of the counters.
    pub phase: Phase,
    /// Queue with its profile, as a SPEC string.
    pub queue: String,
    /// Link, as a SPEC string.
    pub link: String,
    /// Offered to the queue, all trials.
    pub offered: PacketCount,
    /// Sent on the link, all trials.
    pub sent: PacketCount,
    /// Dropped by reason, all trials.
    pub drops: BTreeMap<String, PacketCount>,
    /// Marked by reason, all trials; packets.
    pub marks: BTreeMap<String, u64>,
    /// Changed by each rule of the link, all trials; packets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarked: BTreeMap<String, u64>,
    /// Flows that queue protection sent away, by name: packets of all trials, first and last time
    /// and highest score of any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanctions: Vec<Sanction>,
    /// Delays of each service flow as a DOCSIS device counts them, all trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_histograms: Vec<LatencyHistogram>,
    /// Sent by the link, bit/s, over repeats.
    #[serde(default)]
    pub link_bit_per_s: Option<Interval>,
    /// Share of the link's capacity, percent, over repeats; `None` when it is unknown.
    #[serde(default)]
    pub utilisation_percent: Option<Interval>,
    /// Sojourn over repeats, ns: each statistic is that of a trial, and its mean over the trials.
    pub sojourn: BTreeMap<Quantile, Interval>,
    /// Sojourn and own transmission likewise, where the trials have it.
    #[serde(default)]
    pub queuing_delay: BTreeMap<Quantile, Interval>,
}

impl ArmBottleneck {
    /// Packets dropped for any reason.
    pub fn dropped_packets(&self) -> u64 {
        self.drops.values().map(|count| count.packets).sum()
    }

    /// Packets marked for any reason.
    pub fn marked_packets(&self) -> u64 {
        self.marks.values().sum()
    }
}

/// An application's number over repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArmMetric {
    /// Flow.
    pub flow: String,
    /// Name of the metric.
    pub name: String,
    /// Unit of the value.
    pub unit: String,
    /// Over repeats.
    pub value: Interval,
}
