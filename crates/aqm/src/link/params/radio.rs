//! The parameters of a radio that several users share.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::{LinkConfig, SHARED};
use crate::config::{Bytes, ConfigError, LinkFacts, Packets, Spec, Values, choices, params};
use crate::link::constant::Constant;
use crate::link::rate_process::{RadioConfig, RateProcess, Scheduler};
use crate::rate::Rate;
use crate::time::Span;

params! {
    define DEFINITION: "radio",
        "users of one cell or Wi-Fi, with a rate and a queue each: radio:1=60mbit,2=6mbit",
        source: "802.11's anomaly (Heusse 2003), airtime fairness (ATC 2017), proportional fairness (Viswanath 2002)",
        shared: SHARED, free_key: Some(|key| hosts(key).is_some());
    SCHEDULER: Scheduler = "scheduler", "airtime",
        "whose turn it is: airtime and packets: one user after the other, for the same time or number of packets; proportional-fair: the best rate in relation to the mean throughput; none: one queue for all";
    SLOT: Span = "slot", "1ms" in "10us".."100ms",
        "length of a turn (airtime, proportional-fair), after which its packet waits for the next";
    AGGREGATE: Packets = "aggregate", "1p" in "1p".."1024p",
        "packets of a turn (packets, none)";
    ACCESS: Span = "access", "0s" in "0s".."10ms",
        "air time of each turn besides its packets: contention, preamble, acknowledgement";
    AVERAGING: Span = "averaging", "1s" in "100ms".."1000s",
        "time constant of the mean throughput (proportional-fair)";
    HOST: IsSource = "host", "destination", "which host of a packet is its user";
    MULTICAST: Option<Rate> = "multicast", ("the lowest long-term rate of the users")
        in "1kbit".."400gbit", "rate of packets to all other hosts, which have a queue of their own";
    DTIM: Span = "dtim", "0s" in "0s".."10s",
        "multicast packets wait for the next multiple of this time and leave before all others; 0s: no wait";
    MEMORY: Option<Bytes> = "memory", ("no common limit") in "1500B".."1024MiB",
        "limit of the bytes of all users; an arrival that exceeds it is dropped";
}

choices!(Scheduler {
    "airtime" => Airtime,
    "packets" => Packets,
    "proportional-fair" => ProportionalFair,
    "none" => None,
});

/// Whether the source of a packet is the user of the radio, or its destination.
enum IsSource {}

choices!(IsSource => bool { "destination" => false, "source" => true, });

/// More users would make each slot slow to compute.
const MOST_USERS: usize = 256;

/// Parses a host, or the first and the last of several, such as `1-8`.
fn hosts(key: &str) -> Option<(u32, u32)> {
    let (first, last) = key.split_once('-').unwrap_or((key, key));
    let number =
        |text: &str| text.parse().ok().filter(|_| text.bytes().all(|it| it.is_ascii_digit()));
    Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
}

/// Returns the rate of a user, and the facts of a link with that rate, from its SPEC.
type Understand<'a> = dyn FnMut(&Spec) -> Result<(RateProcess, LinkFacts), ConfigError> + 'a;

/// Reads the parameters; `understand` reads the links of the users.
pub(crate) fn configure(
    values: &Values,
    understand: &mut Understand<'_>,
) -> Result<LinkConfig, ConfigError> {
    let mut users: Vec<(u32, RateProcess, u64)> = Vec::new();
    for (key, value) in values.free() {
        let (rate, nominal) = user_rate(key, value, understand)?;
        let Some((first, last)) = hosts(key) else { continue };
        if (last - first) as usize >= MOST_USERS - users.len() {
            let problem = format!("more users than {MOST_USERS}");
            return Err(ConfigError::inside(DEFINITION.name, key, problem));
        }
        users.extend((first..=last).map(|host| (host, rate.clone(), nominal)));
    }
    users.sort_by_key(|(host, ..)| *host);
    if let Some(pair) = users.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(ConfigError::repeated(DEFINITION.name, &pair[0].0.to_string()));
    }
    let nominals = users.iter().map(|(.., nominal)| *nominal);
    let Some(lowest) = nominals.clone().min() else {
        return Err(values.missing("HOST", "a user with its rate, such as 1=60mbit"));
    };
    // Each of `n` users has the n-th part of the mean rate if all have the same time.
    let share = (nominals.sum::<u64>() / (users.len() * users.len()) as u64).max(1);
    let multicast = values.get(MULTICAST).unwrap_or(Rate::from_bits_per_second(lowest));
    let (hosts, mut rates): (_, Vec<_>) =
        users.into_iter().map(|(host, rate, _)| (host, rate)).unzip();
    rates.push(RateProcess::Constant(Constant::new(multicast)));
    let scheduler = values.get(SCHEDULER);
    let is_timed = matches!(scheduler, Scheduler::Airtime | Scheduler::ProportionalFair);
    let radio = RadioConfig {
        hosts,
        by_source: values.get(HOST),
        rates,
        scheduler,
        slot: if is_timed { values.get(SLOT) } else { Span::from_nanos(u64::MAX) },
        aggregate: if is_timed { u32::MAX } else { values.get(AGGREGATE) },
        access: values.get(ACCESS),
        averaging: values.get(AVERAGING),
        dtim: values.get(DTIM),
        memory: values.get(MEMORY),
    };
    if radio.access >= radio.slot {
        return Err(values.refuse(ACCESS, "less than `slot`"));
    }
    if radio.dtim > Span::ZERO && scheduler == Scheduler::None {
        let expected = "another scheduler with it: `none` has no queue of multicast packets";
        return Err(values.refuse(DTIM, expected));
    }
    let rate = RateProcess::PerUser(Box::new(radio));
    Ok(LinkConfig::of_rate(rate, Rate::from_bits_per_second(share)))
}

/// Reads the link of a user, of which only the rate counts. Returns the rate, and the long-term one.
fn user_rate(
    key: &str,
    value: &str,
    understand: &mut Understand<'_>,
) -> Result<(RateProcess, u64), ConfigError> {
    let inside = |error: ConfigError| ConfigError::inside(DEFINITION.name, key, error);
    let is_nested = value.starts_with('[');
    let spec = if is_nested { Spec::parse_nested(value) } else { Spec::parse(value) };
    let spec = spec.map_err(inside)?;
    let (rate, facts) = understand(&spec).map_err(inside)?;
    let mut keys = spec.items.iter().filter_map(|item| item.key.as_deref());
    if let Some(key) = keys.find(|key| SHARED.iter().any(|param| param.key == *key)) {
        let problem = format!("`{key}` belongs to the whole link; expected it beside the users");
        return Err(inside(ConfigError::Refused(problem)));
    }
    match (&rate, facts.rate) {
        (
            RateProcess::Constant(_) | RateProcess::Schedule(_) | RateProcess::Cellular(_),
            Some(nominal),
        ) => Ok((rate, nominal.bits_per_second().max(1))),
        _ => Err(inside(ConfigError::Refused(format!(
            "`{spec}` has no rate at each instant; expected a rate, steps, cellular, or trace with \
             profile=exact"
        )))),
    }
}
