//! crusader's `.crr`: two little-endian words (magic, version), then MessagePack maps in snappy
//! frames.
//!
//! One file holds a test down, up and both ways, one after the other. They become one trial whose
//! load is everything from the first to the last octet that moved: what belongs to which direction
//! shows in the curves.

use serde::Deserialize;
use snap::read::FrameDecoder;

use super::numbers::nanos;
use super::{ImportError, Imported, limited};
use crate::schema::{
    Direction, FlowDirection, FlowRecord, Phase, PhaseWindow, Sample, Series, SeriesKind,
    SeriesPoint,
};

const MAGIC: [u8; 8] = 0x5372_ab82_ae7c_59cb_u64.to_le_bytes();
const HEADER_LEN: usize = 16;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    generated_by: String,
    start: Time,
    duration: Time,
    stream_groups: Vec<Group>,
    pings: Vec<Ping>,
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
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    data: Vec<Point>,
}

/// Octets moved up to a time.
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

pub(super) fn is_one(octets: &[u8]) -> bool {
    octets.starts_with(&MAGIC)
}

pub(super) fn read(octets: &[u8]) -> Result<Imported, ImportError> {
    let content = |what| ImportError::Content { tool: "crusader", what };
    let header = octets.get(MAGIC.len()..HEADER_LEN).ok_or_else(|| content("it is cut short"))?;
    let version = u64::from_le_bytes(header.try_into().map_err(|_| ImportError::Unknown)?);
    if version != 1 && version != 2 {
        let accepted = "1 and 2; newer versions of crusader convert with \"crusader export\"";
        return Err(ImportError::Version { tool: "crusader", found: version, accepted });
    }
    let packed = limited(FrameDecoder::new(&octets[HEADER_LEN..]))?;
    let file: File = rmp_serde::from_slice(&packed)?;
    let length = file.start.ns().zip(file.duration.ns());
    let (start_ns, length_ns) = length.ok_or_else(|| content("its duration is out of range"))?;
    let end_ns = start_ns + length_ns;
    let mut imported = Imported {
        tool: format!("crusader {}", file.generated_by).trim_end().to_owned(),
        name: "crusader".to_owned(),
        ..Imported::default()
    };
    let probe = FlowRecord {
        name: "probe".to_owned(),
        kind: "probe".to_owned(),
        direction: FlowDirection::Both,
        ..FlowRecord::default()
    };
    imported.flows.push(probe);
    for group in &file.stream_groups {
        add_group(group, &mut imported);
    }
    imported.phases = phases(&file, end_ns);
    for ping in &file.pings {
        add_ping(ping, &mut imported);
    }
    if imported.samples.is_empty() {
        return Err(content("no probe has a time"));
    }
    Ok(imported)
}

/// Idle until the first octet moves, load until the last one has.
fn phases(file: &File, end_ns: u64) -> Vec<PhaseWindow> {
    let points = || file.stream_groups.iter().flat_map(|group| &group.streams);
    let times = || points().flat_map(|stream| &stream.data).filter_map(|point| point.time.ns());
    let window = |phase, start_ns, end_ns| PhaseWindow { phase, start_ns, end_ns };
    let (Some(first_ns), Some(last_ns)) = (times().min(), times().max()) else {
        return vec![window(Phase::Idle, 0, end_ns)];
    };
    let end_ns = end_ns.max(last_ns);
    vec![
        window(Phase::Idle, 0, first_ns),
        window(Phase::Load, first_ns, last_ns),
        window(Phase::Drain, last_ns, end_ns),
    ]
}

fn add_ping(ping: &Ping, imported: &mut Imported) {
    let Some(sent_ns) = ping.sent.ns() else { return };
    let phase = imported.phases.iter().find(|window| window.contains(sent_ns));
    let latency = ping.latency.as_ref();
    let up_ns = latency.and_then(|latency| latency.up.ns());
    imported.samples.push(Sample {
        sequence: ping.index,
        phase: phase.map_or(Phase::Drain, |window| window.phase),
        scheduled_ns: sent_ns,
        sent_ns,
        rtt_ns: latency.and_then(|latency| latency.total).and_then(Time::ns),
        one_way_up_ns: up_ns.map(|up_ns| up_ns as i64),
        ..Sample::default()
    });
}

/// The streams of a test together: crusader's streams are many and alike.
fn add_group(group: &Group, imported: &mut Imported) {
    let direction = if group.download { Direction::Down } else { Direction::Up };
    let kind = if group.both { "both" } else { "alone" };
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for stream in &group.streams {
        let mut before = 0;
        for point in &stream.data {
            if let Some(time_ns) = point.time.ns() {
                steps.push((time_ns, point.bytes.saturating_sub(before)));
            }
            before = point.bytes;
        }
    }
    steps.sort_unstable();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    let window_ns = last.0 - first.0;
    let octets: u128 = steps.iter().map(|step| u128::from(step.1)).sum();
    let goodput = (window_ns > 0)
        .then(|| u64::try_from(octets * 8_000_000_000 / u128::from(window_ns)).ok())
        .flatten();
    let is_up = direction == Direction::Up;
    imported.flows.push(FlowRecord {
        name: format!("{direction}-{kind}"),
        kind: "tcp".to_owned(),
        direction: if is_up { FlowDirection::Up } else { FlowDirection::Down },
        goodput_up_bit_per_s: goodput.filter(|_| is_up),
        goodput_down_bit_per_s: goodput.filter(|_| !is_up),
        ..FlowRecord::default()
    });
    let points = rates(&steps);
    let name = SeriesKind::Throughput.name(direction);
    match imported.series.iter_mut().find(|series| series.name == name) {
        Some(series) => {
            series.points.extend(points);
            series.points.sort_by_key(|point| point.time_ns);
        }
        None => {
            let unit = SeriesKind::Throughput.unit().to_owned();
            imported.series.push(Series { trial: 0, name, unit, points });
        }
    }
}

const STEP_NS: u64 = 100_000_000;

/// Octets per time as bit/s per tenth of a second; one in which nothing moved between two others
/// is 0.
fn rates(steps: &[(u64, u64)]) -> Vec<SeriesPoint> {
    let Some((first, last)) = steps.first().zip(steps.last()) else { return Vec::new() };
    let start_ns = first.0;
    // A file may claim years; a test takes minutes.
    let bins = ((last.0 - start_ns) / STEP_NS + 1).min(100_000) as usize;
    let mut octets = vec![0u64; bins];
    for (time_ns, moved) in steps {
        if let Some(bin) = octets.get_mut(((time_ns - start_ns) / STEP_NS) as usize) {
            *bin = bin.saturating_add(*moved);
        }
    }
    let rate = |octets: u64| octets as f64 * 8e9 / STEP_NS as f64;
    let point = |(bin, octets): (usize, &u64)| SeriesPoint {
        time_ns: start_ns + (bin as u64 + 1) * STEP_NS,
        value: rate(*octets),
    };
    octets.iter().enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    fn packed(version: u64, content: &serde_json::Value) -> Vec<u8> {
        let mut octets = [MAGIC, version.to_le_bytes()].concat();
        let mut frames = snap::write::FrameEncoder::new(&mut octets);
        frames.write_all(&rmp_serde::to_vec(content).unwrap()).unwrap();
        drop(frames);
        octets
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

    #[test]
    fn pings_and_streams_become_samples_and_curves() {
        let run = read(&packed(2, &content())).unwrap().into_run();
        let trial = &run.record.trials[0];
        assert_eq!(trial.flows[1].goodput_down_bit_per_s, Some(1_010_000));
        let phases: Vec<_> = run.samples.iter().map(|sample| sample.phase).collect();
        assert_eq!(phases, [Phase::Idle, Phase::Load, Phase::Load]);
        assert_eq!(run.samples[0].rtt_ns, Some(20_000_000));
        assert_eq!((run.samples[1].rtt_ns, run.samples[1].one_way_up_ns), (None, Some(90_000_000)));
        let down = &run.series[0];
        assert_eq!((down.name.as_str(), down.points[0].value), ("down.throughput", 100_000.0));
        assert_eq!(down.points.len(), 11);
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
