//! DualPI2's parameters, and DualPI2 out of them.

use alloc::boxed::Box;
use alloc::string::ToString;

use super::{DualPi2, DualPi2Linux, DualPi2LinuxConfig, DualPi2Rfc, DualPi2RfcConfig};
use crate::config::{
    Bytes, ConfigError, Definition, Key, LinkFacts, Millionths, PacketsOrBytes, Probability,
    Profile, Values,
};
use crate::qdisc::Qdisc;
use crate::queue::store::Limit;
use crate::queue::store::dual::Credit;
use crate::rng::Rng;
use crate::time::Span;

/// DualPI2, ready to build.
#[derive(Clone, Debug)]
pub struct DualPi2Config {
    /// Which DualPI2.
    pub profile: DualPi2Profile,
    /// Share of the classic queue while both have something to send, in ten-thousandths.
    pub classic_share: u32,
}

/// DualPI2 in one of its profiles.
#[derive(Clone, Debug)]
pub enum DualPi2Profile {
    /// RFC 9332.
    Rfc(DualPi2RfcConfig),
    /// Linux 6.17.
    Linux(DualPi2LinuxConfig),
}

impl DualPi2Config {
    pub(crate) fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        let credit = |mtu_bytes| Credit::new(self.classic_share, WHOLE_SHARE, mtu_bytes);
        match &self.profile {
            DualPi2Profile::Rfc(config) => {
                let controller = DualPi2Rfc::new(config.clone());
                let credit = credit(config.mtu_bytes);
                Box::new(DualPi2::new(controller, config.update_interval, credit))
            }
            DualPi2Profile::Linux(config) => {
                let controller = DualPi2Linux::new(config.clone(), rng.child("dualpi2"));
                let credit = credit(config.mtu_bytes);
                Box::new(DualPi2::new(controller, config.update_interval, credit))
            }
        }
    }
}

/// All of the link, in the unit of [`DualPi2Config::classic_share`].
const WHOLE_SHARE: u32 = 10_000;

const TARGET: Key<Span> =
    Key::new("target", "15ms", "delay to hold in the classic queue").within("100us", "1s");

const TUPDATE: Key<Span> =
    Key::per_profile("tupdate", &[("rfc", "15ms"), ("linux", "16ms")], "time between updates")
        .within("100us", "1s");

const ALPHA: Key<Millionths> = Key::per_profile(
    "alpha",
    &[("rfc", "0.15"), ("linux", "0.16015625")],
    "weight of the distance from the target, Hz (linux: in 1/256)",
)
.within("0.000001", "1000");

const BETA: Key<Millionths> = Key::per_profile(
    "beta",
    &[("rfc", "3"), ("linux", "3.19921875")],
    "weight of the delay's change, Hz (linux: in 1/256)",
)
.within("0.000001", "10000");

const COUPLING: Key<Millionths> = Key::new(
    "coupling",
    "2",
    "coupling factor k: how much likelier an L packet is marked (linux: a whole number)",
)
.within("0.1", "255");

const L4S_THRESHOLD: Key<Span> = Key::per_profile(
    "l4s-threshold",
    &[("rfc", "800us"), ("linux", "1ms")],
    "sojourn in the low latency queue at which its own marking starts",
)
.within("1us", "1s");

const L4S_RANGE: Key<Span> = Key::per_profile(
    "l4s-range",
    &[("rfc", "400us"), ("linux", "0s")],
    "further sojourn until every packet is marked (linux: none)",
)
.within("0s", "1s");

const CLASSIC_SHARE: Key<Probability> = Key::per_profile(
    "classic-share",
    &[("rfc", "6.25%"), ("linux", "10%")],
    "share of the classic queue while both have something to send",
)
.within("1%", "99%");

const MTU: Key<Bytes> = Key::per_profile(
    "mtu",
    &[("rfc", "1500B"), ("linux", "1514B")],
    "rfc: room that an arrival must find; linux: no AQM below two of these",
)
.within("0B", "64KiB");

const LIMIT: Key<Option<PacketsOrBytes>> = Key::optional(
    "limit",
    "rfc: 250ms at the link's rate; linux: 10000p",
    "what both queues hold together (rfc: in bytes)",
);

pub(crate) const DEFINITION: Definition = Definition {
    name: "dualpi2",
    summary: "dual queue of L4S: ECT(1) apart at about 1 ms, coupled to a classic PI2 queue",
    source: "RFC 9332",
    profiles: &[
        Profile { name: "rfc", doc: "RFC 9332 appendix A: ramp, even marking" },
        Profile { name: "linux", doc: "Linux 6.17 sch_dualpi2.c: step, random marking" },
    ],
    params: &[
        TARGET.param(),
        TUPDATE.param(),
        ALPHA.param(),
        BETA.param(),
        COUPLING.param(),
        L4S_THRESHOLD.param(),
        L4S_RANGE.param(),
        CLASSIC_SHARE.param(),
        MTU.param(),
        LIMIT.param(),
    ],
    ..Definition::BARE
};

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<DualPi2Config, ConfigError> {
    let profile = match values.profile() {
        "linux" => DualPi2Profile::Linux(linux(values)?),
        _ => DualPi2Profile::Rfc(rfc(values, link)?),
    };
    let share_q32 = values.get(CLASSIC_SHARE);
    let classic_share = (share_q32 * u64::from(WHOLE_SHARE) + (1 << 31)) >> 32;
    Ok(DualPi2Config { profile, classic_share: classic_share as u32 })
}

fn rfc(values: &Values, link: &LinkFacts) -> Result<DualPi2RfcConfig, ConfigError> {
    let by_rate = || link.rate.map(|rate| rate.bytes_in(Span::from_millis(250)));
    let limit_bytes = match values.get(LIMIT) {
        Some(PacketsOrBytes::Bytes(bytes)) => bytes,
        Some(PacketsOrBytes::Packets(_)) => {
            return Err(values.refuse(LIMIT, "bytes, such as 256KiB, in profile=rfc"));
        }
        None => by_rate().filter(|bytes| *bytes > 0).ok_or_else(|| ConfigError::Missing {
            name: "dualpi2".to_string(),
            key: "limit".to_string(),
            expected: "bytes, such as 256KiB, because no link's rate is known".to_string(),
        })?,
    };
    Ok(DualPi2RfcConfig {
        target: values.get(TARGET),
        update_interval: values.get(TUPDATE),
        alpha_microhertz: values.get(ALPHA),
        beta_microhertz: values.get(BETA),
        coupling_millionths: values.get(COUPLING),
        ramp_start: values.get(L4S_THRESHOLD),
        ramp_range: values.get(L4S_RANGE),
        limit_bytes,
        mtu_bytes: values.get(MTU) as u32,
    })
}

fn linux(values: &Values) -> Result<DualPi2LinuxConfig, ConfigError> {
    let coupling_millionths = values.get(COUPLING);
    if !coupling_millionths.is_multiple_of(1_000_000) {
        return Err(values.refuse(COUPLING, "a whole number in profile=linux, such as 2"));
    }
    if values.get(L4S_RANGE) != Span::ZERO {
        return Err(values.refuse(L4S_RANGE, "0s, fixed in profile=linux: it marks by a step"));
    }
    let limit = match values.get(LIMIT) {
        Some(PacketsOrBytes::Bytes(bytes)) => Limit::bytes(bytes),
        Some(PacketsOrBytes::Packets(packets)) => Limit::packets(packets),
        None => Limit::packets(10_000),
    };
    Ok(DualPi2LinuxConfig {
        target: values.get(TARGET),
        update_interval: values.get(TUPDATE),
        alpha_256ths: in_256ths(values.get(ALPHA)),
        beta_256ths: in_256ths(values.get(BETA)),
        coupling: (coupling_millionths / 1_000_000) as u8,
        step: values.get(L4S_THRESHOLD),
        limit,
        mtu_bytes: values.get(MTU) as u32,
    })
}

/// A gain in the kernel's unit, to the nearest.
const fn in_256ths(microhertz: u64) -> u32 {
    ((microhertz * 256 + 500_000) / 1_000_000) as u32
}
