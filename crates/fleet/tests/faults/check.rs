//! The promises that are checked after each step.

use std::collections::{BTreeMap, BTreeSet};

use underload_fleet::lease::Claims;
use underload_fleet::orchestrator::MADE_EPOCH;
use underload_fleet::store::{Archive as _, Filter};

use super::world::{CAPACITY, Checked, World};

impl World {
    /// Records that a run began, which must be its first beginning.
    pub fn note_beginning(&mut self, place: usize, run: u64) -> Checked {
        if !self.ledger.began.insert((place, run)) {
            return Err(format!("run {run} of device {place} was made twice"));
        }
        if self.is_calm {
            self.ledger.ran_in_calm.insert(place);
        }
        Ok(())
    }

    /// Checks the load of a server and a segment when a device's run has begun.
    pub fn check_load(&self, at: usize, place: usize) -> Checked {
        let here: Vec<&Claims> = self.servers[at].sessions.values().flatten().collect();
        let up: u64 = here.iter().map(|claims| claims.up_bit_per_s).sum();
        let down: u64 = here.iter().map(|claims| claims.down_bit_per_s).sum();
        if up.max(down) > CAPACITY {
            return Err(format!("server {at} carries {up} up and {down} down"));
        }
        let loading = self.servers.iter().flat_map(|server| &server.sessions);
        let loading: Vec<_> =
            loading.filter(|(_, claims)| claims.is_some()).map(|(place, _)| *place).collect();
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

    /// Checks that reservations are the sums of the leases.
    pub fn check_reservations(&mut self) -> Checked {
        let leases = self.store.leases();
        for server in self.store.servers().map_err(|error| error.to_string())? {
            let here = || leases.iter().filter(|lease| lease.server == server.address.name);
            let up: u64 = here().map(|lease| lease.up_bit_per_s).sum();
            let down: u64 = here().map(|lease| lease.down_bit_per_s).sum();
            let reserved = (server.reserved_up_bit_per_s, server.reserved_down_bit_per_s);
            if reserved != (up, down) || up.max(down) > CAPACITY {
                let name = server.address.name;
                return Err(format!(
                    "{name} has {reserved:?} reserved, its leases {up} and {down}"
                ));
            }
        }
        let (mut devices, mut segments) = (BTreeSet::new(), BTreeSet::new());
        for lease in &leases {
            if !devices.insert(lease.device) {
                return Err(format!("{} has two leases", lease.device));
            }
            if lease.segment.as_ref().is_some_and(|segment| !segments.insert(segment)) {
                return Err(format!("two leases load {:?}", lease.segment));
            }
        }
        Ok(())
    }

    /// Checks that no expired lease is left.
    pub fn check_expiries(&self, now_ms: u64) -> Checked {
        let over = self.store.leases().into_iter().find(|lease| lease.expires_ms <= now_ms);
        over.map_or(Ok(()), |lease| Err(format!("lease {} outlives its expiry", lease.id)))
    }

    /// Checks that every device has run since the faults ended.
    pub fn check_all_run_again(&self) -> Checked {
        for (place, device) in self.devices.iter().enumerate() {
            if !device.is_removed && !self.ledger.ran_in_calm.contains(&place) {
                return Err(format!("device {place} does not run any more"));
            }
        }
        Ok(())
    }

    /// Checks that every assigned run is counted, and records the next run of each device.
    pub fn check_numbers_go_on(&mut self) -> Checked {
        let rows = self.store.devices(&Filter::default(), None, 1_000);
        let rows = rows.map_err(|error| error.to_string())?;
        for (place, device) in self.devices.iter().enumerate() {
            let row = rows.iter().find(|row| row.id == device.id).ok_or("a device is gone")?;
            let next = row.schedules.first().map_or(1, |schedule| schedule.run);
            self.ledger.next.insert(place, next);
            if self.ledger.assigned.iter().any(|(of, run)| *of == place && *run >= next) {
                return Err(format!("device {place} was assigned a run that is not counted"));
            }
        }
        Ok(())
    }

    /// Compares the stored results with the recorded events.
    pub fn check_the_end(&mut self) -> Checked {
        if let Some(lease) = self.store.leases().first() {
            return Err(format!("lease {} is left in the end", lease.id));
        }
        for place in 0..self.devices.len() {
            self.check_outcomes(place)?;
        }
        Ok(())
    }

    fn check_outcomes(&mut self, place: usize) -> Checked {
        let device = &self.devices[place];
        let results = self.store.results().into_iter();
        let (mut of_run, mut alone) = (BTreeMap::new(), BTreeSet::new());
        for stored in results.filter(|stored| stored.device == device.id) {
            self.report.outcomes += 1;
            self.report.made += u64::from(stored.epoch == MADE_EPOCH);
            let (numbers, run) = ((stored.epoch, stored.sequence), stored.result.run);
            if run == 0 {
                alone.insert(numbers);
            } else if let Some(other) = of_run.insert(run, numbers) {
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
            let is_stored = if *run == 0 {
                alone.contains(&(*epoch, *sequence))
            } else {
                let stored = of_run.get(run);
                // If the device has lost its disk, another result of the run may be the stored one.
                stored == Some(&(*epoch, *sequence)) || device.has_forgotten && stored.is_some()
            };
            if !is_stored {
                let result = format!("({epoch}, {sequence}) of run {run}");
                return Err(format!("device {place}: {result} was acknowledged and is not stored"));
            }
        }
        if !device.is_removed && !device.is_gone && !device.disk.spool.is_empty() {
            return Err(format!("device {place} still has results to send"));
        }
        Ok(())
    }
}
