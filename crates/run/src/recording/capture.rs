//! Packets of pcap and pcapng captures.

use std::io::BufRead;

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use underload_aqm::packet::{FlowKey, Meta};
use underload_aqm::time::Time;

use super::{FrameError, RecordingError, Source};

pub fn pcap(bytes: impl BufRead + 'static) -> Result<Source, RecordingError> {
    let mut capture = PcapReader::new(bytes).map_err(RecordingError::FileHeader)?;
    let header = capture.header();
    let units_per_second = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000_000,
        TsResolution::NanoSecond => 1_000_000_000,
    };
    // Raw, because the library reports packets beyond the capture's snapshot length as damage.
    Ok(numbered(move || {
        let Some(frame) = capture.next_raw_packet() else { return Ok(None) };
        let frame = frame.map_err(FrameError::Damaged)?;
        if frame.ts_frac >= units_per_second || frame.incl_len > frame.orig_len {
            return Err(FrameError::Damaged(PcapError::InvalidField("a packet's time or length")));
        }
        let fraction_ns = u64::from(frame.ts_frac) * (1_000_000_000 / u64::from(units_per_second));
        let time = Time::from_nanos(u64::from(frame.ts_sec) * 1_000_000_000 + fraction_ns);
        Ok(Some((time, meta(header.datalink, frame.orig_len, &frame.data)?)))
    }))
}

/// Reads the packets of all interfaces of a pcapng capture.
pub fn pcapng(bytes: impl BufRead + 'static) -> Result<Source, RecordingError> {
    let mut capture = PcapNgReader::new(bytes).map_err(RecordingError::FileHeader)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    Ok(numbered(move || {
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
                    let meta = meta(interface.link, frame.original_len, &frame.data)?;
                    return Ok(Some((time, meta)));
                }
                Block::SimplePacket(_) | Block::Packet(_) => return Err(FrameError::NoTime),
                _ => {}
            }
        }
        Ok(None)
    }))
}

/// Adds the packet's number to the errors of `next`.
fn numbered(
    mut next: impl FnMut() -> Result<Option<(Time, Meta)>, FrameError> + 'static,
) -> Source {
    Box::new(move |read| {
        next().map_err(|source| RecordingError::Frame { packet: read + 1, source })
    })
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

/// The length field has 16 bits; that of IPv6 does not count the header.
const MAX_PACKET: usize = 65_535 + 40;

/// Parses the headers of a frame of `original_len` bytes, of which the capture may have only the
/// start. A frame that is not IP belongs to flow 0. The length is the IP packet's.
fn meta(link: DataLink, original_len: u32, data: &[u8]) -> Result<Meta, FrameError> {
    let (start, packet) = match link {
        DataLink::ETHERNET => {
            let packet = LaxSlicedPacket::from_ethernet(data).ok();
            let payload = packet.as_ref().and_then(LaxSlicedPacket::ether_payload);
            (payload.map_or(14, |payload| data.len() - payload.payload.len()), packet)
        }
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => ip_behind(0, data),
        DataLink::NULL => ip_behind(4, data),
        DataLink::LINUX_SLL => ip_behind(16, data),
        DataLink::LINUX_SLL2 => ip_behind(20, data),
        _ => return Err(FrameError::LinkType(link)),
    };
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
        _ => return Ok(Meta::new(on_wire as u32, 0)),
    };
    // Segmentation offload leaves the length field of large packets at 0.
    let len = if (1..=on_wire).contains(&stated) { stated } else { on_wire };
    let upper = packet.as_ref().and_then(LaxSlicedPacket::ip_payload);
    let (protocol, body) = match upper {
        Some(upper) if upper.fragmented => (upper.ip_number.0, &[][..]),
        Some(upper) => (upper.ip_number.0, upper.payload),
        None => (0, &[][..]),
    };
    Ok(FlowKey(0).meta(len as u32, tos, hosts, protocol, body))
}

/// Parses an IP packet behind a link-layer header of `start` bytes.
fn ip_behind(start: usize, data: &[u8]) -> (usize, Option<LaxSlicedPacket<'_>>) {
    (start, data.get(start..).and_then(|packet| LaxSlicedPacket::from_ip(packet).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use underload_aqm::packet::{Dscp, Ecn};

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
            for (link, header) in [
                (DataLink::ETHERNET, with_type(&[2; 12], ether_type)),
                (DataLink::ETHERNET, with_type(&tagged, ether_type)),
                (DataLink::ETHERNET, with_type(&twice, ether_type)),
                (DataLink::LINUX_SLL, with_type(&[0; 14], ether_type)),
                (DataLink::LINUX_SLL2, [&with_type(&[], ether_type)[..], &[0; 18]].concat()),
                (DataLink::NULL, vec![2, 0, 0, 0]),
                (DataLink::IPV4, Vec::new()),
                (DataLink::IPV6, Vec::new()),
            ] {
                assert_eq!(fields(&read(link, &header, &packet)), plain, "{link:?} {header:x?}");
            }
        }
        assert!(meta(DataLink::PPP, 64, &[0; 64]).is_err());
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
