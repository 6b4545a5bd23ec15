//! Enrolled devices that harm others as far as one home can: with claims about their lines, with
//! requests, and with results, as often as an orchestrator accepts requests.

use std::collections::BTreeMap;

use underload_fleet::bins::{Bins, bin_of};
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Move, Next, Numbered, Release, Results};
use underload_fleet::outcome::{Outcome, RunResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::{Archive as _, Filter, MADE_EPOCH, StoredResult};

use super::device::{PROBES, series, step};
use super::world::{CAPACITY, Checked, Event, Reply, Request, World};

/// 60 requests a minute, as many as the orchestrator's HTTP server accepts from one device.
const INTERVAL_MS: u64 = 1_000;
const HOSTILE_US: u64 = 900_000;

/// The results of a fleet with hostile devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endured {
    /// Requests of hostile devices.
    pub attacks: u64,
    /// Stored results of each honest device.
    pub honest_runs: Vec<u64>,
    /// Stored results of each hostile device.
    pub hostile_results: Vec<u64>,
    /// Stored results of hostile devices for runs that they were assigned.
    pub hostile_assigned: u64,
    /// Probes of hostile devices in pooled numbers.
    pub hostile_probes: u64,
}

impl World {
    /// Sends one request of the hostile device at `place`, and schedules the next one.
    pub fn attack(&mut self, place: usize) -> Checked {
        self.after(INTERVAL_MS, Event::Attack { place });
        let request = self.hostile_request(place);
        let id = self.hostile[place].id;
        let at = self.rng.below(2) as usize;
        if !self.processes[at].is_up {
            return Ok(());
        }
        self.report.attacks += 1;
        if let Ok(Ok(Reply::Next(answer))) = self.try_to_answer(at, id, &request, false)
            && let Some(run) = answer.run
        {
            self.hostile[place].run = run.run;
            self.hostile[place].lease_id = run.lease_id;
        }
        self.check_reservations()
    }

    fn hostile_request(&mut self, place: usize) -> Request {
        let kind = self.rng.below(6);
        let number = self.rng.below(1_000_000);
        let other = self.rng.below(self.devices.len() as u32);
        // Numbers of leases are random: here the attacker knows all of them.
        let leases = self.store.leases();
        let leaked = leases.get(number as usize % leases.len().max(1)).map_or(0, |it| it.id);
        let attacker = &mut self.hostile[place];
        attacker.request += 1;
        attacker.sequence += 1;
        match kind {
            0 => {
                // The segment of an honest line, a whole server, and another kind of line each
                // time.
                let attributes = Attributes {
                    firmware: format!("firmware {number}"),
                    tier_up_bit_per_s: CAPACITY,
                    tier_down_bit_per_s: CAPACITY,
                    ..self.devices[other as usize].attributes()
                };
                let (epoch, request, attributes) = (1, attacker.request, Some(attributes));
                let (is_busy, waiting, dropped) = (false, u64::from(number), 0);
                Request::Next(Next { epoch, request, is_busy, waiting, dropped, attributes })
            }
            1 => {
                let tried = vec![format!("server-{}", other % 3)];
                let lease_id = if number.is_multiple_of(2) { attacker.lease_id } else { leaked };
                Request::Move(Move { lease_id, tried })
            }
            2 => Request::Release(Release { lease_id: leaked }),
            _ => {
                let sequence = attacker.sequence;
                let run = [attacker.run, 0, u64::from(number)][kind as usize - 3];
                let at_ms = [self.now_ms, 0, u64::MAX][number as usize % 3];
                let result = RunResult {
                    plan: "trial".to_owned(),
                    run,
                    at_ms,
                    outcome: Outcome::Measured,
                    reason: String::new(),
                    server: String::new(),
                    version: "hostile".to_owned(),
                    steps: hostile_steps(run, number),
                };
                let results = vec![Numbered { sequence, result }];
                Request::Results(Results { epoch: 1, results })
            }
        }
    }

    /// Counts the results of each device, and the probes of hostile devices in pooled numbers.
    pub fn endured(&mut self) -> Result<Endured, String> {
        let sums = self.store.sums(&Filter::default(), &[]).map_err(|error| error.to_string())?;
        let mut pooled = Bins::default();
        for sum in &sums {
            pooled.merge(&sum.bins);
        }
        let hostile_bin = bin_of(HOSTILE_US as f64);
        let of_hostile = pooled.iter().filter(|(bin, _)| *bin == hostile_bin);
        let hostile_probes = of_hostile.map(|(_, count)| count).sum();
        let of_run = |kept: &StoredResult| kept.epoch != MADE_EPOCH && kept.result.run > 0;
        let is_hostile = |id: DeviceId| self.hostile.iter().any(|it| it.id == id);
        let kept = self.store.results();
        let hostile_assigned = kept.iter().filter(|it| of_run(it) && is_hostile(it.device)).count();
        let mut stored = BTreeMap::<DeviceId, u64>::new();
        for kept in kept {
            *stored.entry(kept.device).or_default() += 1;
        }
        let results = |id: DeviceId| stored.get(&id).copied().unwrap_or_default();
        Ok(Endured {
            honest_runs: self.devices.iter().map(|device| results(device.id)).collect(),
            hostile_results: self.hostile.iter().map(|it| results(it.id)).collect(),
            hostile_assigned: hostile_assigned as u64,
            hostile_probes,
            attacks: self.report.attacks,
        })
    }
}

/// Steps of the plan and others, each repeated, with the most probes that are accepted and with many
/// more.
fn hostile_steps(run: u64, number: u32) -> Vec<StepResult> {
    let repeated = |dscp: u8, sent: u64| {
        [RunResult::PROBES_MAX, sent, sent].map(|sent| series(dscp, HOSTILE_US, sent)).to_vec()
    };
    let mut steps = vec![
        step("idle", Kind::Latency, repeated(0, 2 * PROBES[0])),
        step("idle", Kind::Latency, repeated(0, 2 * PROBES[0])),
        step(&format!("invented {number}"), Kind::Latency, repeated(45, u64::from(number))),
    ];
    if run > 0 {
        steps.push(step("loaded", Kind::Upload, repeated(0, 2 * PROBES[1])));
    }
    steps
}
