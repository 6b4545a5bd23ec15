//! One probe of one address.

use std::io::{self, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};
use socket2::{Domain, Protocol, Socket, Type};

use super::quic::{is_negotiation, opening};
use crate::network::bind_to_interface;

underload_record::named! {
    /// The protocol of a survey's probes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Asking {
        /// A TCP handshake with the port, closed at once. A refusal counts as an answer.
        Tcp = "tcp",
        /// An ICMP echo with 56 bytes, as `ping` sends it.
        Icmp = "icmp",
        /// A request for the QUIC versions that the port supports.
        Quic = "quic",
    }
}

/// Why a probe has no round trip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    Lost,
    /// The probe could not be sent; the reason in words.
    Trouble(String),
}

impl Asking {
    /// Sends one probe and returns its round trip, as this program measures it.
    ///
    /// # Errors
    /// Returns [`Silence::Lost`] after `allowed`, [`Silence::Trouble`] if the probe cannot be sent.
    pub fn ask(self, address: SocketAddr, allowed: Duration) -> Result<Duration, Silence> {
        let answer = match self {
            Self::Tcp => handshake(address, allowed),
            Self::Icmp => echo(address, None, allowed),
            Self::Quic => versions(address, allowed),
        };
        answer.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Silence::Lost,
            io::ErrorKind::PermissionDenied if self == Self::Icmp => {
                let words = "this user may not send ICMP echoes: run as root, or widen \
                             net.ipv4.ping_group_range";
                Silence::Trouble(words.to_owned())
            }
            _ => Silence::Trouble(error.to_string()),
        })
    }
}

fn handshake(address: SocketAddr, allowed: Duration) -> io::Result<Duration> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let start = Instant::now();
    match socket.connect_timeout(&address.into(), allowed) {
        Ok(()) => Ok(start.elapsed()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(start.elapsed()),
        Err(error) => Err(error),
    }
}

/// Bytes of an echo's payload, as `ping` sends them.
pub const ECHO_BYTES: usize = 56;

#[derive(Debug)]
pub struct EchoSocket {
    socket: Socket,
    is_raw: bool,
    is_v4: bool,
}

/// The payload of an echo, by which its answer is known.
pub type EchoPayload = [u8; ECHO_BYTES];

impl EchoSocket {
    /// Opens the socket, which uses the network interface `device` alone if one is named. Echoes
    /// and answers of other programs are ignored.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user may not send echoes.
    pub fn open(address: SocketAddr, device: Option<&str>) -> io::Result<Self> {
        let is_v4 = address.is_ipv4();
        let protocol = if is_v4 { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        let open = |kind| Socket::new(Domain::for_address(address), kind, Some(protocol));
        // `ping_group_range` may exclude root, too; root can open raw sockets.
        let (socket, is_raw) = match open(Type::DGRAM) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (open(Type::RAW)?, true)
            }
            other => (other?, false),
        };
        if let Some(name) = device {
            bind_to_interface(&socket, name)?;
        }
        socket.connect(&address.into())?;
        Ok(Self { socket, is_raw, is_v4 })
    }

    /// Opens a second handle, so that one thread sends and another receives.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let Self { is_raw, is_v4, .. } = *self;
        Ok(Self { socket: self.socket.try_clone()?, is_raw, is_v4 })
    }

    pub fn send(&self, payload: &EchoPayload) -> io::Result<()> {
        self.send_numbered(payload, 1)
    }

    pub fn send_numbered(&self, payload: &EchoPayload, number: u16) -> io::Result<()> {
        let mut packet = [0; 8 + ECHO_BYTES];
        packet[0] = if self.is_v4 { 8 } else { 128 };
        packet[6..8].copy_from_slice(&number.to_be_bytes());
        packet[8..].copy_from_slice(payload);
        // The kernel writes identifier and checksum, except the IPv4 checksum of a raw packet.
        if self.is_raw {
            fill(&mut packet[4..6])?;
            let checksum = checksum(&packet);
            packet[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        self.socket.send(&packet).map(drop)
    }

    /// Waits for a packet, and returns its payload if it is an answer.
    ///
    /// # Errors
    /// Returns an error if nothing arrives within `limit`.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<EchoPayload>> {
        self.socket.set_read_timeout(Some(limit))?;
        let mut buffer = [0; 512];
        let count = (&self.socket).read(&mut buffer)?;
        let received = message(&buffer[..count], self.is_raw && self.is_v4);
        let answer = if self.is_v4 { 0 } else { 129 };
        let is_answer = received.first() == Some(&answer);
        let payload = received.get(8..).and_then(|payload| payload.try_into().ok());
        Ok(payload.filter(|_| is_answer))
    }
}

impl EchoSocket {
    /// Limits the number of hops that the next echoes travel.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        let ttl = u32::from(ttl);
        if self.is_v4 { self.socket.set_ttl_v4(ttl) } else { self.socket.set_unicast_hops_v6(ttl) }
    }

    /// Lets the kernel queue the errors that routers report, for [`EchoSocket::expired_at`].
    ///
    /// # Errors
    /// Returns the kernel's error, [`io::ErrorKind::Unsupported`] on systems other than Linux.
    pub fn report_errors(&self) -> io::Result<()> {
        errors::report(&self.socket, self.is_v4)
    }

    /// Returns the sequence number of an echo whose time to live expired, and the router that
    /// reported it; `None` if no report is queued.
    pub fn expired_at(&self) -> Option<(u16, SocketAddr)> {
        errors::expired_at(&self.socket)
    }
}

/// The queue of errors that routers report.
#[cfg(target_os = "linux")]
mod errors {
    use std::io::{self, IoSliceMut};
    use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
    };
    use socket2::Socket;

    /// "Time to live exceeded in transit" (RFC 792), "hop limit exceeded in transit" (RFC 4443).
    const EXPIRED_V4: (u8, u8) = (11, 0);
    const EXPIRED_V6: (u8, u8) = (3, 0);

    pub fn report(socket: &Socket, is_v4: bool) -> io::Result<()> {
        let outcome = if is_v4 {
            setsockopt(socket, sockopt::Ipv4RecvErr, &true)
        } else {
            setsockopt(socket, sockopt::Ipv6RecvErr, &true)
        };
        Ok(outcome?)
    }

    pub fn expired_at(socket: &Socket) -> Option<(u16, SocketAddr)> {
        loop {
            let mut quoted = [0; 64];
            let mut slices = [IoSliceMut::new(&mut quoted)];
            let mut space = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let received = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut slices,
                Some(&mut space),
                flags,
            );
            let received = received.ok()?;
            let bytes = received.bytes;
            let router = received.cmsgs().ok()?.find_map(|it| router(&it));
            // The queue holds the ICMP header of the echo, which ends with its number.
            if let Some(router) = router.filter(|_| bytes >= 8) {
                return Some((u16::from_be_bytes([quoted[6], quoted[7]]), router));
            }
        }
    }

    fn router(control: &ControlMessageOwned) -> Option<SocketAddr> {
        match control {
            ControlMessageOwned::Ipv4RecvErr(error, Some(from))
                if (error.ee_type, error.ee_code) == EXPIRED_V4 =>
            {
                let ip = from.sin_addr.s_addr.to_ne_bytes().into();
                Some(SocketAddrV4::new(ip, 0).into())
            }
            ControlMessageOwned::Ipv6RecvErr(error, Some(from))
                if (error.ee_type, error.ee_code) == EXPIRED_V6 =>
            {
                let ip = from.sin6_addr.s6_addr.into();
                Some(SocketAddrV6::new(ip, 0, 0, from.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod errors {
    use std::io;
    use std::net::SocketAddr;

    use socket2::Socket;

    pub fn report(_: &Socket, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn expired_at(_: &Socket) -> Option<(u16, SocketAddr)> {
        None
    }
}

/// Sends one echo and returns its round trip.
///
/// # Errors
/// Returns an error without an answer within `allowed`.
pub(crate) fn echo(
    address: SocketAddr,
    device: Option<&str>,
    allowed: Duration,
) -> io::Result<Duration> {
    let socket = EchoSocket::open(address, device)?;
    let mut payload = [0; ECHO_BYTES];
    fill(&mut payload)?;
    let start = Instant::now();
    socket.send(&payload)?;
    until(start, allowed, &mut |left| Ok(socket.receive(left)? == Some(payload)))
}

/// Returns the ICMP message of a received packet. A raw socket for IPv4 includes the IP header.
fn message(received: &[u8], has_header: bool) -> &[u8] {
    let header = match received.first() {
        Some(first) if has_header => usize::from(first & 0xf) * 4,
        _ => 0,
    };
    received.get(header..).unwrap_or_default()
}

/// Returns the Internet checksum of a message whose checksum field is zero (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn versions(address: SocketAddr, allowed: Duration) -> io::Result<Duration> {
    let mut names = [[0; 8]; 2];
    for name in &mut names {
        fill(name)?;
    }
    let any: SocketAddr =
        if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    let start = Instant::now();
    socket.send(&opening(names))?;
    until(start, allowed, &mut |left| {
        socket.set_read_timeout(Some(left))?;
        let mut buffer = [0; 1500];
        let count = socket.recv(&mut buffer)?;
        Ok(is_negotiation(&buffer[..count], names))
    })
}

/// Calls `receive` until it returns true. Other datagrams do not prolong the wait.
fn until(
    start: Instant,
    allowed: Duration,
    receive: &mut dyn FnMut(Duration) -> io::Result<bool>,
) -> io::Result<Duration> {
    loop {
        let left = allowed.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match receive(left) {
            Ok(true) => return Ok(start.elapsed()),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| io::Error::other("no random numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(5);

    // The example of RFC 1071, section 3, with the sum ddf2; and an odd number of bytes.
    #[test]
    fn checksums_are_those_of_the_rfc() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0xff, 0xff, 0x01]), !0x0100);
    }

    #[test]
    fn a_raw_sockets_header_is_left_out_whatever_its_length() {
        let with_options = [[0x46_u8; 24].as_slice(), &[0, 1, 2]].concat();
        assert_eq!(message(&with_options, true), [0, 1, 2]);
        assert_eq!(message(&[0, 1, 2], false), [0, 1, 2]);
        for cut_short in [&[][..], &[0x4f, 0]] {
            assert_eq!(message(cut_short, true), [] as [u8; 0]);
        }
    }

    #[test]
    fn an_echo_comes_back_from_this_machine() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            match Asking::Icmp.ask(address.parse().unwrap(), SHORT) {
                Ok(round_trip) => assert!(round_trip < SHORT),
                Err(Silence::Trouble(why)) => {
                    eprintln!("SKIPPED an_echo_comes_back_from_this_machine: {address}: {why}");
                }
                Err(Silence::Lost) => panic!("{address}: no echo from this machine"),
            }
        }
    }

    #[test]
    fn a_quic_server_is_recognised_and_noise_ignored() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(SHORT)).unwrap();
        let address = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            let (count, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(count, 1200);
            server.send_to(b"noise", from).unwrap();
            let mut answer = vec![0x80, 0, 0, 0, 0];
            // The answer swaps the connection identifiers.
            answer.extend(&buffer[14..23]);
            answer.extend(&buffer[5..14]);
            answer.extend([0, 0, 0, 1]);
            server.send_to(&answer, from).unwrap();
        });
        assert!(Asking::Quic.ask(address, SHORT).is_ok());
        answering.join().unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let silence = Asking::Quic.ask(silent.local_addr().unwrap(), Duration::from_millis(50));
        assert_eq!(silence, Err(Silence::Lost));
    }
}
