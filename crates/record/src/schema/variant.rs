//! The summary of the valid trials of one variant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::judgement::Suitability;
use crate::stats;

use super::{
    Direction, Distribution, LatencyHistogram, LatencyMeasure, PacketCount, Phase, Quantile,
    Sanction, is_zero,
};

/// Results of one variant, over all its valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantSummary {
    pub variant: String,
    pub trials_valid: u32,
    /// Trials excluded because they are invalid.
    pub trials_invalid: u32,
    pub latencies: Vec<VariantLatency>,
    /// Round trips inside the load, per direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<VariantInside>,
    /// Rates per direction, in the load phase if the trial has one.
    pub throughputs: Vec<VariantThroughput>,
    pub bottlenecks: Vec<VariantBottleneck>,
    pub metrics: Vec<VariantMetric>,
}

/// Latency of one probe in one phase, over a variant's valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantLatency {
    pub probe: String,
    pub measure: LatencyMeasure,
    /// True for a request-response probe.
    pub closed_loop: bool,
    pub phase: Phase,
    /// Sum of the lengths of the phase's windows, ns.
    pub window_ns: u64,
    pub sent: u64,
    pub lost: u64,
    /// Trials in which every probe was lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trials_all_lost: u32,
    /// Distribution of the samples of all trials together; `None` if no probe was answered.
    pub pooled: Option<Distribution>,
    /// Quantiles of the round trips of all probes sent, ns, see
    /// [`super::LatencySummary::of_sent_ns`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sent_ns: BTreeMap<Quantile, Option<i64>>,
    /// Each statistic over repeats, in ns; empty without a trial, and if [`Self::trials_all_lost`]
    /// is not 0: such a trial has no statistic and is worse than all others.
    pub over_repeats: BTreeMap<Quantile, Interval>,
    /// For a closed-loop probe: each time-weighted statistic over repeats, in ns; else empty.
    pub time_weighted: BTreeMap<Quantile, Interval>,
}

/// Round trips of the TCP connections that load one direction, over a variant's valid trials. Their
/// values are not stored, so the quantiles are means over trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantInside {
    /// Direction of the payload.
    pub direction: Direction,
    /// Values of all trials, see [`super::InsideLatency`].
    pub values: u64,
    /// Each statistic of the trials, ns, over repeats.
    pub over_repeats: BTreeMap<Quantile, Interval>,
}

impl VariantInside {
    /// Returns a statistic over the trials if each of them has about enough values for it.
    pub fn told_over_repeats(&self, quantile: Quantile) -> Option<&Interval> {
        let interval = self.over_repeats.get(&quantile)?;
        let per_trial = self.values / u64::from(interval.repeats.max(1));
        quantile.is_told_by(per_trial).then_some(interval)
    }
}

/// A quantile of all probes sent, by which steps, variants and lines are judged. A lost probe counts as
/// longer than every answer, so a queue that drops does not rank above one that delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judged {
    Answered(i64),
    /// The quantile falls on a lost probe.
    Lost,
}

impl Judged {
    /// Returns the quantile of all probes `sent`, of which `lost` were lost. If `of_sent_ns` lacks
    /// the quantile, it is `answered_ns` unless it falls on a lost probe: no probe was lost, or it is
    /// maximum or mean, which exist for answered probes only.
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

    /// Returns the quantile in ns; `None` for a lost probe.
    pub fn answered_ns(self) -> Option<i64> {
        match self {
            Self::Answered(ns) => Some(ns),
            Self::Lost => None,
        }
    }

    /// Returns the quantile in ns; infinite for a lost probe.
    pub fn as_ns(self) -> f64 {
        match self {
            Self::Answered(ns) => ns as f64,
            Self::Lost => f64::INFINITY,
        }
    }
}

/// A mean over repeats with its interval, see [`crate::stats::mean_interval`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    pub mean: f64,
    /// `None` with fewer than five repeats.
    pub low: Option<f64>,
    /// `None` with fewer than five repeats.
    pub high: Option<f64>,
    /// Confidence that the interval reaches, for example 0.95.
    pub confidence: f64,
    pub repeats: u32,
}

/// Throughput of one direction, over repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantThroughput {
    pub direction: Direction,
    /// Payload of all flows, bit/s; `None` if no flow reported it.
    pub goodput_bit_per_s: Option<Interval>,
    /// Rate of the last bottleneck link of the direction, bit/s; `None` without one, or if its
    /// capacity in the window is less than 20 packets.
    pub link_bit_per_s: Option<Interval>,
    /// Share of the capacity of that link, percent; `None` without its rate, or if the capacity is
    /// unknown.
    pub utilisation_percent: Option<Interval>,
    /// Jain's index over the goodput of the bulk flows, 1/n to 1; `None` with fewer than two flows.
    pub jain_index: Option<Interval>,
    /// Goodput of the first entry with bulk flows over that of each further one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<VariantRatio>,
}

/// Goodput of the bulk flows of entry `flow` divided by that of entry `over`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantRatio {
    pub flow: String,
    pub over: String,
    /// Mean over repeats of the ratio in each trial.
    pub value: Interval,
}

/// Counters and delays of a queue, over a variant's valid trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantBottleneck {
    /// Name of the hop; empty if the path has only one.
    pub hop: String,
    pub direction: Direction,
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
    /// Packets marked by reason, all trials.
    pub marks: BTreeMap<String, u64>,
    /// Packets changed by each rule of the link, all trials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarked: BTreeMap<String, u64>,
    /// Flows that queue protection redirected, by name: the sum of packets over all trials, the
    /// earliest first time, the latest last time and the highest score.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanctions: Vec<Sanction>,
    /// Delay histogram of each service flow, all trials; several if the trials' bins differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_histograms: Vec<LatencyHistogram>,
    /// Rate of the link, bit/s, over repeats; `None` if its capacity in the phase is less than 20
    /// packets.
    pub link_bit_per_s: Option<Interval>,
    /// Share of the link's capacity, percent, over repeats; `None` without its rate, or if the
    /// capacity is unknown.
    pub utilisation_percent: Option<Interval>,
    /// Each statistic of the trials' sojourn times, ns, over repeats.
    pub sojourn: BTreeMap<Quantile, Interval>,
    /// Each statistic of sojourn time plus serialisation time, if the trials have it.
    pub queuing_delay: BTreeMap<Quantile, Interval>,
}

impl VariantBottleneck {
    pub fn dropped_packets(&self) -> u64 {
        self.drops.values().map(|count| count.packets).sum()
    }

    pub fn marked_packets(&self) -> u64 {
        self.marks.values().sum()
    }
}

/// A metric of an application, over repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VariantMetric {
    pub flow: String,
    pub name: String,
    pub unit: String,
    pub value: Interval,
    /// The largest value of a trial.
    pub largest: f64,
    /// How well the value suits the use, by [`suitability`](crate::judgement::suitability); `None` for
    /// numbers without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suits: Option<Suitability>,
}

impl VariantMetric {
    /// Returns the value of the variant: of a maximum the largest of all trials, else the mean over
    /// trials.
    pub fn of_variant(&self) -> f64 {
        if self.name.ends_with("_max") { self.largest } else { self.value.mean }
    }
}
