//! Rollouts in virtual time: modems whose days resemble each other, with harm in a firmware.

use underload_aqm::rng::Rng;

use super::plan::PLAN;
use super::*;
use crate::device::Attributes;

const START: u32 = 20_000;

fn plan(settings: &str) -> RolloutPlan {
    RolloutPlan::parse(&PLAN.replacen("command", &format!("{settings}\ncommand"), 1))
        .expect("a plan")
}

/// A number with mean 0 and variance 1, nearly normal with a longer tail to one side.
fn noise(rng: &mut Rng) -> f64 {
    let mut share = || (f64::from(rng.next_u32()) + 0.5) / 2_f64.powi(32);
    let skewed = -share().ln() - 1.0;
    let other: f64 = (0..3).map(|_| share()).sum::<f64>() - 1.5;
    (skewed + 4.0 * other) / 5_f64.sqrt()
}

/// Modems with a rollout.
struct World {
    plan: RolloutPlan,
    lines: Vec<WatchedLine>,
    lots: Vec<u64>,
    /// What the new file adds to the logarithm of a line's p99.
    effects: Vec<f64>,
    constants: Vec<f64>,
    noises: Vec<f64>,
    rng: Rng,
    /// The measured days, from [`START`] less a week on.
    days: Vec<Vec<(usize, f64)>>,
    log: Vec<Row>,
}

impl World {
    /// Four models, and firmware 7.2 on `rare` of 100 lines.
    fn new(plan: RolloutPlan, lines: usize, rare: u32, seed: u64, effect: [f64; 2]) -> Self {
        let mut rng = Rng::new(seed).child("rollout");
        let line = |rng: &mut Rng| {
            let model = format!("model {}", rng.below(4));
            let is_rare = rng.below(100) < rare;
            let firmware = if is_rare { "7.2" } else { "7.1" }.to_owned();
            let device = [(); 16].map(|()| rng.next_u32() as u8);
            let attributes = Attributes { model, firmware, ..Attributes::default() };
            let line = WatchedLine { device: DeviceId(device), attributes };
            (line, effect[usize::from(is_rare)])
        };
        let (lines, effects): (Vec<_>, Vec<_>) = (0..lines).map(|_| line(&mut rng)).unzip();
        let constants = lines.iter().map(|_| 0.5 * noise(&mut rng)).collect();
        let lots = lines.iter().map(|line| lot(&plan.name, line.device)).collect();
        let noises = vec![0.0; lines.len()];
        let (days, log) = (Vec::new(), Vec::new());
        Self { plan, lines, lots, effects, constants, noises, rng, days, log }
    }

    /// Measures a day: a line resembles its day before, all lines share the day, and one line in
    /// eight is not measured.
    fn measure(&mut self, day: u32) {
        let exposure = Exposure::of(&self.log);
        let shared = 0.2 * noise(&mut self.rng);
        let mut values = Vec::new();
        for line in 0..self.lines.len() {
            self.noises[line] = 0.5 * self.noises[line] + 0.3 * noise(&mut self.rng);
            let since = exposure.since_ms(self.lines[line].device).map(day_of);
            let effect = if since.is_some_and(|it| it < day) { self.effects[line] } else { 0.0 };
            let p99 = 3.5 + self.constants[line] + self.noises[line] + shared + effect;
            if self.rng.below(8) > 0 {
                values.push((line, p99.exp()));
            }
        }
        self.days.push(values);
    }

    fn push(&mut self, day: u32, event: Event) {
        let at_ms = u64::from(day) * DAY_MS + self.log.len() as u64;
        self.log.push(Row { at_ms, who: "test".to_owned(), event });
    }

    fn state(&self) -> State {
        State::of(&self.plan, &self.log)
    }

    /// Gives all lines of the stage their file, in two batches.
    fn send(&mut self, day: u32) {
        while matches!(self.state().phase, Phase::Sending | Phase::Returning) {
            let State { stage, phase, .. } = self.state();
            let (exposure, until) = (Exposure::of(&self.log), self.plan.lots_of(stage));
            let is_former = phase == Phase::Returning;
            let is_due = |(line, lot): &(&WatchedLine, &u64)| {
                let is_due = **lot < until && exposure.is_due(line.device, stage);
                if is_former { exposure.is_due_back(line.device) } else { is_due }
            };
            let due = self.lines.iter().zip(&self.lots).filter(is_due);
            let due: Vec<DeviceId> = due.map(|(line, _)| line.device).collect();
            let (first, second) = due.split_at(due.len() / 2);
            for (half, is_last) in [(first, false), (second, true)] {
                let (devices, failed) = (half.to_vec(), Vec::new());
                self.push(day, Event::Sent { stage, is_former, devices, failed, is_last });
            }
        }
    }

    /// Runs the rollout for `days` days, in which a person confirms after a day. Every step begins
    /// from the log if `is_killed`, as a command that was killed.
    fn run(&mut self, days: u32, is_killed: bool) {
        for day in START - 7..START {
            self.measure(day);
        }
        self.push(START, Event::Started { is_dry_run: false });
        let new = |world: &Self| {
            let mut watch = Watch::new(&world.plan, &world.log, &world.lines);
            for (day, values) in (START - 7..).zip(&world.days) {
                watch.add_day(day, values);
            }
            watch
        };
        let mut watch = new(self);
        for day in START..START + days {
            self.send(day);
            self.measure(day);
            if is_killed {
                watch = new(self);
            } else {
                watch.follow(&self.log);
                watch.add_day(day, &self.days[self.days.len() - 1]);
            }
            let state = self.state();
            match state.phase {
                Phase::Watching if day >= state.next_day => {
                    self.push(day + 1, judge(&self.plan, &state, day, watch.looks()));
                }
                Phase::Paused(_) => self.push(day + 1, Event::Confirmed),
                Phase::Returned | Phase::Done => break,
                _ => {}
            }
        }
    }

    /// Returns how many lines were changed whose latency rose.
    fn harmed(&self) -> usize {
        let exposure = Exposure::of(&self.log);
        let is_harmed = |(line, effect): &(&WatchedLine, &f64)| {
            **effect > 0.0 && exposure.since_ms(line.device).is_some()
        };
        self.lines.iter().zip(&self.effects).filter(is_harmed).count()
    }

    fn stop(&self) -> Option<(u32, &str)> {
        self.log.iter().find_map(|row| match &row.event {
            Event::Looked { day, decision: Decision::Back { group, .. }, .. } => {
                Some((*day, group.as_str()))
            }
            _ => None,
        })
    }
}

/// A small fleet needs larger first stages.
const SMALL: &str = "stages_percent = [10, 50, 95]\n pause_after_stages = []\n least_days = 3";

fn false_stops(seeds: u64, settings: &str, effect: f64) -> u64 {
    let stops = |seed: &u64| {
        let settings = format!("{SMALL}\n {settings}");
        let mut world = World::new(plan(&settings), 2_000, 10, *seed, [effect; 2]);
        world.run(30, false);
        world.stop().is_some()
    };
    (0..seeds).filter(stops).count() as u64
}

/// The hardest case: the rise of every line is exactly the largest that is no harm.
const AT_THE_MARGIN: &str = "harmed_percent = 40";

#[test]
fn a_rollout_without_harm_reaches_all_stages() {
    let mut world = World::new(plan(SMALL), 2_000, 10, 1, [-0.5; 2]);
    world.run(40, false);
    assert_eq!((world.state().phase, world.state().stage), (Phase::Done, 2), "{:?}", world.log);
    assert_eq!(world.stop(), None);
    assert_eq!(false_stops(10, AT_THE_MARGIN, 0.1_f64.ln_1p()), 0);
}

#[test]
fn harm_in_one_firmware_returns_the_lines_of_the_first_stage() {
    let mut world = World::new(plan(SMALL), 6_000, 15, 1, [-0.1, 0.7]);
    world.run(40, false);
    assert_eq!(world.state().phase, Phase::Returned, "{:?}", world.log);
    assert_eq!(world.state().stage, 0);
    assert_eq!(world.stop().map(|(_, group)| group), Some("firmware 7.2"));
    let former: usize = world
        .log
        .iter()
        .map(|row| match &row.event {
            Event::Sent { is_former: true, devices, .. } => devices.len(),
            _ => 0,
        })
        .sum();
    let changed = world.lots.iter().filter(|lot| **lot < world.plan.lots_of(0)).count();
    assert_eq!(former, changed);
}

#[test]
fn a_killed_rollout_continues_from_its_log() {
    let logs = [false, true].map(|is_killed| {
        let mut world = World::new(plan(SMALL), 2_000, 10, 3, [-0.3; 2]);
        world.run(25, is_killed);
        let text = serde_json::to_string(&world.log).expect("JSON");
        let read: Vec<Row> = serde_json::from_str(&text).expect("the same rows");
        assert_eq!(read, world.log);
        assert!(world.log.len() > 12, "{:?}", world.log);
        text
    });
    assert_eq!(logs[0], logs[1]);
}

#[test]
fn a_person_decides_after_the_first_stage_and_if_days_prove_nothing() {
    let plan = plan("stages_percent = [1, 10]\n least_days = 2\n most_days = 4");
    let state = State { since_day: 10, ..State::of(&plan, &[]) };
    let look = |measure, low, high| Look {
        group: String::new(),
        measure,
        effect: Effect { value: 0.0, low, high, lines: 60 },
    };
    let looks = |high| [look(Measure::P99, -0.2, high), look(Measure::Harmed, -0.1, 0.04)];
    assert_eq!(decide(&plan, &state, 10, &looks(0.05)), Decision::Wait, "a day is too early");
    assert_eq!(decide(&plan, &state, 11, &looks(0.05)), Decision::Pause(Pause::Person));
    assert_eq!(decide(&plan, &state, 12, &looks(0.2)), Decision::Wait);
    assert_eq!(decide(&plan, &state, 13, &looks(0.2)), Decision::Pause(Pause::NotSure));
    assert_eq!(decide(&plan, &state, 13, &[]), Decision::Pause(Pause::NotSure), "no line");
    assert_eq!(
        decide(&plan, &State { stage: 1, ..state.clone() }, 12, &looks(0.0)),
        Decision::Done
    );
    let harm = [look(Measure::Harmed, 0.06, 0.2)];
    let back = Decision::Back { group: String::new(), measure: Measure::Harmed };
    assert_eq!(decide(&plan, &state, 10, &harm), back, "harm needs no least days");
}

#[test]
fn failures_of_the_connector_pause_and_are_repeated() {
    let plan = plan("stages_percent = [10, 50]\n failures_percent = 10");
    let row = |at_ms, event| Row { at_ms, who: "ana".to_owned(), event };
    let device = |number: u8| DeviceId([number; 16]);
    let sent = |stage, numbers: std::ops::Range<u8>, failed: std::ops::Range<u8>, is_last| {
        let (devices, failed) = (numbers.map(device).collect(), failed.map(device).collect());
        Event::Sent { stage, is_former: false, devices, failed, is_last }
    };
    let started = Event::Started { is_dry_run: false };
    let mut log = vec![row(1, started), row(2, sent(0, 0..20, 0..6, true))];
    assert_eq!(State::of(&plan, &log).phase, Phase::Paused(Pause::Failures));
    log.push(row(3, Event::Confirmed));
    let state = State::of(&plan, &log);
    assert_eq!((state.phase, state.since_day), (Phase::Watching, 1), "all lines were sent to");
    let exposure = Exposure::of(&log);
    assert!(exposure.is_due(device(20), 0) && !exposure.is_due(device(0), 0));
    assert!(exposure.is_due(device(0), 1) && !exposure.is_due(device(6), 1), "the next stage");
    assert_eq!((exposure.since_ms(device(0)), exposure.since_ms(device(20))), (Some(2), None));
    log.push(row(5, Event::Looked { day: 7, looks: Vec::new(), decision: Decision::Forward }));
    log.push(row(6, sent(1, 0..10, 0..0, false)));
    assert_eq!(State::of(&plan, &log).phase, Phase::Sending);
    let exposure = Exposure::of(&log);
    assert!(!exposure.is_due(device(0), 1));
    assert_eq!(exposure.since_ms(device(0)), Some(2), "changed since the first stage");
    // A person's order returns all changed lines, and a second order repeats it.
    for at_ms in [7, 9] {
        log.push(row(at_ms, Event::Stopped));
        assert_eq!(State::of(&plan, &log).phase, Phase::Returning);
        let exposure = Exposure::of(&log);
        assert!(exposure.is_due_back(device(19)) && !exposure.is_due_back(device(20)));
        let (devices, failed) = ((0..20).map(device).collect(), vec![device(3)]);
        let former = Event::Sent { stage: 1, is_former: true, devices, failed, is_last: true };
        log.push(row(at_ms + 1, former));
        assert_eq!(State::of(&plan, &log).phase, Phase::Returned);
        assert!(!Exposure::of(&log).is_due_back(device(3)));
    }
}

/// `cargo test --release -p underload-fleet --lib rollouts_ -- --ignored --nocapture`
#[test]
#[ignore = "2,000 rollouts take minutes; the docs have the command"]
fn rollouts_without_harm_stop_falsely_in_at_most_5_percent_of_1000_seeds() {
    for (name, settings, effect) in [
        ("no effect", "", 0.0),
        ("no effect, the smallest margins", "margin_percent = 1\n harmed_percent = 0.5", 0.0),
        ("exactly the margin", AT_THE_MARGIN, 0.1_f64.ln_1p()),
    ] {
        let stops = false_stops(1_000, settings, effect);
        println!("{name}: {stops} false stops of 1,000 rollouts");
        assert!(stops <= 50, "{name}: {stops}");
    }
}

/// `cargo test --release -p underload-fleet --lib rollouts_ -- --ignored --nocapture`
#[test]
#[ignore = "250,000 modems take a minute; the docs have the command"]
fn rollouts_to_250000_modems_stop_before_1_percent_suffer() {
    for (rare, harm) in [(4, 2.0_f64), (4, 1.5), (20, 1.3)] {
        // No person looks: the measurement alone has to stop the rollout.
        let plan = plan("pause_after_stages = []");
        let mut world = World::new(plan, 250_000, rare, 1, [-0.5, harm.ln()]);
        world.run(30, false);
        let (day, group) = world.stop().expect("it stops");
        let (days, harmed) = (day - START, world.harmed());
        println!(
            "250,000 modems, p99 times {harm} on {rare} % of them: stopped after {days} days by \
             `{group}`, {harmed} modems suffered ({:.3} %)",
            harmed as f64 / 2_500.0
        );
        assert_eq!(world.state().phase, Phase::Returned);
        assert!(world.state().stage == 0 && harmed < 2_500, "{harmed}");
    }
}
