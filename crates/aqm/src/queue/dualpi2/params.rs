//! DualPI2's parameters, and the construction of DualPI2 from them.

use alloc::boxed::Box;

use super::{
    DropAt, DualPi2, DualPi2Linux, DualPi2LinuxConfig, DualPi2Rfc, DualPi2RfcConfig, LowLatencyEcn,
    Overload, Step,
};
use crate::config::{
    Bytes, ConfigError, Key, LinkFacts, Millionths, Packets, PacketsOrBytes, Probability, Quantity,
    Values, choices, params, profiles,
};
use crate::qdisc::BoxedQdisc;
use crate::queue::store::dual::Credit;
use crate::rng::Rng;
use crate::time::Span;

/// DualPI2, ready to build.
#[derive(Clone, Debug)]
pub struct DualPi2Config {
    /// The PI controller with its gains and targets.
    pub profile: DualPi2Profile,
    /// The classic queue's share while both queues are backlogged, in ten-thousandths.
    pub classic_share: u32,
}

/// DualPI2 in one of its profiles.
#[derive(Clone, Debug)]
pub enum DualPi2Profile {
    /// Appendix A of RFC 9332.
    Rfc(DualPi2RfcConfig),
    /// `sch_dualpi2.c` of Linux 6.17.
    Linux(DualPi2LinuxConfig),
}

impl DualPi2Config {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
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

/// The whole link, in the unit of [`DualPi2Config::classic_share`].
const WHOLE_SHARE: u32 = 10_000;

choices!(DropAt { "dequeue" => Dequeue, "enqueue" => Enqueue, });
choices!(Overload { "drop" => Drop, "overflow" => Overflow, });
choices!(LowLatencyEcn { "l4s" => L4s, "any" => Any, });

params! {
    define DEFINITION: "dualpi2",
        "dual queue of L4S: ECT(1) apart at about 1 ms, coupled to a classic PI2 queue",
        source: "RFC 9332", aliases: &["dual-pi2", "dualq"], profiles: Published::PROFILES,
        tc_keys: &[
            ("coupling-factor", "coupling"),
            ("step-thresh", "l4s-threshold"),
            ("memory-limit", "memory")
        ],
        tc_gains: Some("256ths of a hertz");
    pub(super) TARGET: Span = "target", "15ms" in "100us".."1s",
        "target delay of the classic queue";
    pub(super) TUPDATE: Span = "tupdate", { "rfc": "15ms", "linux": "16ms" } in "100us".."1s",
        "time between updates";
    pub(super) ALPHA: Millionths = "alpha",
        { "rfc": "0.15", "linux": "0.16015625" } in "0.000001".."1000",
        "weight of the distance from the target, Hz (linux: in 1/256)";
    pub(super) BETA: Millionths = "beta",
        { "rfc": "3", "linux": "3.19921875" } in "0.000001".."10000",
        "weight of the delay's change, Hz (linux: in 1/256)";
    pub(super) COUPLING: Millionths = "coupling", "2" in "0.1".."255",
        "coupling factor k: how much likelier an L packet is marked (linux: a whole number)";
    pub(super) L4S_THRESHOLD: Span = "l4s-threshold",
        { "rfc": "800us", "linux": "1ms" } in "1us".."1s",
        "sojourn in the low latency queue from which on it marks natively";
    pub(super) L4S_RANGE: Span = "l4s-range", { "rfc": "400us", "linux": "0s" } in "0s".."1s",
        "further sojourn until every packet is marked (linux: none)";
    CLASSIC_SHARE: Probability = "classic-share", { "rfc": "6.25%", "linux": "10%" } in "1%".."99%",
        "share of the classic queue while both queues are backlogged";
    pub(super) MTU: Bytes = "mtu", { "rfc": "1500B", "linux": "1514B" } in "0B".."64KiB",
        "rfc: room that an arrival must find; linux: no AQM below two of these";
    pub(super) LIMIT: Option<PacketsOrBytes> = "limit",
        ("rfc: 250ms at the link's rate; linux: 10000p"),
        "limit of both queues together (rfc: in bytes)";
    pub(super) DROP: DropAt = "drop", "dequeue",
        "linux: whether packets are judged as they leave or as they arrive (enqueue)";
    pub(super) OVERLOAD: Overload = "overload", "drop",
        "linux: in overload L drops as C does, or marks all and overflows, with p at most 1/k";
    STEP_PACKETS: Option<Packets> = "step-packets", ("l4s-threshold applies") in "1p".."1000000p",
        "linux: packets left in L from which on L marks natively, instead of a sojourn";
    pub(super) MIN_QUEUE: Packets = "min-queue", "0p" in "0p".."1000000p",
        "linux: packets that find fewer than this number of packets in L are not marked by L's own AQM";
    pub(super) ECN: LowLatencyEcn = "ecn", "l4s",
        "linux: packets that enter L: ECT(1) and CE, or ECT(0), too (any)";
    pub(super) MEMORY: Option<Bytes> = "memory", ("no limit in bytes") in "64B".."4096MiB",
        "linux: limit of both queues together in bytes, besides limit";
    TYPICAL_RTT: Option<Span> = "typical-rtt",
        ("a sixth of max-rtt, if that is given") in "100us".."1s",
        "linux: typical round trip; sets target, tupdate, alpha and beta";
    MAX_RTT: Option<Span> = "max-rtt", ("six times typical-rtt, if that is given") in "600us".."6s",
        "linux: longest round trip; sets target, tupdate, alpha and beta";
}

profiles! {
    enum Published {
        Rfc = "rfc": "RFC 9332 appendix A: ramp, even marking",
        Linux = "linux": "Linux 6.17 sch_dualpi2.c: step, random marking",
    }
}

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<DualPi2Config, ConfigError> {
    let profile = match Published::of(values) {
        Published::Linux => DualPi2Profile::Linux(linux(values)?),
        Published::Rfc => DualPi2Profile::Rfc(rfc(values, link)?),
    };
    let share_q32 = values.get(CLASSIC_SHARE);
    let classic_share = (share_q32 * u64::from(WHOLE_SHARE) + (1 << 31)) >> 32;
    Ok(DualPi2Config { profile, classic_share: classic_share as u32 })
}

fn rfc(values: &Values, link: &LinkFacts) -> Result<DualPi2RfcConfig, ConfigError> {
    refuse_given(values, DROP)?;
    refuse_given(values, OVERLOAD)?;
    refuse_given(values, STEP_PACKETS)?;
    refuse_given(values, MIN_QUEUE)?;
    refuse_given(values, ECN)?;
    refuse_given(values, MEMORY)?;
    refuse_given(values, TYPICAL_RTT)?;
    refuse_given(values, MAX_RTT)?;
    let by_rate = || link.rate.map(|rate| rate.bytes_in(Span::from_millis(250)));
    let limit_bytes = match values.get(LIMIT) {
        Some(PacketsOrBytes::Bytes(bytes)) => bytes,
        Some(PacketsOrBytes::Packets(_)) => {
            return Err(values.refuse(LIMIT, "bytes, such as 256KiB, in profile=rfc"));
        }
        None => by_rate().filter(|bytes| *bytes > 0).ok_or_else(|| {
            let expected = "bytes, such as 256KiB, because no link's rate is known";
            values.missing(LIMIT.name(), expected)
        })?,
    };
    DualPi2RfcConfig::read(values, limit_bytes)
}

/// Rejects a parameter that RFC 9332 does not have.
fn refuse_given<T: Quantity>(values: &Values, key: Key<T>) -> Result<(), ConfigError> {
    if values.is_given(key) {
        return Err(values.refuse(key, "profile=linux with it"));
    }
    Ok(())
}

fn linux(values: &Values) -> Result<DualPi2LinuxConfig, ConfigError> {
    if !values.get(COUPLING).is_multiple_of(1_000_000) {
        return Err(values.refuse(COUPLING, "a whole number in profile=linux, such as 2"));
    }
    if values.get(L4S_RANGE) != Span::ZERO {
        return Err(values.refuse(L4S_RANGE, "0s, fixed in profile=linux: it marks by a step"));
    }
    let step = match values.get(STEP_PACKETS) {
        Some(_) if values.is_given(L4S_THRESHOLD) => {
            return Err(values.refuse(STEP_PACKETS, "either it or l4s-threshold"));
        }
        Some(packets) => Step::Packets(packets),
        None => Step::Sojourn(values.get(L4S_THRESHOLD)),
    };
    DualPi2LinuxConfig::read(values, &control(values)?, step)
}

/// The target, interval and gains of the PI controller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub target: Span,
    pub update_interval: Span,
    pub alpha_256ths: u32,
    pub beta_256ths: u32,
}

fn control(values: &Values) -> Result<Control, ConfigError> {
    let (typical, most) = match (values.get(TYPICAL_RTT), values.get(MAX_RTT)) {
        (None, None) => {
            return Ok(Control {
                target: values.get(TARGET),
                update_interval: values.get(TUPDATE),
                alpha_256ths: in_256ths(values.get(ALPHA)),
                beta_256ths: in_256ths(values.get(BETA)),
            });
        }
        (Some(typical), None) => (micros(typical), micros(typical) * TYPICAL_IN_MAX),
        (None, Some(most)) => (micros(most) / TYPICAL_IN_MAX, micros(most)),
        (Some(typical), Some(most)) => (micros(typical), micros(most)),
    };
    if typical > most {
        return Err(values.refuse(TYPICAL_RTT, "no more than max-rtt"));
    }
    let follows = "none of it beside typical-rtt or max-rtt, from which it follows";
    for key in [TARGET, TUPDATE] {
        if values.is_given(key) {
            return Err(values.refuse(key, follows));
        }
    }
    for key in [ALPHA, BETA] {
        if values.is_given(key) {
            return Err(values.refuse(key, follows));
        }
    }
    let control = by_round_trips(typical, most);
    if control.alpha_256ths == 0 {
        let shorter = "less: the weight alpha that follows from it is below 1/256";
        let is_given = values.is_given(MAX_RTT);
        return Err(values.refuse(if is_given { MAX_RTT } else { TYPICAL_RTT }, shorter));
    }
    Ok(control)
}

/// Returns what `tc` computes from round trips in microseconds: alpha is a tenth of the interval
/// over the square of the longest, beta 0.3 over the longest. `tc` has both constants in single
/// precision, a little above their values, and truncates the results to 1/256.
fn by_round_trips(typical_micros: u64, max_micros: u64) -> Control {
    let update = typical_micros.min(max_micros / 3);
    let (update, most) = (u128::from(update.max(1)), u128::from(max_micros));
    // 256 * 10^6 / 2^27 and 256 * 10^6 / 2^25, shortened.
    let alpha = (1_000_000 * TENTH_IN_2_27THS * update / (most * most)) >> 19;
    let beta = (1_000_000 * THREE_TENTHS_IN_2_25THS / most) >> 17;
    Control {
        target: Span::from_micros(typical_micros),
        update_interval: Span::from_micros(update as u64),
        alpha_256ths: alpha as u32,
        beta_256ths: beta as u32,
    }
}

const fn micros(span: Span) -> u64 {
    span.as_nanos() / 1_000
}

/// The longest round trip is assumed to be this many typical ones (`RTT_TYP_TO_MAX`).
const TYPICAL_IN_MAX: u64 = 6;
/// 0.1 in single precision.
const TENTH_IN_2_27THS: u128 = 13_421_773;
/// 0.3 in single precision.
const THREE_TENTHS_IN_2_25THS: u128 = 10_066_330;

/// Converts a gain to the kernel's unit, rounded to the nearest.
const fn in_256ths(microhertz: u64) -> u32 {
    ((microhertz * 256 + 500_000) / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;
    use crate::config::Spec;
    use alloc::string::ToString;

    fn linux_of(keys: &str) -> Result<DualPi2LinuxConfig, String> {
        let text = alloc::format!("dualpi2:{keys}");
        let values = Spec::parse(&text).and_then(|spec| DEFINITION.resolve(&spec));
        let config = values.and_then(|values| configure(&values, &LinkFacts::default()));
        match config.map_err(|error| error.to_string())?.profile {
            DualPi2Profile::Linux(config) => Ok(config),
            DualPi2Profile::Rfc(_) => Err("rfc".to_string()),
        }
    }

    #[test]
    fn round_trips_become_gains_as_tc_computes_them() {
        let of = |keys: &str| {
            let config = linux_of(&alloc::format!("profile=linux,{keys}")).expect(keys);
            let micros = |span: Span| span.as_nanos() / 1_000;
            let times = (micros(config.target), micros(config.update_interval));
            (times.0, times.1, config.alpha_256ths, config.beta_256ths)
        };
        // A sixth of 100 ms is 16,666 us, below a third: 0.1 * 0.016666 / 0.01 * 256 = 42.66, and
        // 0.3 / 0.1 * 256 = 768.
        assert_eq!(of("max-rtt=100ms"), (16_666, 16_666, 42, 768));
        // 0.1 * 0.015 / 0.01 * 256 = 38.4.
        assert_eq!(of("max-rtt=100ms,typical-rtt=15ms"), (15_000, 15_000, 38, 768));
        // The longest round trip is 60 ms: 0.1 * 0.01 / 0.0036 * 256 = 71.1, and 0.3 / 0.06 * 256 =
        // 1280.
        assert_eq!(of("typical-rtt=10ms"), (10_000, 10_000, 71, 1_280));
        // The update interval is at least a third of the longest: 0.1 * 0.013333 / 0.0016 * 256 =
        // 213.3; 0.3 / 0.04.
        assert_eq!(of("typical-rtt=40ms,max-rtt=40ms"), (40_000, 13_333, 213, 1_920));
        // Exactly a third, 10 ms: 0.1 * 0.01 / 0.0009 * 256 = 284.4; 0.3 / 0.03 * 256 = 2560.
        assert_eq!(of("typical-rtt=10ms,max-rtt=30ms"), (10_000, 10_000, 284, 2_560));
        // 0.1 * 1 / 16 * 256 = 1.6, and 0.3 / 4 * 256 = 19.2.
        assert_eq!(of("typical-rtt=1s,max-rtt=4s"), (1_000_000, 1_000_000, 1, 19));
    }

    #[test]
    fn keys_that_contradict_each_other_or_the_profile_are_refused() {
        for (keys, expected) in [
            ("drop=enqueue", "`drop=enqueue`: expected profile=linux with it"),
            ("profile=rfc,min-queue=0p", "`min-queue=0p`: expected profile=linux with it"),
            ("profile=rfc,max-rtt=100ms", "`max-rtt=100ms`: expected profile=linux with it"),
            ("profile=linux,drop=early", "`drop=early`: expected dequeue, enqueue"),
            ("profile=linux,ecn=on", "`ecn=on`: expected l4s, any"),
            ("profile=linux,overload=mark", "`overload=mark`: expected drop, overflow"),
            ("profile=linux,step-packets=0p", "expected 1p to 1000000p"),
            ("profile=linux,step-packets=5", "expected a number of packets with the unit p"),
            (
                "profile=linux,step-packets=5p,l4s-threshold=1ms",
                "`step-packets=5p`: expected either it or l4s-threshold",
            ),
            ("profile=linux,memory=1B", "expected 64B to 4096MiB"),
            (
                "profile=linux,typical-rtt=50ms,max-rtt=40ms",
                "`typical-rtt=50ms`: expected no more than max-rtt",
            ),
            ("profile=linux,max-rtt=40ms,tupdate=16ms", "`tupdate=16ms`: expected none of it"),
            ("profile=linux,typical-rtt=40ms,beta=3", "`beta=3`: expected none of it"),
            ("profile=linux,typical-rtt=1s", "`typical-rtt=1s`: expected less"),
            ("profile=linux,max-rtt=6s", "`max-rtt=6s`: expected less"),
            ("profile=linux,max-rtt=500us", "expected 600us to 6s"),
        ] {
            let found = linux_of(keys).map(|_| ()).expect_err(keys);
            assert!(found.contains(expected), "{keys}: {found}");
        }
    }
}
