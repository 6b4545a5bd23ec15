//! The parameters of a rate that changes at given times.

use alloc::vec::Vec;

use super::{LinkConfig, SHARED};
use crate::config::{ConfigError, Kind, Value, Values, params};
use crate::link::rate_process::RateProcess;
use crate::link::schedule::{Schedule, Step};
use crate::time::Span;

params! {
    define DEFINITION: "steps", "rate that changes at given times: steps:0s=6mbit,10s=600kbit",
        source: "piecewise constant, exact in mid-packet; rate 0bit is an outage", shared: SHARED,
        free_key: Some(|key| Kind::Span.read(key).is_some());
    REPEAT: Option<Span> = "repeat", ("the last rate holds for ever") in "1us".."31536000s",
        "start over after this time";
}

pub(crate) fn configure(values: &Values) -> Result<LinkConfig, ConfigError> {
    let mut steps = Vec::new();
    for (key, value) in values.free() {
        let (Some(Value::Span(start)), Some(Value::Rate(rate))) =
            (Kind::Span.read(key), Kind::Rate.read(value))
        else {
            let expected = Kind::Rate.expectation();
            return Err(ConfigError::value(DEFINITION.name, key, value, expected));
        };
        steps.push(Step { start, rate });
    }
    let schedule = Schedule::new(steps, values.get(REPEAT)).map_err(|problem| {
        let is_of_repeat = problem.starts_with("`repeat`");
        let key = if is_of_repeat { REPEAT.name() } else { "TIME=RATE" };
        ConfigError::inside(DEFINITION.name, key, problem)
    })?;
    let nominal = schedule.nominal_rate();
    Ok(LinkConfig::of_rate(RateProcess::Schedule(schedule), nominal))
}
