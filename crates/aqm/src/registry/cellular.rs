//! The synthetic cellular link by name: its parameters, and its presets.

use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Profile, Value, Values};
use crate::link::{Cellular, CellularConfig, OutageLaw, Outages};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::Span;

use super::links::SHARED;

const fn per_preset(values: &'static [(&'static str, &'static str)]) -> Fallback {
    Fallback::PerProfile(values)
}

pub(super) const CELLULAR: Definition = Definition {
    name: "cellular",
    summary: "random rate like a cellular link's: cellular:preset=lte-driving",
    source: "Cox process of Sprout (Winstein et al., NSDI 2013, section 3.1); deviations in docs",
    profiles: PRESETS,
    params: PARAMS,
    shared: SHARED,
    positional: None,
    free_key: None,
};

const PRESETS: &[Profile] = &[
    Profile { name: "lte-driving", doc: "fitted to AT&T LTE in a moving car, downlink" },
    Profile { name: "lte-stationary", doc: "fitted to Verizon LTE at one place, downlink" },
    Profile { name: "subway", doc: "fitted to LTE in a subway, downlink" },
    Profile { name: "3g", doc: "fitted to T-Mobile UMTS in a moving car, downlink" },
    Profile { name: "evdo", doc: "fitted to Verizon EV-DO in a moving car, downlink" },
    Profile { name: "5g-mmwave", doc: "from published descriptions, no recording" },
    Profile { name: "starlink", doc: "from published descriptions, no recording" },
];

const RATES: Option<(&str, &str)> = Some(("0bit", "100gbit"));

const PARAMS: &[Param] = &[
    Param {
        key: "centre",
        kind: Kind::Rate,
        fallback: per_preset(&[
            ("lte-driving", "4.8mbit"),
            ("lte-stationary", "500kbit"),
            ("subway", "0bit"),
            ("3g", "1.2mbit"),
            ("evdo", "0bit"),
            ("5g-mmwave", "900mbit"),
            ("starlink", "180mbit"),
        ]),
        range: RATES,
        doc: "rate that the motion is pulled to, between min and max",
    },
    Param {
        key: "min",
        kind: Kind::Rate,
        fallback: per_preset(&[
            ("lte-stationary", "500kbit"),
            ("5g-mmwave", "20mbit"),
            ("starlink", "20mbit"),
            ("others", "0bit"),
        ]),
        range: RATES,
        doc: "lower bound of the motion, at which it is reflected",
    },
    Param {
        key: "max",
        kind: Kind::Rate,
        fallback: per_preset(&[
            ("lte-driving", "11mbit"),
            ("lte-stationary", "20mbit"),
            ("subway", "23.5mbit"),
            ("3g", "9mbit"),
            ("evdo", "3mbit"),
            ("5g-mmwave", "2gbit"),
            ("starlink", "350mbit"),
        ]),
        range: RATES,
        doc: "upper bound of the motion, at which it is reflected",
    },
    Param {
        key: "volatility",
        kind: Kind::Rate,
        fallback: per_preset(&[
            ("lte-driving", "800kbit"),
            ("lte-stationary", "2.5mbit"),
            ("subway", "4.8mbit"),
            ("3g", "600kbit"),
            ("evdo", "270kbit"),
            ("5g-mmwave", "500mbit"),
            ("starlink", "40mbit"),
        ]),
        range: RATES,
        doc: "standard deviation that the motion gathers in a second, per square root of time",
    },
    Param {
        key: "reversion",
        kind: Kind::Span,
        fallback: per_preset(&[
            ("lte-driving", "30s"),
            ("lte-stationary", "10s"),
            ("subway", "20s"),
            ("3g", "20s"),
            ("evdo", "13s"),
            ("5g-mmwave", "2s"),
            ("starlink", "4s"),
        ]),
        range: Some(("0s", "86400s")),
        doc: "time constant of the pull to centre; 0s: no pull, as in the paper",
    },
    Param {
        key: "tick",
        kind: Kind::Span,
        fallback: per_preset(&[("5g-mmwave", "5ms"), ("others", "20ms")]),
        range: Some(("1ms", "1s")),
        doc: "how long a rate holds",
    },
    Param {
        key: "opportunity",
        kind: Kind::Bytes,
        fallback: per_preset(&[
            ("lte-stationary", "4512B"),
            ("subway", "6016B"),
            ("evdo", "2256B"),
            ("5g-mmwave", "30080B"),
            ("starlink", "15040B"),
            ("others", "1504B"),
        ]),
        range: Some(("64B", "1MiB")),
        doc: "bytes of one opportunity; more of them make the rate of a tick noisier",
    },
    Param {
        key: "outage-gap",
        kind: Kind::Span,
        fallback: per_preset(&[
            ("lte-driving", "13s"),
            ("lte-stationary", "60s"),
            ("subway", "20s"),
            ("3g", "8s"),
            ("evdo", "6s"),
            ("5g-mmwave", "10s"),
            ("starlink", "60s"),
        ]),
        range: Some(("0s", "86400s")),
        doc: "mean time from the end of an outage to the next (exponential); 0s: no outages",
    },
    Param {
        key: "outage-length",
        kind: Kind::Span,
        fallback: per_preset(&[
            ("lte-driving", "800ms"),
            ("lte-stationary", "700ms"),
            ("subway", "350ms"),
            ("3g", "1s"),
            ("evdo", "900ms"),
            ("5g-mmwave", "400ms"),
            ("starlink", "500ms"),
        ]),
        range: Some(("1ms", "600s")),
        doc: "mean length of an outage, rounded up to ticks",
    },
    Param {
        key: "outage-max",
        kind: Kind::Span,
        fallback: per_preset(&[
            ("lte-driving", "1.5s"),
            ("lte-stationary", "1.5s"),
            ("subway", "2.1s"),
            ("3g", "6s"),
            ("evdo", "12s"),
            ("5g-mmwave", "3s"),
            ("starlink", "3s"),
        ]),
        range: Some(("1ms", "3600s")),
        doc: "greatest length of an outage",
    },
    Param {
        key: "outage-law",
        kind: Kind::Choice(&["exponential", "pareto"]),
        fallback: Fallback::Value("pareto"),
        range: None,
        doc: "distribution of an outage's length: exponential, or pareto with shape 2",
    },
    Param {
        key: "reconfigure",
        kind: Kind::Span,
        fallback: per_preset(&[("starlink", "15s"), ("others", "0s")]),
        range: Some(("0s", "86400s")),
        doc: "draw the rate afresh at multiples of this time; 0s: never",
    },
];

/// The process that the values describe; its numbers come with the link's stream.
pub(super) fn configure(values: &Values) -> Result<Cellular, ConfigError> {
    let rate = |key: &str| values.rate(key).unwrap_or_default();
    let span = |key: &str| values.span(key).filter(|span| *span > Span::ZERO);
    let (centre, min, max) = (rate("centre"), rate("min"), rate("max"));
    if max <= min || max < Rate::from_bits_per_second(1_000) {
        return Err(values.refuse("max", "1kbit or more, and more than `min`"));
    }
    if centre < min || centre > max {
        return Err(values.refuse("centre", "a rate between `min` and `max`"));
    }
    let outages = span("outage-gap").map(|gap| Outages {
        gap,
        length: span("outage-length").unwrap_or_default(),
        longest: span("outage-max").unwrap_or_default(),
        law: match values.find("outage-law") {
            Some(Value::Choice("exponential")) => OutageLaw::Exponential,
            _ => OutageLaw::Pareto,
        },
    });
    let config = CellularConfig {
        centre,
        min,
        max,
        volatility: rate("volatility"),
        reversion: span("reversion"),
        tick: values.span("tick").unwrap_or_default(),
        opportunity_bytes: values.bytes("opportunity").unwrap_or_default() as u32,
        outages,
        reconfigure: span("reconfigure"),
    };
    let link = Cellular::new(config, &Rng::new(0));
    refuse_what_hardly_ever_sends(values, &config, &link)?;
    Ok(link)
}

/// Time is walked in ticks, so a link must not stay silent for years of them.
fn refuse_what_hardly_ever_sends(
    values: &Values,
    config: &CellularConfig,
    link: &Cellular,
) -> Result<(), ConfigError> {
    if config.reversion.is_none() && config.volatility < Rate::from_bits_per_second(1_000) {
        return Err(values.refuse("volatility", "1kbit or more where `reversion` is 0s"));
    }
    if config.outages.is_some_and(|outages| outages.gap < config.tick) {
        return Err(values.refuse("outage-gap", "0s, or one tick or more"));
    }
    let in_a_minute = link.nominal_rate().bytes_in(Span::from_secs(60));
    if in_a_minute < u64::from(config.opportunity_bytes) {
        let expected = "a size that the mean rate, outages counted, carries once a minute or more";
        return Err(values.refuse("opportunity", expected));
    }
    Ok(())
}
