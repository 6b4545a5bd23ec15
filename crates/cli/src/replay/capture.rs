//! Reads packets from pcap and pcapng captures.

use std::io::BufRead;

use anyhow::{anyhow, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use underload_aqm::packet::Meta;
use underload_aqm::time::Time;
use underload_emu::packet::{FlowKey, classify};

use crate::replay::arrival::{Arrival, Arrivals, until_error};
use crate::replay::filter::Filter;

struct Frame<'a> {
    link: DataLink,
    time_ns: u128,
    original_len: u32,
    data: &'a [u8],
}

/// Converts frames to arrivals, with the times of the capture.
#[derive(Default)]
struct Reader {
    filter: Filter,
    number: u64,
    /// A packet at its full length, which the classifier checks: captures may be truncated.
    whole: Vec<u8>,
}

pub fn pcap(bytes: impl BufRead + 'static, filter: Filter) -> anyhow::Result<Arrivals> {
    let mut capture = PcapReader::new(bytes).map_err(|error| broken(0, &error))?;
    let header = capture.header();
    let units_per_second = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000_000,
        TsResolution::NanoSecond => 1_000_000_000,
    };
    let mut reader = Reader { filter, ..Reader::default() };
    Ok(until_error(move || {
        // Raw, because the library reports packets beyond the capture's snapshot length as damage.
        let packet = match capture.next_raw_packet()? {
            Ok(packet) => packet,
            Err(error) => return Some(Err(broken(reader.number + 1, &error))),
        };
        if packet.ts_frac >= units_per_second || packet.incl_len > packet.orig_len {
            let damage = PcapError::InvalidField("a packet's time or length");
            return Some(Err(broken(reader.number + 1, &damage)));
        }
        let fraction_ns = packet.ts_frac * (1_000_000_000 / units_per_second);
        Some(reader.arrival(&Frame {
            link: header.datalink,
            time_ns: u128::from(packet.ts_sec) * 1_000_000_000 + u128::from(fraction_ns),
            original_len: packet.orig_len,
            data: &packet.data,
        }))
    }))
}

/// Reads the packets of all interfaces of a pcapng capture.
pub fn pcapng(bytes: impl BufRead + 'static, filter: Filter) -> anyhow::Result<Arrivals> {
    let mut capture = PcapNgReader::new(bytes).map_err(|error| broken(0, &error))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut reader = Reader { filter, ..Reader::default() };
    Ok(until_error(move || {
        loop {
            let block = match capture.next_block()? {
                Ok(block) => block,
                Err(error) => return Some(Err(broken(reader.number + 1, &error))),
            };
            match block {
                Block::SectionHeader(_) => interfaces.clear(),
                Block::InterfaceDescription(interface) => {
                    interfaces.push(Interface::new(interface.linktype, &interface.options));
                }
                Block::EnhancedPacket(packet) => {
                    let number = reader.number + 1;
                    let Some(interface) = interfaces.get(packet.interface_id as usize) else {
                        let id = packet.interface_id;
                        return Some(Err(anyhow!("packet {number}: no interface {id}")));
                    };
                    // The library returns the raw count of time units as nanoseconds.
                    let ticks = packet.timestamp.as_nanos();
                    let Some(time_ns) = interface.time_ns(ticks) else {
                        let offset = interface.offset_s;
                        return Some(Err(anyhow!(
                            "packet {number}: with its interface's `if_tsoffset` of {offset} s \
                             its time is before the year 1970"
                        )));
                    };
                    return Some(reader.arrival(&Frame {
                        link: interface.link,
                        time_ns,
                        original_len: packet.original_len,
                        data: &packet.data,
                    }));
                }
                Block::SimplePacket(_) | Block::Packet(_) => {
                    let number = reader.number + 1;
                    return Some(Err(anyhow!(
                        "packet {number}: a block without usable time stamps; \
                         convert the file with `editcap -F pcap`"
                    )));
                }
                _ => {}
            }
        }
    }))
}

struct Interface {
    link: DataLink,
    units_per_second: u64,
    /// `if_tsoffset`, which is added to the time of each packet.
    offset_s: i64,
}

impl Interface {
    fn new(link: DataLink, options: &[InterfaceDescriptionOption<'_>]) -> Self {
        let offset = options.iter().find_map(|option| match option {
            // The library reads this signed number as an unsigned one.
            InterfaceDescriptionOption::IfTsOffset(value) => Some(value.cast_signed()),
            _ => None,
        });
        let units_per_second = units_per_second(options);
        Self { link, units_per_second, offset_s: offset.unwrap_or(0) }
    }

    /// Converts `ticks` since 1970 to ns. `None` if the offset leads to a time before 1970.
    fn time_ns(&self, ticks: u128) -> Option<u128> {
        let own_ns = ticks * 1_000_000_000 / u128::from(self.units_per_second);
        own_ns.checked_add_signed(i128::from(self.offset_s) * 1_000_000_000)
    }
}

/// Time units per second of an interface: `if_tsresol`, microseconds by default.
fn units_per_second(options: &[InterfaceDescriptionOption<'_>]) -> u64 {
    let resolution = options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(value) => Some(*value),
        _ => None,
    });
    match resolution.unwrap_or(6) {
        power if power & 0x80 != 0 => 1 << (power & 0x3f),
        power => 10_u64.checked_pow(u32::from(power)).unwrap_or(1_000_000_000),
    }
}

impl Reader {
    fn arrival(&mut self, frame: &Frame<'_>) -> anyhow::Result<Arrival> {
        self.number += 1;
        let number = self.number;
        let Ok(time_ns) = u64::try_from(frame.time_ns) else {
            bail!("packet {number}: its time is beyond the year 2554");
        };
        let Some(offset) = ip_offset(frame.link, frame.data) else {
            bail!("packet {number}: no support for link type {:?}", frame.link);
        };
        let meta = self.meta(frame, offset);
        let is_wanted = self.filter.passes(frame.data.get(offset..).unwrap_or_default());
        Ok(Arrival { id: number - 1, time: Time::from_nanos(time_ns), meta, is_wanted })
    }

    /// Classifies the IP packet. A frame that is not IP belongs to flow 0.
    fn meta(&mut self, frame: &Frame<'_>, offset: usize) -> Meta {
        let on_wire = frame.original_len.saturating_sub(offset as u32).max(1);
        let header = frame.data.get(offset..).unwrap_or_default();
        self.whole.clear();
        self.whole.extend_from_slice(header);
        self.whole.resize(header.len().max(on_wire as usize).min(MAX_PACKET), 0);
        match classify(&self.whole, FlowKey(0)) {
            Ok(classified) => classified.meta,
            Err(_) => Meta::new(on_wire.min(MAX_PACKET as u32), 0),
        }
    }
}

/// The length field has 16 bits; that of IPv6 does not count the header.
const MAX_PACKET: usize = 65_535 + 40;

/// Returns the offset of the IP header. `None` for an unsupported link type.
fn ip_offset(link: DataLink, data: &[u8]) -> Option<usize> {
    match link {
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(0),
        DataLink::NULL => Some(4),
        DataLink::LINUX_SLL => Some(16),
        DataLink::LINUX_SLL2 => Some(20),
        DataLink::ETHERNET => {
            // Up to two VLAN tags (IEEE 802.1Q, 802.1ad).
            let tagged = |at: usize| matches!(data.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
            let tags = if tagged(12) { 1 + usize::from(tagged(16)) } else { 0 };
            Some(14 + 4 * tags)
        }
        _ => None,
    }
}

fn broken(packet: u64, error: &PcapError) -> anyhow::Error {
    match packet {
        0 => anyhow!("the file header: {error}"),
        _ => anyhow!("packet {packet}: the file is truncated or corrupt ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_starts_behind_vlan_tags() {
        let mut frame = [0_u8; 64];
        assert_eq!(ip_offset(DataLink::ETHERNET, &frame), Some(14));
        frame[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(ip_offset(DataLink::ETHERNET, &frame), Some(18));
        frame[12..14].copy_from_slice(&[0x88, 0xa8]);
        frame[16..18].copy_from_slice(&[0x81, 0]);
        assert_eq!(ip_offset(DataLink::ETHERNET, &frame), Some(22));
        assert_eq!(ip_offset(DataLink::PPP, &frame), None);
    }

    #[test]
    fn time_resolutions_of_pcapng() {
        let resolution = |value| [InterfaceDescriptionOption::IfTsResol(value)];
        assert_eq!(units_per_second(&[]), 1_000_000);
        assert_eq!(units_per_second(&resolution(9)), 1_000_000_000);
        assert_eq!(units_per_second(&resolution(0x8a)), 1_024);
        assert_eq!(units_per_second(&resolution(0x7f)), 1_000_000_000);
    }
}
