//! A browser's channel as a state machine without sockets: datagrams and instants in, datagrams
//! out.
//!
//! An address gets no more bytes than it sent until it has proven that it receives. ICE checks with
//! the password from the signalling get an answer of their size; the first `ClientHello` gets a
//! cookie; a `ClientHello` with that cookie gets the handshake. The first DTLS datagram binds the
//! session to its address, because another address has proven nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dimpl::{Config, Dtls, DtlsCertificate, Output};
use is::stun::StunMessage;
use ring::{digest, hmac};
use underload_probe::network::CustomerNetwork;
use underload_record::schema::Direction;
use underload_service::CompatShare;

use super::echo::Echo;
use super::{ChannelLimits, IDLE_MAX};
use crate::{Place, Places};

pub(super) type Send<'a> = dyn FnMut(&[u8], SocketAddr) + 'a;

/// The server's DTLS configuration and certificate, the same in every session.
pub(super) struct Shown {
    pub config: Arc<Config>,
    pub certificate: DtlsCertificate,
    pub fingerprint: [u8; 32],
}

#[derive(Clone, Debug)]
pub(super) struct Secrets {
    /// The server's half of the user name in the ICE checks: unguessable, and the key of the table.
    pub name: String,
    /// Authenticates the ICE checks.
    pub password: String,
    /// The browser's half of the user name.
    pub theirs: String,
    /// SHA-256 of the certificate that the browser must present.
    pub fingerprint: [u8; 32],
}

/// A browser whose offer was answered, whether it has connected or not.
pub(super) struct Session {
    secrets: Secrets,
    share: CompatShare,
    opened: Instant,
    heard: Instant,
    duration_max: Duration,
    setup_max: Duration,
    /// Addresses that sent a valid ICE check.
    checked: Vec<SocketAddr>,
    secured: Option<Secured>,
    pub(super) is_over: bool,
    seat: Seat,
}

/// The place of a session, which it can lose to another network until its channel is open.
pub(super) struct Seat {
    place: Place,
    is_evicted: Arc<AtomicBool>,
}

impl Seat {
    pub(super) fn take(places: &Places, now: Instant, from: IpAddr) -> Option<Self> {
        let is_evicted = Arc::new(AtomicBool::new(false));
        let evict = Arc::clone(&is_evicted);
        let evict = Box::new(move || evict.store(true, Ordering::Relaxed));
        let place = places.take(now, CustomerNetwork::of(from), Some(evict))?;
        Some(Self { place, is_evicted })
    }
}

/// The DTLS connection of a session, with the one address that started it.
struct Secured {
    peer: SocketAddr,
    dtls: Dtls,
    /// Whether the browser presented the announced certificate.
    is_known: bool,
    echo: Echo,
}

/// Addresses remembered for one browser: its interfaces, before and behind address translators.
const CHECKED_MAX: usize = 8;
/// Longer than any DTLS datagram, which is limited to `DATAGRAM_BYTES`.
const RECORD_BYTES: usize = 2048;
/// Limit of the outputs of one event, as a guard against a loop.
const OUTPUTS_MAX: usize = 64;

impl Session {
    pub(super) fn new(
        now: Instant,
        secrets: Secrets,
        limits: &ChannelLimits,
        share: CompatShare,
        seat: Seat,
    ) -> Self {
        Self {
            secrets,
            share,
            opened: now,
            heard: now,
            duration_max: limits.duration_max,
            setup_max: limits.setup_max,
            checked: Vec::new(),
            secured: None,
            is_over: false,
            seat,
        }
    }

    /// Whether the session's DTLS connection is with this address.
    pub(super) fn is_with(&self, address: SocketAddr) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.peer == address)
    }

    pub(super) fn answered(&self) -> u64 {
        self.secured.as_ref().map_or(0, |secured| u64::from(secured.echo.answered()))
    }

    /// Answers an ICE check. Returns whether it was a valid one of this session.
    pub(super) fn check(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &StunMessage<'_>,
        send: &mut Send<'_>,
    ) -> bool {
        let is_theirs = message.split_username().is_some_and(|(ours, theirs)| {
            ours == self.secrets.name && theirs == self.secrets.theirs
        });
        let password = self.secrets.password.as_bytes();
        if !message.is_binding_request() || !is_theirs || !message.verify(password, hmac_sha1) {
            return false;
        }
        match &self.secured {
            Some(secured) if secured.peer != from => return false,
            None if !self.checked.contains(&from) => {
                if self.checked.len() >= CHECKED_MAX {
                    return false;
                }
                self.checked.push(from);
            }
            _ => {}
        }
        self.heard = now;
        let mapped = SocketAddr::new(from.ip().to_canonical(), from.port());
        let reply = StunMessage::binding_reply(message.trans_id(), mapped);
        let mut bytes = [0; 128];
        if let Ok(len) = reply.to_bytes(Some(password), &mut bytes, hmac_sha1) {
            send(&bytes[..len], from);
        }
        true
    }

    /// Processes a DTLS datagram from one of the session's addresses.
    pub(super) fn datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        shown: &Shown,
        send: &mut Send<'_>,
    ) {
        let secured = self.secured.get_or_insert_with(|| {
            let certificate = shown.certificate.clone();
            let dtls = Dtls::new_12(Arc::clone(&shown.config), certificate, now);
            Secured { peer: from, dtls, is_known: false, echo: Echo::new(now) }
        });
        if secured.peer != from || self.is_over {
            return;
        }
        self.heard = now;
        if self.share.charge(Direction::Up, datagram.len() as u64).is_err() {
            self.is_over = true;
            return;
        }
        let taken =
            secured.dtls.handle_timeout(now).and_then(|()| secured.dtls.handle_packet(datagram));
        self.is_over |= taken.is_err() || !self.flow(now, true, send);
    }

    /// Handles what is due by now: retransmissions, and the end of the session.
    pub(super) fn tick(&mut self, now: Instant, send: &mut Send<'_>) {
        let is_set_up = self.secured.as_ref().is_some_and(|secured| secured.echo.is_open());
        let age = now.saturating_duration_since(self.opened);
        let silence = now.saturating_duration_since(self.heard);
        if is_set_up {
            self.seat.place.keep();
        }
        self.is_over |= (!is_set_up && age > self.setup_max)
            || self.seat.is_evicted.load(Ordering::Relaxed)
            || age > self.duration_max
            || silence > IDLE_MAX
            || self.share.is_over();
        if self.is_over {
            return self.say_goodbye(send);
        }
        if let Some(secured) = &mut self.secured {
            let lives = secured.echo.tick(now) && secured.dtls.handle_timeout(now).is_ok();
            self.is_over |= !lives || !self.flow(now, false, send);
        }
    }

    /// Sends the browser a close notification, if the channel was secured.
    fn say_goodbye(&mut self, send: &mut Send<'_>) {
        let Some(secured) = self.secured.as_mut().filter(|secured| secured.is_known) else {
            return;
        };
        let mut record = [0; RECORD_BYTES];
        if secured.dtls.close().is_ok() {
            while let Output::Packet(bytes) = secured.dtls.poll_output(&mut record) {
                send(bytes, secured.peer);
            }
        }
    }

    /// Passes packets between DTLS and SCTP and sends them. Returns false if the channel ends. A
    /// cookie is sent only as the answer to a datagram and never retransmitted.
    fn flow(&mut self, now: Instant, is_answer: bool, send: &mut Send<'_>) -> bool {
        let Some(secured) = &mut self.secured else { return true };
        let mut record = [0; RECORD_BYTES];
        for _ in 0..OUTPUTS_MAX {
            match secured.dtls.poll_output(&mut record) {
                Output::Packet(bytes) if !is_answer && is_cookie(bytes) => {}
                Output::Packet(bytes) => {
                    if self.share.charge(Direction::Down, bytes.len() as u64).is_err() {
                        return false;
                    }
                    send(bytes, secured.peer);
                }
                Output::PeerCert(der) => {
                    let shown = digest::digest(&digest::SHA256, der);
                    secured.is_known = shown.as_ref() == self.secrets.fingerprint;
                    if !secured.is_known {
                        return false;
                    }
                }
                Output::ApplicationData(bytes)
                    if secured.is_known && secured.echo.take(now, bytes) => {}
                Output::Connected if secured.is_known => {}
                Output::Connected
                | Output::ApplicationData(_)
                | Output::CloseNotify
                | Output::BufferTooSmall { .. } => return false,
                Output::Timeout(_) => {
                    let waiting = secured.echo.packets(now);
                    if waiting.is_empty() {
                        return true;
                    }
                    for packet in waiting {
                        if secured.dtls.send_application_data(&packet).is_err() {
                            return false;
                        }
                    }
                }
                // Keys for media, which this channel does not have.
                _ => {}
            }
        }
        false
    }
}

/// Whether a DTLS record is a `HelloVerifyRequest` (RFC 6347, 4.2.1); 13 bytes precede the message.
fn is_cookie(record: &[u8]) -> bool {
    record.first() == Some(&22) && record.get(13) == Some(&3)
}

/// Authenticates ICE checks (RFC 8489, 14.5).
pub(super) fn hmac_sha1(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(part);
    }
    let mut bytes = [0; 20];
    bytes.copy_from_slice(context.sign().as_ref());
    bytes
}
