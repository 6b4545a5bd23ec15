//! Sessions as the data path sees them: a token to check, a rate and a volume to spend, an end.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use underload_report::schema::Direction;

use super::ledger::{Ask, Denial, Grant, Ledger, Limits};
use crate::clock::RunClock;
use crate::load::Token;

/// All running sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: RunClock,
    inner: Mutex<Inner>,
    /// Octets of load that sessions moved, up and down.
    moved: [AtomicU64; 2],
}

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    token: Token,
    address: IpAddr,
    share: Share,
}

/// What a flow needs of its session.
#[derive(Clone, Debug)]
pub(crate) struct Share(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sessions: Arc<Sessions>,
    end_ns: u64,
    over: AtomicBool,
    octets_left: AtomicI64,
    up: RateLimit,
    down: RateLimit,
    probes: RateLimit,
    /// Addresses that were proved to be the client's over UDP, beside its TCP address.
    joined: Mutex<Vec<IpAddr>>,
}

/// A session for as long as it is held; dropping it ends its flows and frees its place.
#[derive(Debug)]
pub(super) struct Granted {
    id: u64,
    pub grant: Grant,
    pub share: Share,
}

/// Probes per second of one session: sixteen classes of 1 ms probes.
const PROBES_PER_SECOND: u64 = 16_000;
/// UDP addresses of one session at most: an address translator has a few.
const JOINED_MAX: usize = 4;

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        let inner = Inner { ledger: Ledger::new(limits), running: Vec::new() };
        Self { clock: RunClock::start(), inner: Mutex::new(inner), moved: Default::default() }
    }

    /// Grants a session to `address` under `token`; `payer` is the number of the signed token that
    /// it showed.
    pub(super) fn open(
        self: &Arc<Self>,
        ask: Ask,
        address: IpAddr,
        token: Token,
        payer: Option<[u8; 16]>,
    ) -> Result<Granted, Denial> {
        let mut inner = self.lock();
        let grant = inner.ledger.grant(self.clock.now_ns(), ask, address, payer)?;
        let share = Share(Arc::new(Shared {
            sessions: Arc::clone(self),
            end_ns: grant.end_ns,
            over: AtomicBool::new(false),
            octets_left: AtomicI64::new(i64::try_from(grant.volume_octets).unwrap_or(i64::MAX)),
            up: RateLimit::new(grant.up_bit_per_s / 8, LOAD_BURST_OCTETS),
            down: RateLimit::new(grant.down_bit_per_s / 8, LOAD_BURST_OCTETS),
            probes: RateLimit::new(PROBES_PER_SECOND, PROBES_PER_SECOND / 10),
            joined: Mutex::default(),
        }));
        inner.running.push(Running { id: grant.id, token, address, share: share.clone() });
        Ok(Granted { id: grant.id, grant, share })
    }

    /// The session that `token` names, if it is this address's and not over. Every token is
    /// compared, so that the time it takes says nothing.
    pub(crate) fn claim(&self, token: &Token, address: IpAddr) -> Option<Share> {
        let mut found = None;
        for session in &self.lock().running {
            let is_named = session.token.matches(token);
            if is_named && session.address == address && !session.share.is_over() {
                found = Some(session.share.clone());
            }
        }
        found
    }

    /// Notes that `address`, which proved that it receives what is sent to it, belongs to the
    /// session of this token; false if there is none.
    pub(super) fn join(&self, token: &Token, address: IpAddr) -> bool {
        let mut is_known = false;
        for session in &self.lock().running {
            if session.token.matches(token) && !session.share.is_over() {
                is_known = true;
                let mut joined = session.share.joined_addresses();
                if session.address != address
                    && !joined.contains(&address)
                    && joined.len() < JOINED_MAX
                {
                    joined.push(address);
                }
            }
        }
        is_known
    }

    /// True if a probe from this address may be answered now.
    pub(super) fn admits_probe(&self, address: IpAddr) -> bool {
        let of_address = |session: &&Running| {
            (session.address == address || session.share.joined_addresses().contains(&address))
                && !session.share.is_over()
        };
        let inner = self.lock();
        let share = inner.running.iter().find(of_address).map(|session| &session.share);
        share.is_some_and(|share| share.0.probes.admits(self.clock.now_ns(), 1))
    }

    /// True while this address has a session.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        let inner = self.lock();
        inner.running.iter().any(|session| session.address == address && !session.share.is_over())
    }

    /// Sessions under way.
    pub(super) fn count(&self) -> usize {
        self.lock().running.len()
    }

    /// Granted rates now, up and down, bit/s.
    pub(super) fn granted(&self) -> (u64, u64) {
        self.lock().ledger.granted()
    }

    /// Octets of load moved so far, up and down.
    pub(super) fn moved(&self) -> (u64, u64) {
        let read = |direction: Direction| self.moved[direction as usize].load(Ordering::Relaxed);
        (read(Direction::Up), read(Direction::Down))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock can panic half-way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// True once the session is over, by time, by volume or because it was ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed) || self.end().is_some()
    }

    /// Why it is over by itself; `None` while it is not.
    pub(super) fn end(&self) -> Option<&'static str> {
        if self.0.octets_left.load(Ordering::Relaxed) <= 0 {
            return Some("its volume is used up");
        }
        let is_late = self.0.sessions.clock.now_ns() >= self.0.end_ns;
        is_late.then_some("its time is up")
    }

    /// Takes `octets` off the volume, and says how long to wait until the rate allows more.
    pub(crate) fn spend(&self, direction: Direction, octets: u64) -> Duration {
        let taken = i64::try_from(octets).unwrap_or(i64::MAX);
        self.0.octets_left.fetch_sub(taken, Ordering::Relaxed);
        self.0.sessions.moved[direction as usize].fetch_add(octets, Ordering::Relaxed);
        let limit = match direction {
            Direction::Up => &self.0.up,
            Direction::Down => &self.0.down,
        };
        limit.take(self.0.sessions.clock.now_ns(), octets)
    }

    /// Whether the rate held it up so far, up and down.
    pub(super) fn throttled(&self) -> (bool, bool) {
        (self.0.up.has_limited(), self.0.down.has_limited())
    }

    /// UDP addresses that were proved to be the client's.
    pub(crate) fn joined(&self) -> Vec<IpAddr> {
        self.joined_addresses().clone()
    }

    fn joined_addresses(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granted {
    /// How long it will last at most.
    pub(super) fn left(&self) -> Duration {
        let now_ns = self.share.0.sessions.clock.now_ns();
        Duration::from_nanos(self.grant.end_ns.saturating_sub(now_ns))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let shared = &self.share.0;
        shared.over.store(true, Ordering::Relaxed);
        let unused = u64::try_from(shared.octets_left.load(Ordering::Relaxed)).unwrap_or(0);
        let mut inner = shared.sessions.lock();
        inner.ledger.release(self.id, unused);
        inner.running.retain(|session| session.id != self.id);
    }
}

/// A rate that many threads spend from: the instant up to which it is spent (the generic cell rate
/// algorithm, ITU-T I.371 annex A).
#[derive(Debug)]
struct RateLimit {
    per_second: u64,
    burst_ns: u64,
    spent_until_ns: AtomicU64,
    has_limited: AtomicBool,
}

/// What may pass at once: a tenth of a second of 200 Mbit/s, or of the rate if that is more.
const LOAD_BURST_OCTETS: u64 = 2_500_000;

impl RateLimit {
    fn new(per_second: u64, burst: u64) -> Self {
        let burst = burst.max(per_second / 10);
        let mut limit = Self {
            per_second: per_second.max(1),
            burst_ns: 0,
            spent_until_ns: AtomicU64::new(0),
            has_limited: AtomicBool::new(false),
        };
        limit.burst_ns = limit.cost_ns(burst);
        limit
    }

    fn cost_ns(&self, amount: u64) -> u64 {
        let ns = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Spends `amount`, which has already happened; how long until more may.
    fn take(&self, now_ns: u64, amount: u64) -> Duration {
        let cost_ns = self.cost_ns(amount);
        let after = |spent_ns: u64| Some(spent_ns.max(now_ns).saturating_add(cost_ns));
        let order = Ordering::Relaxed;
        let before = self.spent_until_ns.fetch_update(order, order, after).unwrap_or(now_ns);
        let spent_until_ns = before.max(now_ns).saturating_add(cost_ns);
        let wait_ns = spent_until_ns.saturating_sub(now_ns.saturating_add(self.burst_ns));
        if wait_ns > 0 {
            self.has_limited.store(true, order);
        }
        Duration::from_nanos(wait_ns)
    }

    /// Spends `amount` if the rate allows it.
    fn admits(&self, now_ns: u64, amount: u64) -> bool {
        let cost_ns = self.cost_ns(amount);
        let after = |spent_ns: u64| {
            let spent_ns = spent_ns.max(now_ns).saturating_add(cost_ns);
            (spent_ns <= now_ns.saturating_add(self.burst_ns)).then_some(spent_ns)
        };
        self.spent_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
    }

    fn has_limited(&self) -> bool {
        self.has_limited.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ask() -> Ask {
        Ask { up_bit_per_s: Some(8_000), down_bit_per_s: Some(0), duration: Duration::from_mins(1) }
    }

    #[test]
    fn a_session_is_claimed_by_its_token_from_its_address_until_it_is_over() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let here = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let elsewhere = IpAddr::from(Ipv4Addr::new(192, 0, 2, 2));
        let granted = sessions.open(ask(), here, Token([1; 16]), None).unwrap();
        assert!(granted.left() > Duration::from_secs(50));
        assert!(sessions.claim(&Token([1; 16]), elsewhere).is_none());
        assert!(sessions.claim(&Token([2; 16]), here).is_none());
        let share = sessions.claim(&Token([1; 16]), here).unwrap();
        assert!(sessions.knows(here) && !sessions.knows(elsewhere));
        share.spend(Direction::Up, 1_000 * 60 + (16 << 20) - 1);
        assert!(!share.is_over());
        share.spend(Direction::Up, 1);
        assert_eq!(share.end(), Some("its volume is used up"));
        assert!(!sessions.knows(here));
        drop(granted);
        assert_eq!(sessions.count(), 0);

        let granted = sessions.open(ask(), here, Token([3; 16]), None).unwrap();
        let share = sessions.claim(&Token([3; 16]), here).unwrap();
        drop(granted);
        assert!(share.is_over());
        assert!(sessions.claim(&Token([3; 16]), here).is_none());
    }

    #[test]
    fn an_address_that_joined_may_probe_and_a_few_may_join() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let address = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        let granted = sessions.open(ask(), address(1), Token([1; 16]), None).unwrap();
        assert!(sessions.admits_probe(address(1)) && !sessions.admits_probe(address(2)));
        assert!(!sessions.join(&Token([2; 16]), address(2)));
        for last in 2..20 {
            assert!(sessions.join(&Token([1; 16]), address(last)));
        }
        assert!(sessions.admits_probe(address(2)) && !sessions.admits_probe(address(9)));
        assert_eq!(granted.share.joined().len(), JOINED_MAX);
        let probes = (0..5_000).filter(|_| sessions.admits_probe(address(1))).count();
        assert!((1_500..4_000).contains(&probes), "{probes}");
    }

    #[test]
    fn a_rate_lets_a_burst_pass_and_then_holds_up() {
        let limit = RateLimit::new(1_000, 100);
        assert_eq!(limit.take(0, 100), Duration::ZERO);
        assert!(!limit.has_limited());
        assert_eq!(limit.take(0, 50), Duration::from_millis(50));
        assert!(limit.has_limited());
        assert_eq!(limit.take(100_000_000, 10), Duration::ZERO);
        assert!(!limit.admits(100_000_000, 60) && limit.admits(100_000_000, 30));
    }
}
