//! The parameters of a recording.

use alloc::string::String;
use alloc::vec::Vec;

use super::{LinkConfig, OVERHEAD, SHARED};
use crate::config::{Bytes, ConfigError, Definition, Values, params, profiles};
use crate::link::rate_process::RateProcess;
use crate::link::trace::{Opportunities, Trace};

params! {
    FILE: String = "file", (required), "the recording";
    OPPORTUNITY: Bytes = "opportunity", "1504B" in "64B".."64KiB",
        "bytes that an opportunity carries, overhead included";
    use OVERHEAD.or("4B");
}

profiles! {
    enum Published {
        Mahimahi = "mahimahi": "opportunities at instants, lost when idle (mm-link)",
        Exact = "exact": "constant rate within each millisecond, nothing lost",
    }
}

pub(crate) const DEFINITION: Definition = Definition {
    name: "trace",
    summary: "recorded delivery opportunities: trace:FILE",
    source: "Mahimahi's trace format: a time in ms per opportunity",
    profiles: Published::PROFILES,
    params: PARAMS,
    shared: SHARED,
    positional: Some(FILE.name()),
    ..Definition::BARE
};

/// Builds the link; `load` reads its file.
pub(crate) fn configure(
    values: &Values,
    load: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<LinkConfig, ConfigError> {
    let file = values.get(FILE);
    let inside = |problem: String| ConfigError::inside(DEFINITION.name, &file, problem);
    let bytes = load(&file).map_err(inside)?;
    let trace = Trace::parse(&bytes).map_err(inside)?;
    let opportunity_bytes = values.get(OPPORTUNITY) as u32;
    let nominal = trace.mean_rate(opportunity_bytes);
    let process = match Published::of(values) {
        Published::Mahimahi => {
            RateProcess::Opportunities(Opportunities::new(trace, opportunity_bytes))
        }
        Published::Exact => RateProcess::Schedule(trace.to_schedule(opportunity_bytes)),
    };
    Ok(LinkConfig::of_rate(process, nominal))
}
