//! The parameters of a cable modem's upstream.

use super::{LinkConfig, SHARED};
use crate::config::{Bytes, ConfigError, LinkFacts, Probability, Profile, Values, choices, params};
use crate::link::docsis::DocsisUpstream;
use crate::link::grants::{Busy, RequestGrant, RequestMode};
use crate::link::rate_process::RateProcess;
use crate::queue::store::Limit;
use crate::rate::Rate;
use crate::time::Span;
use crate::token_bucket::MAX_BURST_BYTES;

/// Shorter intervals would cost too much time: each is computed on a busy link.
const LEAST_MAP: Span = Span::from_micros(100);
/// The standard's default: two frames.
const LEAST_BURST_BYTES: u64 = 3_044;
/// A frame of OFDMA with six symbols at 50 kHz (CableLabs' docsis-ns3).
const PREPARATION: Span = Span::from_micros(135);

params! {
    define DEFINITION: "docsis",
        "cable modem upstream: token bucket with a peak rate; presets: generation=3.0",
        source: "DOCSIS MULPIv3.1 annex C.2.2.7; requests and grants: CableLabs' docsis-ns3",
        profiles: GENERATIONS, profile_key: "generation", shared: SHARED;
    RATE: Rate = "rate", (required) in "1kbit".."400gbit", "maximum sustained traffic rate";
    BURST: Option<Bytes> = "burst",
        ("3044B; with `map` and the bytes of a MAP interval at `rate`") in "1522B".."1024MiB",
        "maximum traffic burst; with `map` no interval carries more";
    PEAK: Rate = "peak", (required) in "1kbit".."400gbit",
        "peak traffic rate, not below the sustained rate";
    MAP: Span = "map", { "none": "0s", "lld": "1ms", "others": "2ms" } in "0s".."100ms",
        "MAP interval, from 100us; packets wait in the queue for requests and grants; 0s: no wait";
    GRANT: Span = "grant", { "3.1": "2ms", "lld": "1500us", "others": "4ms" } in "0s".."1s",
        "with `map`: time from a request's MAP boundary to its grant";
    REQUEST: RequestMode = "request", "contention-start",
        "contention-start, -random: in a grant, else at the start or a random time of a MAP interval; -only: not in grants";
    OUTSTANDING: Outstanding = "outstanding", { "1.1": "one", "2.0": "one", "others": "many" },
        "requests of a service flow that wait for their grants: one before DOCSIS 3.0";
    MAX_BURST: Bytes = "max-burst", "1522B" in "1522B".."1MiB",
        "with `outstanding=one`: bytes of whole packets that one request asks for, one packet at least";
    FREED: Freed = "freed", "grant",
        "when packets leave the queue: at their grant, or when the modem prepares it, 135us before";
    BUSY: Probability = "busy", "0%" in "0%".."95%",
        "mean share of each MAP interval, at the peak rate, that other modems use";
    BUSY_VARIATION: Probability = "busy-variation", "0%" in "0%".."50%",
        "largest random distance of a MAP interval's share from `busy`, evenly distributed";
    ACKS: Acks = "acks", "with-data",
        "apart: TCP acknowledgements without data wait in a queue of their own, which is served first";
    ACKS_LIMIT: Bytes = "acks-limit", "64KiB" in "64B".."1024MiB",
        "with `acks=apart`: limit of their queue; one that would exceed it is dropped";
}

choices!(RequestMode {
    "contention-start" => ContentionStart,
    "contention-random" => ContentionRandom,
    "contention-only" => ContentionOnly,
});

/// Whether a flow may have only one request outstanding.
enum Outstanding {}

choices!(Outstanding => bool { "many" => false, "one" => true, });

/// Whether TCP acknowledgements have a separate queue.
enum Acks {}

choices!(Acks => bool { "with-data" => false, "apart" => true, });

/// The time between the packets' departure from the queue and their grant.
enum Freed {}

choices!(Freed => Span { "grant" => Span::ZERO, "preparation" => PREPARATION, });

const GENERATIONS: &[Profile] = &[
    Profile { name: Profile::NONE, doc: "no preset: `map` must be given for requests and grants" },
    Profile { name: "1.1", doc: "one request outstanding, for a burst of one frame" },
    Profile { name: "2.0", doc: "as 1.1" },
    Profile {
        name: "3.0",
        doc: "several requests outstanding; at most 6 ms from arrival to grant",
    },
    Profile { name: "3.1", doc: "as 3.0, 4 ms" },
    Profile { name: "lld", doc: "Low Latency DOCSIS: as 3.1, 2.5 ms" },
];

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
    let (is_one, preparation) = (values.get(OUTSTANDING), values.get(FREED));
    refuse_contradictions(values)?;
    let acks_apart = values.get(ACKS);
    Ok(LinkConfig {
        rate: RateProcess::Docsis(DocsisUpstream::new(rate, burst_bytes, peak)),
        facts: LinkFacts {
            rate: Some(rate),
            peak: Some(peak),
            burst_bytes: Some(burst_bytes),
            request_loop: has_requests.then_some(map_interval + to_grant),
            acks_apart,
        },
        requests: has_requests.then_some(RequestGrant {
            map_interval,
            to_grant: to_grant.saturating_sub(preparation),
            preparation,
            rate,
            burst_bytes,
            peak,
            request: values.get(REQUEST),
            max_burst_bytes: is_one.then(|| values.get(MAX_BURST)),
            busy: Busy { mean_q32: values.get(BUSY), variation_q32: values.get(BUSY_VARIATION) },
        }),
        acks: acks_apart.then(|| Limit::bytes(values.get(ACKS_LIMIT))),
    })
}

/// Rejects values that would have no effect, or an effect that their key does not describe.
fn refuse_contradictions(values: &Values) -> Result<(), ConfigError> {
    let is_given = [
        values.is_given(REQUEST),
        values.is_given(OUTSTANDING),
        values.is_given(FREED),
        values.is_given(BUSY),
    ];
    if values.get(MAP) == Span::ZERO && is_given.contains(&true) {
        let expected = "100us or more with `request`, `outstanding`, `freed` or `busy`";
        return Err(values.refuse(MAP, expected));
    }
    if values.is_given(MAX_BURST) && !values.get(OUTSTANDING) {
        return Err(values.refuse(MAX_BURST, "`outstanding=one` with it"));
    }
    if values.is_given(ACKS_LIMIT) && !values.get(ACKS) {
        return Err(values.refuse(ACKS_LIMIT, "`acks=apart` with it"));
    }
    if values.get(GRANT) < values.get(FREED) {
        return Err(values.refuse(GRANT, "135us or more with `freed=preparation`"));
    }
    let busy = values.get(BUSY);
    if values.get(BUSY_VARIATION) > busy.min((1 << 32) - busy) {
        return Err(values.refuse(BUSY_VARIATION, "at most `busy`, and at most 100% with it"));
    }
    Ok(())
}
