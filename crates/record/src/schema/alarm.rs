//! Flows that received more congestion marks than congestion explains.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Direction;

/// A flow of which too many packets arrived with CE; see [`crate::ce_excess`] for the rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CeAlarm {
    pub flow: String,
    pub direction: Direction,
    pub rule: CeRule,
    /// When the first window of too many marks began, ns.
    pub start_ns: u64,
    /// When the last of these windows in a row ended, ns.
    pub end_ns: u64,
    /// Packets that arrived with ECT or CE from `start_ns` to `end_ns`.
    pub ecn_packets: u64,
    /// Packets among `ecn_packets` that arrived with CE.
    pub ce_packets: u64,
    /// Rate of the ECN packets, bit/s; `None` for a probe, whose rate is negligible.
    pub rate_bit_per_s: Option<u64>,
    /// Equal share of the flow, bit/s; `None` for alarms on an idle path and if it is unknown.
    pub fair_share_bit_per_s: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CeRule {
    /// Marks while nothing loads the path.
    Idle,
    /// Most packets are marked although the flow gets less than its share.
    Loaded,
}

impl CeAlarm {
    /// Share of the packets with CE, percent.
    pub fn ce_percent(&self) -> f64 {
        self.ce_packets as f64 * 100.0 / self.ecn_packets.max(1) as f64
    }
}

impl fmt::Display for CeAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flow, direction, ecn_packets, .. } = self;
        let percent = self.ce_percent();
        let seconds = self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        write!(f, "CE alarm: {percent:.1} % of {ecn_packets} ECN packets of {flow} {direction} ")?;
        write!(f, "arrived marked in {seconds:.0} s ")?;
        let mbit = |rate: u64| rate as f64 / 1e6;
        match (self.rule, self.rate_bit_per_s, self.fair_share_bit_per_s) {
            (CeRule::Idle, ..) => f.write_str(
                "while nothing was queued: a device marks without congestion, and ECN senders \
                 slow down for nothing",
            ),
            (CeRule::Loaded, Some(rate), Some(share)) => write!(
                f,
                "at {:.2} Mbit/s, below the flow's share of {:.2}: the marks are out of \
                 proportion to its rate",
                mbit(rate),
                mbit(share)
            ),
            (CeRule::Loaded, ..) => f.write_str(
                "although its rate is negligible: the marking threshold is below what the link \
                 needs, or another flow fills the queue",
            ),
        }
    }
}
