//! The client's side: a session, and where to measure with it.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Type};

use super::ServiceError;
use super::control::{CONVERSATION_MAX, prepare, read_message, write_message};
use super::identity::{Fingerprint, Pin, Trust};
use super::ledger::Ask;
use super::message::{Answer, PROTOCOL, Question, from_hex};
use crate::load::Token;
use crate::measure::{Endpoints, FarClock};
use crate::network::SocketSource;

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Whom to believe.
    pub trust: Trust,
    /// The server's shared secret; `None` if it has none.
    pub secret: Option<String>,
    /// What will be measured.
    pub ask: Ask,
    /// The network to measure from.
    pub network: Arc<dyn SocketSource>,
}

/// A session at a server; dropping it gives it back.
pub struct Remote {
    endpoints: Endpoints,
    token: Token,
    lease: Duration,
    fingerprint: Fingerprint,
    is_new: bool,
    _control: StreamOwned<ClientConnection, TcpStream>,
}

impl Remote {
    /// Asks the server at `address`, known as `host` (a name with its port), for a session.
    ///
    /// # Errors
    /// [`ServiceError`]: nobody there, another certificate than the known one, busy, refused.
    pub fn connect(
        host: &str,
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Self, ServiceError> {
        let known = options.trust.expected(host)?;
        let pin = Pin::new(known);
        let mut control = secure(address, options, &pin)?;
        let conversation = converse(&mut control, options);
        let seen = pin.seen();
        if let (Some(seen), Some(known)) = (seen, known)
            && seen != known
        {
            return Err(ServiceError::Imposter { host: host.to_owned(), seen, known });
        }
        let answer = conversation?;
        let Some(fingerprint) = seen else {
            return Err(ServiceError::Tls("the server showed no certificate".to_owned()));
        };
        // The handshake is complete: the server holds the key of what it showed.
        if known.is_none() {
            options.trust.remember(host, fingerprint)?;
        }
        let (token, load_port, probe_port, lease_ms) = match answer {
            Answer::Granted { token, load_port, probe_port, lease_ms } => {
                (token, load_port, probe_port, lease_ms)
            }
            Answer::Busy { retry_after_ms } => {
                let retry_after = Duration::from_millis(retry_after_ms);
                return Err(ServiceError::Busy { retry_after });
            }
            Answer::Refused { reason } => return Err(refused(&reason)),
        };
        let wrong = || ServiceError::Protocol { what: "the token is no token".to_owned() };
        let token = Token(from_hex(&token).ok_or_else(wrong)?);
        let endpoints = Endpoints {
            network: Arc::clone(&options.network),
            reflector: SocketAddr::new(address.ip(), probe_port),
            load_server: SocketAddr::new(address.ip(), load_port),
            far_clock: FarClock::Separate,
        };
        let lease = Duration::from_millis(lease_ms);
        let is_new = known.is_none();
        Ok(Self { endpoints, token, lease, fingerprint, is_new, _control: control })
    }

    /// What [`crate::measure::Measurement::run`] needs.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// What [`crate::measure::MeasurementConfig::token`] has to be.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long the session lasted at most when it was granted.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The server's certificate, and whether it was seen here for the first time.
    pub fn identity(&self) -> (Fingerprint, bool) {
        (self.fingerprint, self.is_new)
    }
}

fn secure(
    address: SocketAddr,
    options: &ConnectOptions,
    pin: &Arc<Pin>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, ServiceError> {
    let failed = |step| move |source| ServiceError::Socket { step, source };
    let domain = Domain::for_address(address);
    let socket =
        options.network.socket(domain, Type::STREAM).map_err(failed("opening a socket"))?;
    socket
        .connect_timeout(&address.into(), CONVERSATION_MAX)
        .map_err(failed("connecting to the server"))?;
    let socket = TcpStream::from(socket);
    prepare(&socket).map_err(failed("preparing the control connection"))?;
    // Nothing depends on the name: the certificate is pinned.
    let name = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(pin.client_config()?, name)
        .map_err(|error| ServiceError::Tls(error.to_string()))?;
    Ok(StreamOwned::new(connection, socket))
}

fn converse(
    control: &mut StreamOwned<ClientConnection, TcpStream>,
    options: &ConnectOptions,
) -> Result<Answer, ServiceError> {
    let until = Instant::now() + CONVERSATION_MAX;
    let question = Question {
        protocol: PROTOCOL,
        secret: options.secret.clone(),
        up_bit_per_s: options.ask.up_bit_per_s,
        down_bit_per_s: options.ask.down_bit_per_s,
        duration_ms: options.ask.duration.as_millis() as u64,
    };
    write_message(control, &question, until)?;
    read_message(control, until)
}

/// The server's words, without anything that could move a terminal's cursor.
fn refused(reason: &str) -> ServiceError {
    let printable = |c: char| if c.is_control() { '?' } else { c };
    ServiceError::Refused { reason: reason.chars().map(printable).collect() }
}
