//! The addresses to which one host may send a client.
//!
//! Orchestrators, locate services and configurations name servers, and an attacker who controls one
//! could name a home's printer or its modem. So a client measures only to global addresses, and to
//! addresses of the network that the naming host is in: a laboratory without global addresses, or
//! one machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of network that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    Global,
    /// Private (RFC 1918), shared (RFC 6598) and unique local (RFC 4193) addresses.
    Private,
    Loopback,
}

impl Reach {
    /// Returns the network of an address; `None` for addresses that no agent measures to:
    /// link-local, multicast, broadcast, documentation, benchmarking and reserved ones, and tunnels
    /// whose far end does not follow from the address.
    ///
    /// An IPv6 address that embeds an IPv4 address (mapped, 6to4, NAT64) is classified by it.
    pub fn from_ip(ip: IpAddr) -> Option<Self> {
        match ip {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => Self::of_v6(ip),
        }
    }

    /// Returns the network that all addresses are in, or [`Reach::Global`] if they differ.
    pub fn of_all(ips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self::common(ips.into_iter().map(|ip| Self::from_ip(ip).unwrap_or(Self::Global)))
    }

    /// Returns the reach that all have, or [`Reach::Global`] if they differ.
    pub fn common(reaches: impl IntoIterator<Item = Self>) -> Self {
        let mut reaches = reaches.into_iter();
        let first = reaches.next().unwrap_or(Self::Global);
        if reaches.all(|reach| reach == first) { first } else { Self::Global }
    }

    /// Whether a server may have this address if the orchestrator is in this network.
    pub fn includes(self, ip: IpAddr) -> bool {
        Self::from_ip(ip).is_some_and(|kind| kind == Self::Global || kind == self)
    }

    /// Whether a host with the addresses `by` may refer a client to `ip`: `ip` is global, or in the
    /// same private network as all of `by`. An empty `by` means that the user named `ip`.
    pub fn may_be_named(ip: IpAddr, by: &[IpAddr]) -> bool {
        let kind = Self::from_ip(ip);
        // Two addresses of no kind, as link-local ones, need not be in one network.
        let is_in_its_network = |by: &IpAddr| kind.is_some() && Self::from_ip(*by) == kind;
        kind == Some(Self::Global) || by.iter().all(|by| *by == ip || is_in_its_network(by))
    }

    fn of_v4(ip: Ipv4Addr) -> Option<Self> {
        match ip.octets() {
            [127, ..] => Some(Self::Loopback),
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
                Some(Self::Private)
            }
            // In order: this network, multicast, reserved and broadcast; link-local; protocol
            // assignments and documentation; documentation; 6to4 relays; benchmarking.
            [0 | 224..=255, ..]
            | [169, 254, ..]
            | [192, 0, 0 | 2, _]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..] => None,
            _ => Some(Self::Global),
        }
    }

    fn of_v6(ip: Ipv6Addr) -> Option<Self> {
        let embedded = |high: u16, low: u16| {
            let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match ip.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Some(Self::Loopback),
            // Mapped, NAT64, 6to4.
            [0, 0, 0, 0, 0, 0xffff, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x2002, high, low, ..] => embedded(high, low),
            // Protocol assignments with Teredo and ORCHID, documentation.
            [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => None,
            [0xfc00..=0xfdff, ..] => Some(Self::Private),
            [0x2000..=0x3fff, ..] => Some(Self::Global),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(texts: &[&str]) -> Vec<Option<Reach>> {
        texts.iter().map(|text| Reach::from_ip(text.parse().expect(text))).collect()
    }

    fn addresses(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn addresses_are_classified_by_the_special_purpose_registries() {
        let global = addresses(
            "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 \
             128.0.0.1 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255 \
             198.20.0.0 223.255.255.255 2001:200::1 2606:4700::1 2a00::1 ::ffff:1.1.1.1 \
             64:ff9b::1.1.1.1 2002:101:101::1",
        );
        assert!(kinds(&global).iter().all(|kind| *kind == Some(Reach::Global)), "{global:?}");
        let private = addresses(
            "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255 \
             fc00::1 fd12:3456::1 ::ffff:192.168.1.1 64:ff9b::10.0.0.1 2002:a00:1::1",
        );
        assert!(kinds(&private).iter().all(|kind| *kind == Some(Reach::Private)), "{private:?}");
        let loopback = ["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "2002:7f00:1::"];
        assert!(kinds(&loopback).iter().all(|kind| *kind == Some(Reach::Loopback)), "{loopback:?}");
        let none = addresses(
            "0.0.0.0 0.1.2.3 169.254.1.1 192.0.0.1 192.0.2.1 198.51.100.1 203.0.113.1 \
             192.88.99.1 198.18.0.1 198.19.255.255 224.0.0.1 239.255.255.255 240.0.0.1 \
             255.255.255.255 :: ::127.0.0.1 fe80::1 febf::1 fec0::1 ff02::1 2001::1 \
             2001:db8::1 2001:10::1 3fff::1 100::1 64:ff9b:1::1 4000::1 ::ffff:169.254.1.1 \
             ::ffff:0.0.0.0 64:ff9b::224.0.0.1 2002:e000:1::1",
        );
        assert!(kinds(&none).iter().all(Option::is_none), "{none:?}");
    }

    #[test]
    fn a_public_host_names_no_address_of_a_private_network() {
        let ips = |text: &str| -> Vec<IpAddr> {
            text.split(' ').map(|it| it.parse().expect(it)).collect()
        };
        let named = ips("1.1.1.1 192.168.1.1 127.0.0.1 169.254.169.254");
        for (by, may) in [
            ("9.9.9.9", [true, false, false, false]),
            ("10.0.0.1", [true, true, false, false]),
            ("::1", [true, false, true, false]),
            ("192.168.1.1 9.9.9.9", [true, false, false, false]),
            ("169.254.1.1", [true, false, false, false]),
            ("169.254.169.254", [true, false, false, true]),
        ] {
            let by = ips(by);
            let allowed: Vec<bool> = named.iter().map(|it| Reach::may_be_named(*it, &by)).collect();
            assert_eq!(allowed, may, "{by:?}");
        }
        assert!(named.iter().all(|it| Reach::may_be_named(*it, &[])), "the user names them");
    }

    #[test]
    fn a_server_is_in_the_internet_or_in_its_orchestrators_network() {
        let ip = |text: &str| text.parse::<IpAddr>().expect(text);
        let [global, private, here] = ["1.1.1.1", "192.168.1.1", "127.0.0.1"].map(ip);
        for (reach, may) in [
            (Reach::Global, [true, false, false]),
            (Reach::Private, [true, true, false]),
            (Reach::Loopback, [true, false, true]),
        ] {
            assert_eq!([global, private, here].map(|it| reach.includes(it)), may, "{reach:?}");
            assert!(!reach.includes(ip("169.254.169.254")), "{reach:?}");
        }
        // A name that resolves to addresses of several networks counts as global.
        assert_eq!(Reach::of_all([private, ip("fd00::1")]), Reach::Private);
        assert_eq!(Reach::of_all([private, global]), Reach::Global);
        assert_eq!(Reach::of_all([private, here]), Reach::Global);
        assert_eq!(Reach::of_all([here, ip("::1")]), Reach::Loopback);
        assert_eq!(Reach::of_all([]), Reach::Global);
    }
}
