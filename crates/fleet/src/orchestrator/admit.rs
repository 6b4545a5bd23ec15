//! Leases: given, moved, given back, ended.

use std::collections::BTreeSet;

use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use super::{
    Applied, HEARTBEAT_ENDED_MAX, HEARTBEAT_MS, Kind, Orchestrator, Rejection, START_MS,
    STEP_EXTRA_MS, Stop, claims, enrol, enrolled, lasts_ms, span_ms, time,
};
use crate::admission::{Asked, Choice, Rates, Refusal, Room};
use crate::device::DeviceId;
use crate::lease::SKEW_MS;
use crate::message::{
    Heartbeat, HeartbeatAnswer, HeldLeases, Move, Moved, Release, Released, SERVERS_MAX,
    ServerAddress,
};
use crate::plan::{ENTRIES_MAX, Plan, RUN_LASTS_MAX, Tier};
use crate::store::{Device, HeldLease, Leases, Server, StoreError, Transaction};

/// Leases that one request ends at most because their time is over.
const ENDED_MAX: usize = 64;
/// Servers that one lease may be moved from at most.
const TRIED_MAX: usize = 16;
/// A server of more is a mistake: a petabit per second.
const CAPACITY_MAX: u64 = 1_000_000_000_000_000;

/// All servers within a transaction, and which of them have changed.
pub(super) struct Pool {
    servers: Vec<(Server, bool)>,
}

impl Pool {
    fn read(tx: &mut dyn Transaction) -> Result<Self, StoreError> {
        let servers = tx.servers()?.into_iter().map(|server| (server, false)).collect();
        Ok(Self { servers })
    }

    /// Those that may be measured to: heard of at least once, and not to stop.
    fn candidates(&self, except: &[String]) -> Vec<usize> {
        let is_one = |place: &usize| {
            let server = &self.servers[*place].0;
            server.heard_ms > 0 && !server.is_removed && !except.contains(&server.address.name)
        };
        (0..self.servers.len()).filter(is_one).collect()
    }

    fn rooms(&self, places: &[usize]) -> Vec<Room> {
        places.iter().map(|place| room(&self.servers[*place].0)).collect()
    }

    fn address(&self, place: usize) -> ServerAddress {
        self.servers[place].0.address.clone()
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Room)) {
        // Servers are never forgotten while a lease is at them.
        let Some((server, has_changed)) =
            self.servers.iter_mut().find(|(server, _)| server.address.name == name)
        else {
            return;
        };
        let mut room = room(server);
        change(&mut room);
        server.reserved_up_bit_per_s = room.reserved.up;
        server.reserved_down_bit_per_s = room.reserved.down;
        *has_changed = true;
    }

    /// Ends a lease and frees what it held.
    fn end(&mut self, tx: &mut dyn Transaction, lease: &HeldLease) -> Result<(), StoreError> {
        tx.end_lease(lease.id)?;
        self.change(&lease.server, |room| room.give_back(rates(lease)));
        Ok(())
    }

    fn write(self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        let changed = self.servers.iter().filter(|(_, has_changed)| *has_changed);
        changed.map(|(server, _)| server).try_for_each(|server| tx.put_server(server))
    }
}

fn room(server: &Server) -> Room {
    Room {
        capacity: Rates { up: server.up_bit_per_s, down: server.down_bit_per_s },
        reserved: Rates { up: server.reserved_up_bit_per_s, down: server.reserved_down_bit_per_s },
        heard: (server.heard_ms > 0).then(|| time(server.heard_ms)),
    }
}

fn rates(lease: &HeldLease) -> Rates {
    Rates { up: lease.up_bit_per_s, down: lease.down_bit_per_s }
}

/// The most that a run of this plan sends at once through a line: of the line's own tier, and at
/// most of the plan's largest in each direction, which also counts where the tier is unknown. A
/// device may have claimed the tier itself.
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

/// The segment of leases of devices that claim `segment`. An operator's segment has no such name,
/// as attributes have no control characters: a claim holds back other claims, and no line that an
/// operator put into the segment.
fn claimed_segment(segment: &str) -> String {
    format!("claimed\n{segment}")
}

/// A lease that was given, and where the run may go.
pub(super) struct Admitted {
    pub lease: HeldLease,
    pub servers: Vec<ServerAddress>,
}

impl Orchestrator {
    /// All servers, once what is over is freed: leases whose time has come, and those at servers
    /// that are silent.
    fn freed(&self, tx: &mut dyn Transaction, now_ms: u64) -> Result<Pool, StoreError> {
        let mut pool = Pool::read(tx)?;
        for lease in tx.leases(Leases::ExpiredAt(now_ms), ENDED_MAX)? {
            pool.end(tx, &lease)?;
        }
        // The server ends its runs when it is silent; whoever looks here may have another clock.
        let timeout = self.settings.rules.heartbeat_timeout + Span::from_millis(SKEW_MS);
        let is_silent = |server: &Server| {
            let holds = server.reserved_up_bit_per_s > 0 || server.reserved_down_bit_per_s > 0;
            server.heard_ms > 0 && holds && !room(server).is_alive(time(now_ms), timeout)
        };
        let silent = pool.servers.iter().filter(|(server, _)| is_silent(server));
        let silent: Vec<_> = silent.map(|(server, _)| server.address.name.clone()).collect();
        for name in silent {
            for lease in tx.leases(Leases::At(&name), ENDED_MAX)? {
                // One that may still begin is honoured by a server that is back before.
                let begins_ms = lease.given_ms.saturating_add(START_MS + 2 * SKEW_MS);
                if begins_ms < now_ms {
                    pool.end(tx, &lease)?;
                }
            }
        }
        Ok(pool)
    }

    /// Frees what is over.
    pub(super) fn free(&self, tx: &mut dyn Transaction, now_ms: u64) -> Result<(), StoreError> {
        self.freed(tx, now_ms)?.write(tx)
    }

    /// Leases that a clock gave which was ahead and has been set back would be held for as long as
    /// it was ahead. They are held from now on for as long as they last: no run of theirs, begun by
    /// now, goes on after that.
    pub(super) fn date_again(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
    ) -> Result<(), StoreError> {
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

    /// Reserves all that a run takes, or nothing.
    pub(super) fn admit(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        device: &Device,
        applied: &Applied,
        run: u64,
    ) -> Result<Result<Admitted, Refusal>, StoreError> {
        let mut pool = self.freed(tx, now_ms)?;
        let plan = &applied.plan;
        let decided = self.decide(tx, now_ms, rng, device, plan, &pool)?;
        let (choice, candidates, rates, segment) = match decided {
            Ok(decided) => decided,
            Err(refusal) => {
                pool.write(tx)?;
                return Ok(Err(refusal));
            }
        };
        let servers: Vec<_> =
            choice.places().iter().map(|place| pool.address(candidates[*place])).collect();
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
        pool.change(&lease.server, |room| room.reserve(rates));
        pool.write(tx)?;
        Ok(Ok(Admitted { lease, servers }))
    }

    #[expect(clippy::type_complexity, reason = "four things that are known only here")]
    fn decide(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        device: &Device,
        plan: &Plan,
        pool: &Pool,
    ) -> Result<Result<(Choice, Vec<usize>, Rates, Option<String>), Refusal>, StoreError> {
        let is_loaded = plan.loads_lines();
        let name = &device.attributes.segment;
        if is_loaded && name.is_empty() && plan.lines.per_segment > 1 {
            return Ok(Err(Refusal::SegmentUnknown));
        }
        let (mut segment, mut loaded_in_segment) = (None, None);
        if is_loaded && !name.is_empty() {
            let mut loaded = tx.leases(Leases::LoadedIn(name), usize::MAX)?.len();
            let mut key = name.clone();
            if enrol::is_segment_claimed(tx, device.id)? {
                key = claimed_segment(name);
                loaded += tx.leases(Leases::LoadedIn(&key), usize::MAX)?.len();
            }
            (segment, loaded_in_segment) = (Some(key), Some(loaded as u32));
        }
        let rates = peak(plan, device);
        let has_lease = !tx.leases(Leases::Of(device.id), 1)?.is_empty();
        let asked = Asked { rates, has_lease, loaded_in_segment };
        let candidates = pool.candidates(&[]);
        let rooms = pool.rooms(&candidates);
        let decided = self.settings.rules.decide(time(now_ms), &asked, &rooms, rng);
        Ok(decided.map(|choice| (choice, candidates, rates, segment)))
    }

    /// Servers that are alive, the lease's own first.
    pub(super) fn servers_for(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        first: Option<&str>,
    ) -> Result<Vec<ServerAddress>, StoreError> {
        let timeout = self.settings.rules.heartbeat_timeout;
        let mut servers = tx.servers()?;
        let is_own = |server: &Server| first == Some(server.address.name.as_str());
        servers
            .retain(|it| is_own(it) || !it.is_removed && room(it).is_alive(time(now_ms), timeout));
        servers.sort_by_key(|server| !is_own(server));
        Ok(servers.into_iter().take(SERVERS_MAX).map(|server| server.address).collect())
    }

    pub(super) fn move_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        it: &Move,
    ) -> Result<Moved, Stop> {
        enrolled(tx, sender)?;
        if it.tried.len() > TRIED_MAX {
            return Err(Rejection::new(Kind::BadRequest, "too-many", "too many servers").into());
        }
        let none = Moved { lease: None, server: None };
        let Some(mut lease) = own(tx, sender, it.lease_id)? else { return Ok(none) };
        let plans = self.plans(tx)?;
        let plan = plans.iter().find(|applied| applied.row.name == lease.plan);
        let mut pool = self.freed(tx, now_ms)?;
        let is_held = tx.lease(lease.id)?.is_some();
        let may_begin = now_ms <= lease.given_ms.saturating_add(START_MS);
        let Some(applied) = plan.filter(|_| is_held && may_begin) else {
            // Only who is not admitted where its lease is gives it up by this. A request that was
            // repeated on the way comes when the run goes on elsewhere, and must not end that.
            if is_held && it.tried.contains(&lease.server) {
                pool.end(tx, &lease)?;
            }
            pool.write(tx)?;
            return Ok(none);
        };
        // The same request again, after an answer that was lost: it has been moved already.
        if it.tried.contains(&lease.server) {
            pool.change(&lease.server, |room| room.give_back(rates(&lease)));
            let candidates = pool.candidates(&it.tried);
            let rooms = pool.rooms(&candidates);
            // Its line and its segment it holds already.
            let asked = Asked { rates: rates(&lease), has_lease: false, loaded_in_segment: None };
            let choice = self.settings.rules.decide(time(now_ms), &asked, &rooms, rng);
            let Ok(choice) = choice else {
                tx.end_lease(lease.id)?;
                pool.write(tx)?;
                return Ok(none);
            };
            lease.server = pool.address(candidates[choice.first()]).name;
            pool.change(&lease.server, |room| room.reserve(rates(&lease)));
            tx.put_lease(&lease)?;
        }
        let place = pool.servers.iter().position(|(it, _)| it.address.name == lease.server);
        let server = place.map(|place| pool.address(place));
        pool.write(tx)?;
        let text = claims(&lease, &applied.plan).sign(&self.lease_key);
        Ok(Moved { lease: Some(text), server })
    }

    pub(super) fn heartbeat_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        sender: DeviceId,
        it: &Heartbeat,
    ) -> Result<HeartbeatAnswer, Stop> {
        enrol::acceptable_address(&it.address)?;
        let rates = [it.up_bit_per_s, it.down_bit_per_s];
        let carried = [it.carried_up_bit_per_s, it.carried_down_bit_per_s];
        if rates.into_iter().chain(carried).any(|rate| rate > CAPACITY_MAX) {
            let message = "more than a petabit per second";
            return Err(Rejection::new(Kind::BadRequest, "too-much", message).into());
        }
        let held = it.held.as_ref().map_or(0, |held| held.ids.len());
        if it.ended.len().max(held) > HEARTBEAT_ENDED_MAX {
            let message = "more than 4096 leases: say the others next time";
            return Err(Rejection::new(Kind::TooLarge, "too-many", message).into());
        }
        let mut pool = Pool::read(tx)?;
        let is_it = |(server, _): &&mut (Server, bool)| server.device == sender;
        let Some((server, has_changed)) = pool.servers.iter_mut().find(is_it) else {
            return Err(Rejection::new(Kind::Forbidden, "not-a-server", "not a server").into());
        };
        if server.is_removed {
            return Err(Rejection::gone(server.enrolment()).into());
        }
        if server.address.name != it.address.name {
            let message = format!("this key is of the server `{}`", server.address.name);
            return Err(Rejection::new(Kind::Forbidden, "another-name", message).into());
        }
        // A server that redirects its agents could send all of them to somebody else's address.
        server.address.fingerprint.clone_from(&it.address.fingerprint);
        let sent_to = server.address.address.clone();
        let agents_sent_to = (sent_to != it.address.address).then_some(sent_to);
        [server.up_bit_per_s, server.down_bit_per_s] = rates;
        [server.carried_up_bit_per_s, server.carried_down_bit_per_s] = carried;
        server.sessions = it.sessions;
        // It may come late, after a newer one; what is further ahead is of a clock set back since.
        let is_known = server.heard_ms <= now_ms.saturating_add(2 * SKEW_MS);
        let heard_ms = if is_known { server.heard_ms.max(now_ms) } else { now_ms };
        server.heard_ms = if it.is_leaving { 0 } else { heard_ms };
        *has_changed = true;
        if let Some(held) = &it.held {
            free_unused(tx, &mut pool, now_ms, &it.address.name, held)?;
        }
        for id in &it.ended {
            if let Some(lease) = tx.lease(*id)?.filter(|it_is| it_is.server == it.address.name) {
                pool.end(tx, &lease)?;
            }
        }
        pool.write(tx)?;
        let keys = std::iter::once(self.lease_key());
        let keys = keys.chain(self.settings.previous_lease_keys.iter().copied());
        let lease_keys = keys.map(|key| data_encoding::HEXLOWER.encode(&key)).collect();
        let next_ms = now_ms + HEARTBEAT_MS;
        Ok(HeartbeatAnswer { now_ms, lease_keys, next_ms, agents_sent_to })
    }
}

pub(super) fn release_or_stop(
    tx: &mut dyn Transaction,
    sender: DeviceId,
    it: &Release,
) -> Result<Released, Stop> {
    enrolled(tx, sender)?;
    let Some(lease) = own(tx, sender, it.lease_id)? else {
        return Ok(Released { was_held: false });
    };
    end(tx, &lease)?;
    Ok(Released { was_held: true })
}

/// Ends the leases at a server that no session held when the list was made, and that none could
/// begin to use any more by then: each device has them for as long as it could have begun, and for
/// a heartbeat more.
fn free_unused(
    tx: &mut dyn Transaction,
    pool: &mut Pool,
    now_ms: u64,
    server: &str,
    held: &HeldLeases,
) -> Result<(), StoreError> {
    let made_ms = held.at_ms.min(now_ms);
    let held: BTreeSet<u64> = held.ids.iter().copied().collect();
    for lease in tx.leases(Leases::At(server), HEARTBEAT_ENDED_MAX)? {
        let begins_ms = lease.given_ms.saturating_add(START_MS + 2 * SKEW_MS + HEARTBEAT_MS);
        if begins_ms < made_ms && !held.contains(&lease.id) {
            pool.end(tx, &lease)?;
        }
    }
    Ok(())
}

/// Ends a lease and frees what it held.
pub(super) fn end(tx: &mut dyn Transaction, lease: &HeldLease) -> Result<(), StoreError> {
    let mut pool = Pool::read(tx)?;
    pool.end(tx, lease)?;
    pool.write(tx)
}

/// A lease of the sender; `None` where there is none any more.
fn own(tx: &mut dyn Transaction, sender: DeviceId, id: u64) -> Result<Option<HeldLease>, Stop> {
    let lease = tx.lease(id)?;
    if lease.as_ref().is_some_and(|lease| lease.device != sender) {
        let message = "this lease is of another device";
        return Err(Rejection::new(Kind::Forbidden, "not-yours", message).into());
    }
    Ok(lease)
}

/// A number that no lease has that is held; below 2^63, which databases hold.
fn fresh_id(tx: &mut dyn Transaction, rng: &mut Rng) -> Result<u64, StoreError> {
    loop {
        let id = rng.next_u64() >> 1;
        if id > 0 && tx.lease(id)?.is_none() {
            return Ok(id);
        }
    }
}
