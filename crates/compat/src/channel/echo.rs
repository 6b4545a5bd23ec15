//! What happens inside a secured channel: SCTP with one stream, whose messages are probes.
//!
//! A probe has eight bytes: its number, and four that are ignored. The answer has eight, too: the
//! number, and how many probes had arrived by then, so that the browser can tell what was lost on
//! which way. Both are little-endian. What is not eight bytes long gets no answer, nor what comes
//! faster than [`PROBES_PER_SECOND_MAX`].

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use sctp_proto::{
    Association, AssociationHandle, DatagramEvent, Endpoint, EndpointConfig, Event, Payload,
    PayloadProtocolIdentifier, ReliabilityType, ServerConfig, StreamEvent, TransportConfig,
};

use super::sdp::MESSAGE_BYTES_MAX;

/// Probes of one channel, on average; as many may come at once.
pub(super) const PROBES_PER_SECOND_MAX: u32 = 200;
/// The stream that page and server agreed on without asking.
const STREAM: u16 = 0;
const PROBE_BYTES: usize = 8;
/// What SCTP puts into a datagram; DTLS, UDP and IPv6 come on top, and most paths have 1280.
const PACKET_BYTES_MAX: u32 = 1100;
/// What may wait to be read, all messages together.
const WAITING_BYTES_MAX: u32 = 16 << 10;
/// SCTP wants addresses; DTLS has taken their place.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);

/// SCTP of one channel.
pub(super) struct Echo {
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    is_open: bool,
    arrived: u32,
    answered: u32,
    /// Probes that may still come, and since when that holds.
    allowance: f64,
    allowed_at: Instant,
}

impl Echo {
    pub(super) fn new(now: Instant) -> Self {
        let transport = TransportConfig::default()
            .with_max_num_inbound_streams(1)
            .with_max_num_outbound_streams(1)
            .with_max_receive_message_size(MESSAGE_BYTES_MAX)
            .with_max_send_message_size(MESSAGE_BYTES_MAX)
            .with_max_receive_buffer_size(WAITING_BYTES_MAX);
        let mut config = EndpointConfig::new();
        config.max_payload_size(PACKET_BYTES_MAX);
        let mut server = ServerConfig::new();
        server.transport = Arc::new(transport);
        Self {
            endpoint: Endpoint::new(Arc::new(config), Some(Arc::new(server))),
            association: None,
            is_open: false,
            arrived: 0,
            answered: 0,
            allowance: f64::from(PROBES_PER_SECOND_MAX),
            allowed_at: now,
        }
    }

    /// True once probes can come.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Probes answered.
    pub(super) fn answered(&self) -> u32 {
        self.answered
    }

    /// Takes a packet of SCTP; false if it ends the channel.
    pub(super) fn take(&mut self, now: Instant, packet: &[u8]) -> bool {
        let packet = packet.to_vec().into();
        match self.endpoint.handle(now, NOWHERE, None, None, packet) {
            // A browser that hears nothing opens again: the first one stays.
            Some((handle, DatagramEvent::NewAssociation(association))) => {
                self.association.get_or_insert((handle, association));
            }
            Some((handle, DatagramEvent::AssociationEvent(event))) => {
                if let Some((own, association)) = &mut self.association
                    && *own == handle
                {
                    association.handle_event(event);
                }
            }
            None => {}
        }
        self.settle(now)
    }

    /// Lets time pass; false if it is the end.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        if let Some((_, association)) = &mut self.association {
            association.handle_timeout(now);
        }
        self.settle(now)
    }

    /// What has happened since, answers included; false if it is the end.
    fn settle(&mut self, now: Instant) -> bool {
        let Some((handle, association)) = &mut self.association else { return true };
        while let Some(event) = association.poll_endpoint_event() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                association.handle_event(event);
            }
        }
        while let Some(event) = association.poll() {
            match event {
                Event::Connected => self.is_open = true,
                Event::HandshakeFailed { .. } | Event::AssociationLost { .. } => return false,
                // Each stream takes memory, and there is use for one.
                Event::Stream(StreamEvent::Opened { id }) if id != STREAM => return false,
                _ => {}
            }
        }
        let passed = now.saturating_duration_since(self.allowed_at).as_secs_f64();
        let most = f64::from(PROBES_PER_SECOND_MAX);
        self.allowance = (self.allowance + passed * most).min(most);
        self.allowed_at = now;
        let Ok(mut stream) = association.stream(STREAM) else { return true };
        while let Ok(Some(message)) = stream.read_sctp() {
            let mut probe = [0; PROBE_BYTES];
            let is_probe = message.len() == PROBE_BYTES && message.read(&mut probe).is_ok();
            if !is_probe || self.allowance < 1.0 {
                continue;
            }
            self.allowance -= 1.0;
            self.arrived = self.arrived.wrapping_add(1);
            probe[4..].copy_from_slice(&self.arrived.to_le_bytes());
            // Neither sent again nor put in order: what is lost is lost.
            let set = stream.set_reliability_params(true, ReliabilityType::Rexmit, 0);
            let kind = PayloadProtocolIdentifier::Binary;
            if set.is_ok() && stream.write_with_ppi(&probe, kind).is_ok() {
                self.answered = self.answered.wrapping_add(1);
            }
        }
        true
    }

    /// Packets to send.
    pub(super) fn packets(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        loop {
            let of_association =
                |(_, association): &mut (_, Association)| association.poll_transmit(now);
            let next = self.endpoint.poll_transmit();
            let next = next.or_else(|| self.association.as_mut().and_then(of_association));
            match next.map(|transmit| transmit.payload) {
                Some(Payload::RawEncode(parts)) => {
                    packets.extend(parts.iter().map(|part| part.to_vec()));
                }
                Some(Payload::PartialDecode(_)) => {}
                None => return packets,
            }
        }
    }
}
