//! Time, the network, the orchestrators and their store.

use std::collections::BTreeMap;

use ring::signature::Ed25519KeyPair;
use underload_aqm::rng::Rng;

use super::Report;
use super::check::Ledger;
use super::device::Device;
use super::hostile::Hostile;
use super::server::Server;
use crate::agent::Trouble;
use crate::device::{Attributes, DeviceId};
use crate::lease::SKEW_MS;
use crate::message::{
    Heartbeat, HeartbeatAnswer, Move, Moved, Next, NextAnswer, Release, Results, Stored,
};
use crate::orchestrator::{Answer, Kind, Orchestrator, Settings, line_setting};
use crate::request::FRESH_MS;
use crate::store::{self, Memory, Needs, Store as _, StoreError, Transaction};

/// Milliseconds since 1970.
pub(super) const START_MS: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;
/// Everything goes wrong for so long,
const CHAOS_MS: u64 = 90 * MINUTE_MS;
/// all is well for so long,
const CALM_MS: u64 = 60 * MINUTE_MS;
/// and after the plan was stopped what is under way ends within so long.
const DRAIN_MS: u64 = 120 * MINUTE_MS;
/// So many devices are never heard of again from then on.
const GONE: usize = 3;
/// Who asked waits for an answer for so long.
pub(super) const TIMEOUT_MS: u64 = 10_000;
/// Orchestrators look after the silent so often.
const SETTLE_MS: u64 = 10_000;

/// Five minutes from run to run; two uploads fill a server.
const PLAN: &str = r#"
name = "trial"
title = "many runs"
runs_per_day = 288
start_within = "10min"
[lines]
count = 1000
[[tier]]
up = "100mbit"
down = "100mbit"
[[step]]
name = "idle"
kind = "latency"
duration = "5s"
[[step]]
name = "loaded"
kind = "upload"
duration = "12s"
[servers]
count = 2
capacity = "202mbit"
"#;
pub(super) const CAPACITY: u64 = 202_000_000;

/// What is asked of an orchestrator.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Next(Next),
    Move(Move),
    Release(Release),
    Results(Results),
    Heartbeat(Heartbeat),
}

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Next(Box<NextAnswer>),
    Moved(Moved),
    Released,
    Stored(Stored),
    Heartbeat(HeartbeatAnswer),
}

/// Who asks: a device or a server by its place, in which of its lives, and which of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Device { place: usize, life: u64, call: u64 },
    Server { place: usize, life: u64, call: u64 },
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    Asked {
        orchestrator: usize,
        by: Caller,
        sent_ms: u64,
        request: Request,
    },
    Answered {
        to: Caller,
        reply: Result<Reply, Trouble>,
    },
    /// A device looks what to do.
    Wakes {
        place: usize,
        life: u64,
    },
    DeviceStarts {
        place: usize,
    },
    Connects {
        place: usize,
        life: u64,
    },
    RunEnds {
        place: usize,
        life: u64,
    },
    Beats {
        place: usize,
        life: u64,
    },
    /// A server looks whether it is cut off.
    LooksUp {
        place: usize,
        life: u64,
    },
    ServerStarts {
        place: usize,
    },
    OrchestratorStarts {
        place: usize,
    },
    Settles,
    /// Somebody dies.
    Strikes,
    /// A hostile device sends a request.
    Attacks {
        place: usize,
    },
    /// An operator removes a device.
    Removes {
        place: usize,
    },
}

pub(super) struct Process {
    orchestrator: Orchestrator,
    is_up: bool,
    /// How far its clock is ahead.
    ahead_ms: u64,
}

pub(super) struct World {
    pub now_ms: u64,
    pub rng: Rng,
    pub report: Report,
    pub ledger: Ledger,
    pub is_calm: bool,
    pub is_stopped: bool,
    pub devices: Vec<Device>,
    pub servers: Vec<Server>,
    pub hostile: Vec<Hostile>,
    pub store: Memory,
    chaos_ms: u64,
    processes: Vec<Process>,
    events: BTreeMap<(u64, u64), Event>,
    added: u64,
}

/// Why a world ends early.
pub(super) type Held = Result<(), String>;

fn orchestrator() -> Orchestrator {
    let key = Ed25519KeyPair::from_seed_unchecked(&[5; 32]).expect("any seed is a key");
    // Devices hear of what is new within minutes.
    let settings = Settings { poll_ms: 5 * MINUTE_MS, ..Settings::default() };
    Orchestrator::new(settings, key, [6; 32])
}

impl World {
    pub fn new(mut rng: Rng) -> Self {
        let devices = 2 + rng.below(5) as usize;
        let servers = 1 + rng.below(3) as usize;
        let segments = 1 + rng.below(3);
        Self::sized([devices, servers, 0], segments, CHAOS_MS, rng)
    }

    /// Eighteen devices and two hostile ones, which do nothing unless `is_attacked`.
    pub fn with_hostile(rng: Rng, hours: u64, is_attacked: bool) -> Self {
        let hostile = if is_attacked { 2 } else { 0 };
        Self::sized([18, 6, hostile], 18, hours * 60 * MINUTE_MS, rng)
    }

    fn sized(
        [devices, servers, hostile]: [usize; 3],
        segments: u32,
        chaos_ms: u64,
        mut rng: Rng,
    ) -> Self {
        // Two of them, whose clocks are half a second apart at most.
        let processes = [0, u64::from(rng.below(500))].map(|ahead_ms| Process {
            orchestrator: orchestrator(),
            is_up: true,
            ahead_ms,
        });
        let mut world = Self {
            now_ms: START_MS,
            report: Report::default(),
            ledger: Ledger::default(),
            is_calm: false,
            is_stopped: false,
            devices: (0..devices).map(|place| Device::new(place, rng.below(segments))).collect(),
            servers: (0..servers).map(|place| Server::new(place, &mut rng)).collect(),
            hostile: (0..hostile).map(Hostile::new).collect(),
            store: Memory::new(),
            chaos_ms,
            processes: processes.into(),
            events: BTreeMap::new(),
            added: 0,
            rng,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let applied = self
            .change(0, |it, tx, now_ms, _| it.apply_plan(tx, now_ms, "operator", PLAN, &[9; 32]));
        assert!(matches!(applied, Ok(Ok(_))), "{applied:?}");
        let hostile = self.hostile.iter().map(Hostile::row);
        let devices: Vec<_> = self.devices.iter().map(Device::row).chain(hostile).collect();
        let servers: Vec<_> = self.servers.iter().map(Server::row).collect();
        let mut tx = self.store.begin(&Needs::default()).expect("memory");
        devices.iter().try_for_each(|row| tx.put_device(row)).expect("memory");
        // An operator wrote the segments of honest devices and nothing about hostile ones.
        for hostile in &self.hostile {
            let setting = line_setting(hostile.id);
            tx.put_setting(&setting, br#"{"operator":{}}"#).expect("memory");
        }
        servers.iter().try_for_each(|row| tx.put_server(row)).expect("memory");
        tx.commit().expect("memory");
        for place in 0..self.devices.len() {
            self.after(1, Event::DeviceStarts { place });
        }
        for place in 0..self.servers.len() {
            self.after(0, Event::ServerStarts { place });
        }
        for place in 0..self.hostile.len() {
            self.after(MINUTE_MS, Event::Attacks { place });
        }
        self.after(SETTLE_MS, Event::Settles);
        self.after(MINUTE_MS, Event::Strikes);
        if self.chance(20) {
            let place = self.rng.below(self.devices.len() as u32) as usize;
            let at = u64::from(self.rng.below(self.chaos_ms as u32));
            self.after(at, Event::Removes { place });
        }
    }

    /// Chaos, calm, the end, and whether all was kept.
    pub fn pass(&mut self) -> Held {
        self.pass_until(START_MS + self.chaos_ms)?;
        self.is_calm = true;
        self.ledger.calm_begins();
        self.pass_until(START_MS + self.chaos_ms + CALM_MS)?;
        self.check_all_run_again()?;
        self.check_numbers_go_on()?;
        self.is_stopped = true;
        for _ in 0..GONE {
            let place = self.rng.below(self.devices.len() as u32) as usize;
            self.device_goes(place);
        }
        self.must(|it, tx, now_ms, _| it.stop_plan(tx, now_ms, "operator", "trial"))?;
        self.pass_until(START_MS + self.chaos_ms + CALM_MS + DRAIN_MS)?;
        // Who never came back is spoken for.
        self.now_ms += 40 * 24 * 60 * MINUTE_MS;
        while self.settle(0)? > 0 {}
        self.check_the_end()
    }

    fn pass_until(&mut self, end_ms: u64) -> Held {
        while let Some(next) = self.events.first_entry() {
            let (at_ms, _) = *next.key();
            if at_ms > end_ms {
                break;
            }
            let event = next.remove();
            self.now_ms = at_ms;
            self.happen(event)?;
        }
        self.now_ms = end_ms;
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Held {
        match event {
            Event::Asked { orchestrator, by, sent_ms, request } => {
                self.asked(orchestrator, by, sent_ms, &request)
            }
            Event::Answered { to: Caller::Device { place, life, call }, reply } => {
                self.device_hears(place, life, call, reply)
            }
            Event::Answered { to: Caller::Server { place, life, call }, reply } => {
                self.server_hears(place, life, call, reply);
                Ok(())
            }
            Event::Wakes { place, life } => self.device_wakes(place, life),
            Event::DeviceStarts { place } => self.device_starts(place),
            Event::Connects { place, life } => self.device_connects(place, life),
            Event::RunEnds { place, life } => self.run_ends(place, life),
            Event::Beats { place, life } => {
                self.server_beats(place, life);
                Ok(())
            }
            Event::LooksUp { place, life } => {
                self.server_looks_up(place, life);
                Ok(())
            }
            Event::ServerStarts { place } => {
                self.server_starts(place);
                Ok(())
            }
            Event::OrchestratorStarts { place } => {
                // It knows nothing that is not in the store.
                self.processes[place].orchestrator = orchestrator();
                self.processes[place].is_up = true;
                Ok(())
            }
            Event::Settles => {
                self.after(SETTLE_MS, Event::Settles);
                let place = self.rng.below(self.processes.len() as u32) as usize;
                if self.processes[place].is_up {
                    self.settle(place)?;
                }
                Ok(())
            }
            Event::Strikes => {
                if !self.is_calm {
                    let wait = 10_000 + u64::from(self.rng.below(120_000));
                    self.after(wait, Event::Strikes);
                    self.strike();
                }
                Ok(())
            }
            Event::Attacks { place } => self.attacks(place),
            Event::Removes { place } => {
                let id = self.devices[place].id;
                self.devices[place].is_removed = true;
                self.must(|it, tx, now_ms, rng| it.remove_device(tx, now_ms, rng, "operator", id))
            }
        }
    }

    /// Somebody dies, anywhere in what it does.
    fn strike(&mut self) {
        let place = self.rng.below(4) as usize;
        match self.rng.below(5) {
            0 if place < self.servers.len() => self.server_dies(place),
            1 => self.orchestrator_dies(place % 2),
            // Cut off from the orchestrators, but not from the devices.
            2 if place < self.servers.len() => {
                let long = 20_000 + u64::from(self.rng.below(60_000));
                self.servers[place].cut_off_until_ms = self.now_ms + long;
            }
            _ => {
                let place = self.rng.below(self.devices.len() as u32) as usize;
                self.device_dies(place);
            }
        }
    }

    pub fn is_up(&self, orchestrator: usize) -> bool {
        self.processes[orchestrator].is_up
    }

    fn orchestrator_dies(&mut self, place: usize) {
        if std::mem::replace(&mut self.processes[place].is_up, false) {
            self.report.deaths += 1;
            let long = 1_000 + u64::from(self.rng.below(90_000));
            self.after(long, Event::OrchestratorStarts { place });
        }
    }

    pub fn after(&mut self, wait_ms: u64, event: Event) {
        self.added += 1;
        self.events.insert((self.now_ms + wait_ms, self.added), event);
    }

    /// In so many of 1000 cases; never once all is well.
    pub fn mishap(&mut self, per_mille: u32) -> bool {
        !self.is_calm && self.rng.below(1_000) < per_mille
    }

    /// In so many of 100 cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.below(100) < percent
    }

    /// A message that may be lost, doubled, late, and behind others that were sent later.
    pub fn send(&mut self, event: Event) {
        if self.mishap(30) {
            self.report.mishaps += 1;
            return;
        }
        if self.mishap(30) {
            self.report.mishaps += 1;
            let late = self.late_ms();
            self.after(late, event.clone());
        }
        let wait = if self.mishap(20) {
            self.report.mishaps += 1;
            self.late_ms()
        } else {
            10 + u64::from(self.rng.below(100))
        };
        self.after(wait, event);
    }

    fn late_ms(&mut self) -> u64 {
        let most = [1_000, 20_000, 120_000, 400_000][self.rng.below(4) as usize];
        u64::from(self.rng.below(most))
    }

    /// A request arrives.
    fn asked(&mut self, at: usize, by: Caller, sent_ms: u64, request: &Request) -> Held {
        // An old request is not believed, whoever repeats it.
        if !self.processes[at].is_up || self.now_ms - sent_ms > FRESH_MS {
            return Ok(());
        }
        if let Caller::Server { place, .. } = by
            && self.servers[place].cut_off_until_ms > self.now_ms
        {
            return Ok(());
        }
        self.report.requests += 1;
        let sender = match by {
            Caller::Device { place, .. } => self.devices[place].id,
            Caller::Server { place, .. } => self.servers[place].id,
        };
        let dies_before = self.mishap(3);
        let dies_after = self.mishap(3);
        let fails = self.mishap(5);
        let done = self.try_to_answer(at, sender, request, dies_before || fails);
        if dies_before || dies_after {
            self.orchestrator_dies(at);
            return if dies_before { Ok(()) } else { self.check_reservations() };
        }
        let reply = match done {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(rejection)) => Err(match rejection.kind {
                Kind::Gone => Trouble::Removed { at_ms: self.now_ms },
                Kind::Conflict => Trouble::Outdated,
                Kind::BadRequest | Kind::TooLarge => Trouble::Unfit,
                _ => Trouble::Refused,
            }),
            Err(_) => Err(Trouble::Later { after_ms: 5_000 }),
        };
        if let Err(trouble @ (Trouble::Unfit | Trouble::Refused)) = &reply {
            return Err(format!("{request:?} was refused: {trouble:?}"));
        }
        self.check_reservations()?;
        self.send(Event::Answered { to: by, reply });
        Ok(())
    }

    pub fn try_to_answer(
        &mut self,
        at: usize,
        sender: DeviceId,
        request: &Request,
        is_lost: bool,
    ) -> Answer<Reply> {
        let done = self.change_unless(at, is_lost, |it, tx, now_ms, rng| {
            Ok(match request {
                Request::Next(ask) => it
                    .next(tx, now_ms, rng, sender, ask)?
                    .map(|answer| Reply::Next(Box::new(answer))),
                Request::Move(ask) => {
                    it.move_lease(tx, now_ms, rng, sender, ask)?.map(Reply::Moved)
                }
                Request::Release(ask) => it.release(tx, sender, ask)?.map(|_| Reply::Released),
                Request::Results(ask) => it.results(tx, now_ms, sender, ask)?.map(Reply::Stored),
                Request::Heartbeat(ask) => {
                    it.heartbeat(tx, now_ms, sender, ask)?.map(Reply::Heartbeat)
                }
            })
        });
        if matches!(&done, Ok(Ok(Reply::Moved(moved))) if moved.lease.is_some()) {
            self.report.moved += 1;
        }
        done
    }

    fn change<T>(
        &mut self,
        at: usize,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Answer<T> {
        self.change_unless(at, false, by)
    }

    /// A transaction, which is taken back where it fails or is lost.
    fn change_unless<T>(
        &mut self,
        at: usize,
        is_lost: bool,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Answer<T> {
        let process = &self.processes[at];
        let now_ms = self.now_ms + process.ahead_ms;
        let mut tx = self.store.begin(&Needs::default())?;
        let done = by(&process.orchestrator, &mut *tx, now_ms, &mut self.rng)?;
        if is_lost {
            return Err(StoreError::temporary("the disk is full"));
        }
        tx.commit()?;
        Ok(done)
    }

    fn must<T>(
        &mut self,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Held {
        match self.change(0, by) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(rejection)) => Err(rejection.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn settle(&mut self, at: usize) -> Result<usize, String> {
        let now_ms = self.now_ms + self.processes[at].ahead_ms;
        let settled = self
            .change(at, |it, tx, now_ms, rng| Ok(Ok(it.settle(tx, now_ms, rng, 64)?)))
            .map_err(|error| error.to_string())?
            .map_err(|rejection| rejection.to_string())?;
        self.check_reservations()?;
        self.check_expiries(now_ms)?;
        Ok(settled)
    }

    /// How far a server's clock is off, at most as far as leases allow for.
    pub fn server_clock_ms(&self, place: usize) -> u64 {
        (self.now_ms + self.servers[place].ahead_ms).saturating_sub(SKEW_MS / 2)
    }
}

/// The attributes of a line in that segment.
pub(super) fn line_in(segment: u32) -> Attributes {
    Attributes { segment: format!("segment-{segment}"), ..Attributes::default() }
}

pub(super) fn id_of(kind: u8, place: usize) -> DeviceId {
    let mut id = [kind; 16];
    id[0] = place as u8;
    DeviceId(id)
}

impl store::Server {
    /// A server that was never heard of.
    pub(super) fn enrolled(address: crate::message::ServerAddress, device: DeviceId) -> Self {
        Self {
            address,
            device,
            public_key: [0; 32],
            is_removed: false,
            up_bit_per_s: 0,
            down_bit_per_s: 0,
            reserved_up_bit_per_s: 0,
            reserved_down_bit_per_s: 0,
            carried_up_bit_per_s: 0,
            carried_down_bit_per_s: 0,
            sessions: 0,
            heard_ms: 0,
        }
    }
}

impl store::Device {
    /// A device that has not asked yet.
    pub(super) fn enrolled(id: DeviceId, attributes: Attributes) -> Self {
        Self {
            id,
            public_key: [0; 32],
            attributes,
            enrolled_ms: START_MS,
            seen_ms: START_MS,
            is_removed: false,
            epoch: 0,
            request: 0,
            waiting: 0,
            dropped: 0,
            schedules: Vec::new(),
            settle_ms: u64::MAX,
            made: 0,
        }
    }
}
