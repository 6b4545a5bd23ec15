//! Who may measure now: a function of what was granted before and of the time.

use std::net::IpAddr;
use std::time::Duration;

/// What a server grants at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once.
    pub sessions_max: usize,
    /// Sessions at once from one address.
    pub sessions_per_address_max: usize,
    /// Sum of the declared rates towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Sum of the declared rates from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Length of a session.
    pub duration_max: Duration,
}

impl Default for Limits {
    /// Sixteen sessions, four per address, 1 Gbit/s each way, two minutes.
    fn default() -> Self {
        Self {
            sessions_max: 16,
            sessions_per_address_max: 4,
            up_bit_per_s: 1_000_000_000,
            down_bit_per_s: 1_000_000_000,
            duration_max: Duration::from_mins(2),
        }
    }
}

/// What a client declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Highest rate towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Highest rate from the server, bit/s.
    pub down_bit_per_s: u64,
    /// How long it takes.
    pub duration: Duration,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// Not now; room is expected after this.
    Busy(Duration),
    /// Never; what would be.
    TooMuch(String),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    ask: Ask,
    address: IpAddr,
    end_ns: u64,
}

/// The sessions that run.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    entries: Vec<Entry>,
    next_id: u64,
}

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, entries: Vec::new(), next_id: 0 }
    }

    /// Grants a session from `now_ns` on; its number and its end.
    pub(super) fn grant(
        &mut self,
        now_ns: u64,
        ask: Ask,
        address: IpAddr,
    ) -> Result<(u64, u64), Denial> {
        let limits = self.limits;
        if ask.duration > limits.duration_max {
            let seconds = limits.duration_max.as_secs();
            return Err(Denial::TooMuch(format!("sessions last at most {seconds} s")));
        }
        for (asked, limit, direction) in [
            (ask.up_bit_per_s, limits.up_bit_per_s, "up"),
            (ask.down_bit_per_s, limits.down_bit_per_s, "down"),
        ] {
            if asked > limit {
                return Err(Denial::TooMuch(format!("at most {limit} bit/s {direction}")));
            }
        }
        self.entries.retain(|entry| entry.end_ns > now_ns);
        let used = |rate: fn(&Ask) -> u64| -> u64 {
            self.entries.iter().map(|entry| rate(&entry.ask)).sum()
        };
        let of_address = self.entries.iter().filter(|entry| entry.address == address).count();
        let is_full = self.entries.len() >= limits.sessions_max
            || of_address >= limits.sessions_per_address_max
            || used(|ask| ask.up_bit_per_s) > limits.up_bit_per_s - ask.up_bit_per_s
            || used(|ask| ask.down_bit_per_s) > limits.down_bit_per_s - ask.down_bit_per_s;
        if is_full {
            let next_end_ns = self.entries.iter().map(|entry| entry.end_ns).min();
            let wait_ns =
                next_end_ns.map_or(limits.duration_max.as_nanos() as u64, |end_ns| end_ns - now_ns);
            return Err(Denial::Busy(Duration::from_nanos(wait_ns)));
        }
        let id = self.next_id;
        self.next_id += 1;
        let end_ns = now_ns.saturating_add(ask.duration.as_nanos() as u64);
        self.entries.push(Entry { id, ask, address, end_ns });
        Ok((id, end_ns))
    }

    /// Ends a session before its time; ending it twice changes nothing.
    pub(super) fn release(&mut self, id: u64) {
        self.entries.retain(|entry| entry.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const LIMITS: Limits = Limits {
        sessions_max: 4,
        sessions_per_address_max: 2,
        up_bit_per_s: 100,
        down_bit_per_s: 200,
        duration_max: Duration::from_micros(1),
    };

    fn ask(up_bit_per_s: u64, down_bit_per_s: u64, nanos: u64) -> Ask {
        Ask { up_bit_per_s, down_bit_per_s, duration: Duration::from_nanos(nanos) }
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn what_never_fits_is_told_apart_from_what_does_not_fit_now() {
        let mut ledger = Ledger::new(LIMITS);
        let never = |denial| matches!(denial, Err(Denial::TooMuch(_)));
        assert!(never(ledger.grant(0, ask(101, 0, 1), address(1))));
        assert!(never(ledger.grant(0, ask(0, 201, 1), address(1))));
        assert!(never(ledger.grant(0, ask(0, 0, 1_001), address(1))));
        assert_eq!(ledger.grant(0, ask(60, 0, 300), address(1)), Ok((0, 300)));
        let busy = Err(Denial::Busy(Duration::from_nanos(200)));
        assert_eq!(ledger.grant(100, ask(41, 0, 300), address(2)), busy);
        assert_eq!(ledger.grant(100, ask(40, 0, 300), address(2)), Ok((1, 400)));
        assert_eq!(ledger.grant(300, ask(60, 0, 1), address(2)), Ok((2, 301)));
        assert!(ledger.grant(300, ask(0, 0, 1), address(2)).is_err(), "two per address");
        ledger.release(1);
        ledger.release(1);
        assert_eq!(ledger.grant(300, ask(40, 0, 1), address(2)), Ok((3, 301)));
    }

    proptest! {
        #[test]
        fn grants_never_exceed_the_limits(
            steps in prop::collection::vec(
                (0u64..400, 0u64..130, 0u64..250, 0u64..1_200, 0u8..4, any::<bool>()), 0..80),
        ) {
            let mut ledger = Ledger::new(LIMITS);
            let mut now_ns = 0;
            let mut running: Vec<(u64, Ask, IpAddr, u64)> = Vec::new();
            for (pause, up, down, length, last, releases) in steps {
                now_ns += pause;
                running.retain(|session| session.3 > now_ns);
                if releases && let Some(session) = running.pop() {
                    ledger.release(session.0);
                }
                let wanted = ask(up, down, length);
                if let Ok((id, end_ns)) = ledger.grant(now_ns, wanted, address(last)) {
                    running.push((id, wanted, address(last), end_ns));
                }
                running.retain(|session| session.3 > now_ns);
                prop_assert!(running.len() <= LIMITS.sessions_max);
                let up: u64 = running.iter().map(|session| session.1.up_bit_per_s).sum();
                let down: u64 = running.iter().map(|session| session.1.down_bit_per_s).sum();
                prop_assert!(up <= LIMITS.up_bit_per_s && down <= LIMITS.down_bit_per_s);
                for last in 0..4 {
                    let from_one = running.iter().filter(|s| s.2 == address(last)).count();
                    prop_assert!(from_one <= LIMITS.sessions_per_address_max);
                }
            }
        }
    }
}
