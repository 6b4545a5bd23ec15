//! `kind = "probe"`: packets on a schedule, to measure latency.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use underload_aqm::time::Span;
use underload_record::schema::{Marking, Metric};

use super::FlowKind;
use super::common::{Activity, Kind, Properties};
use crate::flows;
use crate::keys::{Fault, keys};

keys! {
    /// A latency probe. It sends a packet per `interval` and class through all phases, whether or
    /// not answers arrive (open loop).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ProbeFlow {
        /// Time between two packets of one class.
        pub interval: Span = DEFAULT_INTERVAL => INTERVALS,
        /// Traffic classes that are probed side by side, `{ dscp = 45, ecn = "ect1" }`; the first
        /// is the headline.
        pub classes: Vec<Marking> where default = "best effort alone" = Vec::new(),
        /// Time after which a packet without an answer counts as lost; live only.
        pub timeout: Span = DEFAULT_TIMEOUT => TIMEOUTS,
        /// Adds a request-response probe (netperf's `UDP_RR`), which is never the headline.
        pub closed_loop: bool = false,
    }
}

/// Enough for a 99th percentile after 5 s.
const DEFAULT_INTERVAL: Span = Span::from_millis(10);
const MAX_CLASSES: usize = 16;
/// Faster probes would load the path themselves.
const INTERVALS: RangeInclusive<Span> = Span::from_micros(100)..=Span::from_secs(60);
/// Longer than most queues hold a packet: 256 KiB at 1 Mbit/s are 2.1 s.
const DEFAULT_TIMEOUT: Span = Span::from_secs(5);
const TIMEOUTS: RangeInclusive<Span> = Span::from_millis(100)..=Span::from_secs(60);

impl ProbeFlow {
    /// Returns name and class of the request-response probe, if any; it has the first class.
    pub fn request_response(&self, entry: &str) -> Option<(String, Marking)> {
        let class = self.classes.first().filter(|_| self.closed_loop)?;
        Some((flows::request_response(entry), *class))
    }
}

impl Kind for ProbeFlow {
    const NAME: &str = "probe";

    fn check(mut self) -> Result<(FlowKind, Activity), Fault> {
        if self.classes.is_empty() {
            self.classes.push(Marking::default());
        }
        if self.classes.len() > MAX_CLASSES {
            return Err(Fault::new("classes", format!("expected at most {MAX_CLASSES}")));
        }
        if self.classes.iter().collect::<BTreeSet<_>>().len() != self.classes.len() {
            return Err(Fault::new("classes", "has a class twice; classes must differ"));
        }
        Ok((FlowKind::Probe(self), Activity::default()))
    }
}

impl Properties for ProbeFlow {
    /// Probes have latencies instead.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}
