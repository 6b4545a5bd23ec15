//! The JSON of `iperf3 -J`: what each stream moved, interval by interval, and its round trip time.
//!
//! A stream's goodput is the receiver's count in the summary at the file's end. If a file has no
//! such count (the test was cut short, or the receiver was the other end), it is the mean over the
//! intervals. Retransmissions likewise are those of the sender's summary, which excludes omitted
//! seconds and is all that a client's file has of a download.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use underload_record::schema::{Direction, FlowRecord, Phase, Series, SeriesKind, SeriesPoint};
use underload_record::text::one_line;

use super::imported::{ImportError, Imported, first_document, load_flow, numbers_flow, window};
use super::numbers::{lenient, nanos, rate};
use super::rows::Rows;

/// The name, unit and value of a metric.
type Number = (&'static str, &'static str, Option<f64>);

#[derive(Deserialize)]
struct File {
    start: Start,
    intervals: Rows<Interval>,
    #[serde(default)]
    end: End,
    /// Why the test failed.
    error: Option<String>,
}

/// Empty if the test was cut short.
#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Rows<EndStream>,
    /// Sum over the UDP streams that the client sends, or with `-R` receives.
    sum_received: Option<Total>,
    sum_received_bidir_reverse: Option<Total>,
}

#[derive(Deserialize)]
struct EndStream {
    sender: Option<Total>,
    receiver: Option<Total>,
    udp: Option<Total>,
}

/// One end's summary of a stream; for UDP, of the sent datagrams.
#[derive(Clone, Copy, Deserialize)]
struct Total {
    socket: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    bytes: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    bits_per_second: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    packets: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    lost_packets: Option<f64>,
    /// Only in the summary of UDP.
    #[serde(default, deserialize_with = "lenient")]
    jitter_ms: Option<f64>,
    /// Only in the summary of a TCP sender.
    #[serde(default, deserialize_with = "lenient")]
    retransmits: Option<f64>,
}

impl Total {
    /// Returns bit/s; `None` if only the other end counted, because the count is 0 here.
    fn rate(self) -> Option<f64> {
        self.bits_per_second.filter(|_| self.bytes.is_some_and(|bytes| bytes > 0.0))
    }

    /// Returns the share of sent packets that arrived, 0 to 1.
    fn arrived(self) -> f64 {
        match self.lost_packets.zip(self.packets) {
            Some((lost, packets)) if packets > 0.0 => (1.0 - lost / packets).clamp(0.0, 1.0),
            _ => 1.0,
        }
    }
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    version: String,
    #[serde(default)]
    timestamp: Timestamp,
    #[serde(default, rename = "test_start")]
    test: TestStart,
    /// Only in a server's file.
    accepted_connection: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct Timestamp {
    #[serde(default)]
    timesecs: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestStart {
    protocol: String,
    #[serde(deserialize_with = "lenient")]
    omit: Option<f64>,
    /// 1 if the server sends.
    #[serde(deserialize_with = "lenient")]
    reverse: Option<f64>,
}

#[derive(Deserialize)]
struct Interval {
    streams: Rows<Stream>,
}

#[derive(Clone, Deserialize)]
struct Stream {
    socket: i64,
    end: f64,
    /// Length of the interval, s.
    #[serde(default, deserialize_with = "lenient")]
    seconds: Option<f64>,
    /// NaN if the file has no value.
    #[serde(deserialize_with = "or_nan")]
    bits_per_second: f64,
    /// Absent before 3.7, which had only one-way tests.
    sender: Option<bool>,
    #[serde(default)]
    omitted: bool,
    /// The kernel's round-trip time, µs.
    rtt: Option<f64>,
    retransmits: Option<u64>,
    snd_cwnd: Option<f64>,
}

fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    lenient(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

impl Start {
    fn is_server(&self) -> bool {
        self.accepted_connection.is_some()
    }

    /// Whether the end that wrote the file sends a stream.
    fn sends(&self, stream: &Stream) -> bool {
        let is_reverse = self.test.reverse.is_some_and(|it| it > 0.0);
        stream.sender.unwrap_or(self.is_server() == is_reverse)
    }

    fn direction(&self, stream: &Stream) -> Direction {
        if self.sends(stream) == self.is_server() { Direction::Down } else { Direction::Up }
    }
}

/// Gives the second `sum_received` of a file the name that it has from 3.11 on: before, both
/// directions of `--bidir` had one name.
fn with_one_sum(text: &[u8]) -> Cow<'_, [u8]> {
    const NAME: &[u8] = b"\"sum_received\"";
    let mut places = (0..text.len()).filter(|at| text[*at..].starts_with(NAME));
    match places.nth(1) {
        None => Cow::Borrowed(text),
        Some(at) => {
            let end = at + NAME.len();
            let name = b"\"sum_received_bidir_reverse\"".as_slice();
            Cow::Owned([&text[..at], name, &text[end..]].concat())
        }
    }
}

pub(super) fn read(text: &[u8]) -> Result<Imported, ImportError> {
    let file: File = first_document(&with_one_sum(text), "iperf3")?;
    let content = |what| ImportError::content("iperf3", what);
    let omit = file.start.test.omit.unwrap_or(0.0);
    let mut sockets: BTreeMap<i64, Vec<Stream>> = BTreeMap::new();
    for stream in file.intervals.iter().flat_map(|interval| &interval.streams) {
        let mut stream = stream.clone();
        if stream.bits_per_second.is_nan() {
            continue;
        }
        if !stream.omitted {
            // Time restarts after the omitted seconds.
            stream.end += omit;
        }
        if nanos(stream.end).is_none() || !(0.0..=1e15).contains(&stream.bits_per_second) {
            return Err(content("an interval's time or rate is out of range"));
        }
        sockets.entry(stream.socket).or_default().push(stream);
    }
    let ends = sockets.values().flatten().filter_map(|stream| nanos(stream.end));
    let end_ns = ends.max().ok_or_else(|| match &file.error {
        Some(said) => ImportError::Failed { tool: "iperf3", said: one_line(said) },
        None => content("no interval has a stream"),
    })?;
    let omit_ns = nanos(omit).ok_or_else(|| content("the omitted time is out of range"))?;
    let mut phases = vec![window(Phase::Load, omit_ns.min(end_ns), end_ns.saturating_add(1))];
    if omit_ns > 0 {
        phases.insert(0, window(Phase::Ramp, 0, omit_ns.min(end_ns)));
    }
    let started = jiff::Timestamp::from_second(file.start.timestamp.timesecs);
    let mut imported = Imported {
        tool: file.start.version.clone(),
        name: "iperf3".to_owned(),
        started: started.map(|time| time.to_string()).unwrap_or_default(),
        phases,
        ..Imported::default()
    };
    let kind = if file.start.test.protocol == "UDP" { "udp" } else { "tcp" };
    for (place, (socket, streams)) in sockets.iter().enumerate() {
        let goodput = received(&file, *socket, &sockets).or_else(|| mean(streams));
        let flow = FlowRecord {
            retransmits: retransmitted(&file, *socket, streams),
            ..load_flow(format!("{kind}-{place}"), kind, file.start.direction(&streams[0]), goodput)
        };
        add_series(&flow.name, streams, &mut imported);
        imported.flows.push(flow);
    }
    let numbers = numbers(&file, &sockets);
    if numbers.iter().any(|it| it.2.is_some()) {
        imported.flows.push(numbers_flow("iperf3", "iperf3", &numbers));
    }
    for direction in [Direction::Up, Direction::Down] {
        imported.series.extend(throughput(direction, &sockets, &file.start));
    }
    Ok(imported)
}

/// Returns the median of the senders' round trips, of all counted intervals, and what UDP lost.
fn numbers(file: &File, sockets: &BTreeMap<i64, Vec<Stream>>) -> Vec<Number> {
    let counted = sockets.values().flat_map(|streams| counted(streams));
    let mut rtts_us: Vec<f64> = counted.filter_map(|(_, stream)| stream.rtt).collect();
    rtts_us.retain(|rtt_us| rtt_us.is_finite() && *rtt_us > 0.0);
    rtts_us.sort_by(f64::total_cmp);
    let median_us = rtts_us.get(rtts_us.len() / 2);
    let udp: Vec<Total> = file.end.streams.iter().filter_map(|stream| stream.udp).collect();
    let lost = udp.iter().map(|total| 1.0 - total.arrived()).reduce(f64::max);
    let jitter_ms = udp.iter().filter_map(|total| total.jitter_ms).reduce(f64::max);
    vec![
        ("latency_under_load", "ms", median_us.map(|us| us / 1e3)),
        ("lost", "%", lost.map(|share| share * 100.0)),
        ("jitter", "ms", jitter_ms),
    ]
}

/// Returns the receiver's count of a stream, bit/s; `None` if the file lacks it.
fn received(file: &File, socket: i64, sockets: &BTreeMap<i64, Vec<Stream>>) -> Option<u64> {
    let is_of_socket = |total: &Total| total.socket == Some(socket);
    let mut of_tcp = file.end.streams.iter().filter_map(|stream| stream.receiver);
    if let Some(bit_per_s) = of_tcp.find(is_of_socket).and_then(Total::rate) {
        return rate(bit_per_s);
    }
    let own = file.end.streams.iter().filter_map(|stream| stream.udp).find(is_of_socket)?;
    // For UDP a file has one receiver's count for all streams of a direction: each stream gets a
    // share of it in proportion to the bits that it moved.
    let sends = |streams: &[Stream]| streams.first().map(|stream| file.start.sends(stream));
    let streams = sockets.get(&socket)?;
    let first = file.start.sends(file.intervals.first()?.streams.first()?);
    let is_first = sends(streams) == Some(first);
    let sum = if is_first { file.end.sum_received } else { file.end.sum_received_bidir_reverse };
    let Some(bit_per_s) = sum.and_then(Total::rate) else {
        return rate(own.rate()? * own.arrived());
    };
    let alike = sockets.values().filter(|other| sends(other) == sends(streams));
    let all: f64 = alike.map(|streams| moved_bits(streams)).sum();
    rate(if all > 0.0 { bit_per_s * moved_bits(streams) / all } else { 0.0 })
}

/// Returns the retransmitted segments of a stream: from its sender's summary, else the sum over the
/// counted intervals. `None` if only the other end knows the number.
fn retransmitted(file: &File, socket: i64, streams: &[Stream]) -> Option<u64> {
    let mut senders = file.end.streams.iter().filter_map(|stream| stream.sender);
    let summary = senders.find(|total| total.socket == Some(socket));
    if let Some(retransmits) = summary.and_then(|total| total.retransmits) {
        return rate(retransmits);
    }
    let own = counted(streams).map(|(_, stream)| stream).filter(|it| file.start.sends(it));
    own.filter_map(|stream| stream.retransmits).reduce(u64::saturating_add)
}

/// Returns the intervals that count with their lengths in seconds. If a file has no lengths, all
/// intervals are taken to be equally long.
fn counted(streams: &[Stream]) -> impl Iterator<Item = (f64, &Stream)> {
    let counted = streams.iter().filter(|stream| !stream.omitted);
    counted.map(|stream| (stream.seconds.filter(|seconds| *seconds >= 0.0).unwrap_or(1.0), stream))
}

fn moved_bits(streams: &[Stream]) -> f64 {
    counted(streams).map(|(seconds, stream)| seconds * stream.bits_per_second).sum()
}

/// Returns the mean rate over the intervals, weighted by length: the last one may be very short.
fn mean(streams: &[Stream]) -> Option<u64> {
    let seconds: f64 = counted(streams).map(|(seconds, _)| seconds).sum();
    (seconds > 0.0).then(|| rate(moved_bits(streams) / seconds)).flatten()
}

fn add_series(name: &str, streams: &[Stream], imported: &mut Imported) {
    let mut add = |suffix: &str, unit: &str, value: &dyn Fn(&Stream) -> Option<f64>| {
        let point = |stream: &Stream| {
            let value = value(stream).filter(|value| value.is_finite())?;
            Some(SeriesPoint { time_ns: nanos(stream.end)?, value })
        };
        let mut points: Vec<SeriesPoint> = streams.iter().filter_map(point).collect();
        points.sort_by_key(|point| point.time_ns);
        if !points.is_empty() {
            let (name, unit) = (format!("{name}.{suffix}"), unit.to_owned());
            imported.series.push(Series { trial: 0, name, unit, points });
        }
    };
    add("goodput", "bit/s", &|stream| Some(stream.bits_per_second));
    add("rtt", "ns", &|stream| Some(stream.rtt? * 1e3));
    add("congestion_window", "bytes", &|stream| stream.snd_cwnd);
}

fn throughput(
    wanted: Direction,
    sockets: &BTreeMap<i64, Vec<Stream>>,
    start: &Start,
) -> Option<Series> {
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for streams in sockets.values() {
        for stream in streams.iter().filter(|stream| start.direction(stream) == wanted) {
            // The streams of one interval end within microseconds of each other.
            let end_ms = (stream.end * 100.0).round() as u64 * 10;
            *sums.entry(end_ms).or_default() += stream.bits_per_second;
        }
    }
    let mut series = SeriesKind::Throughput.series(0, wanted);
    let point = |(end_ms, value): (u64, f64)| SeriesPoint { time_ns: end_ms * 1_000_000, value };
    series.points = sums.into_iter().map(point).collect();
    (!series.points.is_empty()).then_some(series)
}

#[cfg(test)]
mod tests {
    use underload_record::schema::FlowDirection;

    use super::*;

    const FILE: &str = r#"{"start":{"version":"iperf 3.12","timestamp":{"timesecs":1795233600},
        "test_start":{"protocol":"TCP","omit":1,"duration":1}},
        "intervals":[
          {"streams":[{"socket":5,"start":0,"end":1.0,"bits_per_second":1e6,"retransmits":3,
            "snd_cwnd":100,"rtt":50,"omitted":true,"sender":true},
            {"socket":7,"start":0,"end":1.0,"bits_per_second":2e6,"omitted":true,"sender":false}]},
          {"streams":[{"socket":5,"start":0,"end":1.0001,"bits_per_second":8e6,"retransmits":1,
            "snd_cwnd":100,"rtt":80,"omitted":false,"sender":true},
            {"socket":7,"start":0,"end":1.0,"bits_per_second":4e6,"omitted":false,
            "sender":false}]}],
        "end":{}}"#;

    #[test]
    fn streams_become_flows_by_direction() {
        let run = read(FILE.as_bytes()).unwrap().into_run();
        let trial = &run.record.trials[0];
        assert_eq!(trial.flows[0].goodput_up_bit_per_s, Some(8_000_000));
        assert_eq!(trial.flows[0].retransmits, Some(1), "without the omitted second");
        assert_eq!(trial.flows[1].retransmits, None, "its sender is the other end");
        let stated = &trial.flows[2].metrics[0];
        assert_eq!((stated.name.as_str(), stated.value), ("latency_under_load", Some(0.08)));
        assert_eq!(trial.flows[1].goodput_down_bit_per_s, Some(4_000_000));
        let phases: Vec<_> = trial.phases.iter().map(|window| window.phase).collect();
        assert_eq!(phases, [Phase::Ramp, Phase::Load]);
        assert!(trial.phases[1].contains(2_000_000_000));
        let rtt = run.series.iter().find(|series| series.name == "tcp-0.rtt").unwrap();
        assert_eq!((rtt.points[1].time_ns, rtt.points[1].value), (2_000_100_000, 80_000.0));
        assert_eq!(run.record.host.started, "2026-11-21T04:00:00Z");
        let server = FILE.replace("\"version\"", "\"accepted_connection\":{},\"version\"");
        let run = read(server.as_bytes()).unwrap().into_run();
        assert_eq!(run.record.trials[0].flows[0].goodput_down_bit_per_s, Some(8_000_000));
    }

    // iperf 3.0 to 3.6, shortened: streams do not say who sends.
    #[test]
    fn old_files_say_the_direction_of_the_test_once() {
        let file = |start: &str| {
            format!(
                r#"{{"start":{{{start}}},"intervals":[{{"streams":[{{"socket":4,"end":1,
                "bits_per_second":92e6}}]}}],"end":{{}}}}"#
            )
        };
        let direction = |start: &str| {
            let run = read(file(start).as_bytes()).unwrap().into_run();
            run.record.trials[0].flows[0].direction
        };
        let (up, down) = (FlowDirection::Up, FlowDirection::Down);
        for reverse in [0, 1] {
            let client = format!(r#""test_start":{{"protocol":"TCP","reverse":{reverse}}}"#);
            let server = format!(r#"{client},"accepted_connection":{{}}"#);
            let expected = if reverse == 1 { down } else { up };
            assert_eq!([direction(&client), direction(&server)], [expected; 2], "{reverse}");
        }
    }

    #[test]
    fn a_failed_test_says_why() {
        let failed = r#"{"start":{},"intervals":[],"end":{},"error":"Connection\nrefused"}"#;
        let error = read(failed.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("iperf3: the test failed, and says: Connection"), "{error}");
    }

    // A server's file of an upload (iperf 3.12, tbf 20mbit), shortened: its last interval is the
    // hundredth part of a second.
    #[test]
    fn a_short_last_interval_does_not_count_as_a_whole_one() {
        let interval = |seconds: f64, end: f64, rate: f64| {
            format!(
                r#"{{"streams":[{{"socket":5,"seconds":{seconds},"end":{end},
                "bits_per_second":{rate},"sender":false}}]}}"#
            )
        };
        let intervals =
            [interval(1.0, 1.0, 19.18e6), interval(1.0, 2.0, 19.18e6), interval(0.009, 2.009, 9e6)];
        let file = |end: &str| {
            let intervals = intervals.join(",");
            format!(
                r#"{{"start":{{"version":"iperf 3.12","accepted_connection":{{}},
                "test_start":{{"protocol":"TCP"}}}},"intervals":[{intervals}],"end":{end}}}"#
            )
        };
        let goodput = |end: &str| {
            let run = read(file(end).as_bytes()).unwrap().into_run();
            run.record.trials[0].flows[0].goodput_up_bit_per_s
        };
        // (19.18 + 19.18 + 0.009 x 9) / 2.009
        assert_eq!(goodput("{}"), Some(19_134_395));
        let end = r#"{"streams":[{"sender":{"socket":5,"bytes":0,"bits_per_second":0},
            "receiver":{"socket":5,"bytes":4809216,"bits_per_second":19.15e6}}]}"#;
        assert_eq!(goodput(end), Some(19_150_000));
        assert_eq!(goodput(&end.replace("4809216", "0")), Some(19_134_395), "the sender's half");
    }

    #[test]
    fn an_uploads_goodput_counts_received_bytes() {
        let end = r#""end":{"streams":[{"receiver":
            {"socket":5,"bytes":2000000,"bits_per_second":7e6}}]}}"#;
        let run = read(FILE.replace("\"end\":{}}", end).as_bytes()).unwrap().into_run();
        assert_eq!(run.record.trials[0].flows[0].goodput_up_bit_per_s, Some(7_000_000));
    }

    // iperf 3.12 with --bidir and -O, shortened.
    #[test]
    fn retransmissions_are_those_of_the_senders_summary() {
        let retransmits = |end: &str| {
            let text = FILE.replace("\"end\":{}}", &format!("\"end\":{end}}}"));
            let flows = read(text.as_bytes()).unwrap().into_run().record.trials.remove(0).flows;
            [flows[0].retransmits, flows[1].retransmits]
        };
        let end = r#"{"streams":[
            {"sender":{"socket":5,"retransmits":98},"receiver":{"socket":5}},
            {"sender":{"socket":7,"retransmits":86},"receiver":{"socket":7}}]}"#;
        assert_eq!(retransmits(end), [Some(98), Some(86)]);
        assert_eq!(retransmits(&end.replace("86", "-1")), [Some(98), None]);
        let unknown = end.replace(",\"retransmits\":86", "");
        assert_eq!(retransmits(&unknown), [Some(98), None]);
    }

    #[test]
    fn udp_streams_share_the_received_total() {
        let udp = FILE.replace("\"TCP\"", "\"UDP\"");
        let with = |end: &str| {
            let text = udp.replace("\"end\":{}}", &format!("\"end\":{end}}}"));
            let flows = read(text.as_bytes()).unwrap().into_run().record.trials.remove(0).flows;
            (flows[0].goodput_up_bit_per_s, flows[1].goodput_down_bit_per_s)
        };
        let streams = r#""streams":[
            {"udp":{"socket":5,"bytes":1,"bits_per_second":8e6,"packets":100,"lost_packets":25}},
            {"udp":{"socket":7,"bytes":1,"bits_per_second":4e6,"packets":100,"lost_packets":0}}]"#;
        let sums = r#""sum_received":{"bytes":1,"bits_per_second":5e6},
            "sum_received_bidir_reverse":{"bytes":1,"bits_per_second":3e6}"#;
        let both = (Some(5_000_000), Some(3_000_000));
        assert_eq!(with(&format!("{{{streams},{sums}}}")), both);
        // 3.7 to 3.10 name both sums alike.
        let alike = sums.replace("_bidir_reverse", "");
        assert_eq!(with(&format!("{{{streams},{alike}}}")), both);
        assert_eq!(with(&format!("{{{streams}}}")), (Some(6_000_000), Some(4_000_000)));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for (from, to) in [("8e6", "-1"), ("1.0001", "1e300")] {
            let error = read(FILE.replace(from, to).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("out of range"), "{error}");
        }
        let none = read(br#"{"start":{},"intervals":[]}"#).unwrap_err().to_string();
        assert!(none.contains("no interval"), "{none}");
    }
}
