//! A client's session: its parameters, its share, and its arrivals.

use std::net::SocketAddr;

use super::{DURATION_GRACE, IrttLimits, Parameters};
use underload_service::CompatShare;

#[derive(Debug)]
pub(super) struct Session {
    pub share: CompatShare,
    pub client: SocketAddr,
    pub deal: Parameters,
    pub(super) opened_ns: u64,
    first_used_ns: Option<u64>,
    last_used_ns: u64,
    bucket: Bucket,
    received: u32,
    last_sequence: Option<u32>,
    /// Bit `n` is set if `last_sequence - n` arrived.
    window: u64,
}

/// The facts about the client's packets that an answer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceivedSoFar {
    pub count: u32,
    /// The last 64 packets, seen from the answered one; 0 if that arrived out of order.
    pub window: u64,
}

impl Session {
    pub(super) fn new(
        now_ns: u64,
        client: SocketAddr,
        deal: Parameters,
        share: CompatShare,
        limits: &IrttLimits,
    ) -> Self {
        Self {
            share,
            client,
            deal,
            opened_ns: now_ns,
            first_used_ns: None,
            last_used_ns: now_ns,
            bucket: Bucket::new(now_ns, limits),
            received: 0,
            last_sequence: None,
            window: 0,
        }
    }

    pub(super) fn is_used(&self) -> bool {
        self.first_used_ns.is_some()
    }

    /// Returns true once nothing has arrived for too long.
    pub(super) fn is_idle(&self, now_ns: u64, limits: &IrttLimits) -> bool {
        let timeout = if self.is_used() { limits.idle_timeout } else { limits.unused_timeout };
        u128::from(now_ns.saturating_sub(self.last_used_ns)) > timeout.as_nanos()
    }

    /// Returns true once the agreed duration has passed.
    pub(super) fn is_overtime(&self, now_ns: u64) -> bool {
        let lasted_ns = now_ns.saturating_sub(self.first_used_ns.unwrap_or(now_ns));
        let agreed_ns = self.deal.duration_ns.max(0) as u128 + DURATION_GRACE.as_nanos();
        u128::from(lasted_ns) > agreed_ns
    }

    /// Counts a probe; `None` if it arrived too soon after earlier ones.
    pub(super) fn note(&mut self, now_ns: u64, sequence: u32) -> Option<ReceivedSoFar> {
        self.first_used_ns.get_or_insert(now_ns);
        self.last_used_ns = now_ns;
        if !self.bucket.take(now_ns) {
            return None;
        }
        self.received = self.received.wrapping_add(1);
        let ahead = self.last_sequence.map_or(0, |last| sequence.wrapping_sub(last) as i32);
        if ahead >= 0 {
            self.window = self.window.checked_shl(ahead.unsigned_abs()).unwrap_or(0) | 1;
            self.last_sequence = Some(sequence);
            return Some(ReceivedSoFar { count: self.received, window: self.window });
        }
        self.window |= 1u64.checked_shl(ahead.unsigned_abs()).unwrap_or(0);
        Some(ReceivedSoFar { count: self.received, window: 0 })
    }
}

/// Enforces the smallest interval, with a burst; all in ns.
#[derive(Debug)]
struct Bucket {
    interval: u64,
    /// Accumulated time, at most that of a burst.
    saved: u64,
    filled_at: u64,
}

const BURST: u64 = 5;

impl Bucket {
    fn new(now_ns: u64, limits: &IrttLimits) -> Self {
        let interval = u64::try_from(limits.interval_min.as_nanos()).unwrap_or(u64::MAX / BURST);
        Self { interval, saved: interval.saturating_mul(BURST), filled_at: now_ns }
    }

    fn take(&mut self, now_ns: u64) -> bool {
        let saved_max_ns = self.interval.saturating_mul(BURST);
        let earned_ns = now_ns.saturating_sub(self.filled_at);
        self.filled_at = now_ns;
        self.saved = self.saved.saturating_add(earned_ns).min(saved_max_ns);
        let rest = self.saved.checked_sub(self.interval);
        self.saved = rest.unwrap_or(self.saved);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use underload_service::CompatLedger;

    fn session(limits: &IrttLimits) -> Session {
        let deal = Parameters { duration_ns: 1_000_000_000, ..Parameters::default() };
        let share = CompatLedger::unlimited().enter([192, 0, 2, 1].into(), Duration::ZERO).unwrap();
        Session::new(0, SocketAddr::from(([192, 0, 2, 1], 5)), deal, share, limits)
    }

    #[test]
    fn the_window_shows_gaps_and_late_arrivals() {
        let limits = IrttLimits { interval_min: Duration::ZERO, ..IrttLimits::default() };
        let mut session = session(&limits);
        let window = |session: &mut Session, sequence| session.note(0, sequence).unwrap().window;
        assert_eq!(window(&mut session, 0), 0b1);
        assert_eq!(window(&mut session, 1), 0b11);
        assert_eq!(window(&mut session, 4), 0b11001);
        assert_eq!(window(&mut session, 3), 0, "late: the window says nothing");
        assert_eq!(window(&mut session, 5), 0b11_0111);
        assert_eq!(window(&mut session, 500), 0b1);
        assert_eq!(session.note(0, u32::MAX).unwrap().count, 7);
    }

    #[test]
    fn too_many_probes_are_dropped_and_time_ends_it() {
        let limits = IrttLimits { interval_min: Duration::from_millis(10), ..Default::default() };
        let mut session = session(&limits);
        let passed = (0..20).filter(|sequence| session.note(0, *sequence).is_some()).count();
        assert_eq!(passed, 5);
        let passed = (20..30).filter(|n| session.note(20_000_000, *n).is_some()).count();
        assert_eq!(passed, 2);
        assert!(!session.is_overtime(3_000_000_000));
        assert!(session.is_overtime(3_000_000_001));
        assert!(session.is_idle(61_000_000_000, &limits));
        assert!(!session.is_idle(60_000_000_000, &limits));
    }
}
