//! Limits for clients of other tools, which have no sessions.
//!
//! All of them together share one rate, [`Limits::compat_bit_per_s`](super::Limits), which is never
//! granted to sessions; each is charged to the quota of its network like a session without a token.
//! A listener calls [`CompatLedger::enter`] once per client (a test, a connection), and
//! [`CompatShare::take`] before everything that it sends or reads.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use underload_record::schema::Direction;

use super::account::{Account, TooFast};
use super::quota::Payer;
use super::sessions::Sessions;

#[derive(Clone, Debug)]
pub struct CompatLedger(Option<Arc<Sessions>>);

/// The limits of one client. Dropping them frees the client's place and returns its unused volume.
#[derive(Debug)]
pub struct CompatShare(Option<Guest>);

#[derive(Debug)]
struct Guest {
    sessions: Arc<Sessions>,
    network: Payer,
    account: Account,
}

/// Bytes that are charged to a quota at a time.
const PIECE_BYTES: u64 = 32 << 20;
/// The next piece is charged when less than this is left of the last one.
const RESERVE_BYTES: u64 = 1 << 20;
/// Largest transfer of one call without limits.
const CHUNK_BYTES: usize = 256 << 10;

impl CompatLedger {
    pub(crate) fn new(sessions: &Arc<Sessions>) -> Self {
        Self(Some(Arc::clone(sessions)))
    }

    /// Returns a ledger that admits every client without limits, for listeners without a service.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Admits a client for at most `duration`.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the client.
    pub fn enter(&self, address: IpAddr, duration: Duration) -> Result<CompatShare, &'static str> {
        let Some(sessions) = &self.0 else { return Ok(CompatShare(None)) };
        if sessions.drains.load(Ordering::Relaxed) || sessions.stopped.load(Ordering::Relaxed) {
            return Err("the server is being stopped");
        }
        let (network, now_ns) = (Payer::of(address), sessions.now_ns());
        let grant = sessions.ledger().enter_compat(now_ns, network, duration, PIECE_BYTES)?;
        let (sessions, account) = (Arc::clone(sessions), Account::new(&grant));
        Ok(CompatShare(Some(Guest { sessions, network, account })))
    }
}

impl CompatShare {
    /// Consumes `bytes`, a packet or at most [`CompatShare::chunk_bytes`], of rate, volume and
    /// quota, before they are sent (down) or read from a TCP socket (up). Never waits.
    ///
    /// # Errors
    /// Returns how long to wait before the next attempt; nothing was consumed.
    pub fn take(&self, direction: Direction, bytes: u64) -> Result<(), Duration> {
        let Some(guest) = &self.0 else { return Ok(()) };
        guest.have_volume(bytes);
        let now_ns = guest.sessions.now_ns();
        guest.account.take(now_ns, direction, bytes)?;
        guest.sessions.compat[direction as usize].take(now_ns, bytes).inspect_err(|_| {
            guest.account.give_back(direction, bytes);
        })?;
        guest.sessions.traffic().add(direction, bytes);
        Ok(())
    }

    /// Counts bytes that arrived and could not be delayed.
    ///
    /// # Errors
    /// Returns [`TooFast`] if the bytes arrived too fast or the volume is used up: the client has
    /// to be ended.
    pub fn charge(&self, direction: Direction, bytes: u64) -> Result<(), TooFast> {
        let Some(guest) = &self.0 else { return Ok(()) };
        guest.have_volume(bytes);
        let now_ns = guest.sessions.now_ns();
        guest.account.charge(now_ns, direction, bytes);
        guest.sessions.compat[direction as usize].charge(now_ns, bytes);
        guest.sessions.traffic().add(direction, bytes);
        if self.is_over() { Err(TooFast) } else { Ok(()) }
    }

    /// Returns a suitable size for one take: 2 KiB to 256 KiB, less at the end of the volume.
    pub fn chunk_bytes(&self, direction: Direction) -> usize {
        let Some(guest) = &self.0 else { return CHUNK_BYTES };
        guest.have_volume(CHUNK_BYTES as u64);
        guest.account.take_bytes(direction) as usize
    }

    /// Returns true once time or volume are used up, or the server stops.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|guest| {
            let is_stopped = guest.sessions.stopped.load(Ordering::Relaxed);
            is_stopped || guest.account.is_over(guest.sessions.now_ns())
        })
    }
}

impl Guest {
    /// Adds volume if less than `bytes` and a reserve are left and the quota allows it: one piece
    /// at a time, so that the ledger is rarely locked and a client holds little unused volume.
    fn have_volume(&self, bytes: u64) {
        if self.account.bytes_left() < bytes.saturating_add(RESERVE_BYTES) {
            let mut ledger = self.sessions.ledger();
            let now_ns = self.sessions.now_ns();
            self.account.add_volume(ledger.more_compat(now_ns, self.network, PIECE_BYTES));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.sessions.ledger().leave_compat(self.network, self.account.bytes_left());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn ledger(limits: Limits) -> CompatLedger {
        CompatLedger::new(&Arc::new(Sessions::new(limits)))
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn clients_of_other_tools_share_one_rate() {
        let ledger = ledger(Limits { compat_bit_per_s: 8_000, ..Limits::default() });
        let of = |last: u8| ledger.enter([198, 51, last, 1].into(), MINUTE).unwrap();
        let (one, other) = (of(1), of(2));
        let taken = |share: &CompatShare| {
            (0..1_000).filter(|_| share.take(Direction::Down, 1_000).is_ok()).count()
        };
        // 128 KiB at once, and a kilobyte per second that the test itself may take.
        let all = taken(&one) + taken(&other);
        assert!((100..400).contains(&all), "{all}");
        assert!(CompatLedger::unlimited().enter([0; 4].into(), MINUTE).is_ok());
    }

    #[test]
    fn a_network_pays_from_its_quota_and_gets_the_rest_back() {
        let quota = 40 << 20;
        let (anonymous_bytes_per_hour, compat_bit_per_s) = (quota, 1 << 40);
        let limits = Limits { anonymous_bytes_per_hour, compat_bit_per_s, ..Limits::default() };
        let ledger = ledger(limits);
        let here = [198, 51, 100, 1].into();
        let shares = [(); 3].map(|()| ledger.enter(here, MINUTE));
        let mut moved = 0;
        for share in shares.iter().flatten() {
            for _ in 0..100_000 {
                let chunk = share.chunk_bytes(Direction::Down) as u64;
                if share.is_over() {
                    break;
                }
                moved += share.take(Direction::Down, chunk).map_or(0, |()| chunk);
            }
            assert!(share.is_over());
        }
        assert!(moved > quota - (4 << 20) && moved <= quota + 100_000, "{moved}");
        drop(shares);
        assert!(ledger.enter(here, MINUTE).is_err());
        drop(ledger.enter([198, 51, 101, 1].into(), MINUTE).unwrap());
        let again = ledger.enter([198, 51, 101, 1].into(), MINUTE).unwrap();
        // More than the quota, which grows while a busy machine holds up the test.
        assert_eq!(again.charge(Direction::Up, 2 * quota), Err(TooFast));
        assert!(again.is_over());
    }

    #[test]
    fn each_network_has_a_limit_of_connections() {
        let quota = 1 << 60;
        let limits = Limits {
            anonymous_bytes_per_hour: quota,
            network_bytes_per_hour: quota,
            ..Limits::default()
        };
        let ledger = ledger(limits);
        let enter = || ledger.enter([198, 51, 100, 1].into(), MINUTE);
        let held: Vec<_> = std::iter::from_fn(|| enter().ok()).take(1_000).collect();
        assert_eq!(held.len(), 32);
        assert!(ledger.enter([198, 51, 101, 1].into(), MINUTE).is_ok());
        drop(held);
        assert!(enter().is_ok());
    }
}
