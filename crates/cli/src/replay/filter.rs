//! `--filter`: the packets of a capture to replay.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use underload_compat::stamp::Source;

/// Conditions that a packet must all satisfy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
    text: String,
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    From(Source),
    To(Source),
    Host(Source),
    SourcePort(u16),
    TargetPort(u16),
    Port(u16),
    Protocol(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Headers {
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    /// `None` for fragments after the first, and for protocols without ports.
    ports: Option<(u16, u16)>,
}

const EXPECTED: &str = "expected conditions such as `from 192.0.2.7`, `to 2001:db8::/32`, \
    `host ADDRESS`, `port 443`, `sport N`, `dport N`, `tcp`, `udp` or `icmp`; all must hold";

const TCP: u8 = 6;
const UDP: u8 = 17;

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().filter(|word| *word != "and");
        let mut conditions = Vec::new();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("`{word}`: no value; {EXPECTED}"));
            conditions.push(match word {
                "from" | "src" => Condition::From(network(value()?)?),
                "to" | "dst" => Condition::To(network(value()?)?),
                "host" => Condition::Host(network(value()?)?),
                "port" => Condition::Port(port(value()?)?),
                "sport" => Condition::SourcePort(port(value()?)?),
                "dport" => Condition::TargetPort(port(value()?)?),
                "tcp" => Condition::Protocol(TCP),
                "udp" => Condition::Protocol(UDP),
                "icmp" => Condition::Protocol(1),
                _ => return Err(format!("`{word}`: {EXPECTED}")),
            });
        }
        if conditions.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        Ok(Self { conditions, text: text.trim().to_owned() })
    }
}

fn network(text: &str) -> Result<Source, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}`: expected a port, 0 to 65535"))
}

impl Filter {
    /// Whether an IP packet, which the capture may have truncated, satisfies all conditions.
    pub fn passes(&self, packet: &[u8]) -> bool {
        self.conditions.is_empty()
            || headers(packet)
                .is_some_and(|headers| self.conditions.iter().all(|one| one.holds(&headers)))
    }
}

impl Condition {
    fn holds(&self, headers: &Headers) -> bool {
        let Headers { source, target, protocol, ports } = *headers;
        match *self {
            Self::From(network) => network.contains(source),
            Self::To(network) => network.contains(target),
            Self::Host(network) => network.contains(source) || network.contains(target),
            Self::SourcePort(number) => ports.is_some_and(|(source, _)| source == number),
            Self::TargetPort(number) => ports.is_some_and(|(_, target)| target == number),
            Self::Port(number) => ports.is_some_and(|(a, b)| a == number || b == number),
            Self::Protocol(1) => matches!(protocol, 1 | 58),
            Self::Protocol(number) => protocol == number,
        }
    }
}

fn headers(packet: &[u8]) -> Option<Headers> {
    match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet.first()? & 0xf) * 4;
            let address = |at: usize| packet.get(at..at + 4)?.first_chunk::<4>().copied();
            let protocol = *packet.get(9)?;
            // The fragment offset, without the three flags before it.
            let offset = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) << 3;
            Some(Headers {
                source: IpAddr::from(address(12)?),
                target: IpAddr::from(address(16)?),
                protocol,
                ports: ports(packet, length, protocol).filter(|_| offset == 0),
            })
        }
        6 => {
            let address = |at: usize| packet.get(at..at + 16)?.first_chunk::<16>().copied();
            let (protocol, at) = behind_extensions(packet)?;
            Some(Headers {
                source: IpAddr::from(address(8)?),
                target: IpAddr::from(address(24)?),
                protocol,
                ports: at.and_then(|at| ports(packet, at, protocol)),
            })
        }
        _ => None,
    }
}

/// At most this number of IPv6 extension headers is skipped.
const MOST_EXTENSIONS: usize = 8;

/// Returns the protocol and its header's offset, which is `None` for later fragments.
fn behind_extensions(packet: &[u8]) -> Option<(u8, Option<usize>)> {
    let (mut next, mut at) = (*packet.get(6)?, 40);
    for _ in 0..MOST_EXTENSIONS {
        match next {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                let Some(length) = packet.get(at + 1) else { return Some((next, None)) };
                next = *packet.get(at)?;
                at += 8 + usize::from(*length) * 8;
            }
            44 => {
                let fragment = packet.get(at..at + 4)?;
                let offset = u16::from_be_bytes([fragment[2], fragment[3]]) >> 3;
                (next, at) = (fragment[0], at + 8);
                if offset > 0 {
                    return Some((next, None));
                }
            }
            _ => break,
        }
    }
    Some((next, Some(at)))
}

fn ports(packet: &[u8], at: usize, protocol: u8) -> Option<(u16, u16)> {
    let has_ports = matches!(protocol, TCP | UDP | 132 | 33 | 136);
    let bytes = packet.get(at..at + 4).filter(|_| has_ports)?;
    Some((u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(filter: &str, packet: &[u8]) -> bool {
        filter.parse::<Filter>().expect(filter).passes(packet)
    }

    fn udp4() -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = UDP;
        packet[12..16].copy_from_slice(&[192, 0, 2, 7]);
        packet[16..20].copy_from_slice(&[198, 51, 100, 1]);
        packet[20..24].copy_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
        packet
    }

    #[test]
    fn conditions_all_hold() {
        let packet = udp4();
        for yes in [
            "from 192.0.2.7",
            "from 192.0.2.0/24 and to 198.51.100.1",
            "udp dport 443",
            "port 443",
            "port 12345",
            "host 198.51.100.1",
            "from 0.0.0.0/0",
        ] {
            assert!(passes(yes, &packet), "{yes}");
        }
        for no in ["to 192.0.2.7", "tcp", "sport 443", "from 192.0.3.0/24", "host ::1", "icmp"] {
            assert!(!passes(no, &packet), "{no}");
        }
        assert!(Filter::default().passes(&[]));
        for length in 0..packet.len() {
            let _ = passes("port 443", &packet[..length]);
        }
        assert!(!passes("host 192.0.2.7", b"E"));
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut packet = udp4();
        packet[7] = 1;
        assert!(!passes("port 443", &packet) && passes("from 192.0.2.7 udp", &packet));
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut packet = vec![0; 60];
        packet[0] = 0x60;
        packet[6] = 60;
        packet[23] = 7;
        packet[40] = TCP;
        packet[48..52].copy_from_slice(&[0, 80, 0, 22]);
        assert!(passes("tcp sport 80 dport 22 from ::7", &packet));
        assert!(passes("from ::/0", &packet) && !passes("to ::7", &packet));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for wrong in ["", "from", "from home", "port 70000", "to 192.0.2.0/33", "not tcp"] {
            assert!(wrong.parse::<Filter>().is_err(), "{wrong}");
        }
    }
}
