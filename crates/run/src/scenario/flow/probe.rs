//! `kind = "probe"`: packets on a schedule, to measure latency.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use underload_aqm::packet::Ecn;
use underload_aqm::time::Span;

use super::{Class, EcnName, checked_class};
use crate::scenario::error::Fault;
use crate::scenario::identity;
use crate::scenario::quantity::SpanText;

/// A latency probe. It runs through all phases, a packet per `interval` and class whatever comes
/// back (open loop).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeFlow {
    /// Between two packets of one class.
    #[serde(serialize_with = "identity::span")]
    pub interval: Span,
    /// Traffic classes probed at once, at least one; the first is the headline.
    pub classes: Vec<Class>,
    /// After which a packet without an answer counts as lost in the live world.
    #[serde(serialize_with = "identity::span")]
    pub timeout: Span,
    /// Adds a request-response probe as a second view (netperf's `UDP_RR`), never the headline.
    pub closed_loop: bool,
}

/// Traffic classes of one probe, at most.
const MAX_CLASSES: usize = 16;
/// Faster probes would measure themselves.
const MIN_PROBE_INTERVAL: Span = Span::from_micros(100);
const MAX_PROBE_INTERVAL: Span = Span::from_secs(60);
/// Longer than most queues hold a packet: 256 KiB at 1 Mbit/s are 2.1 s.
const DEFAULT_PROBE_TIMEOUT: Span = Span::from_secs(5);
const MIN_PROBE_TIMEOUT: Span = Span::from_millis(100);
const MAX_PROBE_TIMEOUT: Span = Span::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeKeys {
    interval: SpanText,
    #[serde(default)]
    classes: Vec<ClassKeys>,
    timeout: Option<SpanText>,
    #[serde(default)]
    closed_loop: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassKeys {
    #[serde(default)]
    dscp: u8,
    #[serde(default)]
    ecn: EcnName,
}

impl ProbeKeys {
    pub(super) fn check(self) -> Result<ProbeFlow, Fault> {
        let interval = self.interval.0;
        if !(MIN_PROBE_INTERVAL..=MAX_PROBE_INTERVAL).contains(&interval) {
            let problem = format!("{interval} is out of range; expected 100us to 60s");
            return Err(Fault::new("interval", problem));
        }
        let timeout = self.timeout.map_or(DEFAULT_PROBE_TIMEOUT, |timeout| timeout.0);
        if !(MIN_PROBE_TIMEOUT..=MAX_PROBE_TIMEOUT).contains(&timeout) {
            let problem = format!("{timeout} is out of range; expected 100ms to 60s");
            return Err(Fault::new("timeout", problem));
        }
        let mut classes = self
            .classes
            .iter()
            .map(|class| checked_class(class.dscp, class.ecn.codepoint()))
            .collect::<Result<Vec<_>, _>>()?;
        if classes.is_empty() {
            classes.push(checked_class(0, Ecn::NotEct)?);
        }
        if classes.len() > MAX_CLASSES {
            return Err(Fault::new("classes", format!("expected at most {MAX_CLASSES}")));
        }
        if classes.iter().collect::<BTreeSet<_>>().len() != classes.len() {
            return Err(Fault::new("classes", "the same class stands here twice"));
        }
        Ok(ProbeFlow { interval, classes, timeout, closed_loop: self.closed_loop })
    }
}
