//! The server as a state machine: a datagram in, at most one out, without sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use underload_probe::Instants;
use underload_probe::load::payload;
use underload_probe::network::CustomerNetwork;
use underload_record::schema::Direction;
use underload_service::CompatLedger;

use super::address::Addresses;
use super::answer::{self, Probe};
use super::packet::{self, CLOSE, OPEN, Request, RequestKind};
use super::parameters::PROTOCOL_VERSION;
use super::session::Session;
use super::{IrttLimits, Parameters};

pub struct Responder {
    limits: IrttLimits,
    key: Option<Vec<u8>>,
    ledger: CompatLedger,
    tokens: fn() -> Option<u64>,
    sessions: BTreeMap<u64, Session>,
    addresses: Addresses,
    filling: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponderReply {
    /// Send the reply with this DSCP and ECN (the IP header's byte).
    Send { traffic_class: u8 },
    /// Not a request of this protocol or of a session here, or a wrong digest: no answer.
    Ignored,
    /// Above a limit: no answer.
    Limited,
    /// A session was closed: no answer.
    Closed,
}

impl Responder {
    /// Returns a server without sessions. With a `key`, only packets with its digest are answered.
    /// A client needs a share of `ledger` for a session. `tokens` returns unpredictable numbers; if
    /// it returns `None`, no session is opened.
    pub fn new(
        limits: IrttLimits,
        key: Option<Vec<u8>>,
        ledger: CompatLedger,
        tokens: fn() -> Option<u64>,
    ) -> Self {
        Self {
            limits,
            key,
            ledger,
            tokens,
            sessions: BTreeMap::new(),
            addresses: Addresses::new(),
            filling: payload(usize::from(limits.length_max)),
        }
    }

    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Handles a datagram from `client` that arrived at `received`. Writes the reply, if any, into
    /// `out`, with the time of sending from `now`.
    pub fn answer(
        &mut self,
        received: Instants,
        client: SocketAddr,
        datagram: &[u8],
        now: impl Fn() -> Instants,
        out: &mut Vec<u8>,
    ) -> ResponderReply {
        let Some(request) = Request::decode(datagram, self.key.as_deref()) else {
            return ResponderReply::Ignored;
        };
        match request.kind {
            RequestKind::Open { and_close } => {
                let Ok(asked) = Parameters::decode(request.payload) else {
                    return ResponderReply::Ignored;
                };
                let bytes = datagram.len();
                self.open(received.run_ns, client, bytes, &asked, and_close, out)
            }
            RequestKind::Close { token } => {
                if self.sessions.get(&token).is_some_and(|session| session.client == client) {
                    self.sessions.remove(&token);
                    return ResponderReply::Closed;
                }
                ResponderReply::Ignored
            }
            RequestKind::Echo { token, sequence } => {
                let bytes = datagram.len();
                self.echo(received, client, bytes, (token, sequence), now, out)
            }
        }
    }

    fn open(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        bytes: usize,
        asked: &Parameters,
        and_close: bool,
        out: &mut Vec<u8>,
    ) -> ResponderReply {
        let deal = asked.clone().restricted(&self.limits);
        let is_closed = and_close || asked.version != PROTOCOL_VERSION;
        self.write_open_reply(&deal, if is_closed { None } else { Some(0) }, out);
        if !self.addresses.may_get(now_ns, client.ip(), bytes, out.len()) {
            return ResponderReply::Limited;
        }
        if !is_closed {
            let token = self.session_for(now_ns, client, &deal);
            self.write_open_reply(&deal, token, out);
        }
        ResponderReply::Send { traffic_class: deal.traffic_class as u8 }
    }

    /// Writes an open reply; without a `token`, the reply says that no session was opened.
    fn write_open_reply(&self, deal: &Parameters, token: Option<u64>, out: &mut Vec<u8>) {
        let key = self.key.as_deref();
        let flags = if token.is_some() { OPEN } else { OPEN | CLOSE };
        packet::begin(out, flags, token.unwrap_or(0), key);
        deal.encode(out);
        packet::seal(out, key);
    }

    fn session_for(&mut self, now_ns: u64, client: SocketAddr, deal: &Parameters) -> Option<u64> {
        let limits = self.limits;
        self.sessions.retain(|_, session| !session.is_idle(now_ns, &limits));
        let waits = |session: &Session| session.client == client && !session.is_used();
        let waiting = self.sessions.iter_mut().find(|(_, session)| waits(session));
        if let Some((token, session)) = waiting {
            let share = session.share.clone();
            *session = Session::new(now_ns, client, deal.clone(), share, &limits);
            return Some(*token);
        }
        let network = CustomerNetwork::of(client.ip());
        let sessions =
            self.sessions.values().filter(|s| CustomerNetwork::of(s.client.ip()) == network);
        if sessions.count() >= limits.sessions_per_network_max {
            return None;
        }
        if self.sessions.len() >= limits.sessions_max {
            let unused = self.sessions.iter().filter(|(_, session)| !session.is_used());
            let oldest = crate::oldest_of_fullest(unused.map(|(token, session)| {
                (*token, CustomerNetwork::of(session.client.ip()), session.opened_ns)
            }))?;
            self.sessions.remove(&oldest);
        }
        // 0 means "no session" to the client.
        let token = (self.tokens)().filter(|token| *token != 0)?;
        if self.sessions.contains_key(&token) {
            return None;
        }
        let time = limits.duration_max + limits.unused_timeout + limits.idle_timeout;
        let share = self.ledger.enter(client.ip(), time).ok()?;
        let session = Session::new(now_ns, client, deal.clone(), share, &limits);
        self.sessions.insert(token, session);
        Some(token)
    }

    fn echo(
        &mut self,
        received: Instants,
        client: SocketAddr,
        bytes: usize,
        (token, sequence): (u64, u32),
        now: impl Fn() -> Instants,
        out: &mut Vec<u8>,
    ) -> ResponderReply {
        let now_ns = received.run_ns;
        let Some(session) = self.sessions.get_mut(&token).filter(|s| s.client == client) else {
            return ResponderReply::Ignored;
        };
        if session.is_idle(now_ns, &self.limits) {
            self.sessions.remove(&token);
            return ResponderReply::Ignored;
        }
        self.addresses.prove(now_ns, client.ip());
        let Some(so_far) = session.note(now_ns, sequence) else {
            return ResponderReply::Limited;
        };
        let is_overtime = session.is_overtime(now_ns);
        // The answer is at most as long as the probe.
        let moved = bytes as u64;
        let is_beyond = session.share.charge(Direction::Up, moved).is_err();
        if is_beyond || session.share.take(Direction::Down, moved).is_err() {
            return ResponderReply::Limited;
        }
        let flags = if is_overtime { CLOSE } else { 0 };
        let probe = Probe { flags, token, sequence, so_far, received, bytes };
        let key = self.key.as_deref();
        let written = answer::write(&session.deal, &probe, key, &self.filling, now, out);
        let traffic_class = session.deal.traffic_class as u8;
        if is_overtime {
            self.sessions.remove(&token);
        }
        match written {
            Some(()) => ResponderReply::Send { traffic_class },
            None => ResponderReply::Limited,
        }
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Prints neither the key nor the tokens.
        f.debug_struct("Responder").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "responder_tests.rs"]
mod tests;
