//! What travels beside a datagram's bytes: marking, time to live and the time of its arrival, as
//! each system has them.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, sendmsg};

pub(super) use system::{ask_for_hop_limit, ask_for_time, ask_for_ttl, read, send, space};

/// What the kernel says of a datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// When, in nanoseconds since 1970.
    Arrival(u64),
    /// DSCP and ECN.
    TrafficClass(u8),
    /// Time to live or hop limit.
    Ttl(u8),
}

/// Sends one datagram with these messages beside it, without waiting.
fn send_with(
    socket: &UdpSocket,
    bytes: &[u8],
    beside: &[ControlMessage<'_>],
    address: Option<&SockaddrStorage>,
) -> io::Result<usize> {
    let (slices, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_DONTWAIT);
    Ok(sendmsg(socket.as_raw_fd(), &slices, beside, flags, address)?)
}

#[cfg(target_os = "linux")]
mod system {
    use nix::sys::socket::{setsockopt, sockopt};

    use super::{
        ControlMessage, ControlMessageOwned, SockaddrStorage, Told, UdpSocket, io, send_with,
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

    /// Room for all that is asked for.
    pub fn space() -> Vec<u8> {
        nix::cmsg_space!(
            nix::sys::time::TimeSpec,
            libc::c_int,
            libc::c_int,
            libc::c_int,
            libc::c_int
        )
    }

    pub fn read(control: &ControlMessageOwned) -> Option<Told> {
        match control {
            ControlMessageOwned::ScmTimestampns(time) => {
                let unix_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
                Some(Told::Arrival(unix_ns))
            }
            ControlMessageOwned::Ipv4Tos(class) => Some(Told::TrafficClass(*class)),
            ControlMessageOwned::Ipv6TClass(class) => Some(Told::TrafficClass(*class as u8)),
            ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                Some(Told::Ttl(*ttl as u8))
            }
            _ => None,
        }
    }

    /// Sends one datagram with a marking of its own, without waiting.
    pub fn send(
        socket: &UdpSocket,
        bytes: &[u8],
        class: u8,
        over_ipv6: bool,
        address: Option<&SockaddrStorage>,
    ) -> io::Result<usize> {
        let wide_class = i32::from(class);
        let marking = if over_ipv6 {
            ControlMessage::Ipv6TClass(&wide_class)
        } else {
            ControlMessage::Ipv4Tos(&class)
        };
        send_with(socket, bytes, &[marking], address)
    }
}

/// macOS tells arrivals in microseconds and no time to live, and marks by socket, not by datagram:
/// two threads that send on one socket with two markings may mix them up.
#[cfg(not(target_os = "linux"))]
mod system {
    use nix::sys::socket::{setsockopt, sockopt};
    use socket2::SockRef;

    use super::{ControlMessageOwned, SockaddrStorage, Told, UdpSocket, io, send_with};

    pub fn ask_for_time(socket: &UdpSocket) -> io::Result<()> {
        Ok(setsockopt(socket, sockopt::ReceiveTimestamp, &true)?)
    }

    pub fn ask_for_ttl(_: &UdpSocket) -> io::Result<()> {
        Ok(())
    }

    pub fn ask_for_hop_limit(_: &UdpSocket) -> io::Result<()> {
        Ok(())
    }

    pub fn space() -> Vec<u8> {
        nix::cmsg_space!(nix::sys::time::TimeVal, libc::c_int, libc::c_int)
    }

    pub fn read(control: &ControlMessageOwned) -> Option<Told> {
        match control {
            ControlMessageOwned::ScmTimestamp(time) => {
                let unix_us = time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
                Some(Told::Arrival(unix_us * 1_000))
            }
            ControlMessageOwned::Unknown(message) => {
                let (header, bytes) = (&message.cmsg_header, &message.data_bytes);
                let is_class = (header.cmsg_level, header.cmsg_type)
                    == (libc::IPPROTO_IP, libc::IP_RECVTOS)
                    || (header.cmsg_level, header.cmsg_type)
                        == (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
                // One byte, or an int whose first byte has it on these machines.
                bytes.first().filter(|_| is_class).map(|class| Told::TrafficClass(*class))
            }
            _ => None,
        }
    }

    pub fn send(
        socket: &UdpSocket,
        bytes: &[u8],
        class: u8,
        over_ipv6: bool,
        address: Option<&SockaddrStorage>,
    ) -> io::Result<usize> {
        let options = SockRef::from(socket);
        let class = u32::from(class);
        if over_ipv6 {
            options.set_tclass_v6(class)?
        } else {
            options.set_tos_v4(class)?
        }
        send_with(socket, bytes, &[], address)
    }
}
