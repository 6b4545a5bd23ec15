//! flent's data files: one JSON object, gzipped.
//!
//! `raw_values` has the measured values by series, with Unix times; `results` has them on a common
//! grid. Round trips are in ms, rates in Mbit/s. Before version 4 the raw values of
//! request-response probes were transactions per second.
//!
//! Probes run for TOTAL_LENGTH, the load for LENGTH in the middle of it; the common grid may be
//! longer than either. A file that underload wrote also has its phases and the send times of lost
//! probes, see [`super::flent_export`]. The kernel's values of a socket (`--socket-stats`) are
//! series such as `TCP upload::1::tcp_rtt`, which are not rates of the load.

use serde::Deserialize;
use underload_record::schema::{
    Direction, Phase, PhaseWindow, Sample, Series, SeriesKind, SeriesPoint,
};

use super::imported::{ImportError, Imported, load_flow, probe_flow, window};
use super::numbers::{NANOS_MAX, bits, flow_index, lenient, nanos, rate};
use super::rows::{Named, Rows};

#[derive(Deserialize)]
struct File {
    #[serde(default = "first_version")]
    version: u64,
    metadata: Metadata,
    #[serde(default)]
    x_values: Rows<f64>,
    #[serde(default)]
    results: Named<Rows<Option<f64>>>,
    #[serde(default)]
    raw_values: Named<Rows<Raw>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
struct Metadata {
    name: String,
    title: Option<String>,
    time: Option<String>,
    t0: Option<String>,
    #[serde(deserialize_with = "lenient")]
    length: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    total_length: Option<f64>,
    flent_version: Option<String>,
    series_meta: Named<SeriesMeta>,
    underload: Extension,
}

/// Values that underload adds for its own reader.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
struct Extension {
    phases: Rows<PhaseWindow>,
    /// Send times of the lost probes of each series, ns.
    lost: Named<Rows<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
struct SeriesMeta {
    units: Option<String>,
    command: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    t: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    val: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    dur: Option<f64>,
}

/// Files without a version are older than the first one that has it.
fn first_version() -> u64 {
    1
}

const VERSION_MAX: u64 = 4;
/// Series that flent computes from the others.
const DERIVED: [&str; 4] = ["avg", "sum", "fairness", "totals"];

pub(super) fn read(text: &[u8]) -> Result<Imported, ImportError> {
    let file: File = serde_json::from_slice(text)
        .map_err(|source| ImportError::Json { tool: "flent", source })?;
    if file.version > VERSION_MAX {
        let (tool, accepted) = ("flent", "1 to 4");
        return Err(ImportError::Version { tool, found: file.version, accepted });
    }
    let names = file.names();
    let mut imported = Imported {
        tool: format!("flent {}", file.metadata.flent_version.as_deref().unwrap_or("unknown")),
        name: file.metadata.name.clone(),
        title: file.metadata.title.clone().unwrap_or_default(),
        started: file.metadata.time.clone().unwrap_or_default(),
        phases: file.phases(names.iter().any(|name| direction(name).is_some()))?,
        ..Imported::default()
    };
    for name in &names {
        if file.is_latency(name) {
            file.add_probe(name, &mut imported);
        } else if let Some(direction) = direction(name) {
            file.add_load(name, direction, &mut imported);
        }
    }
    if imported.flows.is_empty() {
        return Err(content("no series of round trips or of TCP rates"));
    }
    for direction in [Direction::Up, Direction::Down] {
        imported.series.extend(file.throughput(direction, &names));
    }
    Ok(imported)
}

fn content(what: &'static str) -> ImportError {
    ImportError::content("flent", what)
}

/// The last part of a series' name begins with this if the kernel reported its values.
const OF_SOCKET: &str = "tcp_";

fn is_of_socket(name: &str) -> bool {
    name.rsplit("::").next().is_some_and(|part| part.starts_with(OF_SOCKET))
}

/// Returns the direction of a series of rates, by flent's names.
fn direction(name: &str) -> Option<Direction> {
    if is_of_socket(name) {
        None
    } else if name.starts_with("TCP upload") {
        Some(Direction::Up)
    } else if name.starts_with("TCP download") {
        Some(Direction::Down)
    } else {
        None
    }
}

impl File {
    /// Returns the names of all measured series, sorted.
    fn names(&self) -> Vec<String> {
        let all = self.results.keys().chain(self.raw_values.keys());
        let is_measured =
            |name: &&String| !DERIVED.iter().any(|derived| name.ends_with(&format!(" {derived}")));
        let mut names: Vec<String> = all.filter(is_measured).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    fn is_latency(&self, name: &str) -> bool {
        let units = self.metadata.series_meta.get(name).and_then(|meta| meta.units.as_deref());
        name.starts_with("Ping") && !is_of_socket(name) && units.is_none_or(|units| units == "ms")
    }

    fn phases(&self, has_load: bool) -> Result<Vec<PhaseWindow>, ImportError> {
        let own = &self.metadata.underload.phases;
        if !own.is_empty() {
            let ends = std::iter::once(0).chain(own.iter().map(|window| window.end_ns));
            let is_in_order = own.iter().zip(ends).all(|(it, before)| {
                before <= it.start_ns && it.start_ns <= it.end_ns && it.end_ns <= NANOS_MAX
            });
            let unordered = || content("its phases are out of order or too long");
            return is_in_order.then(|| own.to_vec()).ok_or_else(unordered);
        }
        let no_length = || content("the length of the test is missing or out of range");
        let last_x = self.x_values.iter().copied().fold(0.0, f64::max);
        let total = self.metadata.total_length.filter(|total| *total > 0.0).unwrap_or(last_x);
        let total_ns = nanos(total).filter(|total| *total > 0).ok_or_else(no_length)?;
        let end_ns = nanos(last_x).unwrap_or(0).max(total_ns);
        if !has_load {
            return Ok(vec![window(Phase::Idle, 0, end_ns)]);
        }
        let length_ns = nanos(self.metadata.length.unwrap_or(total)).ok_or_else(no_length)?;
        // Probes run as long before the load as after it.
        let before_ns = total_ns.saturating_sub(length_ns) / 2;
        if before_ns == 0 {
            return Ok(vec![window(Phase::Load, 0, end_ns)]);
        }
        let load_end_ns = before_ns + length_ns;
        Ok(vec![
            window(Phase::Idle, 0, before_ns),
            window(Phase::Load, before_ns, load_end_ns),
            window(Phase::Drain, load_end_ns, end_ns),
        ])
    }

    /// Returns seconds since the start and value of each point: raw if the file has raw values.
    fn points(&self, name: &str) -> Vec<(f64, Option<f64>)> {
        self.measured(name).into_iter().map(|(seconds, value, _)| (seconds, value)).collect()
    }

    /// Returns seconds, value and duration (s) of each measurement; `None` where absent.
    fn measured(&self, name: &str) -> Vec<(f64, Option<f64>, Option<f64>)> {
        let raw = self.raw_values.get(name).map_or(&[][..], |raw| raw);
        if raw.is_empty() {
            let values = self.results.get(name).map_or(&[][..], |values| values);
            let points = self.x_values.iter().zip(values);
            return points.map(|(seconds, value)| (*seconds, *value, None)).collect();
        }
        let start = self.start_s();
        // Request-response probes, and only they, have a duration.
        let is_rate = |raw: &Raw| self.version < 4 && name.contains("UDP") && raw.dur.is_some();
        let value = |raw: &Raw| match raw.val {
            Some(rate) if is_rate(raw) => (rate > 0.0).then(|| 1_000.0 / rate),
            value => value,
        };
        let length = |raw: &Raw| raw.dur.filter(|length| *length > 0.0);
        raw.iter().filter_map(|raw| Some((raw.t? - start, value(raw), length(raw)))).collect()
    }

    /// Returns the Unix time of the start: the file's own, unless its values contradict it.
    fn start_s(&self) -> f64 {
        let times = self.raw_values.values().flat_map(|raw| raw.iter()).filter_map(|raw| raw.t);
        let first = times.fold(f64::INFINITY, f64::min);
        let recorded = self.metadata.t0.as_deref().and_then(|text| text.parse().ok());
        let recorded = recorded.map(|time: jiff::Timestamp| time.as_microsecond() as f64 / 1e6);
        recorded.filter(|start| (0.0..60.0).contains(&(first - start))).unwrap_or(first)
    }

    fn add_probe(&self, name: &str, imported: &mut Imported) {
        let Some(flow) = flow_index(imported.flows.len()) else { return };
        let command = self.metadata.series_meta.get(name).and_then(|meta| meta.command.as_deref());
        let closed_loop = command.is_some_and(|command| command.contains("UDP_RR"));
        // On the grid, a missing value is a point without a measurement, not a loss.
        let arrived = self.points(name).into_iter().filter_map(|(seconds, ms)| {
            Some((nanos(seconds)?, Some(ms.and_then(|ms| nanos(ms / 1e3))?)))
        });
        let lost = self.metadata.underload.lost.get(name).map_or(&[][..], |lost| lost);
        let lost = lost.iter().filter(|sent_ns| **sent_ns <= NANOS_MAX);
        let mut probes: Vec<(u64, Option<u64>)> =
            arrived.chain(lost.map(|sent_ns| (*sent_ns, None))).collect();
        probes.sort_by_key(|(sent_ns, _)| *sent_ns);
        for (sequence, (sent_ns, rtt_ns)) in (0..).zip(probes) {
            let phase = imported.phases.iter().find(|window| window.contains(sent_ns));
            imported.samples.push(Sample {
                flow,
                sequence,
                phase: phase.map_or(Phase::Drain, |window| window.phase),
                closed_loop,
                scheduled_ns: sent_ns,
                sent_ns,
                rtt_ns,
                ..Sample::default()
            });
        }
        imported.flows.push(probe_flow(name));
    }

    fn add_load(&self, name: &str, direction: Direction, imported: &mut Imported) {
        let points = self.rate_points(name);
        let load = imported.phases.iter().find(|window| window.phase == Phase::Load);
        let goodput = load.and_then(|load| self.mean_rate(name, *load));
        imported.flows.push(load_flow(name.to_owned(), "tcp", direction, goodput));
        let (name, unit) = (format!("{name}.goodput"), "bit/s".to_owned());
        imported.series.push(Series { trial: 0, name, unit, points });
    }

    /// Returns the mean rate of a series over the whole window, bit/s: the bits it moved in the
    /// window divided by the window's length. A flow that sends 10 Mbit/s for half of the window
    /// has a mean rate of 5 Mbit/s, so rates of flows can be added. `None` if the series has no
    /// value in the window.
    fn mean_rate(&self, name: &str, window: PhaseWindow) -> Option<u64> {
        let (start_s, end_s) = (window.start_ns as f64 / 1e9, window.end_ns as f64 / 1e9);
        let mut bits_moved = None;
        for (from_s, to_s, bit_per_s) in self.spans(name) {
            let seconds = to_s.min(end_s) - from_s.max(start_s);
            if seconds > 0.0 {
                *bits_moved.get_or_insert(0.0) += bit_per_s * seconds;
            }
        }
        bits_moved.and_then(|bits| rate(bits / (end_s - start_s)))
    }

    /// Start and end of each measurement of a series, s, and its rate, bit/s. A value without a
    /// duration covers the time since the value before it; the first covers as much as the second.
    fn spans(&self, name: &str) -> Vec<(f64, f64, f64)> {
        let mut measured = self.measured(name);
        measured.retain(|(seconds, ..)| nanos(*seconds).is_some());
        measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first_s = measured.get(1).map_or(1.0, |second| second.0 - measured[0].0);
        let mut before_s = measured.first().map_or(0.0, |first| first.0 - first_s);
        let mut spans = Vec::new();
        for (seconds, value, length) in measured {
            let from_s = length.map_or(before_s, |length| seconds - length);
            before_s = seconds;
            spans.extend(value.and_then(bits).map(|bit_per_s| (from_s, seconds, bit_per_s)));
        }
        spans
    }

    fn rate_points(&self, name: &str) -> Vec<SeriesPoint> {
        let point = |(seconds, value): (f64, Option<f64>)| {
            Some(SeriesPoint { time_ns: nanos(seconds)?, value: bits(value?)? })
        };
        let mut points: Vec<SeriesPoint> =
            self.points(name).into_iter().filter_map(point).collect();
        points.sort_by_key(|point| point.time_ns);
        points
    }

    /// Returns the sum of all flows of a direction, on the common grid.
    fn throughput(&self, direction_wanted: Direction, names: &[String]) -> Option<Series> {
        let flows: Vec<&Rows<Option<f64>>> = names
            .iter()
            .filter(|name| direction(name) == Some(direction_wanted))
            .filter_map(|name| self.results.get(name))
            .collect();
        let sum = |place: usize| -> f64 {
            let at = |values: &&Rows<Option<f64>>| values.get(place).copied().flatten();
            flows.iter().filter_map(at).filter_map(bits).sum()
        };
        let mut series = SeriesKind::Throughput.series(0, direction_wanted);
        series.points = self
            .x_values
            .iter()
            .enumerate()
            .filter_map(|(place, x)| Some(SeriesPoint { time_ns: nanos(*x)?, value: sum(place) }))
            .collect();
        series.points.sort_by_key(|point| point.time_ns);
        (!flows.is_empty() && !series.points.is_empty()).then_some(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "version": 4, "x_values": [0.0, 1.0, 2.0, 3.0],
        "metadata": {"NAME": "tcp_1up", "TITLE": "home", "T0": "2026-11-21T04:00:00.500000Z",
            "TIME": "2026-11-21T04:00:00Z", "LENGTH": 2, "TOTAL_LENGTH": 4,
            "FLENT_VERSION": "2.1.1", "BATCH_NAME": null,
            "SERIES_META": {"Ping (ms) UDP": {"COMMAND": "netperf -t UDP_RR", "UNITS": "ms"}}},
        "results": {"TCP upload": [null, 8.0, 12.0, null], "Ping (ms) ICMP": [10, 20, 30, 40],
            "TCP upload sum": [null, 8.0, 12.0, null]},
        "raw_values": {
            "Ping (ms) ICMP": [{"t": 1795233600.5, "val": 10.0}, {"t": 1795233602.5, "val": 30.0}],
            "Ping (ms) UDP": [{"t": 1795233602.0, "val": 25.0, "dur": 0.2}],
            "TCP upload": [{"t": 1795233602.5, "val": 8.0}, {"t": 1795233603.5, "val": 12.0}]}}"#;

    #[test]
    fn a_file_becomes_a_trial_with_phases_probes_and_flows() {
        let run = read(FILE.as_bytes()).unwrap().into_run();
        assert_eq!(run.record.scenario.title, "home (imported from flent 2.1.1)");
        let trial = &run.record.trials[0];
        let windows: Vec<_> = trial.phases.iter().map(|w| (w.phase, w.end_ns)).collect();
        let second = 1_000_000_000;
        assert_eq!(
            windows,
            [(Phase::Idle, second), (Phase::Load, 3 * second), (Phase::Drain, 4 * second)]
        );
        let names: Vec<_> = trial.flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["Ping (ms) ICMP", "Ping (ms) UDP", "TCP upload"]);
        assert_eq!(trial.flows[2].goodput_up_bit_per_s, Some(10_000_000));
        let icmp: Vec<_> = run.samples.iter().filter(|sample| sample.flow == 0).collect();
        assert_eq!((icmp[0].sent_ns, icmp[0].rtt_ns), (0, Some(10_000_000)));
        assert_eq!((icmp[1].phase, icmp[1].sent_ns), (Phase::Load, 2 * second));
        assert!(run.samples.iter().any(|sample| sample.closed_loop && sample.flow == 1));
        let up = run.series.iter().find(|series| series.name == "up.throughput").unwrap();
        assert_eq!(up.points.iter().map(|p| p.value).collect::<Vec<_>>(), [0.0, 8e6, 12e6, 0.0]);
        let load = &trial.latencies.iter().find(|l| l.window.phase == Phase::Load).unwrap();
        assert_eq!(load.distribution.unwrap().p50_ns, 30_000_000);
    }

    #[test]
    fn socket_statistics_are_not_read_as_rates() {
        let plain = read(FILE.as_bytes()).unwrap().into_run();
        let text = FILE.replace(
            "\"results\": {",
            "\"results\": {\"TCP upload::tcp_rtt\": [70, 80, 90, 100],
            \"Ping (ms) UDP BE1::tcp_rtt\": [70, 80, 90, 100],
            \"TCP upload::1::tcp_cwnd\": [70, 80, 90, 100],",
        );
        let run = read(text.as_bytes()).unwrap().into_run();
        assert_ne!(text, FILE);
        assert_eq!(run.record.trials[0].flows, plain.record.trials[0].flows);
        assert_eq!(run.series, plain.series);
    }

    #[test]
    fn a_longer_grid_keeps_the_phases() {
        let long = FILE.replace("2.0, 3.0]", "2.0, 3.0, 9.0]");
        let phases = read(long.as_bytes()).unwrap().phases;
        let ends: Vec<u64> = phases.iter().map(|window| window.end_ns / 1_000_000_000).collect();
        assert_eq!(ends, [1, 3, 9], "idle and load as LENGTH and TOTAL_LENGTH say");
    }

    #[test]
    fn a_rate_is_weighted_by_its_duration() {
        let uneven =
            FILE.replace("1795233602.5, \"val\": 8.0", "1795233603, \"val\": 8.0, \"dur\": 1.5");
        let uneven = uneven.replace("\"val\": 12.0", "\"val\": 12.0, \"dur\": 0.5");
        let run = read(uneven.as_bytes()).unwrap().into_run();
        assert_eq!(run.record.trials[0].flows[2].goodput_up_bit_per_s, Some(9_000_000));
        let straddling = uneven.replace("\"dur\": 1.5", "\"dur\": 9.5");
        assert_eq!(read(straddling.as_bytes()).unwrap().flows, run.record.trials[0].flows);
    }

    /// The load lasts two seconds: one flow runs in the first second, another flow in the second.
    #[test]
    fn rates_of_flows_at_different_times_are_not_added() {
        let staggered = FILE.replace(r#""TCP upload": [null, 8.0, 12.0, null], "#, "").replace(
            r#""TCP upload": [{"t": 1795233602.5, "val": 8.0}, {"t": 1795233603.5, "val": 12.0}]"#,
            r#""TCP upload::1": [{"t": 1795233602.5, "val": 8.0, "dur": 1.0}],
            "TCP upload::2": [{"t": 1795233603.5, "val": 12.0, "dur": 1.0}]"#,
        );
        assert_ne!(staggered, FILE);
        let run = read(staggered.as_bytes()).unwrap().into_run();
        let carried = run.record.summaries[0].throughput(Direction::Up).unwrap();
        assert_eq!(carried.goodput_bit_per_s.map(|rate| rate.mean), Some(10e6));
    }

    #[test]
    fn phases_that_underload_wrote_are_accepted_only_in_order() {
        let with = |phases: &str| {
            let own = format!(r#""UNDERLOAD": {{"PHASES": [{phases}]}}, "LENGTH""#);
            read(FILE.replacen(r#""LENGTH""#, &own, 1).as_bytes()).map(|run| run.phases.len())
        };
        let window = |from: u64, to: u64| {
            format!(r#"{{"phase": "load", "start_ns": {from}, "end_ns": {to}}}"#)
        };
        let two = |(a, b), (c, d)| with(&format!("{},{}", window(a, b), window(c, d)));
        assert_eq!(two((0, 5), (5, 9)).unwrap(), 2);
        for wrong in [two((0, 5), (4, 9)), two((0, 5), (9, 8)), two((0, 5), (5, u64::MAX))] {
            assert!(wrong.unwrap_err().to_string().contains("its phases"));
        }
    }

    #[test]
    fn old_request_response_values_are_rates() {
        let old = FILE.replace("\"version\": 4", "\"version\": 3").replace("25.0", "40.0");
        let run = read(old.as_bytes()).unwrap().into_run();
        let udp = run.samples.iter().find(|sample| sample.flow == 1).unwrap();
        assert_eq!(udp.rtt_ns, Some(25_000_000), "40 transactions per second");
    }

    #[test]
    fn unreadable_flent_files_are_refused_with_the_reason() {
        let newer = FILE.replace("\"version\": 4", "\"version\": 5");
        let error = read(newer.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("1 to 4"), "{error}");
        let error = read(br#"{"metadata":{"NAME":"x"},"x_values":[1.0]}"#).unwrap_err().to_string();
        assert!(error.contains("no series"), "{error}");
        let error = read(br#"{"metadata":{"NAME":"x","TOTAL_LENGTH":1e300}}"#).unwrap_err();
        assert!(error.to_string().contains("length"), "{error}");
    }
}
