//! All running sessions of a server.
//!
//! Two locks, taken in this order: of the ledger, which may be held for longer, and of the list of
//! running sessions, which is held for microseconds. The probes' reader takes neither: it has its
//! own index, which it rebuilds when sessions begin or end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use underload_probe::control::{Ask, FLOWS_PER_SESSION_MAX};
use underload_probe::load::{Admission, FlowShare, Token};
use underload_probe::network::CustomerNetwork;
use underload_record::schema::Direction;

use super::account::Ended;
use super::allowance::Allowance;
use super::grant::{Admitted, Denial, Grant};
use super::ledger::{Ledger, Limits};
use super::share::{FlowPlace, Share};
use super::traffic::Traffic;

#[derive(Debug)]
pub(crate) struct Sessions {
    traffic: Arc<Traffic>,
    ledger: Mutex<Ledger>,
    running: Mutex<Vec<Running>>,
    generation: AtomicU64,
    /// Bytes of probes and of their answers together.
    probed: AtomicU64,
    /// The rate that clients of other tools share, up and down.
    pub(crate) compat: [Allowance; 2],
    /// True if no new clients of other tools are admitted.
    pub(crate) drains: AtomicBool,
    /// True if clients of other tools have to end.
    pub(crate) stopped: AtomicBool,
}

#[derive(Debug)]
struct Running {
    id: u64,
    token: Token,
    address: IpAddr,
    network: CustomerNetwork,
    is_leased: bool,
    share: Share,
}

/// A running session; dropping it ends its flows and frees its place.
pub(crate) struct Granted {
    id: u64,
    pub grant: Grant,
    pub share: Share,
    sessions: Arc<Sessions>,
}

/// Maximum number of UDP addresses of one session: an address translator has a few.
const JOINED_MAX: usize = 4;
const FLOWS_PER_NETWORK_MAX: usize = 128;
/// IP and UDP headers of a probe, bytes: the rates count whole packets.
const PROBE_HEADER_BYTES: u64 = 28;

impl Sessions {
    pub(crate) fn new(limits: Limits) -> Self {
        let compat = || Allowance::new(limits.compat_bit_per_s);
        Self {
            traffic: Arc::new(Traffic::start()),
            ledger: Mutex::new(Ledger::new(limits)),
            running: Mutex::default(),
            generation: AtomicU64::new(0),
            probed: AtomicU64::new(0),
            compat: [compat(), compat()],
            drains: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Grants a session to `address` under `token`; `admitted` is the signed token that the client
    /// showed.
    pub(crate) fn open(
        self: &Arc<Self>,
        ask: Ask,
        address: IpAddr,
        token: Token,
        admitted: Option<Admitted>,
    ) -> Result<Granted, Denial> {
        let mut ledger = self.ledger();
        let grant = ledger.grant(self.now_ns(), ask, address, admitted)?;
        let share = Share::new(Arc::clone(&self.traffic), &grant);
        let (id, network) = (grant.id, CustomerNetwork::of(address));
        let is_leased = admitted.is_some_and(|admitted| admitted.is_reserved);
        let running = Running { id, token, address, network, is_leased, share: share.clone() };
        self.running().push(running);
        self.generation.fetch_add(1, Ordering::Release);
        self.apply_rates(&ledger);
        Ok(Granted { id, grant, share, sessions: Arc::clone(self) })
    }

    /// Adds `address`, which has proved that it receives what is sent to it, to the session of
    /// `token`; returns false if no such session runs.
    pub(crate) fn join(&self, token: &Token, address: IpAddr) -> bool {
        let mut is_known = false;
        for session in self.running().iter() {
            if session.token == *token && !session.share.is_over() {
                is_known = true;
                let mut joined = session.share.joined_addresses();
                if session.address != address
                    && !joined.contains(&address)
                    && joined.len() < JOINED_MAX
                {
                    joined.push(address);
                    self.generation.fetch_add(1, Ordering::Release);
                }
            }
        }
        is_known
    }

    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        let running = self.running();
        running.iter().any(|session| session.address == address && !session.share.is_over())
    }

    /// Updates the ledger with what the sessions and the line transferred; to be called every
    /// second.
    pub(crate) fn update(&self, line: Option<[u64; 2]>) {
        let moved: BTreeMap<u64, [u64; 2]> = self
            .running()
            .iter()
            .map(|session| {
                let account = session.share.account();
                (session.id, [Direction::Up, Direction::Down].map(|it| account.moved(it)))
            })
            .collect();
        let mut ledger = self.ledger();
        ledger.note_line(line);
        ledger.update(self.now_ns(), |id| moved.get(&id).copied());
        self.apply_rates(&ledger);
    }

    pub(crate) fn end_leased(&self) {
        for session in self.running().iter().filter(|session| session.is_leased) {
            session.share.account().finish(Ended::Void);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.running().len()
    }

    /// Returns the rates granted now, up and down, bit/s.
    pub(crate) fn granted(&self) -> (u64, u64) {
        self.ledger().granted()
    }

    /// Returns the byte counters of the load of all sessions, and the clock of the sessions.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the bytes of probes and their answers up to now.
    pub(crate) fn probed(&self) -> u64 {
        self.probed.load(Ordering::Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.traffic.now_ns()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // No code panics half-way through a change under this lock.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_rates(&self, ledger: &Ledger) {
        let now_ns = self.now_ns();
        for session in self.running().iter() {
            for direction in [Direction::Up, Direction::Down] {
                if let Some(bit_per_s) = ledger.rate_of(session.id, direction) {
                    session.share.account().allowance(direction).set_bit_per_s(now_ns, bit_per_s);
                }
            }
        }
    }
}

impl Admission for Sessions {
    type Share = Share;
    type Place = FlowPlace;

    const ADMITS_STRANGERS: bool = true;

    /// Returns the session of `token` if it runs and belongs to `address`, with a place for one
    /// more flow. Compares every token, so that the duration does not depend on which one matches.
    fn admit(&self, token: &Token, address: IpAddr) -> Result<(Share, FlowPlace), &'static str> {
        let running = self.running();
        let mut found = None;
        for session in running.iter() {
            let is_named = session.token == *token;
            if is_named && session.address == address && !session.share.is_over() {
                found = Some(session);
            }
        }
        let session = found.ok_or("no session has this token at this address")?;
        let of_network = running.iter().filter(|other| other.network == session.network);
        if session.share.flows() >= FLOWS_PER_SESSION_MAX {
            return Err("the session has reached its limit of flows");
        }
        if of_network.map(|other| other.share.flows()).sum::<usize>() >= FLOWS_PER_NETWORK_MAX {
            return Err("your network has reached its limit of flows");
        }
        Ok((session.share.clone(), session.share.enter()))
    }
}

/// The addresses that may probe, for the reader of one socket.
#[derive(Clone, Debug)]
pub(crate) struct ProbeIndex {
    sessions: Arc<Sessions>,
    generation: Option<u64>,
    shares: BTreeMap<IpAddr, Vec<Share>>,
}

impl ProbeIndex {
    pub(crate) fn new(sessions: &Arc<Sessions>) -> Self {
        Self { sessions: Arc::clone(sessions), generation: None, shares: BTreeMap::new() }
    }

    /// Returns whether a probe of `bytes` from this address may be answered now; `None` if the
    /// address has no session.
    pub(crate) fn admits(&mut self, address: IpAddr, bytes: usize) -> Option<bool> {
        self.refresh();
        let now_ns = self.sessions.now_ns();
        let running = |share: &&Share| !share.account().is_over(now_ns);
        let mut shares = self.shares.get(&address)?.iter().filter(running).peekable();
        shares.peek()?;
        let bytes = bytes as u64 + PROBE_HEADER_BYTES;
        let admitted = shares.any(|share| share.account().admits_probe(now_ns, bytes));
        if admitted {
            self.sessions.probed.fetch_add(2 * bytes, Ordering::Relaxed);
        }
        Some(admitted)
    }

    fn refresh(&mut self) {
        let generation = self.sessions.generation.load(Ordering::Acquire);
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        self.shares.clear();
        for session in self.sessions.running().iter() {
            let joined = session.share.joined();
            for address in joined.into_iter().chain([session.address]) {
                self.shares.entry(address).or_default().push(session.share.clone());
            }
        }
    }
}

impl Granted {
    /// Returns the time until the session's grant ends.
    pub(crate) fn left(&self) -> Duration {
        let now_ns = self.sessions.now_ns();
        Duration::from_nanos(self.grant.end_ns.saturating_sub(now_ns))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let account = self.share.account();
        account.finish(Ended::Closed);
        let mut ledger = self.sessions.ledger();
        ledger.release(self.id, account.bytes_left());
        self.sessions.running().retain(|session| session.id != self.id);
        self.sessions.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ask() -> Ask {
        Ask { up_bit_per_s: Some(8_000), down_bit_per_s: Some(0), duration: Duration::from_mins(1) }
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn a_session_is_claimed_by_its_token_from_its_address_until_it_ends() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let (here, elsewhere) = (address(1), address(2));
        let granted = sessions.open(ask(), here, Token([1; 16]), None).unwrap();
        assert!(granted.left() > Duration::from_secs(50));
        assert!(sessions.admit(&Token([1; 16]), elsewhere).is_err());
        assert!(sessions.admit(&Token([2; 16]), here).is_err());
        let (share, _place) = sessions.admit(&Token([1; 16]), here).unwrap();
        assert!(sessions.knows(here) && !sessions.knows(elsewhere));
        drop(granted);
        assert!(share.is_over());
        assert_eq!(sessions.count(), 0);
        assert!(sessions.admit(&Token([1; 16]), here).is_err());
    }

    #[test]
    fn a_session_ends_when_its_volume_is_used_up() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let granted = sessions.open(ask(), address(1), Token([1; 16]), None).unwrap();
        let share = granted.share.clone();
        share.account().admits_probe(0, 100);
        let left = share.account().bytes_left();
        assert_eq!(left, granted.grant.volume_bytes - 200, "a probe and its answer");
        share.charge(Direction::Up, left - 1);
        assert_eq!(share.account().bytes_left(), 1);
        assert!(share.take(Direction::Up, 100).is_err() && share.is_over());
        assert!(!sessions.knows(address(1)));
    }

    #[test]
    fn flows_are_limited_per_session_and_per_network() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let tokens: Vec<Token> = (1..=4).map(|number| Token([number; 16])).collect();
        let held: Vec<Granted> = tokens
            .iter()
            .map(|token| sessions.open(ask(), address(1), *token, None).unwrap())
            .collect();
        let claim = |token: &Token| sessions.admit(token, address(1));
        let mut flows = Vec::new();
        while let Ok(flow) = claim(&tokens[0]) {
            flows.push(flow);
        }
        assert_eq!(flows.len(), FLOWS_PER_SESSION_MAX);
        while let Ok(flow) = claim(&tokens[1]).or_else(|_| claim(&tokens[2])) {
            flows.push(flow);
        }
        assert_eq!(flows.len(), FLOWS_PER_NETWORK_MAX);
        flows.pop();
        assert!(claim(&tokens[3]).is_ok(), "a place that was given back");
        drop((flows, held));
    }

    #[test]
    fn an_address_that_joined_may_probe_and_a_few_may_join() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let mut index = ProbeIndex::new(&sessions);
        assert_eq!(index.admits(address(1), 52), None);
        let granted = sessions.open(ask(), address(1), Token([1; 16]), None).unwrap();
        assert_eq!(index.admits(address(1), 52), Some(true));
        assert_eq!(index.admits(address(2), 52), None);
        assert!(!sessions.join(&Token([2; 16]), address(2)));
        for last in 2..20 {
            assert!(sessions.join(&Token([1; 16]), address(last)));
        }
        assert_eq!(index.admits(address(2), 52), Some(true));
        assert_eq!(index.admits(address(9), 52), None);
        assert_eq!(granted.share.joined().len(), JOINED_MAX);
        // The rest of the burst, and what the rate added meanwhile.
        let probes = (0..5_000).filter(|_| index.admits(address(1), 1_452) == Some(true)).count();
        assert!((50..1_000).contains(&probes), "{probes}");
        drop(granted);
        assert_eq!(index.admits(address(1), 52), None);
    }
}
