//! The server's side of the handshake that proves a UDP address (see
//! [`underload_probe::control::join`]).

use std::net::{IpAddr, SocketAddr};

use ring::hmac;
use subtle::ConstantTimeEq as _;
use underload_probe::control::join::{COOKIE_LEN, Kind, LEN, MAGIC, Message};
use underload_probe::load::Token;

/// A cookie is valid for this time slot and the next one.
const SLOT_NS: u64 = 10_000_000_000;

/// Returns true for a message of the handshake, even a malformed one.
pub(crate) fn is_join(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

/// Answers handshakes. The only state is a key.
pub(crate) struct AddressProof {
    key: hmac::Key,
}

impl AddressProof {
    /// `key` must be secret.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Writes the answer to `datagram` into `answer` and returns its length; `None` for no answer.
    /// `join` adds a proven address to a session.
    pub(crate) fn answer(
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
        let tag = hmac::sign(&self.key, &Self::cookie_input(from, slot));
        let mut cookie = [0; COOKIE_LEN];
        cookie.copy_from_slice(&tag.as_ref()[..COOKIE_LEN]);
        cookie
    }

    fn cookie_input(from: SocketAddr, slot: u64) -> [u8; 26] {
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
        // Compares both slots in constant time.
        let matches = |slot| bool::from(self.cookie(from, slot).ct_eq(cookie));
        matches(slot) | slot.checked_sub(1).is_some_and(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: Token = Token([9; 16]);

    fn answered(
        proof: &AddressProof,
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
        let len = proof.answer(message, from.parse().unwrap(), now_ns, &mut room, join)?;
        Some((Message::decode(&room[..len]).unwrap(), joined))
    }

    #[test]
    fn only_receivers_of_the_challenge_join_until_it_expires() {
        let proof = AddressProof::new(&[1; 32]);
        let hello = Message::new(Kind::Hello).encode();
        let (challenge, _) = answered(&proof, &hello, "192.0.2.1:5", 0).unwrap();
        assert_eq!(challenge.kind, Kind::Challenge);
        let join = Message { session: SESSION.0, cookie: challenge.cookie, kind: Kind::Join };
        let (joined, addresses) = answered(&proof, &join.encode(), "192.0.2.1:5", 0).unwrap();
        assert_eq!(joined.kind, Kind::Joined);
        assert_eq!(addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(answered(&proof, &join.encode(), "192.0.2.1:5", SLOT_NS).is_some());
        assert!(answered(&proof, &join.encode(), "192.0.2.1:5", 2 * SLOT_NS).is_none());
        assert!(answered(&proof, &join.encode(), "192.0.2.1:6", 0).is_none(), "another port");
        assert!(answered(&proof, &join.encode(), "192.0.2.2:5", 0).is_none(), "another address");
        let other_key = AddressProof::new(&[2; 32]);
        assert!(answered(&other_key, &join.encode(), "192.0.2.1:5", 0).is_none());
        let stranger = Message { session: [1; 16], ..join };
        let (unknown, _) = answered(&proof, &stranger.encode(), "192.0.2.1:5", 0).unwrap();
        assert_eq!(unknown.kind, Kind::Unknown);
    }

    proptest! {
        #[test]
        fn an_answer_is_never_longer_than_its_request(
            bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..7, cut in 0usize..60,
        ) {
            let proof = AddressProof::new(&[1; 32]);
            prop_assert_eq!(answered(&proof, &bytes, "192.0.2.1:5", 0), None);
            let mut message = [0; LEN];
            message[..4].copy_from_slice(&MAGIC);
            message[4] = kind;
            let message = &message[..cut.min(LEN)];
            if answered(&proof, message, "192.0.2.1:5", 0).is_some() {
                prop_assert_eq!(message.len(), LEN);
            }
        }
    }
}
