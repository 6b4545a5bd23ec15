//! Tests at ndt7 servers: M-Lab's public ones, or others.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};
use underload_compat::ndt7::{
    DURATION, End, LOCATE_URL, Located, Ndt7Error, Ndt7Result, Ndt7Target, Ndt7Test, locate,
};
use underload_compat::nq::NqTrust;
use underload_measure::ForeignLoad;
use underload_probe::control::in_full;
use underload_record::schema::{
    Direction, Distribution, ForeignTest, InsideLatency, Metric, Readings, Unmeasured, Vantage,
};
use underload_record::stats::distribution;
use underload_record::text::plain_text;

use super::{Server, ServerResult, m_lab, server_trust};
use crate::{BadSetting, LineError, Problem, Progress, Request, Setting};

/// How a sentence names the round trips of ndt7.
const INSIDE: &str = "smoothed readings of the loading connection";

/// Numbers that such a test does not have.
const CANNOT_TELL: &[Unmeasured] = &[
    Unmeasured::OtherTraffic,
    Unmeasured::Losses,
    Unmeasured::OneWay,
    Unmeasured::Markings,
    Unmeasured::OtherSenders,
];

/// The domains of M-Lab's servers.
const PUBLIC: [&str; 2] = ["measurement-lab.org", "measurementlab.net"];

/// At most this much of a step is discarded as ramp-up.
const RAMP: Duration = Duration::from_secs(2);

/// ndt7 servers, of which the first that can be reached measures.
pub struct Ndt7 {
    trust: NqTrust,
    /// Servers to try in order; not empty.
    candidates: Vec<Located>,
    /// Position of the server in use.
    at: usize,
}

impl Ndt7 {
    /// Longest load of one direction.
    pub const DURATION_MAX: Duration = DURATION;

    /// Whether a host names an ndt7 server, or the nearest one.
    pub fn is_wanted(host: &str) -> bool {
        host == Self::TEST || host.starts_with("ndt7://")
    }

    /// Checks that the host is `ndt7`, or names an ndt7 server.
    ///
    /// # Errors
    /// Returns an error that names the accepted forms.
    pub fn check(host: &str) -> Result<(), Ndt7Error> {
        if host == Self::TEST { Ok(()) } else { Ndt7Target::of_host(host).map(drop) }
    }

    /// Whether a test at `host` uses M-Lab's servers. `locate` is the URL of the service that names the
    /// nearest server; `None` is M-Lab's.
    pub fn is_public(host: &str, locate: Option<&str>) -> bool {
        if host != Self::TEST {
            return Ndt7Target::of_host(host).is_ok_and(|target| is_in_public(target.host()));
        }
        let url = locate.unwrap_or(LOCATE_URL);
        // The path does not matter.
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        is_in_public(host.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or(host))
    }

    /// Locates the servers without connecting to them. `locator` is the URL of the service that
    /// names the nearest server; `None` is M-Lab's.
    ///
    /// # Errors
    /// Returns an error if no server is found, or the certificate to trust cannot be read.
    pub fn open(request: &Request, locator: Option<&str>) -> Result<Self, LineError> {
        let trust = server_trust(request)?;
        if Self::is_public(&request.host, locator) {
            m_lab::remember_test()?;
        }
        let candidates = if request.host == Self::TEST {
            locate(locator.unwrap_or(LOCATE_URL)).map_err(|error| match error {
                error @ Ndt7Error::Target { .. } => {
                    let source = Problem::Server(error.into());
                    BadSetting { setting: Setting::Locate, source }.into()
                }
                error => foreign(error),
            })?
        } else {
            let target = Ndt7Target::of_host(&request.host).map_err(foreign)?;
            vec![Located { target, place: String::new() }]
        };
        Ok(Self { trust, candidates, at: 0 })
    }

    /// Adds a hint if the TLS handshake fails, as it does with a self-signed certificate.
    fn hinted(&self, error: Ndt7Error) -> LineError {
        let is_handshake =
            matches!(&error, Ndt7Error::Connect { step: "the TLS handshake with", .. });
        if is_handshake && self.trust == NqTrust::System {
            return LineError::SelfSigned(error.into());
        }
        foreign(error)
    }
}

fn is_in_public(host: &str) -> bool {
    // Names are case-insensitive and may have the root's dot.
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_in = |domain: &&str| {
        host == *domain || host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'))
    };
    PUBLIC.iter().any(is_in)
}

fn foreign(error: Ndt7Error) -> LineError {
    LineError::Foreign(error.into())
}

impl Server for Ndt7 {
    const TEST: &'static str = "ndt7";

    fn title(&self, request: &Request) -> String {
        match self.candidates.first() {
            // The steps name the server in use, because several may be tried.
            Some(located) if request.host == Self::TEST && !located.place.is_empty() => {
                format!("{}, {}", Self::TEST, plain_text(&located.place))
            }
            _ => request.shown_host(),
        }
    }

    fn describe(&self, request: &Request, document: &mut Value) {
        let located = &self.candidates[self.at];
        let is_located = request.host == Self::TEST;
        let server = || located.target.name.clone();
        document["server"] = if is_located { server() } else { request.shown_host() }.into();
        document["place"] = located.place.clone().into();
    }

    fn measure(
        &mut self,
        request: &Request,
        direction: Direction,
        moved: &Cell<u64>,
        progress: &mut dyn Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<ServerResult>, LineError> {
        let before = moved.get();
        let duration_max = request.knobs.duration.unwrap_or(DURATION);
        // The other direction uses the same server.
        let result = loop {
            let target = self.candidates[self.at].target.clone();
            let name = target.name.clone();
            let (direction_name, seconds) = (direction.name(), duration_max.as_secs_f64());
            progress.note(&format!("{name}: loading {direction_name} for at most {seconds:.0} s"));
            let congestion_control = Some(request.knobs.congestion_control.clone());
            let trust = self.trust;
            let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
            match test.run(&mut |_, bytes| moved.set(before + bytes), stop) {
                Ok(result) => break result,
                Err(error @ (Ndt7Error::Connect { .. } | Ndt7Error::WebSocket { .. }))
                    if self.at + 1 < self.candidates.len() =>
                {
                    let error = plain_text(&in_full(&error));
                    progress.note(&format!("{error}; trying the next server"));
                    self.at += 1;
                }
                Err(error) => return Err(self.hinted(error)),
            }
        };
        if result.end == End::Cancelled {
            return Ok(None);
        }
        let server =
            (request.host == Self::TEST).then(|| self.candidates[self.at].target.name.clone());
        let load = foreign_load(direction, &result, server);
        Ok(Some(ServerResult { load, details: as_json(direction, &result) }))
    }
}

/// Returns the readings under load; `None` without any.
fn loaded(result: &Ndt7Result) -> Option<Distribution> {
    let usable = result.loaded_rtt_us().into_iter().filter(|us| us.is_finite() && *us > 0.0);
    distribution(&mut usable.map(nanos).collect::<Vec<u64>>())
}

/// Returns the smallest round trip of the connection, including the TCP handshake, ns.
fn smallest_ns(result: &Ndt7Result) -> u64 {
    let handshake_us = result.handshake.as_secs_f64() * 1e6;
    nanos(result.rtt_min_us.map_or(handshake_us, |us| handshake_us.min(us)))
}

fn nanos(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Converts a result to a step.
fn foreign_load(direction: Direction, result: &Ndt7Result, server: Option<String>) -> ForeignLoad {
    let mut remarks: Vec<String> =
        server.map(|name| format!("against {name}")).into_iter().collect();
    remarks.push(format!(
        "{:.1} Mbit/s over all {:.1} s, as ndt7 defines its rate",
        result.goodput_bit_per_s / 1e6,
        result.elapsed.as_secs_f64()
    ));
    remarks.extend(result.congestion_control.as_ref().map(|name| format!("sent with {name}")));
    remarks.extend(
        result.sent_again_percent.map(|percent| format!("{percent:.1} % of the bytes sent again")),
    );
    if direction == Direction::Down {
        remarks.push(
            "the server chooses how it sends: M-Lab's use BBR, which fills a buffer less than the \
             downloads of most people do"
                .to_owned(),
        );
    }
    let metric = |name: &str, unit: &str, value: Option<f64>| {
        value.map(|_| Metric { name: name.to_owned(), unit: unit.to_owned(), value })
    };
    let by_server = result.server.map(|server| server.goodput_bit_per_s / 1e6);
    let metrics = [
        metric("goodput_whole", "Mbit/s", Some(result.goodput_bit_per_s / 1e6)),
        metric("goodput_by_server", "Mbit/s", by_server),
        metric("sent_again", "%", result.sent_again_percent),
        metric("tcp_handshake", "ms", Some(result.handshake.as_secs_f64() * 1e3)),
    ];
    let (loaded, smallest_ns) = (loaded(result), Some(smallest_ns(result)));
    let inside =
        |distribution| InsideLatency { direction, connections: 1, smallest_ns, distribution };
    let readings =
        |distribution| Readings { of: INSIDE.to_owned(), vantage: Vantage::Inside, distribution };
    let broken = (result.end == End::Broken)
        .then(|| format!("the connection broke after {:.1} s", result.elapsed.as_secs_f64()));
    ForeignLoad {
        direction,
        goodput_bit_per_s: result.settled_bit_per_s.unwrap_or(result.goodput_bit_per_s),
        ramp: if result.settled_bit_per_s.is_some() { RAMP } else { Duration::ZERO },
        elapsed: result.elapsed,
        congestion_control: result.congestion_control.clone(),
        rpm: None,
        moved: result.moved.clone(),
        readings: result.readings.clone(),
        metrics: metrics.into_iter().flatten().collect(),
        inside: loaded.map(inside),
        incomplete: broken.into_iter().collect(),
        cannot_tell: CANNOT_TELL,
        foreign: ForeignTest {
            test: Ndt7::TEST.to_owned(),
            smallest_ns,
            loaded: loaded.map(readings).into_iter().collect(),
            told: remarks,
        },
    }
}

fn as_json(direction: Direction, result: &Ndt7Result) -> Value {
    let loaded = loaded(result);
    json!({
        "direction": direction.name(),
        "congestion_control": result.congestion_control,
        "elapsed_s": result.elapsed.as_secs_f64(),
        "goodput_bit_per_s": result.goodput_bit_per_s,
        "settled_bit_per_s": result.settled_bit_per_s,
        "round_trip_smallest_ns": smallest_ns(result),
        "round_trip_loaded_p50_ns": loaded.map(|it| it.p50_ns),
        "round_trip_loaded_max_ns": loaded.map(|it| it.max_ns),
        "round_trip_readings": loaded.map_or(0, |it| it.count),
        "tcp_handshake_ns": result.handshake.as_nanos() as u64,
        "sent_again_percent": result.sent_again_percent,
        "server_goodput_bit_per_s": result.server.map(|it| it.goodput_bit_per_s),
        "server_elapsed_s": result.server.map(|it| it.elapsed_s),
        "messages_read": result.messages.0,
        "messages_passed_over": result.messages.1,
        "ended_by": match result.end {
            End::Time => "time",
            End::Server => "server",
            End::Broken => "connection",
            End::Cancelled => "user",
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn result(readings_us: &[f64], end: End) -> Ndt7Result {
        let at = |number: usize| Duration::from_millis(1_000 + 100 * number as u64);
        let readings = readings_us.iter().enumerate().map(|(number, us)| (at(number), *us));
        Ndt7Result {
            address: "127.0.0.1:1".parse().unwrap(),
            handshake: Duration::from_millis(21),
            elapsed: Duration::from_secs(10),
            goodput_bit_per_s: 9.4e6,
            settled_bit_per_s: Some(9.6e6),
            rtt_min_us: Some(20_400.0),
            congestion_control: Some("cubic".to_owned()),
            // A reading before the load.
            readings: std::iter::once((Duration::ZERO, 1.0)).chain(readings).collect(),
            moved: Vec::new(),
            sent_again_percent: Some(1.25),
            server: None,
            messages: (40, 0),
            end,
        }
    }

    #[test]
    fn a_result_has_the_added_latency_and_names_what_is_unknown() {
        let readings = [90_000.0, 230_000.0, 110_000.0].repeat(4);
        let finding = |direction, result: &Ndt7Result, index| {
            foreign_load(direction, result, None).step(index).finding
        };
        let down = finding(Direction::Down, &result(&readings, End::Time), 0);
        let up = finding(Direction::Up, &result(&[], End::Broken), 1);
        let lines = underload_report::finding_lines(&[down, up]);
        let text = lines.join("\n");
        let opening = "Grade C: while you download, packets of the download's own TCP connections are 90 ms \
                       late. Web pages in them open a little later. Without a grade: up. Graded by the p50 \
                       of 12 smoothed readings of the loading connection; not known: the delay of other \
                       traffic, lost packets, ";
        assert!(lines[0].starts_with(opening), "{text}");
        for part in [
            "down: 9.6 Mbit/s down; round trip inside the load p50 110.0 ms, p90 230.0 ms, largest \
             230.0 ms (12 smoothed readings of the loading connection), 20.4 ms without. The load \
             adds 90 ms (p50 minus that without): grade C.",
            "down: 9.4 Mbit/s over all 10.0 s, as ndt7 defines its rate",
            "BBR",
            "1.2 % of the bytes sent again",
            "up: INVALID, no verdict: the connection broke after 10.0 s.",
            "up: sent with cubic",
            "under load the server reports no round trip, 20.4 ms without.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Numbers that ndt7 does not have are not printed as zero.
        assert!(!text.contains("probe") && !lines[1..].concat().contains("lost"), "{text}");
    }

    #[test]
    fn the_nearest_and_named_servers_are_ndt7_servers() {
        assert!(Ndt7::is_wanted("ndt7") && Ndt7::is_wanted("ndt7://a"));
        assert!(!Ndt7::is_wanted("ndt7.example"));
    }

    #[test]
    fn m_labs_servers_are_known_however_they_are_named() {
        for (host, locate) in [
            ("ndt7", None),
            ("ndt7", Some("https://locate.measurementlab.net/v2/other")),
            ("ndt7", Some("https://locate.measurementlab.net:443/?x=/")),
            ("ndt7", Some("https://LOCATE.MeasurementLab.net./v2/nearest")),
            ("ndt7://ndt-a.mlab-oti.measurement-lab.org", None),
            ("ndt7://NDT-A.mlab-oti.Measurement-Lab.ORG.", None),
        ] {
            assert!(Ndt7::is_public(host, locate), "{host} {locate:?}");
        }
        for (host, locate) in [
            ("ndt7", Some("http://127.0.0.1:1/x")),
            ("ndt7", Some("https://measurementlab.net.example/")),
            ("ndt7://a.example", None),
        ] {
            assert!(!Ndt7::is_public(host, locate), "{host} {locate:?}");
        }
    }
}
