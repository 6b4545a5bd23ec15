//! `underload measure ndt7`: a test to M-Lab's public servers, or to other ndt7 servers.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use underload_compat::ndt7::{
    DURATION, End, LOCATE_URL, Located, Ndt7Error, Ndt7Result, Ndt7Target, Ndt7Test, locate,
};
use underload_compat::nq::NqTrust;
use underload_disk::{self as disk, Access};
use underload_line::{LineError, Plan, Test, store_step};
use underload_measure::ForeignLoad;
use underload_record::schema::{Direction, Finding, ForeignTest, InsideReadings, Metric, Readings};
use underload_report::plain_text;
use underload_store::RunDir;
use underload_terminal::console::{note, warning};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::home;

use super::Arguments;
use super::foreign::{check_every, directions, variants};
use super::responsiveness::trust;
use underload_line::series::{PUBLIC_MEAN_LEAST, PUBLIC_PAUSE_LEAST};

/// Whether HOST names an ndt7 server, or the nearest one.
pub fn is_wanted(host: &str) -> bool {
    host == TEST || host.starts_with("ndt7://")
}

/// The domains of M-Lab's servers.
const PUBLIC: [&str; 2] = ["measurement-lab.org", "measurementlab.net"];

const TERMS: &str = "\
M-Lab (Measurement Lab) runs these servers as a public experiment:
  - your IP address and the result are stored and published, for everyone and forever;
  - a test transfers as much as your line carries in 20 s: about 250 MB at 100 Mbit/s;
  - 40 tests a day are allowed; more are refused.
Its terms:   https://www.measurementlab.net/aup/
Its privacy: https://www.measurementlab.net/privacy/";

/// Name of the test in records.
const TEST: &str = "ndt7";
/// How a sentence names the round trips of ndt7.
const INSIDE: &str = "smoothed readings of the loading connection";

/// Numbers that such a test does not have.
const CANNOT_TELL: &str = "round trips are those of the loading connection, smoothed by TCP, so \
there is no 99th percentile, nothing of one way alone, nothing of markings, and nothing of how \
others' packets fare beside it";

/// At most this much of a step is discarded as ramp-up.
const RAMP: Duration = Duration::from_secs(2);

/// Refuses arguments that the test does not support, and M-Lab's servers without accepted terms.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.check_foreign().or_bad_input()?;
    if let Some(duration) = arguments.duration.filter(|it| *it > DURATION || it.as_secs() == 0) {
        refuse!("--duration: {duration:?}: ndt7 accepts 1s to 10s");
    }
    if arguments.host != TEST {
        if arguments.locate.is_some() {
            refuse!("--locate: only accepted with `ndt7` as HOST, which locates a server");
        }
        Ndt7Target::of_host(&arguments.host).or_bad_input()?;
    }
    if is_public(arguments) {
        let rule = "M-Lab requires six hours on average between repeated tests";
        check_every(arguments, PUBLIC_MEAN_LEAST, rule).or_bad_input()?;
        agree(arguments.accept_terms)?;
    }
    Ok(())
}

/// Whether the test uses M-Lab's servers, whose rules then apply.
pub fn is_public(arguments: &Arguments) -> bool {
    let is_m_lab = |host: &str| {
        // Names are case-insensitive and may have the root's dot.
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_in = |domain: &&str| {
            host == *domain || host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'))
        };
        PUBLIC.iter().any(is_in)
    };
    match arguments.host.as_str() {
        TEST => {
            let url = arguments.locate.as_deref().unwrap_or(LOCATE_URL);
            // The path does not matter.
            let host = url.split_once("://").map_or(url, |(_, rest)| rest);
            let host = host.split(['/', '?', '#']).next().unwrap_or_default();
            is_m_lab(host.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or(host))
        }
        host => Ndt7Target::of_host(host).is_ok_and(|target| is_m_lab(target.host())),
    }
}

/// Returns how long to wait before the first test of a series, if any process of this program has
/// recently tested to M-Lab's servers.
pub fn pause_before_first(arguments: &Arguments) -> anyhow::Result<Option<Duration>> {
    if !is_public(arguments) {
        return Ok(None);
    }
    let Ok(text) = fs::read_to_string(last_test()?) else { return Ok(None) };
    let Ok(last) = text.trim().parse::<jiff::Timestamp>() else { return Ok(None) };
    // A time in the future is from a wrong clock.
    let since = Duration::try_from(jiff::Timestamp::now().duration_since(last)).ok();
    Ok(since.and_then(|since| PUBLIC_PAUSE_LEAST.checked_sub(since)))
}

/// Stores the time of a test to M-Lab's servers, before it starts, because failed tests count too.
fn remember_test() -> anyhow::Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ\n").to_string();
    store_text(&last_test()?, &now)
}

fn store_text(file: &Path, text: &str) -> anyhow::Result<()> {
    disk::create_directory(disk::directory_of(file), Access::Usual)
        .and_then(|_| disk::write_whole(file, text.as_bytes(), Access::Usual))
        .with_context(|| file.display().to_string())
}

fn last_test() -> anyhow::Result<PathBuf> {
    Ok(home::data()?.join("mlab-last-test"))
}

pub struct Ndt7<'a> {
    arguments: &'a Arguments,
    trust: NqTrust,
    /// Servers to try in order; not empty.
    candidates: Vec<Located>,
    /// Position of the server in use.
    at: usize,
    directions: Vec<Direction>,
    results: Vec<(Direction, Ndt7Result)>,
    /// Counts the payload of all transfers in bytes; `--per-day` and `--per-month` limit it.
    moved: &'a Cell<u64>,
}

impl<'a> Ndt7<'a> {
    /// Locates the servers without connecting to them.
    pub fn open(arguments: &'a Arguments, moved: &'a Cell<u64>) -> anyhow::Result<Self> {
        let trust = trust(&arguments.server.trust)?;
        if is_public(arguments) {
            remember_test()?;
        }
        let candidates = candidates(arguments)?;
        let (directions, results) = (directions(arguments), Vec::new());
        Ok(Self { arguments, trust, candidates, at: 0, directions, results, moved })
    }

    fn run(&mut self, direction: Direction, stop: &AtomicBool) -> anyhow::Result<Ndt7Result> {
        let (arguments, trust, moved) = (self.arguments, self.trust, self.moved);
        let before = moved.get();
        let outcome = first(&self.candidates, &mut self.at, |located| {
            let target = located.target.clone();
            let duration_max = arguments.duration.unwrap_or(DURATION);
            let congestion_control = Some(arguments.congestion_control.clone());
            let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
            note!(
                "{}: loading {} for at most {:.0} s",
                test.target.name,
                direction.name(),
                duration_max.as_secs_f64()
            );
            test.run(&mut |_, bytes| moved.set(before + bytes), stop)
        });
        outcome.map_err(|error| hinted(error, trust))
    }
}

impl Test for Ndt7<'_> {
    fn plan(&self) -> Plan {
        let host = self.arguments.request().shown_host();
        let server = match self.candidates.first() {
            // The steps name the server in use, because several may be tried.
            Some(located) if host == TEST && !located.place.is_empty() => {
                format!("{TEST}, {}", plain_text(&located.place))
            }
            _ => host,
        };
        let (name, notes) = (TEST.to_owned(), Vec::new());
        Plan { name, server, variants: variants(TEST, &self.directions), notes }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &AtomicBool,
    ) -> Result<(), LineError> {
        for (index, direction) in (0..).zip(self.directions.clone()) {
            let result =
                self.run(direction, stop).map_err(|error| LineError::Foreign(error.into()))?;
            if result.end == End::Cancelled {
                break;
            }
            let server =
                (self.arguments.host == TEST).then(|| self.candidates[self.at].target.name.clone());
            let step = foreign_load(direction, &result, server).step(index);
            findings.push(store_step(step, directory)?);
            self.results.push((direction, result));
        }
        Ok(())
    }

    fn details(&self) -> Option<Value> {
        let located = &self.candidates[self.at];
        Some(json!({
            "test": TEST,
            "server": if self.arguments.host == TEST {
                located.target.name.clone()
            } else {
                self.arguments.request().shown_host()
            },
            "place": located.place,
            "results": self.results.iter().map(as_json).collect::<Vec<Value>>(),
        }))
    }
}

fn candidates(arguments: &Arguments) -> anyhow::Result<Vec<Located>> {
    if arguments.host != TEST {
        let target = Ndt7Target::of_host(&arguments.host).or_bad_input()?;
        return Ok(vec![Located { target, place: String::new() }]);
    }
    match locate(arguments.locate.as_deref().unwrap_or(LOCATE_URL)) {
        Err(error @ Ndt7Error::Target { .. }) => refuse!("--locate: {error}"),
        found => Ok(found?),
    }
}

/// Runs a test to the server at `at`, or to the first after it that can be reached. `at` then is
/// that server's position, so that the other direction uses the same server.
fn first<T>(
    candidates: &[Located],
    at: &mut usize,
    mut run: impl FnMut(&Located) -> Result<T, Ndt7Error>,
) -> anyhow::Result<T> {
    loop {
        match run(&candidates[*at]) {
            Ok(done) => return Ok(done),
            Err(error @ (Ndt7Error::Connect { .. } | Ndt7Error::WebSocket { .. }))
                if *at + 1 < candidates.len() =>
            {
                note!("{}; trying the next server", plain_text(&format!("{:#}", anyhow!(error))));
                *at += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Adds a hint if the TLS handshake fails, as it does with a self-signed certificate.
fn hinted(error: anyhow::Error, trust: NqTrust) -> anyhow::Error {
    let handshake = matches!(
        error.downcast_ref(),
        Some(Ndt7Error::Connect { step: "the TLS handshake with", .. })
    );
    if handshake && trust == NqTrust::System {
        return error.context("a server with a self-signed certificate needs --trust");
    }
    error
}

/// Refuses a test, with the terms, until the user accepts them once.
fn agree(accepts: bool) -> anyhow::Result<()> {
    let file = agreement()?;
    if file.is_file() {
        return Ok(());
    }
    if !accepts {
        warning!("{TERMS}");
        refuse!("the terms are not accepted yet: accept them with --accept-terms");
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    store_text(&file, &format!("{TERMS}\n\naccepted {now}\n"))?;
    note!("{TERMS}\naccepted; stored in {}", file.display());
    Ok(())
}

fn agreement() -> anyhow::Result<PathBuf> {
    Ok(home::data()?.join("mlab-terms-accepted"))
}

/// Returns the readings under load, ms.
fn loaded(result: &Ndt7Result) -> Option<Readings> {
    let in_ms = result.loaded_rtt_us().into_iter().map(|us| us / 1e3);
    Readings::of(INSIDE, in_ms)
}

/// Returns the readings under load as round trips inside the load.
fn inside(direction: Direction, result: &Ndt7Result) -> Option<InsideReadings> {
    let in_ms = result.loaded_rtt_us().into_iter().map(|us| us / 1e3);
    InsideReadings::of_ms(direction, INSIDE, in_ms, Some(smallest_ms(result)))
}

/// Returns the smallest round trip of the connection, including the TCP handshake, ms.
fn smallest_ms(result: &Ndt7Result) -> f64 {
    let handshake = result.handshake.as_secs_f64() * 1e3;
    result.rtt_min_us.map_or(handshake, |us| handshake.min(us / 1e3))
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
        inside: inside(direction, result),
        incomplete: broken.into_iter().collect(),
        foreign: ForeignTest {
            test: TEST.to_owned(),
            smallest_ms: Some(smallest_ms(result)),
            loaded: loaded(result).into_iter().collect(),
            told: remarks,
            cannot_tell: CANNOT_TELL.to_owned(),
        },
    }
}

fn as_json((direction, result): &(Direction, Ndt7Result)) -> Value {
    let loaded = loaded(result);
    json!({
        "direction": direction.name(),
        "congestion_control": result.congestion_control,
        "elapsed_s": result.elapsed.as_secs_f64(),
        "goodput_bit_per_s": result.goodput_bit_per_s,
        "settled_bit_per_s": result.settled_bit_per_s,
        "round_trip_smallest_ms": smallest_ms(result),
        "round_trip_loaded_p50_ms": loaded.as_ref().map(|it| it.p50_ms),
        "round_trip_loaded_max_ms": loaded.as_ref().map(|it| it.max_ms),
        "round_trip_readings": loaded.as_ref().map_or(0, |it| it.count),
        "tcp_handshake_ms": result.handshake.as_secs_f64() * 1e3,
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
    fn a_result_says_what_the_load_adds_and_what_cannot_be_told() {
        let readings = [90_000.0, 230_000.0, 110_000.0];
        let finding = |direction, result: &Ndt7Result, index| {
            foreign_load(direction, result, None).step(index).finding
        };
        let down = finding(Direction::Down, &result(&readings, End::Time), 0);
        let up = finding(Direction::Up, &result(&[], End::Broken), 1);
        let lines = underload_report::finding_lines(&[down, up]);
        let text = lines.join("\n");
        assert!(lines[0].starts_with("No grade: ") && lines[0].contains("no 99th perc"), "{text}");
        for part in [
            "down: 9.6 Mbit/s down; round trip inside the load p50 110.0 ms, p90 230.0 ms, largest \
             230.0 ms (3 smoothed readings of the loading connection), 20.4 ms without. The load \
             adds 90 ms to the median.",
            "down: 9.4 Mbit/s over all 10.0 s, as ndt7 defines its rate",
            "BBR",
            "1.2 % of the bytes sent again",
            "up: INVALID, no verdict: the connection broke after 10.0 s.",
            "up: sent with cubic",
            "under load the server does not tell it",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // Numbers that ndt7 does not have are not printed as zero.
        assert!(!text.contains("probe") && !text.contains("lost"), "{text}");
    }

    fn arguments(words: &[&str]) -> Arguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let words = ["measure"].iter().chain(words);
        <Line as clap::Parser>::parse_from(words).arguments
    }

    #[test]
    fn m_labs_servers_are_known_however_they_are_named() {
        for words in [
            &["ndt7"][..],
            &["ndt7", "--locate", "https://locate.measurementlab.net/v2/other"],
            &["ndt7", "--locate", "https://locate.measurementlab.net:443/?x=/"],
            &["ndt7", "--locate", "https://LOCATE.MeasurementLab.net./v2/nearest"],
            &["ndt7://ndt-a.mlab-oti.measurement-lab.org"],
            &["ndt7://NDT-A.mlab-oti.Measurement-Lab.ORG."],
        ] {
            assert!(is_public(&arguments(words)), "{words:?}");
        }
        for words in [
            &["ndt7", "--locate", "http://127.0.0.1:1/x"][..],
            &["ndt7", "--locate", "https://measurementlab.net.example/"],
            &["ndt7://a.example"],
        ] {
            assert!(!is_public(&arguments(words)), "{words:?}");
        }
    }

    #[test]
    fn the_nearest_and_named_servers_are_wanted() {
        assert!(is_wanted("ndt7") && is_wanted("ndt7://a") && !is_wanted("ndt7.example"));
    }
}
