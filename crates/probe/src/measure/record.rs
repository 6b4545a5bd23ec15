//! Builds the record of a trial from the logs of its probes and flows.

use underload_record::schema::{
    Direction, FlowDirection, FlowRecord, InsideLatency, Marking, Metric, Phase, PhaseWindow,
    Sample, Series, SeriesPoint, Timeliness,
};
use underload_record::stats::distribution;

use super::{MeasurementConfig, MeasurementResult, RampEnd, marks};
use crate::endpoint::ProbeLog;
use crate::load::{FlowLog, LoadFlow, TcpInfo, Transport};
use crate::session::{ClockOffset, Labels, ProbeCounts, estimate_clock_offset, match_labelled};

pub(super) struct Recorded<'a> {
    pub config: &'a MeasurementConfig,
    pub phases: Vec<PhaseWindow>,
    pub probe: ProbeLog,
    pub request_response: Option<ProbeLog>,
    pub loads: Vec<FlowLog>,
    pub ramp_end: RampEnd,
    pub cancelled: bool,
    /// Whether the load moved all that it may.
    pub load_spent: bool,
    /// Whether packets of 1,500 bytes passed; `None` if that was not tried or no packet passed.
    pub full_size_passes: Option<bool>,
    pub clock_is_shared: bool,
    pub cpu_pressure_percent: Option<f64>,
}

pub(super) fn assemble(recorded: Recorded<'_>) -> MeasurementResult {
    let config = recorded.config;
    let log = &recorded.probe;
    let estimate = || estimate_clock_offset(&log.sent, &log.replies);
    let clock_offset = if recorded.clock_is_shared { None } else { estimate() };
    let markings: Vec<Marking> = config.probe.classes.iter().map(|class| class.marking).collect();
    let (mut samples, mut counts) =
        probe_samples(&recorded, log, 0, &markings, false, clock_offset);
    let timeliness = timeliness(&recorded, &samples);
    let probe_records = config.probe.classes.iter().zip(&counts);
    let mut flows: Vec<FlowRecord> = probe_records
        .map(|(class, counts)| probe_record(&class.name, class.marking, counts))
        .collect();
    if let (Some(log), Some(request)) = (&recorded.request_response, &config.request_response) {
        let first_flow = flows.len() as u16;
        let markings = [request.marking];
        let (more, request_counts) =
            probe_samples(&recorded, log, first_flow, &markings, true, clock_offset);
        samples.extend(more);
        flows.extend(
            request_counts.iter().map(|it| probe_record(&request.name, request.marking, it)),
        );
        counts.extend(request_counts);
    }
    let load_window = recorded.phases.iter().find(|window| window.phase == Phase::Load).copied();
    let (mut series, mut incomplete) = (Vec::new(), Vec::new());
    for (flow, log) in config.loads.iter().zip(&recorded.loads) {
        flows.push(load_record(flow, log, load_window));
        series.extend(load_series(config.trial, flow, log));
        if let Some(failure) = &log.failure {
            incomplete.push(format!("flow {} broke: {failure}", flow.name));
        } else if log.delivered_nothing() && !recorded.cancelled {
            incomplete.push(delivered_nothing(&flow.name, &counts, recorded.full_size_passes));
        }
    }
    if !recorded.clock_is_shared && clock_offset.is_none() {
        incomplete.push("no answer to estimate the far clock's offset from".to_owned());
    }
    incomplete.extend(forged(&counts));
    let spent_early = recorded.load_spent && load_window.is_none();
    incomplete.extend(spent_early.then(|| SPENT_EARLY.to_owned()));
    let ce_alarms =
        marks::alarms(&samples, &flows, &recorded.phases, &config.loads, &recorded.loads);
    MeasurementResult {
        samples,
        phases: recorded.phases,
        flows,
        series,
        timeliness,
        ramp_end: recorded.ramp_end,
        incomplete,
        cancelled: recorded.cancelled,
        load_spent: recorded.load_spent && load_window.is_some(),
        ce_alarms,
        probe_counts: counts,
        inside: inside(&config.loads, &recorded.loads, load_window),
        loads: recorded.loads,
        clock_offset,
    }
}

/// Says that an opened flow delivered nothing, and why.
fn delivered_nothing(flow: &str, probes: &[ProbeCounts], full_size_passes: Option<bool>) -> String {
    let is_answered = probes.iter().any(|it| it.answered * 2 > it.sent);
    let why = match full_size_passes {
        Some(false) => {
            format!(
                ": small packets come back and packets of 1,500 bytes do not (path MTU); {SMALLER}"
            )
        }
        None if is_answered => format!(
            ", while most probes came back: packets of full size may not pass (path MTU); {SMALLER}"
        ),
        Some(true) | None => String::new(),
    };
    format!("flow {flow} delivered nothing{why}")
}

/// The advice for paths that lose packets of full size, most often tunnels without ICMP.
const SMALLER: &str = "set a smaller MTU, such as 1280 bytes, on this machine";

/// Returns what is wrong if more answers than networks cause belong to no probe that was sent by
/// then.
fn forged(counts: &[ProbeCounts]) -> Option<String> {
    let sent: u64 = counts.iter().map(|it| it.sent).sum();
    let unmatched: u64 = counts.iter().map(|it| it.unmatched).sum();
    let is_chance = unmatched < UNMATCHED_LEAST || unmatched * 100 <= sent;
    (!is_chance).then(|| {
        format!(
            "{unmatched} answers to {sent} probes came before their probe or to none: the server, \
             or a host on the path, forges answers; measure to another server"
        )
    })
}

/// Fewest answers without a probe that are called forged.
const UNMATCHED_LEAST: u64 = 10;
/// Why a measurement has no load phase although it began its load.
const SPENT_EARLY: &str = "the bytes that the load may move were spent before the load was steady";

fn probe_samples(
    recorded: &Recorded<'_>,
    log: &ProbeLog,
    first_flow: u16,
    markings: &[Marking],
    closed_loop: bool,
    clock_offset: Option<ClockOffset>,
) -> (Vec<Sample>, Vec<ProbeCounts>) {
    let labels = Labels {
        trial: recorded.config.trial,
        first_flow,
        markings,
        phases: &recorded.phases,
        closed_loop,
    };
    let timeout_ns = recorded.config.loss_timeout.as_nanos() as u64;
    let offset_ns = clock_offset.map_or(0, |estimate| estimate.offset_ns);
    let collected = match_labelled(&log.sent, &log.replies, timeout_ns, offset_ns, labels);
    let mut samples = collected.samples;
    if !recorded.clock_is_shared && clock_offset.is_none() {
        for sample in &mut samples {
            (sample.one_way_up_ns, sample.one_way_down_ns) = (None, None);
        }
    }
    (samples, collected.counts)
}

fn timeliness(recorded: &Recorded<'_>, samples: &[Sample]) -> Timeliness {
    let mut lateness: Vec<u64> = samples.iter().map(Sample::lateness_ns).collect();
    Timeliness {
        emulator_lateness: None,
        prober_lateness: distribution(&mut lateness),
        probe_slots_planned: recorded.probe.planned,
        probe_slots_missed: recorded.probe.skipped + recorded.probe.refused,
        cpu_pressure_percent: recorded.cpu_pressure_percent,
    }
}

fn count(name: &str, value: Option<u64>) -> Metric {
    let value = value.map(|count| count as f64);
    Metric { name: name.to_owned(), unit: String::new(), value }
}

fn probe_record(name: &str, marking: Marking, counts: &ProbeCounts) -> FlowRecord {
    FlowRecord {
        name: name.to_owned(),
        kind: "probe".to_owned(),
        class: marking.class(),
        direction: FlowDirection::Both,
        metrics: vec![
            count("sent", Some(counts.sent)),
            count("lost", Some(counts.lost)),
            count("answered_late", Some(counts.answered_late)),
            count("duplicates", Some(counts.duplicates)),
            count("reordered", Some(counts.reordered)),
        ],
        ..FlowRecord::default()
    }
}

fn load_record(flow: &LoadFlow, log: &FlowLog, window: Option<PhaseWindow>) -> FlowRecord {
    let goodput = window.and_then(|w| log.goodput_bit_per_s(w.start_ns, w.end_ns));
    let (direction, up, down) = match flow.direction {
        Direction::Up => (FlowDirection::Up, goodput, None),
        Direction::Down => (FlowDirection::Down, None, goodput),
    };
    let mut record = FlowRecord {
        name: flow.name.clone(),
        class: flow.marking.class(),
        direction,
        goodput_up_bit_per_s: up,
        goodput_down_bit_per_s: down,
        retransmits: log.retransmits(),
        ..FlowRecord::default()
    };
    match &flow.transport {
        Transport::Tcp { congestion_control } => {
            "tcp".clone_into(&mut record.kind);
            let used = log.congestion_control.as_ref().unwrap_or(congestion_control);
            record.congestion_control = Some(used.clone());
            if marks::is_accurate(flow, log) {
                let marked = log.tcp.last().map(|last| u64::from(last.info.delivered_ce));
                record.metrics = vec![count("segments_marked", marked)];
            }
        }
        Transport::Udp { .. } => {
            "udp".clone_into(&mut record.kind);
            let received = log.delivered.last().map(|last| last.packets);
            record.metrics =
                vec![count("packets_sent", log.packets_sent), count("packets_received", received)];
        }
    }
    record
}

/// Returns the round trips of the TCP connections of each loaded direction in the load phase.
fn inside(loads: &[LoadFlow], logs: &[FlowLog], window: Option<PhaseWindow>) -> Vec<InsideLatency> {
    let Some(window) = window else { return Vec::new() };
    let of_direction = |direction| {
        let mut values = Vec::new();
        let mut connections = 0;
        let mut smallest_us: Option<u32> = None;
        for (_, log) in loads.iter().zip(logs).filter(|(flow, _)| flow.direction == direction) {
            let before = values.len();
            values.extend(log.round_trips_ns(window));
            connections += u32::from(values.len() > before);
            let known = log.tcp.iter().map(|sample| sample.info.rtt_min_us).filter(|us| *us > 0);
            smallest_us = known.chain(smallest_us).min();
        }
        Some(InsideLatency {
            direction,
            connections,
            smallest_ns: smallest_us.map(|us| u64::from(us) * 1_000),
            distribution: distribution(&mut values)?,
        })
    };
    [Direction::Down, Direction::Up].into_iter().filter_map(of_direction).collect()
}

fn load_series(trial: u32, flow: &LoadFlow, log: &FlowLog) -> Vec<Series> {
    let goodput = log.delivered.windows(2).map(|pair| SeriesPoint {
        time_ns: pair[1].time_ns,
        value: (pair[1].bytes - pair[0].bytes) as f64 * 8e9
            / (pair[1].time_ns - pair[0].time_ns) as f64,
    });
    let named = |name: &str, unit: &str, points: Vec<SeriesPoint>| Series {
        trial,
        name: format!("{}.{name}", flow.name),
        unit: unit.to_owned(),
        points,
    };
    let mut series = vec![named("goodput", "bit/s", goodput.collect())];
    if let Transport::Tcp { congestion_control } = &flow.transport {
        // Of these readings, [`inside`] summarises those of the load phase.
        let rtt = log.round_trips.readings.iter().map(|reading| SeriesPoint {
            time_ns: reading.time_ns,
            value: f64::from(reading.rtt_us) * 1e3,
        });
        series.push(named("rtt", "ns", rtt.collect()));
        let mut tcp = |name, unit, value: fn(&TcpInfo) -> Option<f64>| {
            let points = log.tcp.iter().filter_map(|sample| {
                Some(SeriesPoint { time_ns: sample.time_ns, value: value(&sample.info)? })
            });
            series.push(named(name, unit, points.collect()));
        };
        tcp("congestion_window", "segments", |info| {
            Some(f64::from(info.congestion_window_segments))
        });
        tcp("retransmits", "segments", |info| Some(f64::from(info.retransmits)));
        // Linux computes a rate for every connection; those of other controls do not keep to it.
        if PACING.iter().any(|name| congestion_control.starts_with(name)) {
            tcp("pacing_rate", "bit/s", |info| {
                let rate = info.pacing_rate_bytes_per_s;
                (rate != u64::MAX).then_some(rate as f64 * 8.0)
            });
        }
    }
    series
}

/// Beginnings of the names of congestion controls that pace their packets.
const PACING: [&str; 2] = ["bbr", "prague"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ReplyRecord, SentRecord, match_replies};

    /// 500 probes, one each 10 ms, whose answers have the sequence number and the time of arrival
    /// that `answer` returns.
    fn answered(answer: impl Fn(u32, u64) -> (u32, u64)) -> Vec<ProbeCounts> {
        let sent = |sequence: u32| {
            let at_ns = u64::from(sequence) * 10_000_000;
            SentRecord { class: 0, sequence, scheduled_ns: at_ns, sent_ns: at_ns }
        };
        let reply = |sequence: u32| {
            let (sequence, received_ns) = answer(sequence, u64::from(sequence) * 10_000_000);
            ReplyRecord { sequence, received_ns, ..ReplyRecord::default() }
        };
        let sent: Vec<SentRecord> = (0..500).map(sent).collect();
        let replies: Vec<ReplyRecord> = (0..500).map(reply).collect();
        match_replies(&sent, &replies, 1_000_000_000, &[Marking::default()], &[]).counts
    }

    #[test]
    fn a_flow_without_a_byte_blames_the_path_only_if_probes_came_back() {
        let in_time = answered(|sequence, sent_ns| (sequence, sent_ns + 20_000_000));
        let said = |probes: &[ProbeCounts], passes| delivered_nothing("up-0", probes, passes);
        assert!(said(&in_time, None).contains("may not pass (path MTU)"));
        assert!(said(&in_time, Some(false)).contains("packets of 1,500 bytes do not (path MTU)"));
        assert_eq!(said(&in_time, Some(true)), "flow up-0 delivered nothing");
        let none = answered(|sequence, sent_ns| (sequence, sent_ns + 2_000_000_000));
        assert_eq!(said(&none, None), "flow up-0 delivered nothing");
    }

    #[test]
    fn a_reflector_that_answers_before_the_request_is_named() {
        assert_eq!(forged(&answered(|sequence, sent_ns| (sequence, sent_ns + 20_000_000))), None);
        let early = answered(|sequence, sent_ns| (sequence + 5, sent_ns + 20_000_000));
        assert_eq!(early[0].answered, 0, "no probe has a round trip of less than nothing");
        let told = forged(&early).expect("500 answers come too early");
        assert!(told.starts_with("500 answers to 500 probes came before their probe"), "{told}");
        let wrong = answered(|sequence, sent_ns| (sequence ^ 1 << 20, sent_ns + 20_000_000));
        assert!(forged(&wrong).is_some());
        // A few strays are chance: the answers of an earlier session behind one NAT.
        let stray = |sequence: u32, sent_ns| (sequence + 9_000 * u32::from(sequence < 5), sent_ns);
        assert_eq!(forged(&answered(stray)), None);
    }
}
