//! Who may measure now: a function of what was granted before and of the time.

use std::net::IpAddr;
use std::time::Duration;

use super::quota::{Payer, Quotas};

/// What a server grants at most.
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
    pub network_octets_per_hour: u64,
    /// What one token may move per hour.
    pub token_octets_per_hour: u64,
    /// What one network may move per hour without a token.
    pub anonymous_octets_per_hour: u64,
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
            network_octets_per_hour: 50_000_000_000,
            token_octets_per_hour: 50_000_000_000,
            anonymous_octets_per_hour: 10_000_000_000,
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
            network_octets_per_hour: 1 << 60,
            token_octets_per_hour: 1 << 60,
            anonymous_octets_per_hour: 1 << 60,
        }
    }
}

/// What a client declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Highest rate towards the server, bit/s; `None` for as much as there is.
    pub up_bit_per_s: Option<u64>,
    /// Highest rate from the server, bit/s; `None` for as much as there is.
    pub down_bit_per_s: Option<u64>,
    /// How long it takes.
    pub duration: Duration,
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub id: u64,
    pub end_ns: u64,
    pub up_bit_per_s: u64,
    pub down_bit_per_s: u64,
    /// Both directions together.
    pub volume_octets: u64,
}

/// Why not.
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
}

/// The sessions that run.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    entries: Vec<Entry>,
    quotas: Quotas,
    next_id: u64,
}

/// What a session may carry beyond its granted rate times its length: the ramps of its flows.
pub(super) const VOLUME_MARGIN_OCTETS: u64 = 16 << 20;
/// Who has less than this left of its quota waits.
const VOLUME_MIN_OCTETS: u64 = 32 << 20;
/// Who asks for as much as there is gets no less than this share of a session's rate.
const SHARE_MIN: u64 = 4;

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, entries: Vec::new(), quotas: Quotas::default(), next_id: 0 }
    }

    /// Grants a session from `now_ns` on to `address`, which showed the token of that number.
    pub(super) fn grant(
        &mut self,
        now_ns: u64,
        ask: Ask,
        address: IpAddr,
        token: Option<[u8; 16]>,
    ) -> Result<Grant, Denial> {
        self.check_size(ask)?;
        self.expire(now_ns);
        let limits = self.limits;
        let (network, token) = (Payer::of(address), token.map(Payer::Token));
        let of_network = self.entries.iter().filter(|entry| entry.network == network).count();
        if self.entries.len() >= limits.sessions_max {
            return Err(self.busy(now_ns, "all places are taken"));
        }
        if of_network >= limits.sessions_per_network_max {
            return Err(self.busy(now_ns, "your network has all the places that it may have"));
        }
        let up = self.rate(now_ns, ask.up_bit_per_s, limits.up_bit_per_s, |g| g.up_bit_per_s)?;
        let down =
            self.rate(now_ns, ask.down_bit_per_s, limits.down_bit_per_s, |g| g.down_bit_per_s)?;
        let bits_per_s = u128::from(up) + u128::from(down);
        let wanted = bits_per_s * ask.duration.as_millis() / 8_000;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX >> 1) + VOLUME_MARGIN_OCTETS;
        let volume_octets = self.volume(now_ns, wanted, network, token)?;
        let end_ns = now_ns.saturating_add(ask.duration.as_nanos() as u64);
        let grant = Grant {
            id: self.next_id,
            end_ns,
            up_bit_per_s: up,
            down_bit_per_s: down,
            volume_octets,
        };
        self.next_id += 1;
        for payer in [Some(network), token].into_iter().flatten() {
            self.quotas.charge(now_ns, payer, volume_octets);
        }
        self.entries.push(Entry { grant, network, token });
        Ok(grant)
    }

    /// Ends a session, which left so much of its volume unused; ending it twice changes nothing.
    pub(super) fn release(&mut self, id: u64, unused_octets: u64) {
        let Some(index) = self.entries.iter().position(|entry| entry.grant.id == id) else {
            return;
        };
        let entry = self.entries.swap_remove(index);
        let unused = unused_octets.min(entry.grant.volume_octets);
        for payer in [Some(entry.network), entry.token].into_iter().flatten() {
            self.quotas.refund(payer, unused);
        }
    }

    /// What is granted now, up and down, bit/s.
    pub(super) fn granted(&self) -> (u64, u64) {
        let sum = |rate: fn(&Grant) -> u64| self.entries.iter().map(|it| rate(&it.grant)).sum();
        (sum(|grant| grant.up_bit_per_s), sum(|grant| grant.down_bit_per_s))
    }

    fn check_size(&self, ask: Ask) -> Result<(), Denial> {
        let limits = self.limits;
        if ask.duration > limits.duration_max {
            let (asked, most) = (ask.duration.as_secs(), limits.duration_max.as_secs());
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
        total: u64,
        rate: fn(&Grant) -> u64,
    ) -> Result<u64, Denial> {
        let used: u64 = self.entries.iter().map(|entry| rate(&entry.grant)).sum();
        let free = total.saturating_sub(used);
        let session = self.limits.session_bit_per_s.min(total);
        match asked {
            Some(asked) if asked <= free => Ok(asked),
            None if free > 0 && free >= session / SHARE_MIN => Ok(free.min(session)),
            _ => Err(self.busy(now_ns, "others are using the line of this server")),
        }
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
            Some(_) => limits.network_octets_per_hour,
            None => limits.network_octets_per_hour.min(limits.anonymous_octets_per_hour),
        };
        let quotas = [(Some(network), of_network), (token, limits.token_octets_per_hour)];
        let mut volume = wanted;
        for (payer, per_hour) in quotas {
            let Some(payer) = payer else { continue };
            let left = self.quotas.left(now_ns, payer, per_hour);
            let least = wanted.min(VOLUME_MIN_OCTETS);
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

#[cfg(test)]
mod tests {
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
        network_octets_per_hour: 1 << 40,
        token_octets_per_hour: 1 << 40,
        anonymous_octets_per_hour: 1 << 40,
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

    #[test]
    fn what_never_fits_is_told_apart_from_what_does_not_fit_now() {
        let mut ledger = Ledger::new(LIMITS);
        let mut grant = |now_ns, ask, number| ledger.grant(now_ns, ask, address(number), None);
        let never = |denial| matches!(denial, Err(Denial::TooMuch(_)));
        assert!(never(grant(0, ask(101, 0, 1), 1)));
        assert!(never(grant(0, ask(0, 201, 1), 1)));
        assert!(never(grant(0, ask(0, 0, 1_001), 1)));
        let first = grant(0, ask(60, 0, 300), 1).unwrap();
        assert_eq!((first.id, first.end_ns, first.volume_octets), (0, 300, 16 << 20));
        let Err(Denial::Busy(wait, _)) = grant(100, ask(41, 0, 300), 2) else { panic!() };
        assert_eq!(wait, Duration::from_nanos(200));
        assert_eq!(grant(100, ask(40, 0, 300), 2).unwrap().end_ns, 400);
        assert_eq!(grant(300, ask(60, 0, 1), 2).unwrap().end_ns, 301);
        let Err(Denial::Busy(_, reason)) = grant(300, ask(0, 0, 1), 2) else { panic!() };
        assert!(reason.contains("network"));
        ledger.release(1, 0);
        ledger.release(1, 0);
        assert_eq!(ledger.grant(300, ask(40, 0, 1), address(2), None).unwrap().id, 3);
    }

    #[test]
    fn who_asks_for_what_there_is_gets_it_or_waits() {
        let mut ledger = Ledger::new(LIMITS);
        let open = Ask { up_bit_per_s: None, ..ask(0, 0, 100) };
        assert_eq!(ledger.grant(0, ask(70, 0, 100), address(1), None).unwrap().up_bit_per_s, 70);
        assert_eq!(ledger.grant(0, open, address(2), None).unwrap().up_bit_per_s, 30);
        assert!(matches!(ledger.grant(0, open, address(3), None), Err(Denial::Busy(..))));
        assert_eq!(ledger.granted(), (100, 0));
    }

    #[test]
    fn a_used_up_quota_makes_wait_and_what_was_not_used_is_given_back() {
        let limits = Limits { anonymous_octets_per_hour: 48 << 20, ..Limits::default() };
        let mut ledger = Ledger::new(limits);
        let ask = Ask { duration: Duration::from_secs(10), ..ask(1_000_000_000, 0, 0) };
        // Less than it wanted, but worth beginning.
        let first = ledger.grant(0, ask, address(1), None).unwrap();
        assert_eq!(first.volume_octets, 48 << 20);
        ledger.release(first.id, 40 << 20);
        let second = ledger.grant(0, ask, address(1), None).unwrap();
        assert_eq!(second.volume_octets, 40 << 20);
        ledger.release(second.id, 0);
        let Err(Denial::Busy(wait, reason)) = ledger.grant(0, ask, address(1), None) else {
            panic!()
        };
        assert_eq!((wait, reason.contains("quota")), (Duration::from_mins(40), true));
        // With a token the network's own quota counts, and the token's.
        let tokened = ledger.grant(0, ask, address(1), Some([1; 16])).unwrap();
        assert_eq!(tokened.volume_octets, 1_250_000_000 + VOLUME_MARGIN_OCTETS);
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
