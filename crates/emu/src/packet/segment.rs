//! Cuts super-packets into the packets of the wire without copying their payload, and joins
//! neighbours again.
//!
//! A TCP super-packet stays in the buffer that it was read into, and a segment is a number. Each
//! segment passes the queue separately with its own length. Consecutive segments of one frame with
//! the same fate leave as a run: headers are written anew, and the payload is a slice of the
//! buffer. Transport checksums that the kernel delivered incomplete stay incomplete, as the device
//! header states: the kernel does not verify them for traffic on this machine, and completes them
//! for traffic that leaves it.

use std::ops::RangeInclusive;

use underload_aqm::checksum::{fold, replace, sum};

use super::classify::{Layout, Version};
use super::pool::Frame;
use super::vnet::VnetHeader;

/// Longest IP and TCP headers of a super-packet in bytes, with IPv6 extensions.
pub const HEADERS_MAX: usize = 256;

/// Buffer for the device header and the packet headers of a run.
pub type Headers = [u8; VnetHeader::LEN + HEADERS_MAX];

/// The error for a frame whose device header and packet headers contradict each other, or with an
/// offload that was not enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a super-packet that is not an unfragmented TCP packet of sane size")]
pub struct BadSuperPacket;

/// Returns the number of packets that a frame is cut into.
pub fn segment_count(vnet: &VnetHeader, layout: &Layout) -> Result<u16, BadSuperPacket> {
    if vnet.gso_type == VnetHeader::GSO_NONE {
        return Ok(1);
    }
    let headers = layout.tcp_payload.ok_or(BadSuperPacket)?;
    let needs_checksum = vnet.flags & VnetHeader::NEEDS_CHECKSUM != 0;
    let is_sane = vnet.is_tcp_super_packet()
        && vnet.gso_size > 0
        && needs_checksum
        && usize::from(headers) <= HEADERS_MAX;
    if !is_sane {
        return Err(BadSuperPacket);
    }
    let payload = layout.length - u32::from(headers);
    Ok(payload.div_ceil(u32::from(vnet.gso_size)).max(1) as u16)
}

/// Length of a segment as an IP packet on the wire.
pub fn segment_length(frame: &Frame, segment: u16) -> u32 {
    let Some(headers) = frame.layout.tcp_payload.filter(|_| frame.segments > 1) else {
        return frame.layout.length;
    };
    let size = u32::from(frame.vnet.gso_size);
    let payload = frame.layout.length - u32::from(headers);
    u32::from(headers) + size.min(payload - u32::from(segment) * size)
}

/// Returns headers and payload to write to the device for the segments `run` of a frame, all with
/// `tos` as the byte of DSCP and ECN.
pub fn assemble<'a>(
    frame: &'a mut Frame,
    run: &RangeInclusive<u16>,
    tos: u8,
    headers: &'a mut Headers,
) -> (&'a [u8], &'a [u8]) {
    let is_whole = *run.start() == 0 && *run.end() + 1 == frame.segments;
    let end = VnetHeader::LEN + frame.layout.length as usize;
    let payload_start = match frame.layout.tcp_payload {
        Some(start) if !is_whole => usize::from(start),
        _ => {
            set_tos(&mut frame.bytes[VnetHeader::LEN..], frame.layout.version, tos);
            return (&frame.bytes[..end], &[]);
        }
    };
    let size = usize::from(frame.vnet.gso_size);
    let packet = frame.packet();
    let payload = &packet[payload_start..];
    let from = usize::from(*run.start()) * size;
    let to = payload.len().min((usize::from(*run.end()) + 1) * size);
    let piece = &payload[from..to];
    let is_last = *run.end() + 1 == frame.segments;

    let (device, ip) = headers.split_at_mut(VnetHeader::LEN);
    let ip = &mut ip[..payload_start];
    ip.copy_from_slice(&packet[..payload_start]);
    let length = payload_start + piece.len();
    set_tos(ip, frame.layout.version, tos);
    set_length(ip, frame.layout.version, length, *run.start());
    let transport = usize::from(frame.layout.transport);
    let has_cwr = cut_tcp_header(&mut ip[transport..], from as u32, is_last);
    let pseudo = pseudo_header_sum(ip, frame.layout.version, length - transport);
    ip[transport + 16..transport + 18].copy_from_slice(&pseudo.to_be_bytes());
    let vnet = VnetHeader {
        gso_type: gso_type(frame, run, has_cwr),
        gso_size: if run.start() == run.end() { 0 } else { frame.vnet.gso_size },
        header_len: payload_start as u16,
        ..frame.vnet
    };
    device.copy_from_slice(&vnet.to_bytes());
    (&headers[..VnetHeader::LEN + payload_start], piece)
}

fn gso_type(frame: &Frame, run: &RangeInclusive<u16>, has_cwr: bool) -> u8 {
    let kind = frame.vnet.gso_type & !VnetHeader::GSO_ECN;
    match (run.start() == run.end(), has_cwr) {
        (true, _) => VnetHeader::GSO_NONE,
        (false, true) => kind | VnetHeader::GSO_ECN,
        (false, false) => kind,
    }
}

/// Writes DSCP and ECN, and updates the checksum of an IPv4 header.
fn set_tos(ip: &mut [u8], version: Version, tos: u8) {
    match version {
        Version::V4 => {
            let old = u16::from_be_bytes([ip[0], ip[1]]);
            let new = old & 0xff00 | u16::from(tos);
            replace_word(ip, 0, old, new);
        }
        Version::V6 => {
            ip[0] = ip[0] & 0xf0 | tos >> 4;
            ip[1] = ip[1] & 0x0f | tos << 4;
        }
    }
}

/// Writes the packet's length; in IPv4 also the identification, which increases by one per segment
/// as in the kernel's segmentation.
fn set_length(ip: &mut [u8], version: Version, length: usize, segment: u16) {
    match version {
        Version::V4 => {
            let old = u16::from_be_bytes([ip[2], ip[3]]);
            replace_word(ip, 2, old, length as u16);
            let old = u16::from_be_bytes([ip[4], ip[5]]);
            replace_word(ip, 4, old, old.wrapping_add(segment));
        }
        Version::V6 => ip[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes()),
    }
}

/// Changes one word of an IPv4 header and updates its checksum (RFC 1624).
fn replace_word(ip: &mut [u8], at: usize, old: u16, new: u16) {
    if old == new {
        return;
    }
    ip[at..at + 2].copy_from_slice(&new.to_be_bytes());
    let checksum = replace(u16::from_be_bytes([ip[10], ip[11]]), old, new);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Advances the sequence number, and clears FIN and PSH except on the last segment and CWR except
/// on the first (RFC 3168 section 6.1.2). Returns whether CWR is set.
fn cut_tcp_header(tcp: &mut [u8], offset: u32, is_last: bool) -> bool {
    const CWR: u8 = 0x80;
    const FIN_AND_PSH: u8 = 0x09;
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_last {
        tcp[13] &= !FIN_AND_PSH;
    }
    if offset > 0 {
        tcp[13] &= !CWR;
    }
    tcp[13] & CWR != 0
}

/// Returns the value of an incomplete checksum: the folded sum of the pseudo-header, not inverted.
fn pseudo_header_sum(ip: &[u8], version: Version, transport_length: usize) -> u16 {
    const TCP: u32 = 6;
    let addresses = match version {
        Version::V4 => &ip[12..20],
        Version::V6 => &ip[8..40],
    };
    fold(sum(addresses) + TCP + transport_length as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FlowKey, Handle, Pool, classify};
    use proptest::prelude::*;

    const SEQUENCE: u32 = 0xffff_f000;
    const FLAGS: u8 = 0x99; // CWR, ACK, PSH, FIN

    /// A super-packet as a TUN device delivers it.
    fn super_packet(version: Version, payload: &[u8], size: u16) -> Vec<u8> {
        let mut tcp = vec![0, 80, 1, 0];
        tcp.extend(SEQUENCE.to_be_bytes());
        tcp.extend([0, 0, 0, 9, 0x80, FLAGS, 1, 0, 0, 0, 0, 0]);
        tcp.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]); // time stamps
        let mut ip = match version {
            Version::V4 => {
                let mut ip = vec![0x45, 0x02, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0];
                ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
                let length = (20 + tcp.len() + payload.len()) as u16;
                ip[2..4].copy_from_slice(&length.to_be_bytes());
                let checksum = !fold(sum(&ip));
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
                ip
            }
            Version::V6 => {
                let mut ip = vec![0x60, 0x20, 0, 0];
                ip.extend(((tcp.len() + payload.len()) as u16).to_be_bytes());
                ip.extend([6, 64]);
                ip.extend([0xfd; 16]);
                ip.extend([0xfe; 16]);
                ip
            }
        };
        let vnet = VnetHeader {
            flags: VnetHeader::NEEDS_CHECKSUM,
            gso_type: VnetHeader::GSO_ECN
                | if version == Version::V4 { VnetHeader::GSO_TCP4 } else { VnetHeader::GSO_TCP6 },
            header_len: (ip.len() + tcp.len()) as u16,
            gso_size: size,
            checksum_start: ip.len() as u16,
            checksum_offset: 16,
        };
        let mut frame = vnet.to_bytes().to_vec();
        frame.append(&mut ip);
        frame.append(&mut tcp);
        frame.extend(payload);
        frame
    }

    fn keep(pool: &mut Pool, bytes: &[u8]) -> Handle {
        pool.landing()[..bytes.len()].copy_from_slice(bytes);
        let vnet = VnetHeader::read(bytes.first_chunk().unwrap());
        let layout = classify(&bytes[VnetHeader::LEN..], FlowKey(1)).unwrap().layout;
        let segments = segment_count(&vnet, &layout).unwrap();
        pool.store(bytes.len(), vnet, layout, segments).unwrap()
    }

    /// Checks a written frame as a receiver does, and returns the payload.
    fn received(frame: &[u8], run: &RangeInclusive<u16>, segments: u16, size: u16) -> Vec<u8> {
        let vnet = VnetHeader::read(frame.first_chunk().unwrap());
        let packet = &frame[VnetHeader::LEN..];
        let layout = classify(packet, FlowKey(1)).unwrap().layout;
        assert_eq!(layout.length as usize, packet.len());
        let transport = usize::from(layout.transport);
        let tcp = &packet[transport..];
        if layout.version == Version::V4 {
            assert_eq!(fold(sum(&packet[..20])), 0xffff, "IPv4 header checksum");
            let identification = u16::from_be_bytes([packet[4], packet[5]]);
            assert_eq!(identification, 0xffffu16.wrapping_add(*run.start()));
        }
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let offset = u32::from(*run.start()) * u32::from(size);
        assert_eq!(sequence, SEQUENCE.wrapping_add(offset));
        assert_eq!(tcp[13] & 0x80 != 0, *run.start() == 0, "CWR on the first only");
        assert_eq!(tcp[13] & 0x09 != 0, *run.end() + 1 == segments, "FIN, PSH on the last only");
        let is_super = vnet.gso_type != VnetHeader::GSO_NONE;
        assert_eq!(is_super, run.start() != run.end());
        assert_eq!(vnet.gso_type & VnetHeader::GSO_ECN != 0, is_super && *run.start() == 0);
        assert_eq!(usize::from(vnet.checksum_start), transport);
        packet[usize::from(layout.tcp_payload.unwrap())..].to_vec()
    }

    proptest! {
        #[test]
        fn runs_of_segments_are_valid_packets_and_lose_no_byte(
            is_v6 in any::<bool>(),
            payload in proptest::collection::vec(any::<u8>(), 2..5000),
            size in 1u16..1500,
            cuts in proptest::collection::vec(any::<bool>(), 5000),
        ) {
            prop_assume!(usize::from(size) < payload.len());
            let version = if is_v6 { Version::V6 } else { Version::V4 };
            let mut pool = Pool::new(1 << 20, 65_000);
            let handle = keep(&mut pool, &super_packet(version, &payload, size));
            let segments = pool.frame(handle).segments;
            let wire: u32 = (0..segments).map(|n| segment_length(pool.frame(handle), n)).sum();
            let headers = u32::from(pool.frame(handle).layout.tcp_payload.unwrap());
            prop_assert_eq!(wire, u32::from(segments) * headers + payload.len() as u32);
            let mut arrived = Vec::new();
            let mut start = 0;
            for last in 0..segments {
                // A complete frame is written unchanged, which the next test checks.
                let must_cut = last == 0 && segments > 1;
                if last + 1 < segments && !cuts[usize::from(last)] && !must_cut { continue; }
                let run = start..=last;
                let mut scratch = [0; VnetHeader::LEN + HEADERS_MAX];
                let tos = if last % 2 == 0 { 0xb7 } else { 0x02 };
                let (head, piece) = assemble(pool.frame(handle), &run, tos, &mut scratch);
                let written = [head, piece].concat();
                let found = classify(&written[VnetHeader::LEN..], FlowKey(1)).unwrap();
                prop_assert_eq!(found.meta.tos(), tos);
                if version == Version::V4 {
                    let ip = &written[VnetHeader::LEN..][..20];
                    prop_assert_eq!(fold(sum(ip)), 0xffff, "the header's checksum");
                }
                arrived.extend(received(&written, &run, segments, size));
                start = last + 1;
            }
            prop_assert_eq!(arrived, payload);
        }
    }

    #[test]
    fn an_unfinished_checksum_comes_out_right_when_it_is_finished() {
        for version in [Version::V4, Version::V6] {
            let payload: Vec<u8> = (0..2500).map(|n| n as u8).collect();
            let mut pool = Pool::new(1 << 20, 65_000);
            let handle = keep(&mut pool, &super_packet(version, &payload, 1000));
            let mut scratch = [0; VnetHeader::LEN + HEADERS_MAX];
            let (head, piece) = assemble(pool.frame(handle), &(1..=1), 0x02, &mut scratch);
            let mut packet = [&head[VnetHeader::LEN..], piece].concat();
            let transport = if version == Version::V4 { 20 } else { 40 };
            // The kernel completes the checksum with the inverted sum from its start on, the field
            // included.
            let finished = !fold(sum(&packet[transport..]));
            packet[transport + 16..transport + 18].copy_from_slice(&finished.to_be_bytes());
            // A receiver verifies that pseudo-header and segment sum up to all ones.
            let addresses = &packet[if version == Version::V4 { 12..20 } else { 8..40 }];
            let segment = &packet[transport..];
            let total = sum(addresses) + 6 + segment.len() as u32 + sum(segment);
            assert_eq!(fold(total), 0xffff, "{version:?}");
        }
    }

    #[test]
    fn a_whole_frame_leaves_as_it_came_but_for_its_marking() {
        for version in [Version::V4, Version::V6] {
            let frame = super_packet(version, &[1; 3000], 1000);
            let mut pool = Pool::new(1 << 20, 65_000);
            let handle = keep(&mut pool, &frame);
            let mut scratch = [0; VnetHeader::LEN + HEADERS_MAX];
            let (head, rest) = assemble(pool.frame(handle), &(0..=2), 0x02, &mut scratch);
            assert_eq!(rest.len(), 0);
            let differing = head.iter().zip(&frame).filter(|(a, b)| a != b).count();
            assert_eq!(differing, 0, "{version:?}");
            let (head, _) = assemble(pool.frame(handle), &(0..=2), 0xb7, &mut scratch);
            if version == Version::V4 {
                assert_eq!(fold(sum(&head[VnetHeader::LEN..][..20])), 0xffff);
            }
            let differing = head.iter().zip(&frame).filter(|(a, b)| a != b).count();
            // The marking and two bytes of the checksum in IPv4; two bytes in IPv6.
            assert!(differing <= 3, "{version:?}: {differing}");
            assert_eq!(classify(&head[VnetHeader::LEN..], FlowKey(1)).unwrap().meta.tos(), 0xb7);
        }
    }

    #[test]
    fn contradicting_headers_are_refused() {
        let frame = super_packet(Version::V4, &[1; 3000], 1000);
        let vnet = VnetHeader::read(frame.first_chunk().unwrap());
        let layout = classify(&frame[VnetHeader::LEN..], FlowKey(1)).unwrap().layout;
        assert_eq!(segment_count(&vnet, &layout), Ok(3));
        let no_tcp = Layout { tcp_payload: None, ..layout };
        let zero = VnetHeader { gso_size: 0, ..vnet };
        let datagram = VnetHeader { gso_type: 5, ..vnet };
        assert_eq!(segment_count(&vnet, &no_tcp), Err(BadSuperPacket));
        assert_eq!(segment_count(&zero, &layout), Err(BadSuperPacket));
        assert_eq!(segment_count(&datagram, &layout), Err(BadSuperPacket));
    }
}
