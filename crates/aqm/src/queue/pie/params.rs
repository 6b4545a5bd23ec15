//! PIE's parameters, and PIE on a single queue out of them.

use alloc::boxed::Box;
use alloc::format;

use super::{PieLinux, PieLinuxConfig, PieMahimahi, PieMahimahiConfig, PieRfc, PieRfcConfig};
use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Profile, Values};
use crate::qdisc::Qdisc;
use crate::queue::fifo::{self, LIMIT};
use crate::queue::{Limit, Overflow, Single};
use crate::registry::{QueueConfig, QueueEntry};
use crate::rng::Rng;
use crate::time::Span;

/// PIE on one queue, ready to build.
#[derive(Clone, Debug)]
pub struct PieQueue {
    /// Which PIE.
    pub profile: PieProfile,
    /// How much the queue holds; arrivals beyond are dropped.
    pub limit: Limit,
}

/// PIE in one of its profiles.
#[derive(Clone, Debug)]
pub enum PieProfile {
    /// RFC 8033.
    Rfc(PieRfcConfig),
    /// Linux 6.12.
    Linux(PieLinuxConfig),
    /// Mahimahi.
    Mahimahi(PieMahimahiConfig),
}

impl PieQueue {
    pub(crate) fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        let rng = rng.child("pie");
        let (limit, tail) = (self.limit, Overflow::Tail);
        match &self.profile {
            PieProfile::Rfc(config) => {
                Box::new(Single::new(PieRfc::new(config.clone(), rng), limit, tail))
            }
            PieProfile::Linux(config) => {
                Box::new(Single::new(PieLinux::new(config.clone(), rng), limit, tail))
            }
            PieProfile::Mahimahi(config) => {
                Box::new(Single::new(PieMahimahi::new(config, rng), limit, tail))
            }
        }
    }
}

pub(crate) const ENTRY: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "pie",
        summary: "PIE: drops on arrival so that the delay approaches a target",
        source: "RFC 8033",
        profiles: &[
            Profile { name: "linux", doc: "Linux 6.12 sch_pie.c, bit for bit" },
            Profile { name: "rfc", doc: "RFC 8033 with the measures of section 5" },
            Profile { name: "mahimahi", doc: "Mahimahi's queue: gains 1000 times too high" },
        ],
        params: PARAMS,
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure: |values, _| configure(values),
};

const PARAMS: &[Param] = &[
    Param {
        key: "target",
        kind: Kind::Span,
        fallback: Fallback::Value("15ms"),
        range: Some(("1us", "10s")),
        doc: "delay to hold",
    },
    Param {
        key: "tupdate",
        kind: Kind::Span,
        fallback: Fallback::PerProfile(&[("mahimahi", "30ms"), ("", "15ms")]),
        range: Some(("100us", "10s")),
        doc: "time between updates (fixed in profile mahimahi)",
    },
    Param {
        key: "burst",
        kind: Kind::Span,
        fallback: Fallback::Value("150ms"),
        range: Some(("0s", "10s")),
        doc: "burst allowance (fixed in profile linux)",
    },
    Param {
        key: "alpha",
        kind: Kind::Decimal,
        fallback: Fallback::PerProfile(&[("mahimahi", "125"), ("", "0.125")]),
        range: Some(("0", "1000")),
        doc: "weight of the distance from the target, Hz (fixed in profile mahimahi)",
    },
    Param {
        key: "beta",
        kind: Kind::Decimal,
        fallback: Fallback::PerProfile(&[("mahimahi", "1250"), ("", "1.25")]),
        range: Some(("0", "10000")),
        doc: "weight of the delay's change, Hz (fixed in profile mahimahi)",
    },
    Param {
        key: "mtu",
        kind: Kind::Bytes,
        fallback: Fallback::PerProfile(&[
            ("rfc", "1500B"),
            ("linux", "1514B"),
            ("mahimahi", "1504B"),
        ]),
        range: Some(("0B", "64KiB")),
        doc: "nothing is dropped while about two such packets are stored",
    },
    Param {
        key: "ecn",
        kind: Kind::Switch,
        fallback: Fallback::Value("off"),
        range: None,
        doc: "mark ECN-capable packets instead of dropping them (not in profile mahimahi)",
    },
    Param {
        key: "ecn-threshold",
        kind: Kind::Probability,
        fallback: Fallback::Value("10%"),
        range: None,
        doc: "drop even ECN-capable packets from this probability on (fixed outside profile rfc)",
    },
    Param {
        key: "derandomize",
        kind: Kind::Switch,
        fallback: Fallback::PerProfile(&[("mahimahi", "off"), ("", "on")]),
        range: None,
        doc: "spread drops out, RFC 8033 section 5.4 (fixed outside profile rfc)",
    },
    LIMIT,
];

fn configure(values: &Values) -> Result<QueueConfig, ConfigError> {
    let profile = match values.profile() {
        "rfc" => PieProfile::Rfc(rfc(values)),
        "mahimahi" => PieProfile::Mahimahi(mahimahi(values)?),
        _ => PieProfile::Linux(linux(values)?),
    };
    Ok(QueueConfig::Pie(PieQueue { profile, limit: fifo::limit(values)? }))
}

fn rfc(values: &Values) -> PieRfcConfig {
    PieRfcConfig {
        target: span(values, "target"),
        update_interval: span(values, "tupdate"),
        max_burst: span(values, "burst"),
        alpha_microhertz: values.number("alpha").unwrap_or_default(),
        beta_microhertz: values.number("beta").unwrap_or_default(),
        mean_packet_bytes: values.bytes("mtu").unwrap_or_default() as u32,
        ecn: values.switch("ecn"),
        ecn_threshold_q32: values.number("ecn-threshold").unwrap_or_default(),
        derandomize: values.switch("derandomize"),
    }
}

fn linux(values: &Values) -> Result<PieLinuxConfig, ConfigError> {
    fixed(values, &[("burst", "150ms"), ("ecn-threshold", "10%"), ("derandomize", "on")])?;
    Ok(PieLinuxConfig {
        target: span(values, "target"),
        update_interval: span(values, "tupdate"),
        alpha_sixteenths: sixteenths(values, "alpha")?,
        beta_sixteenths: sixteenths(values, "beta")?,
        ecn: values.switch("ecn"),
        mtu_bytes: values.bytes("mtu").unwrap_or_default() as u32,
    })
}

fn mahimahi(values: &Values) -> Result<PieMahimahiConfig, ConfigError> {
    fixed(
        values,
        &[
            ("tupdate", "30ms"),
            ("alpha", "125"),
            ("beta", "1250"),
            ("mtu", "1504B"),
            ("ecn", "off"),
            ("ecn-threshold", "10%"),
            ("derandomize", "off"),
        ],
    )?;
    for key in ["target", "burst"] {
        if span(values, key) < Span::from_millis(1) {
            return Err(values.refuse(key, "1ms and more: profile=mahimahi counts whole ms"));
        }
    }
    Ok(PieMahimahiConfig { target: span(values, "target"), max_burst: span(values, "burst") })
}

/// Refuses any other value of what the chosen profile has built in.
fn fixed(values: &Values, built_in: &[(&str, &'static str)]) -> Result<(), ConfigError> {
    for (key, text) in built_in {
        let param = PARAMS.iter().find(|param| param.key == *key);
        if values.find(key) != param.and_then(|param| param.kind.read(text)) {
            return Err(values.refuse(key, &format!("{text}, fixed in this profile")));
        }
    }
    Ok(())
}

/// A gain in the kernel's unit: sixteenths of a hertz, 0 to 32.
fn sixteenths(values: &Values, key: &str) -> Result<u32, ConfigError> {
    let sixteen_millionths = values.number(key).unwrap_or_default() * 16;
    if !sixteen_millionths.is_multiple_of(1_000_000) || sixteen_millionths > 32_000_000 {
        return Err(values.refuse(key, "whole sixteenths up to 2 in profile=linux, such as 0.125"));
    }
    Ok((sixteen_millionths / 1_000_000) as u32)
}

fn span(values: &Values, key: &str) -> Span {
    values.span(key).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::registry::{LinkFacts, QueueSetup};
    use alloc::string::ToString;

    #[test]
    fn what_a_profile_has_built_in_cannot_be_changed() {
        for (spec, expected) in [
            ("pie:profile=linux,burst=100ms", "expected 150ms, fixed in this profile"),
            ("pie:profile=linux,alpha=0.13", "whole sixteenths up to 2"),
            ("pie:profile=mahimahi,ecn=on", "expected off, fixed in this profile"),
            ("pie:profile=mahimahi,target=900us", "1ms and more"),
        ] {
            let error = QueueSetup::parse(spec, &LinkFacts::default()).expect_err(spec);
            assert!(error.to_string().contains(expected), "{spec}: {error}");
        }
        for spec in [
            "pie",
            "pie:profile=linux,alpha=0.125,beta=1.25,ecn=on,tupdate=16ms",
            "pie:profile=rfc,burst=100ms,derandomize=off,ecn=on,ecn-threshold=20%",
            "pie:profile=mahimahi,target=20ms,burst=3ms",
        ] {
            QueueSetup::parse(spec, &LinkFacts::default()).expect(spec);
        }
    }
}
