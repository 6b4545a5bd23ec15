//! Finds the hop that changes a marking, by probes with a limited time to live and the headers that
//! routers quote.
//!
//! A router that drops a packet because its time to live expired returns the packet's head (RFC
//! 792, RFC 4443), with the marking as it arrived at the router. Linux passes the quoted IP header
//! only to raw ICMP sockets (the error queue of a UDP socket begins after it), so this needs
//! `CAP_NET_RAW`.
//!
//! All probes have the same addresses and ports, so that routers which spread flows over several
//! paths send them the same way. The length of a probe identifies it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use underload_record::schema::Marking;

use crate::clock::RunClock;
use crate::endpoint::{EndpointError, ProbeSocket, encode_request};
use crate::network::is_transient;
use crate::wire::ReflectorPacket;

/// The hops towards a target, and the markings that arrived there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HopTrace {
    pub markings: Vec<Marking>,
    /// Hops by distance from 1, without the target, up to the last one that answered.
    pub hops: Vec<Hop>,
    /// Distance of the target; `None` if it did not answer.
    pub target_at: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hop {
    /// Distance of the hop: the TTL at which a packet expires there.
    pub ttl: u8,
    /// Source of the hop's answers; `None` if it does not answer.
    pub address: Option<IpAddr>,
    /// Per marking sent, the quoted marking; `None` if the hop did not answer that probe.
    pub quoted: Vec<Option<Marking>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The marking as sent, or as the previous hop quoted it.
    pub from: Marking,
    pub to: Marking,
    /// Distance of the last hop at which `from` arrived; 0 is this host.
    pub after_ttl: u8,
    /// Address of that hop; `None` for this host.
    pub after: Option<IpAddr>,
    /// Distance of the first hop at which `to` arrived.
    pub seen_at_ttl: u8,
    pub seen_at: Option<IpAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum HopsError {
    #[error(
        "reading what routers quote needs CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` \
         the program"
    )]
    Privilege,
    #[error("tracing the hops to {target}: {step}")]
    Socket { target: SocketAddr, step: &'static str, source: io::Error },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Maximum number of markings per trace: routers limit their answers per second.
pub const TRACED_MAX: usize = 4;
const TTL_MAX: u8 = 24;
const ATTEMPTS: usize = 3;
/// Interval between probes, within the rate at which routers answer.
const INTERVAL: Duration = Duration::from_millis(4);
/// How long to wait for answers after the last probe of an attempt.
const PATIENCE: Duration = Duration::from_millis(900);
const BYTES_MIN: usize = 52;
const SESSION: u16 = 0x484f;

/// Traces the first [`TRACED_MAX`] of `markings` towards the reflector at `target`, in the network
/// of the calling thread. Takes about three seconds.
///
/// # Errors
/// Returns [`HopsError::Privilege`] without `CAP_NET_RAW`, other variants without a socket or a
/// route.
pub fn trace_hops(target: SocketAddr, markings: &[Marking]) -> Result<HopTrace, HopsError> {
    let mut trace = Trace::open(target, markings)?;
    for _ in 0..ATTEMPTS {
        trace.attempt()?;
        if trace.is_complete() {
            break;
        }
    }
    Ok(trace.finish())
}

impl HopTrace {
    /// Returns the first change of `self.markings[marking]`; `None` if it arrived unchanged at
    /// every hop that answered.
    pub fn first_change(&self, marking: usize) -> Option<Change> {
        let from = *self.markings.get(marking)?;
        let (mut after_ttl, mut after) = (0, None);
        for hop in &self.hops {
            match hop.quoted.get(marking).copied().flatten() {
                Some(quoted) if quoted == from => (after_ttl, after) = (hop.ttl, hop.address),
                Some(to) => {
                    let (seen_at_ttl, seen_at) = (hop.ttl, hop.address);
                    return Some(Change { from, to, after_ttl, after, seen_at_ttl, seen_at });
                }
                None => {}
            }
        }
        None
    }
}

struct Trace {
    target: SocketAddr,
    markings: Vec<Marking>,
    probes: ProbeSocket,
    options: UdpSocket,
    errors: UdpSocket,
    local_port: u16,
    hops: Vec<Hop>,
    target_at: Option<u8>,
    clock: RunClock,
}

impl Trace {
    fn open(target: SocketAddr, markings: &[Marking]) -> Result<Self, HopsError> {
        let error = |step| move |source| HopsError::Socket { target, step, source };
        let (domain, protocol, any): (_, _, IpAddr) = match target {
            SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let errors = match Socket::new(domain, Type::RAW, Some(protocol)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(HopsError::Privilege);
            }
            other => other.map_err(error("opening a raw socket"))?,
        };
        let options = UdpSocket::bind((any, 0)).map_err(error("opening a socket"))?;
        let local = options.local_addr().map_err(error("reading its address"))?;
        let shared = options.try_clone().map_err(error("sharing a socket"))?;
        let probes = ProbeSocket::new(shared, "hops")?;
        let markings: Vec<Marking> = markings.iter().copied().take(TRACED_MAX).collect();
        let hop = |ttl| Hop { ttl, address: None, quoted: vec![None; markings.len()] };
        let hops = (1..=TTL_MAX).map(hop).collect();
        Ok(Self {
            target,
            hops,
            probes,
            options,
            // `UdpSocket` only decides how bytes are read: the socket is raw.
            errors: UdpSocket::from(errors),
            local_port: local.port(),
            target_at: None,
            clock: RunClock::start(),
            markings,
        })
    }

    /// Probes every hop that has not answered, then waits for answers.
    fn attempt(&mut self) -> Result<(), HopsError> {
        let target = self.target;
        let error = |step| move |source| HopsError::Socket { target, step, source };
        for ttl in 1..=self.target_at.unwrap_or(TTL_MAX) {
            for index in 0..self.markings.len() {
                if self.is_known(ttl, index) {
                    continue;
                }
                self.send(ttl, index).map_err(error("sending"))?;
                let until = Instant::now() + INTERVAL;
                self.listen(until).map_err(error("listening"))?;
            }
        }
        self.listen(Instant::now() + PATIENCE).map_err(error("listening"))
    }

    fn is_known(&self, ttl: u8, index: usize) -> bool {
        let hop = self.hops.get(usize::from(ttl) - 1);
        hop.is_some_and(|hop| hop.quoted.get(index).is_some_and(Option::is_some))
            || self.target_at.is_some_and(|target| ttl >= target)
    }

    fn is_complete(&self) -> bool {
        let last = self.target_at.unwrap_or(TTL_MAX);
        (1..last).all(|ttl| (0..self.markings.len()).all(|index| self.is_known(ttl, index)))
    }

    fn send(&mut self, ttl: u8, index: usize) -> io::Result<()> {
        let options = SockRef::from(&self.options);
        match self.target {
            SocketAddr::V4(_) => options.set_ttl_v4(u32::from(ttl))?,
            SocketAddr::V6(_) => options.set_unicast_hops_v6(u32::from(ttl))?,
        }
        let marking = self.markings[index];
        let mut packet = [0; BYTES_MIN + CODES];
        let length_code = length_code(ttl, index);
        let packet = &mut packet[..BYTES_MIN + length_code];
        let now = self.clock.now_on_both();
        if encode_request(packet, length_code as u32, SESSION, marking, now).is_none() {
            return Ok(());
        }
        match self.probes.send(packet, marking.to_byte(), Some(self.target)) {
            // The kernel reports the error of an earlier probe with a later one.
            Err(error) if !is_expected(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn listen(&mut self, until: Instant) -> io::Result<()> {
        let mut buffer = [0; 1_500];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Ok(());
            }
            // Read both sockets in turn.
            let turn = left.min(Duration::from_millis(4));
            self.errors.set_read_timeout(Some(turn))?;
            match self.errors.recv_from(&mut buffer) {
                Ok((len, from)) => self.note_quote(&buffer[..len], from.ip()),
                Err(error) if is_expected(&error) => {}
                Err(error) => return Err(error),
            }
            self.probes.set_read_timeout(Duration::from_micros(500))?;
            match self.probes.recv(&mut buffer) {
                Ok(received) => self.note_answer(&buffer[..received.len]),
                Err(error) if is_expected(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn note_quote(&mut self, message: &[u8], from: IpAddr) {
        let quote = match self.target {
            SocketAddr::V4(_) => Quote::from_icmp_v4(message),
            SocketAddr::V6(_) => Quote::from_icmp_v6(message),
        };
        let Some(quote) = quote else { return };
        let ports = (self.local_port, self.target.port());
        if quote.destination != self.target.ip() || quote.ports != ports {
            return;
        }
        let bytes = usize::from(quote.udp_bytes).checked_sub(8 + BYTES_MIN);
        let Some((ttl, index)) = bytes.and_then(decoded) else { return };
        if let Some(hop) = self.hops.get_mut(usize::from(ttl) - 1) {
            hop.address = Some(from);
            if let Some(slot) = hop.quoted.get_mut(index) {
                *slot = Some(quote.marking);
            }
        }
    }

    fn note_answer(&mut self, bytes: &[u8]) {
        let Ok((packet, _)) = ReflectorPacket::decode(bytes) else { return };
        if packet.sender.session != SESSION {
            return;
        }
        if let Some((ttl, _)) = decoded(packet.sender.sequence as usize) {
            self.target_at = Some(self.target_at.map_or(ttl, |at| at.min(ttl)));
        }
    }

    fn finish(mut self) -> HopTrace {
        if let Some(target_at) = self.target_at {
            self.hops.truncate(usize::from(target_at).saturating_sub(1));
        }
        while self.hops.last().is_some_and(|hop| hop.address.is_none()) {
            self.hops.pop();
        }
        HopTrace { markings: self.markings, hops: self.hops, target_at: self.target_at }
    }
}

const CODES: usize = TTL_MAX as usize * TRACED_MAX;

/// Returns by how many bytes the probe is longer than the shortest one.
fn length_code(ttl: u8, index: usize) -> usize {
    (usize::from(ttl) - 1) * TRACED_MAX + index
}

fn decoded(code: usize) -> Option<(u8, usize)> {
    (code < CODES).then(|| ((code / TRACED_MAX) as u8 + 1, code % TRACED_MAX))
}

/// Returns true if no packet is waiting, or for an error that an earlier probe caused.
fn is_expected(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    is_transient(error) || matches!(error.kind(), HostUnreachable | NetworkUnreachable)
}

/// The head of a UDP packet whose time to live expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quote {
    marking: Marking,
    destination: IpAddr,
    ports: (u16, u16),
    udp_bytes: u16,
}

impl Quote {
    /// Parses an ICMP message with its IPv4 header, as raw sockets return it. Returns `None` unless
    /// it is "time to live exceeded in transit" about UDP.
    fn from_icmp_v4(message: &[u8]) -> Option<Self> {
        let icmp = message.get(ipv4_header_bytes(message)?..)?;
        let ip = icmp.starts_with(&[11, 0]).then(|| icmp.get(8..))??;
        if *ip.get(9)? != UDP {
            return None;
        }
        let destination: [u8; 4] = *ip.get(16..20)?.first_chunk()?;
        Self::new(ip[1], destination.into(), ip.get(ipv4_header_bytes(ip)?..)?)
    }

    /// Parses an ICMPv6 message, which raw sockets return without its IPv6 header.
    fn from_icmp_v6(icmp: &[u8]) -> Option<Self> {
        let ip = icmp.starts_with(&[3, 0]).then(|| icmp.get(8..))??;
        if *ip.get(6)? != UDP {
            return None;
        }
        let destination: [u8; 16] = *ip.get(24..40)?.first_chunk()?;
        let traffic_class = ip[0] << 4 | ip[1] >> 4;
        Self::new(traffic_class, destination.into(), ip.get(40..)?)
    }

    fn new(traffic_class: u8, destination: IpAddr, udp: &[u8]) -> Option<Self> {
        let word =
            |offset: usize| Some(u16::from_be_bytes([*udp.get(offset)?, *udp.get(offset + 1)?]));
        Some(Self {
            marking: Marking::from_byte(traffic_class),
            destination,
            ports: (word(0)?, word(2)?),
            udp_bytes: word(4)?,
        })
    }
}

/// Parses any bytes as an ICMP and as an ICMPv6 message, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub fn read_quotes(message: &[u8]) {
    for quote in [Quote::from_icmp_v4(message), Quote::from_icmp_v6(message)].into_iter().flatten()
    {
        assert!(message.len() >= 8 + 20 + 6, "{quote:?} out of {} bytes", message.len());
    }
}

const UDP: u8 = 17;

fn ipv4_header_bytes(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let bytes = usize::from(first & 15) * 4;
    (first >> 4 == 4 && bytes >= 20).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use underload_record::schema::Ecn;

    const SENT: Marking = Marking { dscp: 45, ecn: Ecn::Ect1 };

    fn icmp_v4(tos: u8) -> Vec<u8> {
        let mut message = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9];
        message.extend([11, 0, 0, 0, 0, 0, 0, 0]);
        message.extend([0x45, tos, 0, 80, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 9, 192, 0, 2, 7]);
        message.extend([0x9c, 0x40, 0x12, 0xfe, 0, 61, 0, 0]);
        message
    }

    #[test]
    fn a_quoted_header_shows_the_marking_on_arrival() {
        let quote = Quote::from_icmp_v4(&icmp_v4(0xb5)).unwrap();
        let expected = Quote {
            marking: SENT,
            destination: "192.0.2.7".parse().unwrap(),
            ports: (40_000, 4_862),
            udp_bytes: 61,
        };
        assert_eq!(quote, expected);
        let mut unreachable = icmp_v4(0xb5);
        unreachable[20] = 3;
        assert_eq!(Quote::from_icmp_v4(&unreachable), None);

        let mut v6 = vec![3, 0, 0, 0, 0, 0, 0, 0];
        v6.extend([0x6b, 0x50, 0, 0, 0, 61, 17, 1]);
        v6.extend([0; 16]);
        let destination: Ipv6Addr = "2001:db8::7".parse().unwrap();
        v6.extend(destination.octets());
        v6.extend([0x9c, 0x40, 0x12, 0xfe, 0, 61, 0, 0]);
        let quote = Quote::from_icmp_v6(&v6).unwrap();
        assert_eq!(quote, Quote { destination: destination.into(), ..expected });
    }

    #[test]
    fn a_quoted_header_of_less_than_twenty_bytes_is_ignored() {
        for offset in [0, 28] {
            let mut message = icmp_v4(0xb5);
            message[offset] = 0x41;
            assert_eq!(Quote::from_icmp_v4(&message), None, "header at byte {offset}");
        }
    }

    #[test]
    fn every_probe_has_a_distinct_length() {
        let all = (1..=TTL_MAX).flat_map(|ttl| (0..TRACED_MAX).map(move |index| (ttl, index)));
        for (position, (ttl, index)) in all.enumerate() {
            assert_eq!(length_code(ttl, index), position);
            assert_eq!(decoded(position), Some((ttl, index)));
        }
        assert_eq!(decoded(CODES), None);
    }

    #[test]
    fn a_change_lies_between_two_hops_that_answered() {
        let hop = |ttl, quoted| Hop {
            ttl,
            address: Some(IpAddr::from([10, 0, 0, ttl])),
            quoted: vec![quoted],
        };
        let bleached = Marking::default();
        let mut trace = HopTrace {
            markings: vec![SENT],
            hops: vec![hop(1, Some(SENT)), hop(2, None), hop(3, Some(bleached))],
            target_at: Some(4),
        };
        let change = trace.first_change(0).unwrap();
        assert_eq!((change.after_ttl, change.seen_at_ttl, change.to), (1, 3, bleached));
        assert_eq!(change.after, Some(IpAddr::from([10, 0, 0, 1])));
        trace.hops.truncate(2);
        assert_eq!(trace.first_change(0), None);
        assert_eq!(trace.first_change(1), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Quote::from_icmp_v4(&bytes);
            let _ = Quote::from_icmp_v6(&bytes);
            let mut quoted = icmp_v4(0);
            quoted.truncate(20 + bytes.len() % 40);
            let _ = Quote::from_icmp_v4(&quoted);
        }
    }
}
