//! Code shared by the kinds of flows: active times, traffic classes and counts.

use std::ops::RangeInclusive;

use underload_aqm::packet::Ecn;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_record::schema::{FlowDirection, Marking, Metric};

use super::FlowKind;
use crate::keys::{Combined, Fault, Faults, Section, keys};

/// The keys of a kind of flow.
pub(super) trait Kind: Section {
    const NAME: &str;
    /// Whether its flows have the key `extra_rtt`.
    const IS_SIMULATED: bool = true;

    fn check(self) -> Result<(FlowKind, Activity), Fault>;
}

/// The properties of a flow that do not depend on the world that runs it.
pub trait Properties {
    /// Returns the directions of the entry's flows, and how many each of them has.
    fn group(&self) -> (FlowDirection, u32) {
        (FlowDirection::Up, 1)
    }

    /// Returns the metrics of each flow, without values.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the congestion control that the live world needs of the machine.
    fn congestion_control(&self) -> Option<&str> {
        None
    }

    /// Returns the key that only the simulator supports, if the flow has one.
    fn sim_only_key(&self) -> Option<&'static str> {
        None
    }

    /// Returns why the live world can run it on no machine: the key and the problem.
    fn live_problem(&self, _: &Activity) -> Option<String> {
        None
    }
}

/// Returns the reason why the live world cannot stop a flow before the end of the load phase.
pub(super) fn stop_problem(activity: &Activity) -> Option<String> {
    activity.stop.map(|_| "stop: flows end with the load phase in the live world".to_owned())
}

/// The times at which a flow is active, since the start of the ramp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// `None` to start with the load phase.
    pub start: Option<Span>,
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
        self.start.unwrap_or_default() + Span::from_micros(u64::from(jitter.below(most_micros)))
    }

    /// Rejects an end before the latest start.
    pub(super) fn check(self) -> Result<Self, Fault> {
        let start = self.start.unwrap_or_default();
        let latest = start + self.start_jitter;
        match self.stop {
            Some(stop) if stop <= start => {
                let problem = format!("{stop} is not after the start at {start}");
                Err(Fault::new("stop", problem))
            }
            Some(stop) if stop <= latest => {
                let problem = format!("{stop} is not after the latest start, {latest}");
                Err(Fault::new("stop", problem))
            }
            _ => Ok(self),
        }
    }
}

keys! {
    pub(crate) struct TransferTimes {
        /// When the flow starts, counted from the start of the ramp.
        start: Option<Span> where default = "0s",
        /// The longest random delay of each flow's start, drawn from the trial's seed, so that
        /// repeats differ. Without this key it is 1s in a scenario with several repeats that names
        /// no `start_jitter`, no conditions to draw and no start or end of this flow.
        start_jitter: Option<Span> where default = "0s" => Span::ZERO..=MAX_START_JITTER,
        /// When the flow ends, counted from the start of the ramp.
        stop: Option<Span> where default = "end of the load phase",
    }
}

impl Combined for Activity {
    type Keys = TransferTimes;

    fn combine(keys: TransferTimes, faults: &mut Faults) -> Option<Self> {
        let TransferTimes { start, start_jitter, stop } = keys;
        let start = Some(start.unwrap_or_default());
        let start_jitter = start_jitter.unwrap_or_default();
        faults.accept(Self { start, stop, start_jitter }.check())
    }
}

keys! {
    pub(crate) struct LoadTimes {
        /// When the flow starts, counted from the start of the ramp.
        start: Option<Span> where default = "start of the load phase",
        /// When the flow ends, counted from the start of the ramp.
        stop: Option<Span> where default = "end of the load phase",
    }
}

/// The times of a flow that by default is active in the load phase.
pub(super) struct DuringLoad(pub Activity);

impl Combined for DuringLoad {
    type Keys = LoadTimes;

    fn combine(LoadTimes { start, stop }: LoadTimes, faults: &mut Faults) -> Option<Self> {
        faults.accept(Activity { start, stop, ..Activity::default() }.check()).map(Self)
    }
}

/// Maximum number of flows of one entry.
const MAX_COUNT: u32 = 10_000;
/// Longer ramps are rare.
const MAX_START_JITTER: Span = Span::from_secs(60);

keys! {
    pub(crate) struct MarkingKeys {
        /// Differentiated Services codepoint.
        dscp: u8 = 0 => DSCPS,
        /// ECN codepoint.
        ecn: Ecn = Ecn::NotEct,
    }
}

impl Combined for Marking {
    type Keys = MarkingKeys;

    fn combine(MarkingKeys { dscp, ecn }: MarkingKeys, _: &mut Faults) -> Option<Self> {
        Some(Self { dscp, ecn })
    }
}

/// Differentiated Services codepoints have 6 bits.
pub(super) const DSCPS: RangeInclusive<u8> = 0..=63;
pub(super) const COUNTS: RangeInclusive<u32> = 0..=MAX_COUNT;
