//! What control connections share, and what is decided about their questions.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use rustls::ServerConfig;

use underload_probe::control::{
    Answer, Ask, Fingerprint, Flagged, Lease, PROTOCOL, Question, ServiceError,
};
use underload_probe::load::{FlowHost, Token};

use super::conversation::{Conversation, Ended};
use super::counters::Counters;
use super::strangers::{StrangerPlace, Strangers};
use crate::admission::{Admitted, Denial, Granted, Sessions, Share};
use crate::identity::Identity;
use crate::random::random;
use crate::tokens::{LeaseDesk, LeaseHeld, Leased, TokenDesk};

/// What every connection's thread shares.
pub(crate) struct Host {
    /// Replaced when the certificate is.
    pub tls: Mutex<Arc<ServerConfig>>,
    pub tokens: Option<Mutex<TokenDesk>>,
    pub leases: Option<Mutex<LeaseDesk>>,
    /// What the operator should know of leases.
    pub warnings: Mutex<Vec<String>>,
    /// Whether who shows no token may ask for all that there is.
    pub admits_anonymous: bool,
    pub dscp_allowed: u64,
    pub udp_port: u16,
    pub sessions: Arc<Sessions>,
    pub flows: Arc<FlowHost<Sessions>>,
    pub strangers: Strangers,
    pub counters: Arc<Counters>,
    pub stop: Arc<AtomicBool>,
    /// No new sessions; the running ones go on.
    pub drains: Arc<AtomicBool>,
}

/// Who is turned away while the server drains had better not come back soon.
const DRAINING_RETRY_AFTER: Duration = Duration::from_mins(5);
/// A full disk may have been emptied by then.
const NOTING_RETRY_AFTER: Duration = Duration::from_mins(1);

impl Host {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Serves one control connection to its end.
    pub(crate) fn converse(&self, socket: TcpStream, from: SocketAddr, place: StrangerPlace) {
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
        let tls = Arc::clone(&self.tls.lock().unwrap_or_else(PoisonError::into_inner));
        let mut conversation = Conversation::begin(tls, socket, Flagged::new(&self.stop))?;
        let question = conversation.question()?;
        let (answer, granted) = self.decide(&question, from)?;
        let counter = match answer {
            Answer::Granted { .. } => &self.counters.granted,
            Answer::Busy { .. } => &self.counters.busy,
            Answer::Refused { .. } => &self.counters.refused,
        };
        counter.add(1);
        // A client that is gone before it got its answer is no failure of the conversation.
        if conversation.answer(&answer).is_ok()
            && let Some(granted) = granted
        {
            drop(place);
            if conversation.hold(granted.session.share.clone()) == Ended::Expired {
                self.counters.expired.add(1);
            }
        }
        conversation.close();
        Ok(())
    }

    fn decide(&self, question: &Question, from: IpAddr) -> Decided {
        let refused = |reason: String| Ok((Answer::Refused { reason }, None));
        if question.protocol != PROTOCOL {
            return refused(format!("protocol {PROTOCOL} is spoken here"));
        }
        if self.drains.load(Ordering::Relaxed) {
            return busy(DRAINING_RETRY_AFTER, "the server is being stopped");
        }
        let ask = Ask {
            up_bit_per_s: question.up_bit_per_s,
            down_bit_per_s: question.down_bit_per_s,
            duration: Duration::from_millis(question.duration_ms),
        };
        if let Some(decided) = self.decide_leased(question.token.as_deref(), ask, from) {
            return decided;
        }
        let ask = if self.may_only_probe(question) { probing(ask) } else { ask };
        let mut desk = question.token.as_ref().and_then(|_| self.desk());
        let admitted = self.admit(desk.as_deref_mut(), question.token.as_deref(), ask);
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => return refused(reason),
        };
        let session = Token(random()?);
        let opened = self.sessions.open(ask, from, session, admitted);
        // On disk before the client hears of its session, or there is none.
        if let (Ok(_), Some(admitted), Some(desk)) = (&opened, &admitted, &mut desk)
            && desk.note(admitted).is_err()
        {
            return busy(NOTING_RETRY_AFTER, "the server cannot note that the token was used");
        }
        drop(desk);
        match opened {
            Ok(granted) => Ok((self.granted(&granted, session), Some(Opened::new(granted, None)))),
            Err(Denial::TooMuch(reason)) => refused(reason),
            Err(Denial::Busy(retry_after, reason)) => busy(retry_after, reason),
        }
    }

    /// Whether a client may ask at all, and with which token.
    fn admit(
        &self,
        desk: Option<&mut TokenDesk>,
        token: Option<&str>,
        ask: Ask,
    ) -> Result<Option<Admitted>, String> {
        match (desk, token) {
            (Some(desk), Some(token)) => desk.check(token, ask).map(Some),
            _ if self.admits_anonymous => Ok(None),
            (_, None) if self.leases.is_some() => Ok(None),
            _ => {
                Err("a token is needed here: ask whoever runs the server, give --token-file"
                    .to_owned())
            }
        }
    }

    /// What is decided about a lease; `None` if it is none.
    fn decide_leased(&self, text: Option<&str>, ask: Ask, from: IpAddr) -> Option<Decided> {
        let desk = self.leases.as_ref()?;
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        let leased = match desk.check(text?, ask)? {
            Ok(leased) => leased,
            Err(reason) => return Some(Ok((Answer::Refused { reason }, None))),
        };
        Some(self.open_leased(&mut desk, &leased, from))
    }

    fn open_leased(&self, desk: &mut LeaseDesk, leased: &Leased, from: IpAddr) -> Decided {
        let session = Token(random()?);
        let opened = self.sessions.open(leased.ask, from, session, Some(leased.admitted));
        match opened {
            Ok(granted) => {
                // On disk before the client hears of its session, or there is none.
                let Ok(held) = desk.note(leased) else {
                    return busy(NOTING_RETRY_AFTER, "the server cannot note that it was used");
                };
                let answer = self.granted(&granted, session);
                Ok((answer, Some(Opened::new(granted, Some(held)))))
            }
            Err(Denial::TooMuch(reason)) => Ok((Answer::Refused { reason }, None)),
            Err(Denial::Busy(retry_after, reason)) => busy(retry_after, reason),
        }
    }

    /// Where there are leases, who shows nothing may still see how long a packet takes.
    fn may_only_probe(&self, question: &Question) -> bool {
        self.leases.is_some() && !self.admits_anonymous && question.token.is_none()
    }

    fn desk(&self) -> Option<MutexGuard<'_, TokenDesk>> {
        self.tokens.as_ref().map(|desk| desk.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the operator should know of tokens; next time, if a slow disk holds the desk up.
    pub(crate) fn news(&self) -> Vec<String> {
        let desk = self.tokens.as_ref().and_then(|desk| desk.try_lock().ok());
        let mut news = desk.map(|mut desk| desk.news()).unwrap_or_default();
        news.append(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        news
    }

    /// From now on the server is this one, to new connections.
    pub(crate) fn serve_as(&self, identity: Identity) -> Result<Fingerprint, ServiceError> {
        let names = identity.names();
        let tls = identity.server_config()?;
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
        if let Some(mut desk) = self.desk() {
            desk.serve_as(names);
        }
        Ok(names.key())
    }

    fn granted(&self, granted: &Granted, session: Token) -> Answer {
        Answer::Granted {
            session: HEXLOWER.encode(&session.0),
            udp_port: self.udp_port,
            lease_ms: granted.left().as_millis() as u64,
            up_bit_per_s: granted.grant.up_bit_per_s,
            down_bit_per_s: granted.grant.down_bit_per_s,
            volume_bytes: granted.grant.volume_bytes,
            dscp_allowed: self.dscp_allowed,
        }
    }
}

impl Lease for Share {
    fn end(&self) -> Option<&'static str> {
        Share::end(self)
    }

    fn throttled(&self) -> (bool, bool) {
        Share::throttled(self)
    }
}

/// What is answered, and the session that it grants.
type Decided = Result<(Answer, Option<Opened>), ServiceError>;

/// A session and the lease that it was opened with. The session ends before the lease does.
struct Opened {
    session: Granted,
    _lease: Option<LeaseHeld>,
}

impl Opened {
    fn new(session: Granted, lease: Option<LeaseHeld>) -> Self {
        Self { session, _lease: lease }
    }
}

/// Enough for probes, which have a rate of their own, and for no load.
const PROBING_BIT_PER_S: u64 = 100_000;

fn probing(ask: Ask) -> Ask {
    let most = Some(PROBING_BIT_PER_S);
    Ask { up_bit_per_s: most, down_bit_per_s: most, ..ask }
}

fn busy(wait: Duration, reason: &str) -> Decided {
    // Up to a tenth more by chance, and two seconds: those who wait must not all come back at once.
    let spread_ms = 2_000 + wait.as_millis() as u64 / 10;
    let chance_ms = u64::from_be_bytes(random()?) % spread_ms;
    let retry_after_ms = wait.as_millis() as u64 + chance_ms;
    Ok((Answer::Busy { retry_after_ms, reason: reason.to_owned() }, None))
}
