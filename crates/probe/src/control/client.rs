//! The client's side of the control connection: requests a session from a server.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Type};
use underload_record::text::one_line;

use super::channel::{
    CONVERSATION_MAX, Flagged, Limited, NoLease, prepare, read_message, write_message,
};
use super::claims::server_of;
use super::error::{Result, ServiceError};
use super::fingerprint::{Fingerprint, from_hex};
use super::join::join;
use super::message::{Answer, Ask, MESSAGE_MAX, Notice, PROTOCOL, Question, body_len, decode};
use super::trust::{Pin, Trust};
use crate::load::Token;
use crate::measure::{Endpoints, FarClock};
use crate::network::{SocketSource, connect_first, is_temporary, with_port};

#[derive(Clone)]
pub struct ConnectOptions {
    pub trust: Trust,
    /// A token of the server's operator; `None` if the server wants none.
    pub token: Option<String>,
    pub ask: Ask,
    pub network: Arc<dyn SocketSource>,
    /// Set to true to end the attempt at once.
    pub cancel: Arc<AtomicBool>,
}

/// A session at a server, which ends when this is dropped.
pub struct Remote {
    endpoints: Endpoints,
    token: Token,
    pub granted: Granted,
    fingerprint: Fingerprint,
    is_new: bool,
    control: Control,
    /// The first bytes of a notice that has not arrived completely.
    partial: Vec<u8>,
    news: SessionNews,
}

type Control = StreamOwned<ClientConnection, Limited<TcpStream, Flagged, NoLease>>;

/// Longest time for reading notices that have already arrived.
const NEWS_MAX: Duration = Duration::from_secs(1);

/// The limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub lease: Duration,
    /// Rate towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Rate from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Bytes of both directions together.
    pub volume_bytes: u64,
    /// Bit `n` is set if the server sends DSCP `n`.
    pub dscp_allowed: u64,
}

/// The server's reports about a running session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNews {
    /// The granted rate, not the line, limited the load towards the server.
    pub throttled_up: bool,
    /// The granted rate, not the line, limited the load from the server.
    pub throttled_down: bool,
    /// Why the server ended the session; `None` while it runs.
    pub ended: Option<String>,
}

impl Remote {
    /// Asks the server `host` (a name with its port) at `addresses` for a session. Connects to all
    /// addresses, each a little after the one before; the first that completes the conversation is
    /// the server. A refusal is final.
    ///
    /// A token is sent only to the server that it names.
    ///
    /// # Errors
    /// Returns an error if no address answers, the key differs from the known one, the token is for
    /// another server, the server is busy or refuses, or the user cancels.
    pub fn connect(host: &str, addresses: &[SocketAddr], options: &ConnectOptions) -> Result<Self> {
        let expected = Expected::new(host, options)?;
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
    ) -> Result<Self> {
        let pin = Pin::new(&expected.all());
        let mut control = secure(socket, address, options, &pin)?;
        let conversation = converse(&mut control, options);
        let seen = pin.seen();
        if let Some(seen) = seen {
            expected.check(host, seen)?;
        }
        let answer = conversation?;
        let Some(fingerprint) = seen else {
            return Err(ServiceError::NoCertificate);
        };
        // The handshake is complete, which proves that the server has the key that it showed.
        if expected.known.is_none() {
            options.trust.remember(host, fingerprint)?;
        }
        let (token, udp_port, granted) = granted(answer)?;
        let reflector = with_port(address, udp_port);
        join_over_udp(reflector, options, &token)?;
        let endpoints = Endpoints {
            network: Arc::clone(&options.network),
            reflector,
            load_server: address,
            far_clock: FarClock::Separate,
        };
        let is_new = expected.is_unknown();
        let (partial, news) = (Vec::new(), SessionNews::default());
        Ok(Self { endpoints, token, granted, fingerprint, is_new, control, partial, news })
    }

    /// Returns what the server has reported about the session so far, without waiting.
    pub fn news(&mut self) -> &SessionNews {
        let mut bytes = [0; 512];
        let unblocked = self.control.sock.stream().set_nonblocking(true);
        // Notices that arrived before the user cancelled are still worth reading.
        self.control.sock.say_farewell(NEWS_MAX);
        // A closed connection also ends the session, without a reason.
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
                Notice::Ended { reason } => self.news.ended = Some(one_line(&reason)),
            }
        }
        if ended {
            self.news.ended.get_or_insert_with(|| "the connection was lost".to_owned());
        }
        &self.news
    }

    /// Returns the endpoints to pass to [`crate::measure::Measurement::run`].
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Returns the value for [`crate::measure::MeasurementConfig::token`].
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the server's key, and true if the key was trusted because neither a known server nor
    /// the token named one.
    pub fn identity(&self) -> (Fingerprint, bool) {
        (self.fingerprint, self.is_new)
    }
}

/// Fingerprints that the server's certificate must match.
struct Expected {
    /// From the user or from the file of known servers.
    known: Option<Fingerprint>,
    known_servers: Option<PathBuf>,
    named: Option<Fingerprint>,
}

impl Expected {
    fn new(host: &str, options: &ConnectOptions) -> Result<Self> {
        let known = options.trust.expected(host)?;
        let named = options.token.as_deref().and_then(server_of);
        let known_servers = options.trust.known_servers().map(Path::to_owned);
        let expected = Self { known, known_servers, named };
        if options.token.is_some() && expected.is_unknown() {
            return Err(ServiceError::TokenForNobody { host: host.to_owned() });
        }
        Ok(expected)
    }

    fn is_unknown(&self) -> bool {
        self.known.is_none() && self.named.is_none()
    }

    fn all(&self) -> Vec<Fingerprint> {
        self.known.into_iter().chain(self.named).collect()
    }

    fn check(&self, host: &str, seen: Fingerprint) -> Result<()> {
        let host = || host.to_owned();
        match (self.known, self.named) {
            (Some(known), _) if seen != known => Err(ServiceError::Imposter {
                host: host(),
                seen,
                known,
                known_servers: self.known_servers.clone(),
            }),
            (_, Some(named)) if seen != named => {
                Err(ServiceError::TokenForAnother { host: host(), seen, named })
            }
            _ => Ok(()),
        }
    }
}

fn reach(
    host: &str,
    addresses: &[SocketAddr],
    options: &ConnectOptions,
) -> Result<(TcpStream, SocketAddr)> {
    let is_cancelled = || options.cancel.load(Ordering::Relaxed);
    let error = |source| ServiceError::Socket { step: "connecting to the server", source };
    connect_first(addresses, &*options.network, CONVERSATION_MAX, &is_cancelled).map_err(
        |silence| match silence {
            None => error(std::io::ErrorKind::AddrNotAvailable.into()),
            Some(silence) => ServiceError::NoAnswer {
                host: host.to_owned(),
                address: silence.address,
                source: Box::new(error(silence.source)),
            },
        },
    )
}

fn secure(
    socket: TcpStream,
    address: SocketAddr,
    options: &ConnectOptions,
    pin: &Arc<Pin>,
) -> Result<Control> {
    prepare(&socket).map_err(|source| ServiceError::Socket {
        step: "preparing the control connection",
        source,
    })?;
    // The key is pinned, so the name is not checked.
    let name = ServerName::IpAddress(address.ip().into());
    let connection =
        ClientConnection::new(pin.client_config()?, name).map_err(ServiceError::Tls)?;
    let limited = Limited::new(socket, Flagged::new(&options.cancel), CONVERSATION_MAX);
    Ok(StreamOwned::new(connection, limited))
}

fn converse(control: &mut Control, options: &ConnectOptions) -> Result<Answer> {
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

fn granted(answer: Answer) -> Result<(Token, u16, Granted)> {
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
            let malformed = || ServiceError::Protocol {
                what: "the session is not 32 hexadecimal digits".into(),
            };
            let token = Token(from_hex(&session).ok_or_else(malformed)?);
            let lease = Duration::from_millis(lease_ms);
            let granted =
                Granted { lease, up_bit_per_s, down_bit_per_s, volume_bytes, dscp_allowed };
            Ok((token, udp_port, granted))
        }
        Answer::Busy { retry_after_ms, reason } => {
            let retry_after = Duration::from_millis(retry_after_ms);
            Err(ServiceError::Busy { reason: one_line(&reason), retry_after })
        }
        Answer::Refused { reason } => Err(ServiceError::Refused { reason: one_line(&reason) }),
    }
}

/// Proves to the server that our UDP address belongs to the session, and that UDP reaches the
/// server.
fn join_over_udp(reflector: SocketAddr, options: &ConnectOptions, token: &Token) -> Result<()> {
    let blocked = |source| ServiceError::UdpBlocked { port: reflector.port(), source };
    let socket = options
        .network
        .socket(Domain::for_address(reflector), Type::DGRAM)
        .map_err(|source| ServiceError::Socket { step: "opening a UDP socket", source })?;
    socket.connect(&reflector.into()).map_err(blocked)?;
    join(&UdpSocket::from(socket), token).map_err(blocked)
}

/// Removes the first complete notice from `bytes`. Anything else empties `bytes`.
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

#[cfg(test)]
mod tests {
    use super::super::message::encode;
    use super::*;

    #[test]
    fn notices_are_parsed_however_their_bytes_are_split() {
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
