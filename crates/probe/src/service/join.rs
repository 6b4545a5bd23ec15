//! Proving a UDP address before anything else is said over UDP.
//!
//! An address translator may give a client's UDP another address than its TCP, and then the TCP
//! handshake proves nothing about it. The client therefore opens its UDP part: hello, challenge,
//! join, joined, all of the same length, so that nobody is sent more than he sent. The challenge is
//! a keyed hash of address, port and time; the server keeps nothing until it comes back, and a
//! flood of forged hellos allocates nothing.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | `JUL1` |
//! | 4 | 1 hello, 2 challenge, 3 join, 4 joined, 5 no such session |
//! | 8-23 | cookie of challenge and join, else zero |
//! | 24-39 | session of join, else zero |

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::load::Token;
use crate::network::is_temporary;

const MAGIC: [u8; 4] = *b"JUL1";
/// Bytes of every message.
const LEN: usize = 52;
const COOKIE_LEN: usize = 16;
/// A cookie is good for this long and as long again.
const SLOT_NS: u64 = 10_000_000_000;

/// The server's possible answers to a join message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Hello = 1,
    Challenge = 2,
    Join = 3,
    Joined = 4,
    Unknown = 5,
}

/// A join message: the session and flow that a UDP socket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    kind: Kind,
    cookie: [u8; COOKIE_LEN],
    session: [u8; 16],
}

impl Message {
    fn new(kind: Kind) -> Self {
        Self { kind, cookie: [0; COOKIE_LEN], session: [0; 16] }
    }

    fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..24].copy_from_slice(&self.cookie);
        bytes[24..40].copy_from_slice(&self.session);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let kind = match bytes[4] {
            1 => Kind::Hello,
            2 => Kind::Challenge,
            3 => Kind::Join,
            4 => Kind::Joined,
            5 => Kind::Unknown,
            _ => return None,
        };
        let mut message = Self::new(kind);
        message.cookie.copy_from_slice(&bytes[8..24]);
        message.session.copy_from_slice(&bytes[24..40]);
        (bytes[..4] == MAGIC).then_some(message)
    }
}

/// True for what belongs to [`Door`], well formed or not.
pub(super) fn is_join(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

/// The server's side: no state but a key.
pub(super) struct Door {
    key: hmac::Key,
}

impl Door {
    /// With a key that nobody else has.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Writes the answer to `datagram` into `answer`; its length. `None`: nothing is answered.
    /// `join` is asked to take an address that was proved into a session.
    pub(super) fn answer(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        now_ns: u64,
        answer: &mut [u8],
        join: impl FnOnce(&Token, IpAddr) -> bool,
    ) -> Option<usize> {
        let message = Message::decode(datagram)?;
        let reply = match message.kind {
            Kind::Hello => Message {
                cookie: self.cookie(from, now_ns / SLOT_NS),
                ..Message::new(Kind::Challenge)
            },
            Kind::Join if self.is_fresh(&message.cookie, from, now_ns) => {
                let joined = join(&Token(message.session), from.ip().to_canonical());
                Message::new(if joined { Kind::Joined } else { Kind::Unknown })
            }
            _ => return None,
        };
        answer.get_mut(..LEN)?.copy_from_slice(&reply.encode());
        Some(LEN)
    }

    fn cookie(&self, from: SocketAddr, slot: u64) -> [u8; COOKIE_LEN] {
        let tag = hmac::sign(&self.key, &Self::named(from, slot));
        let mut cookie = [0; COOKIE_LEN];
        cookie.copy_from_slice(&tag.as_ref()[..COOKIE_LEN]);
        cookie
    }

    fn named(from: SocketAddr, slot: u64) -> [u8; 26] {
        let mut name = [0; 26];
        let address = match from.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        name[..16].copy_from_slice(&address.octets());
        name[16..18].copy_from_slice(&from.port().to_be_bytes());
        name[18..].copy_from_slice(&slot.to_be_bytes());
        name
    }

    fn is_fresh(&self, cookie: &[u8; COOKIE_LEN], from: SocketAddr, now_ns: u64) -> bool {
        let slot = now_ns / SLOT_NS;
        // In the same time wherever it differs, and both, whichever is right.
        let matches = |slot| bool::from(self.cookie(from, slot).ct_eq(cookie));
        matches(slot) | slot.checked_sub(1).is_some_and(matches)
    }
}

/// Number of join messages that the client sends before it gives up, and how long it waits for
/// each.
const TRIES: u32 = 5;
const TRY_TIMEOUT: Duration = Duration::from_millis(400);

/// The client's side: proves the address of `socket`, which is connected to the server's UDP port.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the server does not answer, [`io::ErrorKind::NotFound`] if it has
/// no such session, and what the kernel says.
pub(super) fn join(socket: &UdpSocket, session: &Token) -> io::Result<()> {
    let mut cookie = None;
    for _ in 0..TRIES {
        let message = match cookie {
            None => Message::new(Kind::Hello),
            Some(cookie) => Message { cookie, session: session.0, ..Message::new(Kind::Join) },
        };
        // A port that nobody listens at may say so; it may also only be starting.
        let _ = socket.send(&message.encode());
        let until = Instant::now() + TRY_TIMEOUT;
        while let Some(answer) = receive(socket, until)? {
            match answer.kind {
                Kind::Challenge if cookie.is_none() => {
                    cookie = Some(answer.cookie);
                    let join = Message {
                        cookie: answer.cookie,
                        session: session.0,
                        ..Message::new(Kind::Join)
                    };
                    socket.send(&join.encode())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: Token = Token([9; 16]);

    fn answered(
        door: &Door,
        message: &[u8],
        from: &str,
        now_ns: u64,
    ) -> Option<(Message, Vec<IpAddr>)> {
        let mut room = [0; LEN];
        let mut joined = Vec::new();
        let join = |session: &Token, address| {
            joined.push(address);
            *session == SESSION
        };
        let len = door.answer(message, from.parse().unwrap(), now_ns, &mut room, join)?;
        Some((Message::decode(&room[..len]).unwrap(), joined))
    }

    #[test]
    fn only_who_receives_the_challenge_joins_and_only_for_a_while() {
        let door = Door::new(&[1; 32]);
        let hello = Message::new(Kind::Hello).encode();
        let (challenge, _) = answered(&door, &hello, "192.0.2.1:5", 0).unwrap();
        assert_eq!(challenge.kind, Kind::Challenge);
        let join = Message { session: SESSION.0, cookie: challenge.cookie, kind: Kind::Join };
        let (joined, addresses) = answered(&door, &join.encode(), "192.0.2.1:5", 0).unwrap();
        assert_eq!(joined.kind, Kind::Joined);
        assert_eq!(addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(answered(&door, &join.encode(), "192.0.2.1:5", SLOT_NS).is_some());
        assert!(answered(&door, &join.encode(), "192.0.2.1:5", 2 * SLOT_NS).is_none());
        assert!(answered(&door, &join.encode(), "192.0.2.1:6", 0).is_none(), "another port");
        assert!(answered(&door, &join.encode(), "192.0.2.2:5", 0).is_none(), "another address");
        assert!(answered(&Door::new(&[2; 32]), &join.encode(), "192.0.2.1:5", 0).is_none());
        let stranger = Message { session: [1; 16], ..join };
        let (unknown, _) = answered(&door, &stranger.encode(), "192.0.2.1:5", 0).unwrap();
        assert_eq!(unknown.kind, Kind::Unknown);
    }

    proptest! {
        #[test]
        fn no_bytes_draw_more_than_themselves(
            bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..7, cut in 0usize..60,
        ) {
            let door = Door::new(&[1; 32]);
            prop_assert_eq!(answered(&door, &bytes, "192.0.2.1:5", 0), None);
            let mut message = [0; LEN];
            message[..4].copy_from_slice(&MAGIC);
            message[4] = kind;
            let message = &message[..cut.min(LEN)];
            if answered(&door, message, "192.0.2.1:5", 0).is_some() {
                prop_assert_eq!(message.len(), LEN);
            }
        }
    }
}
