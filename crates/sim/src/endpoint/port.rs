//! The access of a flow to the network.

use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use crate::net::{Body, Message, Network, Segment};

/// The fields of a flow's packets by which queues distinguish flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// Position of the flow in the trial.
    pub(crate) flow: u16,
    /// Number of the connection or stream within the flow.
    pub(crate) channel: u16,
    /// The value that queues hash; pseudo-random, from the seed.
    pub(crate) label: u32,
    /// Number of the client host.
    pub(crate) host: u32,
    pub(crate) dscp: Dscp,
}

/// The network for one flow at one instant.
pub(crate) struct Port<'a> {
    pub(crate) now: Time,
    pub(crate) address: Address,
    pub(crate) network: &'a mut Network,
}

impl Port<'_> {
    /// Sends a datagram of an application, with `payload` bytes without IP and UDP headers.
    pub(crate) fn send_message(
        &mut self,
        direction: Direction,
        payload: u32,
        sequence: u32,
        part_of: u32,
    ) {
        self.send_message_with(Ecn::NotEct, direction, payload, sequence, part_of);
    }

    /// As [`Self::send_message`], with an ECN field.
    pub(crate) fn send_message_with(
        &mut self,
        ecn: Ecn,
        direction: Direction,
        payload: u32,
        sequence: u32,
        part_of: u32,
    ) {
        let sent_us = (self.now.as_nanos() / 1_000) as u32;
        let message = Message { sequence, part_of, sent_us };
        self.send(direction, payload + UDP_HEADER_BYTES, ecn, Body::Message(message));
    }

    /// Returns the port of one of the flow's connections, which queues see as a separate flow.
    pub(crate) fn channel(&mut self, channel: u16) -> Port<'_> {
        let label = spread(self.address.label, channel);
        let address = Address { channel, label, ..self.address };
        Port { now: self.now, address, network: self.network }
    }

    /// Sends a packet of `len` bytes at the IP layer.
    #[inline]
    pub(crate) fn send(&mut self, direction: Direction, len: u32, ecn: Ecn, body: Body) {
        let Address { flow, channel, label, host, dscp } = self.address;
        let (src, dst) = match direction {
            Direction::Up => (host, SERVER),
            Direction::Down => (SERVER, host),
        };
        let is_pure_ack = matches!(body, Body::Ack(_));
        let (id, arrived) = (self.network.number(), Time::ZERO);
        let meta = Meta { len, flow: label, src, dst, id, dscp, ecn, is_pure_ack, arrived };
        let packet = Packet { meta, payload: Segment { flow, channel, body } };
        self.network.send(self.now, direction, &packet);
    }
}

/// Hashes a connection's number into the flow's label (the finaliser of MurmurHash3).
fn spread(label: u32, channel: u16) -> u32 {
    if channel == 0 {
        return label;
    }
    let mut hash = label ^ u32::from(channel).wrapping_mul(0x9e37_79b9);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// IP and UDP headers, bytes.
pub const UDP_HEADER_BYTES: u32 = 28;
/// Host number of the far end.
const SERVER: u32 = u32::MAX;
