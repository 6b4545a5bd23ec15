//! How often a conclusion is right: simulates many trials of each queue, draws a few of them again and
//! again, and compares what the program concludes from the few with the many.
//!
//! Prints how often intervals hold the median of all trials, and how often "lower" and "higher" have
//! the sign of the median of all pairs of trials. Fails if one misses its goal.
//!
//! Arguments: number of comparisons (10,000), trials of each queue (200).

#![expect(clippy::print_stdout, reason = "an example that prints its tables")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use underload_aqm::rng::Rng;
use underload_record::comparison::{Comparison, Verdict, compare_two, effect, is_noticed};
use underload_record::schema::{RunRecord, Sample, TrialRecord, VariantRecord};
use underload_record::stats::{median_interval, nearest_rank};
use underload_record::{LatencyPools, conclude, metric_over_trials};
use underload_run::{Destination, Settings, run};
use underload_scenario::{Keys, Scenario};

const QUEUES: [&str; 10] = [
    "fifo:limit=128KB", "buffer-control:target=50ms", "codel", "codel:target=6ms", "fq-codel",
    "cake", "pie", "docsis-pie", "bode", "dualpi2",
];

/// Rate, round trip and congestion control of the lines.
const LINES: [(&str, &str, &str); 3] = [
    ("10mbit", "20ms", "cubic"),
    ("3mbit", "40ms", "bbr"),
    ("cellular:preset=lte-driving", "40ms", "cubic"),
];

/// Every kind of number that a sentence compares.
const METRICS: [&str; 6] = [
    "probe/load.rtt.p50", "probe/load.rtt.p95_of_sent", "probe/load.rtt.p99_of_sent",
    "probe/load.rtt.mean", "goodput.up", "call/mos",
];

/// Metrics by which a comparison replaces one that some variant does not have.
const LOWER: [&str; 2] = ["probe/load.rtt.p50_of_sent", "probe/load.rtt.p90_of_sent"];

/// Repeats, and the two-sided 95 % quantile of Student's t for as many.
const REPEATS: [(usize, f64); 4] = [(3, 4.303), (5, 2.776), (6, 2.571), (10, 2.262)];
/// Draws of each number of repeats: so many that none of the 180 parts of five trials, each known to
/// 0.12 %, is below its goal by chance.
const DRAWS: u32 = 40_000;

/// Least share of intervals that hold the median.
const HELD: f64 = 0.93;
/// Least share of "lower" and "higher" with the right sign.
const RIGHT: f64 = 0.99;
/// Maximum share of "not sure" where the true ratio is beyond [`CLEAR`].
const UNSURE: f64 = 0.2;
const CLEAR: f64 = 1.2;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let comparisons = arguments.next().transpose()?.unwrap_or(10_000);
    let trials = arguments.next().transpose()?.unwrap_or(200);
    let lines: Vec<Line> =
        LINES.into_iter().map(|line| Line::simulate(line, trials)).collect::<Result<_, _>>()?;
    let intervals = intervals(&lines, &mut Rng::new(1).child("intervals"));
    let words = words(&lines, comparisons, &mut Rng::new(1).child("words"));
    Ok(if intervals && words { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All trials of all queues on one line.
struct Line {
    name: String,
    /// The trials of each queue, in the order of the repeats.
    trials: BTreeMap<String, Vec<TrialRecord>>,
    /// The samples of each trial, by its index.
    samples: BTreeMap<u32, Vec<Sample>>,
    /// Each metric of each queue's trials, in the order of the repeats.
    values: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

/// Two queues to compare. `offset` is 0 for trials of the same seeds, else the distance of their repeats,
/// for a queue against itself.
#[derive(Clone, Copy)]
struct Pair {
    variant: &'static str,
    baseline: &'static str,
    offset: usize,
}

impl Line {
    fn simulate(
        (rate, rtt, congestion_control): (&str, &str, &str),
        trials: u32,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let upload = Keys::new()
            .set("direction", "up")
            .set("congestion_control", congestion_control)
            .set("start_jitter", "1s");
        let mut scenario = Scenario::build("conclusions")
            .set("repeats", trials)
            .path(Keys::new().set("up", rate).set("rtt", rtt))
            .phases(Keys::new().set("idle", "1s").set("ramp", "5s").set("load", "10s"))
            .flow("upload", "tcp", upload)
            .flow("call", "voip", Keys::new())
            .flow("probe", "probe", Keys::new().set("interval", "20ms"));
        for queue in QUEUES {
            scenario = scenario.variant(queue, Keys::new().set("path.up_queue", queue));
        }
        let settings = Settings { destination: Destination::Caller, ..Settings::default() };
        let found = run(&scenario.finish()?, &settings, &mut ())?;
        let mut line = Self {
            name: format!("{rate}, {rtt}, {congestion_control}"),
            trials: BTreeMap::new(),
            samples: BTreeMap::new(),
            values: BTreeMap::new(),
        };
        for (queue, metric) in QUEUES
            .into_iter()
            .flat_map(|it| METRICS.into_iter().chain(LOWER).map(move |metric| (it, metric)))
        {
            let all = metric_over_trials(&found.record, queue, metric);
            line.values.insert((queue, metric), all.into_iter().flatten().collect());
        }
        for sample in found.samples {
            line.samples.entry(sample.trial).or_default().push(sample);
        }
        for trial in found.record.trials {
            line.trials.entry(trial.variant.clone()).or_default().push(trial);
        }
        Ok(line)
    }

    /// Returns value and baseline of a metric in all trials.
    fn all(&self, pair: Pair, metric: &str) -> Vec<(f64, f64)> {
        let of = |queue| &self.values[&(queue, metric)];
        let (own, others) = (of(pair.variant), of(pair.baseline));
        let other = |at: usize| others[(at + pair.offset) % others.len()];
        own.iter().enumerate().map(|(at, value)| (*value, other(at))).collect()
    }

    /// Returns a run of a few repeats of two queues, as the program concludes it.
    fn few(&self, pair: Pair, repeats: &[usize]) -> RunRecord {
        let known =
            |name: &str| VariantRecord { name: name.to_owned(), ..VariantRecord::default() };
        let mut few = RunRecord {
            variants: vec![known("variant"), known("baseline")],
            ..RunRecord::default()
        };
        let mut pools = LatencyPools::default();
        for (name, queue, offset) in
            [("variant", pair.variant, 0), ("baseline", pair.baseline, pair.offset)]
        {
            let all = &self.trials[queue];
            for (number, repeat) in repeats.iter().enumerate() {
                let mut trial = all[(repeat + offset) % all.len()].clone();
                (trial.repeat, trial.variant) = (number as u32, name.to_owned());
                pools.add(&trial, &self.samples[&trial.index]);
                few.trials.push(trial);
            }
        }
        conclude(&mut few, &pools);
        few
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    nearest_rank(&values, 0.5).expect("there are trials")
}

/// Draws some of `all` numbers, each at most once.
fn draw(rng: &mut Rng, count: usize, all: usize) -> Vec<usize> {
    let mut drawn = Vec::new();
    while drawn.len() < count {
        let next = rng.below(all as u32) as usize;
        if !drawn.contains(&next) {
            drawn.push(next);
        }
    }
    drawn
}

/// How often a condition was true.
#[derive(Default, Clone, Copy)]
struct Share {
    so: u32,
    all: u32,
}

impl Share {
    fn note(&mut self, is_so: bool) {
        self.so += u32::from(is_so);
        self.all += 1;
    }

    fn value(self) -> f64 {
        f64::from(self.so) / f64::from(self.all)
    }

    fn percent(self) -> String {
        if self.all == 0 { "-".to_owned() } else { format!("{:.1}", self.value() * 100.0) }
    }
}

/// Prints how often the interval of a few trials contains the median of all trials. Beside it
/// stands how often Student's interval about the mean does, which is right only for values of one
/// mode.
fn intervals(lines: &[Line], rng: &mut Rng) -> bool {
    let mut is_met = true;
    println!(
        "Percent of {DRAWS} intervals that hold the median of all trials (Student's t about the mean)"
    );
    for line in lines {
        let heads = REPEATS.map(|(count, _)| format!(" {count} trials |")).concat();
        println!("\n| {} | metric |{heads}", line.name);
        println!("|---|---|{}", "---|".repeat(REPEATS.len()));
        let told = line.values.iter().filter(|((_, metric), _)| METRICS.contains(metric));
        for ((queue, metric), all) in told {
            let truth = median(all.clone());
            let mut cells = String::new();
            for (count, quantile) in REPEATS {
                let (mut own, mut student) = (Share::default(), Share::default());
                for _ in 0..DRAWS {
                    let any = |_| all[rng.below(all.len() as u32) as usize];
                    let few: Vec<f64> = (0..count).map(any).collect();
                    if let Some(found) = median_interval(&few, 0.95) {
                        own.note((found.low..=found.high).contains(&truth));
                    }
                    student.note(is_in_student_interval(&few, quantile, truth));
                }
                is_met &= own.all == 0 || own.value() >= HELD;
                let _ = write!(cells, " {} ({}) |", own.percent(), student.percent());
            }
            println!("| {queue} | {metric} |{cells}");
        }
    }
    println!("\nGoal: at least {} % from 5 trials on: {}", HELD * 100.0, met(is_met));
    is_met
}

fn is_in_student_interval(values: &[f64], quantile: f64, truth: f64) -> bool {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (truth - mean).abs() <= quantile * (squares / (count - 1.0) / count).sqrt()
}

/// Returns a random comparison: different queues, or in one of ten cases a queue against itself.
fn pair(rng: &mut Rng, trials: usize) -> Pair {
    let any = |rng: &mut Rng| QUEUES[rng.below(QUEUES.len() as u32) as usize];
    let (variant, baseline) = (any(rng), any(rng));
    let is_itself = variant == baseline;
    let offset = if is_itself { 1 + rng.below(trials as u32 - 1) as usize } else { 0 };
    Pair { variant, baseline, offset }
}

/// How often the comparisons with one verdict were right.
#[derive(Default)]
struct Worth {
    /// Whether the effect over all trials has the sign of the effect over a few of them.
    right_sign: Share,
    /// Whether the true effect is one that a person notices.
    noticed: Share,
    /// Whether the true ratio is beyond [`CLEAR`].
    clear: Share,
    /// Whether the range holds the true effect.
    held_by_range: Share,
}

/// Prints how often the words of a comparison are right.
fn words(lines: &[Line], comparisons: u32, rng: &mut Rng) -> bool {
    let mut all: BTreeMap<Verdict, Worth> = BTreeMap::new();
    let mut unsure_by_line: BTreeMap<&str, Share> = BTreeMap::new();
    for _ in 0..comparisons {
        let line = &lines[rng.below(lines.len() as u32) as usize];
        let metric = METRICS[rng.below(METRICS.len() as u32) as usize];
        let trials = line.trials[QUEUES[0]].len();
        let pair = pair(rng, trials);
        let few = line.few(pair, &draw(rng, 6, trials));
        let found = compare_two((&few, "variant"), (&few, "baseline"), metric);
        let found = found.expect("both are in the run");
        let worth = all.entry(found.verdict).or_default();
        if worth.note(&found, &line.all(pair, &found.metric)) {
            let is_unsure = found.verdict == Verdict::NotSure;
            unsure_by_line.entry(&line.name).or_default().note(is_unsure);
        }
    }
    println!("\n{comparisons} comparisons of 6 trials each with all trials, percent\n");
    println!(
        "| verdict | how many | right sign | a person notices it | ratio beyond {CLEAR} | range holds it |"
    );
    println!("|---|---|---|---|---|---|");
    let (mut right, mut unsure, mut held) = (Share::default(), Share::default(), Share::default());
    for (verdict, worth) in &all {
        let (count, [sign, noticed, clear, holds]) = (
            worth.noticed.all,
            [worth.right_sign, worth.noticed, worth.clear, worth.held_by_range].map(Share::percent),
        );
        println!("| {verdict} | {count} | {sign} | {noticed} | {clear} | {holds} |");
        if matches!(verdict, Verdict::Lower | Verdict::Higher) {
            right.so += worth.right_sign.so;
            right.all += worth.right_sign.all;
        }
        unsure.so += if *verdict == Verdict::NotSure { worth.clear.so } else { 0 };
        unsure.all += worth.clear.so;
        held.so += worth.held_by_range.so;
        held.all += worth.held_by_range.all;
    }
    let is_met = print_goals(right, unsure, held);
    for (line, share) in &unsure_by_line {
        println!(
            "not sure, of ratios beyond {CLEAR} on {line}: {} % of {}",
            share.percent(),
            share.all
        );
    }
    is_met
}

/// Prints the goals of the words of comparisons; returns whether all are met.
fn print_goals(right: Share, unsure: Share, held: Share) -> bool {
    let goals = [
        (
            format!("\"lower\" and \"higher\" have the right sign in at least {} %", RIGHT * 100.0),
            right,
            right.value() >= RIGHT,
        ),
        (
            format!("not sure is at most {} % of ratios beyond {CLEAR}", UNSURE * 100.0),
            unsure,
            unsure.value() <= UNSURE,
        ),
        (
            format!("at least {} % of the ranges hold the true effect", HELD * 100.0),
            held,
            held.value() >= HELD,
        ),
    ];
    println!();
    for (goal, share, is_met) in &goals {
        println!("{goal}: {} % of {}: {}", share.percent(), share.all, met(*is_met));
    }
    goals.iter().all(|(.., is_met)| *is_met)
}

impl Worth {
    /// Returns whether the true ratio is beyond [`CLEAR`].
    fn note(&mut self, found: &Comparison, all: &[(f64, f64)]) -> bool {
        let of = |is_ratio| {
            median(all.iter().map(|(own, other)| effect(*own, *other, is_ratio)).collect())
        };
        let (truth, equal) = (of(found.is_ratio), if found.is_ratio { 1.0 } else { 0.0 });
        match found.verdict {
            Verdict::Lower => self.right_sign.note(truth < equal),
            Verdict::Higher => self.right_sign.note(truth > equal),
            _ => {}
        }
        let baseline = median(all.iter().map(|(_, other)| *other).collect());
        let value = if found.is_ratio { baseline * truth } else { baseline + truth };
        self.noticed.note(is_noticed(value, baseline, &found.unit));
        let is_clear = found.is_ratio && !(1.0 / CLEAR..=CLEAR).contains(&truth);
        if found.is_ratio {
            self.clear.note(is_clear);
        }
        if let Some(range) = found.range {
            let high = range.high.unwrap_or(f64::INFINITY);
            self.held_by_range.note((range.low..=high).contains(&truth));
        }
        is_clear
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}
