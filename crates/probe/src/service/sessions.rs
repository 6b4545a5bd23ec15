//! Sessions as the data path sees them: a token to check, a volume to spend, an end.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ledger::{Ask, Denial, Ledger, Limits};
use crate::clock::RunClock;
use crate::load::Token;

/// All running sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: RunClock,
    inner: Mutex<Inner>,
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
pub(crate) struct Share {
    clock: RunClock,
    end_ns: u64,
    over: Arc<AtomicBool>,
    octets_left: Arc<AtomicI64>,
}

impl Share {
    /// True once the session is over, by time, by volume or because it was ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
            || self.clock.now_ns() >= self.end_ns
            || self.octets_left.load(Ordering::Relaxed) <= 0
    }

    /// Takes `octets` off the volume.
    pub(crate) fn spend(&self, octets: u64) {
        self.octets_left.fetch_sub(i64::try_from(octets).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// A session for as long as it is held; dropping it ends its flows and frees its place.
#[derive(Debug)]
pub(super) struct Granted {
    sessions: Arc<Sessions>,
    id: u64,
    pub share: Share,
}

/// What a session may carry beyond its declared rate times its length: the ramps of its flows.
const VOLUME_MARGIN_OCTETS: u128 = 16 << 20;

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        let inner = Inner { ledger: Ledger::new(limits), running: Vec::new() };
        Self { clock: RunClock::start(), inner: Mutex::new(inner) }
    }

    /// Grants a session to `address` under `token`.
    pub(super) fn open(
        self: &Arc<Self>,
        ask: Ask,
        address: IpAddr,
        token: Token,
    ) -> Result<Granted, Denial> {
        let mut inner = self.lock();
        let (id, end_ns) = inner.ledger.grant(self.clock.now_ns(), ask, address)?;
        let bits_per_s = u128::from(ask.up_bit_per_s) + u128::from(ask.down_bit_per_s);
        let volume = bits_per_s * ask.duration.as_millis() / 8_000 + VOLUME_MARGIN_OCTETS;
        let octets_left = i64::try_from(volume).unwrap_or(i64::MAX);
        let share = Share {
            clock: self.clock,
            end_ns,
            over: Arc::new(AtomicBool::new(false)),
            octets_left: Arc::new(AtomicI64::new(octets_left)),
        };
        inner.running.push(Running { id, token, address, share: share.clone() });
        Ok(Granted { sessions: Arc::clone(self), id, share })
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

    /// True while this address has a session.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        let inner = self.lock();
        inner.running.iter().any(|session| session.address == address && !session.share.is_over())
    }

    /// Sessions under way.
    pub(super) fn count(&self) -> usize {
        self.lock().running.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock can panic half-way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granted {
    /// How long it will last at most.
    pub(super) fn left(&self) -> Duration {
        let now_ns = self.share.clock.now_ns();
        Duration::from_nanos(self.share.end_ns.saturating_sub(now_ns))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.share.over.store(true, Ordering::Relaxed);
        let mut inner = self.sessions.lock();
        inner.ledger.release(self.id);
        inner.running.retain(|session| session.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_session_is_claimed_by_its_token_from_its_address_until_it_is_over() {
        let sessions = Arc::new(Sessions::new(Limits::default()));
        let here = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let elsewhere = IpAddr::from(Ipv4Addr::new(192, 0, 2, 2));
        let duration = Duration::from_mins(1);
        let ask = Ask { up_bit_per_s: 8_000, down_bit_per_s: 0, duration };
        let granted = sessions.open(ask, here, Token([1; 16])).unwrap();
        assert!(granted.left() > Duration::from_secs(50));
        assert!(sessions.claim(&Token([1; 16]), elsewhere).is_none());
        assert!(sessions.claim(&Token([2; 16]), here).is_none());
        let share = sessions.claim(&Token([1; 16]), here).unwrap();
        assert!(sessions.knows(here) && !sessions.knows(elsewhere));
        share.spend(1_000 * 60 + (16 << 20) - 1);
        assert!(!share.is_over());
        share.spend(1);
        assert!(share.is_over() && !sessions.knows(here), "the volume is used up");
        drop(granted);
        assert_eq!(sessions.count(), 0);

        let granted = sessions.open(ask, here, Token([3; 16])).unwrap();
        let share = sessions.claim(&Token([3; 16]), here).unwrap();
        drop(granted);
        assert!(share.is_over());
        assert!(sessions.claim(&Token([3; 16]), here).is_none());
    }
}
