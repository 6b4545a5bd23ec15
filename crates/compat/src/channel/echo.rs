//! SCTP inside a secured channel, with one stream whose messages are probes.
//!
//! A probe has eight bytes: its number, and four that are ignored. The answer has eight bytes too:
//! the number, and how many probes had arrived by then, so that the browser can count the losses
//! of each direction. Both are little-endian. Messages of another length and probes above
//! [`PROBES_PER_SECOND_MAX`] get no answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use sctp_proto::{
    Association, AssociationHandle, DatagramEvent, Endpoint, EndpointConfig, Event, Payload,
    PayloadProtocolIdentifier, ReliabilityType, ServerConfig, StreamEvent, TransportConfig,
};

use super::sdp::MESSAGE_BYTES_MAX;

/// Average rate of probes of one channel that are answered, and the largest burst.
pub(super) const PROBES_PER_SECOND_MAX: u32 = 200;
/// The stream that page and server use without negotiation.
const STREAM: u16 = 0;
const PROBE_BYTES: usize = 8;
/// Largest SCTP packet. DTLS, UDP and IPv6 headers are added, and most paths carry 1280 bytes.
const PACKET_BYTES_MAX: u32 = 1100;
/// Limit of all received messages that have not been read.
const WAITING_BYTES_MAX: u32 = 16 << 10;
/// Stands for the peer's address, which SCTP requires and which is unused on top of DTLS.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);

pub(super) struct Echo {
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    is_open: bool,
    arrived: u32,
    answered: u32,
    /// Probes that may still be answered, as of `allowed_at`.
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

    /// Whether the association is established.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn answered(&self) -> u32 {
        self.answered
    }

    /// Processes a packet of SCTP. Returns false if the channel ends.
    pub(super) fn take(&mut self, now: Instant, packet: &[u8]) -> bool {
        let packet = packet.to_vec().into();
        match self.endpoint.handle(now, NOWHERE, None, None, packet) {
            // A browser that gets no answer opens another association, but the first one remains.
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

    /// Handles timeouts that are due. Returns false if the channel ends.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        if let Some((_, association)) = &mut self.association {
            association.handle_timeout(now);
        }
        self.settle(now)
    }

    /// Processes pending events and answers probes. Returns false if the channel ends.
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
                // Each stream takes memory, and only one is used.
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
            // Unordered and without retransmission: a lost answer must stay lost.
            let set = stream.set_reliability_params(true, ReliabilityType::Rexmit, 0);
            let kind = PayloadProtocolIdentifier::Binary;
            if set.is_ok() && stream.write_with_ppi(&probe, kind).is_ok() {
                self.answered = self.answered.wrapping_add(1);
            }
        }
        true
    }

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
