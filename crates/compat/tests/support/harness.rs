//! A browser for tests and fuzz targets, made of the same three libraries and connected to the
//! table without sockets; the caller sets the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{Dtls, Output};
use is::stun::{StunMessage, TransId};
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier, ReliabilityType,
};
use underload_service::CompatLedger;

use super::session::{Seat, Secrets, Session, Shown, hmac_sha1};
use super::table::Table;
use super::{ChannelLimits, server};
use crate::{Places, places};

pub(super) const BROWSER: &str = "192.0.2.1:40000";

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A table of sessions, with a clock.
pub(super) struct Server {
    pub(super) table: Table,
    pub(super) shown: Shown,
    pub(super) now: Instant,
    pub(super) places: Places,
    pub(super) sent: usize,
    pub(super) got: usize,
}

impl Server {
    pub(super) fn new() -> Self {
        let shown = server::shown(&ChannelLimits::default()).unwrap();
        let (table, now) = (Table::default(), Instant::now());
        Self { table, shown, now, places: places(9, 9), sent: 0, got: 0 }
    }

    pub(super) fn signal(&mut self, name: &str, fingerprint: [u8; 32]) -> Secrets {
        let secrets = Secrets {
            name: name.to_owned(),
            password: "0123456789abcdef0123456789abcdef".to_owned(),
            theirs: "theirs".to_owned(),
            fingerprint,
        };
        let from = address(BROWSER).ip();
        let share = CompatLedger::unlimited().enter(from, Duration::from_mins(1)).unwrap();
        let seat = Seat::take(&self.places, self.now, from).unwrap();
        let limits = ChannelLimits::default();
        let session = Session::new(self.now, secrets.clone(), &limits, share, seat);
        self.table.insert(&secrets, session);
        secrets
    }

    pub(super) fn hear(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        let mut send = |bytes: &[u8], to: SocketAddr| {
            assert_eq!(to, from, "answers go where the question came from");
            said.push(bytes.to_vec());
        };
        self.table.datagram(self.now, from, datagram, &self.shown, &mut send);
        self.got += datagram.len();
        self.sent += said.iter().map(Vec::len).sum::<usize>();
        said
    }

    pub(super) fn wait(&mut self, time: Duration) -> Vec<Vec<u8>> {
        self.now += time;
        let mut said = Vec::new();
        self.table.tick(self.now, &mut |bytes: &[u8], _| said.push(bytes.to_vec()));
        said
    }
}

/// Makes an ICE connectivity check as a browser sends it.
pub(super) fn check(secrets: &Secrets, password: &str) -> Vec<u8> {
    let name = format!("{}:{}", secrets.name, secrets.theirs);
    let message = StunMessage::binding_request(&name, TransId::new(), true, 1, 1, true);
    let mut bytes = [0; 256];
    let len = message.to_bytes(Some(password.as_bytes()), &mut bytes, hmac_sha1).unwrap();
    bytes[..len].to_vec()
}

pub(super) struct Browser {
    pub(super) dtls: Dtls,
    endpoint: Endpoint,
    pub(super) association: Option<(AssociationHandle, Association)>,
    pub(super) answers: Vec<[u8; 8]>,
    pub(super) is_closed: bool,
}

impl Browser {
    pub(super) fn new(now: Instant, shown: &Shown) -> Self {
        let mut dtls = Dtls::new_12(Arc::clone(&shown.config), shown.certificate.clone(), now);
        dtls.set_active(true);
        dtls.handle_timeout(now).unwrap();
        let endpoint = Endpoint::new(Arc::new(EndpointConfig::new()), None);
        Self { dtls, endpoint, association: None, answers: Vec::new(), is_closed: false }
    }

    /// Returns the datagrams that it sends now.
    pub(super) fn say(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            match self.dtls.poll_output(&mut buffer) {
                Output::Packet(bytes) => said.push(bytes.to_vec()),
                Output::Connected => {
                    let nowhere = address("127.0.0.1:5000");
                    self.association =
                        Some(self.endpoint.connect(ClientConfig::new(), nowhere).unwrap());
                }
                Output::ApplicationData(bytes) => {
                    let bytes = bytes.to_vec();
                    self.take(now, &bytes);
                }
                Output::CloseNotify => self.is_closed = true,
                Output::Timeout(_) => {
                    let Some((_, association)) = &mut self.association else { return said };
                    let Some(transmit) = association.poll_transmit(now) else { return said };
                    let Payload::RawEncode(parts) = transmit.payload else { continue };
                    for part in parts {
                        let _ = self.dtls.send_application_data(&part);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn take(&mut self, now: Instant, packet: &[u8]) {
        let Some((_, association)) = self.association.as_mut() else { return };
        let nowhere = address("127.0.0.1:5000");
        let taken = self.endpoint.handle(now, nowhere, None, None, packet.to_vec().into());
        if let Some((_, DatagramEvent::AssociationEvent(event))) = taken {
            association.handle_event(event);
        }
        while let Some(event) = association.poll() {
            if matches!(event, Event::Connected) {
                let kind = PayloadProtocolIdentifier::Binary;
                let mut stream = association.open_stream(0, kind).unwrap();
                stream.set_reliability_params(true, ReliabilityType::Rexmit, 0).unwrap();
            }
        }
        let Ok(mut stream) = association.stream(0) else { return };
        while let Ok(Some(message)) = stream.read_sctp() {
            let mut answer = [0; 8];
            assert_eq!(message.read(&mut answer).unwrap(), 8);
            self.answers.push(answer);
        }
    }

    pub(super) fn write(&mut self, stream: u16, bytes: &[u8]) {
        let Some((_, association)) = self.association.as_mut() else { return };
        let kind = PayloadProtocolIdentifier::Binary;
        if association.stream(stream).is_err() {
            let _ = association.open_stream(stream, kind);
        }
        if let Ok(mut stream) = association.stream(stream) {
            let _ = stream.write_with_ppi(bytes, kind);
        }
    }

    pub(super) fn is_ready(&mut self) -> bool {
        self.association.as_mut().is_some_and(|(_, association)| association.stream(0).is_ok())
    }
}

/// Exchanges datagrams until neither side has any.
#[cfg(test)]
pub(super) fn talk(server: &mut Server, browser: &mut Browser) {
    for _ in 0..100 {
        let said = browser.say(server.now);
        if said.is_empty() {
            return;
        }
        for datagram in said {
            for answer in server.hear(address(BROWSER), &datagram) {
                browser.dtls.handle_timeout(server.now).unwrap();
                browser.dtls.handle_packet(&answer).unwrap();
            }
        }
    }
    panic!("they never come to an end");
}
