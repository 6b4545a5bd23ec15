//! CoDel's parameters, and CoDel on a single queue out of them.

use alloc::boxed::Box;

use super::{CodelConfig, Linux, Mahimahi, Rfc};
use crate::config::{Bytes, ConfigError, Definition, Key, Profile, Values};
use crate::qdisc::Qdisc;
use crate::queue::fifo::{self, LIMIT};
use crate::queue::store::{Limit, Overflow, Single};
use crate::time::Span;

/// CoDel on one queue, ready to build.
#[derive(Clone, Debug)]
pub struct CodelQueue {
    /// The algorithm in its initial state.
    pub profile: CodelProfile,
    /// How much the queue holds; arrivals beyond are dropped.
    pub limit: Limit,
}

/// CoDel in one of its profiles.
#[derive(Clone, Debug)]
pub enum CodelProfile {
    /// RFC 8289, exact.
    Rfc(Rfc),
    /// Linux 6.12.
    Linux(Linux),
    /// Mahimahi, defect included.
    Mahimahi(Mahimahi),
}

impl CodelQueue {
    pub(crate) fn build<P: 'static>(&self) -> Box<dyn Qdisc<P>> {
        match &self.profile {
            CodelProfile::Rfc(codel) => {
                Box::new(Single::new(codel.clone(), self.limit, Overflow::Tail))
            }
            CodelProfile::Linux(codel) => {
                Box::new(Single::new(codel.clone(), self.limit, Overflow::Tail))
            }
            CodelProfile::Mahimahi(codel) => {
                Box::new(Single::new(codel.clone(), self.limit, Overflow::Tail))
            }
        }
    }
}

pub(crate) const TARGET: Key<Span> =
    Key::new("target", "5ms", "acceptable standing sojourn").within("1us", "10s");

pub(crate) const INTERVAL: Key<Span> =
    Key::new("interval", "100ms", "window of the minimum sojourn, about the longest round trip")
        .within("1us", "60s");

pub(crate) const MTU: Key<Bytes> = Key::per_profile(
    "mtu",
    &[("mahimahi", "1504B"), ("", "1514B")],
    "no signal while no more than this is left behind the head",
)
.within("0B", "1MiB");

pub(crate) const ECN: Key<bool> =
    Key::new("ecn", "off", "mark ECN-capable packets instead of dropping them");

pub(crate) const CE_THRESHOLD: Key<Option<Span>> = Key::optional(
    "ce-threshold",
    "no threshold",
    "profile linux: mark whatever waited longer, apart from the control law",
)
.within("0s", "10s");

pub(crate) const DEFINITION: Definition = Definition {
    name: "codel",
    summary: "CoDel: keeps the minimum sojourn of an interval below a target",
    source: "RFC 8289",
    profiles: &[
        Profile { name: "linux", doc: "Linux 6.12 codel_impl.h, bit for bit" },
        Profile { name: "rfc", doc: "RFC 8289 section 5 with an exact square root" },
        Profile { name: "mahimahi", doc: "Mahimahi's queue, which drops the wrong packet" },
    ],
    params: &[
        TARGET.param(),
        INTERVAL.param(),
        MTU.param(),
        ECN.param(),
        CE_THRESHOLD.param(),
        LIMIT.param(),
    ],
    ..Definition::BARE
};

pub(crate) fn configure(values: &Values) -> Result<CodelQueue, ConfigError> {
    let config = config(values);
    let threshold = ce_threshold(values)?;
    let profile = match values.profile() {
        "mahimahi" => CodelProfile::Mahimahi(mahimahi(values, config)?),
        "rfc" => CodelProfile::Rfc(Rfc::new(config)),
        _ => CodelProfile::Linux(Linux::new(config).with_ce_threshold(threshold)),
    };
    Ok(CodelQueue { profile, limit: fifo::limit(values)? })
}

/// The parameters that every profile has.
pub(crate) fn config(values: &Values) -> CodelConfig {
    CodelConfig {
        target: values.get(TARGET),
        interval: values.get(INTERVAL),
        guard_bytes: values.get(MTU) as u32,
        ecn: values.get(ECN),
    }
}

/// The CE threshold, which only profile `linux` has.
pub(crate) fn ce_threshold(values: &Values) -> Result<Option<Span>, ConfigError> {
    let threshold = values.get(CE_THRESHOLD);
    if threshold.is_some() && values.profile() != "linux" {
        return Err(values.refuse(CE_THRESHOLD, "nothing: only profile=linux has it"));
    }
    Ok(threshold)
}

fn mahimahi(values: &Values, config: CodelConfig) -> Result<Mahimahi, ConfigError> {
    if config.ecn {
        return Err(values.refuse(ECN, "off: profile=mahimahi has no ECN"));
    }
    for (key, span) in [(TARGET, config.target), (INTERVAL, config.interval)] {
        if span < Span::from_millis(1) {
            return Err(values.refuse(key, "1ms and more: profile=mahimahi counts whole ms"));
        }
    }
    Ok(Mahimahi::new(config.target, config.interval, config.guard_bytes))
}
