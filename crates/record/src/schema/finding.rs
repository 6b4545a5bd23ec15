//! The results of one step of a measurement of a real line.

use serde::{Deserialize, Serialize};

use super::{CeAlarm, Distribution, InsideLatency, LatencySummary, Location, Phase, Vantage};

/// The results of one step of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Finding {
    /// Name of the step and of its variant: `down`, `up`, `loaded`.
    pub step: String,
    /// Description of the step in a few words.
    pub label: String,
    /// Whether the measuring machine kept its schedule well enough.
    pub valid: bool,
    /// Why the step is invalid; empty if it is valid.
    pub invalid_because: Vec<String>,
    /// Whether the step is invalid only because the measuring machine was too busy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// Latency of each class, idle and under load.
    pub latencies: Vec<LatencySummary>,
    /// Round trips of the loading TCP connections, per direction; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InsideLatency>,
    /// Why [`Self::inside`] is empty although TCP loaded the line, as the end of a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_unknown: Option<String>,
    /// Segments of the path, with the delay that the load adds in each; `None` without `--where`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Box<Location>>,
    /// Payload up in the load phase; `None` without a load up.
    pub goodput_up_mbit_s: Option<f64>,
    /// Payload down in the load phase; `None` without a load down.
    pub goodput_down_mbit_s: Option<f64>,
    /// Goodput up as a share of the line's sold rate.
    pub tier_up_percent: Option<f64>,
    /// Goodput down as a share of the line's sold rate.
    pub tier_down_percent: Option<f64>,
    /// Size of a plain buffer in front of the bottleneck, KiB: the delay that the load added at
    /// p99, when the buffer is full, times the rate. `None` if the load went both ways, added
    /// almost no delay or did not fill the line, or if there are too few samples for a p99.
    pub buffer_kib: Option<f64>,
    /// 99th percentile of the server's own time for an answer, which is in no delay; `None` if the
    /// server did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ns: Option<i64>,
    /// How long the delay outlasts the load; `None` if the first probe after the load is not late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Bytes of IP packets that load and probes moved in both directions, estimated from their
    /// payload.
    pub moved_bytes: u64,
    /// Whether the load phase ended early because the bytes that it may move were spent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub budget_spent: bool,
    /// Round trips per minute under load.
    pub rpm: Option<Rpm>,
    /// How the path changed the marking of each class.
    pub markings: Vec<MarkingFate>,
    /// How far the server's clock was ahead; one-way delays are corrected by this.
    pub clock_offset_ns: Option<i64>,
    /// Bound of the error of `clock_offset_ns`.
    pub clock_error_ns: Option<u64>,
    /// Flows with too many congestion marks.
    pub ce_alarms: Vec<CeAlarm>,
    /// The server's rate limit, not the line, limited the load up.
    pub throttled_up: bool,
    /// The server's rate limit, not the line, limited the load down.
    pub throttled_down: bool,
    /// The load up had a fixed rate (`--udp`), and almost all arrived: the line may carry more.
    pub capped_up: bool,
    /// As `capped_up`, for the load down.
    pub capped_down: bool,
    /// Results of a test against a foreign server without probes; `None` for `underload serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Box<ForeignTest>>,
    /// The quantities that a test of another tool does not measure. Empty for a test of our own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cannot_tell: Vec<Unmeasured>,
}

underload_aqm::named! {
    /// A quantity that a test of another tool does not measure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Unmeasured {
        OtherTraffic = "the delay of other traffic",
        OwnPackets = "the delay of the load's own packets",
        Losses = "lost packets",
        OneWay = "one-way delays",
        Markings = "markings",
        /// The server chooses how it sends.
        OtherSenders = "what another sender would add down",
        Timeliness = "whether the measuring machine was late",
    }
}

/// How long probes are late after the end of the load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Time from the end of the load to the first probe that is not late.
    pub length_ns: u64,
    /// Whether the measurement ended first, so that the delay lasted longer.
    pub is_cut: bool,
}

/// A test against a server that answers none of our probes. The finding then has no one-way delays,
/// no markings and no percentiles of scheduled probes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForeignTest {
    /// The test's name: `ndt7`, `responsiveness`.
    pub test: String,
    /// Smallest round trip of the loading connection, its handshake included: close to the latency
    /// without load. `None` if the test does not report it.
    pub smallest_ns: Option<u64>,
    /// Round trips under load by source; the source nearest to packets comes first.
    pub loaded: Vec<Readings>,
    /// Further results, as ends of sentences.
    pub told: Vec<String>,
}

/// Round trips under load that were not measured on a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// Source of the values: `smoothed readings of the loading connection`.
    pub of: String,
    /// Whether the values are of connections that load the line, or of others.
    pub vantage: Vantage,
    pub distribution: Distribution,
}

/// Round trips per minute, by several formulas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rpm {
    /// By the formula of draft-ietf-ippm-responsiveness-09.
    pub draft_09: f64,
    /// As goresponsiveness prints it for 90th percentiles.
    pub goresponsiveness_p90: f64,
    /// As goresponsiveness prints it for trimmed means.
    pub goresponsiveness_trimmed_mean: f64,
    /// Computed from UDP probes and TCP round trips instead of HTTP exchanges.
    pub approximated_from_packets: bool,
}

/// The score of an application: the position of the line between unacceptable conditions, 0 %, and
/// optimal ones, 100 % (draft-ietf-ippm-qoo-10). It is the smallest of its components.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QualityOfOutcome {
    /// `call`, `game` or `web page`.
    pub application: String,
    /// Whether round trips beside or inside the load were scored.
    pub vantage: Vantage,
    pub score: f64,
    pub latency: f64,
    pub loss: f64,
    /// `None` if the application requires no throughput.
    pub throughput: Option<f64>,
}

/// How the path changed the marking of a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkingFate {
    pub probe: String,
    /// The marking as sent, for example `dscp 45 ect1`.
    pub sent: String,
    /// Answers that report both markings.
    pub answers: u64,
    /// Share of probes that reached the server with the marking sent.
    pub up_kept_percent: f64,
    /// Share of probes that reached the server with CE.
    pub up_ce_percent: f64,
    /// The most frequent marking at the server, if it differs from the one sent.
    pub up_became: Option<String>,
    /// Share of answers that returned with the marking sent; `None` if the server may not send it.
    pub down_kept_percent: Option<f64>,
    /// Share of answers that returned with CE.
    pub down_ce_percent: f64,
    /// The most frequent marking of the answers, if it differs from the one sent.
    pub down_became: Option<String>,
}

impl Finding {
    /// Returns the round trips in a phase of the first probe that is sent on a schedule.
    pub fn headline(&self, phase: Phase) -> Option<&LatencySummary> {
        LatencySummary::headline(&self.latencies, phase)
    }

    /// Returns whether something other than the line limited the load up.
    pub fn is_held_back_up(&self) -> bool {
        self.throttled_up || self.capped_up
    }

    /// Returns whether something other than the line limited the load down.
    pub fn is_held_back_down(&self) -> bool {
        self.throttled_down || self.capped_down
    }

    /// Returns whether something other than the line limited the load in a direction.
    pub fn is_held_back(&self) -> bool {
        self.is_held_back_up() || self.is_held_back_down()
    }

    /// Returns the direction whose connections have the longest round trips.
    pub fn worst_inside(&self) -> Option<&InsideLatency> {
        let highest_ns =
            |it: &&InsideLatency| it.distribution.highest_above_median().map(|it| it.1);
        self.inside.iter().max_by_key(highest_ns)
    }
}
