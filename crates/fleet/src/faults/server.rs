//! A measurement server: honours leases, and carries what runs send.

use std::collections::{BTreeMap, BTreeSet};

use underload_aqm::rng::Rng;

use super::world::{CAPACITY, Caller, Event, Reply, Request, World, id_of};
use crate::agent::{RunTask, Trouble};
use crate::device::DeviceId;
use crate::lease::{Claims, SKEW_MS};
use crate::message::{Heartbeat, HeldLeases, ServerAddress};
use crate::orchestrator::HEARTBEAT_MS;
use crate::plan::Kind;
use crate::store;

/// After so long without an answer its leases are void.
const SILENCE_MS: u64 = 30_000;

/// A run that is under way.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// `None` for a run without a lease.
    pub claims: Option<Claims>,
}

pub(super) struct Server {
    pub id: DeviceId,
    pub name: String,
    pub ahead_ms: u64,
    pub cut_off_until_ms: u64,
    pub is_up: bool,
    life: u64,
    call: u64,
    /// When the request was sent that was answered last.
    answered_ms: u64,
    keys: Vec<[u8; 32]>,
    /// Of the devices at these places.
    pub sessions: BTreeMap<usize, Session>,
    ended: Vec<u64>,
    /// What `ended` held when it was told last, and when.
    told: Option<(u64, u64, usize)>,
    /// On disk.
    used: BTreeSet<u64>,
}

impl Server {
    pub fn new(place: usize, rng: &mut Rng) -> Self {
        Self {
            id: id_of(2, place),
            name: format!("server-{place}"),
            ahead_ms: u64::from(rng.below(SKEW_MS as u32)),
            cut_off_until_ms: 0,
            is_up: false,
            life: 0,
            call: 0,
            answered_ms: 0,
            keys: Vec::new(),
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            told: None,
            used: BTreeSet::new(),
        }
    }

    fn address(&self) -> ServerAddress {
        ServerAddress {
            name: self.name.clone(),
            address: format!("{}.example:9000", self.name),
            fingerprint: format!("sha256:{}", "0".repeat(64)),
        }
    }

    pub fn row(&self) -> store::Server {
        store::Server::enrolled(self.address(), self.id)
    }
}

impl World {
    pub fn server_starts(&mut self, place: usize) {
        let server = &mut self.servers[place];
        server.is_up = true;
        (server.keys, server.answered_ms) = (Vec::new(), 0);
        let life = server.life;
        self.server_beats(place, life);
    }

    pub fn server_dies(&mut self, place: usize) {
        let server = &mut self.servers[place];
        if std::mem::replace(&mut server.is_up, false) {
            server.life += 1;
            server.call += 1;
            server.sessions.clear();
            server.told = None;
            // What had ended is not told any more: those leases end by themselves.
            server.ended.clear();
            self.report.deaths += 1;
            let long = 500 + u64::from(self.rng.below(180_000));
            self.after(long, Event::ServerStarts { place });
        }
    }

    pub fn server_beats(&mut self, place: usize, life: u64) {
        let clock_ms = self.server_clock_ms(place);
        let server = &mut self.servers[place];
        if server.life != life || !server.is_up {
            return;
        }
        server.call += 1;
        server.told = Some((server.call, self.now_ms, server.ended.len()));
        let claims = server.sessions.values().filter_map(|session| session.claims.as_ref());
        let ids = claims.map(|claims| claims.id).collect();
        let heartbeat = Heartbeat {
            address: server.address(),
            up_bit_per_s: CAPACITY,
            down_bit_per_s: CAPACITY,
            sessions: server.sessions.len() as u32,
            carried_up_bit_per_s: 0,
            carried_down_bit_per_s: 0,
            ended: server.ended.clone(),
            held: Some(HeldLeases { at_ms: clock_ms, ids }),
            is_leaving: false,
        };
        let by = Caller::Server { place, life, call: server.call };
        let (request, sent_ms) = (Request::Heartbeat(heartbeat), self.now_ms);
        let orchestrator = self.rng.below(2) as usize;
        self.send(Event::Asked { orchestrator, by, sent_ms, request });
        self.after(HEARTBEAT_MS, Event::Beats { place, life });
    }

    pub fn server_hears(
        &mut self,
        place: usize,
        life: u64,
        call: u64,
        reply: Result<Reply, Trouble>,
    ) {
        let server = &mut self.servers[place];
        let Some((told_call, sent_ms, count)) = server.told else { return };
        if (server.life, told_call) != (life, call) || server.cut_off_until_ms > self.now_ms {
            return;
        }
        let Ok(Reply::Heartbeat(answer)) = reply else { return };
        server.ended.drain(..count);
        server.told = None;
        let key = |text: &String| data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        let keys = answer.lease_keys.iter().filter_map(key);
        server.keys = keys.filter_map(|key| key.try_into().ok()).collect();
        server.answered_ms = sent_ms;
        let wait = (sent_ms + SILENCE_MS).saturating_sub(self.now_ms);
        self.after(wait, Event::LooksUp { place, life });
    }

    /// Who is cut off for too long ends what has leases.
    pub fn server_looks_up(&mut self, place: usize, life: u64) {
        let server = &mut self.servers[place];
        if server.life != life || self.now_ms - server.answered_ms < SILENCE_MS {
            return;
        }
        let ended = server.sessions.values().filter_map(|it| it.claims.as_ref());
        let ended: Vec<_> = ended.map(|claims| claims.id).collect();
        server.ended.extend(ended);
        server.sessions.retain(|_, session| session.claims.is_none());
    }

    /// A device arrives with its lease. How long the run takes, or why it is turned away.
    pub fn session_begins(
        &mut self,
        place: usize,
        task: &RunTask,
    ) -> Result<Result<u64, &'static str>, String> {
        let at = self.servers.iter().position(|server| server.name == task.server.name);
        let Some(at) = at.filter(|at| self.servers[*at].is_up) else {
            return Ok(Err("it is not there"));
        };
        if self.chance(10) {
            return Ok(Err("it has no room of its own"));
        }
        let lasts_ms = 17_000 + u64::from(self.rng.below(5_000));
        let Some(lease) = &task.lease else {
            if task.steps.iter().any(|step| step.kind != Kind::Latency) {
                return Err("a run without a lease loads its line".to_owned());
            }
            self.servers[at].sessions.insert(place, Session { claims: None });
            return Ok(Ok(5_000));
        };
        let clock_ms = self.server_clock_ms(at);
        let server = &mut self.servers[at];
        if self.now_ms - server.answered_ms >= SILENCE_MS {
            return Ok(Err("it is cut off from its orchestrators"));
        }
        let Ok(claims) = Claims::verify(lease, &server.keys, &server.name, clock_ms) else {
            return Ok(Err("the lease is not good"));
        };
        if claims.device != self.devices[place].id {
            return Err("a device shows another's lease".to_owned());
        }
        if !server.used.insert(claims.id) {
            return Ok(Err("the lease was used"));
        }
        let lasts_ms = lasts_ms.min(claims.lasts_ms);
        server.sessions.insert(place, Session { claims: Some(claims) });
        self.report.begun += 1;
        self.ledger.began(place, task.began.run)?;
        self.check_load(at, place)?;
        Ok(Ok(lasts_ms))
    }

    /// A run is over. Whether it was not cut short.
    pub fn session_ends(&mut self, place: usize) -> Result<bool, String> {
        for server in &mut self.servers {
            if let Some(session) = server.sessions.remove(&place) {
                if let Some(claims) = session.claims {
                    if self.now_ms > claims.expires_ms {
                        return Err(format!("a run outlived its lease {}", claims.id));
                    }
                    server.ended.push(claims.id);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A device is gone in the middle of it.
    pub fn session_breaks(&mut self, place: usize) {
        for server in &mut self.servers {
            let session = server.sessions.remove(&place);
            if let Some(claims) = session.and_then(|session| session.claims) {
                server.ended.push(claims.id);
            }
        }
    }
}
