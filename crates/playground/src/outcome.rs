//! What a trial shows: curves, distributions, counts.

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

/// What the page draws.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario file of the same trial.
    pub scenario: String,
    /// The queue with all that was left to defaults of its profile.
    pub queue: String,
    /// Length of the trial, s.
    pub length_s: f64,
    /// When the load counts, from and to, s.
    pub load_s: [f64; 2],
    /// Time of the points of the curves, s.
    pub time_s: Vec<f64>,
    /// In the queue, KiB.
    pub backlog_kib: Vec<f64>,
    /// Sojourn, ms.
    pub sojourn_ms: Vec<f64>,
    /// Sent on the line, Mbit/s.
    pub throughput_mbit_per_s: Vec<f64>,
    /// Dropped since the point before, packets.
    pub drops: Vec<f64>,
    /// Marked since the point before, packets.
    pub marks: Vec<f64>,
    /// Quantiles of the sojourn under load, ms: of the shares 0, 1/200, ..., 1.
    pub sojourn_cdf_ms: Vec<f64>,
    /// The same of the probes' round trip.
    pub rtt_cdf_ms: Vec<f64>,
    /// Median of the round trip under load, ms. Nearest rank, as everywhere.
    pub rtt_p50_ms: Option<f64>,
    /// Name and value, ms, of the highest percentile of it that its samples tell.
    pub rtt_high_ms: Option<(&'static str, f64)>,
    /// Round trip before the load, p50, ms.
    pub idle_p50_ms: Option<f64>,
    /// Probes that were lost under load, of how many.
    pub probes_lost: [u64; 2],
    /// Under load: sent by the line, Mbit/s, and in percent of what it could.
    pub throughput: [f64; 2],
    /// Under load: packets offered, dropped, marked.
    pub packets: [u64; 3],
}

/// Points of a distribution, less one.
const STEPS: usize = 200;

impl Outcome {
    /// Runs the trial.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn of(settings: &Settings) -> Result<Self, String> {
        let config = settings.trial()?;
        let length = config.phases;
        let (start, end) = (length.idle + length.ramp, length.idle + length.ramp + length.load);
        let queue = config.up[0].queue.label.to_string();
        let watch = Rc::new(RefCell::new(Sojourns::new(start, end)));
        let attendance = Attendance { watcher: Some(watch.clone()), ..Attendance::default() };
        let outcome = run_attended(config, &attendance).map_err(|error| error.to_string())?;
        drop(attendance);
        let mut sojourns = std::mem::take(&mut watch.borrow_mut().found_ns);
        let seconds = |span: Span| span.as_nanos() as f64 / 1e9;
        let mut told = Self {
            scenario: settings.scenario(),
            queue,
            length_s: seconds(end + length.drain),
            load_s: [seconds(start), seconds(end)],
            time_s: Vec::new(),
            backlog_kib: curve(&outcome.series, SeriesKind::Backlog, 1.0 / 1024.0),
            sojourn_ms: curve(&outcome.series, SeriesKind::Sojourn, 1e-6),
            throughput_mbit_per_s: curve(&outcome.series, SeriesKind::Throughput, 1e-6),
            drops: curve(&outcome.series, SeriesKind::Drops, 1.0),
            marks: curve(&outcome.series, SeriesKind::Marks, 1.0),
            sojourn_cdf_ms: distribution(&mut sojourns),
            rtt_cdf_ms: Vec::new(),
            rtt_p50_ms: None,
            rtt_high_ms: None,
            idle_p50_ms: None,
            probes_lost: [0; 2],
            throughput: [0.0; 2],
            packets: [0; 3],
        };
        told.time_s = times(&outcome.series);
        told.take_latency(&outcome);
        told.take_line(&outcome.record);
        Ok(told)
    }

    fn take_latency(&mut self, outcome: &TrialOutcome) {
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

    fn take_line(&mut self, record: &TrialRecord) {
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

/// The record, the samples and the curves of the trial, as the program has them: three lines.
///
/// # Errors
/// What is wrong with the settings.
pub fn record(settings: &Settings) -> Result<String, String> {
    let outcome = run(settings.trial()?).map_err(|error| error.to_string())?;
    let TrialOutcome { mut record, samples, mut series, .. } = outcome;
    // Of a direction without a link of its own the program keeps nothing either.
    record.bottlenecks.retain(|it| it.direction == Direction::Up);
    series.retain(|it| !it.name.starts_with("down."));
    let told = |error: serde_json::Error| error.to_string();
    let lines = [
        serde_json::to_string(&record).map_err(told)?,
        serde_json::to_string(&samples).map_err(told)?,
        serde_json::to_string(&series).map_err(told)?,
    ];
    Ok(lines.join("\n"))
}

/// How long each packet that left under load was in the queue.
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

/// Nearest rank of sorted values.
fn quantile_ms(sorted: &[u64], share: f64) -> Option<f64> {
    let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
    Some(*sorted.get(rank - 1)? as f64 / 1e6)
}

fn distribution(values: &mut [u64]) -> Vec<f64> {
    values.sort_unstable();
    (0..=STEPS).filter_map(|step| quantile_ms(values, step as f64 / STEPS as f64)).collect()
}
