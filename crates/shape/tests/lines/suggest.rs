//! Tests the choices of `shape suggest` on simulated lines in virtual time.

use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_record::schema::Direction::{self, Down, Up};
use underload_record::schema::PerDirection;
use underload_shape::suggest::{
    Choice, Limit, Next, Outcome, PASSES, Reading, SHARES_PERCENT, Search, Trial, before_and_after,
};
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::{ExtraDelay, HopConfig};
use underload_sim::shaped::{ShapedConfig, ShapedLine};
use underload_sim::tcp::TcpConfig;

const LIMIT: Limit = Limit { added_ms: 10.0 };
const UNSHAPED: Rate = Rate::from_megabits_per_second(10_000);
const QUEUES: [&str; 2] = ["cake", "fq-codel"];

const IDLE_S: u64 = 2;
const RAMP_S: u64 = 3;
const LOAD_S: u64 = 5;
const PROBE_MS: u64 = 10;

/// Queues and links of a line, up and down.
struct Line {
    queues: [&'static str; 2],
    /// The rates in Mbit/s of successive measurements; further measurements repeat the last one.
    mbit: &'static [[u64; 2]],
}

impl Line {
    /// Measures a direction as `underload measure` does: four flows, a probe every 10 ms.
    fn measure(
        &self,
        number: usize,
        direction: Direction,
        rates: PerDirection<Option<Rate>>,
    ) -> Reading {
        let mbit = self.mbit[number.min(self.mbit.len() - 1)];
        let hop = |queue: &str, link: &str| HopConfig::parse(queue, link).expect(queue);
        let line = [0, 1].map(|way| hop(self.queues[way], &format!("{}mbit", mbit[way])));
        let shaper = [hop("cake", "10gbit"), hop("cake", "10gbit")];
        let end = Time::ZERO + Span::from_secs(IDLE_S + RAMP_S + LOAD_S);
        let flows = flows(direction);
        let seed = number as u64;
        let mut shaped = ShapedLine::new(ShapedConfig { line, shaper, flows, end, seed });
        shaped.set_rates([rates.up, rates.down].map(|rate| rate.unwrap_or(UNSHAPED)));
        let idle = milliseconds(&shaped.advance(Span::from_secs(IDLE_S)).answers, Time::ZERO);
        let start = shaped.advance(Span::from_secs(RAMP_S));
        let loaded = shaped.advance(Span::from_secs(LOAD_S));
        let mut load = milliseconds(&loaded.answers, start.end);
        load.extend(milliseconds(&shaped.advance(Span::from_secs(1)).answers, start.end));
        load.sort_by(f64::total_cmp);
        let sent = LOAD_S * 1_000 / PROBE_MS;
        let p99 = load.get(sent as usize * 99 / 100 - 1).copied().unwrap_or(f64::INFINITY);
        let bytes = loaded.received_bytes - start.received_bytes;
        let goodput = Rate::from_bits_per_second(bytes * 8 / LOAD_S);
        Reading { goodput, beside_ms: p99 - idle[idle.len() / 2], inside_ms: None }
    }

    /// Returns the outcome, and the measurements that led to it.
    fn suggest(&self) -> (Outcome, Vec<Trial>) {
        let before = PerDirection::from_fn(|it| Some(self.measure(0, it, PerDirection::default())));
        let mut search = Search::new(before, LIMIT, QUEUES.len());
        let mut trials = Vec::new();
        loop {
            match search.next() {
                Next::Done(outcome) => return (outcome, trials),
                Next::Measure(trial) => {
                    trials.push(trial);
                    let measured = |direction: Direction| {
                        let measure = || self.measure(trials.len(), direction, trial.rates);
                        trial.loads[direction].then(measure)
                    };
                    search.add(trial, PerDirection::from_fn(measured));
                    assert!(trials.len() <= 20, "no end: {trials:?}");
                }
            }
        }
    }
}

/// Returns the round trips of the probes that were sent from `start` on, ms.
fn milliseconds(answers: &[(Time, Span)], start: Time) -> Vec<f64> {
    let sent = answers.iter().filter(|(sent, _)| *sent >= start);
    sent.map(|(_, round_trip)| round_trip.as_nanos() as f64 / 1e6).collect()
}

fn flows(direction: Direction) -> Vec<FlowConfig> {
    let half = Span::from_millis(10);
    let extra = ExtraDelay { up: half, down: half };
    let schedule = ProbeSchedule::Open { interval: Span::from_millis(PROBE_MS) };
    let probe = FlowKind::Probe(ProbeConfig { schedule, ..ProbeConfig::default() });
    let start = Time::ZERO + Span::from_secs(IDLE_S);
    let load = |number: u64| FlowConfig {
        extra,
        direction,
        start: Some(start + Span::from_millis(37 * number)),
        ..FlowConfig::new(format!("load {number}"), FlowKind::Tcp(TcpConfig::default()))
    };
    let probe = FlowConfig { extra, ..FlowConfig::new("probe", probe) };
    std::iter::once(probe).chain((0..4).map(load)).collect()
}

fn shaped(outcome: Outcome) -> Choice {
    let Outcome::Shape(choice) = outcome else { panic!("{outcome:?}") };
    choice
}

/// 400 ms of buffer: 250,000 bytes at 5 Mbit/s and 1,000,000 at 20.
#[test]
fn a_modem_with_full_buffers_is_shaped_in_both_directions() {
    let queues = ["fifo:limit=250000B", "fifo:limit=1000000B"];
    let line = Line { queues, mbit: &[[5, 20]] };
    let before = line.measure(0, Down, PerDirection::default());
    assert!(before.beside_ms > 200.0, "the premise: a full buffer: {before:?}");
    let (outcome, trials) = line.suggest();
    let choice = shaped(outcome);
    assert_eq!((choice.queue, trials.len()), (0, PASSES), "{trials:?}");
    assert_eq!(choice.percent, PerDirection::new(Some(95), Some(95)));
    for (direction, carried) in [(Up, 4_000_000..=5_000_000), (Down, 17_000_000..=20_000_000)] {
        let rate = choice.rates[direction].expect("shaped").bits_per_second();
        assert!(carried.contains(&rate) && rate.is_multiple_of(10_000), "{rate}");
        let after = choice.after[direction].expect("measured");
        assert!(LIMIT.accepts(&after, after.goodput), "{after:?}");
    }
}

#[test]
fn a_direction_that_is_good_is_left_as_it_is() {
    let line = Line { queues: ["fifo:limit=250000B", "fq-codel"], mbit: &[[5, 20]] };
    let choice = shaped(line.suggest().0);
    assert_eq!(choice.percent, PerDirection::new(Some(95), None));
    assert_eq!(choice.rates.down, None);
}

#[test]
fn a_good_line_gets_no_suggestion() {
    let line = Line { queues: ["fq-codel", "cake"], mbit: &[[5, 20]] };
    assert_eq!(line.suggest(), (Outcome::NothingToMend, Vec::new()));
}

/// A buffer of four packets drops as a policer does. Behind a shaper below its rate no probe is.
#[test]
fn a_policer_that_drops_probes_is_shaped_below_its_rate() {
    let line = Line { queues: ["fifo:limit=4p", "fifo:limit=4p"], mbit: &[[10, 20]] };
    let before = line.measure(0, Down, PerDirection::default());
    assert!(before.beside_ms.is_infinite(), "the premise: a lost p99: {before:?}");
    let choice = shaped(line.suggest().0);
    let (rate, after) = choice.rates.down.zip(choice.after.down).expect("shaped");
    assert!(rate < Rate::from_megabits_per_second(20), "{rate}");
    assert!(LIMIT.accepts(&after, rate), "{after:?}");
    assert!(after.goodput > Rate::from_megabits_per_second(15), "{after:?}");
}

#[test]
fn a_line_that_carries_less_each_time_is_left_to_shape_auto() {
    let queues = ["fifo:limit=250000B", "fifo:limit=1000000B"];
    let mbit = &[[5, 20], [5, 16], [5, 13], [5, 11], [5, 10], [5, 9]];
    let (outcome, trials) = Line { queues, mbit }.suggest();
    assert_eq!(outcome, Outcome::Varies, "{trials:?}");
}

/// At 17 Mbit/s the shares of 20 down to 90 % are not good any more, whatever was measured before.
#[test]
fn one_lucky_measurement_selects_no_rate() {
    let queues = ["fifo:limit=250000B", "fifo:limit=1000000B"];
    let line = Line { queues, mbit: &[[5, 20], [5, 20], [5, 17]] };
    let choice = shaped(line.suggest().0);
    assert_eq!(choice.percent, PerDirection::new(Some(95), Some(85)));
}

/// Capacity of the line in each direction, Mbit/s.
const MBIT: PerDirection<u64> = PerDirection::new(10, 100);

fn reading(mbit: u64, added_ms: f64) -> Reading {
    Reading { goodput: Rate::from_megabits_per_second(mbit), beside_ms: added_ms, inside_ms: None }
}

/// Runs the rule with readings that a function returns for queue, direction and percent.
fn search(
    before: PerDirection<Option<Reading>>,
    queues: usize,
    found: impl Fn(usize, Direction, u64) -> Reading,
) -> (Outcome, Vec<Trial>) {
    let mut search = Search::new(before, LIMIT, queues);
    let mut trials = Vec::new();
    while let Next::Measure(trial) = search.next() {
        trials.push(trial);
        let of = |direction: Direction| {
            let percent = trial.percent[direction].filter(|_| trial.loads[direction])?;
            Some(found(trial.queue, direction, percent))
        };
        search.add(trial, PerDirection::from_fn(of));
        assert!(trials.len() <= 40, "no end: {trials:?}");
    }
    let Next::Done(outcome) = search.next() else { unreachable!("the loop ended") };
    (outcome, trials)
}

#[test]
fn the_largest_share_wins_and_a_later_queue_has_to_be_better() {
    let before = PerDirection::new(reading(10, 300.0), reading(100, 200.0)).map(Some);
    // The first queue is good at 85 %, the second at 90 %.
    let found = |queue: usize, direction: Direction, percent: u64| {
        let mbit = MBIT[direction];
        reading(mbit, if percent <= [85, 90][queue] { 3.0 } else { 80.0 })
    };
    let (outcome, trials) = search(before, 2, found);
    let choice = shaped(outcome);
    assert_eq!(choice.queue, 1);
    assert_eq!(choice.percent, PerDirection::new(Some(90), Some(90)));
    assert!(trials.iter().all(|trial| trial.queue == 0 || trial.percent.up > Some(85)));
    // With the same shares the first queue wins, and the second is not tried.
    let equal = |_: usize, direction: Direction, _: u64| reading(MBIT[direction], 3.0);
    let (outcome, trials) = search(before, 2, equal);
    assert_eq!((shaped(outcome).queue, trials.len()), (0, PASSES));
}

#[test]
fn each_direction_has_its_own_share_and_a_good_one_is_not_loaded_again() {
    let before = PerDirection::new(reading(10, 300.0), reading(100, 200.0)).map(Some);
    let found = |_: usize, direction: Direction, percent: u64| {
        let is_good = direction == Down || percent <= 85;
        reading(MBIT[direction], if is_good { 3.0 } else { 80.0 })
    };
    let (outcome, trials) = search(before, 1, found);
    assert_eq!(shaped(outcome).percent, PerDirection::new(Some(85), Some(95)));
    let loads: Vec<PerDirection<bool>> = trials.iter().map(|trial| trial.loads).collect();
    let (both, up) = (PerDirection::new(true, true), PerDirection::new(true, false));
    assert_eq!(loads, [both, both, up, up]);
}

#[test]
fn delay_at_every_rate_is_blamed_on_another_queue_and_lost_probes_count_as_delay() {
    let before = PerDirection::new(None, Some(reading(100, f64::INFINITY)));
    let full = |_: usize, _: Direction, percent: u64| reading(percent, f64::INFINITY);
    let (outcome, trials) = search(before, 2, full);
    assert_eq!(outcome, Outcome::WaitsElsewhere);
    assert_eq!(trials.len(), 2 * SHARES_PERCENT.len());
    assert!(trials.iter().all(|trial| trial.rates.up.is_none()), "up was not judged");
    // A direction without a reading is neither changed nor judged; the caller limits the number of
    // measurements.
    assert_eq!(search(PerDirection::default(), 2, full).0, Outcome::NothingToMend);
}

#[test]
fn slow_lines_may_add_the_time_of_two_packets() {
    let slow = Rate::from_bits_per_second(500_000);
    let reading = Reading { goodput: slow, beside_ms: 50.0, inside_ms: None };
    assert!(LIMIT.accepts(&reading, slow), "two packets take 48 ms");
    assert!(!LIMIT.accepts(&reading, Rate::from_megabits_per_second(10)));
}

/// A provider's queue serves flows separately: probes beside the load do not experience its delay.
#[test]
fn a_queue_that_only_the_load_itself_sees_is_mended() {
    let of = |inside_ms: f64| Reading { inside_ms: Some(inside_ms), ..reading(100, 1.0) };
    assert!(
        LIMIT.accepts(&of(30.0), of(0.0).goodput) && !LIMIT.accepts(&of(31.0), of(0.0).goodput)
    );
    assert!(!LIMIT.accepts(&Reading { beside_ms: 11.0, ..of(12.0) }, of(0.0).goodput));
    assert_eq!((of(31.0).added_ms(), of(0.5).added_ms()), (31.0, 1.0));
    let found = |_: usize, _: Direction, percent: u64| of(if percent <= 90 { 15.0 } else { 80.0 });
    let choice = shaped(search(PerDirection::new(None, Some(of(80.0))), 1, found).0);
    assert_eq!(choice.percent, PerDirection::new(None, Some(90)));
    assert_eq!(search(PerDirection::new(None, Some(of(15.0))), 1, found).0, Outcome::NothingToMend);
}

#[test]
fn before_and_after_are_shown_for_each_direction() {
    let reading = |kbit: u64, beside_ms: f64, inside_ms: Option<f64>| {
        let goodput = Rate::from_bits_per_second(kbit * 1_000);
        Some(Reading { goodput, beside_ms, inside_ms })
    };
    let choice = Choice {
        queue: 0,
        percent: PerDirection::new(None, Some(95)),
        rates: PerDirection::new(None, Some(Rate::from_megabits_per_second(18))),
        after: PerDirection::new(None, reading(16_900, 1.2, Some(14.6))),
    };
    let before = PerDirection::new(reading(9_300, -0.4, None), reading(19_000, 197.7, Some(190.0)));
    assert_eq!(
        before_and_after(&before, Some(&choice)),
        "down  without a shaper 19.0 Mbit/s, the load adds 198 ms; shaped to 18mbit 16.9 Mbit/s, \
         the load adds 15 ms inside itself\nup    without a shaper 9.3 Mbit/s, the load adds 0 ms; \
         stays as it is\n"
    );
    let lost = PerDirection::new(None, reading(19_000, f64::INFINITY, Some(190.0)));
    assert_eq!(
        before_and_after(&lost, None),
        "down  without a shaper 19.0 Mbit/s, the load loses more than 1 % of the probes\n"
    );
}
