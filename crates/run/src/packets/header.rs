//! IPv4, TCP and UDP headers for simulated packets.
//!
//! Fields that a simulated packet lacks are made up: clients have addresses from 198.18.0.1 on, the
//! server 198.19.255.1 (the benchmarking range of RFC 2544), ports depend on the flow and its
//! channel, and checksums are those of a payload of zeros, which is not stored. Initial sequence
//! numbers are 0. Padding behind the other options takes the place of the time stamp option.
//! Windows scale by 2^7. ECN flags are those of RFC 3168, or the packet counter of accurate ECN
//! (RFC 9768) if the flow counts marks.
//!
//! The first four bytes of a datagram's payload are its number.

use std::collections::BTreeMap;

use underload_aqm::checksum;
use underload_record::schema::Direction;
use underload_sim::net::{Acknowledgement, Body, Data, Sighting};
use underload_sim::tcp::{EcnUse, TcpConfig};

use super::sequence::{Half, Offsets, half};

/// Maximum size of the headers, bytes: IPv4, and TCP with all options.
pub const MOST_BYTES: usize = 80;

const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const WINDOW_SHIFT: u8 = 7;

const CLIENTS: u32 = 0xc612_0001;
const SERVER: u32 = 0xc613_ff01;

/// TCP flags of RFC 9293 and RFC 9768.
mod flag {
    pub const SYN: u16 = 0x002;
    pub const PSH: u16 = 0x008;
    pub const ACK: u16 = 0x010;
    pub const ECE: u16 = 0x040;
    pub const CWR: u16 = 0x080;
    pub const AE: u16 = 0x100;
}

/// The properties of a TCP flow that packet headers need.
#[derive(Debug, Clone, Copy)]
pub struct TcpFacts {
    /// Payload bytes of a full segment.
    pub segment_bytes: u32,
    /// The receive window in bytes.
    window_bytes: u32,
    /// Bytes of options in every segment but SYN and SYN-ACK.
    option_bytes: usize,
    ecn: EcnUse,
}

impl From<&TcpConfig> for TcpFacts {
    fn from(config: &TcpConfig) -> Self {
        let options = usize::from(config.header_bytes).saturating_sub(IP_BYTES + TCP_BYTES);
        Self {
            segment_bytes: config.segment_bytes.into(),
            window_bytes: config.receive_window_bytes,
            // Room for three SACK blocks must be left, and options fill whole words.
            option_bytes: options.min(12) / 4 * 4,
            ecn: config.ecn,
        }
    }
}

/// Numbers of the packets that passed a point, for the headers of later ones: the sequence number
/// of an acknowledgement, and the acknowledgement number of data.
#[derive(Debug, Default)]
pub struct Passed(BTreeMap<Half, Numbers>);

#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// One past the highest byte sent.
    end: u32,
    acknowledged: u32,
}

impl Passed {
    fn numbers(&mut self, half: Half) -> &mut Numbers {
        self.0.entry(half).or_insert(Numbers { end: 1, acknowledged: 1 })
    }
}

/// Writes the headers of a packet into `buffer`.
pub fn write(
    buffer: &mut Vec<u8>,
    sighting: &Sighting<'_>,
    facts: &TcpFacts,
    offsets: &Offsets,
    passed: &mut Passed,
) {
    buffer.clear();
    buffer.resize(IP_BYTES, 0);
    let segment = &sighting.packet.payload;
    let half = half(segment.flow, segment.channel, sighting.direction);
    let protocol = match &segment.body {
        Body::Syn | Body::SynAck | Body::Data(_) | Body::Ack(_) => {
            let tcp = Tcp::new(&segment.body, half, facts, offsets, passed);
            tcp.write(buffer, ports(sighting));
            6
        }
        Body::Datagram(datagram) => udp(buffer, sighting, datagram.sequence),
        Body::Message(message) => udp(buffer, sighting, message.sequence),
        Body::Report(report) => udp(buffer, sighting, report.end),
        Body::Flight(flight) => udp(buffer, sighting, flight.sequence),
        Body::Forecast(forecast) => udp(buffer, sighting, forecast.tick),
        Body::Request { sequence } | Body::Reply { sequence, .. } => {
            udp(buffer, sighting, *sequence)
        }
    };
    ip(&mut buffer[..IP_BYTES], sighting, protocol);
    checksum_above_ip(buffer, sighting.len, protocol);
}

/// A TCP header before it is written.
struct Tcp {
    sequence: u32,
    acknowledged: u32,
    flags: u16,
    window: u16,
    options: Vec<u8>,
}

const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

impl Tcp {
    fn new(body: &Body, way: Half, facts: &TcpFacts, offsets: &Offsets, seen: &mut Passed) -> Self {
        match body {
            Body::Syn => Self::opening(flag::SYN | on_request(facts.ecn), 0, facts),
            Body::Data(data) => Self::data(*data, way, facts, offsets, seen),
            Body::Ack(ack) => Self::acknowledgement(ack, way, facts, offsets, seen),
            _ => Self::opening(flag::SYN | flag::ACK | on_answer(facts.ecn), 1, facts),
        }
    }

    fn opening(flags: u16, acknowledged: u32, facts: &TcpFacts) -> Self {
        let segment = (facts.segment_bytes as u16 + facts.option_bytes as u16).to_be_bytes();
        let mut options = vec![2, 4, segment[0], segment[1], 4, 2];
        options.extend([NO_OPERATION, 3, 3, WINDOW_SHIFT]);
        options.resize(20, END_OF_OPTIONS);
        Self { sequence: 0, acknowledged, flags, window: u16::MAX, options }
    }

    fn data(data: Data, way: Half, facts: &TcpFacts, offsets: &Offsets, seen: &mut Passed) -> Self {
        let sequence = offsets.start(way, data.sequence, facts.segment_bytes);
        let numbers = seen.numbers(way);
        let end = sequence.wrapping_add(data.len.into());
        if is_later(end, numbers.end) {
            numbers.end = end;
        }
        let mut flags = flag::ACK | counter(facts.ecn, INITIAL_COUNT);
        if data.push || u32::from(data.len) < facts.segment_bytes {
            flags |= flag::PSH;
        }
        if data.window_reduced && !is_counted(facts.ecn) {
            flags |= flag::CWR;
        }
        let options = vec![END_OF_OPTIONS; facts.option_bytes];
        let acknowledged = numbers.acknowledged;
        Self { sequence, acknowledged, flags, window: u16::MAX, options }
    }

    fn acknowledgement(
        ack: &Acknowledgement,
        half: Half,
        facts: &TcpFacts,
        offsets: &Offsets,
        passed: &mut Passed,
    ) -> Self {
        // An acknowledgement concerns the data of the other direction.
        let data = (half.0, half.1, 1 - half.2);
        let start = |segment| offsets.start(data, segment, facts.segment_bytes);
        let acknowledged = start(ack.cumulative);
        let mut options = Vec::new();
        let count = ack.block_count();
        if count > 0 {
            options.extend([NO_OPERATION, NO_OPERATION, 5, 2 + 8 * count as u8]);
            for block in &ack.blocks[..count] {
                for edge in [block.start, block.end] {
                    options.extend(start(ack.cumulative + u32::from(edge)).to_be_bytes());
                }
            }
        }
        options.resize(options.len() + facts.option_bytes, END_OF_OPTIONS);
        let mut flags = flag::ACK | counter(facts.ecn, ack.ce_count);
        if ack.echo && !is_counted(facts.ecn) {
            flags |= flag::ECE;
        }
        let numbers = passed.numbers(half);
        if is_later(acknowledged, numbers.acknowledged) {
            numbers.acknowledged = acknowledged;
        }
        let window = (facts.window_bytes >> WINDOW_SHIFT).min(u16::MAX.into()) as u16;
        Self { sequence: numbers.end, acknowledged, flags, window, options }
    }

    fn write(&self, buffer: &mut Vec<u8>, (source, destination): (u16, u16)) {
        let words = ((TCP_BYTES + self.options.len()) / 4) as u16;
        buffer.extend(source.to_be_bytes());
        buffer.extend(destination.to_be_bytes());
        buffer.extend(self.sequence.to_be_bytes());
        buffer.extend(self.acknowledged.to_be_bytes());
        buffer.extend((words << 12 | self.flags).to_be_bytes());
        buffer.extend(self.window.to_be_bytes());
        // Checksum, filled in later; urgent pointer.
        buffer.extend([0; 4]);
        buffer.extend(&self.options);
    }
}

/// Compares sequence numbers modulo 2^32 (RFC 9293 section 3.4).
fn is_later(number: u32, than: u32) -> bool {
    (number.wrapping_sub(than) as i32) > 0
}

fn is_counted(ecn: EcnUse) -> bool {
    matches!(ecn, EcnUse::Accurate | EcnUse::L4s)
}

fn on_request(ecn: EcnUse) -> u16 {
    match ecn {
        EcnUse::Off => 0,
        EcnUse::Classic => flag::ECE | flag::CWR,
        EcnUse::Accurate | EcnUse::L4s => flag::AE | flag::CWR | flag::ECE,
    }
}

/// RFC 3168 section 6.1.1; RFC 9768 table 2 for a request that arrived Not-ECT.
fn on_answer(ecn: EcnUse) -> u16 {
    match ecn {
        EcnUse::Off => 0,
        EcnUse::Classic => flag::ECE,
        EcnUse::Accurate | EcnUse::L4s => flag::CWR,
    }
}

/// Returns the bits of the ACE field.
fn counter(ecn: EcnUse, ce_count: u8) -> u16 {
    if is_counted(ecn) { u16::from(ce_count) << 6 } else { 0 }
}

/// The initial value of the counter of marks (RFC 9768 section 3.2.2.1).
const INITIAL_COUNT: u8 = 5;

fn udp(buffer: &mut Vec<u8>, sighting: &Sighting<'_>, sequence: u32) -> u8 {
    let (source, destination) = ports(sighting);
    let length = above_ip(sighting.len).max(UDP_BYTES as u16);
    buffer.extend(source.to_be_bytes());
    buffer.extend(destination.to_be_bytes());
    buffer.extend(length.to_be_bytes());
    buffer.extend([0; 2]);
    if usize::from(length) >= UDP_BYTES + 4 {
        buffer.extend(sequence.to_be_bytes());
    }
    17
}

/// Returns source and destination port.
fn ports(sighting: &Sighting<'_>) -> (u16, u16) {
    let segment = &sighting.packet.payload;
    let client = 1_024 + ((18_976 + u32::from(segment.flow)) % 64_512) as u16;
    let server = 40_000 + segment.channel % 25_000;
    match sighting.direction {
        Direction::Up => (client, server),
        Direction::Down => (server, client),
    }
}

fn ip(header: &mut [u8], sighting: &Sighting<'_>, protocol: u8) {
    let meta = &sighting.packet.meta;
    let client = |host: u32| CLIENTS + (host & 0xffff);
    let (source, destination) = match sighting.direction {
        Direction::Up => (client(meta.src), SERVER),
        Direction::Down => (SERVER, client(meta.dst)),
    };
    header[0] = 0x45;
    header[1] = meta.dscp.value() << 2 | meta.ecn.bits();
    header[2..4].copy_from_slice(&(sighting.len as u16).to_be_bytes());
    header[4..6].copy_from_slice(&(meta.id as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.to_be_bytes());
    header[16..20].copy_from_slice(&destination.to_be_bytes());
    let sum = !checksum::fold(checksum::sum(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn above_ip(len: u32) -> u16 {
    (len as u16).saturating_sub(IP_BYTES as u16)
}

/// Writes the checksum of TCP or UDP, for a payload of zeros.
fn checksum_above_ip(packet: &mut [u8], len: u32, protocol: u8) {
    let (place, length) = match protocol {
        6 => (IP_BYTES + 16, above_ip(len)),
        _ => (IP_BYTES + 6, above_ip(len).max(UDP_BYTES as u16)),
    };
    let pseudo = u32::from(protocol) + u32::from(length) + checksum::sum(&packet[12..20]);
    let sum = match !checksum::fold(pseudo + checksum::sum(&packet[IP_BYTES..])) {
        // Zero means that there is no checksum (RFC 768).
        0 if protocol == 17 => 0xffff,
        sum => sum,
    };
    packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}
