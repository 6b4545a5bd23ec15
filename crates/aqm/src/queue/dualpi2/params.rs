//! DualPI2's parameters, and DualPI2 out of them.

use alloc::boxed::Box;
use alloc::string::ToString;

use super::{DualPi2, DualPi2Linux, DualPi2LinuxConfig, DualPi2Rfc, DualPi2RfcConfig};
use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Profile, Value, Values};
use crate::qdisc::Qdisc;
use crate::queue::Limit;
use crate::queue::dual::Credit;
use crate::registry::{LinkFacts, QueueConfig, QueueEntry};
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

pub(crate) const ENTRY: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "dualpi2",
        summary: "dual queue of L4S: ECT(1) apart at about 1 ms, coupled to a classic PI2 queue",
        source: "RFC 9332",
        profiles: &[
            Profile { name: "rfc", doc: "RFC 9332 appendix A: ramp, even marking" },
            Profile { name: "linux", doc: "Linux 6.17 sch_dualpi2.c: step, random marking" },
        ],
        params: PARAMS,
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure,
};

const fn param(
    key: &'static str,
    kind: Kind,
    fallback: Fallback,
    range: (&'static str, &'static str),
    doc: &'static str,
) -> Param {
    Param { key, kind, fallback, range: Some(range), doc }
}

const PARAMS: &[Param] = &[
    param(
        "target",
        Kind::Span,
        Fallback::Value("15ms"),
        ("100us", "1s"),
        "delay to hold in the classic queue",
    ),
    param(
        "tupdate",
        Kind::Span,
        Fallback::PerProfile(&[("rfc", "15ms"), ("linux", "16ms")]),
        ("100us", "1s"),
        "time between updates",
    ),
    param(
        "alpha",
        Kind::Decimal,
        Fallback::PerProfile(&[("rfc", "0.15"), ("linux", "0.16015625")]),
        ("0.000001", "1000"),
        "weight of the distance from the target, Hz (linux: in 1/256)",
    ),
    param(
        "beta",
        Kind::Decimal,
        Fallback::PerProfile(&[("rfc", "3"), ("linux", "3.19921875")]),
        ("0.000001", "10000"),
        "weight of the delay's change, Hz (linux: in 1/256)",
    ),
    param(
        "coupling",
        Kind::Decimal,
        Fallback::Value("2"),
        ("0.1", "255"),
        "coupling factor k: how much likelier an L packet is marked (linux: a whole number)",
    ),
    param(
        "l4s-threshold",
        Kind::Span,
        Fallback::PerProfile(&[("rfc", "800us"), ("linux", "1ms")]),
        ("1us", "1s"),
        "sojourn in the low latency queue at which its own marking starts",
    ),
    param(
        "l4s-range",
        Kind::Span,
        Fallback::PerProfile(&[("rfc", "400us"), ("linux", "0s")]),
        ("0s", "1s"),
        "further sojourn until every packet is marked (linux: none)",
    ),
    param(
        "classic-share",
        Kind::Probability,
        Fallback::PerProfile(&[("rfc", "6.25%"), ("linux", "10%")]),
        ("1%", "99%"),
        "share of the classic queue while both have something to send",
    ),
    param(
        "mtu",
        Kind::Bytes,
        Fallback::PerProfile(&[("rfc", "1500B"), ("linux", "1514B")]),
        ("0B", "64KiB"),
        "rfc: room that an arrival must find; linux: no AQM below two of these",
    ),
    Param {
        key: "limit",
        kind: Kind::Limit,
        fallback: Fallback::Absent("rfc: 250ms at the link's rate; linux: 10000p"),
        range: None,
        doc: "what both queues hold together (rfc: in bytes)",
    },
];

fn configure(values: &Values, link: &LinkFacts) -> Result<QueueConfig, ConfigError> {
    let profile = match values.profile() {
        "linux" => DualPi2Profile::Linux(linux(values)?),
        _ => DualPi2Profile::Rfc(rfc(values, link)?),
    };
    let share_q32 = values.number("classic-share").unwrap_or_default();
    let classic_share = (share_q32 * u64::from(WHOLE_SHARE) + (1 << 31)) >> 32;
    Ok(QueueConfig::DualPi2(DualPi2Config { profile, classic_share: classic_share as u32 }))
}

fn rfc(values: &Values, link: &LinkFacts) -> Result<DualPi2RfcConfig, ConfigError> {
    let by_rate = || link.rate.map(|rate| rate.bytes_in(Span::from_millis(250)));
    let limit_bytes = match values.find("limit") {
        Some(Value::Bytes(bytes)) => bytes,
        Some(_) => return Err(values.refuse("limit", "bytes, such as 256KiB, in profile=rfc")),
        None => by_rate().filter(|bytes| *bytes > 0).ok_or_else(|| ConfigError::Missing {
            name: "dualpi2".to_string(),
            key: "limit".to_string(),
            expected: "bytes, such as 256KiB, because no link's rate is known".to_string(),
        })?,
    };
    Ok(DualPi2RfcConfig {
        target: span(values, "target"),
        update_interval: span(values, "tupdate"),
        alpha_microhertz: values.number("alpha").unwrap_or_default(),
        beta_microhertz: values.number("beta").unwrap_or_default(),
        coupling_millionths: values.number("coupling").unwrap_or_default(),
        ramp_start: span(values, "l4s-threshold"),
        ramp_range: span(values, "l4s-range"),
        limit_bytes,
        mtu_bytes: values.bytes("mtu").unwrap_or_default() as u32,
    })
}

fn linux(values: &Values) -> Result<DualPi2LinuxConfig, ConfigError> {
    let coupling = values.number("coupling").unwrap_or_default();
    if !coupling.is_multiple_of(1_000_000) {
        return Err(values.refuse("coupling", "a whole number in profile=linux, such as 2"));
    }
    if span(values, "l4s-range") != Span::ZERO {
        return Err(values.refuse("l4s-range", "0s, fixed in profile=linux: it marks by a step"));
    }
    let limit = match values.find("limit") {
        Some(Value::Bytes(bytes)) => Limit::bytes(bytes),
        Some(Value::Packets(packets)) => Limit::packets(packets),
        _ => Limit::packets(10_000),
    };
    Ok(DualPi2LinuxConfig {
        target: span(values, "target"),
        update_interval: span(values, "tupdate"),
        alpha_256ths: in_256ths(values, "alpha"),
        beta_256ths: in_256ths(values, "beta"),
        coupling: (coupling / 1_000_000) as u8,
        step: span(values, "l4s-threshold"),
        limit,
        mtu_bytes: values.bytes("mtu").unwrap_or_default() as u32,
    })
}

/// A gain in the kernel's unit, to the nearest.
fn in_256ths(values: &Values, key: &str) -> u32 {
    ((values.number(key).unwrap_or_default() * 256 + 500_000) / 1_000_000) as u32
}

fn span(values: &Values, key: &str) -> Span {
    values.span(key).unwrap_or_default()
}
