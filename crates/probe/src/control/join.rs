//! Proves a client's UDP address before any other UDP message.
//!
//! An address translator may map a client's UDP to another address than its TCP; the TCP handshake
//! then does not prove the UDP address. The client therefore starts a handshake over UDP: hello,
//! challenge, join, joined. All four messages have the same length, so that a forged source address
//! yields no amplification. The challenge carries a cookie, a keyed hash of address, port and time.
//! The server stores state only after the client returns the cookie, so a flood of forged hellos
//! allocates nothing.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | `JUL1` |
//! | 4 | 1 hello, 2 challenge, 3 join, 4 joined, 5 no such session |
//! | 8-23 | cookie of challenge and join, else zero |
//! | 24-39 | session of join, else zero |

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::load::Token;
use crate::network::is_temporary;

pub const MAGIC: [u8; 4] = *b"JUL1";
/// Bytes of every message.
pub const LEN: usize = 52;
pub const COOKIE_LEN: usize = 16;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Hello = 1,
    /// The server sends a cookie.
    Challenge = 2,
    /// The client returns the cookie, with its session.
    Join = 3,
    /// The server assigned the address to the session.
    Joined = 4,
    /// The server does not know the session.
    Unknown = 5,
}

/// A message of the handshake that proves an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The cookie in a challenge or a join; zero in other messages.
    pub cookie: [u8; COOKIE_LEN],
    /// The token of the session in a join; zero in other messages.
    pub session: [u8; 16],
}

impl Message {
    pub fn new(kind: Kind) -> Self {
        Self { kind, cookie: [0; COOKIE_LEN], session: [0; 16] }
    }

    pub fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..24].copy_from_slice(&self.cookie);
        bytes[24..40].copy_from_slice(&self.session);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let kinds = [Kind::Hello, Kind::Challenge, Kind::Join, Kind::Joined, Kind::Unknown];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[4])?;
        let mut message = Self::new(kind);
        message.cookie.copy_from_slice(&bytes[8..24]);
        message.session.copy_from_slice(&bytes[24..40]);
        (bytes[..4] == MAGIC).then_some(message)
    }
}

/// Number of messages that the client sends before it gives up. It waits [`TRY_TIMEOUT`] for the
/// answer to each.
const TRIES: u32 = 5;
const TRY_TIMEOUT: Duration = Duration::from_millis(400);

/// Proves the address of `socket`, which is connected to the server's UDP port: the client's side.
///
/// # Errors
/// Returns [`io::ErrorKind::TimedOut`] if the server does not answer, [`io::ErrorKind::NotFound`]
/// if it does not know the session.
pub fn join(socket: &UdpSocket, session: &Token) -> io::Result<()> {
    let join = |cookie| Message { cookie, session: session.0, ..Message::new(Kind::Join) };
    let mut cookie = None;
    for _ in 0..TRIES {
        let message = cookie.map_or(Message::new(Kind::Hello), join);
        // Ignore the error: a closed port may have answered "connection refused", but the server
        // may only be starting, so the next try may succeed.
        let _ = socket.send(&message.encode());
        let until = Instant::now() + TRY_TIMEOUT;
        while let Some(answer) = receive(socket, until)? {
            match answer.kind {
                Kind::Challenge if cookie.is_none() => {
                    cookie = Some(answer.cookie);
                    socket.send(&join(answer.cookie).encode())?;
                }
                Kind::Joined => return Ok(()),
                Kind::Unknown => return Err(io::ErrorKind::NotFound.into()),
                _ => {}
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn receive(socket: &UdpSocket, until: Instant) -> io::Result<Option<Message>> {
    let mut bytes = [0; 2 * LEN];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut bytes) {
            Ok(len) => {
                if let Some(message) = Message::decode(&bytes[..len]) {
                    return Ok(Some(message));
                }
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::thread::sleep(left);
            }
            Err(error) => return Err(error),
        }
    }
}
