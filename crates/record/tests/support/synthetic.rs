//! A synthetic run for tests: a busy upstream behind several queues.

use std::collections::BTreeMap;

use crate::schema::{
    BottleneckSummary, Direction, Distribution, Ecn, Expectation, FORMAT_VERSION, FlowDirection,
    FlowRecord, HostFacts, InvalidReason, Marking, Metric, PacketCount, Phase, PhaseWindow,
    RunRecord, Sample, ScenarioRecord, Series, SeriesKind, SeriesPoint, Timeliness, TrialRecord,
    Validity, VariantRecord, World,
};
use crate::trial_latencies;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const BASE_RTT_NS: u64 = 17 * MS;
const RATE_BIT_PER_S: u64 = 10_000_000;

/// A queue, and its delay under load.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// Name of its variant.
    pub name: &'static str,
    pub spec: &'static str,
    /// Mean of the sawtooth under load.
    pub delay_ms: f64,
    /// Height of a tooth.
    pub swing_ms: f64,
}

pub const BUFFER_CONTROL: Queue = Queue {
    name: "buffer-control",
    spec: "fifo:profile=docsis,target=250ms",
    delay_ms: 215.0,
    swing_ms: 40.0,
};
pub const DOCSIS_PIE: Queue = Queue {
    name: "docsis-pie",
    spec: "docsis-pie:profile=rfc,target=10ms",
    delay_ms: 8.0,
    swing_ms: 6.0,
};
pub const FQ_CODEL: Queue =
    Queue { name: "fq-codel", spec: "fq-codel:profile=linux", delay_ms: 1.5, swing_ms: 1.0 };

#[derive(Debug, Clone)]
pub struct Trial {
    pub record: TrialRecord,
    pub samples: Vec<Sample>,
    pub series: Vec<Series>,
}

/// Returns the record of a run that has not started, with a variant for each queue.
pub fn record(world: World, queues: &[Queue]) -> RunRecord {
    let variants = queues.iter().map(|queue| VariantRecord {
        name: queue.name.to_owned(),
        label: queue.spec.to_owned(),
        factors: [("path.up_queue".to_owned(), queue.spec.to_owned())].into(),
    });
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: "0.1.0".to_owned(),
        commit: "0123456789abcdef".to_owned(),
        scenario: ScenarioRecord {
            name: "comcast/upstream".to_owned(),
            title: "A busy cable upstream".to_owned(),
            text: "# 10 Mbit/s up, 17 ms base round trip\n[path]\nup = \"10mbit\"\n".to_owned(),
            ..ScenarioRecord::default()
        },
        seed: 1,
        world,
        variants: variants.collect(),
        expectations: expectations(),
        host: HostFacts {
            started: "2026-11-21T01:04:00Z".to_owned(),
            operating_system: "Debian GNU/Linux 13".to_owned(),
            kernel: "6.18.5".to_owned(),
            processor: "some <fast> CPU & more".to_owned(),
            cores: 2,
            clock: "tsc".to_owned(),
            ..HostFacts::default()
        },
        ..RunRecord::default()
    }
}

fn expectations() -> Vec<Expectation> {
    let expected = |metric: &str, variant: &str, low, high, note: &str| Expectation {
        metric: metric.to_owned(),
        variant: variant.to_owned(),
        low,
        high,
        unit: "ms".to_owned(),
        source: "Comcast 2021, Figure 3".to_owned(),
        note: note.to_owned(),
        ..Expectation::default()
    };
    vec![
        expected("load.rtt.mean", "docsis-pie", Some(15.0), Some(30.0), ""),
        expected("load.rtt.mean", "buffer-control", Some(240.0), Some(280.0), "read off the plot"),
        expected("load.rtt.p99", "docsis-pie", None, Some(20.0), "stricter than published"),
        expected("idle.up.p50", "docsis-pie", Some(1.0), None, "this run has no one-way delay"),
        Expectation {
            relative_to: Some("docsis-pie".to_owned()),
            unit: "1".to_owned(),
            ..expected("load.rtt.mean", "buffer-control", Some(8.0), Some(16.0), "")
        },
    ]
}

/// Returns repeats of every queue, variant by variant, with a probe every `interval_ns`.
pub fn trials(queues: &[Queue], repeats: u32, interval_ns: u64) -> Vec<Trial> {
    let mut trials = Vec::new();
    for queue in queues {
        for repeat in 0..repeats {
            trials.push(trial(trials.len() as u32, queue, repeat, interval_ns));
        }
    }
    trials
}

fn trial(index: u32, queue: &Queue, repeat: u32, interval_ns: u64) -> Trial {
    let window =
        |phase, from, to| PhaseWindow { phase, start_ns: from * SECOND, end_ns: to * SECOND };
    let phases = vec![
        window(Phase::Idle, 0, 3),
        window(Phase::Ramp, 3, 6),
        window(Phase::Load, 6, 13),
        window(Phase::Drain, 13, 14),
    ];
    let flows = flows(repeat);
    let samples = samples(index, queue, repeat, interval_ns, &phases);
    let record = TrialRecord {
        index,
        variant: queue.name.to_owned(),
        repeat,
        seed: 1000 + u64::from(index),
        conditions: [("rtt".to_owned(), "17ms".to_owned())].into(),
        validity: Validity::Valid,
        timeliness: Timeliness {
            emulator_lateness: Some(lateness(40_000)),
            prober_lateness: Some(lateness(60_000)),
            probe_slots_planned: samples.len() as u64,
            probe_slots_missed: 0,
            cpu_pressure_percent: Some(2.5),
        },
        latencies: trial_latencies(&samples, &flows, &phases),
        bottlenecks: vec![bottleneck(queue, phases[2])],
        flows,
        phases,
        ..TrialRecord::default()
    };
    Trial { record, samples, series: series(index, queue, repeat) }
}

fn lateness(p99_ns: i64) -> Distribution {
    Distribution { count: 7000, p99_ns, max_ns: 2 * p99_ns, ..Distribution::default() }
}

/// Returns the validity of a trial on a starved machine.
pub fn late() -> Validity {
    let reason = InvalidReason::ProberLate { p99_ns: 4_200_000, limit_ns: MS, packets: 7000 };
    Validity::Invalid { reasons: vec![reason] }
}

fn flows(repeat: u32) -> Vec<FlowRecord> {
    let bulk = FlowRecord {
        name: "bulk-0".to_owned(),
        kind: "tcp".to_owned(),
        direction: FlowDirection::Up,
        congestion_control: Some("cubic".to_owned()),
        goodput_up_bit_per_s: Some(9_420_000 + u64::from(repeat) * 10_000),
        retransmits: Some(31),
        ..FlowRecord::default()
    };
    let probe = FlowRecord {
        name: "probe".to_owned(),
        kind: "probe".to_owned(),
        direction: FlowDirection::Both,
        metrics: vec![Metric {
            name: "mos".to_owned(),
            unit: "MOS".to_owned(),
            value: Some(4.1 + f64::from(repeat) / 100.0),
        }],
        ..FlowRecord::default()
    };
    vec![bulk, probe]
}

fn samples(
    trial: u32,
    queue: &Queue,
    repeat: u32,
    interval_ns: u64,
    phases: &[PhaseWindow],
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for phase in phases {
        for scheduled_ns in (phase.start_ns..phase.end_ns).step_by(interval_ns as usize) {
            let sequence = samples.len() as u64;
            let noise = (sequence * 7919 + u64::from(trial) * 104_729) % 1000;
            let queued_ns = (delay_ms(queue, repeat, scheduled_ns) * MS as f64) as u64;
            let lost = phase.phase == Phase::Load && noise == 13;
            let marking = Marking { dscp: 45, ecn: Ecn::Ect1 };
            samples.push(Sample {
                trial,
                flow: 1,
                sequence,
                phase: phase.phase,
                scheduled_ns,
                sent_ns: scheduled_ns + noise * 50,
                rtt_ns: (!lost).then_some(BASE_RTT_NS + queued_ns + noise * 900),
                marking_sent: marking,
                marking_far: (!lost).then_some(Marking { ecn: Ecn::Ce, ..marking }),
                marking_near: (!lost).then_some(marking),
                ..Sample::default()
            });
        }
    }
    samples
}

/// Returns a sawtooth that starts with the ramp and ends with the load.
fn delay_ms(queue: &Queue, repeat: u32, time_ns: u64) -> f64 {
    let seconds = time_ns as f64 / 1e9;
    let shift = 1.0 + f64::from(repeat % 7) * 0.03;
    match seconds {
        s if s < 3.0 => 0.1,
        s if s < 6.0 => queue.delay_ms * shift * (s - 3.0) / 3.0,
        s if s < 13.0 => {
            let tooth = (s + f64::from(repeat) * 0.37) % 2.3 / 2.3;
            (queue.delay_ms + queue.swing_ms * (tooth.powi(3) - 0.4)) * shift
        }
        s => queue.delay_ms * (14.0 - s).max(0.0),
    }
}

fn bottleneck(queue: &Queue, window: PhaseWindow) -> BottleneckSummary {
    let sojourn_ns = (queue.delay_ms * MS as f64) as i64;
    let sent = PacketCount { packets: 5800, bytes: 8_700_000 };
    let dropped = PacketCount { packets: 42, bytes: 63_000 };
    let sojourn = Distribution {
        count: sent.packets,
        min_ns: 0,
        p50_ns: sojourn_ns,
        p90_ns: sojourn_ns * 11 / 10,
        p95_ns: sojourn_ns * 12 / 10,
        p99_ns: sojourn_ns * 13 / 10,
        p999_ns: sojourn_ns * 14 / 10,
        max_ns: sojourn_ns * 15 / 10,
        mean_ns: sojourn_ns,
    };
    BottleneckSummary {
        direction: Direction::Up,
        queue: queue.spec.to_owned(),
        link: "10mbit".to_owned(),
        window,
        offered: PacketCount { packets: 5842, bytes: 8_763_000 },
        sent,
        drops: BTreeMap::from([("early".to_owned(), dropped)]),
        marks: BTreeMap::from([("early".to_owned(), 7)]),
        sojourn: Some(sojourn),
        // 1500 bytes at 10 Mbit/s take 1.2 ms.
        queuing_delay: Some(Distribution { p99_ns: sojourn.p99_ns + 1_200_000, ..sojourn }),
        throughput_bit_per_s: 9_900_000,
        capacity_bit_per_s: Some(RATE_BIT_PER_S),
        ..BottleneckSummary::default()
    }
}

fn series(trial: u32, queue: &Queue, repeat: u32) -> Vec<Series> {
    let mut all: Vec<Series> =
        SeriesKind::ALL.iter().map(|kind| kind.series(trial, Direction::Up)).collect();
    all.push(Series {
        trial,
        name: "up.pie.prob".to_owned(),
        unit: "1".to_owned(),
        points: Vec::new(),
    });
    for time_ns in (0..14 * SECOND).step_by(20 * MS as usize) {
        let delay_ms = delay_ms(queue, repeat, time_ns);
        let busy = (3 * SECOND..13 * SECOND).contains(&time_ns);
        let drop = f64::from(u8::from(busy && (time_ns / MS).is_multiple_of(460))) * 2.0;
        let values = [
            delay_ms * RATE_BIT_PER_S as f64 / 8000.0,
            delay_ms * 1e6,
            if busy { 9.9e6 } else { 0.1e6 },
            drop,
            f64::from(u8::from(busy && (time_ns / MS).is_multiple_of(700))),
            if busy { 0.01 } else { 0.0 },
        ];
        for (series, value) in all.iter_mut().zip(values) {
            series.points.push(SeriesPoint { time_ns, value });
        }
    }
    all
}
