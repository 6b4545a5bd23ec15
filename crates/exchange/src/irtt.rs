//! The JSON of `irtt client -o`: every round trip, all times in ns.
//!
//! irtt 0.9.1 and builds of its main branch write the start of a test as the two clocks
//! (`{"wall": …, "monotonic": …}`); Debian's 0.9.0 writes a text. Both call their format 1.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use underload_record::schema::{FlowRecord, Marking, Sample};

use super::imported::{ImportError, Imported, first_document, probe_flow};
use super::numbers::nanos;
use super::rows::Rows;

#[derive(Deserialize)]
struct File {
    version: Version,
    config: Config,
    stats: Stats,
    round_trips: Rows<RoundTrip>,
}

#[derive(Deserialize)]
struct Version {
    irtt: String,
    #[serde(default = "known_format")]
    json_format: u64,
}

/// The accepted format, also of files that do not have the key.
const FORMAT: u64 = 1;

fn known_format() -> u64 {
    FORMAT
}

#[derive(Deserialize)]
struct Config {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    #[serde(default)]
    dscp: i64,
}

#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    start_time: StartTime,
}

/// Start of the test, RFC 3339; empty if the file has neither a text nor a wall clock.
#[derive(Default)]
struct StartTime(String);

impl<'de> Deserialize<'de> for StartTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrClocks)
    }
}

struct TextOrClocks;

impl<'de> Visitor<'de> for TextOrClocks {
    type Value = StartTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time as text or as {\"wall\": nanoseconds}")
    }

    fn visit_str<E>(self, text: &str) -> Result<StartTime, E> {
        Ok(StartTime(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, clocks: A) -> Result<StartTime, A::Error> {
        let clocks = Stamp::deserialize(MapAccessDeserializer::new(clocks))?;
        let wall = clocks.wall.map(|ns| jiff::Timestamp::from_nanosecond(ns.into()));
        Ok(StartTime(wall.and_then(Result::ok).map(|at| at.to_string()).unwrap_or_default()))
    }

    fn visit_unit<E>(self) -> Result<StartTime, E> {
        Ok(StartTime::default())
    }
}

#[derive(Deserialize)]
struct RoundTrip {
    seqno: u64,
    #[serde(default)]
    timestamps: Timestamps,
    #[serde(default)]
    delay: Delay,
}

#[derive(Default, Deserialize)]
struct Timestamps {
    #[serde(default)]
    client: Client,
}

#[derive(Default, Deserialize)]
struct Client {
    #[serde(default)]
    send: Stamp,
}

#[derive(Default, Deserialize)]
struct Stamp {
    monotonic: Option<i64>,
    wall: Option<i64>,
}

/// Empty for a lost round trip.
#[derive(Default, Deserialize)]
struct Delay {
    rtt: Option<u64>,
    send: Option<i64>,
    receive: Option<i64>,
}

/// Longer delays are ignored.
const DELAY_MAX_S: f64 = 3_600.0;

pub(super) fn read(text: &[u8]) -> Result<Imported, ImportError> {
    let file: File = first_document(text, "irtt")?;
    if file.version.json_format != FORMAT {
        let (tool, found) = ("irtt", file.version.json_format);
        return Err(ImportError::Version { tool, found, accepted: "1" });
    }
    let Some(start) = file.round_trips.iter().filter_map(RoundTrip::sent).min() else {
        return Err(ImportError::content("irtt", "no round trip has a send time"));
    };
    let marking_sent = Marking::from_byte(file.config.params.dscp.clamp(0, 255) as u8);
    let samples = samples(&file.round_trips, start, marking_sent);
    let probe = FlowRecord {
        class: Marking { dscp: marking_sent.dscp, ..Marking::default() }.class(),
        ..probe_flow("irtt")
    };
    Ok(Imported {
        tool: format!("irtt {}", file.version.irtt),
        started: file.stats.start_time.0,
        ..Imported::of_probes("irtt", vec![probe], samples)
    })
}

impl RoundTrip {
    fn sent(&self) -> Option<i64> {
        let send = &self.timestamps.client.send;
        send.monotonic.or(send.wall)
    }
}

fn samples(trips: &Rows<RoundTrip>, start: i64, marking_sent: Marking) -> Vec<Sample> {
    let longest_ns = nanos(DELAY_MAX_S).unwrap_or(u64::MAX);
    let sane = |delay: Option<i64>| delay.filter(|delay| delay.unsigned_abs() <= longest_ns);
    let sample = |trip: &RoundTrip| {
        let sent_ns = trip.sent()?.checked_sub(start)?.unsigned_abs();
        Some(Sample {
            sequence: trip.seqno,
            scheduled_ns: sent_ns,
            sent_ns,
            rtt_ns: trip.delay.rtt.filter(|rtt| *rtt <= longest_ns),
            one_way_up_ns: sane(trip.delay.send),
            one_way_down_ns: sane(trip.delay.receive),
            marking_sent,
            ..Sample::default()
        })
    };
    let mut samples: Vec<Sample> = trips.iter().filter_map(sample).collect();
    samples.sort_by_key(|sample| sample.sent_ns);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use underload_record::schema::LatencyMeasure;

    const HOUR_NS: i64 = 3_600_000_000_000;

    const FILE: &str = r#"{"version":{"irtt":"0.9.0","protocol":1},
        "config":{"params":{"dscp":181,"interval":10000000}},
        "stats":{"start_time":"2026-11-21T04:43:21Z"},
        "round_trips":[
          {"seqno":0,"lost":"false","timestamps":{"client":{"send":{"wall":5,"monotonic":1000}}},
           "delay":{"receive":40,"rtt":100,"send":60},"ipdv":{}},
          {"seqno":1,"lost":"true","timestamps":{"client":{"send":{"wall":6,"monotonic":11000}}},
           "delay":{},"ipdv":{}}]}
        trailing text"#;

    #[test]
    fn round_trips_become_samples_and_losses_stay_losses() {
        let run = read(FILE.as_bytes()).unwrap().into_run();
        let [first, second] = run.samples.as_slice() else { panic!("{:?}", run.samples) };
        assert_eq!((first.sent_ns, first.rtt_ns, first.one_way_up_ns), (0, Some(100), Some(60)));
        assert_eq!((second.sent_ns, second.rtt_ns), (10_000, None));
        assert_eq!(first.marking_sent, Marking::from_byte(0xb5));
        let latency = &run.record.trials[0].latencies[0];
        assert_eq!((latency.sent, latency.lost), (2, 1));
    }

    #[test]
    fn a_start_time_is_a_text_or_two_clocks() {
        let started = |time: &str| {
            let file = FILE.replace("\"2026-11-21T04:43:21Z\"", time);
            read(file.as_bytes()).map(|imported| imported.started)
        };
        let clocks = r#"{"wall":1795236201000000000,"monotonic":8761671}"#;
        for time in [r#""2026-11-21T04:43:21Z""#, clocks] {
            assert_eq!(started(time).unwrap(), "2026-11-21T04:43:21Z", "{time}");
        }
        for unknown in ["null", "{}", r#"{"monotonic":5}"#, r#"{"wall":9223372036854775807}"#] {
            assert!(started(unknown).is_ok(), "{unknown}");
        }
        let error = std::error::Error::source(&started("[1]").unwrap_err()).unwrap().to_string();
        assert!(error.contains("expected a time as text or as {\"wall\""), "{error}");
    }

    #[test]
    fn another_json_format_is_refused() {
        let with = |format: u64| {
            let version = format!("\"protocol\":1,\"json_format\":{format}");
            read(FILE.replace("\"protocol\":1", &version).as_bytes()).map(|_| ())
        };
        assert!(with(1).is_ok());
        assert_eq!(with(2).unwrap_err().to_string(), "irtt file version 2; accepted is 1");
    }

    proptest! {
        /// Delays are negative where the clocks of the two hosts differ. The start time is written
        /// in each of its two forms: as clocks and as text.
        #[test]
        fn one_way_delays_keep_their_sign(
            delays in prop::collection::vec((-HOUR_NS..=HOUR_NS, -HOUR_NS..=HOUR_NS), 1..50),
            has_clocks in any::<bool>(),
        ) {
            let trip = |(number, (up, down)): (usize, &(i64, i64))| format!(
                r#"{{"seqno":{number},"timestamps":{{"client":{{"send":{{"monotonic":{number}}}}}}},
                "delay":{{"rtt":1,"send":{up},"receive":{down}}}}}"#
            );
            let trips: Vec<String> = delays.iter().enumerate().map(trip).collect();
            let start = if has_clocks { r#"{"wall":7,"monotonic":1}"# } else { r#""1970""# };
            let file = format!(
                r#"{{"version":{{"irtt":"0.9.1"}},"config":{{"params":{{}}}},
                "stats":{{"start_time":{start}}},"round_trips":[{}]}}"#,
                trips.join(",")
            );
            let run = read(file.as_bytes()).unwrap().into_run();
            let read = run.samples.iter().map(|it| (it.one_way_up_ns, it.one_way_down_ns));
            let written = delays.iter().map(|(up, down)| (Some(*up), Some(*down)));
            prop_assert!(read.eq(written));
            let summaries = &run.record.trials[0].latencies;
            let smallest = |measure| {
                let found = summaries.iter().find(|it| it.measure == measure);
                found.and_then(|it| it.distribution).map(|all| (all.min_ns, all.max_ns))
            };
            let ends = |of: fn(&(i64, i64)) -> i64| {
                delays.iter().map(of).min().zip(delays.iter().map(of).max())
            };
            prop_assert_eq!(smallest(LatencyMeasure::OneWayUp), ends(|it| it.0));
            prop_assert_eq!(smallest(LatencyMeasure::OneWayDown), ends(|it| it.1));
        }
    }

    #[test]
    fn a_file_without_times_is_refused() {
        let none = FILE.replace("monotonic", "other").replace("wall", "another");
        assert!(read(none.as_bytes()).unwrap_err().to_string().contains("send time"));
        assert!(read(br#"{"round_trips":[]}"#).unwrap_err().to_string().contains("irtt"));
    }
}
