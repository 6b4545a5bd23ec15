//! One browser's channel as a state machine: datagrams and instants in, datagrams out, no sockets.
//!
//! An address is answered in three steps, none of which sends it more than it sent, until it has
//! proven that it receives: checks of ICE with the password from the signalling get an answer of
//! their size; the first `ClientHello` gets a cookie; who brings that back gets the handshake. The
//! first datagram of DTLS binds the session to its address, so that what one address proved serves
//! no other.

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

/// What leaves: bytes and where to.
pub(super) type Send<'a> = dyn FnMut(&[u8], SocketAddr) + 'a;

/// What the server shows of itself in every session.
#[derive(Debug)]
pub(super) struct Shown {
    pub config: Arc<Config>,
    pub certificate: DtlsCertificate,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
}

/// Names and passwords of one session.
#[derive(Clone, Debug)]
pub(super) struct Secrets {
    /// Our half of the name of its checks; unguessable, and the key of the table.
    pub name: String,
    /// With which checks are signed.
    pub password: String,
    /// The browser's half.
    pub theirs: String,
    /// SHA-256 of the certificate that the browser has to show.
    pub fingerprint: [u8; 32],
}

/// A browser that was answered, and perhaps came.
pub(super) struct Session {
    secrets: Secrets,
    share: CompatShare,
    opened: Instant,
    heard: Instant,
    duration_max: Duration,
    setup_max: Duration,
    /// Addresses whose checks were good.
    checked: Vec<SocketAddr>,
    secured: Option<Secured>,
    is_over: bool,
    seat: Seat,
}

/// The place of a session. Until its channel is open, another network may need it.
pub(super) struct Seat {
    place: Place,
    is_evicted: Arc<AtomicBool>,
}

impl Seat {
    /// Takes a place for `from`, if there is one.
    pub(super) fn take(places: &Places, now: Instant, from: IpAddr) -> Option<Self> {
        let is_evicted = Arc::new(AtomicBool::new(false));
        let evict = Arc::clone(&is_evicted);
        let evict = Box::new(move || evict.store(true, Ordering::Relaxed));
        let place = places.take(now, CustomerNetwork::of(from), Some(evict))?;
        Some(Self { place, is_evicted })
    }
}

/// From the first datagram of DTLS on: with one address, and no other.
struct Secured {
    peer: SocketAddr,
    dtls: Dtls,
    /// The certificate was the announced one.
    is_known: bool,
    echo: Echo,
}

/// Addresses of one browser that are remembered: its interfaces, before and behind translators.
const CHECKED_MAX: usize = 8;
/// Room for a datagram of DTLS, which is told to send shorter ones.
const RECORD_BYTES: usize = 2048;
/// Datagrams that one event can lead to; more is a loop.
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

    /// Whether its channel is with this address.
    pub(super) fn is_with(&self, address: SocketAddr) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.peer == address)
    }

    /// Probes answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.secured.as_ref().map_or(0, |secured| u64::from(secured.echo.answered()))
    }

    /// Answers a check of ICE; true if it was a good one of this session.
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

    /// Takes a datagram of DTLS from one of its addresses.
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

    /// What is due by now: resending, and the end.
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

    /// True once there is nothing more to come from it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The browser learns of the end, if the channel was secured.
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

    /// Moves what waits between DTLS and SCTP, and out; false if it is the end. A cookie is sent as
    /// the answer to a datagram alone, never again by itself.
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
                // Keys for media, of which there are none.
                _ => {}
            }
        }
        false
    }
}

/// Whether a record of DTLS is a `HelloVerifyRequest` (RFC 6347, 4.2.1): a handshake's record has
/// 13 bytes before its message.
fn is_cookie(record: &[u8]) -> bool {
    record.first() == Some(&22) && record.get(13) == Some(&3)
}

/// The signature of checks (RFC 8489, 14.5).
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
