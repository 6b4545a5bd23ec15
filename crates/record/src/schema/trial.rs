//! The record of one trial: one repeat of one variant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CeAlarm, Direction, Distribution, Finding, InsideLatency, Judged, LatencyHistogram,
    LatencyMeasure, PacketCount, PerDirection, Phase, PhaseWindow, Quantile, Sanction, Timeliness,
    Validity, is_zero,
};

/// Results of one variant in one repeat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Position in the run, from 0 and without gaps; samples and series refer to it.
    pub index: u32,
    /// [`super::VariantRecord::name`] of its variant.
    pub variant: String,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// Seed of the trial, not of the run.
    pub seed: u64,
    /// Values that a cohort drew for the trial, by the draw's name, as a scenario writes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    pub validity: Validity,
    /// Empty in the sim world.
    pub timeliness: Timeliness,
    /// The windows in order, not overlapping.
    pub phases: Vec<PhaseWindow>,
    /// Everything that sent packets, in scenario order.
    pub flows: Vec<FlowRecord>,
    /// Latency of each probe in each phase.
    pub latencies: Vec<LatencySummary>,
    /// Round trips of the loading TCP connections, per direction; empty without such a load, or if
    /// the sender's system does not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InsideLatency>,
    /// The summaries by bottleneck, direction and window.
    pub bottlenecks: Vec<BottleneckSummary>,
    /// Flows with too many congestion marks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ce_alarms: Vec<CeAlarm>,
    /// Results of a step of `underload measure`; `None` in other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Box<Finding>>,
}

/// Direction of a flow's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowDirection {
    #[default]
    Up,
    Down,
    /// Both directions: probes, calls.
    Both,
}

impl FlowDirection {
    /// Returns the directions that it includes.
    pub fn ways(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Unique in the trial, for example `bulk-0` or `probe`.
    pub name: String,
    /// `tcp`, `udp`, `probe`, `voip`, `web`, ...
    pub kind: String,
    /// Traffic class of the packets, for example `dscp 0` or `dscp 45 ect1`; empty if default.
    pub class: String,
    pub direction: FlowDirection,
    /// Congestion control and profile, for example `cubic`.
    pub congestion_control: Option<String>,
    /// Payload up during the load phase; `None` if not measured.
    pub goodput_up_bit_per_s: Option<u64>,
    /// Payload down during the load phase; `None` if not measured.
    pub goodput_down_bit_per_s: Option<u64>,
    /// Retransmitted segments of the whole trial; `None` if unknown.
    pub retransmits: Option<u64>,
    /// Rate at the IP layer below which an application of the simulator does not work; 0 in a
    /// direction in which it only takes longer. `None` for other flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_bit_per_s: Option<PerDirection<u64>>,
    /// Metrics of an application.
    pub metrics: Vec<Metric>,
}

/// A named number, for example `mos` 4.2 or `page_load` 1.31 `s`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metric {
    /// The name in snake case, without the unit.
    pub name: String,
    /// Unit as printed, for example `s`, `%`, `MOS`; empty for a plain count.
    pub unit: String,
    /// `None` (also written for NaN and infinities) if it is undefined.
    pub value: Option<f64>,
}

/// Latency of one probe in one phase of one trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// [`FlowRecord::name`] of the probe.
    pub probe: String,
    pub measure: LatencyMeasure,
    /// True for a request-response probe, whose percentiles hide load and are never a headline.
    pub closed_loop: bool,
    /// A sample belongs to the window in which it was scheduled to be sent.
    pub window: PhaseWindow,
    /// Probes sent in the window.
    pub sent: u64,
    /// Probes of the window without an answer.
    pub lost: u64,
    /// Delays of the answered probes; `None` if no probe was answered.
    pub distribution: Option<Distribution>,
    /// Quantiles of the round trips of all probes sent, where a lost probe counts as longer than
    /// every answer; `None` if the quantile falls on a lost probe. Empty if no probe was lost,
    /// since those of `distribution` are equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sent_ns: BTreeMap<Quantile, Option<i64>>,
    /// For a closed-loop probe: the distribution with each delay weighted by the time until the
    /// next probe was sent, so that every second of the window counts alike. `None` for open-loop
    /// probes, which need no weights.
    pub time_weighted: Option<Distribution>,
}

/// Counters and delays of one bottleneck in one window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BottleneckSummary {
    /// Name of the hop; empty if the path has only one.
    pub hop: String,
    pub direction: Direction,
    /// SPEC of the queue with its profile, for example `codel:profile=linux,target=5ms`.
    pub queue: String,
    /// SPEC of the link, for example `10mbit`.
    pub link: String,
    pub window: PhaseWindow,
    /// Offered to the queue.
    pub offered: PacketCount,
    /// Sent on the link.
    pub sent: PacketCount,
    /// Dropped, by the queue's name for the reason.
    pub drops: BTreeMap<String, PacketCount>,
    /// Packets marked CE, by the queue's name for the reason.
    pub marks: BTreeMap<String, u64>,
    /// Packets whose DSCP or ECN field a rule of the link changed, by the rule in the link's SPEC.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarked: BTreeMap<String, u64>,
    /// Flows whose packets queue protection moved to the classic queue, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanctions: Vec<Sanction>,
    /// Delay histogram of each service flow; empty if the queue has no histograms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_histograms: Vec<LatencyHistogram>,
    /// Sojourn time of the packets sent; `None` without any, and for Linux's own queues.
    pub sojourn: Option<Distribution>,
    /// Sojourn plus serialisation time; `None` for constant-rate links: size over rate.
    pub queuing_delay: Option<Distribution>,
    /// Bytes sent, over the window.
    pub throughput_bit_per_s: u64,
    /// Capacity of the link in the window; `None` if unknown.
    pub capacity_bit_per_s: Option<u64>,
    /// Packets that arrived while the queue's AQM slept and dropped nothing (RFC 8034, appendix A).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slept_packets: u64,
}

impl BottleneckSummary {
    pub fn dropped_packets(&self) -> u64 {
        self.drops.values().map(|count| count.packets).sum()
    }

    pub fn marked_packets(&self) -> u64 {
        self.marks.values().sum()
    }
}

impl TrialRecord {
    /// Returns the first probe of round trips that is sent on a schedule.
    pub fn headline_probe(&self) -> Option<&str> {
        LatencySummary::headline_probe(&self.latencies)
    }

    /// Returns the round trips of [`Self::headline_probe`] in a phase.
    pub fn headline(&self, phase: Phase) -> Option<&LatencySummary> {
        LatencySummary::headline(&self.latencies, phase)
    }
}

impl LatencySummary {
    fn headline_probe(all: &[Self]) -> Option<&str> {
        all.iter().find(|it| it.is_open_loop()).map(|it| it.probe.as_str())
    }

    /// Returns the round trips in a phase of the first probe that is sent on a schedule.
    pub(super) fn headline(all: &[Self], phase: Phase) -> Option<&Self> {
        let probe = Self::headline_probe(all)?;
        let is_wanted = |it: &&Self| it.probe == probe && it.window.phase == phase;
        all.iter().filter(|it| it.is_open_loop()).find(is_wanted)
    }

    /// Whether these are round trips of probes that are sent on a schedule, whatever comes back.
    pub fn is_open_loop(&self) -> bool {
        !self.closed_loop && self.measure == LatencyMeasure::RoundTrip
    }

    /// Returns the share of the probes that were lost, percent.
    pub fn lost_percent(&self) -> f64 {
        self.lost as f64 * 100.0 / self.sent.max(1) as f64
    }

    /// Returns a quantile of the answered probes, ns; `None` with too few answers.
    pub fn told_ns(&self, quantile: Quantile) -> Option<i64> {
        self.distribution?.told_ns(quantile)
    }

    /// Returns the highest known percentile of all probes sent above the median, by which a step is
    /// graded.
    pub fn highest_judged(&self) -> Option<(Quantile, Judged)> {
        let mut quantiles = Quantile::ABOVE_MEDIAN.into_iter();
        quantiles.find_map(|quantile| Some((quantile, self.judged(quantile)?)))
    }

    /// Returns the highest known percentile of the answered probes above the median, and its value,
    /// ns.
    pub fn highest_answered(&self) -> Option<(Quantile, i64)> {
        self.distribution?.highest_above_median()
    }

    /// Returns whether probes were sent and none of them was answered.
    pub fn is_all_lost(&self) -> bool {
        self.sent > 0 && self.lost == self.sent
    }

    /// Returns the quantile of all probes sent that judges the trial; `None` with too few answers,
    /// or with too few probes if the quantile falls on a lost one.
    pub fn judged(&self, quantile: Quantile) -> Option<Judged> {
        let judged = self.of_sent(quantile)?;
        let samples = match judged {
            Judged::Answered(_) => self.distribution?.count,
            Judged::Lost => self.sent,
        };
        quantile.is_told_by(samples).then_some(judged)
    }

    /// Returns the quantile of all probes sent, however few; `None` without such a delay.
    pub fn of_sent(&self, quantile: Quantile) -> Option<Judged> {
        if self.is_all_lost() {
            return Some(Judged::Lost);
        }
        let answered_ns = quantile.of(&self.distribution?);
        Some(Judged::new(quantile, answered_ns, (self.sent, self.lost), &self.of_sent_ns))
    }
}
