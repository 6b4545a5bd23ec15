//! Code shared by the kinds of flows: active times, traffic classes and counts.

use std::ops::RangeInclusive;

use underload_aqm::packet::Ecn;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_record::schema::Marking;

use crate::keys::{Fault, Reader, Section, keys};

pub(super) trait Kind: Section {
    type Flow;
    const NAME: &str;
    /// Whether its flows have the key `extra_rtt`.
    const IS_SIMULATED: bool = true;

    fn check(self) -> Result<Self::Flow, Fault>;
}

/// The times at which a flow is active, since the start of the ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    pub start: Span,
    /// `None` to stop at the end of the load phase.
    pub stop: Option<Span>,
    /// The longest random delay of each flow's start; see [`Activity::start_of`].
    pub start_jitter: Span,
}

impl Activity {
    /// Returns when flow `name` starts, since the start of the ramp. Its jitter is drawn from seed
    /// and name alone: all variants of a repeat have the same starts.
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
        /// Start after the start of the ramp.
        pub start: Option<Span> where default = "0s",
        /// The longest random delay of each flow's start, drawn from the trial's seed, so that
        /// repeats differ. Without this key it is 1s in a scenario with several repeats that names
        /// no `start_jitter`, no conditions to draw and no start or end of this flow.
        pub start_jitter: Option<Span> where default = "0s" => Span::ZERO..=MAX_START_JITTER,
        /// End after the start of the ramp.
        pub stop: Option<Span> where default = "end of the load phase",
    }
}

/// Flows of one entry, at most.
const MAX_COUNT: u32 = 10_000;
/// Longer ramps are rare.
const MAX_START_JITTER: Span = Span::from_secs(60);

impl Section for Marking {
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let help = "Differentiated Services codepoint";
        let dscp = reader.key_in("dscp", &[help], Some(0_u8), DSCPS);
        let ecn = reader.key("ecn", &["ECN codepoint"], Some(Ecn::NotEct));
        Some(Self { dscp: dscp?, ecn: ecn? })
    }
}

/// Differentiated Services codepoints have 6 bits.
pub(super) const DSCPS: RangeInclusive<u8> = 0..=63;
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
