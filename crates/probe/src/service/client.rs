//! The client's side: a session, and where to measure with it.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Type};

use super::ServiceError;
use super::control::{CONVERSATION_MAX, is_temporary, prepare, read_message, write_message};
use super::identity::{Fingerprint, Pin, Trust};
use super::join::join;
use super::ledger::Ask;
use super::message::{Answer, MESSAGE_MAX, Notice, PROTOCOL, Question, body_len, decode, from_hex};
use crate::load::Token;
use crate::measure::{Endpoints, FarClock};
use crate::network::SocketSource;

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
}

/// A session at a server; dropping it gives it back.
pub struct Remote {
    endpoints: Endpoints,
    token: Token,
    granted: Granted,
    fingerprint: Fingerprint,
    is_new: bool,
    control: StreamOwned<ClientConnection, TcpStream>,
    /// Octets of a notice that has not wholly arrived.
    partial: Vec<u8>,
    news: SessionNews,
}

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
    pub volume_octets: u64,
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
        let (token, udp_port, granted) = granted(answer)?;
        let reflector = SocketAddr::new(address.ip(), udp_port);
        join_over_udp(reflector, options, &token)?;
        let endpoints = Endpoints {
            network: Arc::clone(&options.network),
            reflector,
            load_server: address,
            far_clock: FarClock::Separate,
        };
        let is_new = known.is_none();
        let (partial, news) = (Vec::new(), SessionNews::default());
        Ok(Self { endpoints, token, granted, fingerprint, is_new, control, partial, news })
    }

    /// What the server has said of the session so far, without waiting.
    pub fn news(&mut self) -> &SessionNews {
        let mut octets = [0; 512];
        // A closed connection is an end, too, if not a polite one.
        let ended = loop {
            match self
                .control
                .sock
                .set_nonblocking(true)
                .and_then(|()| std::io::Read::read(&mut self.control, &mut octets))
            {
                Ok(0) => break true,
                Ok(count) => self.partial.extend_from_slice(&octets[..count]),
                Err(error) => break !is_temporary(&error),
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
        token: options.token.clone(),
        up_bit_per_s: options.ask.up_bit_per_s,
        down_bit_per_s: options.ask.down_bit_per_s,
        duration_ms: options.ask.duration.as_millis() as u64,
    };
    write_message(control, &question, until)?;
    read_message(control, until)
}

fn granted(answer: Answer) -> Result<(Token, u16, Granted), ServiceError> {
    match answer {
        Answer::Granted {
            session,
            udp_port,
            lease_ms,
            up_bit_per_s,
            down_bit_per_s,
            volume_octets,
            dscp_allowed,
        } => {
            let wrong = || ServiceError::Protocol { what: "the token is no token".to_owned() };
            let token = Token(from_hex(&session).ok_or_else(wrong)?);
            let lease = Duration::from_millis(lease_ms);
            let granted =
                Granted { lease, up_bit_per_s, down_bit_per_s, volume_octets, dscp_allowed };
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

/// Takes the first whole notice out of `octets`; what is none is dropped with all that follows.
fn next_notice(octets: &mut Vec<u8>) -> Option<Notice> {
    let len = body_len(*octets.first_chunk()?);
    let Ok(len) = len else {
        octets.clear();
        return None;
    };
    let notice = decode(octets.get(2..2 + len)?).ok();
    octets.drain(..2 + len);
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
        for octet in stream {
            partial.push(octet);
            found.extend(next_notice(&mut partial));
        }
        assert_eq!(found, [throttled, ended]);
        assert!(partial.is_empty());
        let mut nonsense = vec![0xff; 20];
        assert_eq!(next_notice(&mut nonsense), None);
        assert!(nonsense.is_empty());
    }
}
