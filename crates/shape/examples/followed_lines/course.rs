//! A loaded line in virtual time, shaped by a rule, and what became of rate and delay.

use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_record::schema::Direction;
use underload_shape::auto::{Answer, Bounds, Follower, Reading};
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::{ExtraDelay, HopConfig};
use underload_sim::shaped::{ShapedConfig, ShapedLine, Step};
use underload_sim::tcp::TcpConfig;

/// A line with the direction that is loaded and the rates that its user gives.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub loaded: Direction,
    /// SPECs of the line's links, up and down.
    pub links: [String; 2],
    /// Bytes of the line's buffers, up and down.
    pub buffers: [u64; 2],
    /// Least and largest rates in Mbit/s, up and down.
    pub bounds: [(u64, u64); 2],
    pub seed: u64,
}

/// The rule that chooses the rates.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    Unshaped,
    /// A share of the largest rate in thousandths, for the loaded direction.
    Fixed(u64),
    /// Knows what the line will carry in the next step, and takes 97 % of it.
    Oracle,
    Follower,
}

/// Rates and delays of a line under a rule and load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Payload per second, Mbit/s.
    pub goodput: f64,
    /// The 99th percentile of the round trip above the median of the idle line, ms.
    pub p99_ms: f64,
    /// Payload of each second since the beginning, Mbit/s.
    pub seconds: Vec<f64>,
    /// The rate of the loaded direction in each step, Mbit/s.
    pub rates: Vec<f64>,
}

/// Time of a step, as long as a live follower's.
const STEP: Span = Span::from_millis(100);
/// Steps without load, and steps in which the load begins; neither is measured.
const IDLE_STEPS: usize = 50;
const RAMP_STEPS: usize = 100;
const FLOWS: u64 = 4;
const UNSHAPED: Rate = Rate::from_megabits_per_second(10_000);

/// Simulates `seconds` of load under a rule.
pub fn simulate(line: &Line, rule: Rule, seconds: usize) -> Outcome {
    let steps = IDLE_STEPS + RAMP_STEPS + seconds * 10;
    let end = Time::ZERO + STEP * steps as u64;
    let mut shaped = ShapedLine::new(config(line, end));
    let mut followers = Direction::ALL.map(|it| Follower::new(it, bounds(line, it as usize)));
    // The oracle reads the line's future rate from a second, equal line without load, which runs a
    // step ahead.
    let mut ahead = ShapedLine::new(ShapedConfig { flows: Vec::new(), ..config(line, end) });
    let loaded = line.loaded as usize;
    let (mut outcome, mut idle, mut delays) = (Outcome::default(), Vec::new(), Vec::new());
    let (mut first_bytes, mut second_bytes, mut last) = (0, 0, 0);
    for step in 0..steps {
        let offered = ahead.advance(STEP).offered_bytes;
        let rates = [0, 1].map(|way| match rule {
            Rule::Fixed(permille) if way == loaded => {
                Rate::from_bits_per_second(line.bounds[way].1 * 1_000 * permille)
            }
            Rule::Unshaped | Rule::Fixed(_) => UNSHAPED,
            Rule::Oracle => oracle(offered[way], line.bounds[way]),
            Rule::Follower => followers[way].rate(),
        });
        shaped.set_rates(rates);
        outcome.rates.push(rates[loaded].bits_per_second() as f64 / 1e6);
        let seen = shaped.advance(STEP);
        follow(&mut followers, &seen);
        let into = if step < IDLE_STEPS { &mut idle } else { &mut delays };
        if !(IDLE_STEPS..IDLE_STEPS + RAMP_STEPS).contains(&step) {
            into.extend(seen.answers.iter().map(|(_, delay)| delay.as_nanos() as f64 / 1e6));
        }
        if step + 1 == IDLE_STEPS + RAMP_STEPS {
            first_bytes = seen.received_bytes;
        }
        if step % 10 == 9 {
            outcome.seconds.push((seen.received_bytes - second_bytes) as f64 * 8.0 / 1e6);
            second_bytes = seen.received_bytes;
        }
        last = seen.received_bytes;
    }
    outcome.goodput = (last - first_bytes) as f64 * 8.0 / 1e6 / seconds as f64;
    outcome.p99_ms = quantile(&mut delays, 0.99) - quantile(&mut idle, 0.5);
    outcome
}

/// Gives the followers what a program at the shaper sees.
fn follow(followers: &mut [Follower; 2], seen: &Step) {
    let answers: Vec<Answer> = seen
        .answers
        .iter()
        .map(|(sent, round_trip)| Answer {
            sent_us: sent.as_nanos() / 1_000,
            round_trip_us: (round_trip.as_nanos() / 1_000) as i64,
        })
        .collect();
    let time_ms = seen.end.as_millis();
    for (follower, sent_bytes) in followers.iter_mut().zip(seen.sent_bytes) {
        follower.decide(&Reading { time_ms, answers: &answers, sent_bytes });
    }
}

fn oracle(offered_bytes: Option<u64>, (min, max): (u64, u64)) -> Rate {
    let bits = offered_bytes.unwrap_or(u64::MAX / 1_000) * 8 * 10;
    Rate::from_bits_per_second((bits / 100 * 97).clamp(min * 1_000_000, max * 1_000_000))
}

fn bounds(line: &Line, way: usize) -> Bounds {
    let (min, max) = line.bounds[way];
    let rate = Rate::from_megabits_per_second;
    Bounds::new(rate(min), rate(max)).expect("bounds in their order")
}

fn config(line: &Line, end: Time) -> ShapedConfig {
    let hop = |queue: &str, link: &str| HopConfig::parse(queue, link).expect(link);
    let line_hop =
        |way: usize| hop(&format!("fifo:limit={}B", line.buffers[way]), &line.links[way]);
    let half = Span::from_millis(10);
    let extra = ExtraDelay { up: half, down: half };
    let schedule = ProbeSchedule::Open { interval: Span::from_millis(25) };
    let probe = FlowKind::Probe(ProbeConfig { schedule, ..ProbeConfig::default() });
    let mut flows = vec![FlowConfig { extra, ..FlowConfig::new("reflector", probe) }];
    flows.extend((0..FLOWS).map(|number| FlowConfig {
        extra,
        direction: line.loaded,
        start: Some(Time::ZERO + STEP * IDLE_STEPS as u64 + Span::from_millis(137 * number)),
        ..FlowConfig::new(format!("load {number}"), FlowKind::Tcp(TcpConfig::default()))
    }));
    ShapedConfig {
        line: [line_hop(0), line_hop(1)],
        shaper: [0, 1].map(|_| hop("cake", "10gbit")),
        flows,
        end,
        seed: line.seed,
    }
}

/// Returns a quantile by nearest rank; 0 without values.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}
