//! Days of millions of lines in virtual time, by the rules that real ones obey.
//!
//! Schedule and admission are the code of [`crate::schedule`] and [`crate::admission`]; only lines,
//! homes and the way between them and whoever admits are pretended.

mod tally;
mod wheel;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::admission::{Admission, LeaseId, LineId, Reason, Request, Rules, SegmentId, ServerId};
use crate::plan::Plan;
use crate::schedule::{DAY, again, next_run, uniform};

pub use tally::Outcome;
use tally::Tally;
use wheel::Wheel;

/// What is simulated besides a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The same seed gives the same days.
    pub seed: u64,
    /// Whole days, at least one.
    pub days: u32,
    /// Share of runs whose line vanishes in the middle, so that nobody gives the lease back.
    pub vanishing: f64,
    /// What holds for all runs.
    pub rules: Rules,
}

/// Days at most: seconds are counted in 32 bits.
pub const DAYS_MAX: u32 = 366;
/// How often servers say that they are alive.
const HEARTBEAT_SECONDS: u64 = 10;

/// Something that happens.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A line wants to run, as it was scheduled to, or again after refusals.
    Wants { line: u32, scheduled: Time, refusals: u32 },
    /// A run has ended as it should.
    Ended { lease: LeaseId },
}

/// Where a line is, and what it is sold.
#[derive(Debug, Clone, Copy)]
struct Line {
    segment: SegmentId,
    tier: u8,
}

struct Simulation<'a> {
    plan: &'a Plan,
    settings: &'a Settings,
    lines: Vec<Line>,
    /// What a line of each tier asks for; line and segment are filled in.
    requests: Vec<Request>,
    admission: Admission,
    servers: Vec<ServerId>,
    wheel: Wheel<Event>,
    tally: Tally,
    rng: Rng,
}

/// Simulates days of a plan; `progress` is told after each hour of them.
///
/// # Panics
/// Where the days are none or more than [`DAYS_MAX`].
pub fn simulate(plan: &Plan, settings: &Settings, progress: &mut dyn FnMut(Span)) -> Outcome {
    assert!((1..=DAYS_MAX).contains(&settings.days), "{} days", settings.days);
    let mut simulation = Simulation::new(plan, settings);
    simulation.schedule_all();
    for second in 0..simulation.wheel.len() as u64 {
        simulation.pass(second);
        if second % 3_600 == 3_599 {
            progress(Span::from_secs(second + 1));
        }
    }
    let Simulation { mut admission, tally, wheel, .. } = simulation;
    // By now each has been given back, or has ended by itself.
    admission.expire(Time::from_secs(wheel.len() as u64));
    tally.outcome(plan, settings, admission.leases())
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a Plan, settings: &'a Settings) -> Self {
        let root = Rng::new(settings.seed).child("fleet");
        let mut admission = Admission::new(settings.rules);
        let capacity = plan.servers.capacity.bits_per_second();
        let servers = (0..plan.servers.count).map(|_| admission.add_server(capacity)).collect();
        // What was scheduled on the last day may begin late, and then takes its time.
        let tail = plan.start_within + plan.run_lasts() + settings.rules.lease_grace;
        let seconds = u64::from(settings.days) * seconds(DAY) + seconds(tail) + 1;
        Self {
            plan,
            settings,
            lines: lines(plan, &mut root.child("lines")),
            requests: requests(plan),
            admission,
            servers,
            wheel: Wheel::new(seconds as usize),
            tally: Tally::default(),
            rng: root.child("runs"),
        }
    }

    fn schedule_all(&mut self) {
        for line in 0..self.lines.len() as u32 {
            self.schedule(Time::ZERO, line);
        }
    }

    /// A line's next run, where it is on one of the days.
    fn schedule(&mut self, now: Time, line: u32) {
        let next = next_run(&mut self.rng, now, self.plan.runs_per_day, self.plan.window);
        if next < Time::ZERO + DAY * u64::from(self.settings.days) {
            self.wheel.add(next, Event::Wants { line, scheduled: next, refusals: 0 });
        }
    }

    fn pass(&mut self, second: u64) {
        if second.is_multiple_of(HEARTBEAT_SECONDS) {
            for server in &self.servers {
                self.admission.heartbeat(Time::from_secs(second), *server);
            }
            self.tally.note_use(self.admission.servers());
        }
        self.wheel.begin_second();
        while let Some((now, event)) = self.wheel.take() {
            match event {
                Event::Wants { line, scheduled, refusals } => {
                    self.want(now, line, scheduled, refusals);
                }
                Event::Ended { lease } => {
                    let is_held = self.admission.release(lease);
                    debug_assert!(is_held, "a run ends before its lease");
                    self.tally.done();
                }
            }
        }
        self.tally.end_second();
    }

    fn want(&mut self, now: Time, line: u32, scheduled: Time, refusals: u32) {
        if refusals == 0 {
            self.tally.scheduled();
            self.schedule(now, line);
        }
        let Err(reason) = self.try_to_run(now, line, refusals == 0) else { return };
        self.tally.refuse(reason);
        let again = again(&mut self.rng, now, refusals, scheduled, self.plan.start_within);
        let Some(at) = again.filter(|_| !reason.is_final()) else {
            self.tally.give_up(reason);
            return;
        };
        self.wheel.add(at, Event::Wants { line, scheduled, refusals: refusals + 1 });
    }

    fn try_to_run(&mut self, now: Time, line: u32, is_first: bool) -> Result<(), Reason> {
        // The line sees the traffic of its home itself, and asks nobody.
        if self.plan.lines.busy > 0.0 && uniform(&mut self.rng) <= self.plan.lines.busy {
            return Err(Reason::HomeBusy);
        }
        let Line { segment, tier } = self.lines[line as usize];
        let request = Request { line: LineId(line), segment, ..self.requests[usize::from(tier)] };
        let reserved = self.admission.reserve(now, &request, &mut self.rng);
        self.tally.asked(is_first, reserved.as_ref().err().copied());
        let lease = reserved.map_err(Reason::Refused)?;
        let is_overlapping = request.is_loaded && self.admission.loaded_in(segment) > 1;
        self.tally.started(is_overlapping);
        if self.settings.vanishing > 0.0 && uniform(&mut self.rng) <= self.settings.vanishing {
            self.tally.vanished();
            return Ok(());
        }
        self.wheel.add(now + request.lasts, Event::Ended { lease: lease.id });
        Ok(())
    }
}

const fn seconds(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000_000)
}

/// The lines that are measured: all of them, or a random sample.
fn lines(plan: &Plan, rng: &mut Rng) -> Vec<Line> {
    let segments = plan.lines.count.div_ceil(plan.lines.per_segment);
    let is_sample = plan.lines.sample < plan.lines.count;
    let line = |number: u32| {
        let segment = if is_sample { rng.below(segments) } else { number / plan.lines.per_segment };
        let mut left = uniform(rng);
        let is_it = |share: f64| {
            left -= share;
            left <= 0.0
        };
        let shares = plan.tiers.iter().map(|tier| tier.share);
        let tier = shares.map(is_it).position(|is_it| is_it).unwrap_or(plan.tiers.len() - 1);
        Line { segment: SegmentId(segment), tier: tier as u8 }
    };
    (0..plan.lines.sample).map(line).collect()
}

fn requests(plan: &Plan) -> Vec<Request> {
    let request = |tier| {
        let (up_bit_per_s, down_bit_per_s) = plan.peak_bit_per_s(tier);
        Request {
            line: LineId(0),
            segment: SegmentId(0),
            is_loaded: plan.loads_lines(),
            up_bit_per_s,
            down_bit_per_s,
            lasts: plan.run_lasts(),
        }
    };
    plan.tiers.iter().map(request).collect()
}

#[cfg(test)]
mod tests;
