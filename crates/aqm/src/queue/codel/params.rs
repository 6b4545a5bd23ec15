//! CoDel's parameters, and CoDel on a single queue out of them.

use alloc::boxed::Box;

use super::{CodelConfig, Linux, Mahimahi, Rfc};
use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Profile, Values};
use crate::qdisc::Qdisc;
use crate::queue::fifo::{self, LIMIT};
use crate::queue::{Limit, Overflow, Single};
use crate::registry::{QueueConfig, QueueEntry};
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

pub(crate) const TARGET: Param = Param {
    key: "target",
    kind: Kind::Span,
    fallback: Fallback::Value("5ms"),
    range: Some(("1us", "10s")),
    doc: "acceptable standing sojourn",
};

pub(crate) const INTERVAL: Param = Param {
    key: "interval",
    kind: Kind::Span,
    fallback: Fallback::Value("100ms"),
    range: Some(("1us", "60s")),
    doc: "window of the minimum sojourn, about the longest round trip",
};

pub(crate) const MTU: Param = Param {
    key: "mtu",
    kind: Kind::Bytes,
    fallback: Fallback::PerProfile(&[("mahimahi", "1504B"), ("", "1514B")]),
    range: Some(("0B", "1MiB")),
    doc: "no signal while no more than this is left behind the head",
};

pub(crate) const ECN: Param = Param {
    key: "ecn",
    kind: Kind::Switch,
    fallback: Fallback::Value("off"),
    range: None,
    doc: "mark ECN-capable packets instead of dropping them",
};

pub(crate) const CE_THRESHOLD: Param = Param {
    key: "ce-threshold",
    kind: Kind::Span,
    fallback: Fallback::Absent("no threshold"),
    range: Some(("0s", "10s")),
    doc: "profile linux: mark whatever waited longer, apart from the control law",
};

pub(crate) const ENTRY: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "codel",
        summary: "CoDel: keeps the minimum sojourn of an interval below a target",
        source: "RFC 8289",
        profiles: &[
            Profile { name: "linux", doc: "Linux 6.12 codel_impl.h, bit for bit" },
            Profile { name: "rfc", doc: "RFC 8289 section 5 with an exact square root" },
            Profile { name: "mahimahi", doc: "Mahimahi's queue, which drops the wrong packet" },
        ],
        params: &[TARGET, INTERVAL, MTU, ECN, CE_THRESHOLD, LIMIT],
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure: |values, _| configure(values),
};

fn configure(values: &Values) -> Result<QueueConfig, ConfigError> {
    let config = config(values);
    let threshold = ce_threshold(values)?;
    let profile = match values.profile() {
        "mahimahi" => CodelProfile::Mahimahi(mahimahi(values, config)?),
        "rfc" => CodelProfile::Rfc(Rfc::new(config)),
        _ => CodelProfile::Linux(Linux::new(config).with_ce_threshold(threshold)),
    };
    Ok(QueueConfig::Codel(CodelQueue { profile, limit: fifo::limit(values)? }))
}

/// The parameters that every profile has.
pub(crate) fn config(values: &Values) -> CodelConfig {
    CodelConfig {
        target: values.span("target").unwrap_or_default(),
        interval: values.span("interval").unwrap_or_default(),
        guard_bytes: values.bytes("mtu").unwrap_or_default() as u32,
        ecn: values.switch("ecn"),
    }
}

/// The CE threshold, which only profile `linux` has.
pub(crate) fn ce_threshold(values: &Values) -> Result<Option<Span>, ConfigError> {
    let threshold = values.span(CE_THRESHOLD.key);
    if threshold.is_some() && values.profile() != "linux" {
        return Err(values.refuse(CE_THRESHOLD.key, "nothing: only profile=linux has it"));
    }
    Ok(threshold)
}

fn mahimahi(values: &Values, config: CodelConfig) -> Result<Mahimahi, ConfigError> {
    if config.ecn {
        return Err(values.refuse("ecn", "off: profile=mahimahi has no ECN"));
    }
    for (key, span) in [("target", config.target), ("interval", config.interval)] {
        if span < Span::from_millis(1) {
            return Err(values.refuse(key, "1ms and more: profile=mahimahi counts whole ms"));
        }
    }
    Ok(Mahimahi::new(config.target, config.interval, config.guard_bytes))
}
