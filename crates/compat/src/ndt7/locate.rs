//! M-Lab's locate service: it names servers nearby, with URLs that are signed for this client.

use std::collections::BTreeMap;

use serde::Deserialize;
use underload_record::text::one_line;
use ureq::ResponseExt as _;

use super::{Ndt7Error, Ndt7Target};
use crate::https::{self, Chosen};

pub const LOCATE_URL: &str = "https://locate.measurementlab.net/v2/nearest/ndt/ndt7";
/// Domains of the public service's servers.
const PUBLIC: [&str; 2] = [".measurement-lab.org", ".measurementlab.net"];
/// Longest answer; real ones have 8 KiB.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// Servers of an answer that are read.
const SERVERS_MAX: usize = 8;
const REDIRECTS_MAX: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub target: Ndt7Target,
    /// City and country, as the service reports them; can be empty.
    pub place: String,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    results: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    location: Option<Place>,
    #[serde(default)]
    urls: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Place {
    city: Option<String>,
    country: Option<String>,
}

/// Requests a list of servers from a locate service, nearest first. The service must have a
/// certificate of the system's authorities; without TLS it must be on this machine.
///
/// # Errors
/// Returns an error if the service cannot be reached, has no capacity, or names no server.
pub fn locate(url: &str) -> Result<Vec<Located>, Ndt7Error> {
    let host = host_of(url)?;
    let chosen = Chosen::default();
    let http = https::agent(REDIRECTS_MAX, chosen.clone())?;
    let ask_error =
        |source: ureq::Error| Ndt7Error::Ask { host: host.clone(), source: source.into() };
    let answer_error = |what: String| Ndt7Error::Locate { host: host.clone(), what };
    let mut answer =
        http.get(url).header("Accept", "application/json").call().map_err(ask_error)?;
    // A redirect to a page without TLS could be forged.
    host_of(&answer.get_uri().to_string())?;
    match answer.status().as_u16() {
        200 => {}
        204 => {
            let what = "no server has room now, or today's tests are used up";
            return Err(answer_error(what.into()));
        }
        status => return Err(answer_error(format!("it answers {status}"))),
    }
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let mut servers = read_located(&body.map_err(ask_error)?, url == LOCATE_URL)
        .map_err(|what| answer_error(what.to_owned()))?;
    for server in &mut servers {
        server.target.named_by = chosen.addresses();
    }
    Ok(servers)
}

/// Parses a service's answer. The public service must name servers of M-Lab's domains.
///
/// # Errors
/// Returns the reason why the answer names no usable server, as part of a message.
pub fn read_located(json: &[u8], is_public: bool) -> Result<Vec<Located>, &'static str> {
    let wire: Wire =
        serde_json::from_slice(json).map_err(|_| "its answer is not the JSON expected")?;
    let server = |entry: Entry| {
        let url = |test: &str| entry.urls.get(&format!("wss:///ndt/v7/{test}"));
        let target = Ndt7Target::of_urls(url("download")?, url("upload")?).ok()?;
        let is_ours = PUBLIC.iter().any(|domain| target.host().ends_with(domain));
        let place = entry.location.into_iter().flat_map(|it| [it.city, it.country]).flatten();
        let place: Vec<String> =
            place.map(|word| one_line(&word).chars().take(60).collect()).collect();
        (is_ours || !is_public).then(|| Located { target, place: place.join(", ") })
    };
    let servers: Vec<Located> =
        wire.results.into_iter().take(SERVERS_MAX).filter_map(server).collect();
    if servers.is_empty() { Err("its answer names no server with TLS") } else { Ok(servers) }
}

fn host_of(url: &str) -> Result<String, Ndt7Error> {
    https::host_of(url).ok_or_else(|| Ndt7Error::Target {
        text: url.chars().take(100).collect(),
        accepted: "https://HOST[:PORT]/PATH, or http:// to this machine",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(host: &str) -> String {
        format!(
            r#"{{"next_request":{{"nbf":"2026"}},"results":[
              {{"machine":"mlab1","location":{{"city":"Ham\u0007burg","country":"DE"}},"urls":{{
                "ws:///ndt/v7/download":"ws://{host}/ndt/v7/download?access_token=s",
                "wss:///ndt/v7/download":"wss://{host}/ndt/v7/download?access_token=s",
                "wss:///ndt/v7/upload":"wss://{host}/ndt/v7/upload?access_token=s"}}}},
              {{"machine":"without addresses"}}]}}"#
        )
    }

    #[test]
    fn only_tls_servers_are_accepted_and_only_m_labs_from_its_locate_service() {
        let public = "ndt-mlab1-ham01.mlab-oti.measurement-lab.org";
        let found = read_located(answer(public).as_bytes(), true).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "Ham\u{fffd}burg, DE");
        assert_eq!(found[0].target.name, format!("{public}:443"));
        for other in ["victim.example", "measurement-lab.org.example", "xmeasurement-lab.org"] {
            assert!(read_located(answer(other).as_bytes(), true).is_err(), "{other}");
            assert!(read_located(answer(other).as_bytes(), false).is_ok(), "{other}");
        }
        for wrong in ["", "{}", "[]", "{\"results\":[]}", "{\"results\":[{\"urls\":{}}]}"] {
            assert!(read_located(wrong.as_bytes(), false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_loopback_is_queried_without_tls() {
        for url in ["http://127.0.0.1:1/x", "http://[::1]/x", "https://a.example/x"] {
            assert!(host_of(url).is_ok(), "{url}");
        }
        for url in ["http://a.example/x", "http://192.0.2.1/", "ftp://127.0.0.1/", ""] {
            assert!(host_of(url).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_of_the_locate_service_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_located(&bytes, true);
        }
    }
}
