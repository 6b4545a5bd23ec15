//! Resolves HOST to the addresses to try.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// The address families that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// All addresses of the name, in the resolver's order.
    Any,
    V4,
    V6,
}

/// A server to measure to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `HOST:PORT`, as the file of known servers names it.
    pub name: String,
    /// Addresses of the host in the order to try; never empty.
    pub addresses: Vec<SocketAddr>,
}

impl Target {
    /// Splits the target by address family, IPv4 first. Skips a family without an address.
    pub fn families(&self) -> Vec<Self> {
        let with = |wanted: fn(&SocketAddr) -> bool| Self {
            name: self.name.clone(),
            addresses: self.addresses.iter().copied().filter(wanted).collect(),
        };
        let mut families = vec![with(SocketAddr::is_ipv4), with(SocketAddr::is_ipv6)];
        families.retain(|family| !family.addresses.is_empty());
        families
    }
}

/// Resolves `host`: a name or an address, either with `:PORT` unless it is `port`; an IPv6 address
/// with a port is in brackets.
///
/// # Errors
/// Returns an error if `host` is malformed or has no address of the family.
pub fn resolve(host: &str, port: u16, family: Family) -> Result<Target, TargetError> {
    let (name, port) = split_port(host, port)?;
    let found = (name.as_str(), port).to_socket_addrs();
    let unknown = |source| TargetError::Unknown { host: name.clone(), source };
    let found: Vec<SocketAddr> = found.map_err(unknown)?.collect();
    let wanted = |address: &&SocketAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let addresses: Vec<SocketAddr> = found.iter().filter(wanted).copied().collect();
    if addresses.is_empty() {
        return Err(TargetError::Family { host: name });
    }
    let name =
        if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") };
    Ok(Target { name, addresses })
}

/// Why a HOST is not a server to measure to.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("HOST is empty")]
    Empty,
    #[error("HOST {host:?} is not known; {EXPECTED}")]
    Unknown { host: String, source: io::Error },
    #[error("HOST {host:?} is not known; {EXPECTED}")]
    NotAHost { host: String },
    #[error("HOST {host:?} has no address of the requested family")]
    Family { host: String },
    #[error("HOST: '[' without ']'")]
    Bracket,
    #[error("HOST: expected nothing or :PORT after ']'")]
    AfterBracket,
    #[error("HOST: port {text:?} is not a number from 1 to 65535")]
    Port { text: String },
}

const EXPECTED: &str = "expected the name or address of a machine, such as example.net, 192.0.2.1 \
                        or [2001:db8::1]:4862";

/// Splits `host` into name and port; without a port it is `default`.
///
/// # Errors
/// Returns an error if `host` is empty, or its port is not a number from 1 to 65535.
fn split_port(host: &str, default: u16) -> Result<(String, u16), TargetError> {
    // The zone of a link-local address, as in fe80::1%eth0, is for the resolver.
    let (address, zone) = host.split_once('%').map_or((host, None), |(it, zone)| (it, Some(zone)));
    if let Ok(address) = address.parse::<IpAddr>() {
        let zone = zone.map(|zone| format!("%{zone}")).unwrap_or_default();
        return Ok((format!("{address}{zone}"), default));
    }
    if host.contains('/') {
        return Err(TargetError::NotAHost { host: host.to_owned() });
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(TargetError::Bracket)?;
        let port = match port.strip_prefix(':') {
            Some(port) => read_port(port)?,
            None if port.is_empty() => default,
            None => return Err(TargetError::AfterBracket),
        };
        return Ok((address.to_owned(), port));
    }
    match host.rsplit_once(':') {
        Some((name, port)) => Ok((name.to_owned(), read_port(port)?)),
        None if host.is_empty() => Err(TargetError::Empty),
        None => Ok((host.to_owned(), default)),
    }
}

fn read_port(text: &str) -> Result<u16, TargetError> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| TargetError::Port { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use underload_probe::control::SERVER_PORT;

    use super::*;

    #[test]
    fn hosts_with_and_without_ports_are_split() {
        for (host, name, port) in [
            ("a.example", "a.example", 4862),
            ("a.example:99", "a.example", 99),
            ("192.0.2.1", "192.0.2.1", 4862),
            ("192.0.2.1:99", "192.0.2.1", 99),
            ("2001:db8::1", "2001:db8::1", 4862),
            ("fe80::1%lo", "fe80::1%lo", 4862),
            ("[fe80::1%lo]:99", "fe80::1%lo", 99),
            ("[2001:db8::1]", "2001:db8::1", 4862),
            ("[2001:db8::1]:99", "2001:db8::1", 99),
        ] {
            assert_eq!(split_port(host, SERVER_PORT).unwrap(), (name.to_owned(), port), "{host}");
        }
        for wrong in ["", "a:0", "a:70000", "a:", "[::1", "[::1]x", "http://a", "a/b"] {
            assert!(split_port(wrong, SERVER_PORT).is_err(), "{wrong}");
        }
        let target = resolve("[::1]:7", SERVER_PORT, Family::Any).unwrap();
        assert_eq!(target.name, "[::1]:7");
        let SocketAddr::V6(local) = resolve("fe80::1%1", 7, Family::Any).unwrap().addresses[0]
        else {
            panic!("expected IPv6");
        };
        assert_eq!((local.scope_id(), local.port()), (1, 7));
        assert!(resolve("127.0.0.1", SERVER_PORT, Family::V6).is_err());
    }
}
