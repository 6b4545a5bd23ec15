//! Responsiveness tests, as Apple's networkQuality does.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use underload_compat::nq::{INTERVALS, NqClient, NqError, NqOptions, NqResult, NqTarget};
use underload_measure::ForeignLoad;
use underload_record::schema::{
    Direction, ForeignTest, InsideLatency, Metric, Readings, Rpm, Unmeasured, Vantage,
};
use underload_record::stats::distribution;

use super::{Server, ServerResult, server_trust};
use crate::{LineError, Progress, Request};

/// Label of the round trips on the loading connections.
const INSIDE: &str = "exchanges on the loading connections";

/// Numbers that such a test does not have.
const CANNOT_TELL: &[Unmeasured] = &[
    Unmeasured::OwnPackets,
    Unmeasured::Losses,
    Unmeasured::OneWay,
    Unmeasured::Markings,
    Unmeasured::OtherSenders,
];

/// A server whose configuration is known.
pub struct Responsiveness {
    client: NqClient,
}

impl Responsiveness {
    /// Whether a host names a responsiveness server.
    pub fn is_wanted(host: &str) -> bool {
        host.starts_with("https://")
    }

    /// Checks that the host is the URL of a responsiveness server.
    ///
    /// # Errors
    /// Returns an error that names the accepted forms.
    pub fn check(host: &str) -> Result<(), NqError> {
        NqTarget::parse(host).map(drop)
    }

    /// Requests the server's configuration.
    ///
    /// # Errors
    /// Returns an error if the server does not answer or its configuration cannot be used.
    pub fn open(request: &Request) -> Result<Self, LineError> {
        let client = NqClient::open(&request.host, server_trust(request)?);
        Ok(Self { client: client.map_err(foreign)? })
    }
}

fn foreign(error: NqError) -> LineError {
    LineError::Foreign(error.into())
}

impl Server for Responsiveness {
    const TEST: &'static str = "responsiveness";

    fn title(&self, request: &Request) -> String {
        let chosen = request.shown_host();
        self.client.named().map_or_else(|| chosen.clone(), |it| format!("{it}, named by {chosen}"))
    }

    fn describe(&self, request: &Request, document: &mut Value) {
        document["server"] = self.title(request).into();
    }

    fn measure(
        &mut self,
        request: &Request,
        direction: Direction,
        moved: &Cell<u64>,
        progress: &mut dyn Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<ServerResult>, LineError> {
        let mut options = NqOptions::new(direction);
        options.duration_max = request.knobs.duration.unwrap_or(options.duration_max);
        options.congestion_control = Some(request.knobs.congestion_control.clone());
        options.cancelled = Arc::clone(stop);
        if let (Some(named), 0) = (self.client.named(), self.client.moved_bytes()) {
            progress.note(&format!("{} names {named}: measuring that", request.shown_host()));
        }
        progress.note(&format!("loading {} ...", direction.name()));
        let result = self.client.measure(&options);
        moved.set(self.client.moved_bytes());
        let result = result.map_err(foreign)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let used = (direction == Direction::Up).then(|| request.knobs.congestion_control.clone());
        let load = foreign_load(direction, &result, options.interval, used);
        Ok(Some(ServerResult { load, details: as_json(direction, &result) }))
    }
}

/// Converts a result to a step. The last intervals count; during those before, the load ramps up.
fn foreign_load(
    direction: Direction,
    result: &NqResult,
    interval: Duration,
    congestion_control: Option<String>,
) -> ForeignLoad {
    let probes = &result.round_trips;
    let readings = |(of, vantage, ns): (&str, Vantage, &[u64])| {
        let distribution = distribution(&mut ns.to_vec())?;
        Some(Readings { of: of.to_owned(), vantage, distribution })
    };
    let loaded = [
        ("handshakes of fresh connections", Vantage::Beside, &probes.foreign_tcp_ns[..]),
        ("exchanges on fresh connections", Vantage::Beside, &probes.foreign_http_ns),
        (INSIDE, Vantage::Inside, &probes.loaded_http_ns),
    ]
    .map(readings);
    let inside = distribution(&mut probes.loaded_http_ns.clone()).map(|distribution| {
        let connections = u32::try_from(result.connections).unwrap_or(u32::MAX);
        InsideLatency { direction, connections, smallest_ns: None, distribution }
    });
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
        ramp: intervals(result.intervals.saturating_sub(INTERVALS)),
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
        cannot_tell: CANNOT_TELL,
        foreign: ForeignTest {
            test: Responsiveness::TEST.to_owned(),
            smallest_ns: result.smallest_tcp_ns,
            loaded: loaded.into_iter().flatten().collect(),
            told: remarks,
        },
    }
}

fn as_json(direction: Direction, result: &NqResult) -> Value {
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
        "smallest_tcp_ns": result.smallest_tcp_ns,
        "loaded_http_ns": probes.loaded_http_ns,
        "foreign_tcp_ns": probes.foreign_tcp_ns,
        "foreign_tls_ns": probes.foreign_tls_ns,
        "foreign_http_ns": probes.foreign_http_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_probe::rpm;

    #[test]
    fn a_result_has_only_what_the_test_reported() {
        let responsiveness = Some(rpm::Responsiveness {
            draft_09: 2_000.4,
            goresponsiveness_p90: 1_500.0,
            goresponsiveness_trimmed_mean: 1_400.0,
        });
        let round_trips =
            rpm::RoundTrips { foreign_tcp_ns: vec![30_000_000; 3], ..rpm::RoundTrips::default() };
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
        assert!(Responsiveness::is_wanted("https://a/.well-known/nq"));
    }
}
