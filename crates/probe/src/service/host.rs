//! A control connection: question, decision, answer, and the session that hangs on it.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::ServiceError;
use super::control::{CONVERSATION_MAX, is_temporary, read_message, write_message};
use super::counters::Counters;
use super::front::{StrangerPlace, Strangers};
use super::ledger::{Ask, Denial};
use super::message::{Answer, Notice, PROTOCOL, Question, to_hex};
use super::sessions::{Granted, Sessions};
use super::token::{Admitted, TokenDesk, random};
use crate::load::{FlowHost, Token};

/// What every connection's thread shares.
pub(super) struct Host {
    pub tls: Arc<ServerConfig>,
    /// `None` lets everybody ask.
    pub tokens: Option<Mutex<TokenDesk>>,
    /// Whether who shows no token may ask although there are tokens.
    pub admits_anonymous: bool,
    pub dscp_allowed: u64,
    pub udp_port: u16,
    pub sessions: Arc<Sessions>,
    pub flows: FlowHost,
    pub strangers: Arc<Strangers>,
    pub counters: Arc<Counters>,
    pub stop: Arc<AtomicBool>,
    /// No new sessions; the running ones go on.
    pub drains: Arc<AtomicBool>,
}

type Secured = StreamOwned<ServerConnection, TcpStream>;

/// How often a running session is looked at for something to tell its client.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// Who is turned away while the server drains had better not come back soon.
const DRAINING_RETRY_AFTER: Duration = Duration::from_mins(5);

impl Host {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Serves one control connection to its end.
    pub(super) fn converse(&self, socket: TcpStream, from: SocketAddr, place: StrangerPlace) {
        if self.try_converse(socket, from.ip().to_canonical(), place).is_err() {
            self.counters.dropped.add(1);
        }
    }

    fn try_converse(
        &self,
        socket: TcpStream,
        from: IpAddr,
        place: StrangerPlace,
    ) -> Result<(), ServiceError> {
        let connection = ServerConnection::new(Arc::clone(&self.tls))
            .map_err(|error| ServiceError::Tls(error.to_string()))?;
        let mut stream = StreamOwned::new(connection, socket);
        let until = Instant::now() + CONVERSATION_MAX;
        let question: Question = read_message(&mut stream, until)?;
        let (answer, granted) = self.decide(&question, from)?;
        let counter = match answer {
            Answer::Granted { .. } => &self.counters.granted,
            Answer::Busy { .. } => &self.counters.busy,
            Answer::Refused { .. } => &self.counters.refused,
        };
        counter.add(1);
        // A client that is gone before it got its answer is no failure of the conversation.
        if write_message(&mut stream, &answer, until).is_ok()
            && let Some(granted) = granted
        {
            drop(place);
            self.hold(&mut stream, &granted);
        }
        stream.conn.send_close_notify();
        let _ = stream.conn.complete_io(&mut stream.sock);
        Ok(())
    }

    fn decide(
        &self,
        question: &Question,
        from: IpAddr,
    ) -> Result<(Answer, Option<Granted>), ServiceError> {
        let refused = |reason: String| Ok((Answer::Refused { reason }, None));
        if question.protocol != PROTOCOL {
            return refused(format!("protocol {PROTOCOL} is spoken here"));
        }
        if self.drains.load(Ordering::Relaxed) {
            return busy(DRAINING_RETRY_AFTER, "the server is being stopped");
        }
        let mut ask = Ask {
            up_bit_per_s: question.up_bit_per_s,
            down_bit_per_s: question.down_bit_per_s,
            duration: Duration::from_millis(question.duration_ms),
        };
        let admitted = match self.admit(question.token.as_deref(), ask) {
            Ok(admitted) => admitted,
            Err(reason) => return refused(reason),
        };
        if let Some(most) = admitted.and_then(|admitted| admitted.rate_bit_per_s) {
            ask.up_bit_per_s.get_or_insert(most);
            ask.down_bit_per_s.get_or_insert(most);
        }
        let session = Token(random()?);
        let opened = self.sessions.open(ask, from, session, admitted.map(|it| it.id));
        if opened.is_err()
            && let (Some(admitted), Some(tokens)) = (admitted, &self.tokens)
        {
            tokens.lock().unwrap_or_else(PoisonError::into_inner).give_back(admitted.id);
        }
        match opened {
            Ok(granted) => Ok((self.granted(&granted, session), Some(granted))),
            Err(Denial::TooMuch(reason)) => refused(reason),
            Err(Denial::Busy(retry_after, reason)) => busy(retry_after, reason),
        }
    }

    /// Whether a client may ask at all, and with which token.
    fn admit(&self, token: Option<&str>, ask: Ask) -> Result<Option<Admitted>, String> {
        match (&self.tokens, token) {
            (None, _) => Ok(None),
            (Some(_), None) if self.admits_anonymous => Ok(None),
            (Some(_), None) => {
                Err("a token is needed here: ask whoever runs the server, give --token-file"
                    .to_owned())
            }
            (Some(tokens), Some(token)) => {
                tokens.lock().unwrap_or_else(PoisonError::into_inner).admit(token, ask).map(Some)
            }
        }
    }

    fn granted(&self, granted: &Granted, session: Token) -> Answer {
        Answer::Granted {
            session: to_hex(&session.0),
            udp_port: self.udp_port,
            lease_ms: granted.left().as_millis() as u64,
            up_bit_per_s: granted.grant.up_bit_per_s,
            down_bit_per_s: granted.grant.down_bit_per_s,
            volume_octets: granted.grant.volume_octets,
            dscp_allowed: self.dscp_allowed,
        }
    }

    /// Until the client closes, the session is over, or the server stops. The client has nothing
    /// more to say; the server says why it ends the session, and when it holds it up.
    fn hold(&self, stream: &mut Secured, granted: &Granted) {
        let mut told = (false, false);
        let reason = loop {
            if self.is_stopped() {
                break "the server was stopped";
            }
            if let Some(reason) = granted.share.end() {
                self.counters.expired.add(1);
                break reason;
            }
            let throttled = granted.share.throttled();
            if throttled != told {
                told = throttled;
                let (up, down) = throttled;
                let until = Instant::now() + NOTICE_MAX;
                if write_message(stream, &Notice::Throttled { up, down }, until).is_err() {
                    return;
                }
            }
            match stream.read(&mut [0; 64]) {
                Err(error) if is_temporary(&error) => {}
                Ok(_) | Err(_) => return,
            }
        };
        let notice = Notice::Ended { reason: reason.to_owned() };
        // The client may be gone.
        let _ = write_message(stream, &notice, Instant::now() + NOTICE_MAX);
    }
}

fn busy(wait: Duration, reason: &str) -> Result<(Answer, Option<Granted>), ServiceError> {
    // Up to a tenth more by chance, and two seconds: those who wait must not all come back at once.
    let spread_ms = 2_000 + wait.as_millis() as u64 / 10;
    let chance_ms = u64::from_be_bytes(random()?) % spread_ms;
    let retry_after_ms = wait.as_millis() as u64 + chance_ms;
    Ok((Answer::Busy { retry_after_ms, reason: reason.to_owned() }, None))
}
