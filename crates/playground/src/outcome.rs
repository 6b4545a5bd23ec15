//! The results of a trial: series, distributions, counts.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Serialize;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{
    BottleneckSummary, Direction, Phase, Sample, Series, SeriesKind, TrialRecord,
};
use underload_sim::net::{Event, Sighting, Watcher};
use underload_sim::trial::{Attendance, TrialOutcome, run, run_attended};

use crate::Settings;

/// The data that the page draws.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario file of the same trial.
    pub scenario: String,
    /// The SPEC of the queue with the defaults of its profile.
    pub queue: String,
    pub length_s: f64,
    /// Start and end of the load phase.
    pub load_s: [f64; 2],
    /// Time of the points of the series.
    pub time_s: Vec<f64>,
    pub backlog_kib: Vec<f64>,
    pub sojourn_ms: Vec<f64>,
    pub throughput_mbit_per_s: Vec<f64>,
    /// Packets dropped since the previous point.
    pub drops: Vec<f64>,
    /// Packets marked since the previous point.
    pub marks: Vec<f64>,
    /// Quantiles of the sojourn time under load, of the shares 0, 1/200, ..., 1.
    pub sojourn_cdf_ms: Vec<f64>,
    /// Quantiles of the round trip under load, of the same shares.
    pub rtt_cdf_ms: Vec<f64>,
    /// Median of the round trip under load.
    pub rtt_p50_ms: Option<f64>,
    /// Name and value of the highest percentile of the round trip with enough samples.
    pub rtt_high_ms: Option<(&'static str, f64)>,
    /// Median of the round trip before the load.
    pub idle_p50_ms: Option<f64>,
    /// Probes lost and sent under load.
    pub probes_lost: [u64; 2],
    /// Rate of the line under load, Mbit/s, and its share of the capacity, percent.
    pub throughput: [f64; 2],
    /// Packets offered, dropped and marked under load.
    pub packets: [u64; 3],
}

/// Number of intervals of a distribution.
const STEPS: usize = 200;

impl Outcome {
    /// Runs the trial that the settings describe.
    ///
    /// # Errors
    /// Describes the invalid setting.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let config = settings.trial().map_err(|error| error.to_string())?;
        let length = config.phases;
        let (start, end) = (length.idle + length.ramp, length.idle + length.ramp + length.load);
        let queue = config.up[0].queue.label.to_string();
        let watch = Rc::new(RefCell::new(Sojourns::new(start, end)));
        let attendance = Attendance { watcher: Some(watch.clone()), ..Attendance::default() };
        let outcome = run_attended(config, &attendance).map_err(|error| error.to_string())?;
        drop(attendance);
        let mut sojourns = std::mem::take(&mut watch.borrow_mut().found_ns);
        let mut result = Self {
            scenario: settings.scenario(),
            queue,
            length_s: (end + length.drain).as_secs_f64(),
            load_s: [start.as_secs_f64(), end.as_secs_f64()],
            time_s: times(&outcome.series),
            backlog_kib: curve(&outcome.series, SeriesKind::Backlog, 1.0 / 1024.0),
            sojourn_ms: curve(&outcome.series, SeriesKind::Sojourn, 1e-6),
            throughput_mbit_per_s: curve(&outcome.series, SeriesKind::Throughput, 1e-6),
            drops: curve(&outcome.series, SeriesKind::Drops, 1.0),
            marks: curve(&outcome.series, SeriesKind::Marks, 1.0),
            sojourn_cdf_ms: distribution(&mut sojourns),
            ..Self::default()
        };
        result.add_latency(&outcome);
        result.add_line(&outcome.record);
        Ok(result)
    }

    fn add_latency(&mut self, outcome: &TrialOutcome) {
        let window = |phase| outcome.record.phases.iter().find(move |it| it.phase == phase);
        let round_trips = |phase| {
            let within = move |sample: &&Sample| {
                window(phase).is_some_and(|window| window.contains(sample.scheduled_ns))
            };
            outcome.samples.iter().filter(within)
        };
        let answers = |phase| -> Vec<u64> {
            let mut found: Vec<u64> = round_trips(phase).filter_map(|it| it.rtt_ns).collect();
            found.sort_unstable();
            found
        };
        let (idle, mut load) = (answers(Phase::Idle), answers(Phase::Load));
        let sent = round_trips(Phase::Load).count() as u64;
        self.probes_lost = [sent - load.len() as u64, sent];
        self.idle_p50_ms = quantile_ms(&idle, 0.5);
        self.rtt_p50_ms = quantile_ms(&load, 0.5);
        self.rtt_high_ms = underload_record::stats::distribution(&mut load).map(|all| {
            let (quantile, ns) = all.highest_told();
            (quantile.name(), ns as f64 / 1e6)
        });
        self.rtt_cdf_ms = distribution(&mut load);
    }

    fn add_line(&mut self, record: &TrialRecord) {
        let of_line = |it: &&BottleneckSummary| {
            it.direction == Direction::Up && it.window.phase == Phase::Load
        };
        let Some(line) = record.bottlenecks.iter().find(of_line) else { return };
        let sent = line.throughput_bit_per_s as f64;
        let capacity = line.capacity_bit_per_s.filter(|it| *it > 0);
        let used = capacity.map_or(0.0, |capacity| sent * 100.0 / capacity as f64);
        self.throughput = [sent / 1e6, used];
        self.packets = [line.offered.packets, line.dropped_packets(), line.marks.values().sum()];
    }
}

/// Returns the record, the samples and the series of the trial as three lines of JSON, as
/// `underload run` stores them.
///
/// # Errors
/// Describes the invalid setting.
pub fn record(settings: &Settings) -> Result<String, String> {
    let config = settings.trial().map_err(|error| error.to_string())?;
    let outcome = run(config).map_err(|error| error.to_string())?;
    let TrialOutcome { mut record, samples, mut series, .. } = outcome;
    // The program does not record a direction without a configured link either.
    record.bottlenecks.retain(|it| it.direction == Direction::Up);
    series.retain(|it| !it.name.starts_with("down."));
    let message = |error: serde_json::Error| error.to_string();
    let lines = [
        serde_json::to_string(&record).map_err(message)?,
        serde_json::to_string(&samples).map_err(message)?,
        serde_json::to_string(&series).map_err(message)?,
    ];
    Ok(lines.join("\n"))
}

/// The sojourn time of each packet that departed under load.
struct Sojourns {
    from: Time,
    to: Time,
    found_ns: Vec<u64>,
}

impl Sojourns {
    fn new(start: Span, end: Span) -> Self {
        Self { from: Time::ZERO + start, to: Time::ZERO + end, found_ns: Vec::new() }
    }
}

impl Watcher for Sojourns {
    fn see(&mut self, sighting: &Sighting<'_>) {
        let is_departure = matches!(sighting.event, Event::Departure { .. });
        let inside = sighting.time >= self.from && sighting.time < self.to;
        if is_departure && inside && sighting.direction == Direction::Up {
            self.found_ns.push(sighting.time.since(sighting.packet.meta.arrived).as_nanos());
        }
    }
}

fn of_kind(series: &[Series], kind: SeriesKind) -> Option<&Series> {
    let name = kind.name(Direction::Up);
    series.iter().find(|it| it.name == name)
}

fn curve(series: &[Series], kind: SeriesKind, unit: f64) -> Vec<f64> {
    let points = of_kind(series, kind).map(|it| it.points.as_slice()).unwrap_or_default();
    points.iter().map(|point| point.value * unit).collect()
}

fn times(series: &[Series]) -> Vec<f64> {
    let points = of_kind(series, SeriesKind::Backlog).map(|it| it.points.as_slice());
    points.unwrap_or_default().iter().map(|point| point.time_ns as f64 / 1e9).collect()
}

/// Returns the nearest-rank quantile of sorted values.
fn quantile_ms(sorted: &[u64], share: f64) -> Option<f64> {
    let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
    Some(*sorted.get(rank - 1)? as f64 / 1e6)
}

fn distribution(values: &mut [u64]) -> Vec<f64> {
    values.sort_unstable();
    (0..=STEPS).filter_map(|step| quantile_ms(values, step as f64 / STEPS as f64)).collect()
}
