//! The parameters of a recording.

use alloc::string::String;
use alloc::vec::Vec;

use super::{LinkConfig, OVERHEAD, SHARED};
use crate::config::{Bytes, ConfigError, Values, params, profiles};
use crate::link::rate_process::RateProcess;
use crate::link::trace::{Opportunities, Trace};

params! {
    define DEFINITION: "trace", "recorded delivery opportunities, or rates: trace:FILE",
        source: "Mahimahi's trace format: a time in ms per opportunity; or seconds and Mbit/s",
        profiles: Published::PROFILES, shared: SHARED, positional: Some(FILE.name());
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

/// Builds the link; `load` reads its file.
pub(crate) fn configure(
    values: &Values,
    load: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<LinkConfig, ConfigError> {
    let file = values.get(FILE);
    let inside = |problem: String| ConfigError::inside(DEFINITION.name, &file, problem);
    let bytes = load(&file).map_err(inside)?;
    if let Some(schedule) = Trace::rates(&bytes) {
        let schedule = schedule.map_err(inside)?;
        let nominal = schedule.nominal_rate();
        return Ok(LinkConfig::of_rate(RateProcess::Schedule(schedule), nominal));
    }
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
