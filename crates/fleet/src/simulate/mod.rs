//! Days of millions of lines in virtual time, by the rules of a real fleet.
//!
//! Schedule and admission are the code of [`crate::schedule`] and [`crate::admission`]; only lines,
//! homes and the network between them and the orchestrator are simulated.

mod tally;
mod wheel;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::admission::{Admission, LeaseId, LineId, Reason, Request, Rules, SegmentId, ServerId};
use crate::plan::Plan;
use crate::schedule::{DAY, next_attempt, next_run, uniform};

pub use tally::Outcome;
use tally::Tally;
use wheel::Wheel;

/// Settings of a simulation besides the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    pub seed: u64,
    /// Whole days, at least one.
    pub days: u32,
    /// Share of runs whose line vanishes during the run, so that its lease expires.
    pub vanishing: f64,
    pub rules: Rules,
}

/// Maximum number of days: seconds are counted in 32 bits.
pub const DAYS_MAX: u32 = 366;
/// Interval of the servers' heartbeats, seconds.
const HEARTBEAT_SECONDS: u64 = 10;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A line requests its run, for the first time or after refusals.
    Wants { line: u32, scheduled: Time, refusals: u32 },
    /// A run has ended regularly.
    Ended { lease: LeaseId },
}

#[derive(Debug, Clone, Copy)]
struct Line {
    segment: SegmentId,
    tier: u8,
}

struct Simulation<'a> {
    plan: &'a Plan,
    settings: &'a Settings,
    lines: Vec<Line>,
    /// Request of a line for each tier, without line and segment.
    requests: Vec<Request>,
    admission: Admission,
    servers: Vec<ServerId>,
    wheel: Wheel<Event>,
    tally: Tally,
    rng: Rng,
}

/// Simulates the days of a plan. Calls `progress` after each simulated hour.
///
/// # Panics
/// If the number of days is 0 or more than [`DAYS_MAX`].
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
    // By now each lease was released or has expired.
    admission.expire(Time::from_secs(wheel.len() as u64));
    tally.outcome(plan, settings, admission.leases())
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a Plan, settings: &'a Settings) -> Self {
        let root = Rng::new(settings.seed).child("fleet");
        let mut admission = Admission::new(settings.rules);
        let capacity = plan.servers.capacity.bits_per_second();
        let servers = (0..plan.servers.count).map(|_| admission.add_server(capacity)).collect();
        // A run scheduled on the last day may begin late.
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

    /// Schedules a line's next run if it is within the simulated days.
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
            self.tally.sample_reservations(self.admission.servers());
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
                    self.tally.finish();
                }
            }
        }
        self.tally.end_second();
    }

    fn want(&mut self, now: Time, line: u32, scheduled: Time, refusals: u32) {
        if refusals == 0 {
            self.tally.scheduled += 1;
            self.schedule(now, line);
        }
        let Err(reason) = self.try_to_run(now, line, refusals == 0) else { return };
        self.tally.refuse(reason);
        let again = next_attempt(&mut self.rng, now, refusals, scheduled, self.plan.start_within);
        let Some(at) = again.filter(|_| !reason.is_final()) else {
            self.tally.give_up(reason);
            return;
        };
        self.wheel.add(at, Event::Wants { line, scheduled, refusals: refusals + 1 });
    }

    fn try_to_run(&mut self, now: Time, line: u32, is_first: bool) -> Result<(), Reason> {
        // The line itself detects its home's traffic and sends no request.
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
            self.tally.vanished += 1;
            return Ok(());
        }
        self.wheel.add(now + request.lasts, Event::Ended { lease: lease.id });
        Ok(())
    }
}

const fn seconds(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000_000)
}

/// The measured lines: all of them, or a random sample.
fn lines(plan: &Plan, rng: &mut Rng) -> Vec<Line> {
    let segments = plan.lines.count.div_ceil(plan.lines.per_segment);
    let is_sample = plan.lines.sample < plan.lines.count;
    let line = |number: u32| {
        let segment = if is_sample { rng.below(segments) } else { number / plan.lines.per_segment };
        let mut left = uniform(rng);
        let takes = |share: f64| {
            left -= share;
            left <= 0.0
        };
        let shares = plan.tiers.iter().map(|tier| tier.share);
        let tier = shares.map(takes).position(|takes| takes).unwrap_or(plan.tiers.len() - 1);
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
