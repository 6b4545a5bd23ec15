//! Leases: granting, moving, releasing and expiring them, and the heartbeats of servers.

use std::collections::BTreeSet;

use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use super::{
    Answer, Applied, HEARTBEAT_ENDED_MAX, HEARTBEAT_MS, Kind, Orchestrator, Rejection, START_MS,
    STEP_EXTRA_MS, Stop, answer, claims, enrol, enrolled, lasts_ms, reject, span_ms, time,
};
use crate::admission::{Demand, Rates, Refusal, Rules, ServerLoad};
use crate::device::DeviceId;
use crate::lease::SKEW_MS;
use crate::message::{
    Heartbeat, HeartbeatAnswer, HeldLeases, Move, Moved, Release, Released, SERVERS_MAX,
    ServerAddress,
};
use crate::plan::{ENTRIES_MAX, Plan, RUN_LASTS_MAX, Tier};
use crate::store::{Device, HeldLease, Leases, Result, Server, Tx};

/// Maximum number of leases that one request ends because they expired.
const ENDED_MAX: usize = 64;
/// Maximum number of servers that a lease may be moved from.
const TRIED_MAX: usize = 16;
/// A larger capacity of a server is a mistake: a petabit per second.
const CAPACITY_MAX: u64 = 1_000_000_000_000_000;

/// All servers within a transaction, each with whether it has changed.
pub(super) struct Pool {
    servers: Vec<(Server, bool)>,
}

impl Pool {
    fn read(tx: Tx<'_>) -> Result<Self> {
        let servers = tx.servers()?.into_iter().map(|server| (server, false)).collect();
        Ok(Self { servers })
    }

    /// Chooses servers for a run, the best first, among those that were heard of and are neither
    /// removed nor in `except`.
    fn choose(
        &self,
        rules: &Rules,
        now_ms: u64,
        demand: &Demand,
        except: &[String],
        rng: &mut Rng,
    ) -> Result<Vec<ServerAddress>, Refusal> {
        let is_usable = |server: &&Server| {
            server.heard_ms > 0 && !server.is_removed && !except.contains(&server.address.name)
        };
        let usable: Vec<&Server> =
            self.servers.iter().map(|(server, _)| server).filter(is_usable).collect();
        let loads: Vec<ServerLoad> = usable.iter().map(|server| load(server)).collect();
        let choice = rules.decide(time(now_ms), demand, &loads, rng)?;
        Ok(choice.places().iter().map(|place| usable[*place].address.clone()).collect())
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut ServerLoad)) {
        // A server with leases is never deleted.
        let Some((server, has_changed)) =
            self.servers.iter_mut().find(|(server, _)| server.address.name == name)
        else {
            return;
        };
        let mut load = load(server);
        change(&mut load);
        server.reserved_up_bit_per_s = load.reserved.up;
        server.reserved_down_bit_per_s = load.reserved.down;
        *has_changed = true;
    }

    /// Ends a lease and frees its reservation.
    fn end(&mut self, tx: Tx<'_>, lease: &HeldLease) -> Result<()> {
        tx.end_lease(lease.id)?;
        self.change(&lease.server, |load| load.release(rates(lease)));
        Ok(())
    }

    pub(super) fn write(self, tx: Tx<'_>) -> Result<()> {
        let changed = self.servers.iter().filter(|(_, has_changed)| *has_changed);
        changed.map(|(server, _)| server).try_for_each(|server| tx.put_server(server))
    }
}

fn load(server: &Server) -> ServerLoad {
    ServerLoad {
        capacity: Rates { up: server.up_bit_per_s, down: server.down_bit_per_s },
        reserved: Rates { up: server.reserved_up_bit_per_s, down: server.reserved_down_bit_per_s },
        heard: (server.heard_ms > 0).then(|| time(server.heard_ms)),
    }
}

fn rates(lease: &HeldLease) -> Rates {
    Rates { up: lease.up_bit_per_s, down: lease.down_bit_per_s }
}

/// Maximum rates of a run of this plan through a line: the rates of the line's tier, at most the
/// plan's largest tier, which also applies if the line's tier is unknown. Devices may report false
/// tiers.
fn peak(plan: &Plan, device: &Device) -> Rates {
    let rate = |known: u64, of_tier: fn(&Tier) -> Rate| {
        let largest = plan.tiers.iter().map(|tier| of_tier(tier).bits_per_second()).max();
        let known = if known > 0 { known } else { u64::MAX };
        Rate::from_bits_per_second(known.min(largest.unwrap_or(0)))
    };
    let up = rate(device.attributes.tier_up_bit_per_s, |tier| tier.up);
    let down = rate(device.attributes.tier_down_bit_per_s, |tier| tier.down);
    let (up, down) = plan.peak_bit_per_s(&Tier { share: 1.0, up, down });
    Rates { up, down }
}

/// The segment in leases of devices that claim `segment` themselves. Attributes have no control
/// characters, so an operator's segment cannot have this name: a claim delays other claims, and
/// never a line that an operator assigned to the segment.
fn claimed_segment(segment: &str) -> String {
    format!("claimed\n{segment}")
}

/// Removes a device from all plans and frees its leases at once, so that it changes nothing any
/// more. Stores no outcome of its runs.
pub fn withdraw(tx: Tx<'_>, id: DeviceId) -> Result<()> {
    let mut pool = Pool::read(tx)?;
    for lease in tx.leases(Leases::Of(id), usize::MAX)? {
        pool.end(tx, &lease)?;
    }
    pool.write(tx)?;
    let Some(device) = tx.device(id)? else { return Ok(()) };
    let schedules = Vec::new();
    tx.put_device(&Device { is_removed: true, schedules, settle_ms: u64::MAX, ..device })
}

/// A granted lease, and the servers that the run may use.
pub(super) struct Admitted {
    pub lease: HeldLease,
    pub servers: Vec<ServerAddress>,
}

impl Orchestrator {
    /// Reads all servers and frees leases that expired, or whose server is silent.
    pub(super) fn freed(&self, tx: Tx<'_>, now_ms: u64) -> Result<Pool> {
        let mut pool = Pool::read(tx)?;
        for lease in tx.leases(Leases::ExpiredAt(now_ms), ENDED_MAX)? {
            pool.end(tx, &lease)?;
        }
        // A server ends its runs if its heartbeats have no answer for this time; the allowed
        // difference of the clocks is added.
        let timeout = self.settings.rules.heartbeat_timeout + Span::from_millis(SKEW_MS);
        let is_silent = |server: &Server| {
            let holds = server.reserved_up_bit_per_s > 0 || server.reserved_down_bit_per_s > 0;
            server.heard_ms > 0 && holds && !load(server).is_alive(time(now_ms), timeout)
        };
        let silent = pool.servers.iter().filter(|(server, _)| is_silent(server));
        let silent: Vec<_> = silent.map(|(server, _)| server.address.name.clone()).collect();
        for name in silent {
            for lease in tx.leases(Leases::At(&name), ENDED_MAX)? {
                // If the server comes back earlier, it accepts a lease that may still begin.
                let begins_ms = lease.given_ms.saturating_add(START_MS + 2 * SKEW_MS);
                if begins_ms < now_ms {
                    pool.end(tx, &lease)?;
                }
            }
        }
        Ok(pool)
    }

    /// Restarts leases that were granted while the clock was ahead, after it was set back:
    /// otherwise they would last longer by the difference. They begin now, which is long enough for
    /// any run that has begun.
    pub(super) fn redate_future_leases(&self, tx: Tx<'_>, now_ms: u64) -> Result<()> {
        let latest_ms = now_ms + 2 * SKEW_MS;
        let lasts_ms = START_MS
            + span_ms(RUN_LASTS_MAX)
            + ENTRIES_MAX as u64 * STEP_EXTRA_MS
            + span_ms(self.settings.rules.lease_grace);
        for mut lease in tx.leases(Leases::ExpiringAfter(latest_ms + lasts_ms), ENDED_MAX)? {
            let lasts_ms = lease.expires_ms.saturating_sub(lease.given_ms);
            (lease.given_ms, lease.expires_ms) = (now_ms, now_ms + lasts_ms);
            tx.put_lease(&lease)?;
        }
        Ok(())
    }

    /// Grants a lease, with all reservations of the run, or changes nothing.
    pub(super) fn admit(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        device: &Device,
        applied: &Applied,
        run: u64,
    ) -> Result<Result<Admitted, Refusal>> {
        let mut pool = self.freed(tx, now_ms)?;
        let plan = &applied.plan;
        let decided = self.decide(tx, now_ms, rng, device, plan, &pool)?;
        let (servers, rates, segment) = match decided {
            Ok(decided) => decided,
            Err(refusal) => {
                pool.write(tx)?;
                return Ok(Err(refusal));
            }
        };
        let lease = HeldLease {
            id: fresh_id(tx, rng)?,
            device: device.id,
            server: servers[0].name.clone(),
            segment,
            up_bit_per_s: rates.up,
            down_bit_per_s: rates.down,
            plan: applied.row.name.clone(),
            run,
            given_ms: now_ms,
            expires_ms: now_ms
                + START_MS
                + lasts_ms(plan)
                + span_ms(self.settings.rules.lease_grace),
        };
        tx.put_lease(&lease)?;
        pool.change(&lease.server, |load| load.reserve(rates));
        pool.write(tx)?;
        Ok(Ok(Admitted { lease, servers }))
    }

    #[expect(clippy::type_complexity, reason = "three values that only `admit` needs")]
    fn decide(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        device: &Device,
        plan: &Plan,
        pool: &Pool,
    ) -> Result<Result<(Vec<ServerAddress>, Rates, Option<String>), Refusal>> {
        let is_loaded = plan.loads_lines();
        let name = &device.attributes.segment;
        if is_loaded && name.is_empty() && plan.lines.per_segment > 1 {
            return Ok(Err(Refusal::SegmentUnknown));
        }
        let (mut segment, mut loaded_in_segment) = (None, None);
        if is_loaded && !name.is_empty() {
            let mut loaded = tx.leases(Leases::LoadedIn(name), usize::MAX)?.len();
            let mut key = name.clone();
            if enrol::is_segment_claimed(tx, device)? {
                key = claimed_segment(name);
                loaded += tx.leases(Leases::LoadedIn(&key), usize::MAX)?.len();
            }
            (segment, loaded_in_segment) = (Some(key), Some(loaded as u32));
        }
        let rates = peak(plan, device);
        let has_lease = !tx.leases(Leases::Of(device.id), 1)?.is_empty();
        let demand = Demand { rates, has_lease, loaded_in_segment };
        let servers = pool.choose(&self.settings.rules, now_ms, &demand, &[], rng);
        Ok(servers.map(|servers| (servers, rates, segment)))
    }

    /// Returns servers that are alive, after the server named `first`.
    pub(super) fn servers_for(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        first: Option<&str>,
    ) -> Result<Vec<ServerAddress>> {
        let timeout = self.settings.rules.heartbeat_timeout;
        let mut servers = tx.servers()?;
        let is_first = |server: &Server| first == Some(server.address.name.as_str());
        servers.retain(|server| {
            let is_alive = || load(server).is_alive(time(now_ms), timeout);
            is_first(server) || !server.is_removed && is_alive()
        });
        servers.sort_by_key(|server| !is_first(server));
        Ok(servers.into_iter().take(SERVERS_MAX).map(|server| server.address).collect())
    }

    /// Moves the lease of a device whose server refused the run to another server.
    pub fn move_lease(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        request: &Move,
    ) -> Answer<Moved> {
        answer(|| {
            enrolled(tx, sender)?;
            if request.tried.len() > TRIED_MAX {
                return reject(Kind::BadRequest, "too-many", "too many servers");
            }
            let none = Moved { lease: None, server: None };
            let Some(mut lease) = lease_of_sender(tx, sender, request.lease_id)? else {
                return Ok(none);
            };
            let plans = self.plans(tx)?;
            let plan = plans.iter().find(|applied| applied.row.name == lease.plan);
            let mut pool = self.freed(tx, now_ms)?;
            let is_held = tx.lease(lease.id)?.is_some();
            let may_begin = now_ms <= lease.given_ms.saturating_add(START_MS);
            let is_refused = request.tried.contains(&lease.server);
            let Some(applied) = plan.filter(|_| is_held && may_begin) else {
                // Ends the lease only if its present server refused the run. A copy of an earlier
                // request may arrive while the run is under way at another server.
                if is_held && is_refused {
                    pool.end(tx, &lease)?;
                }
                pool.write(tx)?;
                return Ok(none);
            };
            // Otherwise the request is repeated because its answer was lost: the lease was moved.
            if is_refused {
                pool.change(&lease.server, |load| load.release(rates(&lease)));
                // The lease already reserves the line and its segment.
                let rates = rates(&lease);
                let demand = Demand { rates, has_lease: false, loaded_in_segment: None };
                let rules = &self.settings.rules;
                let Ok(servers) = pool.choose(rules, now_ms, &demand, &request.tried, rng) else {
                    tx.end_lease(lease.id)?;
                    pool.write(tx)?;
                    return Ok(none);
                };
                lease.server.clone_from(&servers[0].name);
                pool.change(&lease.server, |load| load.reserve(rates));
                tx.put_lease(&lease)?;
            }
            let server = pool.servers.iter().find(|(it, _)| it.address.name == lease.server);
            let server = server.map(|(server, _)| server.address.clone());
            pool.write(tx)?;
            let text = claims(&lease, &applied.plan).sign(&self.lease_key);
            Ok(Moved { lease: Some(text), server })
        })
    }

    /// Stores what a server reports, and frees leases that it does not use.
    pub fn heartbeat(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        sender: DeviceId,
        request: &Heartbeat,
    ) -> Answer<HeartbeatAnswer> {
        answer(|| {
            check_heartbeat(request)?;
            let mut pool = Pool::read(tx)?;
            let agents_sent_to = pool.hear(now_ms, sender, request)?;
            let name = &request.address.name;
            if let Some(held) = &request.held {
                free_unused(tx, &mut pool, now_ms, name, held)?;
            }
            for id in &request.ended {
                if let Some(lease) = tx.lease(*id)?.filter(|lease| lease.server == *name) {
                    pool.end(tx, &lease)?;
                }
            }
            pool.write(tx)?;
            let lease_keys = vec![data_encoding::HEXLOWER.encode(&self.lease_key())];
            let next_ms = now_ms + HEARTBEAT_MS;
            Ok(HeartbeatAnswer { now_ms, lease_keys, next_ms, agents_sent_to })
        })
    }

    /// Ends a lease for its device.
    pub fn release(&self, tx: Tx<'_>, sender: DeviceId, request: &Release) -> Answer<Released> {
        answer(|| {
            enrolled(tx, sender)?;
            let lease = lease_of_sender(tx, sender, request.lease_id)?;
            if let Some(lease) = &lease {
                end(tx, lease)?;
            }
            Ok(Released { was_held: lease.is_some() })
        })
    }
}

fn check_heartbeat(request: &Heartbeat) -> Result<(), Rejection> {
    enrol::acceptable_address(&request.address)?;
    let (up, down) = (request.up_bit_per_s, request.down_bit_per_s);
    let carried = [request.carried_up_bit_per_s, request.carried_down_bit_per_s];
    if [up, down].into_iter().chain(carried).any(|rate| rate > CAPACITY_MAX) {
        return reject(Kind::BadRequest, "too-much", "more than a petabit per second");
    }
    let held = request.held.as_ref().map_or(0, |held| held.ids.len());
    if request.ended.len().max(held) > HEARTBEAT_ENDED_MAX {
        let message = "more than 4096 leases: report the others with the next heartbeat";
        return reject(Kind::TooLarge, "too-many", message);
    }
    Ok(())
}

impl Pool {
    /// Stores a heartbeat. Returns the address that agents are sent to if it differs from the
    /// address in the heartbeat.
    fn hear(
        &mut self,
        now_ms: u64,
        sender: DeviceId,
        heartbeat: &Heartbeat,
    ) -> Result<Option<String>, Rejection> {
        let is_sender = |(server, _): &&mut (Server, bool)| server.device == sender;
        let Some((server, has_changed)) = self.servers.iter_mut().find(is_sender) else {
            return reject(Kind::Forbidden, "not-a-server", "not a server");
        };
        if server.is_removed {
            return Err(Rejection::gone(server.enrolment()));
        }
        if server.address.name != heartbeat.address.name {
            let message = format!("this key is of the server `{}`", server.address.name);
            return reject(Kind::Forbidden, "another-name", message);
        }
        // The host in the address stays as stored: a server could otherwise send all of its agents
        // to a foreign one.
        server.address.fingerprint.clone_from(&heartbeat.address.fingerprint);
        (server.up_bit_per_s, server.down_bit_per_s) =
            (heartbeat.up_bit_per_s, heartbeat.down_bit_per_s);
        server.carried_up_bit_per_s = heartbeat.carried_up_bit_per_s;
        server.carried_down_bit_per_s = heartbeat.carried_down_bit_per_s;
        server.sessions = heartbeat.sessions;
        // The last time may be later, after heartbeats that overtook each other. A time that is
        // further ahead is from a clock that has been set back.
        let is_plausible = server.heard_ms <= now_ms.saturating_add(2 * SKEW_MS);
        let heard_ms = if is_plausible { server.heard_ms.max(now_ms) } else { now_ms };
        server.heard_ms = if heartbeat.is_leaving { 0 } else { heard_ms };
        *has_changed = true;
        let sent_to = &server.address.address;
        Ok((*sent_to != heartbeat.address.address).then(|| sent_to.clone()))
    }
}

/// Ends the leases at a server that no session held when the server made the list, and that were
/// too old to begin by then. A device may use a lease until its latest start and one heartbeat
/// longer.
fn free_unused(
    tx: Tx<'_>,
    pool: &mut Pool,
    now_ms: u64,
    server: &str,
    leases: &HeldLeases,
) -> Result<()> {
    let made_ms = leases.at_ms.min(now_ms);
    let held: BTreeSet<u64> = leases.ids.iter().copied().collect();
    for lease in tx.leases(Leases::At(server), HEARTBEAT_ENDED_MAX)? {
        let begins_ms = lease.given_ms.saturating_add(START_MS + 2 * SKEW_MS + HEARTBEAT_MS);
        if begins_ms < made_ms && !held.contains(&lease.id) {
            pool.end(tx, &lease)?;
        }
    }
    Ok(())
}

/// Ends a lease and frees its reservation.
pub(super) fn end(tx: Tx<'_>, lease: &HeldLease) -> Result<()> {
    let mut pool = Pool::read(tx)?;
    pool.end(tx, lease)?;
    pool.write(tx)
}

/// Returns a lease if it exists; rejects it if it is not the sender's.
fn lease_of_sender(tx: Tx<'_>, sender: DeviceId, id: u64) -> Result<Option<HeldLease>, Stop> {
    let lease = tx.lease(id)?;
    if lease.as_ref().is_some_and(|lease| lease.device != sender) {
        return reject(Kind::Forbidden, "not-yours", "this lease is of another device");
    }
    Ok(lease)
}

/// Draws a number that no lease has, below 2^63 because databases store signed integers.
fn fresh_id(tx: Tx<'_>, rng: &mut Rng) -> Result<u64> {
    loop {
        let id = rng.next_u64() >> 1;
        if id > 0 && tx.lease(id)?.is_none() {
            return Ok(id);
        }
    }
}
