//! The rates, the volume and the end of a session; bytes are consumed before they are transferred.
//!
//! Within any window of time the load of a session in one direction is at most its granted rate
//! times the window, plus a burst of 256 KiB and a tenth of a second. Probes have a separate rate;
//! probes and load consume the same volume.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use underload_record::schema::Direction;

use super::allowance::Allowance;
use super::grant::Grant;

/// The rates and the volume of a session, as functions of the time.
#[derive(Debug)]
pub(crate) struct Account {
    end_ns: u64,
    ended: OnceLock<Ended>,
    bytes_left: AtomicU64,
    up: Allowance,
    down: Allowance,
    probes: Allowance,
    /// Limits, at the rate as granted, for bytes that arrived and could not be delayed. The current
    /// rate may be lower.
    arrived: [Allowance; 2],
    moved: [AtomicU64; 2],
}

/// Why a session ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Volume,
    TooFast,
    Closed,
    Void,
}

impl Ended {
    /// Returns the reason to send to the client; `None` if the client closed the session.
    fn in_words(self) -> Option<&'static str> {
        match self {
            Self::Volume => Some("its volume is used up"),
            Self::TooFast => Some("its datagrams came faster than the granted rate"),
            Self::Void => Some("its lease is void: the server cannot reach its orchestrator"),
            Self::Closed => None,
        }
    }
}

/// Bytes arrived faster than allowed and cannot be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFast;

/// Divisor of the higher granted rate: probes get this fraction of it.
const PROBES_SHARE: u64 = 8;
/// Lowest and highest rate of probes, bit/s: six to twenty-five classes of 1 ms probes.
const PROBES_BIT_PER_S: (u64, u64) = (4_000_000, 16_000_000);
/// A session whose datagrams are this far ahead of its granted rate ends.
const AHEAD_MAX: Duration = Duration::from_secs(1);
/// Largest take of a flow that does not call [`Account::take_bytes`].
const PACKET_BYTES: u64 = 1_500;

/// Returns the rate of a session's probes in either direction, bit/s, from its granted rates.
pub(crate) fn probes_bit_per_s(up_bit_per_s: u64, down_bit_per_s: u64) -> u64 {
    let share = up_bit_per_s.max(down_bit_per_s) / PROBES_SHARE;
    share.clamp(PROBES_BIT_PER_S.0, PROBES_BIT_PER_S.1)
}

impl Account {
    pub(crate) fn new(grant: &Grant) -> Self {
        let probes = probes_bit_per_s(grant.up_bit_per_s, grant.down_bit_per_s);
        Self {
            end_ns: grant.end_ns,
            ended: OnceLock::new(),
            bytes_left: AtomicU64::new(grant.volume_bytes),
            up: Allowance::new(grant.up_bit_per_s),
            down: Allowance::new(grant.down_bit_per_s),
            probes: Allowance::new(probes),
            arrived: [grant.up_bit_per_s, grant.down_bit_per_s].map(Allowance::new),
            moved: Default::default(),
        }
    }

    /// Returns why the session has ended by itself; `None` while it runs.
    pub(crate) fn end(&self, now_ns: u64) -> Option<&'static str> {
        let early = self.ended.get().and_then(|why| why.in_words());
        early.or_else(|| (now_ns >= self.end_ns).then_some("its time is up"))
    }

    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.ended.get().is_some() || now_ns >= self.end_ns
    }

    /// Ends the session. The first reason is kept.
    pub(crate) fn finish(&self, why: Ended) {
        let _ = self.ended.set(why);
    }

    /// Consumes bytes before they are transferred. If they may not be transferred now, consumes
    /// nothing and returns how long to wait.
    pub(crate) fn take(
        &self,
        now_ns: u64,
        direction: Direction,
        bytes: u64,
    ) -> Result<(), Duration> {
        if self.is_over(now_ns) {
            return Err(AHEAD_MAX);
        }
        let allowance = self.allowance(direction);
        allowance.take(now_ns, bytes)?;
        if !self.take_volume(bytes) {
            allowance.give_back(bytes);
            return Err(AHEAD_MAX);
        }
        self.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns bytes that were consumed but not transferred.
    pub(crate) fn give_back(&self, direction: Direction, bytes: u64) {
        self.allowance(direction).give_back(bytes);
        self.bytes_left.fetch_add(bytes, Ordering::Relaxed);
        self.moved[direction as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that arrived; ends the session if they arrive too fast.
    pub(crate) fn charge(&self, now_ns: u64, direction: Direction, bytes: u64) {
        self.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        self.spend_volume(bytes);
        self.allowance(direction).charge(now_ns, bytes);
        if self.arrived[direction as usize].charge(now_ns, bytes) > AHEAD_MAX {
            self.finish(Ended::TooFast);
        }
    }

    /// Returns true if a probe of `bytes` may be answered with as many bytes; charges both.
    pub(crate) fn admits_probe(&self, now_ns: u64, bytes: u64) -> bool {
        if self.is_over(now_ns) || self.probes.take(now_ns, bytes).is_err() {
            return false;
        }
        self.spend_volume(2 * bytes);
        true
    }

    /// Returns a suitable size for [`Account::take`].
    pub(crate) fn take_bytes(&self, direction: Direction) -> u64 {
        // At most the rest of the volume, so that its last bytes can be used too.
        let left = self.bytes_left.load(Ordering::Relaxed).max(1);
        self.allowance(direction).take_bytes().min(left)
    }

    pub(crate) fn add_volume(&self, bytes: u64) {
        self.bytes_left.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_left(&self) -> u64 {
        self.bytes_left.load(Ordering::Relaxed)
    }

    pub(crate) fn moved(&self, direction: Direction) -> u64 {
        self.moved[direction as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn allowance(&self, direction: Direction) -> &Allowance {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// Consumes volume. Ends the session when less than a packet is left.
    fn take_volume(&self, bytes: u64) -> bool {
        let order = Ordering::Relaxed;
        let taken = self.bytes_left.fetch_update(order, order, |left| left.checked_sub(bytes));
        match taken {
            Ok(left) if left > bytes => true,
            Err(left) if left >= PACKET_BYTES => false,
            _ => {
                self.finish(Ended::Volume);
                taken.is_ok()
            }
        }
    }

    fn spend_volume(&self, bytes: u64) {
        let order = Ordering::Relaxed;
        let spend = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.bytes_left.fetch_update(order, order, spend).unwrap_or(0);
        if before <= bytes {
            self.finish(Ended::Volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use underload_probe::control::Ask;

    use super::super::allowance::most_bytes;
    use super::super::ledger::{Ledger, Limits};
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];
    /// The most flows that a session may have.
    const FLOWS: u64 = 64;

    fn grant(up_bit_per_s: u64, down_bit_per_s: u64, volume_bytes: u64) -> Grant {
        Grant { id: 0, end_ns: 100 * SECOND, up_bit_per_s, down_bit_per_s, volume_bytes }
    }

    #[test]
    fn probes_have_a_separate_rate_and_are_charged_to_the_volume() {
        let account = Account::new(&grant(0, 0, 1_000_000));
        let probe = |now_ns| account.admits_probe(now_ns, 1_500);
        let burst = (0..1_000).filter(|_| probe(0)).count();
        // 128 KiB and 60 ms of 4 Mbit/s.
        assert_eq!(burst, 107);
        assert_eq!(account.bytes_left(), 1_000_000 - 2 * 107 * 1_500);
        let second = (0..1_000).filter(|_| probe(SECOND)).count();
        assert_eq!(second, 107, "a burst again, and not what the second would have allowed");
        let all = (2..50).map(|second| (0..1_000).filter(|_| probe(second * SECOND)).count());
        assert_eq!(all.sum::<usize>() + 2 * 107, 1_000_000_usize.div_ceil(3_000));
        assert_eq!(account.end(50 * SECOND), Some("its volume is used up"));
    }

    #[test]
    fn datagrams_that_come_too_fast_end_the_session() {
        let account = Account::new(&grant(8_000_000, 0, u64::MAX >> 1));
        let mut bytes = 0;
        while account.end(0).is_none() {
            account.charge(0, Direction::Up, 1_000);
            bytes += 1_000;
        }
        // The burst, and a second of 1 MB per second.
        assert!((1_190_000..1_195_000).contains(&bytes), "{bytes}");
        assert!(account.end(0).unwrap().contains("faster"));
        let steady = Account::new(&grant(8_000_000, 0, u64::MAX >> 1));
        for second in 0..99 {
            steady.charge(second * SECOND, Direction::Up, 1_000_000);
            assert_eq!(steady.end(second * SECOND), None);
        }
        // A session that keeps to its granted rate does not end because part of the rate was lent.
        let lent = Account::new(&grant(8_000_000, 0, u64::MAX >> 1));
        lent.allowance(Direction::Up).set_bit_per_s(0, 500_000);
        for second in 0..99 {
            lent.charge(second * SECOND, Direction::Up, 1_000_000);
            assert_eq!(lent.end(second * SECOND), None);
        }
        assert!(lent.take(99 * SECOND, Direction::Up, 1_000).is_err());
    }

    /// A session of the model, and what it transferred.
    struct Modelled {
        grant: Grant,
        account: Account,
        /// Consumed and not yet transferred, as by flows in the middle of a call.
        held: Vec<(Direction, u64)>,
        /// Transferred bytes by instant.
        moved: [BTreeMap<u64, u64>; 2],
        probed: u64,
    }

    impl Modelled {
        fn take(&mut self, now_ns: u64, direction: Direction, bytes: u64) -> bool {
            let taken = self.account.take(now_ns, direction, bytes).is_ok();
            if taken {
                self.held.push((direction, bytes));
            }
            taken
        }

        /// Transfers `part` of the last take, and returns the rest.
        fn carry(&mut self, now_ns: u64, part: u64) {
            if let Some((direction, bytes)) = self.held.pop() {
                let moved = part.min(bytes);
                *self.moved[direction as usize].entry(now_ns).or_insert(0) += moved;
                self.account.give_back(direction, bytes - moved);
            }
        }

        /// Transfers as much as the rate allows.
        fn rush(&mut self, now_ns: u64, direction: Direction) {
            for _ in 0..3_000 {
                let bytes = self.account.take_bytes(direction);
                if !self.take(now_ns, direction, bytes) {
                    return;
                }
                self.carry(now_ns, bytes);
            }
        }

        fn check(&self) {
            for direction in BOTH {
                let granted = [self.grant.up_bit_per_s, self.grant.down_bit_per_s];
                let granted = granted[direction as usize];
                check_windows(&self.moved[direction as usize], |window| {
                    most_bytes(granted, FLOWS, window)
                });
            }
            let moved: u64 = self.moved.iter().flat_map(BTreeMap::values).sum();
            let held: u64 = self.held.iter().map(|(_, bytes)| bytes).sum();
            assert!(moved + held + self.probed <= self.grant.volume_bytes + 3_000);
            let accounted = moved + held + self.probed + self.account.bytes_left();
            assert!(accounted >= self.grant.volume_bytes, "bytes were lost");
        }
    }

    /// Checks every window from one instant to another against `most`.
    fn check_windows(moved: &BTreeMap<u64, u64>, most: impl Fn(Duration) -> u64) {
        for start in moved.keys() {
            let mut sum = 0;
            for (end, bytes) in moved.range(start..) {
                sum += bytes;
                let window = Duration::from_nanos(end - start);
                let most = most(window);
                assert!(sum <= most, "{sum} bytes in {window:?}, at most {most}");
            }
        }
    }

    fn limits() -> Limits {
        Limits {
            sessions_max: 6,
            up_bit_per_s: 100_000_000,
            down_bit_per_s: 60_000_000,
            session_bit_per_s: 100_000_000,
            ..Limits::default()
        }
    }

    /// The real ledger and the real accounts, with a clock that advances only between steps.
    struct Model {
        now_ns: u64,
        ledger: Ledger,
        running: Vec<Modelled>,
        over: Vec<Modelled>,
    }

    impl Model {
        fn step(&mut self, (kind, pause_ns, who, amount): (u8, u64, u8, u64)) {
            self.now_ns += pause_ns;
            let now_ns = self.now_ns;
            let direction = BOTH[usize::from(who) / 8 % 2];
            match kind {
                0 => self.open(who, amount),
                1 => {
                    let moved: BTreeMap<u64, [u64; 2]> = self
                        .running
                        .iter()
                        .map(|it| (it.grant.id, BOTH.map(|direction| it.account.moved(direction))))
                        .collect();
                    self.ledger.update(now_ns, |id| moved.get(&id).copied());
                    self.apply_rates();
                }
                2 if !self.running.is_empty() => {
                    let session = self.running.swap_remove(usize::from(who) % self.running.len());
                    self.ledger.release(session.grant.id, session.account.bytes_left());
                    self.over.push(session);
                }
                _ => {
                    let count = self.running.len().max(1);
                    let Some(session) = self.running.get_mut(usize::from(who) % count) else {
                        return;
                    };
                    match kind {
                        3 | 4 => session.rush(now_ns, direction),
                        5 if (session.held.len() as u64) < FLOWS => {
                            let bytes = session.account.take_bytes(direction);
                            session.take(now_ns, direction, bytes);
                        }
                        6 => session.carry(now_ns, amount),
                        _ => {
                            let bytes = 80 + amount % 1_400;
                            for _ in 0..amount % 200 {
                                if session.account.admits_probe(now_ns, bytes) {
                                    session.probed += 2 * bytes;
                                }
                            }
                        }
                    }
                }
            }
        }

        fn open(&mut self, who: u8, amount: u64) {
            let rate = |choice: u64| {
                [Some(8_000), Some(1_000_000), Some(50_000_000), None][choice as usize % 4]
            };
            let (up_bit_per_s, down_bit_per_s) = (rate(amount), rate(amount / 4));
            let duration = Duration::from_secs(amount % 120);
            let ask = Ask { up_bit_per_s, down_bit_per_s, duration };
            let from = IpAddr::from([198, 51, who % 5, 1]);
            if let Ok(grant) = self.ledger.grant(self.now_ns, ask, from, None) {
                let (account, held) = (Account::new(&grant), Vec::new());
                let moved = Default::default();
                self.running.push(Modelled { grant, account, held, moved, probed: 0 });
                self.apply_rates();
            }
        }

        fn apply_rates(&self) {
            for session in &self.running {
                for direction in BOTH {
                    if let Some(rate) = self.ledger.rate_of(session.grant.id, direction) {
                        session.account.allowance(direction).set_bit_per_s(self.now_ns, rate);
                    }
                }
            }
        }

        fn check(&self) {
            let limits = limits();
            let all = || self.running.iter().chain(&self.over);
            all().for_each(Modelled::check);
            for (direction, capacity) in
                [(Direction::Up, limits.up_bit_per_s), (Direction::Down, limits.down_bit_per_s)]
            {
                let mut moved: BTreeMap<u64, u64> = BTreeMap::new();
                let mut bursts = 0;
                for session in all() {
                    let granted = [session.grant.up_bit_per_s, session.grant.down_bit_per_s];
                    bursts += most_bytes(granted[direction as usize], FLOWS, Duration::ZERO);
                    for (instant, bytes) in &session.moved[direction as usize] {
                        *moved.entry(*instant).or_insert(0) += bytes;
                    }
                }
                let over = |window: Duration| {
                    u128::from(capacity / 8) * window.as_nanos() / u128::from(SECOND)
                };
                check_windows(&moved, |window| bursts + over(window) as u64);
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, u64, u8, u64)>> {
        let pause = prop_oneof![
            4 => Just(0),
            8 => 0..50_000_000_u64,
            4 => 0..2 * SECOND,
            1 => 0..20 * SECOND,
        ];
        prop::collection::vec((0u8..9, pause, 0u8..16, 0u64..200_000), 0..80)
    }

    proptest! {
        /// Any number of sessions, flows between taking and moving, probes, lent and returned
        /// rates: no window has more bytes than granted for it.
        #[test]
        fn no_window_transfers_more_than_granted(steps in steps()) {
            let (running, over) = (Vec::new(), Vec::new());
            let mut model = Model { now_ns: 0, ledger: Ledger::new(limits()), running, over };
            for step in steps {
                model.step(step);
                let (up, down) = model.ledger.granted();
                prop_assert!(up <= limits().up_bit_per_s && down <= limits().down_bit_per_s);
            }
            model.check();
        }
    }
}
