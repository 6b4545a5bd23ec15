//! Packets of pcap and pcapng captures.

use std::collections::BTreeMap;
use std::io::BufRead;

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use underload_aqm::packet::{FlowKey, Meta};
use underload_aqm::time::Time;

use super::{Cuts, FrameError, RecordingError, Source};

pub fn pcap(bytes: impl BufRead + 'static, cuts: Cuts) -> Result<Source, RecordingError> {
    let mut capture = PcapReader::new(bytes).map_err(RecordingError::FileHeader)?;
    let header = capture.header();
    let units_per_second = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000_000,
        TsResolution::NanoSecond => 1_000_000_000,
    };
    // Raw, because the library reports packets beyond the capture's snapshot length as damage.
    Ok(packets(cuts, move || {
        let Some(frame) = capture.next_raw_packet() else { return Ok(None) };
        let frame = frame.map_err(FrameError::Damaged)?;
        if frame.ts_frac >= units_per_second || frame.incl_len > frame.orig_len {
            return Err(FrameError::Damaged(PcapError::InvalidField("a packet's time or length")));
        }
        let fraction_ns = u64::from(frame.ts_frac) * (1_000_000_000 / u64::from(units_per_second));
        let time = Time::from_nanos(u64::from(frame.ts_sec) * 1_000_000_000 + fraction_ns);
        Ok(Some((time, Frame::parse(header.datalink, frame.orig_len, &frame.data)?)))
    }))
}

/// Reads the packets of all interfaces of a pcapng capture.
pub fn pcapng(bytes: impl BufRead + 'static, cuts: Cuts) -> Result<Source, RecordingError> {
    let mut capture = PcapNgReader::new(bytes).map_err(RecordingError::FileHeader)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    Ok(packets(cuts, move || {
        while let Some(block) = capture.next_block() {
            match block.map_err(FrameError::Damaged)? {
                Block::SectionHeader(_) => interfaces.clear(),
                Block::InterfaceDescription(interface) => {
                    interfaces.push(Interface::new(interface.linktype, &interface.options));
                }
                Block::EnhancedPacket(frame) => {
                    let interface = interfaces.get(frame.interface_id as usize);
                    let interface = interface.ok_or(FrameError::Interface(frame.interface_id))?;
                    // The library returns the raw count of time units as nanoseconds.
                    let time = interface.time(frame.timestamp.as_nanos())?;
                    let frame = Frame::parse(interface.link, frame.original_len, &frame.data)?;
                    return Ok(Some((time, frame)));
                }
                Block::SimplePacket(_) | Block::Packet(_) => return Err(FrameError::NoTime),
                _ => {}
            }
        }
        Ok(None)
    }))
}

/// Cuts super-packets into the packets of the wire, and adds the frame's number to the errors of
/// `next`.
fn packets(
    cuts: Cuts,
    mut next: impl FnMut() -> Result<Option<(Time, Frame)>, FrameError> + 'static,
) -> Source {
    let (mut frames, mut segments, mut rest) = (0, Segments::default(), None);
    Box::new(move |_| {
        let (time, frame) = match rest.take() {
            Some(rest) => rest,
            None => {
                frames += 1;
                let next = next().map_err(|cause| RecordingError::Frame { packet: frames, cause });
                let Some((time, frame)) = next? else { return Ok(None) };
                segments.learn(&frame);
                if segments.cut(&frame).is_some() {
                    cuts.set(cuts.get() + 1);
                }
                (time, frame)
            }
        };
        let (first, after) = match segments.cut(&frame) {
            Some((first, after)) => (first, Some(after)),
            // The last part of a super-packet.
            None => (frame.meta, None),
        };
        rest = after.map(|after| (time, after));
        Ok(Some((time, first)))
    })
}

/// Sizes of the segments of TCP flows. A machine that captures its own packets sees them before its
/// network card has cut them.
#[derive(Default)]
struct Segments {
    /// The largest payload of a flow in a packet of the wire.
    payload: BTreeMap<u32, u32>,
}

impl Segments {
    /// Longer TCP packets are super-packets.
    const PACKET_MAX: u32 = 1_500;
    /// Shorter payloads may be the end of a message.
    const FULL_MIN: u32 = 1_000;
    /// Flows whose sizes are stored.
    const FLOWS_MAX: usize = 1 << 16;

    fn learn(&mut self, frame: &Frame) {
        let Some(headers) = frame.tcp_headers else { return };
        let payload = frame.meta.len.saturating_sub(headers);
        let is_full = payload >= Self::FULL_MIN && frame.meta.len <= Self::PACKET_MAX;
        if is_full && self.payload.len() < Self::FLOWS_MAX {
            let known = self.payload.entry(frame.meta.flow).or_default();
            *known = payload.max(*known);
        }
    }

    /// Cuts a segment off a super-packet; `None` for a packet of the wire.
    fn cut(&self, frame: &Frame) -> Option<(Meta, Frame)> {
        let headers = frame.tcp_headers?;
        let known = self.payload.get(&frame.meta.flow).copied();
        let size = known.unwrap_or(Self::PACKET_MAX.saturating_sub(headers)).max(1);
        let is_super = frame.meta.len > Self::PACKET_MAX || frame.is_rest;
        let payload = frame.meta.len.saturating_sub(headers);
        if !is_super || payload <= size {
            return None;
        }
        let first = Meta { len: headers + size, ..frame.meta };
        let meta = Meta { len: frame.meta.len - size, ..frame.meta };
        Some((first, Frame { meta, is_rest: true, ..*frame }))
    }
}

struct Interface {
    link: DataLink,
    units_per_second: u64,
    /// `if_tsoffset`, which is added to the time of each packet.
    offset_s: i64,
}

impl Interface {
    fn new(link: DataLink, options: &[InterfaceDescriptionOption<'_>]) -> Self {
        let mut interface = Self { link, units_per_second: 1_000_000, offset_s: 0 };
        for option in options {
            match option {
                InterfaceDescriptionOption::IfTsResol(power) if power & 0x80 != 0 => {
                    interface.units_per_second = 1 << (power & 0x3f);
                }
                InterfaceDescriptionOption::IfTsResol(power) => {
                    let units = 10_u64.checked_pow(u32::from(*power));
                    interface.units_per_second = units.unwrap_or(1_000_000_000);
                }
                // The library reads this signed number as an unsigned one.
                InterfaceDescriptionOption::IfTsOffset(value) => {
                    interface.offset_s = value.cast_signed();
                }
                _ => {}
            }
        }
        interface
    }

    /// Converts `ticks` since 1970.
    fn time(&self, ticks: u128) -> Result<Time, FrameError> {
        let offset_s = self.offset_s;
        let own_ns = ticks * 1_000_000_000 / u128::from(self.units_per_second);
        let time_ns = own_ns.checked_add_signed(i128::from(offset_s) * 1_000_000_000);
        let time_ns = time_ns.ok_or(FrameError::Before1970 { offset_s })?;
        u64::try_from(time_ns).map(Time::from_nanos).map_err(|_| FrameError::After2554)
    }
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
struct Frame {
    meta: Meta,
    /// Bytes of the IP and TCP headers of a TCP segment.
    tcp_headers: Option<u32>,
    /// Whether the frame is the rest of a super-packet from which segments were cut.
    is_rest: bool,
}

impl Frame {
    /// Parses the headers of a frame of `original_len` bytes, of which the capture may have only
    /// the start. A frame that is not IP belongs to flow 0. The length is the IP packet's.
    fn parse(link: DataLink, original_len: u32, data: &[u8]) -> Result<Self, FrameError> {
        let of = |meta| Self { meta, tcp_headers: None, is_rest: false };
        let (start, is_ip) = ip_start(link, data)?;
        let packet = data.get(start..).filter(|_| is_ip);
        let packet = packet.and_then(|packet| LaxSlicedPacket::from_ip(packet).ok());
        let on_wire = (original_len as usize).saturating_sub(start).clamp(1, MAX_PACKET);
        let (stated, tos, hosts) = match packet.as_ref().and_then(|packet| packet.net.as_ref()) {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let tos = header.dcp().value() << 2 | header.ecn().value();
                let hosts = [header.source_addr().into(), header.destination_addr().into()];
                (usize::from(header.total_len()), tos, hosts)
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                let hosts = [header.source_addr().into(), header.destination_addr().into()];
                (40 + usize::from(header.payload_length()), header.traffic_class(), hosts)
            }
            _ => return Ok(of(Meta::new(on_wire as u32, 0))),
        };
        // Segmentation offload leaves the length field of large packets at 0.
        let len = if (1..=on_wire).contains(&stated) { stated } else { on_wire };
        let upper = packet.as_ref().and_then(LaxSlicedPacket::ip_payload);
        let (protocol, body) = match upper {
            Some(upper) if upper.fragmented => (upper.ip_number.0, &[][..]),
            Some(upper) => (upper.ip_number.0, upper.payload),
            None => (0, &[][..]),
        };
        // The body ends with the packet, or where the capture cuts it.
        let body_start = (data.len() - start).min(len).saturating_sub(body.len());
        let meta = FlowKey(0).meta(len as u32, tos, hosts, (protocol, body_start), body);
        let tcp_header = |offset: &u8| (body_start + usize::from(offset >> 4) * 4) as u32;
        let tcp_headers = body.get(12).filter(|_| protocol == 6).map(tcp_header);
        Ok(Self { tcp_headers, ..of(meta) })
    }
}

/// Returns where the IP packet of a frame begins, and whether there is one.
fn ip_start(link: DataLink, data: &[u8]) -> Result<(usize, bool), FrameError> {
    Ok(match link {
        DataLink::ETHERNET => behind_type(12, data),
        // BSD and others number raw IP differently.
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | DataLink::Unknown(12 | 14) => (0, true),
        DataLink::NULL | DataLink::LOOP => (4, true),
        DataLink::LINUX_SLL => behind_type(14, data),
        DataLink::LINUX_SLL2 => (20, true),
        DataLink::PPP | DataLink::PPP_HDLC => behind_ppp(0, data),
        DataLink::IEEE802_11 => behind_wifi(0, data),
        DataLink::IEEE802_11_RADIOTAP => {
            let length = data.get(2..4).map_or(0, |it| u16::from_le_bytes([it[0], it[1]]));
            behind_wifi(usize::from(length), data)
        }
        _ => return Err(FrameError::LinkType(link)),
    })
}

/// Skips an EtherType at `at`, and the tags and labels behind it.
fn behind_type(mut at: usize, data: &[u8]) -> (usize, bool) {
    let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    while let Some(0x8100 | 0x88a8 | 0x9100 | 0x9200) = word(at) {
        at += 4;
    }
    match word(at) {
        Some(0x0800 | 0x86dd) => (at + 2, true),
        Some(0x8847 | 0x8848) => {
            let labels = data.get(at + 2..).unwrap_or_default().chunks(4);
            let is_last = |label: &[u8]| label.get(2).is_none_or(|byte| byte & 1 == 1);
            let count = labels.take_while(|label| !is_last(label)).count() + 1;
            (at + 2 + 4 * count, true)
        }
        // PPPoE: six bytes, then PPP.
        Some(0x8864) => behind_ppp(at + 8, data),
        _ => (at + 2, false),
    }
}

/// Skips the header of PPP at `at`, whose parts may be compressed away (RFC 1661, 1662).
fn behind_ppp(at: usize, data: &[u8]) -> (usize, bool) {
    let has_address = data.get(at..).is_some_and(|it| it.starts_with(&[0xff, 0x03]));
    let at = if has_address { at + 2 } else { at };
    match data.get(at..).unwrap_or_default() {
        [0, 0x21 | 0x57, ..] => (at + 2, true),
        [0x21 | 0x57, ..] => (at + 1, true),
        _ => (at + 2, false),
    }
}

/// Skips the header of an IEEE 802.11 frame at `at`. Encrypted frames have no readable packet.
fn behind_wifi(at: usize, data: &[u8]) -> (usize, bool) {
    const DATA: u8 = 2;
    let Some(&[control, flags]) = data.get(at..at + 2) else { return (at, false) };
    let has_packet = control >> 2 & 3 == DATA && control & 0x40 == 0 && flags & 0x40 == 0;
    let is_qos = control & 0x80 != 0;
    let mut end = at + 24;
    // A fourth address, the quality of service, and its control field.
    end += if flags & 3 == 3 { 6 } else { 0 };
    end += if is_qos { 2 } else { 0 };
    end += if is_qos && flags & 0x80 != 0 { 4 } else { 0 };
    let has_llc = data.get(end..).is_some_and(|it| it.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]));
    if has_packet && has_llc { behind_type(end + 6, data) } else { (at, false) }
}

/// The length field has 16 bits; that of IPv6 does not count the header.
const MAX_PACKET: usize = 65_535 + 40;

#[cfg(test)]
mod tests {
    use super::*;

    use underload_aqm::packet::{Dscp, Ecn};

    fn meta(link: DataLink, original_len: u32, data: &[u8]) -> Result<Meta, FrameError> {
        Frame::parse(link, original_len, data).map(|frame| frame.meta)
    }

    /// UDP from port 4000 to `port`, with DSCP 45 and ECT(1), 32 bytes long.
    fn udp4(port: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0xb5, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        packet
    }

    /// UDP from port 4000 to `port` behind `extensions`, the first of type `first`.
    fn udp6(port: u16, first: u8, extensions: &[u8]) -> Vec<u8> {
        let length = u16::try_from(extensions.len() + 8).expect("a short packet");
        let mut packet = vec![0x6b, 0x50, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([first, 64]);
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        packet.extend(extensions);
        packet.extend([0x0f, 0xa0]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 8, 0, 0]);
        packet
    }

    fn read(link: DataLink, header: &[u8], packet: &[u8]) -> Meta {
        let frame = [header, packet].concat();
        meta(link, u32::try_from(frame.len()).expect("a short frame"), &frame).expect("known link")
    }

    fn fields(meta: &Meta) -> (u32, u32, u32, u32, Dscp, Ecn) {
        (meta.len, meta.flow, meta.src, meta.dst, meta.dscp, meta.ecn)
    }

    #[test]
    fn every_link_type_leads_to_the_ip_packet() {
        let with_type =
            |start: &[u8], ether_type: u16| [start, &ether_type.to_be_bytes()[..]].concat();
        for (packet, ether_type) in [(udp4(443), 0x0800), (udp6(443, 17, &[]), 0x86dd)] {
            let plain = fields(&read(DataLink::RAW, &[], &packet));
            assert_eq!((plain.0 as usize, plain.4.value(), plain.5), (packet.len(), 45, Ecn::Ect1));
            let vlan =
                |outer: u16, inner: &[u8]| [&outer.to_be_bytes()[..], &[0, 7], inner].concat();
            let tagged = [&[2; 12][..], &vlan(0x8100, &[])].concat();
            let twice = [&[2; 12][..], &vlan(0x88a8, &vlan(0x8100, &[]))].concat();
            let old = [&[2; 12][..], &vlan(0x9100, &vlan(0x8100, &[]))].concat();
            let labels = [&[2; 12][..], &[0x88, 0x47, 0, 1, 0, 9, 0, 2, 1, 9]].concat();
            let ppp = [0, if ether_type == 0x0800 { 0x21 } else { 0x57 }];
            let pppoe = [&[2; 12][..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 34], &ppp].concat();
            let llc = with_type(&[0xaa, 0xaa, 3, 0, 0, 0], ether_type);
            let wifi = [&[0x88, 1][..], &[0; 24], &llc].concat();
            let radiotap = [&[0, 0, 9, 0, 0, 0, 0, 0, 0], &wifi[..]].concat();
            for (link, header) in [
                (DataLink::ETHERNET, with_type(&[2; 12], ether_type)),
                (DataLink::ETHERNET, with_type(&tagged, ether_type)),
                (DataLink::ETHERNET, with_type(&twice, ether_type)),
                (DataLink::LINUX_SLL, with_type(&[0; 14], ether_type)),
                (DataLink::LINUX_SLL2, [&with_type(&[], ether_type)[..], &[0; 18]].concat()),
                (DataLink::ETHERNET, with_type(&old, ether_type)),
                (DataLink::ETHERNET, labels),
                (DataLink::ETHERNET, pppoe),
                (DataLink::PPP, ppp.to_vec()),
                (DataLink::PPP_HDLC, [&[0xff, 3], &ppp[..]].concat()),
                (DataLink::PPP, ppp[1..].to_vec()),
                (DataLink::IEEE802_11, wifi),
                (DataLink::IEEE802_11_RADIOTAP, radiotap),
                (DataLink::NULL, vec![2, 0, 0, 0]),
                (DataLink::LOOP, vec![0, 0, 0, 2]),
                (DataLink::from(12), Vec::new()),
                (DataLink::IPV4, Vec::new()),
                (DataLink::IPV6, Vec::new()),
            ] {
                assert_eq!(fields(&read(link, &header, &packet)), plain, "{link:?} {header:x?}");
            }
        }
        let error = meta(DataLink::BLUETOOTH_HCI_H4, 64, &[0; 64]).expect_err("unknown");
        assert!(error.to_string().contains("BLUETOOTH_HCI_H4 is not read"), "{error}");
    }

    #[test]
    fn padding_behind_the_ip_packet_does_not_count() {
        let header = [&[2; 12][..], &[8, 0]].concat();
        let padded = [udp4(443), vec![0; 14]].concat();
        assert_eq!(read(DataLink::ETHERNET, &header, &padded).len, 32);
        // A length of 0, as segmentation offload leaves it.
        let mut large = [udp4(443), vec![0; 9_000]].concat();
        large[2..4].fill(0);
        assert_eq!(read(DataLink::ETHERNET, &header, &large).len, 9_032);
    }

    #[test]
    fn extension_headers_and_a_cut_change_no_flow() {
        let flow = |packet: &[u8]| read(DataLink::RAW, &[], packet).flow;
        let plain = flow(&udp6(443, 17, &[]));
        assert_ne!(plain, flow(&udp6(444, 17, &[])));
        // Hop-by-hop options of 8 bytes, then destination options of 16.
        let mut extensions = vec![60, 0, 0, 0, 0, 0, 0, 0];
        extensions.extend([17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(flow(&udp6(443, 0, &extensions)), plain);
        for (packet, ports_end) in [(udp4(443), 24), (udp6(443, 17, &[]), 44)] {
            let cut = meta(DataLink::RAW, packet.len() as u32, &packet[..ports_end]);
            let cut = cut.expect("raw IP");
            assert_eq!((cut.len as usize, cut.flow), (packet.len(), flow(&packet)));
            for length in 0..ports_end {
                let cut = meta(DataLink::RAW, packet.len() as u32, &packet[..length]);
                assert_eq!(cut.expect("raw IP").len as usize, packet.len(), "{length}");
            }
        }
    }

    #[test]
    fn acknowledgements_are_recognised_also_in_a_cut_and_a_padded_frame() {
        let header = [&[2; 12][..], &[8, 0]].concat();
        let tcp = |data: u8| {
            let mut packet = vec![0x45, 0, 0, 40 + data, 0, 1, 0x40, 0, 64, 6, 0, 0];
            packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            packet.extend([0x50, 0x10]);
            packet.resize(40 + usize::from(data), 0);
            packet
        };
        let padded = |packet: Vec<u8>| [packet, vec![0; 6]].concat();
        assert!(read(DataLink::RAW, &[], &tcp(0)).is_pure_ack);
        assert!(read(DataLink::ETHERNET, &header, &padded(tcp(0))).is_pure_ack);
        assert!(!read(DataLink::ETHERNET, &header, &padded(tcp(1))).is_pure_ack);
        let cut = |data: u8, end: usize| {
            let packet = tcp(data);
            let cut = meta(DataLink::RAW, packet.len() as u32, &packet[..end]);
            cut.expect("raw IP").is_pure_ack
        };
        assert!(cut(0, 34) && !cut(0, 33), "the flags are the last byte that is needed");
        assert!(!cut(100, 40), "data that the capture does not have");
        // No extension header, then hop-by-hop options of 8 bytes.
        let mut packet = udp6(443, 6, &[]);
        packet[4..6].copy_from_slice(&[0, 20]);
        packet.truncate(40);
        packet.extend(&tcp(0)[20..]);
        assert!(read(DataLink::RAW, &[], &packet).is_pure_ack);
        packet[4..7].copy_from_slice(&[0, 28, 0]);
        packet.splice(40..40, [6, 0, 0, 0, 0, 0, 0, 0]);
        assert!(read(DataLink::RAW, &[], &packet).is_pure_ack);
    }

    #[test]
    fn fragments_belong_to_the_flow_of_addresses_and_protocol() {
        let fragment = |port: u16, flags: [u8; 2]| {
            let mut packet = udp4(port);
            packet[6..8].copy_from_slice(&flags);
            read(DataLink::RAW, &[], &packet).flow
        };
        assert_eq!(fragment(443, [0x20, 0]), fragment(80, [0, 5]));
        assert_ne!(fragment(443, [0x40, 0]), fragment(80, [0x40, 0]), "do not fragment");
        let first = [17, 0, 0, 1, 0, 0, 0, 9];
        let later = [17, 0, 0, 8, 0, 0, 0, 9];
        let flow = |packet: &[u8]| read(DataLink::RAW, &[], packet).flow;
        assert_eq!(flow(&udp6(443, 44, &first)), flow(&udp6(80, 44, &later)));
    }

    #[test]
    fn frames_without_ip_belong_to_flow_0() {
        let arp = [&[2; 12][..], &[8, 6], &[0, 1, 8, 0, 6, 4, 0, 1], &[0; 20]].concat();
        let found = read(DataLink::ETHERNET, &arp, &[]);
        assert_eq!((found.flow, found.len), (0, 28));
        let cut = meta(DataLink::ETHERNET, 60, &[2; 10]).expect("Ethernet");
        assert_eq!((cut.flow, cut.len), (0, 46));
    }

    /// A TCP segment over IPv4 with options of 12 bytes, of which the capture has the headers.
    fn segment(port: u8, payload: u32) -> Frame {
        let length = 52 + payload;
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0];
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet
            .extend([10, 0, 0, 1, 10, 0, 0, 2, 0, port, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x10]);
        packet.resize(52, 0);
        Frame::parse(DataLink::RAW, length, &packet).expect("raw IP")
    }

    #[test]
    fn super_packets_are_cut_as_the_card_cuts_them() {
        let frames = [segment(80, 5_000), segment(81, 1_200), segment(81, 100), segment(81, 2_500)];
        let cuts = Cuts::default();
        let mut times = (0..).map(Time::from_millis);
        let mut frames = frames.into_iter();
        let next = move || Ok(frames.next().map(|frame| (times.next().expect("endless"), frame)));
        let mut source = packets(cuts.clone(), next);
        let mut out = Vec::new();
        while let Some((time, meta)) = source(0).expect("packets") {
            out.push((time.as_millis(), meta.len - 52));
        }
        // Packets of 1,500 bytes, until the flow has shown a full one.
        let first = [(0, 1_448), (0, 1_448), (0, 1_448), (0, 656)];
        let later = [(1, 1_200), (2, 100), (3, 1_200), (3, 1_200), (3, 100)];
        assert_eq!(out, [&first[..], &later].concat());
        assert_eq!(cuts.get(), 2);
    }

    #[test]
    fn interfaces_have_their_own_resolution() {
        let units = |options: &[_]| Interface::new(DataLink::RAW, options).units_per_second;
        let resolution = |value| [InterfaceDescriptionOption::IfTsResol(value)];
        assert_eq!(units(&[]), 1_000_000);
        assert_eq!(units(&resolution(9)), 1_000_000_000);
        assert_eq!(units(&resolution(0x8a)), 1_024);
        assert_eq!(units(&resolution(0x7f)), 1_000_000_000);
    }
}
