//! What has to hold.

use std::collections::{BTreeMap, BTreeSet};

use super::server::Session;
use super::world::{CAPACITY, Held, World};
use crate::message::Numbered;
use crate::orchestrator::MADE_EPOCH;
use crate::store::{Archive as _, Device, Filter, Server};

/// What happened, for those who count in the end.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Runs that a device was given, by its place.
    given: BTreeSet<(usize, u64)>,
    began: BTreeSet<(usize, u64)>,
    /// Devices whose runs began since all is well.
    ran_in_calm: BTreeSet<usize>,
    is_calm: bool,
    /// Device, epoch, sequence and run.
    acknowledged: Vec<(usize, u32, u64, u64)>,
    /// The first run that is not known to have been due, by device.
    next: BTreeMap<usize, u64>,
}

impl Ledger {
    pub fn calm_begins(&mut self) {
        self.is_calm = true;
    }

    pub fn given(&mut self, place: usize, run: u64) {
        self.given.insert((place, run));
    }

    pub fn began(&mut self, place: usize, run: u64) -> Held {
        if !self.began.insert((place, run)) {
            return Err(format!("run {run} of device {place} was made twice"));
        }
        if self.is_calm {
            self.ran_in_calm.insert(place);
        }
        Ok(())
    }

    pub fn acknowledged(&mut self, place: usize, epoch: u32, it: &Numbered) {
        self.acknowledged.push((place, epoch, it.sequence, it.result.run));
    }
}

fn rows(world: &mut World) -> Result<(Vec<Device>, Vec<Server>), String> {
    let devices = world.store.devices(&Filter::default(), None, 1_000);
    let servers = world.store.servers();
    Ok((devices.map_err(|error| error.to_string())?, servers.map_err(|error| error.to_string())?))
}

impl World {
    /// What is really carried when a device's run has begun.
    pub fn check_load(&self, at: usize, place: usize) -> Held {
        let leased = |session: &Session| session.claims.clone();
        let here: Vec<_> = self.servers[at].sessions.values().filter_map(leased).collect();
        let up: u64 = here.iter().map(|claims| claims.up_bit_per_s).sum();
        let down: u64 = here.iter().map(|claims| claims.down_bit_per_s).sum();
        if up.max(down) > CAPACITY {
            return Err(format!("server {at} carries {up} up and {down} down"));
        }
        let loading = self.servers.iter().flat_map(|server| &server.sessions);
        let loading: Vec<_> =
            loading.filter(|(_, it)| it.claims.is_some()).map(|(place, _)| *place).collect();
        if loading.iter().filter(|other| **other == place).count() > 1 {
            return Err(format!("device {place} runs twice at once"));
        }
        let segment = self.devices[place].segment;
        let neighbours = loading.iter().filter(|other| self.devices[**other].segment == segment);
        if neighbours.count() > 1 {
            return Err(format!("segment {segment} is loaded twice"));
        }
        Ok(())
    }

    /// What is reserved is what is leased.
    pub fn check_reservations(&mut self) -> Held {
        let leases = self.store.leases();
        let (_, servers) = rows(self)?;
        for server in servers {
            let here = || leases.iter().filter(|lease| lease.server == server.address.name);
            let up: u64 = here().map(|lease| lease.up_bit_per_s).sum();
            let down: u64 = here().map(|lease| lease.down_bit_per_s).sum();
            let reserved = (server.reserved_up_bit_per_s, server.reserved_down_bit_per_s);
            if reserved != (up, down) || up.max(down) > CAPACITY {
                let name = server.address.name;
                return Err(format!("{name} has {reserved:?} reserved, leased are {up}, {down}"));
            }
        }
        let (mut devices, mut segments) = (BTreeSet::new(), BTreeSet::new());
        for lease in &leases {
            if !devices.insert(lease.device) {
                return Err(format!("{} holds two leases", lease.device));
            }
            if lease.segment.as_ref().is_some_and(|segment| !segments.insert(segment)) {
                return Err(format!("two leases load {:?}", lease.segment));
            }
        }
        Ok(())
    }

    /// Who just looked has freed what was over.
    pub fn check_expiries(&self, now_ms: u64) -> Held {
        let over = self.store.leases().into_iter().find(|lease| lease.expires_ms <= now_ms);
        over.map_or(Ok(()), |lease| Err(format!("lease {} outlives its expiry", lease.id)))
    }

    /// Every device has run since all is well.
    pub fn check_all_run_again(&self) -> Held {
        for (place, device) in self.devices.iter().enumerate() {
            if !device.is_removed && !self.ledger.ran_in_calm.contains(&place) {
                return Err(format!("device {place} does not run any more"));
            }
        }
        Ok(())
    }

    /// Remembers how far each device's runs are.
    pub fn check_numbers_go_on(&mut self) -> Held {
        let (rows, _) = rows(self)?;
        for (place, device) in self.devices.iter().enumerate() {
            let row = rows.iter().find(|row| row.id == device.id).ok_or("a device is gone")?;
            let next = row.schedules.first().map_or(1, |schedule| schedule.run);
            self.ledger.next.insert(place, next);
            if self.ledger.given.iter().any(|(of, run)| *of == place && *run >= next) {
                return Err(format!("device {place} was given a run that is not counted"));
            }
        }
        Ok(())
    }

    /// What was kept is what happened.
    pub fn check_the_end(&mut self) -> Held {
        if let Some(lease) = self.store.leases().first() {
            return Err(format!("lease {} is there in the end", lease.id));
        }
        for place in 0..self.devices.len() {
            self.check_outcomes(place)?;
        }
        Ok(())
    }

    fn check_outcomes(&mut self, place: usize) -> Held {
        let device = &self.devices[place];
        let kept = self.store.results().into_iter().filter(|kept| kept.device == device.id);
        let (mut of_run, mut alone) = (BTreeMap::new(), BTreeSet::new());
        for kept in kept {
            self.report.outcomes += 1;
            self.report.made += u64::from(kept.epoch == MADE_EPOCH);
            let numbers = (kept.epoch, kept.sequence);
            if kept.result.run == 0 {
                alone.insert(numbers);
            } else if let Some(other) = of_run.insert(kept.result.run, numbers) {
                let run = kept.result.run;
                return Err(format!("run {run} of device {place}: {other:?} and {numbers:?}"));
            }
        }
        let due = self.ledger.next.get(&place).map_or(1, |next| *next);
        let last = of_run.keys().last().copied().unwrap_or(0).max(due - 1);
        if let Some(missing) = (1..=last).find(|run| !of_run.contains_key(run)) {
            return Err(format!("run {missing} of device {place} has no outcome"));
        }
        for (of, epoch, sequence, run) in &self.ledger.acknowledged {
            if *of != place {
                continue;
            }
            let is_kept = if *run == 0 {
                alone.contains(&(*epoch, *sequence))
            } else {
                let kept = of_run.get(run);
                // What was on its way while the disk was lost has no claim to be first.
                kept == Some(&(*epoch, *sequence)) || device.has_forgotten && kept.is_some()
            };
            if !is_kept {
                let result = format!("({epoch}, {sequence}) of run {run}");
                return Err(format!("device {place}: {result} was acknowledged and is not kept"));
            }
        }
        if !device.is_removed && !device.is_gone && device.waiting() > 0 {
            return Err(format!("device {place} still waits to hand in"));
        }
        Ok(())
    }
}
