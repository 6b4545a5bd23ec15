//! A datagram's control data: marking, time to live, arrival time and destination address, as each
//! system provides them.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg,
};
use socket2::SockRef;

pub(super) use system::{ask_for_address, ask_for_time, send, space};
use system::{ask_for_hop_limit, ask_for_ttl, read};

use super::Received;

#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Whether its packets are IPv6.
    pub over_ipv6: bool,
    /// The source, an address of this machine; `None` if the kernel chooses.
    pub from: Option<IpAddr>,
    /// The destination; `None` for the connected peer.
    pub to: Option<SocketAddr>,
}

/// Sends one datagram with control messages, without waiting.
fn send_with(
    socket: &UdpSocket,
    bytes: &[u8],
    control: &[ControlMessage<'_>],
    peer: Option<SocketAddr>,
) -> io::Result<usize> {
    let (slices, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_DONTWAIT);
    let address = peer.map(SockaddrStorage::from);
    Ok(sendmsg(socket.as_raw_fd(), &slices, control, flags, address.as_ref())?)
}

/// Requests the marking and the time to live of received IPv4 packets.
pub(super) fn ask_ipv4(socket: &UdpSocket) -> io::Result<()> {
    SockRef::from(socket).set_recv_tos_v4(true).and_then(|()| ask_for_ttl(socket))
}

/// Requests the marking and the hop limit of received IPv6 packets.
pub(super) fn ask_ipv6(socket: &UdpSocket) -> io::Result<()> {
    SockRef::from(socket).set_recv_tclass_v6(true).and_then(|()| ask_for_hop_limit(socket))
}

/// Receives one datagram; `control` is the space for its control messages.
pub(super) fn receive(
    socket: &UdpSocket,
    control: &mut [u8],
    buffer: &mut [u8],
) -> io::Result<Received> {
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(control), flags)?;
    let mut received = Received {
        len: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
        peer: message.address.as_ref().and_then(socket_address),
        ..Received::default()
    };
    // If control messages were truncated, their fields stay `None`.
    for control in message.cmsgs().into_iter().flatten() {
        read(&control, &mut received);
    }
    Ok(received)
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(address) = storage.as_sockaddr_in() {
        return Some(SocketAddr::V4((*address).into()));
    }
    storage.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into()))
}

#[cfg(target_os = "linux")]
mod system {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use nix::sys::socket::{setsockopt, sockopt};

    use super::{
        ControlMessage, ControlMessageOwned, IpAddr, Received, UdpSocket, Way, io, send_with,
    };

    pub fn ask_for_time(socket: &UdpSocket) -> io::Result<()> {
        Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
    }

    pub fn ask_for_ttl(socket: &UdpSocket) -> io::Result<()> {
        Ok(setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?)
    }

    pub fn ask_for_hop_limit(socket: &UdpSocket) -> io::Result<()> {
        Ok(setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?)
    }

    pub fn ask_for_address(socket: &UdpSocket, is_ipv6: bool) -> io::Result<()> {
        if is_ipv6 {
            return Ok(setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?);
        }
        Ok(setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?)
    }

    /// Returns a buffer for all control messages that were requested.
    pub fn space() -> Vec<u8> {
        nix::cmsg_space!(
            nix::sys::time::TimeSpec,
            libc::c_int,
            libc::c_int,
            libc::c_int,
            libc::c_int,
            libc::in6_pktinfo
        )
    }

    /// Stores a control message's value in `received`.
    pub fn read(control: &ControlMessageOwned, received: &mut Received) {
        match control {
            ControlMessageOwned::ScmTimestampns(time) => {
                let unix_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
                received.kernel_unix_ns = Some(unix_ns);
            }
            ControlMessageOwned::Ipv4Tos(class) => received.traffic_class = Some(*class),
            ControlMessageOwned::Ipv6TClass(class) => received.traffic_class = Some(*class as u8),
            ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                received.ttl = Some(*ttl as u8);
            }
            // For a broadcast, this is the address of this machine that answers.
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let address = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                received.sent_to = Some(address.into());
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                if !address.is_multicast() {
                    received.sent_to = Some(address.into());
                }
            }
            _ => {}
        }
    }

    /// Sends one datagram with a marking, without waiting.
    pub fn send(socket: &UdpSocket, bytes: &[u8], class: u8, way: Way) -> io::Result<usize> {
        let wide_class = i32::from(class);
        let marking = if way.over_ipv6 {
            ControlMessage::Ipv6TClass(&wide_class)
        } else {
            ControlMessage::Ipv4Tos(&class)
        };
        match way.from {
            Some(IpAddr::V4(address)) => {
                let s_addr = u32::from_ne_bytes(address.octets());
                let ipi_spec_dst = libc::in_addr { s_addr };
                let ipi_addr = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr };
                send_with(socket, bytes, &[marking, ControlMessage::Ipv4PacketInfo(&info)], way.to)
            }
            Some(IpAddr::V6(address)) => {
                let ipi6_addr = libc::in6_addr { s6_addr: address.octets() };
                let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                send_with(socket, bytes, &[marking, ControlMessage::Ipv6PacketInfo(&info)], way.to)
            }
            None => send_with(socket, bytes, &[marking], way.to),
        }
    }
}

/// macOS reports arrivals in microseconds and no time to live, and marks per socket: two threads
/// that send on one socket with different markings may mix them up. It chooses the source of
/// answers, which on a machine with several addresses may differ from the address that the request
/// was sent to.
#[cfg(not(target_os = "linux"))]
mod system {
    use nix::sys::socket::{setsockopt, sockopt};
    use socket2::SockRef;

    use super::{ControlMessageOwned, Received, UdpSocket, Way, io, send_with};

    pub fn ask_for_time(socket: &UdpSocket) -> io::Result<()> {
        Ok(setsockopt(socket, sockopt::ReceiveTimestamp, &true)?)
    }

    pub fn ask_for_ttl(_: &UdpSocket) -> io::Result<()> {
        Ok(())
    }

    pub fn ask_for_hop_limit(_: &UdpSocket) -> io::Result<()> {
        Ok(())
    }

    pub fn ask_for_address(_: &UdpSocket, _: bool) -> io::Result<()> {
        Ok(())
    }

    pub fn space() -> Vec<u8> {
        nix::cmsg_space!(nix::sys::time::TimeVal, libc::c_int, libc::c_int)
    }

    pub fn read(control: &ControlMessageOwned, received: &mut Received) {
        match control {
            ControlMessageOwned::ScmTimestamp(time) => {
                let unix_us = time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
                received.kernel_unix_ns = Some(unix_us * 1_000);
            }
            ControlMessageOwned::Unknown(message) => {
                let header = &message.cmsg_header;
                let kind = (header.cmsg_level, header.cmsg_type);
                let classes =
                    [(libc::IPPROTO_IP, libc::IP_RECVTOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
                if classes.contains(&kind) {
                    // One byte, or an int whose first byte has the class on these machines.
                    received.traffic_class = message.data_bytes.first().copied();
                }
            }
            _ => {}
        }
    }

    pub fn send(socket: &UdpSocket, bytes: &[u8], class: u8, way: Way) -> io::Result<usize> {
        let options = SockRef::from(socket);
        let class = u32::from(class);
        if way.over_ipv6 {
            options.set_tclass_v6(class)?
        } else {
            options.set_tos_v4(class)?
        }
        send_with(socket, bytes, &[], way.to)
    }
}
