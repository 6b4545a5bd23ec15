//! Code shared by the kinds of flows: active times, traffic classes and counts.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::packet::{Dscp, Ecn};
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use crate::keys::{Fault, Reader, Section, keys};
use crate::scenario::identity;

/// A kind of flow, by the keys that only it has.
pub(super) trait Kind: Section {
    type Flow;
    const NAME: &str;
    /// Whether its flows have the key `extra_rtt`.
    const IS_SIMULATED: bool = true;

    fn check(self) -> Result<Self::Flow, Fault>;
}

/// When a flow is active, from the start of the ramp on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// Since the start of the ramp.
    #[serde(serialize_with = "identity::span")]
    pub start: Span,
    /// Since the start of the ramp; `None`: until the load phase ends.
    #[serde(serialize_with = "identity::optional_span")]
    pub stop: Option<Span>,
    /// Each flow starts up to this much later; see [`Activity::start_of`].
    #[serde(serialize_with = "identity::span")]
    pub start_jitter: Span,
}

impl Activity {
    /// When the flow `name` starts in a trial with this seed, since the start of the ramp. Its
    /// jitter is drawn from the seed and the name alone: the arms of a repeat have the same starts.
    pub fn start_of(&self, name: &str, seed: u64) -> Span {
        let most_micros = (self.start_jitter.as_nanos() / 1_000) as u32;
        let mut jitter = Rng::new(seed).child("start jitter").child(name);
        self.start + Span::from_micros(u64::from(jitter.below(most_micros)))
    }
}

impl Section for Activity {
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let keys = ActivityKeys::take(reader)?;
        let checked = keys.check();
        reader.faults.accept(checked)
    }
}

keys! {
    #[derive(Default)]
    pub(super) struct ActivityKeys {
        /// Since the start of the ramp.
        pub start: Option<Span>,
        /// Each flow starts up to this much later, as the trial's seed has it.
        pub start_jitter: Option<Span> => Span::ZERO..=MAX_START_JITTER,
        /// Since the start of the ramp; by default a flow sends until the load phase ends.
        pub stop: Option<Span>,
    }
}

/// The traffic class of a packet: what its sender writes into the former type-of-service byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Class {
    /// Differentiated Services codepoint, 0 to 63.
    pub dscp: u8,
    /// ECN codepoint, by its bits.
    ecn_bits: u8,
}

impl Class {
    /// A class; `None` for a DSCP above 63.
    pub fn new(dscp: u8, ecn: Ecn) -> Option<Self> {
        Dscp::new(dscp).map(|dscp| Self { dscp: dscp.value(), ecn_bits: ecn.bits() })
    }

    /// The ECN codepoint of the class.
    pub fn ecn(self) -> Ecn {
        Ecn::from_bits(self.ecn_bits)
    }

    /// The class as printed: `dscp 45 ect1`.
    pub fn label(self) -> String {
        match self.ecn() {
            Ecn::NotEct => format!("dscp {}", self.dscp),
            ecn => format!("dscp {} {}", self.dscp, ecn.name()),
        }
    }
}

/// Flows of one entry, at most.
const MAX_COUNT: u32 = 10_000;
/// Longest jitter of a start: longer ramps are rare.
const MAX_START_JITTER: Span = Span::from_secs(60);

impl Section for Class {
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let help = "Differentiated Services codepoint";
        let dscp = reader.key_in("dscp", &[help], Some(0_u8), DSCPS);
        let ecn = reader.key("ecn", &["ECN codepoint"], Some(Ecn::NotEct));
        Self::new(dscp?, ecn?)
    }
}

/// The range of Differentiated Services codepoints, which have 6 bits.
pub(super) const DSCPS: RangeInclusive<u8> = 0..=63;
/// Flows of one entry.
pub(super) const COUNTS: RangeInclusive<u32> = 0..=MAX_COUNT;

impl ActivityKeys {
    pub(super) fn check(self) -> Result<Activity, Fault> {
        let Self { start, start_jitter, stop } = self;
        let (start, start_jitter) = (start.unwrap_or_default(), start_jitter.unwrap_or_default());
        match stop {
            Some(stop) if stop <= start => {
                let problem = format!("{stop} is not after the start at {start}");
                Err(Fault::new("stop", problem))
            }
            Some(stop) if stop <= start + start_jitter => {
                let latest = start + start_jitter;
                let problem = format!("{stop} is not after the latest start, {latest}");
                Err(Fault::new("stop", problem))
            }
            _ => Ok(Activity { start, stop, start_jitter }),
        }
    }
}
