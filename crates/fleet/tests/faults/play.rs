//! The course of a fleet: what happens, and when.

use underload_fleet::agent::Trouble;
use underload_fleet::device::DeviceId;
use underload_fleet::orchestrator::{Answer, Kind, line_setting};
use underload_fleet::request::FRESH_MS;
use underload_fleet::store::{Needs, Store as _};

use super::world::{
    Caller, Checked, Event, MINUTE_MS, Reply, Request, START_MS, World, orchestrator,
};

const CALM_MS: u64 = 60 * MINUTE_MS;
/// Time in which everything under way ends after the plan was stopped.
const DRAIN_MS: u64 = 120 * MINUTE_MS;
/// Number of devices that vanish when the plan is stopped.
const GONE: usize = 3;
/// Interval at which orchestrators settle silent devices.
const SETTLE_MS: u64 = 10_000;

/// Runs are five minutes apart, and two uploads fill a server.
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

impl World {
    fn begin(&mut self) {
        let applied = self
            .change(0, |it, tx, now_ms, _| it.apply_plan(tx, now_ms, "operator", PLAN, &[9; 32]));
        assert!(matches!(applied, Ok(Ok(_))), "{applied:?}");
        let mut tx = self.store.begin(&Needs::default()).expect("memory");
        // An operator wrote the segments of honest devices and nothing about hostile ones.
        for hostile in &self.hostile {
            let setting = line_setting(hostile.id);
            tx.put_setting(&setting, br#"{"operator":{},"changes_left":4,"day":0}"#)
                .expect("memory");
        }
        tx.commit().expect("memory");
        for place in 0..self.devices.len() {
            self.after(1, Event::DeviceStarts { place });
        }
        for place in 0..self.servers.len() {
            self.after(0, Event::ServerStarts { place });
        }
        for place in 0..self.hostile.len() {
            self.after(MINUTE_MS, Event::Attack { place });
        }
        self.after(SETTLE_MS, Event::Settle);
        self.after(MINUTE_MS, Event::Strike);
        if self.chance(20) {
            let place = self.rng.below(self.devices.len() as u32) as usize;
            let at = u64::from(self.rng.below(self.chaos_ms as u32));
            self.after(at, Event::Remove { place });
        }
    }

    /// Plays the time of faults, the calm and the end, and checks the outcomes.
    pub fn play(&mut self) -> Checked {
        self.begin();
        self.pass_until(START_MS + self.chaos_ms)?;
        self.is_calm = true;
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
        // After this time orchestrators make the outcomes of vanished devices.
        self.now_ms += 40 * 24 * 60 * MINUTE_MS;
        while self.settle(0)? > 0 {}
        self.check_the_end()
    }

    fn pass_until(&mut self, end_ms: u64) -> Checked {
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

    fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Request { orchestrator, from, sent_ms, request } => {
                return self.receive(orchestrator, from, sent_ms, &request);
            }
            Event::Reply { to, reply } if to.is_server => self.server_hears(to, reply),
            Event::Reply { to, reply } => return self.device_hears(to, reply),
            Event::Wake { place, life } => return self.device_wakes(place, life),
            Event::DeviceStarts { place } => return self.device_starts(place),
            Event::Connect { place, life } => return self.device_connects(place, life),
            Event::RunEnds { place, life } => return self.run_ends(place, life),
            Event::Heartbeat { place, life } => self.server_beats(place, life),
            Event::CheckSilence { place, life } => self.server_checks_silence(place, life),
            Event::ServerStarts { place } => self.server_starts(place),
            Event::OrchestratorStarts { place } => {
                // The orchestrator's whole state is in the store.
                self.processes[place].orchestrator = orchestrator();
                self.processes[place].is_up = true;
            }
            Event::Settle => {
                self.after(SETTLE_MS, Event::Settle);
                let place = self.rng.below(self.processes.len() as u32) as usize;
                if self.processes[place].is_up {
                    self.settle(place)?;
                }
            }
            Event::Strike => {
                if !self.is_calm {
                    let wait = 10_000 + u64::from(self.rng.below(120_000));
                    self.after(wait, Event::Strike);
                    self.strike();
                }
            }
            Event::Attack { place } => return self.attack(place),
            Event::Remove { place } => {
                let id = self.devices[place].id;
                self.devices[place].is_removed = true;
                return self
                    .must(|it, tx, now_ms, rng| it.remove_device(tx, now_ms, rng, "operator", id));
            }
        }
        Ok(())
    }

    /// Kills or cuts off one of the actors, whatever it is doing.
    fn strike(&mut self) {
        let place = self.rng.below(4) as usize;
        match self.rng.below(5) {
            0 if place < self.servers.len() => self.server_dies(place),
            1 => self.orchestrator_dies(place % 2),
            // The server is cut off from the orchestrators, but not from the devices.
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

    fn orchestrator_dies(&mut self, place: usize) {
        if std::mem::replace(&mut self.processes[place].is_up, false) {
            self.report.deaths += 1;
            let long = 1_000 + u64::from(self.rng.below(90_000));
            self.after(long, Event::OrchestratorStarts { place });
        }
    }

    fn receive(
        &mut self,
        orchestrator: usize,
        from: Caller,
        sent_ms: u64,
        request: &Request,
    ) -> Checked {
        // Orchestrators reject old requests.
        if !self.processes[orchestrator].is_up || self.now_ms - sent_ms > FRESH_MS {
            return Ok(());
        }
        if from.is_server && self.servers[from.place].cut_off_until_ms > self.now_ms {
            return Ok(());
        }
        self.report.requests += 1;
        let sender =
            if from.is_server { self.servers[from.place].id } else { self.devices[from.place].id };
        let dies_before = self.mishap(3);
        let dies_after = self.mishap(3);
        let fails = self.mishap(5);
        let done = self.try_to_answer(orchestrator, sender, request, dies_before || fails);
        if dies_before || dies_after {
            self.orchestrator_dies(orchestrator);
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
        self.send(Event::Reply { to: from, reply });
        Ok(())
    }

    pub fn try_to_answer(
        &mut self,
        at: usize,
        sender: DeviceId,
        request: &Request,
        is_lost: bool,
    ) -> Answer<Reply> {
        let done = self.change_unless(at, is_lost, |rules, tx, now_ms, rng| {
            Ok(match request {
                Request::Next(ask) => rules
                    .next(tx, now_ms, rng, sender, ask)?
                    .map(|answer| Reply::Next(Box::new(answer))),
                Request::Move(ask) => {
                    rules.move_lease(tx, now_ms, rng, sender, ask)?.map(Reply::Moved)
                }
                Request::Release(ask) => rules.release(tx, sender, ask)?.map(|_| Reply::Released),
                Request::Results(ask) => rules.results(tx, now_ms, sender, ask)?.map(Reply::Stored),
                Request::Heartbeat(ask) => {
                    rules.heartbeat(tx, now_ms, sender, ask)?.map(Reply::Heartbeat)
                }
            })
        });
        if matches!(&done, Ok(Ok(Reply::Moved(moved))) if moved.lease.is_some()) {
            self.report.moved += 1;
        }
        done
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
}
