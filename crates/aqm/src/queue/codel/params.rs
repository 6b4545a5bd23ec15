//! CoDel's parameters, and the construction of CoDel on a single queue from them.

use super::{CodelConfig, Linux, Mahimahi, Rfc};
use crate::config::{Bytes, ConfigError, Values, params, profiles};
use crate::qdisc::BoxedQdisc;
use crate::queue::fifo::{LIMIT, OneQueue};
use crate::rng::Rng;
use crate::time::Span;

/// CoDel on a single queue, ready to build.
pub type CodelQueue = OneQueue<CodelProfile>;

/// CoDel in one of its profiles.
#[derive(Clone, Debug)]
pub enum CodelProfile {
    /// RFC 8289, section 5.
    Rfc(Rfc),
    /// `codel_impl.h` of Linux 6.12.
    Linux(Linux),
    /// Mahimahi's `codel_packet_queue.cc`.
    Mahimahi(Mahimahi),
}

impl CodelQueue {
    pub(crate) fn build<P: Send + 'static>(&self, _: &Rng) -> BoxedQdisc<P> {
        match &self.config {
            CodelProfile::Rfc(codel) => self.under(codel.clone()),
            CodelProfile::Linux(codel) => self.under(codel.clone()),
            CodelProfile::Mahimahi(codel) => self.under(codel.clone()),
        }
    }
}

params! {
    define DEFINITION: "codel", "CoDel: keeps the minimum sojourn of an interval below a target",
        source: "RFC 8289", profiles: Published::PROFILES;
    pub(crate) TARGET: Span = "target", "5ms" in "1us".."10s", "acceptable standing sojourn";
    pub(crate) INTERVAL: Span = "interval", "100ms" in "1us".."60s",
        "window of the minimum sojourn, about the longest round trip";
    pub(crate) MTU: Bytes = "mtu", { "mahimahi": "1504B", "": "1514B" } in "0B".."1MiB",
        "no signal while no more than this is left behind the head";
    pub(crate) ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    pub(crate) CE_THRESHOLD: Option<Span> = "ce-threshold", ("no threshold") in "0s".."10s",
        "profile linux: mark packets that waited longer, apart from the control law";
    use LIMIT;
}

profiles! {
    enum Published {
        Linux = "linux": "Linux 6.12 codel_impl.h, bit for bit",
        Rfc = "rfc": "RFC 8289 section 5 with an exact square root",
        Mahimahi = "mahimahi": "Mahimahi's queue, which drops the wrong packet",
    }
}

pub(crate) fn configure(values: &Values) -> Result<CodelQueue, ConfigError> {
    let config = CodelConfig::read(values)?;
    let published = Published::of(values);
    let threshold = ce_threshold(values, published == Published::Linux)?;
    let profile = match published {
        Published::Mahimahi => CodelProfile::Mahimahi(mahimahi(values, config)?),
        Published::Rfc => CodelProfile::Rfc(Rfc::new(config)),
        Published::Linux => CodelProfile::Linux(Linux::new(config).with_ce_threshold(threshold)),
    };
    CodelQueue::new(profile, values)
}

/// Returns the CE threshold, which only profile `linux` has.
pub(crate) fn ce_threshold(values: &Values, is_linux: bool) -> Result<Option<Span>, ConfigError> {
    let threshold = values.get(CE_THRESHOLD);
    if threshold.is_some() && !is_linux {
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

#[cfg(test)]
mod tests {
    use super::*;

    impl Default for CodelConfig {
        fn default() -> Self {
            Self::read(&DEFINITION.defaults("linux")).expect("its own defaults")
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_rfc_with_a_frame_as_guard() {
        let expected = CodelConfig {
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            guard_bytes: 1_514,
            ecn: false,
        };
        assert_eq!(CodelConfig::default(), expected);
    }
}
