//! The state that control connections share, and the decisions about their questions.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use rustls::ServerConfig;
use underload_probe::Counters;
use underload_probe::control::{
    Answer, Ask, Fingerprint, Flagged, Lease, PROTOCOL, Question, Result,
};
use underload_probe::load::{FlowHost, Token};

use super::conversation::{Conversation, Ended};
use super::counters::ServiceCounts;
use super::strangers::{StrangerPlace, Strangers};
use crate::admission::{Admitted, Denial, Granted, Sessions, Share};
use crate::identity::Identity;
use crate::random::random;
use crate::tokens::{LeaseDesk, LeaseHeld, TokenDesk};

pub(crate) struct Host {
    /// Replaced together with the certificate.
    pub tls: Mutex<Arc<ServerConfig>>,
    pub tokens: Option<Mutex<TokenDesk>>,
    pub leases: Option<Mutex<LeaseDesk>>,
    pub warnings: Mutex<Vec<String>>,
    /// Whether a client without a token may request load.
    pub admits_anonymous: bool,
    pub dscp_allowed: u64,
    pub udp_port: u16,
    pub sessions: Arc<Sessions>,
    pub flows: Arc<FlowHost<Sessions>>,
    pub strangers: Strangers,
    pub counters: Arc<Counters<ServiceCounts>>,
    pub stop: Arc<AtomicBool>,
    /// True if no new sessions are granted; running ones continue.
    pub drains: Arc<AtomicBool>,
}

/// Clients that are refused while the server drains retry after this.
const DRAINING_RETRY_AFTER: Duration = Duration::from_mins(5);
/// Clients retry after this if a use could not be recorded, for example on a full disk.
const RECORDING_RETRY_AFTER: Duration = Duration::from_mins(1);

impl Host {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn converse(&self, socket: TcpStream, from: SocketAddr, place: StrangerPlace) {
        if self.try_converse(socket, from.ip().to_canonical(), place).is_err() {
            self.counters.update(|counts| counts.dropped += 1);
        }
    }

    fn try_converse(&self, socket: TcpStream, from: IpAddr, place: StrangerPlace) -> Result<()> {
        let tls = Arc::clone(&lock(&self.tls));
        let mut conversation = Conversation::begin(tls, socket, Flagged::new(&self.stop))?;
        let question = conversation.question()?;
        let (answer, granted) = self.decide(&question, from)?;
        self.counters.update(|counts| match answer {
            Answer::Granted { .. } => counts.granted += 1,
            Answer::Busy { .. } => counts.busy += 1,
            Answer::Refused { .. } => counts.refused += 1,
        });
        // A client that left before its answer is not an error of the conversation.
        if conversation.answer(&answer).is_ok()
            && let Some(granted) = granted
        {
            drop(place);
            if conversation.hold(granted.session.share.clone()) == Ended::Expired {
                self.counters.update(|counts| counts.expired += 1);
            }
        }
        conversation.close();
        Ok(())
    }

    fn decide(&self, question: &Question, from: IpAddr) -> Decided {
        let refused = |reason: String| Ok((Answer::Refused { reason }, None));
        if question.protocol != PROTOCOL {
            return refused(format!("this server supports protocol {PROTOCOL}"));
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
        let mut desk = question.token.as_ref().and(self.tokens.as_ref()).map(lock);
        match self.admit(desk.as_deref_mut(), question.token.as_deref(), ask) {
            Err(reason) => refused(reason),
            Ok(admitted) => self.open(ask, from, admitted, || match (&admitted, &mut desk) {
                (Some(admitted), Some(desk)) => desk.note(admitted).map(|()| None),
                _ => Ok(None),
            }),
        }
    }

    /// Checks whether a client may have a session. Returns its token; `None` without one.
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
                Err("a token is needed here: ask the server's operator, give --token-file"
                    .to_owned())
            }
        }
    }

    /// Decides about a lease; `None` if `text` is not a lease.
    fn decide_leased(&self, text: Option<&str>, ask: Ask, from: IpAddr) -> Option<Decided> {
        let mut desk = lock(self.leases.as_ref()?);
        let leased = match desk.check(text?, ask)? {
            Ok(leased) => leased,
            Err(reason) => return Some(Ok((Answer::Refused { reason }, None))),
        };
        let note = || desk.note(&leased).map(Some);
        Some(self.open(leased.ask, from, Some(leased.admitted), note))
    }

    /// Opens a session. `note` records the use of its token or lease.
    fn open(
        &self,
        ask: Ask,
        from: IpAddr,
        admitted: Option<Admitted>,
        note: impl FnOnce() -> Result<Option<LeaseHeld>>,
    ) -> Decided {
        let session = Token(random()?);
        match self.sessions.open(ask, from, session, admitted) {
            Ok(granted) => {
                // The use is on disk before the client learns of its session.
                let Ok(lease) = note() else {
                    let reason = "the server cannot record that the token or lease was used";
                    return busy(RECORDING_RETRY_AFTER, reason);
                };
                let answer = self.granted(&granted, session);
                Ok((answer, Some(Opened { session: granted, _lease: lease })))
            }
            Err(Denial::TooMuch(reason)) => Ok((Answer::Refused { reason }, None)),
            Err(Denial::Busy(retry_after, reason)) => busy(retry_after, reason),
        }
    }

    /// A client without a token or lease may only send probes if the server has leases.
    fn may_only_probe(&self, question: &Question) -> bool {
        self.leases.is_some() && !self.admits_anonymous && question.token.is_none()
    }

    /// Returns messages for the operator. Those about tokens wait for the next call if a slow disk
    /// blocks the tokens' lock.
    pub(crate) fn news(&self) -> Vec<String> {
        let desk = self.tokens.as_ref().and_then(|desk| desk.try_lock().ok());
        let mut news = desk.map(|mut desk| desk.news()).unwrap_or_default();
        news.append(&mut lock(&self.warnings));
        news
    }

    /// Replaces the server's identity for new connections.
    pub(crate) fn serve_as(&self, identity: &Identity) -> Result<Fingerprint> {
        let server = identity.fingerprint();
        let tls = identity.server_config()?;
        *lock(&self.tls) = tls;
        if let Some(mut desk) = self.tokens.as_ref().map(lock) {
            desk.serve_as(server);
        }
        Ok(server)
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

/// An answer, and the session that it grants.
type Decided = Result<(Answer, Option<Opened>)>;

/// A session and the lease that it was opened with. The session ends before the lease does.
struct Opened {
    session: Granted,
    _lease: Option<LeaseHeld>,
}

/// Rate of a session that may only probe, bit/s: probes have a separate rate, and load gets little.
const PROBING_BIT_PER_S: u64 = 100_000;

fn probing(ask: Ask) -> Ask {
    let most = Some(PROBING_BIT_PER_S);
    Ask { up_bit_per_s: most, down_bit_per_s: most, ..ask }
}

fn busy(wait: Duration, reason: &str) -> Decided {
    // Add up to a tenth and two seconds at random, so that waiting clients do not all return at
    // once.
    let spread_ms = 2_000 + wait.as_millis() as u64 / 10;
    let chance_ms = u64::from_be_bytes(random()?) % spread_ms;
    let retry_after_ms = wait.as_millis() as u64 + chance_ms;
    Ok((Answer::Busy { retry_after_ms, reason: reason.to_owned() }, None))
}

/// Locks `mutex`. A thread that panicked with the lock leaves a valid value.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
