//! Listening sockets. IPv4 and IPv6 have separate sockets, so that both can listen at all addresses
//! on one port and no address is an IPv4-mapped one.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

const BACKLOG: i32 = 1024;

/// Opens a TCP listener.
///
/// # Errors
/// Returns the error of the system, for example if the port is taken or reserved.
pub fn tcp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(at, Type::STREAM)?;
    // Connections of an earlier server must not block the port.
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

pub fn udp(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket(at, Type::DGRAM)?;
    socket.bind(&at.into())?;
    Ok(socket.into())
}

fn socket(at: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), kind, None)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn both_families_listen_at_all_addresses_and_one_port() {
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            eprintln!(
                "SKIPPED both_families_listen_at_all_addresses_and_one_port: there is no IPv6"
            );
            return;
        }
        // Another program may use the port for the other protocol, or the other IP version.
        let both = (0..20).any(|_| {
            let first = tcp((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
            let port = first.local_addr().unwrap().port();
            assert!(tcp((Ipv4Addr::UNSPECIFIED, port).into()).is_err(), "it is taken");
            let _udp = udp((Ipv4Addr::UNSPECIFIED, port).into());
            tcp((Ipv6Addr::UNSPECIFIED, port).into()).is_ok()
                && udp((Ipv6Addr::UNSPECIFIED, port).into()).is_ok()
        });
        assert!(both);
    }
}
