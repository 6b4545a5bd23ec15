//! The parameters of a cable modem's upstream.

use super::{LinkConfig, SHARED};
use crate::config::{Bytes, ConfigError, Definition, LinkFacts, Values, params};
use crate::link::docsis::DocsisUpstream;
use crate::link::grants::RequestGrant;
use crate::link::rate_process::RateProcess;
use crate::rate::Rate;
use crate::time::Span;
use crate::token_bucket::MAX_BURST_BYTES;

/// Shorter intervals would cost too much time: each is computed on a busy link.
const LEAST_MAP: Span = Span::from_micros(100);
/// The standard's default: two frames.
const LEAST_BURST_BYTES: u64 = 3_044;

params! {
    RATE: Rate = "rate", (required) in "1kbit".."400gbit", "maximum sustained traffic rate";
    BURST: Option<Bytes> = "burst",
        ("3044B; with `map` and the bytes of a MAP interval at `rate`") in "1522B".."1024MiB",
        "maximum traffic burst; with `map` no interval carries more";
    PEAK: Rate = "peak", (required) in "1kbit".."400gbit",
        "peak traffic rate, not below the sustained rate";
    MAP: Span = "map", "0s" in "0s".."100ms",
        "MAP interval, from 100us; packets wait in the queue for requests and grants; 0s: no wait";
    GRANT: Span = "grant", "4ms" in "0s".."1s",
        "with `map`: time from a request's MAP boundary to its grant";
}

pub(crate) const DEFINITION: Definition = Definition {
    name: "docsis",
    summary: "cable modem upstream: token bucket with a peak rate",
    source: "DOCSIS MULPIv3.1 annex C.2.2.7; requests and grants: CableLabs' docsis-ns3",
    params: PARAMS,
    shared: SHARED,
    ..Definition::BARE
};

pub(crate) fn configure(values: &Values) -> Result<LinkConfig, ConfigError> {
    let (rate, peak) = (values.get(RATE), values.get(PEAK));
    if peak < rate {
        return Err(values.refuse(PEAK, "at least the sustained rate"));
    }
    let (map_interval, to_grant) = (values.get(MAP), values.get(GRANT));
    let burst_bytes = values.get(BURST).unwrap_or(LEAST_BURST_BYTES + rate.bytes_in(map_interval));
    let burst_bytes = burst_bytes.min(MAX_BURST_BYTES);
    let has_requests = map_interval > Span::ZERO;
    if has_requests && map_interval < LEAST_MAP {
        return Err(values.refuse(MAP, "0s, or 100us to 100ms"));
    }
    Ok(LinkConfig {
        rate: RateProcess::Docsis(DocsisUpstream::new(rate, burst_bytes, peak)),
        facts: LinkFacts {
            rate: Some(rate),
            peak: Some(peak),
            burst_bytes: Some(burst_bytes),
            request_loop: has_requests.then_some(map_interval + to_grant),
        },
        requests: has_requests.then_some(RequestGrant {
            map_interval,
            to_grant,
            rate,
            burst_bytes,
            peak,
        }),
    })
}
