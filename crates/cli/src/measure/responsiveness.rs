//! `underload measure https://HOST`: a responsiveness test, as Apple's networkQuality does.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use underload_compat::nq::{NqClient, NqOptions, NqResult, NqTarget, NqTrust};
use underload_line::{LineError, Plan, Test, connect, store_step};
use underload_measure::ForeignLoad;
use underload_probe::control::Trust;
use underload_record::schema::{
    Direction, Finding, ForeignTest, InsideReadings, Metric, Readings, Rpm,
};
use underload_store::RunDir;
use underload_terminal::console::note;
use underload_terminal::exit::OrBadInput;

use super::foreign::{directions, variants};
use super::{Arguments, worded};

/// Name of the test in records.
const TEST: &str = "responsiveness";
/// The round trips of this test on connections that load the line.
const INSIDE: &str = "exchanges on the loading connections";

/// Numbers that such a test does not have.
const CANNOT_TELL: &str = "a responsiveness test has no probes on a schedule and no idle phase, so \
it tells no 99th percentile, nothing of one way alone and nothing of markings";

/// Whether HOST names a responsiveness server.
pub fn is_wanted(host: &str) -> bool {
    host.starts_with("https://")
}

/// Refuses arguments that the test does not support.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    NqTarget::parse(&arguments.host).or_bad_input()?;
    arguments.check_foreign().or_bad_input()?;
    arguments.request().check().map_err(|error| worded(error.into()))
}

/// A test to a server whose configuration is known.
pub struct Nq<'a> {
    arguments: &'a Arguments,
    client: NqClient,
    directions: Vec<Direction>,
    results: Vec<(Direction, NqResult)>,
    /// Counts the payload of all transfers in bytes; `--per-day` and `--per-month` limit it.
    moved: &'a Cell<u64>,
    stop: Arc<AtomicBool>,
}

impl<'a> Nq<'a> {
    /// Requests the server's configuration.
    pub fn open(
        arguments: &'a Arguments,
        moved: &'a Cell<u64>,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let client = NqClient::open(&arguments.host, trust(&arguments.server.trust)?)?;
        let (directions, results) = (directions(arguments), Vec::new());
        Ok(Self { arguments, client, directions, results, moved, stop })
    }
}

impl Test for Nq<'_> {
    fn plan(&self) -> Plan {
        Plan {
            name: TEST.to_owned(),
            server: self.arguments.request().shown_host(),
            variants: variants(TEST, &self.directions),
            notes: Vec::new(),
        }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &AtomicBool,
    ) -> Result<(), LineError> {
        for (index, direction) in (0..).zip(self.directions.clone()) {
            let mut options = NqOptions::new(direction);
            options.duration_max = self.arguments.duration.unwrap_or(options.duration_max);
            options.congestion_control = Some(self.arguments.congestion_control.clone());
            options.cancelled = Arc::clone(&self.stop);
            note!("loading {} ...", direction.name());
            let result = self.client.measure(&options);
            self.moved.set(self.client.moved_bytes());
            let result = result.map_err(|error| LineError::Foreign(error.into()))?;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let used =
                (direction == Direction::Up).then(|| self.arguments.congestion_control.clone());
            let step = foreign_load(direction, &result, options.interval, used).step(index);
            findings.push(store_step(step, directory)?);
            self.results.push((direction, result));
        }
        Ok(())
    }

    fn details(&self) -> Option<Value> {
        Some(json!({
            "test": TEST,
            "results": self.results.iter().map(as_json).collect::<Vec<Value>>(),
        }))
    }
}

/// Parses --trust. Public servers have certificates of authorities, so `first-use` means these.
pub fn trust(text: &str) -> anyhow::Result<NqTrust> {
    Ok(match connect::trust(text).map_err(worded)? {
        Trust::Pinned(fingerprint) => NqTrust::Pinned(fingerprint),
        Trust::FirstUse { .. } => NqTrust::System,
    })
}

/// Converts a result to a step. The last intervals count; during those before, the load ramps up.
fn foreign_load(
    direction: Direction,
    result: &NqResult,
    interval: Duration,
    congestion_control: Option<String>,
) -> ForeignLoad {
    let ms = |ns: &[u64]| -> Vec<f64> { ns.iter().map(|ns| *ns as f64 / 1e6).collect() };
    let probes = &result.round_trips;
    let loaded = [
        Readings::of("handshakes of fresh connections", ms(&probes.foreign_tcp_ns)),
        Readings::of("exchanges on fresh connections", ms(&probes.foreign_http_ns)),
        Readings::of(INSIDE, ms(&probes.loaded_http_ns)),
    ];
    let inside = InsideReadings::of_ms(direction, INSIDE, ms(&probes.loaded_http_ns), None);
    let mut remarks = vec![format!(
        "{} connections in {} intervals, {} probes failed, confidence {}",
        result.connections,
        result.intervals,
        result.failed,
        result.confidence()
    )];
    if result.responsiveness.is_none() {
        remarks.push("no RPM: one kind of probes is missing".to_owned());
    }
    remarks.extend(congestion_control.as_ref().map(|name| format!("sent with {name}")));
    let count = |name: &str, value: f64| Metric {
        name: name.to_owned(),
        unit: String::new(),
        value: Some(value),
    };
    let intervals = |count: usize| interval * u32::try_from(count).unwrap_or(u32::MAX);
    ForeignLoad {
        direction,
        goodput_bit_per_s: result.goodput_bit_per_s,
        ramp: intervals(result.intervals.saturating_sub(underload_compat::nq::INTERVALS)),
        elapsed: intervals(result.intervals),
        congestion_control,
        rpm: result.responsiveness.map(|rpm| Rpm {
            draft_09: rpm.draft_09.round(),
            goresponsiveness_p90: rpm.goresponsiveness_p90.round(),
            goresponsiveness_trimmed_mean: rpm.goresponsiveness_trimmed_mean.round(),
            approximated_from_packets: false,
        }),
        moved: vec![(intervals(result.intervals), result.moved_bytes)],
        readings: Vec::new(),
        metrics: vec![
            count("connections", result.connections as f64),
            count("probes_failed", result.failed as f64),
        ],
        inside,
        incomplete: Vec::new(),
        foreign: ForeignTest {
            test: TEST.to_owned(),
            smallest_ms: None,
            loaded: loaded.into_iter().flatten().collect(),
            told: remarks,
            cannot_tell: CANNOT_TELL.to_owned(),
        },
    }
}

fn as_json((direction, result): &(Direction, NqResult)) -> Value {
    let rpm = result.responsiveness;
    let probes = &result.round_trips;
    json!({
        "direction": direction.name(),
        "rpm_draft_09": rpm.map(|rpm| rpm.draft_09),
        "rpm_goresponsiveness_p90": rpm.map(|rpm| rpm.goresponsiveness_p90),
        "rpm_goresponsiveness_trimmed_mean": rpm.map(|rpm| rpm.goresponsiveness_trimmed_mean),
        "confidence": result.confidence(),
        "goodput_bit_per_s": result.goodput_bit_per_s,
        "goodput_is_stable": result.goodput_is_stable,
        "responsiveness_is_stable": result.responsiveness_is_stable,
        "connections": result.connections,
        "intervals": result.intervals,
        "failed_probes": result.failed,
        "loaded_http_ns": probes.loaded_http_ns,
        "foreign_tcp_ns": probes.foreign_tcp_ns,
        "foreign_tls_ns": probes.foreign_tls_ns,
        "foreign_http_ns": probes.foreign_http_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_probe::rpm::{Responsiveness, RoundTrips};

    #[test]
    fn a_result_has_no_more_than_the_test_told() {
        let responsiveness = Some(Responsiveness {
            draft_09: 2_000.4,
            goresponsiveness_p90: 1_500.0,
            goresponsiveness_trimmed_mean: 1_400.0,
        });
        let round_trips =
            RoundTrips { foreign_tcp_ns: vec![30_000_000; 3], ..RoundTrips::default() };
        let moved_bytes = 7_000_000;
        let result = NqResult {
            responsiveness,
            intervals: 5,
            round_trips,
            moved_bytes,
            ..NqResult::default()
        };
        let second = Duration::from_secs(1);
        let up = foreign_load(Direction::Up, &result, second, Some("reno".to_owned()));
        assert_eq!((up.ramp, up.elapsed), (second, 5 * second));
        assert_eq!(up.moved, [(5 * second, moved_bytes)]);
        assert_eq!(up.rpm.map(|rpm| rpm.draft_09), Some(2_000.0));
        assert_eq!(up.foreign.loaded.len(), 1);
        assert_eq!(up.foreign.loaded[0].of, "handshakes of fresh connections");
        assert!(up.foreign.told[0].contains("confidence medium"), "{:?}", up.foreign.told);
        assert_eq!(up.foreign.told[1], "sent with reno");
        assert!(is_wanted("https://a/.well-known/nq") && !is_wanted("a.example"));
    }
}
