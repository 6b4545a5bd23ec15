//! Who may measure now: a function of what was granted before and of the time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use underload_record::schema::Direction;

use super::held::{Held, UNUSED_MAX_NS};
use super::quota::{Payer, Quotas};
use super::share::probes_bit_per_s;
use super::token::Admitted;

/// Upper bounds of what a server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once.
    pub sessions_max: usize,
    /// Sessions at once from one network: a /24 of IPv4, a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Sum of the granted rates towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Sum of the granted rates from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Rate of one session in either direction, bit/s.
    pub session_bit_per_s: u64,
    /// Length of a session.
    pub duration_max: Duration,
    /// What one network may move per hour, both directions together.
    pub network_bytes_per_hour: u64,
    /// Bytes that one token may move per hour.
    pub token_bytes_per_hour: u64,
    /// Bytes that one network may move per hour without a token.
    pub anonymous_bytes_per_hour: u64,
    /// Rate of all clients of other tools together, in either direction, bit/s; sessions get what
    /// is left.
    pub compat_bit_per_s: u64,
}

impl Default for Limits {
    /// For a public server on 1 Gbit/s: sixteen sessions, four per network, two minutes each;
    /// 50 GB per network and token and hour, 10 GB without a token.
    fn default() -> Self {
        Self {
            sessions_max: 16,
            sessions_per_network_max: 4,
            up_bit_per_s: 1_000_000_000,
            down_bit_per_s: 1_000_000_000,
            session_bit_per_s: 1_000_000_000,
            duration_max: Duration::from_mins(2),
            network_bytes_per_hour: 50_000_000_000,
            token_bytes_per_hour: 50_000_000_000,
            anonymous_bytes_per_hour: 10_000_000_000,
            compat_bit_per_s: 0,
        }
    }
}

impl Limits {
    /// For one machine or a lab: nothing that a test would reach.
    pub fn generous() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_network_max: 64,
            up_bit_per_s: 1 << 50,
            down_bit_per_s: 1 << 50,
            session_bit_per_s: 1 << 44,
            duration_max: Duration::from_hours(2),
            network_bytes_per_hour: 1 << 60,
            token_bytes_per_hour: 1 << 60,
            anonymous_bytes_per_hour: 1 << 60,
            compat_bit_per_s: 1 << 44,
        }
    }

    /// Rate of all sessions together, bit/s.
    fn total(&self, direction: Direction) -> u64 {
        let all = match direction {
            Direction::Up => self.up_bit_per_s,
            Direction::Down => self.down_bit_per_s,
        };
        all.saturating_sub(self.compat_bit_per_s)
    }
}

/// Rates and duration that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Highest rate towards the server, bit/s; `None` for as much as there is.
    pub up_bit_per_s: Option<u64>,
    /// Highest rate from the server, bit/s; `None` for as much as there is.
    pub down_bit_per_s: Option<u64>,
    /// Length of the measurement.
    pub duration: Duration,
}

/// What the ledger has granted to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub id: u64,
    pub end_ns: u64,
    pub up_bit_per_s: u64,
    pub down_bit_per_s: u64,
    /// Both directions together.
    pub volume_bytes: u64,
}

/// The reason why nothing was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// Not now; room is expected after this, because of that.
    Busy(Duration, &'static str),
    /// Never; what would be.
    TooMuch(String),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    grant: Grant,
    network: Payer,
    token: Option<Payer>,
    held: [Held; 2],
}

/// The sessions that run.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    entries: Vec<Entry>,
    quotas: Quotas,
    next_id: u64,
    /// Clients of other tools, by network.
    compat: BTreeMap<Payer, usize>,
    /// When the use of the sessions' rates was last checked, ns.
    looked_at_ns: u64,
    /// What the line carries, up and down, bit/s, where that is known.
    line: Option<[u64; 2]>,
}

/// What a session may carry beyond its granted rate times its length: the ramps of its flows.
pub(super) const VOLUME_MARGIN_BYTES: u64 = 16 << 20;
/// Who has less than this left of its quota waits.
const VOLUME_MIN_BYTES: u64 = 32 << 20;
/// Who asks for as much as there is gets no less than this share of a session's rate.
const SHARE_MIN: u64 = 16;
/// A network holds at most three quarters of what other networks leave, so that whoever comes next
/// finds something.
const NETWORK_SHARE: (u64, u64) = (3, 4);
/// Clients of other tools at once, in all and of one network.
const COMPAT_MAX: (usize, usize) = (128, 32);
/// With less of its quota left none is admitted.
const COMPAT_VOLUME_MIN: u64 = 1 << 20;
/// Who meets a full line comes back after this: nobody knows when others will have finished.
const LINE_BUSY_RETRY: Duration = Duration::from_secs(10);
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            quotas: Quotas::default(),
            next_id: 0,
            compat: BTreeMap::new(),
            looked_at_ns: 0,
            line: None,
        }
    }

    /// Grants a session from `now_ns` on to `address`, which showed that token. Other sessions
    /// may hold less afterwards: see [`Ledger::rate_of`].
    pub(super) fn grant(
        &mut self,
        now_ns: u64,
        ask: Ask,
        address: IpAddr,
        token: Option<Admitted>,
    ) -> Result<Grant, Denial> {
        self.check_size(ask)?;
        self.expire(now_ns);
        let limits = self.limits;
        let network = Payer::of(address);
        let most = token.and_then(|token| token.rate_bit_per_s).unwrap_or(u64::MAX);
        let token = token.map(|token| Payer::Token(token.id));
        let of_network = self.entries.iter().filter(|entry| entry.network == network).count();
        if self.entries.len() >= limits.sessions_max {
            return Err(self.busy(now_ns, "all places are taken"));
        }
        if of_network >= limits.sessions_per_network_max {
            return Err(self.busy(now_ns, "your network has all the places that it may have"));
        }
        let up = self.rate(now_ns, ask.up_bit_per_s, most, network, Direction::Up)?;
        let down = self.rate(now_ns, ask.down_bit_per_s, most, network, Direction::Down)?;
        let wanted = volume_of(up, down, ask.duration);
        let volume_bytes = self.volume(now_ns, wanted, network, token)?;
        self.make_room(now_ns, up, network, Direction::Up);
        self.make_room(now_ns, down, network, Direction::Down);
        let end_ns = now_ns.saturating_add(ask.duration.as_nanos() as u64);
        let grant = Grant {
            id: self.next_id,
            end_ns,
            up_bit_per_s: up,
            down_bit_per_s: down,
            volume_bytes,
        };
        self.next_id += 1;
        for payer in [Some(network), token].into_iter().flatten() {
            self.quotas.charge(now_ns, payer, volume_bytes);
        }
        let held = [up, down].map(|bit_per_s| Held::new(now_ns, bit_per_s));
        self.entries.push(Entry { grant, network, token, held });
        Ok(grant)
    }

    /// Ends a session, which left so much of its volume unused; ending it twice changes nothing.
    pub(super) fn release(&mut self, id: u64, unused_bytes: u64) {
        let Some(index) = self.entries.iter().position(|entry| entry.grant.id == id) else {
            return;
        };
        let entry = self.entries.swap_remove(index);
        let unused = unused_bytes.min(entry.grant.volume_bytes);
        for payer in [Some(entry.network), entry.token].into_iter().flatten() {
            self.quotas.refund(payer, unused);
        }
    }

    /// A client of another tool, for at most `duration`, with a volume to begin with.
    pub(super) fn enter_compat(
        &mut self,
        now_ns: u64,
        network: Payer,
        duration: Duration,
        bytes: u64,
    ) -> Result<Grant, &'static str> {
        let of_network = self.compat.get(&network).copied().unwrap_or(0);
        if self.compat.values().sum::<usize>() >= COMPAT_MAX.0 {
            return Err("all places are taken");
        }
        if of_network >= COMPAT_MAX.1 {
            return Err("your network has all the places that it may have");
        }
        let volume_bytes = self.more_compat(now_ns, network, bytes);
        if volume_bytes < COMPAT_VOLUME_MIN {
            self.quotas.refund(network, volume_bytes);
            return Err("the quota of this hour is used up");
        }
        self.compat.insert(network, of_network + 1);
        let duration = duration.min(self.limits.duration_max);
        let end_ns = now_ns.saturating_add(duration.as_nanos() as u64);
        let (up_bit_per_s, down_bit_per_s) = [self.limits.compat_bit_per_s; 2].into();
        Ok(Grant { id: u64::MAX, end_ns, up_bit_per_s, down_bit_per_s, volume_bytes })
    }

    /// Up to so many bytes more off the quota of its network.
    pub(super) fn more_compat(&mut self, now_ns: u64, network: Payer, bytes: u64) -> u64 {
        let limits = self.limits;
        let per_hour = limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour);
        let bytes = self.quotas.left(now_ns, network, per_hour).min(bytes);
        self.quotas.charge(now_ns, network, bytes);
        bytes
    }

    /// It is gone, and left so much of its volume.
    pub(super) fn leave_compat(&mut self, network: Payer, unused_bytes: u64) {
        self.quotas.refund(network, unused_bytes);
        match self.compat.get_mut(&network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.compat.remove(&network);
            }
        }
    }

    /// Looks at what each session has moved so far, up and down, in bytes; call it about once a
    /// second. A rate that was taken from a session comes back as soon as there is room and it is
    /// used.
    pub(super) fn look(&mut self, now_ns: u64, moved: impl Fn(u64) -> Option<[u64; 2]>) {
        self.expire(now_ns);
        let elapsed_ns = now_ns.saturating_sub(self.looked_at_ns);
        self.looked_at_ns = now_ns;
        for index in 0..self.entries.len() {
            let Some(moved) = moved(self.entries[index].grant.id) else { continue };
            for direction in DIRECTIONS {
                let entry = &mut self.entries[index];
                let held = &mut entry.held[direction as usize];
                let is_used = held.look(now_ns, elapsed_ns, moved[direction as usize]);
                let missing = held.granted_bit_per_s.saturating_sub(held.bit_per_s);
                if is_used {
                    let network = entry.network;
                    let room = self.network_room(network, direction, self.free(direction));
                    self.entries[index].held[direction as usize].bit_per_s += missing.min(room);
                }
            }
        }
    }

    /// Notes what the line carries, up and down, bit/s.
    pub(super) fn note_line(&mut self, bit_per_s: Option<[u64; 2]>) {
        self.line = bit_per_s;
    }

    /// The rate that a session holds now, bit/s.
    pub(super) fn rate_of(&self, id: u64, direction: Direction) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.grant.id == id)?;
        Some(entry.held[direction as usize].bit_per_s)
    }

    /// The sum of the rates that are granted now, up and down, bit/s.
    pub(super) fn granted(&self) -> (u64, u64) {
        (self.held(Direction::Up), self.held(Direction::Down))
    }

    fn held(&self, direction: Direction) -> u64 {
        self.entries.iter().map(|entry| entry.held[direction as usize].bit_per_s).sum()
    }

    fn free(&self, direction: Direction) -> u64 {
        self.limits.total(direction).saturating_sub(self.held(direction))
    }

    /// Rate that the line has left beside its other traffic, bit/s.
    fn line_room(&self, direction: Direction) -> u64 {
        let Some(carried) = self.line else { return u64::MAX };
        let capacity = match direction {
            Direction::Up => self.limits.up_bit_per_s,
            Direction::Down => self.limits.down_bit_per_s,
        };
        capacity.saturating_sub(carried[direction as usize])
    }

    /// Rate that other networks hold and do not use, bit/s.
    fn spare(&self, now_ns: u64, network: Payer, direction: Direction) -> u64 {
        let others = self.entries.iter().filter(|entry| entry.network != network);
        others.map(|entry| entry.held[direction as usize].spare(now_ns)).sum()
    }

    /// What `network` may hold beyond what it holds now, if so much is free; no more than that.
    fn network_room(&self, network: Payer, direction: Direction, free: u64) -> u64 {
        let of_network = self.entries.iter().filter(|entry| entry.network == network);
        let own: u64 = of_network.map(|entry| entry.held[direction as usize].bit_per_s).sum();
        let (part, whole) = NETWORK_SHARE;
        let left_by_others = u128::from(free.saturating_add(own));
        let most = left_by_others * u128::from(part) / u128::from(whole);
        u64::try_from(most).unwrap_or(u64::MAX).saturating_sub(own)
    }

    /// Takes unused rates from those other networks that hold the most of them, until `bit_per_s`
    /// are free.
    fn make_room(&mut self, now_ns: u64, bit_per_s: u64, network: Payer, direction: Direction) {
        loop {
            let missing = bit_per_s.saturating_sub(self.free(direction));
            let others = self.entries.iter_mut().filter(|entry| entry.network != network);
            let rates = others.map(|entry| &mut entry.held[direction as usize]);
            let Some(fullest) = rates.max_by_key(|held| held.spare(now_ns)) else { return };
            let taken = fullest.spare(now_ns).min(missing);
            if taken == 0 {
                return;
            }
            fullest.bit_per_s -= taken;
        }
    }

    fn check_size(&self, ask: Ask) -> Result<(), Denial> {
        let limits = self.limits;
        if ask.duration > limits.duration_max {
            let [asked, most] = [ask.duration, limits.duration_max].map(|it| it.as_secs_f64());
            let reason = format!("a session of {asked} s is too long, at most {most} s");
            return Err(Denial::TooMuch(reason));
        }
        for (asked, total, direction) in [
            (ask.up_bit_per_s, limits.up_bit_per_s, "up"),
            (ask.down_bit_per_s, limits.down_bit_per_s, "down"),
        ] {
            let most = total.min(limits.session_bit_per_s);
            if let Some(asked) = asked.filter(|asked| *asked > most) {
                let reason = format!("{asked} bit/s {direction} is too much, at most {most} bit/s");
                return Err(Denial::TooMuch(reason));
            }
        }
        Ok(())
    }

    fn rate(
        &self,
        now_ns: u64,
        asked: Option<u64>,
        most: u64,
        network: Payer,
        direction: Direction,
    ) -> Result<u64, Denial> {
        let session = self.limits.session_bit_per_s.min(self.limits.total(direction)).min(most);
        let free = self.free(direction).saturating_add(self.spare(now_ns, network, direction));
        let room = self.network_room(network, direction, free);
        let line = self.line_room(direction);
        // Whoever names a rate names a generous one: half of it is worth having.
        let (given, least, of_line) = match asked {
            Some(asked) => {
                let given = asked.min(session).min(room);
                (given, asked.div_ceil(2), given)
            }
            None => {
                let least = (session / SHARE_MIN).max(1);
                (session.min(room).min(line), least, least)
            }
        };
        if line < of_line {
            return Err(Denial::Busy(LINE_BUSY_RETRY, LINE_FULL));
        }
        if given >= least {
            return Ok(given);
        }
        let wait = match self.busy(now_ns, OTHERS) {
            Denial::Busy(wait, _) => wait.min(Duration::from_nanos(UNUSED_MAX_NS)),
            Denial::TooMuch(_) => Duration::from_nanos(UNUSED_MAX_NS),
        };
        Err(Denial::Busy(wait, OTHERS))
    }

    fn volume(
        &mut self,
        now_ns: u64,
        wanted: u64,
        network: Payer,
        token: Option<Payer>,
    ) -> Result<u64, Denial> {
        let limits = self.limits;
        let of_network = match token {
            Some(_) => limits.network_bytes_per_hour,
            None => limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour),
        };
        let quotas = [(Some(network), of_network), (token, limits.token_bytes_per_hour)];
        let mut volume = wanted;
        for (payer, per_hour) in quotas {
            let Some(payer) = payer else { continue };
            let left = self.quotas.left(now_ns, payer, per_hour);
            let least = wanted.min(VOLUME_MIN_BYTES);
            if left < least {
                let wait = self.quotas.wait(payer, least, per_hour);
                return Err(Denial::Busy(wait, "the quota of this hour is used up"));
            }
            volume = volume.min(left);
        }
        Ok(volume)
    }

    /// Sessions past their end hold nothing, even while their threads are still noticing. What they
    /// left unused stays charged: they had the time to use it.
    fn expire(&mut self, now_ns: u64) {
        self.entries.retain(|entry| entry.grant.end_ns > now_ns);
    }

    fn busy(&self, now_ns: u64, reason: &'static str) -> Denial {
        let next_end_ns = self.entries.iter().map(|entry| entry.grant.end_ns).min();
        let wait = match next_end_ns {
            Some(end_ns) => Duration::from_nanos(end_ns.saturating_sub(now_ns)),
            None => self.limits.duration_max,
        };
        Denial::Busy(wait, reason)
    }
}

const LINE_FULL: &str = "the line of this server is full";
const OTHERS: &str = "others are using the line of this server";

/// Rates times time, probes included, and a margin.
fn volume_of(up_bit_per_s: u64, down_bit_per_s: u64, duration: Duration) -> u64 {
    let probes = 2 * u128::from(probes_bit_per_s(up_bit_per_s, down_bit_per_s));
    let bit_per_s = u128::from(up_bit_per_s) + u128::from(down_bit_per_s) + probes;
    let bytes = bit_per_s.saturating_mul(duration.as_millis()) / 8_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(VOLUME_MARGIN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::held::KEPT_SHARE;
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const LIMITS: Limits = Limits {
        sessions_max: 4,
        sessions_per_network_max: 2,
        up_bit_per_s: 100,
        down_bit_per_s: 200,
        session_bit_per_s: 200,
        duration_max: Duration::from_micros(1),
        network_bytes_per_hour: 1 << 40,
        token_bytes_per_hour: 1 << 40,
        anonymous_bytes_per_hour: 1 << 40,
        compat_bit_per_s: 0,
    };

    fn ask(up_bit_per_s: u64, down_bit_per_s: u64, nanos: u64) -> Ask {
        Ask {
            up_bit_per_s: Some(up_bit_per_s),
            down_bit_per_s: Some(down_bit_per_s),
            duration: Duration::from_nanos(nanos),
        }
    }

    /// Each in a network of its own.
    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(198, 51, number, 1).into()
    }

    /// A client that leaves gives back its own place and no other: 32 of a network, 128 in all.
    #[test]
    fn a_client_of_another_tool_that_leaves_frees_one_place() {
        let mut ledger = Ledger::new(LIMITS);
        let enter = |ledger: &mut Ledger, number| {
            let network = Payer::of(address(number));
            ledger.enter_compat(0, network, Duration::from_secs(1), COMPAT_VOLUME_MIN).is_ok()
        };
        let entered = (0..40).filter(|_| enter(&mut ledger, 1)).count();
        assert_eq!(entered, 32);
        ledger.leave_compat(Payer::of(address(1)), 0);
        assert!(enter(&mut ledger, 1) && !enter(&mut ledger, 1));
        let others = (0..120).filter(|number| enter(&mut ledger, 2 + number / 30)).count();
        assert_eq!(32 + others, 128);
        // The last of a network leaves, and a place that it has not is not given back.
        for left in 1..=40 {
            ledger.leave_compat(Payer::of(address(1)), 0);
            let networks = if left < 32 { 5 } else { 4 };
            assert_eq!(ledger.compat.len(), networks, "those without a client are forgotten");
        }
        assert_eq!((0..40).filter(|_| enter(&mut ledger, 7)).count(), 32);
    }

    #[test]
    fn a_client_of_another_tool_needs_a_mebibyte_of_its_quota() {
        let mut ledger = Ledger::new(LIMITS);
        let network = Payer::of(address(1));
        let second = Duration::from_secs(1);
        assert!(ledger.enter_compat(0, network, second, COMPAT_VOLUME_MIN - 1).is_err());
        let grant = ledger.enter_compat(0, network, second, COMPAT_VOLUME_MIN).expect("room");
        assert_eq!(grant.volume_bytes, COMPAT_VOLUME_MIN);
    }

    #[test]
    fn what_never_fits_is_told_apart_from_what_does_not_fit_now() {
        let mut ledger = Ledger::new(LIMITS);
        let most = ask(100, 200, 1_000);
        assert_eq!(ledger.grant(0, most, address(1), None).map(|grant| grant.up_bit_per_s), Ok(75));
        ledger = Ledger::new(LIMITS);
        let mut grant = |now_ns, ask, number| ledger.grant(now_ns, ask, address(number), None);
        let never = |denial| matches!(denial, Err(Denial::TooMuch(_)));
        assert!(never(grant(0, ask(101, 0, 1), 1)));
        assert!(never(grant(0, ask(0, 201, 1), 1)));
        let Err(Denial::TooMuch(reason)) = grant(0, ask(0, 0, 1_001), 1) else { panic!() };
        assert_eq!(reason, "a session of 0.000001001 s is too long, at most 0.000001 s");
        let first = grant(0, ask(60, 0, 300), 1).unwrap();
        assert_eq!((first.id, first.end_ns, first.volume_bytes), (0, 300, 16 << 20));
        // Three quarters of what is left, and less than half of what was asked.
        let Err(Denial::Busy(wait, _)) = grant(100, ask(61, 0, 300), 2) else { panic!() };
        assert_eq!(wait, Duration::from_nanos(200));
        let second = grant(100, ask(40, 0, 300), 2).unwrap();
        assert_eq!((second.up_bit_per_s, second.end_ns), (30, 400));
        assert_eq!(grant(300, ask(40, 0, 1), 2).unwrap().up_bit_per_s, 40);
        let Err(Denial::Busy(_, reason)) = grant(300, ask(0, 0, 1), 2) else { panic!() };
        assert!(reason.contains("network"));
        ledger.release(1, 0);
        ledger.release(1, 0);
        assert_eq!(ledger.grant(300, ask(30, 0, 1), address(2), None).unwrap().id, 3);
    }

    #[test]
    fn one_network_never_holds_so_much_that_another_finds_nothing() {
        let mut ledger = Ledger::new(LIMITS);
        let open = Ask { up_bit_per_s: None, ..ask(0, 0, 100) };
        let mut up = |ask, number| {
            ledger.grant(0, ask, address(number), None).map(|grant| grant.up_bit_per_s)
        };
        assert_eq!(up(ask(90, 0, 100), 1), Ok(75), "at least half of what it named");
        assert!(up(open, 1).is_err(), "its neighbours wait");
        assert_eq!(up(open, 2), Ok(18));
        assert!(matches!(up(open, 3), Err(Denial::Busy(..))), "less than a session is worth");
        assert_eq!(up(ask(5, 0, 100), 3), Ok(5));
        assert_eq!(ledger.granted(), (98, 0));
    }

    #[test]
    fn nobody_is_admitted_to_a_line_that_is_full() {
        let mut ledger = Ledger::new(LIMITS);
        let mut down = |line, down_bit_per_s| {
            ledger.note_line(line);
            let ask = Ask { down_bit_per_s, ..ask(0, 0, 100) };
            let granted = ledger.grant(0, ask, address(1), None);
            if let Ok(granted) = granted {
                ledger.release(granted.id, 0);
            }
            granted.map(|grant| grant.down_bit_per_s)
        };
        assert_eq!(down(None, None), Ok(150));
        assert_eq!(down(Some([0, 120]), None), Ok(80), "what the line has left");
        assert_eq!(down(Some([0, 120]), Some(80)), Ok(80));
        let Err(Denial::Busy(_, reason)) = down(Some([0, 120]), Some(81)) else { panic!() };
        assert!(reason.contains("line"), "{reason}");
        assert!(down(Some([0, 195]), None).is_err());
        assert_eq!(down(Some([0, 500]), Some(1)), Err(Denial::Busy(LINE_BUSY_RETRY, LINE_FULL)));
        assert_eq!(down(Some([500, 0]), Some(1)), Ok(1), "the other direction");
    }

    #[test]
    fn a_full_line_is_told_from_others_who_hold_the_rates() {
        let limits = Limits { sessions_per_network_max: 1, ..LIMITS };
        let down = |line, down_bit_per_s| {
            let mut ledger = Ledger::new(limits);
            ledger.grant(0, ask(0, 160, 1_000), address(1), None).expect("150 of 200");
            ledger.note_line(line);
            let ask = Ask { down_bit_per_s, ..ask(0, 0, 100) };
            ledger.grant(0, ask, address(2), None).map(|grant| grant.down_bit_per_s)
        };
        let others = Err(Denial::Busy(Duration::from_micros(1), OTHERS));
        let full = Err(Denial::Busy(LINE_BUSY_RETRY, LINE_FULL));
        assert_eq!(down(None, None), Ok(37), "three quarters of 50");
        assert_eq!(down(None, Some(74)), Ok(37));
        assert_eq!(down(None, Some(75)), others);
        assert_eq!(down(Some([0, 200 - 37]), Some(74)), Ok(37));
        assert_eq!(down(Some([0, 200 - 36]), Some(74)), full);
        // A sixteenth of 200 is worth a session.
        assert_eq!(down(Some([0, 200 - 12]), None), Ok(12));
        assert_eq!(down(Some([0, 200 - 11]), None), full);
        assert_eq!(down(Some([0, 200]), Some(75)), full, "both");
    }

    #[test]
    fn a_token_for_a_rate_bounds_who_asks_for_all_and_promises_nothing() {
        let token =
            |bit_per_s| Some(Admitted { id: [1; 16], rate_bit_per_s: Some(bit_per_s), expires: 0 });
        let open = Ask { up_bit_per_s: None, down_bit_per_s: None, ..ask(0, 0, 100) };
        let rates = |held_by_others, token| {
            let mut ledger = Ledger::new(LIMITS);
            ledger.grant(0, ask(0, held_by_others, 1_000), address(1), None).expect("room");
            let granted = ledger.grant(0, open, address(2), token);
            granted.map(|grant| (grant.up_bit_per_s, grant.down_bit_per_s))
        };
        assert_eq!(rates(0, token(50)), Ok((50, 50)));
        assert_eq!(rates(0, token(1_000)), Ok((75, 150)), "more than the server has is no fault");
        assert_eq!(rates(150, token(200)), Ok((75, 37)), "nor is less than half of it");
        assert_eq!(rates(0, token(0)), Err(Denial::Busy(Duration::from_micros(1), OTHERS)));
    }

    #[test]
    fn limits_of_a_lab_stop_no_measurement() {
        let mut ledger = Ledger::new(Limits::generous());
        let two_hours = Duration::from_hours(2);
        let all = Ask { up_bit_per_s: None, down_bit_per_s: None, duration: two_hours };
        let client = Payer::of(address(1));
        let bytes_of_compat = 1 << 50;
        let other = ledger.enter_compat(0, client, two_hours, bytes_of_compat).expect("room");
        assert_eq!((other.up_bit_per_s, other.volume_bytes), (1 << 44, bytes_of_compat));
        // Forty-seven of one network, each at 17 Tbit/s.
        for number in 0..47 {
            let duration = if number == 0 { two_hours } else { Duration::from_mins(1) };
            let grant = ledger.grant(0, Ask { duration, ..all }, address(1), None).expect("room");
            assert_eq!((grant.up_bit_per_s, grant.down_bit_per_s), (1 << 44, 1 << 44));
            assert_eq!(grant.volume_bytes, volume_of(1 << 44, 1 << 44, duration));
        }
        let token = Admitted { id: [1; 16], rate_bit_per_s: None, expires: 0 };
        let grant = ledger.grant(0, all, address(2), Some(token)).expect("room");
        assert_eq!(grant.volume_bytes, volume_of(1 << 44, 1 << 44, two_hours));
        assert_eq!(ledger.limits.sessions_max, 64);
    }

    #[test]
    fn clients_of_other_tools_have_a_rate_that_no_session_gets() {
        let mut ledger = Ledger::new(Limits { compat_bit_per_s: 60, ..LIMITS });
        let open = Ask { up_bit_per_s: None, down_bit_per_s: None, ..ask(0, 0, 100) };
        let granted = ledger.grant(0, open, address(1), None).unwrap();
        assert_eq!((granted.up_bit_per_s, granted.down_bit_per_s), (30, 105));
    }

    #[test]
    fn a_rate_that_goes_unused_is_lent_and_comes_back_when_it_is_needed() {
        const SECOND: u64 = 1_000_000_000;
        let limits = Limits { duration_max: Duration::from_hours(1), ..Limits::default() };
        let mut ledger = Ledger::new(limits);
        let all = Ask { up_bit_per_s: None, down_bit_per_s: None, duration: limits.duration_max };
        let idle = ledger.grant(0, all, address(1), None).unwrap();
        let many = Ask { up_bit_per_s: Some(500_000_000), ..all };
        let seen = |moved: u64| move |id| (id == 0).then_some([moved, 0]);
        ledger.look(SECOND, seen(0));
        assert!(ledger.grant(14 * SECOND, many, address(2), None).is_err(), "perhaps it begins");
        ledger.look(15 * SECOND, seen(0));
        let busy = ledger.grant(15 * SECOND, many, address(2), None).unwrap();
        assert_eq!(busy.up_bit_per_s, 500_000_000);
        let (up, _) = ledger.granted();
        assert!(up <= limits.up_bit_per_s, "{up}");
        let less = ledger.rate_of(idle.id, Direction::Up).unwrap();
        assert!(less < idle.up_bit_per_s && less >= idle.up_bit_per_s / KEPT_SHARE, "{less}");
        // It begins, and finds less until there is room.
        ledger.look(16 * SECOND, seen(less / 8));
        assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(less));
        ledger.release(busy.id, 0);
        ledger.look(17 * SECOND, seen(less / 8 + less / 32));
        assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(less), "a quarter is no need");
        ledger.look(18 * SECOND, seen(less / 4));
        assert_eq!(ledger.rate_of(idle.id, Direction::Up), Some(idle.up_bit_per_s));
    }

    #[test]
    fn thirty_two_mebibytes_of_a_quota_are_worth_a_session() {
        for (left, is_granted) in [(VOLUME_MIN_BYTES - 1, false), (VOLUME_MIN_BYTES, true)] {
            let limits = Limits { anonymous_bytes_per_hour: left, ..Limits::default() };
            let ask = Ask { duration: Duration::from_secs(10), ..ask(750_000_000, 0, 0) };
            let granted = Ledger::new(limits).grant(0, ask, address(1), None);
            assert_eq!(granted.map(|grant| grant.volume_bytes).ok(), is_granted.then_some(left));
        }
    }

    #[test]
    fn a_used_up_quota_makes_wait_and_what_was_not_used_is_given_back() {
        let limits = Limits { anonymous_bytes_per_hour: 48 << 20, ..Limits::default() };
        let mut ledger = Ledger::new(limits);
        let ask = Ask { duration: Duration::from_secs(10), ..ask(750_000_000, 0, 0) };
        // Less than it wanted, but worth beginning.
        let first = ledger.grant(0, ask, address(1), None).unwrap();
        assert_eq!(first.volume_bytes, 48 << 20);
        ledger.release(first.id, 40 << 20);
        let second = ledger.grant(0, ask, address(1), None).unwrap();
        assert_eq!(second.volume_bytes, 40 << 20);
        ledger.release(second.id, 0);
        let Err(Denial::Busy(wait, reason)) = ledger.grant(0, ask, address(1), None) else {
            panic!()
        };
        assert_eq!((wait, reason.contains("quota")), (Duration::from_mins(40), true));
        // With a token the network's own quota counts, and the token's.
        let token = Admitted { id: [1; 16], rate_bit_per_s: None, expires: 0 };
        let tokened = ledger.grant(0, ask, address(1), Some(token)).unwrap();
        // 10 s of 750 Mbit/s, and of 16 Mbit/s of probes each way.
        assert_eq!(tokened.volume_bytes, (750 + 32) * 1_250_000 + VOLUME_MARGIN_BYTES);
    }

    proptest! {
        #[test]
        fn grants_never_exceed_the_limits(
            steps in prop::collection::vec(
                (0u64..400, prop::option::of(0u64..130), prop::option::of(0u64..250),
                 0u64..1_200, 0u8..4, any::<bool>()), 0..80),
        ) {
            let mut ledger = Ledger::new(LIMITS);
            let mut now_ns = 0;
            let mut running: Vec<(Grant, u8)> = Vec::new();
            for (pause, up_bit_per_s, down_bit_per_s, length, number, releases) in steps {
                now_ns += pause;
                running.retain(|session| session.0.end_ns > now_ns);
                if releases && let Some(session) = running.pop() {
                    ledger.release(session.0.id, 0);
                }
                let duration = Duration::from_nanos(length);
                let wanted = Ask { up_bit_per_s, down_bit_per_s, duration };
                if let Ok(grant) = ledger.grant(now_ns, wanted, address(number), None) {
                    let asked = [up_bit_per_s, down_bit_per_s].map(|it| it.unwrap_or(u64::MAX));
                    prop_assert!(grant.up_bit_per_s <= asked[0]);
                    prop_assert!(grant.down_bit_per_s <= asked[1]);
                    running.push((grant, number));
                }
                running.retain(|session| session.0.end_ns > now_ns);
                prop_assert!(running.len() <= LIMITS.sessions_max);
                let up: u64 = running.iter().map(|session| session.0.up_bit_per_s).sum();
                let down: u64 = running.iter().map(|session| session.0.down_bit_per_s).sum();
                prop_assert!(up <= LIMITS.up_bit_per_s && down <= LIMITS.down_bit_per_s);
                for number in 0..4 {
                    let from_one = running.iter().filter(|s| s.1 == number).count();
                    prop_assert!(from_one <= LIMITS.sessions_per_network_max);
                }
            }
        }
    }
}
