//! Parses the headers of a packet for the queue, as a pure function of the bytes and a key.
//!
//! Unusual packets are treated as follows:
//! * fragments, also the first, belong to the flow of their addresses and protocol, so that the
//!   parts of a datagram stay together and in order;
//! * ICMP echo belongs to a flow of its identifier, other protocols to addresses and protocol;
//! * at most [`EXTENSION_HEADERS_MAX`] IPv6 extension headers are parsed; after more, or after an
//!   unknown one, the flow is that of addresses and protocol;
//! * bytes beyond the length in the IP header are ignored; a packet that is shorter than its header
//!   states is rejected, and so is anything but IP versions 4 and 6.

use std::net::IpAddr;

use underload_aqm::packet::{FlowKey, Meta};

/// The parsed headers of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Classified {
    /// Properties for the queue; `len` is the length of the IP packet.
    pub meta: Meta,
    pub layout: Layout,
}

/// Positions of the parts of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub version: Version,
    pub length: u32,
    /// Start of the transport header: the length of the IP header with its extensions.
    pub transport: u16,
    /// Length of all headers, if the packet is an unfragmented TCP segment.
    pub tcp_payload: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    V4,
    V6,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPacket {
    #[error("not an IP packet")]
    Version,
    /// The bytes end before the headers or the stated length.
    #[error("shorter than its IP header states")]
    Truncated,
    #[error("an IPv4 header of less than 20 bytes")]
    HeaderLength,
}

/// The packet has more extension headers than are accepted.
pub const EXTENSION_HEADERS_MAX: usize = 8;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Parses the headers of the IP packet in `bytes`.
pub fn classify(bytes: &[u8], key: FlowKey) -> Result<Classified, NotAPacket> {
    match bytes.first().ok_or(NotAPacket::Truncated)? >> 4 {
        4 => classify_v4(bytes, key),
        6 => classify_v6(bytes, key),
        _ => Err(NotAPacket::Version),
    }
}

fn classify_v4(bytes: &[u8], key: FlowKey) -> Result<Classified, NotAPacket> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(NotAPacket::Truncated)?;
    let transport = usize::from(header[0] & 0x0f) * 4;
    if transport < 20 {
        return Err(NotAPacket::HeaderLength);
    }
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let packet = bytes.get(..length).ok_or(NotAPacket::Truncated)?;
    let body = packet.get(transport..).ok_or(NotAPacket::Truncated)?;
    // The flag "more fragments" or a fragment offset is set (RFC 791 section 3.1).
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let protocol = header[9];
    let selecting = if is_fragment { &[] } else { body };
    let address =
        |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let hosts = [address(12), address(16)];
    let tcp = tcp_header_length(protocol, is_fragment, body);
    Ok(Classified {
        meta: key.meta(length as u32, header[1], hosts, (protocol, transport), selecting),
        layout: Layout {
            version: Version::V4,
            length: length as u32,
            transport: transport as u16,
            tcp_payload: tcp.map(|tcp| (transport + tcp) as u16),
        },
    })
}

fn classify_v6(bytes: &[u8], key: FlowKey) -> Result<Classified, NotAPacket> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(NotAPacket::Truncated)?;
    let length = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = bytes.get(..length).ok_or(NotAPacket::Truncated)?;
    let upper = upper_layer(packet, header[6]);
    let body = packet.get(upper.start..).unwrap_or_default();
    let selecting = if upper.is_fragment { &[] } else { body };
    let address = |at: usize| {
        let bytes: [u8; 16] = std::array::from_fn(|byte| header[at + byte]);
        IpAddr::from(bytes)
    };
    let hosts = [address(8), address(24)];
    let traffic_class = header[0] << 4 | header[1] >> 4;
    let tcp = tcp_header_length(upper.protocol, upper.is_fragment, body);
    Ok(Classified {
        meta: key.meta(
            length as u32,
            traffic_class,
            hosts,
            (upper.protocol, upper.start),
            selecting,
        ),
        layout: Layout {
            version: Version::V6,
            length: length as u32,
            transport: upper.start as u16,
            tcp_payload: tcp.map(|tcp| (upper.start + tcp) as u16),
        },
    })
}

/// Names the flow of a packet that [`classify`] accepted: `udp 4000 to 443`, or only the protocol
/// if it has no ports. The name has no addresses, because a record must not contain any.
pub fn flow_name(packet: &[u8], layout: &Layout) -> String {
    let (protocol, is_fragment) = match layout.version {
        Version::V4 => {
            let at = |index: usize| packet.get(index).copied().unwrap_or_default();
            (at(9), u16::from_be_bytes([at(6), at(7)]) & 0x3fff != 0)
        }
        Version::V6 => {
            let upper = upper_layer(packet, packet.get(6).copied().unwrap_or_default());
            (upper.protocol, upper.is_fragment)
        }
    };
    let (name, has_ports) = match protocol {
        TCP => ("tcp", true),
        UDP => ("udp", true),
        SCTP => ("sctp", true),
        UDP_LITE => ("udp-lite", true),
        ICMP | ICMP6 => ("icmp", false),
        other => return format!("protocol {other}"),
    };
    let body = packet.get(usize::from(layout.transport)..).unwrap_or_default();
    match body.first_chunk() {
        _ if is_fragment => format!("{name} fragments"),
        Some(&[a, b, c, d]) if has_ports => {
            format!("{name} {} to {}", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => name.to_owned(),
    }
}

/// The protocol after the IPv6 extension headers, and where it starts.
struct UpperLayer {
    protocol: u8,
    start: usize,
    is_fragment: bool,
}

fn upper_layer(packet: &[u8], first: u8) -> UpperLayer {
    let mut upper = UpperLayer { protocol: first, start: 40, is_fragment: false };
    for _ in 0..EXTENSION_HEADERS_MAX {
        let Some(&[next, length]) = packet.get(upper.start..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let size = match upper.protocol {
            // Hop-by-hop, routing, destination options (RFC 8200 section 4), mobility, HIP, SHIM6.
            0 | 43 | 60 | 135 | 139 | 140 => (usize::from(length) + 1) * 8,
            // Authentication counts in 4-byte words, less two (RFC 4302 section 2.2).
            51 => (usize::from(length) + 2) * 4,
            44 => {
                upper.is_fragment = true;
                8
            }
            _ => break,
        };
        if upper.start + size > packet.len() {
            break;
        }
        upper.start += size;
        upper.protocol = next;
        if upper.is_fragment {
            break;
        }
    }
    upper
}

fn tcp_header_length(protocol: u8, is_fragment: bool, body: &[u8]) -> Option<usize> {
    if protocol != TCP || is_fragment {
        return None;
    }
    let length = usize::from(body.get(12)? >> 4) * 4;
    (length >= 20 && length <= body.len()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use underload_aqm::packet::{Dscp, Ecn};

    const KEY: FlowKey = FlowKey(7);

    fn udp4(source_port: u16, flags: u16) -> Vec<u8> {
        let mut packet =
            vec![0x45, 0xb9, 0, 32, 0, 1, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet.extend(source_port.to_be_bytes());
        packet.extend([0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
        packet
    }

    fn tcp6(extensions: &[u8], first: u8) -> Vec<u8> {
        let length = (extensions.len() + 20) as u16;
        let mut packet = vec![0x6b, 0x50, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([first, 64]);
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        packet.extend(extensions);
        packet.extend([0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn an_ipv4_packet_is_read() {
        let mut packet = udp4(1000, 0);
        packet.extend([0; 7]);
        let found = classify(&packet, KEY).unwrap();
        assert_eq!(found.meta.len, 32, "bytes behind the stated length do not count");
        assert_eq!(found.meta.dscp, Dscp::EXPEDITED);
        assert_eq!(found.meta.ecn, Ecn::Ect1);
        assert_eq!((found.layout.transport, found.layout.tcp_payload), (20, None));
    }

    #[test]
    fn an_ipv6_packet_is_read_behind_its_extension_headers() {
        let plain = classify(&tcp6(&[], TCP), KEY).unwrap();
        // Destination options of 16 bytes, then hop-by-hop of 8.
        let mut extensions = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        extensions.extend([TCP, 0, 0, 0, 0, 0, 0, 0]);
        let extended = classify(&tcp6(&extensions, 60), KEY).unwrap();
        assert_eq!(plain.layout.tcp_payload, Some(60));
        assert_eq!(extended.layout.tcp_payload, Some(84));
        assert_eq!(plain.meta.flow, extended.meta.flow);
        assert_eq!(plain.meta.dscp.value(), 0x2d);
        assert_eq!(plain.meta.ecn, Ecn::Ect1);
    }

    #[test]
    fn ports_distinguish_flows_but_fragments_stay_together() {
        let flow = |packet: &[u8]| classify(packet, KEY).unwrap().meta.flow;
        assert_ne!(flow(&udp4(1000, 0)), flow(&udp4(1001, 0)));
        // A fragment with the flag "more fragments", then the last fragment.
        assert_eq!(flow(&udp4(1000, 0x2000)), flow(&udp4(1001, 0x0005)));
        // The flag "do not fragment" does not make a fragment.
        assert_eq!(flow(&udp4(1000, 0x4000)), flow(&udp4(1000, 0)));
    }

    #[test]
    fn only_tcp_segments_without_data_are_pure_acknowledgements() {
        let is_ack = |packet: &[u8]| classify(packet, KEY).unwrap().meta.is_pure_ack;
        let tcp4 = |flags: u8, data: u8| {
            let mut packet = vec![0x45, 0, 0, 52 + data, 0, 1, 0x40, 0, 64, TCP, 0, 0];
            packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            packet.extend([0x80, flags]);
            packet.resize(52 + usize::from(data), 0);
            packet
        };
        // ACK; with PSH; with the ECN flags of RFC 3168 and 9768.
        for flags in [0x10, 0x18, 0xd0] {
            assert!(is_ack(&tcp4(flags, 0)), "{flags:x}");
            assert!(!is_ack(&tcp4(flags, 1)), "{flags:x} with data");
        }
        // None; SYN with ACK; FIN with ACK; RST with ACK.
        for flags in [0, 0x12, 0x11, 0x14] {
            assert!(!is_ack(&tcp4(flags, 0)), "{flags:x}");
        }
        assert!(is_ack(&tcp6(&[], TCP)));
        assert!(is_ack(&tcp6(&[TCP, 0, 0, 0, 0, 0, 0, 0], 0)), "behind an extension header");
        let mut fragment = tcp4(0x10, 0);
        fragment[6] = 0x20;
        assert!(!is_ack(&fragment));
        assert!(!is_ack(&udp4(1000, 0)));
    }

    #[test]
    fn a_flow_is_named_by_protocol_and_ports() {
        let name = |packet: &[u8]| {
            let found = classify(packet, KEY).unwrap();
            flow_name(packet, &found.layout)
        };
        assert_eq!(name(&udp4(1000, 0)), "udp 1000 to 53");
        assert_eq!(name(&udp4(1000, 0x2000)), "udp fragments");
        assert!(name(&tcp6(&[], TCP)).starts_with("tcp "));
        let extensions = [TCP, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(name(&tcp6(&extensions, 0)), name(&tcp6(&[], TCP)));
        let mut other = udp4(1000, 0);
        other[9] = 47;
        assert_eq!(name(&other), "protocol 47");
        other[9] = ICMP;
        assert_eq!(name(&other), "icmp");
    }

    #[test]
    fn the_key_decides_about_all_hashes() {
        let packet = udp4(1000, 0);
        let (a, b) = (classify(&packet, KEY).unwrap(), classify(&packet, FlowKey(8)).unwrap());
        assert_ne!(a.meta.flow, b.meta.flow);
        assert_ne!(a.meta.src, b.meta.src);
        assert_ne!(a.meta.dst, b.meta.dst);
    }

    #[test]
    fn flows_spread_evenly_over_buckets() {
        let mut buckets = [0u32; 64];
        for port in 0..6400 {
            buckets[classify(&udp4(port, 0), KEY).unwrap().meta.flow as usize % 64] += 1;
        }
        // Each bucket expects 100; 6 standard deviations are 60.
        assert!(buckets.iter().all(|count| (40..160).contains(count)), "{buckets:?}");
    }

    #[test]
    fn bytes_other_than_an_ip_packet_are_refused() {
        let refusal = |bytes: &[u8]| classify(bytes, KEY).unwrap_err();
        assert_eq!(refusal(&[]), NotAPacket::Truncated);
        assert_eq!(refusal(&[0x50; 60]), NotAPacket::Version);
        assert_eq!(refusal(&udp4(1, 0)[..31]), NotAPacket::Truncated);
        assert_eq!(refusal(&[&[0x44][..], &udp4(1, 0)[1..]].concat()), NotAPacket::HeaderLength);
        assert_eq!(refusal(&tcp6(&[], TCP)[..59]), NotAPacket::Truncated);
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified_without_a_panic_and_inside_the_packet(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            version in prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60), any::<u8>()],
            next in prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60), Just(TCP)],
        ) {
            if let Some(first) = bytes.first_mut() { *first = version; }
            let length = bytes.len() as u16;
            if length > 40 {
                match version >> 4 {
                    4 => { bytes[2..4].copy_from_slice(&length.to_be_bytes()); bytes[9] = next; }
                    _ => {
                        bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                        bytes[6] = next;
                    }
                }
            }
            if let Ok(found) = classify(&bytes, KEY) {
                prop_assert!(found.layout.length as usize <= bytes.len());
                prop_assert!(u32::from(found.layout.transport) <= found.layout.length);
                if let Some(payload) = found.layout.tcp_payload {
                    prop_assert!(payload >= found.layout.transport + 20);
                    prop_assert!(u32::from(payload) <= found.layout.length);
                }
            }
        }
    }
}
