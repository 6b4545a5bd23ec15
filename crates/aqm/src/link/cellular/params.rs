//! The synthetic cellular link's parameters, and its presets.

use alloc::boxed::Box;

use super::{Cellular, OutageLaw, Outages};
use crate::config::{Bytes, ConfigError, Key, Profile, Values, choices, from_values, params};
use crate::link::params::{LinkConfig, SHARED};
use crate::link::rate_process::RateProcess;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::Span;

params! {
    define DEFINITION: "cellular",
        "random rate like a cellular link's: cellular:preset=lte-driving",
        source: "Cox process of Sprout (Winstein et al., NSDI 2013, section 3.1); deviations in docs",
        profiles: PRESETS, profile_key: "preset", shared: SHARED;
    CENTRE: Rate = "centre", {
        "lte-driving": "4.8mbit", "lte-stationary": "500kbit", "subway": "0bit", "3g": "1.2mbit",
        "evdo": "0bit", "5g-mmwave": "900mbit", "starlink": "180mbit"
    } in "0bit".."100gbit", "rate that the motion is pulled to, between min and max";
    MIN: Rate = "min", {
        "lte-stationary": "500kbit", "5g-mmwave": "20mbit", "starlink": "20mbit", "others": "0bit"
    } in "0bit".."100gbit", "lower bound of the motion, at which it is reflected";
    MAX: Rate = "max", {
        "lte-driving": "11mbit", "lte-stationary": "20mbit", "subway": "23.5mbit", "3g": "9mbit",
        "evdo": "3mbit", "5g-mmwave": "2gbit", "starlink": "350mbit"
    } in "0bit".."100gbit", "upper bound of the motion, at which it is reflected";
    VOLATILITY: Rate = "volatility", {
        "lte-driving": "800kbit", "lte-stationary": "2.5mbit", "subway": "4.8mbit", "3g": "600kbit",
        "evdo": "270kbit", "5g-mmwave": "500mbit", "starlink": "40mbit"
    } in "0bit".."100gbit",
        "standard deviation that the motion gathers in a second, per square root of time";
    REVERSION: Span = "reversion", {
        "lte-driving": "30s", "lte-stationary": "10s", "subway": "20s", "3g": "20s", "evdo": "13s",
        "5g-mmwave": "2s", "starlink": "4s"
    } in "0s".."86400s", "time constant of the pull to centre; 0s: no pull, as in the paper";
    TICK: Span = "tick", { "5g-mmwave": "5ms", "others": "20ms" } in "1ms".."1s",
        "how long a rate holds";
    OPPORTUNITY: Bytes = "opportunity", {
        "lte-stationary": "4512B", "subway": "6016B", "evdo": "2256B", "5g-mmwave": "30080B",
        "starlink": "15040B", "others": "1504B"
    } in "64B".."1MiB", "bytes of one opportunity; more of them make the rate of a tick noisier";
    OUTAGE_GAP: Span = "outage-gap", {
        "lte-driving": "13s", "lte-stationary": "60s", "subway": "20s", "3g": "8s", "evdo": "6s",
        "5g-mmwave": "10s", "starlink": "60s"
    } in "0s".."86400s",
        "mean time from the end of an outage to the next (exponential); 0s: no outages";
    OUTAGE_LENGTH: Span = "outage-length", {
        "lte-driving": "800ms", "lte-stationary": "700ms", "subway": "350ms", "3g": "1s",
        "evdo": "900ms", "5g-mmwave": "400ms", "starlink": "500ms"
    } in "1ms".."600s", "mean length of an outage, rounded up to ticks";
    OUTAGE_MAX: Span = "outage-max", {
        "lte-driving": "1.5s", "lte-stationary": "1.5s", "subway": "2.1s", "3g": "6s",
        "evdo": "12s", "5g-mmwave": "3s", "starlink": "3s"
    } in "1ms".."3600s", "greatest length of an outage";
    OUTAGE_LAW: OutageLaw = "outage-law", "pareto",
        "distribution of an outage's length: exponential, or pareto with shape 2";
    RECONFIGURE: Span = "reconfigure", { "starlink": "15s", "others": "0s" } in "0s".."86400s",
        "draw the rate afresh at multiples of this time; 0s: never";
}

const PRESETS: &[Profile] = &[
    Profile { name: "lte-driving", doc: "fitted to AT&T LTE in a moving car, downlink" },
    Profile { name: "lte-stationary", doc: "fitted to Verizon LTE at one place, downlink" },
    Profile { name: "subway", doc: "fitted to LTE in a subway, downlink" },
    Profile { name: "3g", doc: "fitted to T-Mobile UMTS in a moving car, downlink" },
    Profile { name: "evdo", doc: "fitted to Verizon EV-DO in a moving car, downlink" },
    Profile { name: "5g-mmwave", doc: "from published descriptions, no recording" },
    Profile { name: "starlink", doc: "from published descriptions, no recording" },
];

choices!(OutageLaw { "exponential" => Exponential, "pareto" => Pareto, });

from_values! {
    /// The parameters of a cellular link; see the module for how they work together.
    #[derive(Clone, Copy, Debug)]
    pub struct CellularConfig(values, outages: Option<Outages>) {
        /// The rate that the motion reverts to; within the bounds.
        pub centre: Rate = values.get(CENTRE),
        /// Lower bound of the rate outside outages.
        pub min: Rate = values.get(MIN),
        /// Upper bound; above `min`.
        pub max: Rate = values.get(MAX),
        /// Standard deviation that the motion gathers in one second.
        pub volatility: Rate = values.get(VOLATILITY),
        /// Time constant of the reversion to `centre`; `None` for no reversion.
        pub reversion: Option<Span> = above_zero(values, REVERSION),
        /// How long a drawn rate lasts; not zero.
        pub tick: Span = values.get(TICK),
        /// Bytes of a delivery opportunity; not zero.
        pub opportunity_bytes: u32 = values.get(OPPORTUNITY) as u32,
        /// Times without any rate; `None` if there are none.
        pub outages: Option<Outages> = outages,
        /// Time between fresh draws of the rate; `None`: never.
        pub reconfigure: Option<Span> = above_zero(values, RECONFIGURE),
    }
}

fn above_zero(values: &Values, key: Key<Span>) -> Option<Span> {
    Some(values.get(key)).filter(|span| *span > Span::ZERO)
}

pub(crate) fn configure(values: &Values) -> Result<LinkConfig, ConfigError> {
    let process = process(values)?;
    let nominal = process.nominal_rate();
    Ok(LinkConfig::of_rate(RateProcess::Cellular(Box::new(process)), nominal))
}

/// Returns the process with these parameters. A link later gives it a random stream.
fn process(values: &Values) -> Result<Cellular, ConfigError> {
    let (centre, min, max) = (values.get(CENTRE), values.get(MIN), values.get(MAX));
    if max <= min || max < Rate::from_bits_per_second(1_000) {
        return Err(values.refuse(MAX, "1kbit or more, and more than `min`"));
    }
    if centre < min || centre > max {
        return Err(values.refuse(CENTRE, "a rate between `min` and `max`"));
    }
    let outages = above_zero(values, OUTAGE_GAP).map(|gap| Outages {
        gap,
        length: values.get(OUTAGE_LENGTH),
        longest: values.get(OUTAGE_MAX),
        law: values.get(OUTAGE_LAW),
    });
    let config = CellularConfig::read(values, outages)?;
    let link = Cellular::new(config, &Rng::new(0));
    refuse_what_hardly_ever_sends(values, &config, &link)?;
    Ok(link)
}

/// Rejects a link that is silent for years, because time advances tick by tick.
fn refuse_what_hardly_ever_sends(
    values: &Values,
    config: &CellularConfig,
    link: &Cellular,
) -> Result<(), ConfigError> {
    if config.reversion.is_none() && config.volatility < Rate::from_bits_per_second(1_000) {
        return Err(values.refuse(VOLATILITY, "1kbit or more where `reversion` is 0s"));
    }
    if config.outages.is_some_and(|outages| outages.gap < config.tick) {
        return Err(values.refuse(OUTAGE_GAP, "0s, or one tick or more"));
    }
    let in_a_minute = link.nominal_rate().bytes_in(Span::from_secs(60));
    if in_a_minute < u64::from(config.opportunity_bytes) {
        let expected = "a size that the mean rate, outages counted, carries once a minute or more";
        return Err(values.refuse(OPPORTUNITY, expected));
    }
    Ok(())
}
