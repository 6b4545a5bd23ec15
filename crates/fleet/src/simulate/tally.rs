//! Counters of a simulation, and its outcome.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Settings;
use crate::admission::{Reason, Refusal, ServerLoad};
use crate::plan::Plan;
use crate::schedule::DAY;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Lines that were measured.
    pub lines: u32,
    pub days: u32,
    /// Runs that were due.
    pub scheduled: u64,
    pub done: u64,
    /// Runs whose line vanished during the run.
    pub vanished: u64,
    /// Runs that never began, by the reason of their last refusal.
    pub given_up: BTreeMap<String, u64>,
    /// Refusals by reason; one run may be refused several times.
    pub refusals: BTreeMap<String, u64>,
    /// Mean over the days.
    pub requests_per_s: f64,
    /// The 99.9th percentile of the requests in each second.
    pub requests_per_s_p999: u32,
    pub requests_per_s_max: u32,
    /// Reserved share of all servers in the fuller direction, mean over the days, percent.
    pub servers_reserved_percent: f64,
    /// Highest value of the reserved share, percent.
    pub servers_reserved_max_percent: f64,
    /// Runs that found the servers full at their first request, percent.
    pub blocked_percent: f64,
    /// Runs that loaded a segment together with another run, percent.
    pub overlap_percent: f64,
    /// Leases at the end; 0 unless a rule is wrong.
    pub leases_left: usize,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub scheduled: u64,
    started: u64,
    overlapping: u64,
    done: u64,
    pub vanished: u64,
    given_up: BTreeMap<Reason, u64>,
    refusals: BTreeMap<Reason, u64>,
    first_asked: u64,
    first_blocked: u64,
    this_second: u32,
    requests: Vec<u32>,
    reserved: Vec<f64>,
}

impl Tally {
    pub fn asked(&mut self, is_first: bool, refused: Option<Refusal>) {
        self.this_second += 1;
        if is_first {
            self.first_asked += 1;
            self.first_blocked += u64::from(refused == Some(Refusal::ServersFull));
        }
    }

    pub fn started(&mut self, is_overlapping: bool) {
        self.started += 1;
        self.overlapping += u64::from(is_overlapping);
    }

    /// Counts a run that is done: its lease is released, and its result sent.
    pub fn finish(&mut self) {
        self.this_second += 2;
        self.done += 1;
    }
    pub fn refuse(&mut self, reason: Reason) {
        *self.refusals.entry(reason).or_default() += 1;
    }

    pub fn give_up(&mut self, reason: Reason) {
        *self.given_up.entry(reason).or_default() += 1;
    }

    pub fn sample_reservations(&mut self, servers: &[ServerLoad]) {
        let (mut up, mut down, mut capacity) = (0.0, 0.0, 0.0);
        for server in servers {
            up += server.reserved.up as f64;
            down += server.reserved.down as f64;
            capacity += server.capacity.up as f64;
        }
        self.reserved.push(if capacity > 0.0 { up.max(down) / capacity * 100.0 } else { 0.0 });
    }

    pub fn end_second(&mut self) {
        self.requests.push(std::mem::take(&mut self.this_second));
    }

    pub fn outcome(self, plan: &Plan, settings: &Settings, leases_left: usize) -> Outcome {
        let seconds = settings.days as usize * (DAY.as_nanos() / 1_000_000_000) as usize;
        let mut requests: Vec<u32> = self.requests;
        let all: u64 = requests.iter().map(|count| u64::from(*count)).sum();
        requests.truncate(seconds);
        requests.sort_unstable();
        let samples = settings.days as usize * samples_per_day();
        let reserved = &self.reserved[..samples.min(self.reserved.len())];
        let percent = |part: u64, of: u64| part as f64 / of.max(1) as f64 * 100.0;
        let named = |counts: BTreeMap<Reason, u64>| {
            counts.into_iter().map(|(reason, count)| (reason.words().to_owned(), count)).collect()
        };
        Outcome {
            lines: plan.lines.sample,
            days: settings.days,
            scheduled: self.scheduled,
            done: self.done,
            vanished: self.vanished,
            given_up: named(self.given_up),
            refusals: named(self.refusals),
            requests_per_s: all as f64 / seconds as f64,
            requests_per_s_p999: requests[(seconds * 999).div_ceil(1_000) - 1],
            requests_per_s_max: requests[seconds - 1],
            servers_reserved_percent: reserved.iter().sum::<f64>() / reserved.len() as f64,
            servers_reserved_max_percent: reserved.iter().fold(0.0, |most, it| most.max(*it)),
            blocked_percent: percent(self.first_blocked, self.first_asked),
            overlap_percent: percent(self.overlapping, self.started),
            leases_left,
        }
    }
}

const fn samples_per_day() -> usize {
    (DAY.as_nanos() / 1_000_000_000 / super::HEARTBEAT_SECONDS) as usize
}
