//! The addresses of clients behind trusted proxies: by `X-Forwarded-For`, or by version 2 of the
//! PROXY protocol (HAProxy's doc/proxy-protocol.txt), which a balancer of connections sends.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt as _};

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

pub(super) fn has_any(networks: &[Cidr], address: IpAddr) -> bool {
    networks.iter().any(|network| network.has(address))
}

/// First bytes of a header of the PROXY protocol, and the version in the upper half of the next.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const VERSION: u8 = 2;
/// Maximum number of bytes of addresses and additional fields, which are skipped.
const FIELDS_MAX: usize = 2_048;

/// Reads the header with which a balancer begins a connection, and nothing behind it. Returns the
/// client that it names, or `peer` if the connection is the balancer's own or no TCP.
pub(super) async fn client_of_header(
    stream: &mut (impl AsyncRead + Unpin),
    peer: SocketAddr,
) -> io::Result<SocketAddr> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    let [signature @ .., kind, family, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if signature != *SIGNATURE || kind >> 4 != VERSION || length > FIELDS_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut fields = vec![0; length];
    stream.read_exact(&mut fields).await?;
    let is_tcp4 = family == 0x11;
    match kind & 0xf {
        1 if is_tcp4 || family == 0x21 => {}
        0 | 1 => return Ok(peer),
        _ => return Err(ErrorKind::InvalidData.into()),
    }
    // The client's address, the balancer's, the client's port and the balancer's.
    let named = if is_tcp4 {
        fields.split_first_chunk::<4>().map(|(it, rest)| (IpAddr::from(*it), rest.get(4..)))
    } else {
        fields.split_first_chunk::<16>().map(|(it, rest)| (IpAddr::from(*it), rest.get(16..)))
    };
    let (address, ports) = named.ok_or(ErrorKind::InvalidData)?;
    let port = ports.and_then(|ports| ports.first_chunk()).ok_or(ErrorKind::InvalidData)?;
    Ok(SocketAddr::new(address, u16::from_be_bytes(*port)))
}

/// Returns the address from which a request came to the first trusted proxy, by `X-Forwarded-For`:
/// each proxy appends the address of its peer, and only entries of trusted proxies count.
pub(super) fn client(peer: SocketAddr, headers: &HeaderMap, trusted: &[Cidr]) -> SocketAddr {
    let lists = headers.get_all("x-forwarded-for").into_iter().rev();
    let mut entries = lists.flat_map(|list| list.to_str().unwrap_or_default().rsplit(','));
    let mut client = peer;
    while has_any(trusted, client.ip())
        && let Some(entry) = entries.next()
        && let Ok(address) = entry.trim().parse()
    {
        client.set_ip(address);
    }
    client
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

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

    /// Returns what the header of `bytes` names, and the bytes behind it.
    fn header(bytes: &[u8]) -> io::Result<(String, usize)> {
        let peer = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let mut left = bytes;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let named = runtime.block_on(client_of_header(&mut left, peer))?;
        Ok((named.to_string(), left.len()))
    }

    #[test]
    fn a_balancer_names_its_client() {
        let of = |kind: u8, family: u8, fields: &[u8]| {
            let length = u16::try_from(fields.len()).expect("few").to_be_bytes();
            [&SIGNATURE[..], &[kind, family], &length, fields, b"GET /"].concat()
        };
        // Source, destination, source port 4000, destination port 443, and an additional field.
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x0f, 0xa0, 1, 0xbb, 3, 0, 1, 0];
        let ports = [0x0f, 0xa0, 1, 0xbb];
        let client: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        let v6 = [
            &client.to_bits().to_be_bytes()[..],
            &Ipv6Addr::LOCALHOST.to_bits().to_be_bytes()[..],
            &ports,
        ]
        .concat();
        assert_eq!(header(&of(0x21, 0x11, &v4)).expect("TCP"), ("192.0.2.7:4000".into(), 5));
        assert_eq!(header(&of(0x21, 0x21, &v6)).expect("TCP"), ("[2001:db8::7]:4000".into(), 5));
        // A balancer's own check of health, and a socket of the Unix kind.
        for own in [of(0x20, 0, &[]), of(0x20, 0x11, &v4), of(0x21, 0x31, &[0; 216])] {
            assert_eq!(header(&own).expect("the balancer"), ("127.0.0.1:9".into(), 5));
        }
        let whole = of(0x21, 0x11, &v4[..12]);
        for cut in 0..whole.len() - 5 {
            assert!(header(&whole[..cut]).is_err(), "{cut} bytes");
        }
        let wrong = [
            of(0x11, 0x11, &v4),
            of(0x22, 0x11, &v4),
            of(0x21, 0x11, &v4[..8]),
            of(0x21, 0x21, &v4),
            of(0x21, 0x11, &[0; FIELDS_MAX + 1]),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 443\r\n".to_vec(),
            b"GET /healthz HTTP/1.1\r\n\r\n".to_vec(),
        ];
        for bytes in wrong {
            assert!(header(&bytes).is_err(), "{bytes:?}");
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
