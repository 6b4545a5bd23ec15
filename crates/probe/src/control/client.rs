//! The client's side: a session, and where to measure with it.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Type};

use super::channel::{
    CONVERSATION_MAX, Flagged, Limited, NoLease, prepare, read_message, write_message,
};
use super::claims::server_of;
use super::error::ServiceError;
use super::fingerprint::{Fingerprint, from_hex};
use super::join::join;
use super::message::{Answer, Ask, MESSAGE_MAX, Notice, PROTOCOL, Question, body_len, decode};
use super::trust::{Names, Pin, Trust};
use crate::load::Token;
use crate::measure::{Endpoints, FarClock};
use crate::network::{SocketSource, connect_first, is_temporary};

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Whom to believe.
    pub trust: Trust,
    /// A token of the server's operator; `None` if the server wants none.
    pub token: Option<String>,
    /// What will be measured.
    pub ask: Ask,
    /// The network to measure from.
    pub network: Arc<dyn SocketSource>,
    /// Raised by whoever wants the attempt to end at once.
    pub cancel: Arc<AtomicBool>,
}

/// A session at a server; dropping it gives it back.
pub struct Remote {
    endpoints: Endpoints,
    token: Token,
    granted: Granted,
    fingerprint: Fingerprint,
    is_new: bool,
    control: Control,
    /// Bytes of a notice that has not wholly arrived.
    partial: Vec<u8>,
    news: SessionNews,
}

type Control = StreamOwned<ClientConnection, Limited<TcpStream, Flagged, NoLease>>;

/// How long reading what has already arrived may take.
const NEWS_MAX: Duration = Duration::from_secs(1);

/// What a session may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// How long it lasts at most.
    pub lease: Duration,
    /// Towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// From the server, bit/s.
    pub down_bit_per_s: u64,
    /// Both directions together.
    pub volume_bytes: u64,
    /// Bit `n` is set if the server sends DSCP `n`.
    pub dscp_allowed: u64,
}

/// What the server said of a running session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNews {
    /// The granted rate, not the line, held up the load towards the server.
    pub throttled_up: bool,
    /// The granted rate, not the line, held up the load from the server.
    pub throttled_down: bool,
    /// Why the server ended the session; `None` while it has not.
    pub ended: Option<String>,
}

impl Remote {
    /// Asks the server that is known as `host` (a name with its port) and has `addresses` for a
    /// session. Connects to all of them, each a little after the one before; the first that answers
    /// and speaks is the server. A refusal is final.
    ///
    /// With a token the server has to be the one that the token names; to another the token is not
    /// sent.
    ///
    /// # Errors
    /// [`ServiceError`]: nobody there, another key than the known one, another server than the
    /// token's, busy, refused, cancelled.
    pub fn connect(
        host: &str,
        addresses: &[SocketAddr],
        options: &ConnectOptions,
    ) -> Result<Self, ServiceError> {
        let expected = Expected::of(host, options)?;
        let mut left = addresses.to_vec();
        let mut silent = None;
        loop {
            let reached = reach(host, &left, options);
            let (socket, address) = match reached {
                Ok(reached) => reached,
                Err(_) if options.cancel.load(Ordering::Relaxed) => {
                    return Err(ServiceError::Cancelled);
                }
                Err(error) => return Err(silent.unwrap_or(error)),
            };
            match Self::open(host, (socket, address), &expected, options) {
                Err(_) if options.cancel.load(Ordering::Relaxed) => {
                    return Err(ServiceError::Cancelled);
                }
                Err(error @ ServiceError::Socket { .. }) => {
                    left.retain(|other| *other != address);
                    let host = host.to_owned();
                    let source = Box::new(error);
                    silent.get_or_insert(ServiceError::NoAnswer { host, address, source });
                }
                other => return other,
            }
        }
    }

    fn open(
        host: &str,
        (socket, address): (TcpStream, SocketAddr),
        expected: &Expected,
        options: &ConnectOptions,
    ) -> Result<Self, ServiceError> {
        let pin = Pin::new(&expected.all());
        let mut control = secure(socket, address, options, &pin)?;
        let conversation = converse(&mut control, options);
        let seen = pin.seen();
        if let Some(seen) = seen {
            expected.check(host, &seen)?;
        }
        let answer = conversation?;
        let Some(seen) = seen else {
            return Err(ServiceError::NoCertificate);
        };
        let fingerprint = seen.key();
        // The handshake is complete: the server holds the key that it showed.
        if expected.known.is_none() {
            options.trust.remember(host, fingerprint)?;
        }
        let (token, udp_port, granted) = granted(answer)?;
        let reflector = SocketAddr::new(address.ip(), udp_port);
        join_over_udp(reflector, options, &token)?;
        let endpoints = Endpoints {
            network: Arc::clone(&options.network),
            reflector,
            load_server: address,
            far_clock: FarClock::Separate,
        };
        let is_new = expected.is_nobody();
        let (partial, news) = (Vec::new(), SessionNews::default());
        Ok(Self { endpoints, token, granted, fingerprint, is_new, control, partial, news })
    }

    /// What the server has said of the session so far, without waiting.
    pub fn news(&mut self) -> &SessionNews {
        let mut bytes = [0; 512];
        let unblocked = self.control.sock.stream().set_nonblocking(true);
        // What was said before the user cancelled is still worth reading.
        self.control.sock.say_farewell(NEWS_MAX);
        // A closed connection is an end, too, if not a polite one.
        let ended = loop {
            match unblocked.as_ref().map_or(Ok(0), |()| self.control.read(&mut bytes)) {
                Ok(0) => break true,
                Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
                Err(error) => break !is_temporary(&error) && !self.control.sock.is_over(),
            }
            if self.partial.len() > 4 * MESSAGE_MAX {
                break true;
            }
        };
        while let Some(notice) = next_notice(&mut self.partial) {
            match notice {
                Notice::Throttled { up, down } => {
                    self.news.throttled_up |= up;
                    self.news.throttled_down |= down;
                }
                Notice::Ended { reason } => self.news.ended = Some(printable(&reason)),
            }
        }
        if ended {
            self.news.ended.get_or_insert_with(|| "the connection was lost".to_owned());
        }
        &self.news
    }

    /// What [`crate::measure::Measurement::run`] needs.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// What [`crate::measure::MeasurementConfig::token`] has to be.
    pub fn token(&self) -> Token {
        self.token
    }

    /// What the session may do.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// The server's key, and whether it was believed because nobody knew better: seen here for the
    /// first time, and named by no token.
    pub fn identity(&self) -> (Fingerprint, bool) {
        (self.fingerprint, self.is_new)
    }
}

/// Who the server has to be.
struct Expected {
    /// By the user's word or by what was seen before.
    known: Option<Fingerprint>,
    /// The file that tells what was seen before.
    known_servers: Option<PathBuf>,
    /// By the token.
    named: Option<Fingerprint>,
}

impl Expected {
    fn of(host: &str, options: &ConnectOptions) -> Result<Self, ServiceError> {
        let known = options.trust.expected(host)?;
        let named = options.token.as_deref().and_then(server_of);
        let known_servers = options.trust.known_servers().map(Path::to_owned);
        let expected = Self { known, known_servers, named };
        if options.token.is_some() && expected.is_nobody() {
            return Err(ServiceError::TokenForNobody { host: host.to_owned() });
        }
        Ok(expected)
    }

    fn is_nobody(&self) -> bool {
        self.known.is_none() && self.named.is_none()
    }

    fn all(&self) -> Vec<Fingerprint> {
        self.known.into_iter().chain(self.named).collect()
    }

    fn check(&self, host: &str, seen: &Names) -> Result<(), ServiceError> {
        let host = || host.to_owned();
        match (self.known, self.named) {
            (Some(known), _) if !seen.include(known) => Err(ServiceError::Imposter {
                host: host(),
                seen: seen.key(),
                known,
                known_servers: self.known_servers.clone(),
            }),
            (_, Some(named)) if !seen.include(named) => {
                Err(ServiceError::TokenForAnother { host: host(), seen: seen.key(), named })
            }
            _ => Ok(()),
        }
    }
}

/// A TCP connection to one of `addresses`.
fn reach(
    host: &str,
    addresses: &[SocketAddr],
    options: &ConnectOptions,
) -> Result<(TcpStream, SocketAddr), ServiceError> {
    let is_cancelled = || options.cancel.load(Ordering::Relaxed);
    connect_first(addresses, &*options.network, CONVERSATION_MAX, &is_cancelled).map_err(
        |silence| {
            let Some(silence) = silence else {
                let source = std::io::ErrorKind::AddrNotAvailable.into();
                return ServiceError::Socket { step: "connecting to the server", source };
            };
            let step = "connecting to the server";
            let source = Box::new(ServiceError::Socket { step, source: silence.source });
            ServiceError::NoAnswer { host: host.to_owned(), address: silence.address, source }
        },
    )
}

fn secure(
    socket: TcpStream,
    address: SocketAddr,
    options: &ConnectOptions,
    pin: &Arc<Pin>,
) -> Result<Control, ServiceError> {
    let failed = |step| move |source| ServiceError::Socket { step, source };
    prepare(&socket).map_err(failed("preparing the control connection"))?;
    // Nothing depends on the name: the key is pinned.
    let name = ServerName::IpAddress(address.ip().into());
    let connection =
        ClientConnection::new(pin.client_config()?, name).map_err(ServiceError::Tls)?;
    let limited = Limited::new(socket, Flagged::new(&options.cancel), CONVERSATION_MAX);
    Ok(StreamOwned::new(connection, limited))
}

fn converse(control: &mut Control, options: &ConnectOptions) -> Result<Answer, ServiceError> {
    let question = Question {
        protocol: PROTOCOL,
        token: options.token.clone(),
        up_bit_per_s: options.ask.up_bit_per_s,
        down_bit_per_s: options.ask.down_bit_per_s,
        duration_ms: options.ask.duration.as_millis() as u64,
    };
    write_message(control, &question)?;
    read_message(control)
}

fn granted(answer: Answer) -> Result<(Token, u16, Granted), ServiceError> {
    match answer {
        Answer::Granted {
            session,
            udp_port,
            lease_ms,
            up_bit_per_s,
            down_bit_per_s,
            volume_bytes,
            dscp_allowed,
        } => {
            let wrong = || ServiceError::Protocol { what: "the token is no token".to_owned() };
            let token = Token(from_hex(&session).ok_or_else(wrong)?);
            let lease = Duration::from_millis(lease_ms);
            let granted =
                Granted { lease, up_bit_per_s, down_bit_per_s, volume_bytes, dscp_allowed };
            Ok((token, udp_port, granted))
        }
        Answer::Busy { retry_after_ms, reason } => {
            let retry_after = Duration::from_millis(retry_after_ms);
            Err(ServiceError::Busy { reason: printable(&reason), retry_after })
        }
        Answer::Refused { reason } => Err(ServiceError::Refused { reason: printable(&reason) }),
    }
}

/// Proves to the server that our UDP address is ours, and to us that UDP reaches it.
fn join_over_udp(
    reflector: SocketAddr,
    options: &ConnectOptions,
    token: &Token,
) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::UdpBlocked { port: reflector.port(), source };
    let socket = options
        .network
        .socket(Domain::for_address(reflector), Type::DGRAM)
        .map_err(|source| ServiceError::Socket { step: "opening a UDP socket", source })?;
    socket.connect(&reflector.into()).map_err(failed)?;
    join(&UdpSocket::from(socket), token).map_err(failed)
}

/// Takes the first whole notice out of `bytes`; what is none is dropped with all that follows.
pub fn next_notice(bytes: &mut Vec<u8>) -> Option<Notice> {
    let len = body_len(*bytes.first_chunk()?);
    let Ok(len) = len else {
        bytes.clear();
        return None;
    };
    let notice = decode(bytes.get(2..2 + len)?).ok();
    bytes.drain(..2 + len);
    notice
}

/// The server's words, without anything that could move a terminal's cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::message::encode;
    use super::*;

    #[test]
    fn notices_are_read_however_they_arrive() {
        let ended = Notice::Ended { reason: "its time is up".to_owned() };
        let throttled = Notice::Throttled { up: true, down: false };
        let mut stream = encode(&throttled).unwrap();
        stream.extend(encode(&ended).unwrap());
        let (mut partial, mut found) = (Vec::new(), Vec::new());
        for byte in stream {
            partial.push(byte);
            found.extend(next_notice(&mut partial));
        }
        assert_eq!(found, [throttled, ended]);
        assert!(partial.is_empty());
        let mut nonsense = vec![0xff; 20];
        assert_eq!(next_notice(&mut nonsense), None);
        assert!(nonsense.is_empty());
    }
}
