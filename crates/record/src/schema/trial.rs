//! One trial: one arm, one repeat.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CeAlarm, Finding, Timeliness, Validity};

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

/// A part of a trial.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No load, only probes: the phase of idle latency.
    #[default]
    Idle,
    /// The load is starting; its samples count for nothing.
    Ramp,
    /// The load is steady: working latency.
    Load,
    /// The load has ended and queues empty.
    Drain,
    /// The whole trial: only of links, in live runs of earlier versions.
    Whole,
}

impl Phase {
    /// The name used in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Ramp => "ramp",
            Phase::Load => "load",
            Phase::Drain => "drain",
            Phase::Whole => "whole",
        }
    }

    /// The phase of that name.
    pub fn from_name(name: &str) -> Option<Phase> {
        [Phase::Idle, Phase::Ramp, Phase::Load, Phase::Drain, Phase::Whole]
            .into_iter()
            .find(|phase| phase.name() == name)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// When a phase ran: `start_ns <= t < end_ns`, since the start of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseWindow {
    /// The phase that the window belongs to.
    pub phase: Phase,
    /// First instant inside, ns.
    pub start_ns: u64,
    /// First instant after, ns.
    pub end_ns: u64,
}

impl PhaseWindow {
    /// Its length, ns; 0 if it ends before it starts.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether the instant lies inside.
    pub fn contains(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && time_ns < self.end_ns
    }
}

/// A direction of the path, seen from the client.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Upstream: from the client to the server.
    #[default]
    Up,
    /// Downstream: from the server to the client.
    Down,
}

impl Direction {
    /// The name used in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }

    /// The other one.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
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

/// The delay that a latency summary is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyMeasure {
    /// The round trip.
    #[default]
    RoundTrip,
    /// Client to server. Depends on both clocks in the measured world.
    OneWayUp,
    /// Server to client. Depends on both clocks in the measured world.
    OneWayDown,
}

impl LatencyMeasure {
    /// Short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            LatencyMeasure::RoundTrip => "round trip",
            LatencyMeasure::OneWayUp => "one way up",
            LatencyMeasure::OneWayDown => "one way down",
        }
    }
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
    /// For a closed-loop probe: the same with each delay weighted by the time until the next probe
    /// was sent, which is what a clock watching the line would have seen. `None` for open-loop
    /// probes, which need no weights.
    #[serde(default)]
    pub time_weighted: Option<Distribution>,
}

/// Quantiles of `count` delays, ns. Quantile q is the nearest-rank one: the smallest value with at
/// least `q * count` values at or below it.
///
/// Only one-way delays can be negative: where the two ends' clocks differ by more than the path
/// takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values, at least 1.
    pub count: u64,
    /// Smallest, ns.
    pub min_ns: i64,
    /// Median, ns.
    pub p50_ns: i64,
    /// 90th percentile, ns.
    pub p90_ns: i64,
    /// 95th percentile, ns.
    pub p95_ns: i64,
    /// 99th percentile, ns.
    pub p99_ns: i64,
    /// 99.9th percentile, ns.
    pub p999_ns: i64,
    /// Largest, ns.
    pub max_ns: i64,
    /// Arithmetic mean, rounded down, ns.
    pub mean_ns: i64,
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

/// A flow that queue protection (RFC 9957) sent away from the low latency queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sanction {
    /// [`FlowRecord::name`] where the run knows it, else a number of the flow; `others` stands for
    /// all flows beyond the first 1024.
    pub flow: String,
    /// Its packets that were sent to the classic queue.
    pub packets: u64,
    /// When the first of them was, ns.
    pub first_ns: u64,
    /// When the last of them was, ns.
    pub last_ns: u64,
    /// The highest score that the flow had then, as the time in which it drains, ns.
    pub highest_score_ns: u64,
}

/// The histogram of a service flow's delays (DOCSIS TLV 40.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// `low-latency` or `classic`.
    pub service_flow: String,
    /// Edges between the bins, rising, ns.
    pub edges_ns: Vec<u64>,
    /// Packets sent per bin, one bin more than edges: below the first edge, from each edge up to
    /// the next, from the last one on.
    pub packets: Vec<u64>,
}

impl LatencyHistogram {
    /// Adds the counts of another trial; of other bins, none.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.edges_ns == other.edges_ns {
            let counts = self.packets.iter_mut().zip(&other.packets);
            counts.for_each(|(count, more)| *count = count.saturating_add(*more));
        }
    }
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Bytes, with the link's overhead where the link counts it.
    pub bytes: u64,
}
