//! PIE's parameters, and the construction of PIE on a single queue from them.

use alloc::format;

use super::{PieLinux, PieLinuxConfig, PieMahimahi, PieMahimahiConfig, PieRfc, PieRfcConfig};
use crate::config::{
    Bytes, ConfigError, Key, Millionths, Probability, Quantity, Values, params, profiles,
};
use crate::qdisc::BoxedQdisc;
use crate::queue::fifo::{LIMIT, OneQueue};
use crate::rng::Rng;
use crate::time::Span;

/// PIE on a single queue, ready to build.
pub type PieQueue = OneQueue<PieProfile>;

/// PIE in one of its profiles.
#[derive(Clone, Debug)]
pub enum PieProfile {
    /// RFC 8033, section 4 and appendix A.
    Rfc(PieRfcConfig),
    /// `sch_pie.c` of Linux.
    Linux(PieLinuxConfig),
    /// Mahimahi's `pie_packet_queue.cc`.
    Mahimahi(PieMahimahiConfig),
}

impl PieQueue {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        let rng = rng.child("pie");
        match &self.config {
            PieProfile::Rfc(config) => self.under(PieRfc::new(config.clone(), rng)),
            PieProfile::Linux(config) => self.under(PieLinux::new(config.clone(), rng)),
            PieProfile::Mahimahi(config) => self.under(PieMahimahi::new(config, rng)),
        }
    }
}

params! {
    define DEFINITION: "pie", "PIE: drops on arrival so that the delay approaches a target",
        source: "RFC 8033", profiles: Published::PROFILES, tc_gains: Some("sixteenths of a hertz");
    pub(in crate::queue) TARGET: Span = "target", "15ms" in "1us".."10s", "target delay";
    pub(super) TUPDATE: Span = "tupdate", { "mahimahi": "30ms", "": "15ms" } in "100us".."10s",
        "time between updates (fixed in profile mahimahi)";
    pub(super) BURST: Span = "burst", "150ms" in "0s".."10s",
        "burst allowance (fixed in profile linux)";
    pub(super) ALPHA: Millionths = "alpha", { "mahimahi": "125", "": "0.125" } in "0".."1000",
        "weight of the distance from the target, Hz (fixed in profile mahimahi)";
    pub(super) BETA: Millionths = "beta", { "mahimahi": "1250", "": "1.25" } in "0".."10000",
        "weight of the delay's change, Hz (fixed in profile mahimahi)";
    pub(super) MTU: Bytes = "mtu",
        { "rfc": "1500B", "linux": "1514B", "mahimahi": "1504B" } in "0B".."64KiB",
        "nothing is dropped while about two such packets are stored";
    pub(super) ECN: bool = "ecn", "off",
        "mark ECN-capable packets instead of dropping them (not in profile mahimahi)";
    pub(super) ECN_THRESHOLD: Probability = "ecn-threshold", "10%",
        "drop ECN-capable packets, too, from this probability on (fixed outside profile rfc)";
    pub(super) DERANDOMIZE: bool = "derandomize", { "mahimahi": "off", "": "on" },
        "space drops evenly, RFC 8033 section 5.4 (fixed outside profile rfc)";
    use LIMIT;
}

profiles! {
    enum Published {
        Linux = "linux": "Linux 6.12 sch_pie.c, bit for bit",
        Rfc = "rfc": "RFC 8033 with the measures of section 5",
        Mahimahi = "mahimahi": "Mahimahi's queue: gains 1000 times too high",
    }
}

pub(crate) fn configure(values: &Values) -> Result<PieQueue, ConfigError> {
    let profile = match Published::of(values) {
        Published::Rfc => PieProfile::Rfc(PieRfcConfig::read(values)?),
        Published::Mahimahi => PieProfile::Mahimahi(mahimahi(values)?),
        Published::Linux => PieProfile::Linux(linux(values)?),
    };
    PieQueue::new(profile, values)
}

fn linux(values: &Values) -> Result<PieLinuxConfig, ConfigError> {
    fixed(values, BURST, "150ms")?;
    fixed(values, ECN_THRESHOLD, "10%")?;
    fixed(values, DERANDOMIZE, "on")?;
    PieLinuxConfig::read(values)
}

fn mahimahi(values: &Values) -> Result<PieMahimahiConfig, ConfigError> {
    fixed(values, TUPDATE, "30ms")?;
    fixed(values, ALPHA, "125")?;
    fixed(values, BETA, "1250")?;
    fixed(values, MTU, "1504B")?;
    fixed(values, ECN, "off")?;
    fixed(values, ECN_THRESHOLD, "10%")?;
    fixed(values, DERANDOMIZE, "off")?;
    for key in [TARGET, BURST] {
        if values.get(key) < Span::from_millis(1) {
            return Err(values.refuse(key, "1ms and more: profile=mahimahi counts whole ms"));
        }
    }
    Ok(PieMahimahiConfig { target: values.get(TARGET), max_burst: values.get(BURST) })
}

/// Rejects a value other than the fixed one of the chosen profile.
fn fixed<T: Quantity>(
    values: &Values,
    key: Key<T>,
    built_in: &'static str,
) -> Result<(), ConfigError>
where
    T::Value: PartialEq,
{
    if Some(values.get(key)) == T::from_value(T::KIND.read(built_in)) {
        return Ok(());
    }
    Err(values.refuse(key, &format!("{built_in}, fixed in this profile")))
}

/// Returns a gain in the kernel's unit: sixteenths of a hertz, 0 to 32.
pub(super) fn sixteenths(values: &Values, key: Key<Millionths>) -> Result<u32, ConfigError> {
    let sixteen_millionths = values.get(key) * 16;
    if !sixteen_millionths.is_multiple_of(1_000_000) || sixteen_millionths > 32_000_000 {
        return Err(values.refuse(key, "whole sixteenths up to 2 in profile=linux, such as 0.125"));
    }
    Ok((sixteen_millionths / 1_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::registry::QueueSetup;
    use alloc::string::ToString;

    impl Default for PieRfcConfig {
        fn default() -> Self {
            Self::read(&DEFINITION.defaults("rfc")).expect("its own defaults")
        }
    }

    impl Default for PieLinuxConfig {
        fn default() -> Self {
            linux(&DEFINITION.defaults("linux")).expect("its own defaults")
        }
    }

    impl Default for PieMahimahiConfig {
        fn default() -> Self {
            mahimahi(&DEFINITION.defaults("mahimahi")).expect("its own defaults")
        }
    }

    #[test]
    fn fixed_parameters_of_a_profile_cannot_be_set() {
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
