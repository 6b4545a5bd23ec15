//! The sessions that are granted: a function of earlier grants and of the time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use underload_probe::control::Ask;
use underload_record::schema::Direction;

use super::account::probes_bit_per_s;
use super::grant::{Admitted, Denial, Grant};
use super::quota::{Payer, Quotas};
use super::session_rate::{SessionRate, UNUSED_MAX_NS};

/// Upper bounds of what a server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub sessions_max: usize,
    /// Maximum number of sessions at once from one network: a /24 of IPv4, a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Largest sum of the granted rates towards the server.
    pub up_bit_per_s: u64,
    /// Largest sum of the granted rates from the server.
    pub down_bit_per_s: u64,
    /// Highest rate of one session in either direction.
    pub session_bit_per_s: u64,
    pub duration_max: Duration,
    /// Bytes that one network may transfer per hour, both directions together.
    pub network_bytes_per_hour: u64,
    pub token_bytes_per_hour: u64,
    pub anonymous_bytes_per_hour: u64,
    /// Rate of all clients of other tools together, in either direction; sessions get the rest.
    pub compat_bit_per_s: u64,
}

impl Default for Limits {
    /// Limits for a public server on 1 Gbit/s: sixteen sessions, four per network, two minutes
    /// each; 50 GB per hour for each network and token, 10 GB without a token.
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
    /// Returns limits for one machine or a lab, which no test reaches.
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

    fn capacity(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Up => self.up_bit_per_s,
            Direction::Down => self.down_bit_per_s,
        }
    }

    /// Returns the largest rate of all sessions together, bit/s.
    fn total(&self, direction: Direction) -> u64 {
        self.capacity(direction).saturating_sub(self.compat_bit_per_s)
    }
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    most: u64,
    network: Payer,
    /// True for a lease: it gets its whole rate or is refused, whatever rates the network's other
    /// sessions have.
    is_reserved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    grant: Grant,
    network: Payer,
    /// The network's quota that is charged; `None` for a lease.
    network_pays: Option<Payer>,
    token: Option<Payer>,
    rates: [SessionRate; 2],
}

/// The running sessions and their shares of the capacity.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    limits: Limits,
    entries: Vec<Entry>,
    quotas: Quotas,
    next_id: u64,
    /// Clients of other tools, by network.
    compat: BTreeMap<Payer, usize>,
    /// When the use of the sessions' rates was last measured.
    updated_at_ns: u64,
    /// Current load of the line, up and down, bit/s; `None` if unknown.
    line: Option<[u64; 2]>,
}

/// Volume of a session beyond its granted rate times its length, for the ramps of its flows.
pub(crate) const VOLUME_MARGIN_BYTES: u64 = 16 << 20;
/// A payer with less than this left of its quota has to wait.
const VOLUME_MIN_BYTES: u64 = 32 << 20;
/// Divisor of a session's rate: a client that requests no rate gets at least this fraction of it.
const SHARE_MIN: u64 = 16;
/// A network gets at most three quarters of what other networks leave, so that the next network
/// finds some.
const NETWORK_SHARE: (u64, u64) = (3, 4);
/// Maximum numbers of clients of other tools at once: in total, and from one network.
const COMPAT_MAX: (usize, usize) = (128, 32);
/// Smallest remaining quota with which a client of another tool is admitted.
const COMPAT_VOLUME_MIN: u64 = 1 << 20;
/// When to retry if the line is full: it is unknown when other traffic will end.
const LINE_BUSY_RETRY: Duration = Duration::from_secs(10);
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

impl Ledger {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Grants a session to `address`, which showed `token`. The rates of other sessions may be
    /// lower afterwards: see [`Ledger::rate_of`].
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
        let sessions = self.entries.iter().filter(|entry| entry.network == network).count();
        if self.entries.len() >= limits.sessions_max {
            return Err(self.busy(now_ns, "all places are taken"));
        }
        if sessions >= limits.sessions_per_network_max && !is_reserved {
            return Err(self.busy(now_ns, "your network has reached its limit of sessions"));
        }
        let wanted = Wanted { most, network, is_reserved };
        let up = self.rate(now_ns, ask.up_bit_per_s, wanted, Direction::Up)?;
        let down = self.rate(now_ns, ask.down_bit_per_s, wanted, Direction::Down)?;
        let volume = volume_of(up, down, ask.duration);
        // A reservation has a separate budget at its issuer.
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
        let rates = [up, down].map(|bit_per_s| SessionRate::new(now_ns, bit_per_s));
        self.entries.push(Entry { grant, network, network_pays, token, rates });
        Ok(grant)
    }

    /// Ends a session with `unused_bytes` of its volume left; does nothing if it has ended.
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

    /// Admits a client of another tool for at most `duration`, with a first volume of `bytes`.
    pub(crate) fn enter_compat(
        &mut self,
        now_ns: u64,
        network: Payer,
        duration: Duration,
        bytes: u64,
    ) -> Result<Grant, &'static str> {
        let clients = self.compat.get(&network).copied().unwrap_or(0);
        if self.compat.values().sum::<usize>() >= COMPAT_MAX.0 {
            return Err("all places are taken");
        }
        if clients >= COMPAT_MAX.1 {
            return Err("your network has reached its limit of clients");
        }
        let volume_bytes = self.more_compat(now_ns, network, bytes);
        if volume_bytes < COMPAT_VOLUME_MIN {
            self.quotas.refund(network, volume_bytes);
            return Err("the quota of this hour is used up");
        }
        self.compat.insert(network, clients + 1);
        let duration = duration.min(self.limits.duration_max);
        let end_ns = now_ns.saturating_add(duration.as_nanos() as u64);
        let (up_bit_per_s, down_bit_per_s) = [self.limits.compat_bit_per_s; 2].into();
        Ok(Grant { id: u64::MAX, end_ns, up_bit_per_s, down_bit_per_s, volume_bytes })
    }

    /// Charges up to `bytes` to the quota of the network and returns how many.
    pub(crate) fn more_compat(&mut self, now_ns: u64, network: Payer, bytes: u64) -> u64 {
        let limits = self.limits;
        let per_hour = limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour);
        let bytes = self.quotas.left(now_ns, network, per_hour).min(bytes);
        self.quotas.charge(now_ns, network, bytes);
        bytes
    }

    /// Removes a client of another tool, with `unused_bytes` of its volume left.
    pub(crate) fn leave_compat(&mut self, network: Payer, unused_bytes: u64) {
        self.quotas.refund(network, unused_bytes);
        match self.compat.get_mut(&network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.compat.remove(&network);
            }
        }
    }

    /// Measures the use of each session's rates; to be called every second. `moved` returns the
    /// bytes that a session has transferred, up and down. A rate that was lent to others returns to
    /// the session as soon as capacity is free and the session uses its rate.
    pub(crate) fn update(&mut self, now_ns: u64, moved: impl Fn(u64) -> Option<[u64; 2]>) {
        self.expire(now_ns);
        let elapsed_ns = now_ns.saturating_sub(self.updated_at_ns);
        self.updated_at_ns = now_ns;
        for index in 0..self.entries.len() {
            let Some(moved) = moved(self.entries[index].grant.id) else { continue };
            for direction in DIRECTIONS {
                let entry = &mut self.entries[index];
                let rate = &mut entry.rates[direction as usize];
                let is_used = rate.observe(now_ns, elapsed_ns, moved[direction as usize]);
                let missing = rate.granted_bit_per_s.saturating_sub(rate.bit_per_s);
                if is_used {
                    let network = entry.network;
                    let room = self.network_room(network, direction, self.free(direction));
                    self.entries[index].rates[direction as usize].bit_per_s += missing.min(room);
                }
            }
        }
    }

    /// Stores the load of the line, up and down, bit/s.
    pub(crate) fn note_line(&mut self, bit_per_s: Option<[u64; 2]>) {
        self.line = bit_per_s;
    }

    pub(crate) fn rate_of(&self, id: u64, direction: Direction) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.grant.id == id)?;
        Some(entry.rates[direction as usize].bit_per_s)
    }

    /// Returns the sum of the current rates, up and down, bit/s.
    pub(crate) fn granted(&self) -> (u64, u64) {
        (self.used(Direction::Up), self.used(Direction::Down))
    }

    fn used(&self, direction: Direction) -> u64 {
        self.entries.iter().map(|entry| entry.rates[direction as usize].bit_per_s).sum()
    }

    fn free(&self, direction: Direction) -> u64 {
        self.limits.total(direction).saturating_sub(self.used(direction))
    }

    /// Returns the rate that the line has left beside its other traffic, bit/s.
    fn line_room(&self, direction: Direction) -> u64 {
        let Some(carried) = self.line else { return u64::MAX };
        self.limits.capacity(direction).saturating_sub(carried[direction as usize])
    }

    /// Returns the rate that other networks have but do not use, bit/s.
    fn spare(&self, now_ns: u64, network: Payer, direction: Direction) -> u64 {
        let others = self.entries.iter().filter(|entry| entry.network != network);
        others.map(|entry| entry.rates[direction as usize].spare(now_ns)).sum()
    }

    /// Returns how much rate `network` may get in addition to its own if `free` is free.
    fn network_room(&self, network: Payer, direction: Direction, free: u64) -> u64 {
        let sessions = self.entries.iter().filter(|entry| entry.network == network);
        let own: u64 = sessions.map(|entry| entry.rates[direction as usize].bit_per_s).sum();
        let (part, whole) = NETWORK_SHARE;
        let left_by_others = u128::from(free.saturating_add(own));
        let most = left_by_others * u128::from(part) / u128::from(whole);
        u64::try_from(most).unwrap_or(u64::MAX).saturating_sub(own)
    }

    /// Takes unused rates from other networks, largest first, until `bit_per_s` is free.
    fn make_room(&mut self, now_ns: u64, bit_per_s: u64, network: Payer, direction: Direction) {
        loop {
            let missing = bit_per_s.saturating_sub(self.free(direction));
            let others = self.entries.iter_mut().filter(|entry| entry.network != network);
            let rates = others.map(|entry| &mut entry.rates[direction as usize]);
            let Some(fullest) = rates.max_by_key(|rate| rate.spare(now_ns)) else { return };
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
        for (asked, direction) in [ask.up_bit_per_s, ask.down_bit_per_s].into_iter().zip(DIRECTIONS)
        {
            let most = limits.capacity(direction).min(limits.session_bit_per_s);
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
        // Clients that request a rate request a generous one, so half of it is still useful.
        let (given, least, line_needed) = match asked {
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
        if line < line_needed {
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
        let network_per_hour = match token {
            Some(_) => limits.network_bytes_per_hour,
            None => limits.network_bytes_per_hour.min(limits.anonymous_bytes_per_hour),
        };
        let quotas = [(network, network_per_hour), (token, limits.token_bytes_per_hour)];
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

    /// Removes sessions past their end, even before their threads notice. Their unused volume stays
    /// charged: they had the time to use it.
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

/// Returns rates times time, with probes and a margin.
fn volume_of(up_bit_per_s: u64, down_bit_per_s: u64, duration: Duration) -> u64 {
    let probes = 2 * u128::from(probes_bit_per_s(up_bit_per_s, down_bit_per_s));
    let bit_per_s = u128::from(up_bit_per_s) + u128::from(down_bit_per_s) + probes;
    let bytes = bit_per_s.saturating_mul(duration.as_millis()) / 8_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(VOLUME_MARGIN_BYTES)
}

#[cfg(test)]
mod tests;
