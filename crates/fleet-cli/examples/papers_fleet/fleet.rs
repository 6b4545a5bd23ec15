//! Devices in virtual time with the real rules of an orchestrator and a real store: each device
//! enrols, requests a run at the assigned time, gets a lease, measures, releases the lease and
//! sends its results.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context, anyhow};
use data_encoding::HEXLOWER;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_aqm::rng::Rng;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Enrol, Heartbeat, Next, Numbered, Release, Results, ServerAddress};
use underload_fleet::orchestrator::{Answer, NewCode, Orchestrator, Settings};
use underload_fleet::outcome::{Outcome, RunResult, StepResult};
use underload_fleet::plan::Plan;
use underload_fleet::store::{CodeFor, Needs, Store, Transaction};

/// Requests that are committed together, as those of many devices are.
const BATCH: usize = 256;
/// The start of 2020-10-01, UTC.
pub const START_MS: u64 = 1_601_510_400_000;
const DAY_MS: u64 = 86_400_000;
const HEARTBEAT_MS: u64 = 10_000;

/// A device: the seed of its key, its line, and its finished runs.
pub struct Member<'a> {
    pub id: DeviceId,
    pub seed: [u8; 32],
    pub attributes: Attributes,
    pub runs: &'a [Vec<StepResult>],
}

#[derive(Debug, Default)]
pub struct Count {
    pub asked: u64,
    pub given: u64,
    pub handed_in: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Asks,
    Ends { lease: u64, run: u64, at_ms: u64, server: String },
}

/// A fleet under way.
pub struct Fleet<'a, S> {
    store: &'a mut S,
    orchestrator: Orchestrator,
    plan: Plan,
    members: Vec<Member<'a>>,
    servers: Vec<(DeviceId, Heartbeat)>,
    /// Requests and results of each member.
    numbers: Vec<(u64, u64)>,
    heard_ms: u64,
    rng: Rng,
    pub count: Count,
}

fn done<T>(answer: Answer<T>) -> anyhow::Result<T> {
    answer?.map_err(|rejection| anyhow!("{}: {}", rejection.code, rejection.message))
}

pub fn key(seed: &[u8; 32]) -> anyhow::Result<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(seed).map_err(|error| anyhow!("a key: {error}"))
}

impl<'a, S: Store> Fleet<'a, S> {
    /// Applies the plan, and enrols its servers and all members.
    pub fn enrol(
        store: &'a mut S,
        text: &str,
        members: Vec<Member<'a>>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let plan = Plan::parse(text)?;
        let settings = Settings { poll_ms: DAY_MS, ..Settings::default() };
        let mut fleet = Self {
            store,
            orchestrator: Orchestrator::new(settings, key(&[7; 32])?, [9; 32]),
            numbers: vec![(0, 0); members.len()],
            members,
            servers: Vec::new(),
            heard_ms: 0,
            rng: Rng::new(seed).child("fleet"),
            count: Count::default(),
            plan,
        };
        fleet.apply(text)?;
        fleet.enrol_servers()?;
        fleet.enrol_members()?;
        Ok(fleet)
    }

    fn apply(&mut self, text: &str) -> anyhow::Result<()> {
        let mut tx = self.store.begin(&Needs::default())?;
        done(self.orchestrator.apply_plan(tx.as_mut(), START_MS, "study", text, &[3; 32]))?;
        Ok(tx.commit()?)
    }

    fn enrol_servers(&mut self) -> anyhow::Result<()> {
        for number in 0..self.plan.servers.count {
            let address = ServerAddress {
                name: format!("server{number}"),
                address: format!("192.0.2.{}:4433", number + 1),
                fingerprint: format!("sha256:{}", "0".repeat(64)),
            };
            let mut seed = [1; 32];
            seed[..4].copy_from_slice(&number.to_be_bytes());
            let mut tx = self.store.begin(&Needs::default())?;
            let who = Newcomer { seed, makes: CodeFor::Server, attributes: Attributes::default() };
            let id = enrol(&self.orchestrator, tx.as_mut(), &who, Some(address.clone()))?;
            tx.commit()?;
            let capacity = self.plan.servers.capacity.bits_per_second();
            let heartbeat = Heartbeat {
                address,
                up_bit_per_s: capacity,
                down_bit_per_s: capacity,
                sessions: 0,
                carried_up_bit_per_s: 0,
                carried_down_bit_per_s: 0,
                ended: Vec::new(),
                held: None,
                is_leaving: false,
            };
            self.servers.push((id, heartbeat));
        }
        Ok(())
    }

    fn enrol_members(&mut self) -> anyhow::Result<()> {
        for batch in self.members.chunks(BATCH) {
            let mut tx = self.store.begin(&Needs::default())?;
            for member in batch {
                let attributes = member.attributes.clone();
                let who = Newcomer { seed: member.seed, makes: CodeFor::Device, attributes };
                enrol(&self.orchestrator, tx.as_mut(), &who, None)?;
            }
            tx.commit()?;
        }
        Ok(())
    }

    /// Runs the fleet for `days` days.
    pub fn pass(&mut self, days: u64) -> anyhow::Result<()> {
        let mut events = BinaryHeap::new();
        for member in 0..self.members.len() {
            let begins_ms = START_MS + u64::from(self.rng.below(DAY_MS as u32));
            events.push(Reverse((begins_ms, member, Event::Asks)));
        }
        let end_ms = START_MS + days * DAY_MS;
        while let Some(Reverse((first_ms, ..))) = events.peek().cloned() {
            if first_ms >= end_ms {
                break;
            }
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Some(next) = events.peek_mut()
                && next.0.0 < (first_ms + HEARTBEAT_MS).min(end_ms)
            {
                batch.push(std::collections::binary_heap::PeekMut::pop(next).0);
            }
            for (at_ms, member, event) in self.commit(batch)? {
                events.push(Reverse((at_ms, member, event)));
            }
        }
        Ok(())
    }

    /// Answers requests in one transaction. Returns the events that follow.
    fn commit(
        &mut self,
        batch: Vec<(u64, usize, Event)>,
    ) -> anyhow::Result<Vec<(u64, usize, Event)>> {
        let mut tx = self.store.begin(&Needs { admits: true, ..Needs::default() })?;
        let mut next = Vec::new();
        for (now_ms, place, event) in batch {
            if now_ms >= self.heard_ms + HEARTBEAT_MS {
                for (id, heartbeat) in &self.servers {
                    done(self.orchestrator.heartbeat(tx.as_mut(), now_ms, *id, heartbeat))?;
                }
                self.heard_ms = now_ms;
            }
            let member = &self.members[place];
            let (requests, sequence) = &mut self.numbers[place];
            match event {
                Event::Asks => {
                    *requests += 1;
                    self.count.asked += 1;
                    let drawn = f64::from(self.rng.below(1 << 20)) / f64::from(1 << 20);
                    let asks = asks(*requests, drawn < self.plan.lines.busy);
                    let rng = &mut self.rng;
                    let answer = self.orchestrator.next(tx.as_mut(), now_ms, rng, member.id, &asks);
                    let answer = done(answer)?;
                    let Some(run) = answer.run else {
                        self.count.refused += u64::from(answer.refusal.is_some());
                        next.push((answer.next_poll_ms.max(now_ms + 1), place, Event::Asks));
                        continue;
                    };
                    self.count.given += 1;
                    let begins_ms = run.not_before_ms.max(now_ms);
                    let lasts = run.steps.iter().map(|step| step.duration_ms + step.warm_up_ms);
                    let server = run.servers.first().map(|server| server.name.clone());
                    let (server, lease) = (server.unwrap_or_default(), run.lease_id);
                    let ends = Event::Ends { lease, run: run.run, at_ms: begins_ms, server };
                    next.push((begins_ms + lasts.sum::<u64>(), place, ends));
                }
                Event::Ends { lease, run, at_ms, server } => {
                    let release = Release { lease_id: lease };
                    done(self.orchestrator.release(tx.as_mut(), member.id, &release))?;
                    *sequence += 1;
                    let drawn = self.rng.below(member.runs.len() as u32) as usize;
                    let (plan, steps) = (self.plan.name.clone(), member.runs[drawn].clone());
                    let result = RunResult { plan, run, at_ms, server, steps, ..measured() };
                    let numbered = Numbered { sequence: *sequence, result };
                    let results = Results { epoch: 1, results: vec![numbered] };
                    let stored =
                        self.orchestrator.results(tx.as_mut(), now_ms, member.id, &results);
                    self.count.handed_in += u64::from(done(stored)?.new);
                    next.push((now_ms + 1_000, place, Event::Asks));
                }
            }
        }
        tx.commit()?;
        Ok(next)
    }
}

/// The request of a device that has no results to hand in.
fn asks(request: u64, is_busy: bool) -> Next {
    Next { epoch: 1, request, is_busy, waiting: 0, dropped: 0, attributes: None }
}

/// Returns the fields that all simulated results share.
fn measured() -> RunResult {
    RunResult {
        plan: String::new(),
        run: 0,
        at_ms: 0,
        outcome: Outcome::Measured,
        reason: String::new(),
        server: String::new(),
        version: "simulated".to_owned(),
        steps: Vec::new(),
    }
}

struct Newcomer {
    seed: [u8; 32],
    makes: CodeFor,
    attributes: Attributes,
}

fn enrol(
    orchestrator: &Orchestrator,
    tx: &mut dyn Transaction,
    who: &Newcomer,
    server: Option<ServerAddress>,
) -> anyhow::Result<DeviceId> {
    let pair = key(&who.seed)?;
    let secret = who.seed.first_chunk::<16>().context("32 bytes")?;
    let code = NewCode {
        makes: who.makes,
        attributes: who.attributes.clone(),
        line: String::new(),
        valid_ms: DAY_MS,
        secret: *secret,
    };
    let code = done(orchestrator.new_codes(tx, START_MS, "study", &[code]))?.remove(0);
    let enrol = Enrol {
        proof: HEXLOWER.encode(pair.sign(code.as_bytes()).as_ref()),
        code,
        public_key: HEXLOWER.encode(pair.public_key().as_ref()),
        attributes: Attributes::default(),
        server,
    };
    Ok(done(orchestrator.enrol(tx, START_MS, &enrol))?.device)
}
