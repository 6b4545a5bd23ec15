//! Who may measure now: a function of what was granted before and of the time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use underload_record::schema::Direction;

use underload_probe::control::Ask;

use super::account::probes_bit_per_s;
use super::grant::{Admitted, Denial, Grant};
use super::held::{Held, UNUSED_MAX_NS};
use super::quota::{Payer, Quotas};

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

/// For whom a rate is.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Its token is good for no more, bit/s.
    most: u64,
    network: Payer,
    /// It was promised: all of it or nothing, and nobody else of its network counts.
    is_reserved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    grant: Grant,
    network: Payer,
    /// Whose quota it comes off.
    network_pays: Option<Payer>,
    token: Option<Payer>,
    held: [Held; 2],
}

/// The sessions that run.
#[derive(Debug)]
pub(crate) struct Ledger {
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
pub(crate) const VOLUME_MARGIN_BYTES: u64 = 16 << 20;
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
    pub(crate) fn new(limits: Limits) -> Self {
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
    pub(crate) fn grant(
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
        let is_reserved = token.is_some_and(|token| token.is_reserved);
        let token = token.map(|token| Payer::Token(token.id));
        let of_network = self.entries.iter().filter(|entry| entry.network == network).count();
        if self.entries.len() >= limits.sessions_max {
            return Err(self.busy(now_ns, "all places are taken"));
        }
        if of_network >= limits.sessions_per_network_max && !is_reserved {
            return Err(self.busy(now_ns, "your network has all the places that it may have"));
        }
        let wanted = Wanted { most, network, is_reserved };
        let up = self.rate(now_ns, ask.up_bit_per_s, wanted, Direction::Up)?;
        let down = self.rate(now_ns, ask.down_bit_per_s, wanted, Direction::Down)?;
        let volume = volume_of(up, down, ask.duration);
        // Who reserves has its own budgets.
        let network_pays = Some(network).filter(|_| !is_reserved);
        let volume_bytes = self.volume(now_ns, volume, network_pays, token)?;
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
        for payer in [network_pays, token].into_iter().flatten() {
            self.quotas.charge(now_ns, payer, volume_bytes);
        }
        let held = [up, down].map(|bit_per_s| Held::new(now_ns, bit_per_s));
        self.entries.push(Entry { grant, network, network_pays, token, held });
        Ok(grant)
    }

    /// Ends a session, which left so much of its volume unused; ending it twice changes nothing.
    pub(crate) fn release(&mut self, id: u64, unused_bytes: u64) {
        let Some(index) = self.entries.iter().position(|entry| entry.grant.id == id) else {
            return;
        };
        let entry = self.entries.swap_remove(index);
        let unused = unused_bytes.min(entry.grant.volume_bytes);
        for payer in [entry.network_pays, entry.token].into_iter().flatten() {
            self.quotas.refund(payer, unused);
        }
    }

    /// A client of another tool, for at most `duration`, with a volume to begin with.
    pub(crate) fn enter_compat(
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
    pub(crate) fn more_compat(&mut self, now_ns: u64, network: Payer, bytes: u64) -> u64 {
        let limits = self.limits;
        let per_hour = limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour);
        let bytes = self.quotas.left(now_ns, network, per_hour).min(bytes);
        self.quotas.charge(now_ns, network, bytes);
        bytes
    }

    /// It is gone, and left so much of its volume.
    pub(crate) fn leave_compat(&mut self, network: Payer, unused_bytes: u64) {
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
    pub(crate) fn look(&mut self, now_ns: u64, moved: impl Fn(u64) -> Option<[u64; 2]>) {
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
    pub(crate) fn note_line(&mut self, bit_per_s: Option<[u64; 2]>) {
        self.line = bit_per_s;
    }

    /// The rate that a session holds now, bit/s.
    pub(crate) fn rate_of(&self, id: u64, direction: Direction) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.grant.id == id)?;
        Some(entry.held[direction as usize].bit_per_s)
    }

    /// The sum of the rates that are granted now, up and down, bit/s.
    pub(crate) fn granted(&self) -> (u64, u64) {
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
        Wanted { most, network, is_reserved }: Wanted,
        direction: Direction,
    ) -> Result<u64, Denial> {
        let session = self.limits.session_bit_per_s.min(self.limits.total(direction)).min(most);
        let free = self.free(direction).saturating_add(self.spare(now_ns, network, direction));
        let room = if is_reserved { free } else { self.network_room(network, direction, free) };
        let line = self.line_room(direction);
        // Whoever names a rate names a generous one: half of it is worth having.
        let (given, least, of_line) = match asked {
            Some(asked) => {
                let given = asked.min(session).min(room);
                let least = if is_reserved { asked } else { asked.div_ceil(2) };
                (given, least, given)
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
        network: Option<Payer>,
        token: Option<Payer>,
    ) -> Result<u64, Denial> {
        let limits = self.limits;
        let of_network = match token {
            Some(_) => limits.network_bytes_per_hour,
            None => limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour),
        };
        let quotas = [(network, of_network), (token, limits.token_bytes_per_hour)];
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
mod tests;
