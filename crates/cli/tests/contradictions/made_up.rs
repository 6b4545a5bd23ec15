//! Generated records of runs that never ran: ties, one trial, lost probes, outages, zeros, many
//! variants, two modes.

use underload_aqm::rng::Rng;
use underload_record::schema::{
    FORMAT_VERSION, FlowRecord, Headline, InvalidReason, Metric, Phase, PhaseWindow, RunRecord,
    Sample, ScenarioRecord, TrialRecord, Validity, VariantRecord,
};
use underload_record::{LatencyPools, conclude, trial_latencies};
use underload_store::RunData;

const QUEUES: [&str; 7] = ["fifo", "codel", "fq-codel", "cake", "pie", "bode", "fifo:limit=64KiB"];
const RATES: [&str; 6] = ["1mbit", "5mbit", "10mbit", "20mbit", "50mbit", "100mbit"];

pub struct Dice(Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u32) as usize]
    }

    pub fn percent(&mut self, chance: u32) -> bool {
        self.0.below(100) < chance
    }

    fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 4_294_967_296.0
    }
}

/// The distribution from which the trials of a variant are drawn.
struct Course {
    /// Round trip under load, ms, and how far trials and samples are from it, as shares.
    level_ms: f64,
    spread: [f64; 2],
    /// Ratio of the second mode to the first; 1 without a second mode.
    mode: f64,
    /// Share of the probes that is lost, and of the trials that lose all.
    loss: f64,
    outage: f64,
    mbit_s: f64,
    score: f64,
}

/// The properties that all trials of a run share.
struct Shape {
    probes: Vec<&'static str>,
    samples: u64,
    applications: Vec<&'static str>,
    has_rates: bool,
}

pub fn run(seed: u64) -> RunData {
    let dice = &mut Dice::new(seed);
    let variants = variants(dice);
    let repeats = dice.one_of(&[1, 1, 2, 3, 5, 5, 5, 6, 6, 6, 7, 10]);
    let shape = Shape {
        probes: dice
            .one_of(&[&[][..], &["probe"], &["probe"], &["probe"], &["probe", "probe-dscp-45"]])
            .to_vec(),
        samples: if variants.len() > 20 { 12 } else { dice.one_of(&[1, 12, 12, 60, 60, 120, 600]) },
        applications: dice
            .one_of(&[&[][..], &[], &["call"], &["page"], &["call", "page", "game"]])
            .to_vec(),
        has_rates: dice.percent(70),
    };
    let headline = headline(dice, &variants, &shape);
    let mut record = RunRecord {
        format_version: FORMAT_VERSION,
        complete: true,
        scenario: ScenarioRecord {
            name: "made-up".to_owned(),
            headline,
            ..ScenarioRecord::default()
        },
        variants,
        ..RunRecord::default()
    };
    let first = course(dice, None);
    let mut courses = vec![first];
    for _ in 1..record.variants.len() {
        let next = course(dice, courses.first());
        courses.push(next);
    }
    let (mut pools, mut samples) = (LatencyPools::default(), Vec::new());
    let pooled = dice.percent(90);
    for repeat in 0..repeats {
        for (variant, course) in record.variants.iter().zip(&courses) {
            let index = record.trials.len() as u32;
            let (trial, own) = trial(dice, &shape, (index, repeat, &variant.name), course);
            if pooled {
                pools.add(&trial, &own);
            }
            record.trials.push(trial);
            samples.extend(own);
        }
    }
    conclude(&mut record, &pools);
    RunData { record, samples, series: Vec::new(), left_out: Vec::new() }
}

fn variants(dice: &mut Dice) -> Vec<VariantRecord> {
    let is_known = dice.percent(90);
    let factors = |all: &[(&str, &str)]| {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        if is_known { all.iter().map(own).collect() } else { std::collections::BTreeMap::new() }
    };
    let named = |name: String, all: &[(&str, &str)]| VariantRecord {
        label: all.first().map_or("", |(_, queue)| queue).to_owned(),
        factors: factors(all),
        name,
    };
    if dice.percent(25) {
        let (queues, rates) = (1 + dice.0.below(6), 1 + dice.0.below(6));
        let rtts = dice.one_of(&[&["20ms"][..], &["20ms", "80ms"], &["20ms", "80ms", "200ms"]]);
        let mut all = Vec::new();
        for queue in QUEUES.iter().take(queues as usize + usize::from(dice.percent(5))) {
            for rate in RATES.iter().take(rates as usize) {
                for rtt in rtts {
                    let settings =
                        [("path.up_queue", *queue), ("path.up", *rate), ("path.rtt", *rtt)];
                    all.push(named(format!("{queue}/{rate}/{rtt}"), &settings));
                }
            }
        }
        return all;
    }
    let count = dice.one_of(&[1, 2, 2, 2, 3, 3, 4, 5, 6, 8, 12]);
    let of = |position: usize| {
        let queue = QUEUES[position % QUEUES.len()];
        let rate = if position < QUEUES.len() { "10mbit" } else { RATES[position % RATES.len()] };
        let name = format!("{}{position}", ["today", "q", "line-"][position % 3]);
        let settings = [("path.up_queue", queue), ("path.up", rate)];
        named(name, &settings)
    };
    (0..count).map(of).collect()
}

fn headline(dice: &mut Dice, variants: &[VariantRecord], shape: &Shape) -> Option<Headline> {
    if dice.percent(60) {
        return None;
    }
    let last = variants.last()?.name.clone();
    let stars = |name: &str| match name.split_once('/') {
        Some((_, rest)) => format!("*/{rest}"),
        None => String::new(),
    };
    let metric = dice
        .one_of(&["", "load.rtt.p99", "load.rtt.p50", "load.rtt.mean", "goodput.up", "call/mos"]);
    if metric == "call/mos" && !shape.applications.contains(&"call") {
        return None;
    }
    let own = if metric.starts_with("load.") && dice.percent(20) { "idle.rtt.p50" } else { "" };
    let of_all = stars(&last);
    let (variant, baseline) = match dice.0.below(4) {
        0 => (String::new(), variants.first()?.name.clone()),
        1 => (last.clone(), variants.first()?.name.clone()),
        2 => (of_all, variants.first()?.name.clone()),
        _ if metric.is_empty() => (String::new(), last.clone()),
        _ => (String::new(), String::new()),
    };
    let says = if metric.is_empty() { "" } else { "number of the scenario" };
    Some(Headline {
        metric: metric.to_owned(),
        says: says.to_owned(),
        variant,
        baseline,
        baseline_metric: own.to_owned(),
        baseline_says: if own.is_empty() { String::new() } else { "the idle line".to_owned() },
    })
}

fn course(dice: &mut Dice, first: Option<&Course>) -> Course {
    let times = dice.one_of(&[1.0, 1.0, 1.02, 1.04, 1.06, 1.1, 1.3, 3.0, 50.0]);
    let up = dice.percent(50);
    let factor = if up { times } else { 1.0 / times };
    let level_ms =
        first.map_or_else(|| 10_f64.powf(dice.unit() * 3.5), |first| first.level_ms * factor);
    let narrow = first.filter(|_| dice.percent(70)).map(|first| first.spread);
    Course {
        level_ms,
        spread: narrow
            .unwrap_or_else(|| dice.one_of(&[[0.0, 0.0], [0.01, 0.1], [0.1, 0.1], [0.5, 0.5]])),
        mode: dice.one_of(&[1.0, 1.0, 1.0, 1.0, 1.0, 10.0]),
        loss: dice.one_of(&[0.0, 0.0, 0.0, 0.0, 0.005, 0.02, 0.3, 0.6]),
        outage: dice.one_of(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 1.0]),
        mbit_s: first.filter(|_| dice.percent(50)).map_or(9.0 + dice.unit(), |first| first.mbit_s)
            * dice.one_of(&[1.0, 1.0, 1.2, 0.0]),
        score: 1.0 + 3.4 * dice.unit(),
    }
}

fn trial(
    dice: &mut Dice,
    shape: &Shape,
    (index, repeat, variant): (u32, u32, &str),
    course: &Course,
) -> (TrialRecord, Vec<Sample>) {
    let window = |phase, from: u64, to: u64| PhaseWindow { phase, start_ns: from, end_ns: to };
    let phases = vec![window(Phase::Idle, 0, 1_000), window(Phase::Load, 1_000, 2_000)];
    let mut flows: Vec<FlowRecord> = shape.probes.iter().map(|name| flow(name, "probe")).collect();
    let mut between = |spread: f64| 1.0 + spread * (2.0 * dice.unit() - 1.0);
    let level_ms = course.level_ms * between(course.spread[0]);
    let (rate, score) =
        (course.mbit_s * between(course.spread[0] / 4.0), between(course.spread[0] / 4.0));
    let level_ms = if dice.percent(40) { level_ms * course.mode } else { level_ms };
    let own = shape.applications.iter();
    flows.extend(own.map(|name| application(name, level_ms, (course.score * score).min(4.4))));
    if shape.has_rates {
        let bits = Some((rate * 1e6) as u64);
        flows.push(FlowRecord { goodput_up_bit_per_s: bits, ..flow("upload", "tcp") });
    }
    let is_out = dice.unit() < course.outage;
    let mut samples = Vec::new();
    for (position, _) in shape.probes.iter().enumerate() {
        for sequence in 0..2 * shape.samples {
            let is_idle = sequence < shape.samples;
            let scheduled_ns = sequence * 1_000 / shape.samples;
            let spread = 1.0 + course.spread[1] * dice.unit();
            let own = if position == 0 { level_ms } else { level_ms / 2.0 };
            let rtt_ms = if is_idle { 20.0_f64.min(own) } else { own } * spread;
            let is_lost = !is_idle && (is_out || dice.unit() < course.loss);
            let rtt_ns = (!is_lost).then_some((rtt_ms * 1e6) as u64);
            let phase = if is_idle { Phase::Idle } else { Phase::Load };
            let (flow, sent_ns) = (position as u16, scheduled_ns);
            samples.push(Sample {
                trial: index,
                flow,
                sequence,
                phase,
                scheduled_ns,
                sent_ns,
                rtt_ns,
                ..Sample::default()
            });
        }
    }
    let late = InvalidReason::Incomplete { what: "the load sent nothing".to_owned() };
    let is_valid = !dice.percent(2);
    let validity =
        if is_valid { Validity::Valid } else { Validity::Invalid { reasons: vec![late] } };
    let latencies = trial_latencies(&samples, &flows, &phases);
    let variant = variant.to_owned();
    let trial = TrialRecord {
        index,
        variant,
        repeat,
        validity,
        phases,
        flows,
        latencies,
        ..TrialRecord::default()
    };
    (trial, samples)
}

fn flow(name: &str, kind: &str) -> FlowRecord {
    FlowRecord { name: name.to_owned(), kind: kind.to_owned(), ..FlowRecord::default() }
}

fn application(name: &str, level_ms: f64, score: f64) -> FlowRecord {
    let metric = |name: &str, unit: &str, value| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        value,
    };
    let is_loaded = level_ms < 1_500.0;
    let (kind, metrics) = match name {
        "call" => ("voip", vec![metric("mos", "MOS", Some(score))]),
        "page" => {
            let time = |share: f64| is_loaded.then_some(level_ms / share);
            let times = [("page_load_p50", time(100.0)), ("page_load_p99", time(60.0))];
            ("web", times.map(|(name, value)| metric(name, "s", value)).to_vec())
        }
        _ => {
            let late = if level_ms < 20.0 { 0.0 } else { 2.0 * score };
            ("game", vec![metric("late", "%", Some(late))])
        }
    };
    FlowRecord { metrics, ..flow(name, kind) }
}
