//! One trial: one arm, one repeat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CeAlarm, Direction, Distribution, Finding, Judged, LatencyHistogram, LatencyMeasure,
    PacketCount, PhaseWindow, Quantile, Sanction, Timeliness, Validity,
};

/// Results of one arm in one repeat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Position in the run, from 0 and without gaps; samples and series refer to it.
    pub index: u32,
    /// [`super::ArmRecord::name`] of the arm.
    pub arm: String,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// The trial's own seed.
    pub seed: u64,
    /// What a cohort drew for it, by the draw's name, as a scenario writes it; empty without one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    /// Whether its numbers may be believed.
    pub validity: Validity,
    /// How well the machine kept time; all empty in the sim world.
    pub timeliness: Timeliness,
    /// When each phase ran; in order, not overlapping.
    pub phases: Vec<PhaseWindow>,
    /// Everything that sent packets, in scenario order.
    pub flows: Vec<FlowRecord>,
    /// Latency of each probe in each phase.
    pub latencies: Vec<LatencySummary>,
    /// What each bottleneck did, per direction and window.
    pub bottlenecks: Vec<BottleneckSummary>,
    /// Flows with too many congestion marks; left out where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ce_alarms: Vec<CeAlarm>,
    /// What a step of `underload measure` found; left out of other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Box<Finding>>,
}

/// Direction of a flow's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowDirection {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
    /// Both ways: probes, calls.
    Both,
}

impl FlowDirection {
    /// Each direction that it includes.
    pub fn ways(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }
}

/// A flow and what it got.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Unique in the trial, for example `bulk-0` or `probe`.
    pub name: String,
    /// What it is: `tcp`, `udp`, `probe`, `voip`, `web`, `exec`, ...
    pub kind: String,
    /// Traffic class it asked for, for example `dscp 0` or `dscp 45 ect1`; empty when default.
    #[serde(default)]
    pub class: String,
    /// Direction of the flow's payload.
    pub direction: FlowDirection,
    /// Congestion control and profile, for example `cubic`; `None` if it has none.
    pub congestion_control: Option<String>,
    /// Payload delivered per second up during the load phase, bit/s; `None` if not measured.
    pub goodput_up_bit_per_s: Option<u64>,
    /// Payload delivered per second down during the load phase, bit/s; `None` if not measured.
    pub goodput_down_bit_per_s: Option<u64>,
    /// Segments sent again over the whole trial; `None` if not known.
    pub retransmits: Option<u64>,
    /// Numbers in the terms of the application's users.
    #[serde(default)]
    pub metrics: Vec<Metric>,
}

/// A named number, for example `mos` 4.2 or `page_load` 1.31 `s`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metric {
    /// What it counts, in snake case without the unit.
    pub name: String,
    /// Its unit as printed, for example `s`, `%`, `MOS`; empty for a plain count.
    pub unit: String,
    /// The value; `None` (also written for NaN and infinities) when it is undefined.
    pub value: Option<f64>,
}

/// Latency of one probe in one phase of one trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// [`FlowRecord::name`] of the probe.
    pub probe: String,
    /// The delay that is summarised.
    pub measure: LatencyMeasure,
    /// True for a request-response probe, whose percentiles hide load and are never a headline.
    pub closed_loop: bool,
    /// Phase and window; a sample belongs where it was scheduled to be sent.
    pub window: PhaseWindow,
    /// Probes sent in the window.
    pub sent: u64,
    /// Probes of these that never came back.
    pub lost: u64,
    /// The delays of those that did; `None` when none did.
    pub distribution: Option<Distribution>,
    /// Quantiles of the round trips of all probes sent, ns, of which a lost one is longer than
    /// every answer: `None` where the quantile is a lost probe. Empty where no probe was lost,
    /// since those of `distribution` are the same, and where a run did not record it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sent_ns: BTreeMap<Quantile, Option<i64>>,
    /// For a closed-loop probe: the same with each delay weighted by the time until the next probe
    /// was sent, which is what a clock watching the line would have seen. `None` for open-loop
    /// probes, which need no weights.
    #[serde(default)]
    pub time_weighted: Option<Distribution>,
}

/// What one bottleneck did to one direction in one window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BottleneckSummary {
    /// Name of the hop when a path has several, else empty.
    #[serde(default)]
    pub hop: String,
    /// Direction of the link.
    pub direction: Direction,
    /// The queue as a SPEC string with its profile, for example `codel:profile=linux,target=5ms`.
    pub queue: String,
    /// The link as a SPEC string, for example `10mbit`.
    pub link: String,
    /// The window that the counters cover.
    pub window: PhaseWindow,
    /// Offered to the queue.
    pub offered: PacketCount,
    /// Sent on the link.
    pub sent: PacketCount,
    /// Dropped, by reason as the queue names it.
    pub drops: BTreeMap<String, PacketCount>,
    /// Marked CE, by reason as the queue names it; packets.
    pub marks: BTreeMap<String, u64>,
    /// Packets whose DSCP or ECN field each rule of the link changed, by the rule as the link's
    /// SPEC has it; empty without rules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarked: BTreeMap<String, u64>,
    /// Flows whose packets queue protection sent from the low latency queue to the classic one, by
    /// name; empty where it sent none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanctions: Vec<Sanction>,
    /// Delays of each service flow as a DOCSIS device counts them; empty where the queue keeps no
    /// histogram.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_histograms: Vec<LatencyHistogram>,
    /// Sojourn of the packets sent; `None` when none was.
    pub sojourn: Option<Distribution>,
    /// Sojourn and the packet's own transmission of the same packets. `None` where the link's rate
    /// is constant, and transmission is size over rate.
    #[serde(default)]
    pub queuing_delay: Option<Distribution>,
    /// Sent bytes over the window, bit/s.
    pub throughput_bit_per_s: u64,
    /// What the link could have carried in the window, bit/s; `None` if it is not known.
    pub capacity_bit_per_s: Option<u64>,
}

impl BottleneckSummary {
    /// Packets dropped for any reason.
    pub fn dropped_packets(&self) -> u64 {
        self.drops.values().map(|count| count.packets).sum()
    }

    /// Packets marked for any reason.
    pub fn marked_packets(&self) -> u64 {
        self.marks.values().sum()
    }
}

impl LatencySummary {
    /// The quantile of all probes sent by which a trial is judged; `None` where it has too few
    /// samples.
    pub fn judged(&self, quantile: Quantile) -> Option<Judged> {
        self.distribution?.told_ns(quantile)?;
        self.of_sent(quantile)
    }

    /// Returns the quantile of all probes sent, regardless of the number of samples; `None` if no
    /// probe was answered.
    pub fn of_sent(&self, quantile: Quantile) -> Option<Judged> {
        let answered_ns = quantile.of(&self.distribution?);
        Some(Judged::new(quantile, answered_ns, (self.sent, self.lost), &self.of_sent_ns))
    }
}
