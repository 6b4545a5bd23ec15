//! crusader's `.crr`: two little-endian words (magic, version), then MessagePack maps in snappy
//! frames.
//!
//! One file has tests down, up and both ways, one after the other. Each becomes a variant with the
//! probes of its time, and those before the first test as its idle phase. A test begins with its
//! first byte, and its load is the part that crusader's own summary covers: without

use std::collections::BTreeMap;

use serde::Deserialize;
use snap::read::FrameDecoder;
use underload_record::schema::{Direction, Phase, PhaseWindow, Sample, SeriesKind};

use super::imported::{ImportError, Imported, decompress, load_flow, probe_flow, window};
use super::numbers::{nanos, rate, rates};
use super::rows::Rows;

const MAGIC: [u8; 8] = 0x5372_ab82_ae7c_59cb_u64.to_le_bytes();
const HEADER_LEN: usize = 16;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    generated_by: String,
    start: Time,
    duration: Time,
    config: Option<Config>,
    stream_groups: Rows<Group>,
    pings: Rows<Ping>,
    /// Absent before file version 2.
    #[serde(default)]
    test_data: Rows<Test>,
}

#[derive(Deserialize)]
struct Config {
    load_duration: Time,
}

/// The start of a test by crusader's own clock.
#[derive(Deserialize)]
struct Test {
    start: Time,
    kind: String,
}

#[derive(Clone, Copy, Deserialize)]
struct Time {
    secs: u64,
    nanos: u32,
}

#[derive(Deserialize)]
struct Group {
    download: bool,
    both: bool,
    streams: Rows<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    data: Rows<Point>,
}

/// The number of bytes transferred until a time.
#[derive(Deserialize)]
struct Point {
    time: Time,
    bytes: u64,
}

#[derive(Deserialize)]
struct Ping {
    index: u64,
    sent: Time,
    latency: Option<Latency>,
}

#[derive(Deserialize)]
struct Latency {
    total: Option<Time>,
    up: Time,
}

impl Time {
    fn ns(self) -> Option<u64> {
        nanos(self.secs as f64 + f64::from(self.nanos) / 1e9)
    }
}

pub(super) fn is_crusader(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

pub(super) fn read(bytes: &[u8]) -> Result<Vec<Imported>, ImportError> {
    let content = |what| ImportError::content("crusader", what);
    let header = bytes.get(MAGIC.len()..HEADER_LEN).ok_or_else(|| content("it is cut short"))?;
    let version = u64::from_le_bytes(header.try_into().map_err(|_| content("it is cut short"))?);
    if version != 1 && version != 2 {
        let accepted = "1 and 2; newer versions of crusader convert with \"crusader export\"";
        return Err(ImportError::Version { tool: "crusader", found: version, accepted });
    }
    let packed = decompress(FrameDecoder::new(&bytes[HEADER_LEN..]))?;
    let file: File = rmp_serde::from_slice(&packed)?;
    let length = file.start.ns().zip(file.duration.ns());
    let (start_ns, length_ns) = length.ok_or_else(|| content("its duration is out of range"))?;
    let tests = file.tests();
    let last_ns = tests.iter().map(|test| test.last_ns).max().unwrap_or(0);
    let end_ns = (start_ns + length_ns).max(last_ns);
    let parts: Vec<Imported> = if tests.is_empty() {
        vec![file.part("idle", vec![window(Phase::Idle, 0, end_ns)])]
    } else {
        let nexts = tests.iter().skip(1).map(|next| next.first_ns).chain([end_ns]);
        let part = |(test, next_ns)| file.test(test, tests[0].first_ns, next_ns);
        tests.iter().zip(nexts).map(part).collect()
    };
    if parts.iter().all(|part| part.samples.is_empty()) {
        return Err(content("no probe has a time"));
    }
    Ok(parts)
}

/// Streams that load the line at the same time.
struct Load<'a> {
    name: &'static str,
    groups: Vec<&'a Group>,
    /// Time of the first byte, or the start that crusader recorded.
    first_ns: u64,
    last_ns: u64,
}

impl File {
    /// Returns the tests that moved any byte, in order of time.
    fn tests(&self) -> Vec<Load<'_>> {
        let mut by_kind: BTreeMap<&'static str, Vec<&Group>> = BTreeMap::new();
        for group in &self.stream_groups {
            by_kind.entry(group.kind()).or_default().push(group);
        }
        let mut tests: Vec<Load<'_>> =
            by_kind.into_iter().filter_map(|(name, groups)| self.load(name, groups)).collect();
        tests.sort_by_key(|test| test.first_ns);
        tests
    }

    fn load<'a>(&self, name: &'static str, groups: Vec<&'a Group>) -> Option<Load<'a>> {
        let moves = || groups.iter().flat_map(|group| group.moves());
        let (first, last) = (moves().map(|it| it.0).min()?, moves().map(|it| it.0).max()?);
        let recorded = self.test_data.iter().find(|test| test.kind == name);
        let recorded = recorded.and_then(|test| test.start.ns()).filter(|start| *start < last);
        Some(Load { name, groups, first_ns: recorded.unwrap_or(first), last_ns: last })
    }

    /// Makes the variant of a test: the idle phase before all tests, and the test until the next one.
    fn test(&self, test: &Load<'_>, idle_ns: u64, next_ns: u64) -> Imported {
        let (from_ns, to_ns) = self.steady(test);
        let phases = vec![
            window(Phase::Idle, 0, idle_ns),
            window(Phase::Ramp, test.first_ns, from_ns),
            window(Phase::Load, from_ns, to_ns),
            window(Phase::Drain, to_ns, next_ns.max(to_ns)),
        ];
        let steady = phases[2];
        let mut part = self.part(test.name, phases);
        for group in &test.groups {
            add_group(group, steady, &mut part);
        }
        part
    }

    /// Returns start and end of the part of a test that crusader's summary covers; of a test that
    /// is too short for a summary, those of the whole test.
    fn steady(&self, test: &Load<'_>) -> (u64, u64) {
        let length_ns = self.config.as_ref().and_then(|config| config.load_duration.ns());
        let length_ns = length_ns.unwrap_or(test.last_ns - test.first_ns);
        let from_ns = test.first_ns + (length_ns / 5).max(2_000_000_000);
        let cut_ns = (length_ns / 10).max(500_000_000);
        let to_ns = (test.first_ns + length_ns.saturating_sub(cut_ns)).min(test.last_ns);
        if from_ns < to_ns { (from_ns, to_ns) } else { (test.first_ns, test.last_ns) }
    }

    /// Makes a variant with the probes that were sent in one of the phases.
    fn part(&self, variant: &str, phases: Vec<PhaseWindow>) -> Imported {
        let mut part = Imported {
            tool: format!("crusader {}", self.generated_by).trim_end().to_owned(),
            name: "crusader".to_owned(),
            variant: variant.to_owned(),
            phases,
            ..Imported::default()
        };
        part.flows.push(probe_flow("probe"));
        for ping in &self.pings {
            add_ping(ping, &mut part);
        }
        part
    }
}

fn add_ping(ping: &Ping, part: &mut Imported) {
    let Some(sent_ns) = ping.sent.ns() else { return };
    let Some(window) = part.phases.iter().find(|window| window.contains(sent_ns)) else { return };
    let latency = ping.latency.as_ref();
    let up_ns = latency.and_then(|latency| latency.up.ns());
    part.samples.push(Sample {
        sequence: ping.index,
        phase: window.phase,
        scheduled_ns: sent_ns,
        sent_ns,
        rtt_ns: latency.and_then(|latency| latency.total).and_then(Time::ns),
        one_way_up_ns: up_ns.map(|up_ns| up_ns as i64),
        ..Sample::default()
    });
}

impl Group {
    /// Returns crusader's name of the test that the group belongs to.
    fn kind(&self) -> &'static str {
        match (self.both, self.download) {
            (true, _) => "Bidirectional",
            (false, true) => "Download",
            (false, false) => "Upload",
        }
    }

    /// Returns the times at which bytes moved and their number, over all streams, sorted.
    fn moves(&self) -> Vec<(u64, u64)> {
        let mut moves = Vec::new();
        for stream in &self.streams {
            let mut before = 0;
            for point in &stream.data {
                let moved = point.bytes.saturating_sub(before);
                before = before.max(point.bytes);
                moves.extend(point.time.ns().filter(|_| moved > 0).map(|time_ns| (time_ns, moved)));
            }
        }
        moves.sort_unstable();
        moves
    }

    /// Returns the payload per second in a window, bit/s. Between two points of a stream its bytes
    /// are taken to move at an even rate.
    fn goodput(&self, window: PhaseWindow) -> Option<u64> {
        let bytes = |stream: &Stream| {
            let known = stream.data.iter().filter_map(|it| Some((it.time.ns()?, it.bytes)));
            let points: Vec<(u64, u64)> = known.collect();
            bytes_at(&points, window.end_ns) - bytes_at(&points, window.start_ns)
        };
        let moved: f64 = self.streams.iter().map(bytes).sum();
        let seconds = window.length_ns() as f64 / 1e9;
        (seconds > 0.0).then(|| rate(moved * 8.0 / seconds)).flatten()
    }
}

/// Returns the bytes that a stream had moved by a time.
fn bytes_at(points: &[(u64, u64)], time_ns: u64) -> f64 {
    let after = points.partition_point(|point| point.0 < time_ns);
    let bytes = |point: (u64, u64)| point.1 as f64;
    match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
        (_, None) => points.last().copied().map_or(0.0, bytes),
        (None, Some(_)) => 0.0,
        (Some(before), Some(next)) => {
            let length = next.0.saturating_sub(before.0).max(1) as f64;
            let share = time_ns.saturating_sub(before.0) as f64 / length;
            bytes(before) + (bytes(*next) - bytes(before)) * share
        }
    }
}

/// Adds the streams of a test as one flow: crusader's streams are many and alike.
fn add_group(group: &Group, steady: PhaseWindow, part: &mut Imported) {
    let moves = group.moves();
    if moves.is_empty() {
        return;
    }
    let direction = if group.download { Direction::Down } else { Direction::Up };
    let name = direction.to_string();
    if part.flows.iter().any(|flow| flow.name == name) {
        return;
    }
    part.flows.push(load_flow(name, "tcp", direction, group.goodput(steady)));
    let mut series = SeriesKind::Throughput.series(0, direction);
    series.points = rates(&moves);
    part.series.push(series);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    fn packed(version: u64, content: &serde_json::Value) -> Vec<u8> {
        let mut bytes = [MAGIC, version.to_le_bytes()].concat();
        let mut frames = snap::write::FrameEncoder::new(&mut bytes);
        frames.write_all(&rmp_serde::to_vec(content).unwrap()).unwrap();
        drop(frames);
        bytes
    }

    fn content() -> serde_json::Value {
        let at = |ms: u64| json!({"secs": ms / 1000, "nanos": ms % 1000 * 1_000_000});
        json!({
            "version": 2, "generated_by": "Crusader 0.3", "ipv6": false, "start": at(200),
            "duration": at(3800),
            "stream_groups": [{"download": true, "both": false, "streams": [
                {"data": [{"time": at(1000), "bytes": 0}, {"time": at(1050), "bytes": 1250},
                          {"time": at(2000), "bytes": 126_250}]}]}],
            "pings": [
                {"index": 0, "sent": at(500), "latency": {"total": at(20), "up": at(5)}},
                {"index": 1, "sent": at(1500), "latency": {"total": null, "up": at(90)}},
                {"index": 2, "sent": at(1600), "latency": null}],
        })
    }

    fn run(content: &serde_json::Value) -> underload_store::RunData {
        Imported::all_into_run(read(&packed(2, content)).unwrap())
    }

    #[test]
    fn pings_and_streams_become_samples_and_curves() {
        let run = run(&content());
        let trial = &run.record.trials[0];
        assert_eq!(trial.flows[1].goodput_down_bit_per_s, Some(1_052_631), "125,000 in 0.95 s");
        let phases: Vec<_> = run.samples.iter().map(|sample| sample.phase).collect();
        assert_eq!(phases, [Phase::Idle, Phase::Load, Phase::Load]);
        assert_eq!(run.samples[0].rtt_ns, Some(20_000_000));
        assert_eq!((run.samples[1].rtt_ns, run.samples[1].one_way_up_ns), (None, Some(90_000_000)));
        let down = &run.series[0];
        assert_eq!((down.name.as_str(), down.points[0].value), ("down.throughput", 100_000.0));
        assert_eq!(down.points.len(), 10);
    }

    /// A test as crusader makes it by default, of `mbit` in each direction: 10 s down, up and both
    /// ways from 5, 20 and 35 s on, a point every 50 ms; uploads have a point from before them.
    fn three_tests(mbit: [u64; 4]) -> serde_json::Value {
        let at = |ms: u64| json!({"secs": ms / 1000, "nanos": ms % 1000 * 1_000_000});
        let group = |download: bool, both: bool, from_ms: u64, mbit: u64| {
            let point = |step: u64| {
                let bytes = mbit * 125 * 50 * step;
                json!({"time": at(from_ms + 50 * step), "bytes": bytes})
            };
            let mut points: Vec<_> = (1..=200).map(point).collect();
            points.insert(0, json!({"time": at(if download { from_ms } else { 30 }), "bytes": 0}));
            json!({"download": download, "both": both, "streams": [{"data": points}]})
        };
        let ping = |index: u64| {
            let ms = index * 100;
            let total = if ms < 5_000 { 10 } else { 40 + ms / 15_000 };
            json!({"index": index, "sent": at(ms), "latency": {"total": at(total), "up": at(0)}})
        };
        json!({
            "generated_by": "Crusader 0.3", "start": at(0), "duration": at(50_000),
            "config": {"load_duration": at(10_000)},
            "stream_groups": [
                group(true, false, 5_000, mbit[0]), group(false, false, 20_000, mbit[1]),
                group(true, true, 35_000, mbit[2]), group(false, true, 35_000, mbit[3])],
            "pings": (0..500).map(ping).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn consecutive_tests_become_separate_variants() {
        for mbit in [[143, 88, 240, 87], [16, 39, 10, 38], [1, 1, 1, 1], [900, 20, 800, 19]] {
            let run = run(&three_tests(mbit));
            let variants: Vec<&str> =
                run.record.variants.iter().map(|variant| variant.name.as_str()).collect();
            assert_eq!(variants, ["Download", "Upload", "Bidirectional"]);
            let rates = |variant: usize| {
                let flows = &run.record.trials[variant].flows;
                let up = flows.iter().find_map(|flow| flow.goodput_up_bit_per_s);
                (flows.iter().find_map(|flow| flow.goodput_down_bit_per_s), up)
            };
            let [down, up, both_down, both_up] = mbit.map(|mbit| Some(mbit * 1_000_000));
            assert_eq!(
                [rates(0), rates(1), rates(2)],
                [(down, None), (None, up), (both_down, both_up)]
            );
            for (trial, load_from_ms) in run.record.trials.iter().zip([7_050, 22_050, 37_050]) {
                let starts: Vec<u64> =
                    trial.phases.iter().map(|it| it.start_ns / 1_000_000).collect();
                assert_eq!(starts[..3], [0, load_from_ms - 2_000, load_from_ms], "after 2 s of 10");
                let idle = &trial.latencies[0];
                assert_eq!((idle.sent, idle.distribution.unwrap().max_ns), (51, 40_000_000));
            }
            let load = |variant: usize| {
                let of =
                    |it: &&underload_record::schema::LatencySummary| it.window.phase == Phase::Load;
                run.record.trials[variant].latencies.iter().find(of).unwrap().distribution.unwrap()
            };
            assert_eq!([0, 1, 2].map(|variant| load(variant).p50_ns / 1_000_000), [40, 41, 42]);
        }
    }

    #[test]
    fn points_before_the_test_count_no_bytes() {
        let run = run(&three_tests([16, 39, 10, 38]));
        let upload = &run.record.trials[1];
        assert_eq!(upload.flows[1].goodput_up_bit_per_s, Some(39_000_000));
        let curve = run.series.iter().find(|series| series.name == "up.throughput").unwrap();
        assert!(curve.points[0].time_ns > 20_000_000_000, "{:?}", curve.points[0]);
    }

    #[test]
    fn other_versions_and_damage_are_refused() {
        let error = read(&packed(0, &content())).unwrap_err().to_string();
        assert!(error.contains("1 and 2"), "{error}");
        assert!(read(&packed(2, &content())[..40]).is_err());
        assert!(read(&MAGIC).unwrap_err().to_string().contains("cut short"));
        assert!(read(&packed(2, &json!({"pings": 7}))).is_err());
    }
}
