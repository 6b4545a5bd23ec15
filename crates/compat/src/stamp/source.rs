//! An address or a network on the command line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    address: IpAddr,
    bits: u8,
}

impl Source {
    /// 127.0.0.0/8
    pub const LOOPBACK_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), bits: 8 };
    pub const LOOPBACK_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 };

    /// Returns true if `address` is in the network. An IPv4 address from a dual-stack socket counts
    /// as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= bits
            }
            _ => false,
        }
    }
}

impl FromStr for Source {
    type Err = String;

    /// Parses `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected an address, or a network such as 192.0.2.0/24".to_owned();
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| expected())?.to_canonical();
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| expected()))?;
        if bits > bits_max {
            return Err(format!("expected at most /{bits_max}"));
        }
        Ok(Self { address, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_equal_prefixes_are_one_network() {
        let network: Source = "192.0.2.0/25".parse().unwrap();
        let holds = |source: Source, address: &str| source.contains(address.parse().unwrap());
        assert!(holds(network, "192.0.2.127") && holds(network, "::ffff:192.0.2.1"));
        assert!(!holds(network, "192.0.2.128") && !holds(network, "::1"));
        let host: Source = "2001:db8::1".parse().unwrap();
        assert!(holds(host, "2001:db8::1") && !holds(host, "2001:db8::2"));
        let everybody: Source = "0.0.0.0/0".parse().unwrap();
        assert!(holds(everybody, "203.0.113.9") && !holds(everybody, "2001:db8::1"));
        for wrong in ["", "localhost", "192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/-1"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
