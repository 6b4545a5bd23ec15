//! A measurement server of a fleet: sends heartbeats to its orchestrators, and accepts the leases
//! that they grant.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use underload_fleet::agent::Trouble;
use underload_fleet::device::Attributes;
use underload_fleet::lease::{Claims, SKEW_MS};
use underload_fleet::message::{Heartbeat, HeartbeatAnswer, HeldLeases, ServerAddress};
use underload_record::text::one_line;
use underload_service::{LeaseTerms, Leases, Limits, Service};

use crate::arguments::CODE_VARIABLE;
use crate::client::{Client, Failure};
use crate::identity::Identity;

/// A server of a fleet before it serves.
pub struct Member {
    client: Client,
    identity: Identity,
    code: Option<String>,
    address: ServerAddress,
    reader: Arc<Reader>,
    tell: fn(&str),
}

/// Why a server cannot join a fleet.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error(
        "--fleet: this server is not enrolled yet: give --enrol CODE, or {CODE_VARIABLE} in the \
         environment"
    )]
    NoCode,
    #[error("this server is not enrolled")]
    Refused(#[source] Failure),
}

impl Member {
    /// Enrols a server with this code, unless it is enrolled already. If no orchestrator answers,
    /// each heartbeat tries again. `tell` receives messages for the operator.
    pub fn new(
        mut client: Client,
        mut identity: Identity,
        code: Option<String>,
        address: ServerAddress,
        tell: fn(&str),
    ) -> Result<Self, MemberError> {
        if !identity.is_enrolled() {
            let code = code.as_ref().ok_or(MemberError::NoCode)?;
            match enrol(&mut client, &mut identity, 0, code, &address, tell) {
                Err(failure) if failure.trouble == Trouble::NoAnswer => {
                    tell(&format!("{failure}; trying again"));
                }
                enrolled => enrolled.map_err(MemberError::Refused)?,
            }
        }
        let reader = Reader { name: address.name.clone(), state: Mutex::default() };
        Ok(Self { client, identity, code, address, reader: Arc::new(reader), tell })
    }

    /// Returns the verifier of the leases that clients of a [`Service`] present.
    pub fn leases(&self) -> Arc<dyn Leases> {
        Arc::clone(&self.reader) as Arc<dyn Leases>
    }

    /// Sends heartbeats until the result is dropped.
    pub fn start(self, service: Arc<Service>, limits: Limits) -> io::Result<Membership> {
        let stop = Arc::<AtomicBool>::default();
        let capacity =
            [limits.up_bit_per_s, limits.down_bit_per_s].map(|rate| rate.min(CAPACITY_MAX));
        let stopped = Arc::clone(&stop);
        let carried = Carried::new(&service);
        let heartbeats =
            Heartbeats { member: self, service, capacity, carried, sent_to: None, stop: stopped };
        let thread = Builder::new().name("heartbeat".to_owned()).spawn(move || heartbeats.run())?;
        Ok(Membership { stop, thread: Some(thread) })
    }
}

/// A server in a fleet. Dropping it notifies the orchestrators that the server leaves.
pub struct Membership {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // At most `GOODBYE_MAX`: a silent orchestrator must not delay the shutdown.
        let until = Instant::now() + GOODBYE_MAX;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Upper bound of the capacity that a heartbeat reports, bit/s, per direction. The limits of a
/// loopback server are practically infinite and must not be shared out as capacity.
const CAPACITY_MAX: u64 = 1_000_000_000_000;
/// Time since the last answered heartbeat after which the leases of this server are void, because
/// the orchestrator may have granted their capacity to other clients.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest and shortest interval between two answered heartbeats.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));
/// The longest interval. A removed server uses it, too, because it may be enrolled again.
const INTERVAL_REMOVED: Duration = Duration::from_mins(10);
/// Longest wait for the last heartbeat.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of ended leases in one heartbeat.
const ENDED_MAX: usize = 4_096;

/// A verifier of leases, with the keys and the clock of the latest heartbeat answer.
struct Reader {
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: Vec<[u8; 32]>,
    /// When the last answered heartbeat was sent, and the orchestrator's clock in the answer,
    /// milliseconds since 1970; `None` before the first answer and while the server is removed.
    clock: Option<(Instant, u64)>,
    ended: Vec<u64>,
    /// Leases of sessions under way.
    held: BTreeSet<u64>,
}

impl State {
    /// The orchestrator's clock, milliseconds since 1970; `None` before the first answer.
    fn now_ms(&self) -> Option<u64> {
        self.clock.map(|(heard, heard_ms)| heard_ms + heard.elapsed().as_millis() as u64)
    }

    fn is_in_touch(&self) -> bool {
        self.clock.is_some_and(|(heard, _)| heard.elapsed() < SILENCE_MAX)
    }
}

impl Reader {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leases for Reader {
    fn terms(&self, text: &str) -> Option<Result<LeaseTerms, String>> {
        if !text.starts_with("ull1.") {
            return None;
        }
        let state = self.state();
        let Some(now_ms) = state.now_ms().filter(|_| state.is_in_touch()) else {
            return Some(Err("this server is not in touch with its orchestrator".to_owned()));
        };
        let claims = Claims::verify(text, &state.keys, &self.name, now_ms);
        Some(claims.map_err(|error| error.to_string()).map(|claims| LeaseTerms {
            id: claims.id,
            up_bit_per_s: claims.up_bit_per_s,
            down_bit_per_s: claims.down_bit_per_s,
            lasts: Duration::from_millis(claims.expires_ms.saturating_sub(now_ms)),
            now: now_ms / 1_000,
            issued: claims.not_before_ms / 1_000,
            expires: claims.expires_ms.saturating_add(SKEW_MS).div_ceil(1_000),
        }))
    }

    fn begun(&self, id: u64) {
        self.state().held.insert(id);
    }

    fn ended(&self, id: u64) {
        let mut state = self.state();
        state.held.remove(&id);
        if state.ended.len() < ENDED_MAX {
            state.ended.push(id);
        }
    }
}

fn enrol(
    client: &mut Client,
    identity: &mut Identity,
    orchestrator: usize,
    code: &str,
    address: &ServerAddress,
    tell: fn(&str),
) -> Result<(), Failure> {
    let server = Some(address.clone());
    let enrolled = client.enrol(orchestrator, identity, code, Attributes::default(), server)?;
    if let Err(error) = identity.note_enrolled(enrolled) {
        // Not fatal: the server enrols again after a restart, and orchestrators accept a used code
        // from the key that used it.
        tell(&error.to_string());
    }
    Ok(())
}

/// Traffic counters of a server at the last query, from which rates are computed.
struct Carried {
    at: Instant,
    moved: (u64, u64),
    probed: u64,
}

impl Carried {
    fn new(service: &Service) -> Self {
        let state = service.state();
        Self { at: Instant::now(), moved: state.moved_bytes, probed: state.probed_bytes }
    }

    /// Rates towards the server and from it since the last query, bit/s.
    fn since(&mut self, service: &Service) -> [u64; 2] {
        let now = Self::new(service);
        let elapsed_ms = (now.at.duration_since(self.at).as_millis() as u64).max(1);
        let probed = now.probed.saturating_sub(self.probed) / 2;
        let rate = |now: u64, before: u64| {
            now.saturating_sub(before).saturating_add(probed).saturating_mul(8_000) / elapsed_ms
        };
        let rates = [rate(now.moved.0, self.moved.0), rate(now.moved.1, self.moved.1)];
        *self = now;
        rates
    }
}

struct Heartbeats {
    member: Member,
    service: Arc<Service>,
    capacity: [u64; 2],
    carried: Carried,
    /// The address that the orchestrator sends agents to; `None` if it is this server's own
    /// address. Stored so that a change is reported once.
    sent_to: Option<String>,
    stop: Arc<AtomicBool>,
}

impl Heartbeats {
    fn run(mut self) {
        let tell = self.member.tell;
        let (mut orchestrator, mut told) = (0, String::new());
        let (mut was_in_touch, mut was_removed) = (false, false);
        loop {
            let is_leaving = self.stop.load(Ordering::Relaxed);
            let beat = self.beat(orchestrator, is_leaving);
            let wait = match &beat {
                Ok(wait) => {
                    told.clear();
                    *wait
                }
                Err(failure) => {
                    if failure.words != told {
                        tell(&failure.to_string());
                        told.clone_from(&failure.words);
                    }
                    orchestrator = (orchestrator + 1) % self.member.client.orchestrators().max(1);
                    match failure.trouble {
                        Trouble::Later { after_ms } => Duration::from_millis(after_ms),
                        Trouble::Removed { .. } => INTERVAL_REMOVED,
                        Trouble::NoAnswer => INTERVAL.1,
                        _ => INTERVAL.0,
                    }
                }
            };
            // The last heartbeat announced the departure, or failed and is not retried.
            if is_leaving {
                return;
            }
            let is_removed = matches!(&beat, Err(Failure { trouble: Trouble::Removed { .. }, .. }));
            if is_removed && !was_removed {
                tell("this server was removed from its fleet: it accepts no leases");
            }
            if is_removed {
                self.member.reader.state().clock = None;
            }
            was_removed = is_removed;
            self.wait(wait, &mut was_in_touch);
        }
    }

    /// Waits for `time`, or until the server stops. Ends the leased sessions once the leases are
    /// void: no heartbeat was answered for [`SILENCE_MAX`], or the server was removed.
    fn wait(&self, time: Duration, was_in_touch: &mut bool) {
        let until = Instant::now() + time.clamp(INTERVAL.1, INTERVAL_REMOVED);
        loop {
            let is_in_touch = self.member.reader.state().is_in_touch();
            if *was_in_touch && !is_in_touch {
                (self.member.tell)("no orchestrator answers: the leases of this server are void");
                self.service.end_leased();
            }
            *was_in_touch = is_in_touch;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::park_timeout(left.min(INTERVAL.1));
        }
    }

    /// Sends one heartbeat, after enrolling if necessary. Returns how long to wait before the next.
    fn beat(&mut self, orchestrator: usize, is_leaving: bool) -> Result<Duration, Failure> {
        let Member { client, identity, code, address, reader, tell } = &mut self.member;
        if !identity.is_enrolled()
            && let Some(code) = code
        {
            enrol(client, identity, orchestrator, code, address, *tell)?;
        }
        address.fingerprint = self.service.fingerprint().to_string();
        let [up, down] = self.carried.since(&self.service);
        let (ended, held) = {
            let state = reader.state();
            // Leases that are missing in the list end, so an incomplete list is not sent.
            let is_complete = state.held.len() <= ENDED_MAX;
            let now_ms = state.now_ms().filter(|_| is_complete);
            let ids = || state.held.iter().copied().collect();
            let held = now_ms.map(|at_ms| HeldLeases { at_ms, ids: ids() });
            (state.ended.clone(), held)
        };
        let heartbeat = Heartbeat {
            address: address.clone(),
            up_bit_per_s: self.capacity[0],
            down_bit_per_s: self.capacity[1],
            sessions: u32::try_from(self.service.sessions()).unwrap_or(u32::MAX),
            carried_up_bit_per_s: up,
            carried_down_bit_per_s: down,
            ended,
            held,
            is_leaving,
        };
        let sent = Instant::now();
        let answer: HeartbeatAnswer =
            client.ask(orchestrator, identity, "/v1/heartbeat", &heartbeat)?;
        if answer.agents_sent_to != self.sent_to {
            if let Some(sent_to) = &answer.agents_sent_to {
                let ServerAddress { name, address, .. } = &heartbeat.address;
                let sent_to = one_line(sent_to);
                tell(&format!(
                    "agents are sent to {sent_to}, not to {address}: an operator changes that \
                     with `underload fleet server {name} --address {address}`"
                ));
            }
            self.sent_to.clone_from(&answer.agents_sent_to);
        }
        let mut state = reader.state();
        state.ended.retain(|id| !heartbeat.ended.contains(id));
        state.clock = Some((sent, answer.now_ms));
        let read = |key: &String| HEXLOWER.decode(key.as_bytes()).ok()?.try_into().ok();
        state.keys = answer.lease_keys.iter().filter_map(read).collect();
        let wait = Duration::from_millis(answer.next_ms.saturating_sub(answer.now_ms));
        Ok(wait.clamp(INTERVAL.1, INTERVAL.0))
    }
}
