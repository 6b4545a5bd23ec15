//! The quota of each network and token: a bucket that drains at the quota's rate.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use underload_probe::network::CustomerNetwork;

/// To whom a session is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Payer {
    Network(CustomerNetwork),
    Token([u8; 16]),
}

impl Payer {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Network(CustomerNetwork::of(address))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    used: BTreeMap<Payer, Used>,
    swept_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    bytes: u64,
    at_ns: u64,
}

/// Maximum number of payers in memory. Above that, new payers get no session until one has drained.
const PAYERS_MAX: usize = 100_000;
const SWEEP_INTERVAL_NS: u64 = 10_000_000_000;
const HOUR_NS: u128 = 3_600_000_000_000;

impl Quotas {
    /// Returns the bytes that `payer` may still transfer of `per_hour`.
    pub(crate) fn left(&mut self, now_ns: u64, payer: Payer, per_hour: u64) -> u64 {
        self.drain(now_ns, payer, per_hour);
        if self.used.len() >= PAYERS_MAX && !self.used.contains_key(&payer) {
            self.sweep(now_ns, per_hour);
            if self.used.len() >= PAYERS_MAX {
                return 0;
            }
        }
        per_hour - self.used.get(&payer).map_or(0, |used| used.bytes.min(per_hour))
    }

    /// Returns how long it takes until `bytes` are left again.
    pub(crate) fn wait(&self, payer: Payer, bytes: u64, per_hour: u64) -> Duration {
        let used = self.used.get(&payer).map_or(0, |used| used.bytes);
        let above = used.saturating_sub(per_hour.saturating_sub(bytes));
        let wait_ns = u128::from(above) * HOUR_NS / u128::from(per_hour.max(1));
        Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    pub(crate) fn charge(&mut self, now_ns: u64, payer: Payer, bytes: u64) {
        let used = self.used.entry(payer).or_insert(Used { bytes: 0, at_ns: now_ns });
        used.bytes = used.bytes.saturating_add(bytes);
    }

    pub(crate) fn refund(&mut self, payer: Payer, bytes: u64) {
        if let Some(used) = self.used.get_mut(&payer) {
            used.bytes = used.bytes.saturating_sub(bytes);
        }
    }

    /// Removes payers that have drained. Rarely, because it checks all payers.
    fn sweep(&mut self, now_ns: u64, per_hour: u64) {
        let is_due = |swept_ns: u64| now_ns.saturating_sub(swept_ns) >= SWEEP_INTERVAL_NS;
        if self.swept_ns.is_none_or(is_due) {
            self.swept_ns = Some(now_ns);
            self.used.retain(|_, used| used.drained(now_ns, per_hour) > 0);
        }
    }

    fn drain(&mut self, now_ns: u64, payer: Payer, per_hour: u64) {
        if let Some(used) = self.used.get_mut(&payer) {
            let bytes = used.drained(now_ns, per_hour);
            if bytes == 0 {
                self.used.remove(&payer);
            } else {
                *used = Used { bytes, at_ns: now_ns };
            }
        }
    }
}

impl Used {
    fn drained(self, now_ns: u64, per_hour: u64) -> u64 {
        let elapsed = u128::from(now_ns.saturating_sub(self.at_ns));
        let drained = elapsed * u128::from(per_hour) / HOUR_NS;
        self.bytes.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    const HOUR: u64 = HOUR_NS as u64;

    #[test]
    fn used_quota_is_restored_over_time() {
        let mut quotas = Quotas::default();
        let payer = Payer::Token([1; 16]);
        assert_eq!(quotas.left(0, payer, 1_000), 1_000);
        quotas.charge(0, payer, 1_000);
        assert_eq!(quotas.left(0, payer, 1_000), 0);
        assert_eq!(quotas.wait(payer, 500, 1_000), Duration::from_mins(30));
        assert_eq!(quotas.left(HOUR / 4, payer, 1_000), 250);
        quotas.refund(payer, 500);
        assert_eq!(quotas.left(HOUR / 4, payer, 1_000), 750);
        assert_eq!(quotas.left(HOUR, payer, 1_000), 1_000);
        assert!(quotas.used.is_empty(), "networks without debt are removed");
    }

    #[test]
    fn a_flood_of_payers_is_bounded() {
        let mut quotas = Quotas::default();
        for number in 0..PAYERS_MAX as u128 {
            let address = Ipv6Addr::from_bits(number << 72);
            quotas.charge(0, Payer::of(address.into()), 10);
        }
        let stranger = Payer::Token([7; 16]);
        assert_eq!(quotas.left(0, stranger, 1_000), 0);
        assert_eq!(quotas.left(HOUR, stranger, 1_000), 1_000);
        assert!(quotas.used.is_empty());
    }
}
