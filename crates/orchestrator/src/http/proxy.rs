//! The addresses of clients behind trusted proxies.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::HeaderMap;

/// A network of proxies, such as `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or 2001:db8::/32")]
pub struct NotACidr;

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| NotACidr)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = if text.contains('/') { prefix.parse() } else { Ok(bits) };
        let prefix = prefix.ok().filter(|prefix| *prefix <= bits).ok_or(NotACidr)?;
        Ok(Self { address, prefix })
    }
}

impl Cidr {
    pub(super) fn has(&self, address: IpAddr) -> bool {
        // The bits from the top, of which the network's have to be equal.
        let differing = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(own.to_bits() ^ other.to_bits()) << 96
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= self.prefix
    }
}

/// Returns the address from which a request came to the first trusted proxy, by `X-Forwarded-For`:
/// each proxy appends the address of its peer, and only entries of trusted proxies count.
pub(super) fn client(peer: SocketAddr, headers: &HeaderMap, trusted: &[Cidr]) -> SocketAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.has(address));
    let lists = headers.get_all("x-forwarded-for").into_iter().rev();
    let mut entries = lists.flat_map(|list| list.to_str().unwrap_or_default().rsplit(','));
    let mut client = peer;
    while is_trusted(client.ip())
        && let Some(entry) = entries.next()
        && let Ok(address) = entry.trim().parse()
    {
        client.set_ip(address);
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_the_addresses_of_their_prefix() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "a00::", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "192.0.2.1", false),
        ];
        for (network, address, want) in cases {
            let network: Cidr = network.parse().expect("a network");
            assert_eq!(network.has(address.parse().expect("an address")), want, "{network:?}");
        }
        for wrong in ["", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "host"] {
            assert_eq!(wrong.parse::<Cidr>(), Err(NotACidr), "{wrong}");
        }
    }

    #[test]
    fn only_entries_of_trusted_proxies_count() {
        let trusted: Vec<Cidr> =
            ["127.0.0.1", "10.0.0.0/8"].map(|it| it.parse().expect("a network")).to_vec();
        let of = |peer: &str, lists: &[&str]| {
            let mut headers = HeaderMap::new();
            for list in lists {
                headers.append("x-forwarded-for", list.parse().expect("a header"));
            }
            let peer = SocketAddr::new(peer.parse().expect("an address"), 1);
            client(peer, &headers, &trusted).ip().to_string()
        };
        assert_eq!(of("127.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(of("192.0.2.9", &["192.0.2.7"]), "192.0.2.9", "a peer that is no proxy");
        assert_eq!(of("127.0.0.1", &["8.8.8.8, 192.0.2.7"]), "192.0.2.7", "a client's own entry");
        assert_eq!(of("127.0.0.1", &["8.8.8.8, 192.0.2.7, 10.1.1.1"]), "192.0.2.7");
        assert_eq!(of("127.0.0.1", &["192.0.2.7", "10.1.1.1"]), "192.0.2.7", "two headers");
        assert_eq!(of("127.0.0.1", &["192.0.2.7, unknown"]), "127.0.0.1");
        assert_eq!(of("127.0.0.1", &[]), "127.0.0.1");
    }
}
