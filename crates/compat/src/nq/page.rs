//! The page that measures in a browser: its files, and the server's view of its loads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response};
use underload_probe::network::CustomerNetwork;
use underload_record::judgement::{Judgement, LoadedStep, Sentences, judge};

use super::answer::{Content, uncached_response};
use super::transfer::Transfer;

const PAGE: &str = include_str!("../web/page.html");
const STYLE: &str = include_str!("../web/page.css");
/// Scripts of the page and of its workers.
const SCRIPTS: [(&str, &str); 11] = [
    ("/page.js", include_str!("../web/page.js")),
    ("/channel.js", include_str!("../web/channel.js")),
    ("/draw.js", include_str!("../web/draw.js")),
    ("/history.js", include_str!("../web/history.js")),
    ("/load.js", include_str!("../web/load.js")),
    ("/picture.js", include_str!("../web/picture.js")),
    ("/present.js", include_str!("../web/present.js")),
    ("/probe.js", include_str!("../web/probe.js")),
    ("/share.js", include_str!("../web/share.js")),
    ("/summary.js", include_str!("../web/summary.js")),
    ("/thread.js", include_str!("../web/thread.js")),
];

/// Only resources of this server, and no embedding in other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; \
    style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

pub(super) const CHANNEL: &str = "/channel";
/// Judges results of the page: a list of results, each a list of [`LoadedStep`].
pub(super) const JUDGEMENT: &str = "/judgement";
/// Longest request for judgements: 20 results of two steps of about 400 bytes.
pub(super) const JUDGEMENT_BYTES_MAX: usize = 32 << 10;
const RESULTS_MAX: usize = 32;
const STEPS_MAX: usize = 8;

/// Writes the sentences of a judgement.
pub type Wording = fn(&Judgement) -> Sentences;

/// Returns the judgement of each result in `request` with its sentences. Returns `None` for a request
/// that cannot be parsed, or that has too many results or steps.
pub(super) fn judgements(request: &[u8], sentences: Wording) -> Option<String> {
    #[derive(serde::Serialize)]
    struct Judged {
        judgement: Judgement,
        sentences: Sentences,
    }

    let results: Vec<Vec<LoadedStep>> = serde_json::from_slice(request).ok()?;
    if results.len() > RESULTS_MAX || results.iter().any(|steps| steps.len() > STEPS_MAX) {
        return None;
    }
    let judged = |steps: Vec<LoadedStep>| {
        let judgement = judge(&steps);
        Judged { sentences: sentences(&judgement), judgement }
    };
    serde_json::to_string(&results.into_iter().map(judged).collect::<Vec<_>>()).ok()
}

/// Answers the page's offers of a data channel for its probes.
pub trait Channels: std::fmt::Debug + Send + Sync {
    /// Answers an offer; both are session descriptions. The page is at `from`, its connection
    /// arrived at the local address `reached`, and it requested `authority` (`HOST[:PORT]`).
    ///
    /// # Errors
    /// Returns an error if the offer is unusable or there is no place.
    fn answer(
        &self,
        offer: &str,
        from: IpAddr,
        reached: IpAddr,
        authority: Option<&str>,
    ) -> Result<String, OfferError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    #[error("no offer of a data channel: {0}")]
    Description(&'static str),
    #[error("too busy")]
    Busy,
}

/// Longest offer: browsers write about 600 bytes, and 100 more for each address.
pub(crate) const OFFER_BYTES_MAX: usize = 16 << 10;

/// Transfers kept. At the limit, the oldest one of the network with the most of them is removed, so
/// that a network with many transfers loses its own.
const TRANSFERS_MAX: usize = 1024;

/// Loads of pages, by a number that each page chooses at random for each load. A guessed number
/// reveals the rate and the round trips of some line, but not whose.
#[derive(Default)]
pub(super) struct Transfers(Mutex<BTreeMap<u64, Kept>>);

struct Kept {
    transfer: Arc<Transfer>,
    network: CustomerNetwork,
    /// When the latest request for this load arrived.
    since: Instant,
}

impl Transfers {
    /// Returns the load that a request from `from` belongs to, or `None` if the query is not a
    /// number.
    pub fn transfer(&self, query: Option<&str>, from: IpAddr) -> Option<Arc<Transfer>> {
        let number: u64 = query?.parse().ok()?;
        let (network, since) = (CustomerNetwork::of(from), Instant::now());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TRANSFERS_MAX && !all.contains_key(&number) {
            let counts = all.iter().map(|(number, it)| (*number, it.network, it.since));
            if let Some(number) = oldest_of_fullest(counts) {
                all.remove(&number);
            }
        }
        let kept =
            all.entry(number).or_insert_with(|| Kept { transfer: Arc::default(), network, since });
        kept.since = since;
        Some(Arc::clone(&kept.transfer))
    }

    /// Answers a request for a file or a counter of the page; `None` for other paths.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Option<Response<Content>> {
        let (bytes, kind) = match path {
            "/" => (PAGE.to_owned(), "text/html; charset=utf-8"),
            "/page.css" => (STYLE.to_owned(), "text/css; charset=utf-8"),
            "/received" => (self.received(query).to_string(), "text/plain; charset=utf-8"),
            "/inside" => (self.inside(query), "application/json"),
            _ => {
                let (_, script) = SCRIPTS.iter().find(|(name, _)| *name == path)?;
                ((*script).to_owned(), "text/javascript; charset=utf-8")
            }
        };
        let mut answer = uncached_response(kind, bytes);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-embedder-policy", "require-corp"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Some(answer)
    }

    fn find(&self, query: Option<&str>) -> Option<Arc<Transfer>> {
        let number = query?.parse::<u64>().ok()?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&number).map(|kept| Arc::clone(&kept.transfer))
    }

    fn received(&self, query: Option<&str>) -> u64 {
        self.find(query).map_or(0, |it| it.bytes.load(Ordering::Relaxed))
    }

    /// Returns a JSON document with the round trips of a load; without readings if it is unknown.
    fn inside(&self, query: Option<&str>) -> String {
        self.find(query).unwrap_or_default().inside_json()
    }
}

/// Whether a page of another origin makes its visitor's browser send this request. Browsers show
/// this by `Sec-Fetch-Site`, older ones by `Origin` or only by `Referer`.
pub(super) fn is_cross_origin<B>(request: &Request<B>) -> bool {
    let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    let own: [&[u8]; 2] = [b"same-origin", b"none"];
    let is_of_other_site = header("sec-fetch-site").is_some_and(|site| !own.contains(&site));
    let host = header("host");
    let is_of_other_host = |url: &[u8]| {
        let authority =
            url.strip_prefix(b"https://").and_then(|it| it.split(|b| *b == b'/').next());
        authority.is_none() || authority != host
    };
    let named = header("origin").or(header("referer"));
    let is_foreign = is_of_other_site || named.is_some_and(is_of_other_host);
    // A link to the page itself is allowed.
    is_foreign && request.uri().path() != "/"
}

/// Returns the oldest entry of the network with the most of `entries`.
fn oldest_of_fullest<K, A: Copy + Ord>(
    entries: impl Iterator<Item = (K, CustomerNetwork, A)> + Clone,
) -> Option<K> {
    let mut counts: BTreeMap<CustomerNetwork, usize> = BTreeMap::new();
    for (_, network, _) in entries.clone() {
        *counts.entry(network).or_insert(0) += 1;
    }
    let rank = |(_, network, since): &(K, CustomerNetwork, A)| {
        (counts.get(network).copied(), Reverse(*since))
    };
    entries.max_by_key(rank).map(|(key, ..)| key)
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;
    use underload_record::judgement::judge_findings;
    use underload_record::schema::{
        Distribution, Finding, InsideLatency, LatencySummary, Phase, PhaseWindow, Quantile,
    };

    use super::*;

    #[test]
    fn the_page_needs_as_many_samples_as_the_program() {
        let quantiles = [Quantile::P50, Quantile::P90, Quantile::P95, Quantile::P99];
        let fewest = quantiles.map(|it| format!("{}: {}", it.name(), it.fewest_samples()));
        let constant = format!("const FEWEST = {{ {} }};", fewest.join(", "));
        assert!(SCRIPTS.iter().any(|(_, script)| script.contains(&constant)), "{constant}");
    }

    /// A step down as the program finds it, and as the page posts it.
    fn found_and_posted(
        (idle_ns, sent_ns, answered_ns, inside_ns): (i64, Option<i64>, i64, Option<i64>),
        (lost, mbit_s, is_held_back): (u64, f64, bool),
    ) -> (Finding, serde_json::Value) {
        let of = |p50_ns, p99_ns| Distribution { count: 700, p50_ns, p99_ns, ..<_>::default() };
        let latency = |phase, lost, distribution| LatencySummary {
            probe: "probe".to_owned(),
            window: PhaseWindow { phase, start_ns: 0, end_ns: 7_000_000_000 },
            sent: 700,
            lost,
            distribution: Some(distribution),
            of_sent_ns: [(Quantile::P99, sent_ns)].into(),
            ..LatencySummary::default()
        };
        let inside =
            |p99_ns| InsideLatency { distribution: of(0, p99_ns), ..InsideLatency::default() };
        let finding = Finding {
            step: "down".to_owned(),
            valid: true,
            latencies: vec![
                latency(Phase::Idle, 0, of(idle_ns, 0)),
                latency(Phase::Load, lost, of(0, answered_ns)),
            ],
            inside: inside_ns.map(inside).into_iter().collect(),
            goodput_down_mbit_s: Some(mbit_s),
            throttled_down: is_held_back,
            ..Finding::default()
        };
        let p99 = |ns: Option<i64>| serde_json::json!({ "quantile": "p99", "ns": ns });
        let posted = serde_json::json!({
            "step": "down", "valid": true, "loaded": true, "idle_p50_ns": idle_ns,
            "beside": p99(sent_ns), "answered": p99(Some(answered_ns)),
            "inside": inside_ns.map(|ns| p99(Some(ns))), "lost_percent": lost as f64 * 100.0 / 700.0,
            "mbit_s": { "up": null, "down": mbit_s },
            "held_back": { "up": false, "down": is_held_back },
        });
        (finding, posted)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

        #[test]
        fn the_page_and_the_program_judge_a_result_alike(
            idle_ns in 100_000..300_000_000_i64,
            sent_ns in option::of(100_000..3_000_000_000_i64),
            answered_ns in 100_000..3_000_000_000_i64,
            inside_ns in option::of(100_000..3_000_000_000_i64),
            rest in (0..140_u64, 0.1..1_000.0_f64, any::<bool>()),
        ) {
            let (finding, posted) =
                found_and_posted((idle_ns, sent_ns, answered_ns, inside_ns), rest);
            let body = serde_json::to_vec(&[[posted]]).unwrap();
            let answer = judgements(&body, |_| Sentences::default()).unwrap();
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            let judgement = serde_json::to_string(&judge_findings(&[finding])).unwrap();
            let judgement: serde_json::Value = serde_json::from_str(&judgement).unwrap();
            prop_assert_eq!(&answer[0]["judgement"], &judgement);
        }
    }

    #[test]
    fn uploads_are_counted_by_number_and_bounded() {
        let uploads = Transfers::default();
        let [here, there] = [[192, 0, 2, 1], [198, 51, 100, 1]].map(IpAddr::from);
        let first = uploads.transfer(Some("7"), here).unwrap();
        first.bytes.fetch_add(5, Ordering::Relaxed);
        assert_eq!((uploads.received(Some("7")), uploads.received(Some("8"))), (5, 0));
        for wrong in [None, Some(""), Some("-1"), Some("99999999999999999999")] {
            assert!(uploads.transfer(wrong, here).is_none(), "{wrong:?}");
        }
        let flood = |from: u64| {
            for number in (from..).take(2 * TRANSFERS_MAX) {
                assert!(uploads.transfer(Some(&number.to_string()), there).is_some());
            }
            assert_eq!(uploads.0.lock().unwrap().len(), TRANSFERS_MAX);
        };
        // Many uploads of one network affect no other network's counters, old or new.
        flood(1_000);
        assert_eq!(uploads.received(Some("7")), 5, "who is counted stays so");
        let late = uploads.transfer(Some("8"), here).unwrap();
        late.bytes.fetch_add(6, Ordering::Relaxed);
        flood(100_000);
        assert_eq!((uploads.received(Some("7")), uploads.received(Some("8"))), (5, 6));
    }

    #[test]
    fn requests_from_pages_of_other_origins_are_recognised() {
        let request = |path: &str, site: Option<&str>| {
            let mut request = Request::builder().uri(path);
            if let Some(site) = site {
                request = request.header("Sec-Fetch-Site", site);
            }
            request.body(()).unwrap()
        };
        assert!(is_cross_origin(&request("/large", Some("cross-site"))));
        assert!(is_cross_origin(&request("/upload?1", Some("same-site"))));
        for site in [None, Some("same-origin"), Some("none")] {
            assert!(!is_cross_origin(&request("/large", site)), "{site:?}");
        }
        assert!(!is_cross_origin(&request("/", Some("cross-site"))), "a link");
        // Browsers without `Sec-Fetch-Site`.
        let named = |name: &str, url: &str| {
            let request = Request::builder().uri("/upload?1").method("POST");
            let request = request.header("host", "here.example:4863").header(name, url);
            is_cross_origin(&request.body(()).unwrap())
        };
        for (name, url, is_foreign) in [
            ("origin", "https://here.example:4863", false),
            ("origin", "https://evil.example", true),
            ("origin", "https://here.example:4863.evil.example", true),
            ("origin", "https://here.example", true),
            ("origin", "http://here.example:4863", true),
            ("origin", "null", true),
            ("referer", "https://here.example:4863/page", false),
            ("referer", "https://evil.example/here.example:4863", true),
        ] {
            assert_eq!(named(name, url), is_foreign, "{name}: {url}");
        }
    }

    /// The policy forbids inline script and style.
    #[test]
    fn the_page_has_no_script_or_style_in_it() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(PAGE.contains("<script type=\"module\" src=\"page.js\"></script>"));
        assert!(!PAGE.contains("style=") && !PAGE.contains("<style") && !PAGE.contains("onclick"));
        let names = SCRIPTS.map(|(name, _)| name.trim_start_matches('/'));
        for (name, script) in SCRIPTS {
            assert!(script.lines().count() < 400 && !script.contains("innerHTML"), "{name}");
            let asked: Vec<&str> = script
                .split("from \"./")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .collect();
            assert!(asked.iter().all(|asked| names.contains(asked)), "{name}: {asked:?}");
        }
    }
}
