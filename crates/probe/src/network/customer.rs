//! The network of one customer, by which limits and quotas count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The largest network that one customer usually has: a /24 of IPv4, a /56 of IPv6.
///
/// An IPv4 address from a dual-stack socket counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomerNetwork {
    first_address: IpAddr,
}

impl CustomerNetwork {
    pub fn of(address: IpAddr) -> Self {
        let first_address = match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0 << 8).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !0 << 72).into(),
        };
        Self { first_address }
    }

    /// Returns a single IPv4 address or a /56 of IPv6, for limits that should not apply to a /24
    /// that many customers share.
    pub fn of_host(address: IpAddr) -> Self {
        match address.to_canonical() {
            first_address @ IpAddr::V4(_) => Self { first_address },
            address @ IpAddr::V6(_) => Self::of(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_prefix_are_one_customer() {
        let of = |text: &str| CustomerNetwork::of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.9"));
        assert_eq!(of("2001:db8:0:1ff::1"), of("2001:db8:0:100:ffff::"));
        assert_ne!(of("2001:db8:0:100::1"), of("2001:db8:0:200::1"));
        assert_ne!(of("::1"), of("0.0.0.0"));
        let of_host = |text: &str| CustomerNetwork::of_host(text.parse().unwrap());
        assert_eq!(of_host("192.0.2.1"), of_host("::ffff:192.0.2.1"));
        assert_ne!(of_host("192.0.2.1"), of_host("192.0.2.2"));
        assert_eq!(of_host("2001:db8:0:1ff::1"), of("2001:db8:0:100::"));
    }
}
