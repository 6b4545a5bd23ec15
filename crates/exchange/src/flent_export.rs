//! Writes a trial as flent's data file (version 4), under one of flent's own test names, so that
//! flent's plots find their series.
//!
//! | the trial loads | test | rates | round trips of the first probe |
//! |---|---|---|---|
//! | up | `tcp_nup` | `TCP upload::FLOW` | `Ping (ms) ICMP` |
//! | down | `tcp_ndown` | `TCP download::FLOW` | `Ping (ms) ICMP` |
//! | both | `rrul_var` | both | `Ping (ms)::PROBE` |
//! | nothing | `ping` | | `Ping (ms) ICMP` |
//!
//! flent's plots know a probe by the name `ICMP`; `SERIES_META` has its real name. `LENGTH` is the
//! load phase and lies in the middle of `TOTAL_LENGTH`, as in flent's files. Phases and the send
//! times of lost probes, which flent has no key for, are under [`OWN_KEY`]. If the run has no
//! series per flow, the direction's throughput is written as one flow.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use underload_record::schema::{
    Direction, FlowDirection, Phase, Sample, Series, SeriesKind, TrialRecord,
};
use underload_store::RunData;

/// Step of the common grid, s.
const STEP_S: f64 = 0.1;
const POINTS_MAX: usize = 1_000_000;
/// The key in `metadata` for values that flent has no key for; [`super::flent`] reads it.
const OWN_KEY: &str = "UNDERLOAD";
/// flent rejects times without a fraction.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";

/// Returns the gzipped content of a `.flent.gz` file for one trial of a run.
///
/// # Errors
/// Returns the error of the encoder or compressor; neither fails in memory.
pub fn flent_file(run: &RunData, trial: &TrialRecord) -> std::io::Result<Vec<u8>> {
    let document = Export::new(run, trial).document();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut gzip, &document)?;
    gzip.flush()?;
    gzip.finish()
}

struct Export<'a> {
    run: &'a RunData,
    trial: &'a TrialRecord,
    start: jiff::Timestamp,
    x_values: Vec<f64>,
    results: BTreeMap<String, Vec<Option<f64>>>,
    raw_values: BTreeMap<String, Vec<Value>>,
    series_meta: Map<String, Value>,
    /// Send times of the lost probes of each series, ns.
    lost: BTreeMap<String, Vec<u64>>,
}

/// A flow's rate over time.
struct Load<'a> {
    name: String,
    direction: Direction,
    series: &'a Series,
}

impl<'a> Export<'a> {
    fn new(run: &'a RunData, trial: &'a TrialRecord) -> Self {
        let end_ns = trial.phases.iter().map(|window| window.end_ns).max().unwrap_or(0);
        let points = ((end_ns as f64 / 1e9 / STEP_S) as usize + 1).min(POINTS_MAX);
        Self {
            run,
            trial,
            start: run.record.host.started.parse().unwrap_or_default(),
            x_values: (0..points).map(|point| point as f64 * STEP_S).collect(),
            results: BTreeMap::new(),
            raw_values: BTreeMap::new(),
            series_meta: Map::new(),
            lost: BTreeMap::new(),
        }
    }

    fn document(mut self) -> Value {
        let loads = self.loads();
        let has = |direction| loads.iter().any(|load| load.direction == direction);
        let (test, separator) = match (has(Direction::Up), has(Direction::Down)) {
            (true, true) => ("rrul_var", "::"),
            (true, false) => ("tcp_nup", " "),
            (false, true) => ("tcp_ndown", " "),
            (false, false) => ("ping", " "),
        };
        self.add_probes(separator);
        for load in &loads {
            self.add_load(load);
        }
        for direction in [Direction::Up, Direction::Down] {
            self.add_derived(direction);
        }
        if test == "rrul_var" {
            self.derive("TCP totals", |name| name.starts_with("TCP ") && name.contains("::"), sum);
            self.derive("Ping (ms) avg", |name| name.starts_with("Ping (ms)::"), mean);
        }
        let metadata = self.metadata(test, loads.len());
        json!({
            "version": 4,
            "metadata": metadata,
            "x_values": self.x_values,
            "results": self.results,
            "raw_values": self.raw_values,
        })
    }

    fn metadata(&self, test: &str, loads: usize) -> Value {
        let title =
            self.run.record.variants.iter().find(|variant| variant.name == self.trial.variant);
        let (length, total) = self.lengths();
        let parameter = match test {
            "tcp_nup" => "upload_streams",
            "tcp_ndown" => "download_streams",
            _ => "bidir_streams",
        };
        json!({
            "NAME": test,
            "TITLE": format!("{} {}", self.run.record.scenario.name, self.trial.variant),
            "NOTE": title.map(|variant| variant.label.as_str()),
            "HOST": "underload",
            "HOSTS": ["underload"],
            "LOCAL_HOST": "underload",
            "LENGTH": length,
            "TOTAL_LENGTH": total,
            "STEP_SIZE": STEP_S,
            "TIME": self.start.strftime(TIME_FORMAT).to_string(),
            "T0": self.start.strftime(TIME_FORMAT).to_string(),
            "IP_VERSION": 4,
            "FLENT_VERSION": "2.1.1",
            "UPSTREAM_TOOL": format!("underload {}", self.run.record.tool_version),
            "TEST_PARAMETERS": { parameter: loads.to_string() },
            "SERIES_META": self.series_meta,
            OWN_KEY: { "PHASES": self.trial.phases, "LOST": self.lost },
        })
    }

    /// Returns the length of the load phase, and that plus twice the time before it, s. Without a
    /// load phase both are the length of the trial.
    fn lengths(&self) -> (f64, f64) {
        let load = self.trial.phases.iter().find(|window| window.phase == Phase::Load);
        let Some(load) = load else {
            let whole = self.x_values.last().copied().unwrap_or(0.0);
            return (whole, whole);
        };
        let length = load.length_ns() as f64 / 1e9;
        (length, length + 2.0 * load.start_ns as f64 / 1e9)
    }

    fn loads(&self) -> Vec<Load<'a>> {
        let series_of_trial = |name: &str| -> Option<&'a Series> {
            let is_it = |series: &&Series| series.trial == self.trial.index && series.name == name;
            self.run.series.iter().find(is_it)
        };
        let flows = self.trial.flows.iter().filter_map(|flow| {
            let direction = match flow.direction {
                FlowDirection::Up => Direction::Up,
                FlowDirection::Down => Direction::Down,
                FlowDirection::Both => return None,
            };
            let series = series_of_trial(&format!("{}.goodput", flow.name))?;
            Some(Load { name: flow.name.clone(), direction, series })
        });
        let mut loads: Vec<Load<'a>> = flows.collect();
        let sends = |direction| {
            self.trial.flows.iter().any(|flow| match direction {
                Direction::Up => flow.goodput_up_bit_per_s.is_some_and(|rate| rate > 0),
                Direction::Down => flow.goodput_down_bit_per_s.is_some_and(|rate| rate > 0),
            })
        };
        for direction in [Direction::Up, Direction::Down] {
            if loads.iter().any(|load| load.direction == direction) || !sends(direction) {
                continue;
            }
            if let Some(series) = series_of_trial(&SeriesKind::Throughput.name(direction)) {
                loads.push(Load { name: "all flows".to_owned(), direction, series });
            }
        }
        loads
    }

    fn add_probes(&mut self, separator: &str) {
        let mut is_first = true;
        for (position, flow) in self.trial.flows.iter().enumerate() {
            let samples: Vec<&Sample> = self
                .run
                .samples
                .iter()
                .filter(|sample| sample.trial == self.trial.index)
                .filter(|sample| usize::from(sample.flow) == position)
                .collect();
            if samples.is_empty() {
                continue;
            }
            let stands_for_all = is_first && separator == " ";
            let name = if stands_for_all { "ICMP" } else { flow.name.as_str() };
            is_first = false;
            let name = format!("Ping (ms){separator}{name}");
            let command = format!("underload probe {} {}", flow.name, flow.class);
            self.series_meta.insert(
                name.clone(),
                json!({"UNITS": "ms", "COMMAND": command.trim_end(), "RUNNER": "UnderloadProbe"}),
            );
            self.results.insert(name.clone(), self.on_grid(&samples));
            let raw = samples.iter().filter_map(|sample| {
                let ms = sample.rtt_ns? as f64 / 1e6;
                Some(json!({"t": self.unix_s(sample.sent_ns), "val": ms, "seq": sample.sequence}))
            });
            self.raw_values.insert(name.clone(), raw.collect());
            let lost = samples.iter().filter(|sample| sample.rtt_ns.is_none());
            self.lost.insert(name, lost.map(|sample| sample.sent_ns).collect());
        }
    }

    /// Returns the sample nearest to each grid point within half a step; `None` also for a loss.
    fn on_grid(&self, samples: &[&Sample]) -> Vec<Option<f64>> {
        let mut values = vec![None; self.x_values.len()];
        let mut distances = vec![f64::INFINITY; values.len()];
        for sample in samples {
            let x = sample.sent_ns as f64 / 1e9 / STEP_S;
            let point = x.round() as usize;
            let distance = (x - x.round()).abs();
            if let Some(nearest) = distances.get_mut(point)
                && distance < *nearest
            {
                *nearest = distance;
                values[point] = sample.rtt_ns.map(|rtt_ns| rtt_ns as f64 / 1e6);
            }
        }
        values
    }

    fn add_load(&mut self, load: &Load<'_>) {
        let word = if load.direction == Direction::Up { "upload" } else { "download" };
        let name = format!("TCP {word}::{}", load.name);
        let points = &load.series.points;
        // A point of the series is the mean rate since the previous point, so a time of the grid gets
        // the value of the first point at or after it.
        let value = |x: &f64| {
            let time_ns = (x * 1e9) as u64;
            let next = points.partition_point(|point| point.time_ns < time_ns);
            let is_within = next > 0 || points.first().is_some_and(|p| p.time_ns == time_ns);
            points.get(next).filter(|_| is_within).map(|point| point.value / 1e6)
        };
        self.results.insert(name.clone(), self.x_values.iter().map(value).collect());
        let raw = points
            .iter()
            .map(|point| json!({"t": self.unix_s(point.time_ns), "val": point.value / 1e6}));
        self.raw_values.insert(name.clone(), raw.collect());
        self.series_meta.insert(
            name,
            json!({"UNITS": "Mbits/s", "COMMAND": "underload load", "RUNNER": "UnderloadLoad"}),
        );
    }

    fn add_derived(&mut self, direction: Direction) {
        let word = if direction == Direction::Up { "upload" } else { "download" };
        let flows = format!("TCP {word}::");
        self.derive(&format!("TCP {word} sum"), |name| name.starts_with(&flows), sum);
        self.derive(&format!("TCP {word} avg"), |name| name.starts_with(&flows), mean);
    }

    /// Computes a series from others, as flent does when it measures.
    fn derive(&mut self, name: &str, is_part: impl Fn(&str) -> bool, combine: fn(&[f64]) -> f64) {
        let parts: Vec<&Vec<Option<f64>>> =
            self.results.iter().filter(|(name, _)| is_part(name)).map(|(_, part)| part).collect();
        if parts.is_empty() {
            return;
        }
        let at = |place: usize| -> Option<f64> {
            let values: Vec<f64> = parts.iter().filter_map(|part| part[place]).collect();
            (!values.is_empty()).then(|| combine(&values))
        };
        let values = (0..self.x_values.len()).map(at).collect();
        self.results.insert(name.to_owned(), values);
    }

    fn unix_s(&self, time_ns: u64) -> f64 {
        self.start.as_microsecond() as f64 / 1e6 + time_ns as f64 / 1e9
    }
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{FlowRecord, LatencyMeasure, PhaseWindow, SeriesPoint};

    use super::*;
    use crate::import;

    fn run() -> RunData {
        let mut run = import(
            br#"{"version": 4, "x_values": [0.0, 1.0], "metadata": {"NAME": "ping",
                "TIME": "2026-11-21T04:00:00Z", "T0": "2026-11-21T04:00:00Z", "TOTAL_LENGTH": 3},
                "raw_values": {"Ping (ms) ICMP": [{"t": 1795233600.0, "val": 10.0},
                {"t": 1795233601.01, "val": 20.0}, {"t": 1795233602.0, "val": 30.0}]}}"#,
        )
        .unwrap();
        let trial = &mut run.record.trials[0];
        trial.flows[0].name = "probe".to_owned();
        trial.flows.push(FlowRecord {
            name: "bulk-0".to_owned(),
            kind: "tcp".to_owned(),
            ..FlowRecord::default()
        });
        trial.phases = vec![PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 3_000_000_000 }];
        let point = |time_ns, value| SeriesPoint { time_ns, value };
        run.series = vec![Series {
            trial: 0,
            name: "bulk-0.goodput".to_owned(),
            unit: "bit/s".to_owned(),
            points: vec![point(1_000_000_000, 8e6), point(2_000_000_000, 12e6)],
        }];
        run
    }

    #[test]
    fn an_exported_trial_is_read_back() {
        let run = run();
        let file = flent_file(&run, &run.record.trials[0]).unwrap();
        let back = import(&file).unwrap();
        assert_eq!(back.record.scenario.name, "tcp_nup");
        let rtts = |run: &RunData| -> Vec<_> {
            run.samples.iter().map(|sample| (sample.sent_ns / 1_000_000, sample.rtt_ns)).collect()
        };
        assert_eq!(rtts(&back), rtts(&run));
        let flow = &back.record.trials[0].flows[1];
        assert_eq!(
            (flow.name.as_str(), flow.goodput_up_bit_per_s),
            ("TCP upload::bulk-0", Some(6_666_666)),
            "20 Mbit in the 3 s of the load"
        );
    }

    #[test]
    fn phases_and_losses_are_read_back() {
        let mut run = run();
        let second = 1_000_000_000;
        let window = |phase, start_s: u64, end_s: u64| PhaseWindow {
            phase,
            start_ns: start_s * second,
            end_ns: end_s * second,
        };
        let phases = vec![
            window(Phase::Idle, 0, 1),
            window(Phase::Ramp, 1, 2),
            window(Phase::Load, 2, 5),
            window(Phase::Drain, 5, 6),
        ];
        run.record.trials[0].phases.clone_from(&phases);
        let lost = Sample { sent_ns: 3 * second, ..run.samples[0] };
        run.samples.push(Sample { rtt_ns: None, ..lost });
        let file = flent_file(&run, &run.record.trials[0]).unwrap();
        let back = import(&file).unwrap();
        let trial = &back.record.trials[0];
        assert_eq!(trial.phases, phases);
        let load = trial.latencies.iter().find(|latency| {
            latency.window.phase == Phase::Load && latency.measure == LatencyMeasure::RoundTrip
        });
        let load = load.expect("probes under load");
        assert_eq!((load.sent, load.lost), (2, 1), "{load:?}");
        // flent expects the load in the middle of the test.
        let document = Export::new(&run, &run.record.trials[0]).document();
        let lengths = ["LENGTH", "TOTAL_LENGTH"].map(|key| document["metadata"][key].clone());
        assert_eq!(lengths, [json!(3.0), json!(7.0)]);
    }

    #[test]
    fn the_grid_takes_the_nearest_sample_and_the_next_rate() {
        let run = run();
        let document = Export::new(&run, &run.record.trials[0]).document();
        let ping = document["results"]["Ping (ms) ICMP"].as_array().unwrap();
        assert_eq!((&ping[0], &ping[10], &ping[20]), (&json!(10.0), &json!(20.0), &json!(30.0)));
        assert!(ping[5].is_null());
        let sum = document["results"]["TCP upload sum"].as_array().unwrap();
        assert_eq!(
            (&sum[5], &sum[10], &sum[15], &sum[25]),
            (&Value::Null, &json!(8.0), &json!(12.0), &Value::Null,)
        );
        assert_eq!(document["metadata"]["T0"], "2026-11-21T04:00:00.000000Z");
        assert_eq!(document["metadata"]["TEST_PARAMETERS"]["upload_streams"], "1");
    }
}
