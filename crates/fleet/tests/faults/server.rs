//! The measurement servers: they accept leases and serve runs.

use underload_fleet::agent::{RunTask, Trouble};
use underload_fleet::lease::Claims;
use underload_fleet::message::{Heartbeat, HeldLeases};
use underload_fleet::orchestrator::HEARTBEAT_MS;
use underload_fleet::plan::Kind;

use super::world::{CAPACITY, Caller, Event, Reply, Request, World};

/// The leases at a server are void after this time without an answer to its heartbeats.
const SILENCE_MS: u64 = 30_000;

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
            server.reported = None;
            // Leases that had ended are not reported any more, and expire.
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
        server.reported = Some((server.call, self.now_ms, server.ended.len()));
        let ids = server.leases();
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
        let from = Caller { is_server: true, place, life, call: server.call };
        let (request, sent_ms) = (Request::Heartbeat(heartbeat), self.now_ms);
        let orchestrator = self.rng.below(2) as usize;
        self.send(Event::Request { orchestrator, from, sent_ms, request });
        self.after(HEARTBEAT_MS, Event::Heartbeat { place, life });
    }

    pub fn server_hears(&mut self, caller: Caller, reply: Result<Reply, Trouble>) {
        let Caller { place, life, call, .. } = caller;
        let server = &mut self.servers[place];
        let Some((last_call, sent_ms, count)) = server.reported else { return };
        if (server.life, last_call) != (life, call) || server.cut_off_until_ms > self.now_ms {
            return;
        }
        let Ok(Reply::Heartbeat(answer)) = reply else { return };
        server.ended.drain(..count);
        server.reported = None;
        let key = |text: &String| data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        let keys = answer.lease_keys.iter().filter_map(key);
        server.keys = keys.filter_map(|key| key.try_into().ok()).collect();
        server.answered_ms = sent_ms;
        let wait = (sent_ms + SILENCE_MS).saturating_sub(self.now_ms);
        self.after(wait, Event::CheckSilence { place, life });
    }

    /// Ends the runs with leases at a server that was cut off for too long.
    pub fn server_checks_silence(&mut self, place: usize, life: u64) {
        let server = &mut self.servers[place];
        if server.life != life || self.now_ms - server.answered_ms < SILENCE_MS {
            return;
        }
        let ended = server.leases();
        server.ended.extend(ended);
        server.sessions.retain(|_, claims| claims.is_none());
    }

    /// Begins a run at a server. Returns its duration, or why the server refuses it.
    pub fn session_begins(
        &mut self,
        place: usize,
        task: &RunTask,
    ) -> Result<Result<u64, &'static str>, String> {
        let at = self.servers.iter().position(|server| server.name == task.server.name);
        let Some(at) = at.filter(|at| self.servers[*at].is_up) else {
            return Ok(Err("the server is down"));
        };
        if self.chance(10) {
            return Ok(Err("the server has no capacity"));
        }
        let lasts_ms = 17_000 + u64::from(self.rng.below(5_000));
        let Some(lease) = &task.lease else {
            if task.steps.iter().any(|step| step.kind != Kind::Latency) {
                return Err("a run without a lease loads its line".to_owned());
            }
            self.servers[at].sessions.insert(place, None);
            return Ok(Ok(5_000));
        };
        let clock_ms = self.server_clock_ms(at);
        let server = &mut self.servers[at];
        if self.now_ms - server.answered_ms >= SILENCE_MS {
            return Ok(Err("the server is cut off from its orchestrators"));
        }
        let Ok(claims) = Claims::verify(lease, &server.keys, &server.name, clock_ms) else {
            return Ok(Err("the lease is not valid"));
        };
        if claims.device != self.devices[place].id {
            return Err("a device shows another's lease".to_owned());
        }
        if !server.used.insert(claims.id) {
            return Ok(Err("the lease was used"));
        }
        let lasts_ms = lasts_ms.min(claims.lasts_ms);
        server.sessions.insert(place, Some(claims));
        self.report.begun += 1;
        self.note_beginning(place, task.began.run)?;
        self.check_load(at, place)?;
        Ok(Ok(lasts_ms))
    }

    /// Ends a run. Returns false if its server had ended it before.
    pub fn session_ends(&mut self, place: usize) -> Result<bool, String> {
        for server in &mut self.servers {
            let Some(claims) = server.sessions.remove(&place) else { continue };
            if let Some(claims) = claims {
                if self.now_ms > claims.expires_ms {
                    return Err(format!("a run outlived its lease {}", claims.id));
                }
                server.ended.push(claims.id);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Ends the run of a device that has died.
    pub fn session_breaks(&mut self, place: usize) {
        for server in &mut self.servers {
            if let Some(claims) = server.sessions.remove(&place).flatten() {
                server.ended.push(claims.id);
            }
        }
    }
}
