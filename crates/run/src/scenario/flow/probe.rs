//! `kind = "probe"`: packets on a schedule, to measure latency.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::packet::Ecn;
use underload_aqm::time::Span;

use super::common::{Class, Kind};
use crate::keys::{Fault, keys};
use crate::scenario::identity;

keys! {
    /// A latency probe. It runs through all phases, a packet per `interval` and class whatever
    /// comes back (open loop).
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct ProbeFlow {
        /// Between two packets of one class.
        #[serde(serialize_with = "identity::span")]
        pub interval: Span => INTERVALS,
        /// Traffic classes probed at once, at least one; the first is the headline.
        pub classes: Vec<Class> = Vec::new(),
        /// After which a packet without an answer counts as lost in the live world.
        #[serde(serialize_with = "identity::span")]
        pub timeout: Span = DEFAULT_TIMEOUT => TIMEOUTS,
        /// Adds a request-response probe as a second view (netperf's `UDP_RR`), never the headline.
        pub closed_loop: bool = false,
    }
}

/// Traffic classes of one probe, at most.
const MAX_CLASSES: usize = 16;
/// Faster probes would measure themselves.
const INTERVALS: RangeInclusive<Span> = Span::from_micros(100)..=Span::from_secs(60);
/// Longer than most queues hold a packet: 256 KiB at 1 Mbit/s are 2.1 s.
const DEFAULT_TIMEOUT: Span = Span::from_secs(5);
const TIMEOUTS: RangeInclusive<Span> = Span::from_millis(100)..=Span::from_secs(60);

impl Kind for ProbeFlow {
    type Flow = Self;
    const NAME: &str = "probe";

    fn check(mut self) -> Result<Self, Fault> {
        if self.classes.is_empty() {
            self.classes.extend(Class::new(0, Ecn::NotEct));
        }
        if self.classes.len() > MAX_CLASSES {
            return Err(Fault::new("classes", format!("expected at most {MAX_CLASSES}")));
        }
        if self.classes.iter().collect::<BTreeSet<_>>().len() != self.classes.len() {
            return Err(Fault::new("classes", "the same class stands here twice"));
        }
        Ok(self)
    }
}
