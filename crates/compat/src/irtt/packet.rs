//! The fixed part of a packet: magic, flags, keyed digest, token, sequence number.
//!
//! Little-endian: `14 a7 5b` | flags | HMAC-MD5 (16, if flagged) | token u64 | sequence u32 | ...

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub kind: RequestKind,
    /// The parameters of an open request; of others, the bytes after the token.
    pub payload: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Requests a session; with `and_close`, only whether it would be granted.
    Open { and_close: bool },
    /// A probe. `sequence` is the client's count.
    Echo { token: u64, sequence: u32 },
    /// Ends the session of `token`.
    Close { token: u64 },
}

pub(super) const OPEN: u8 = 1;
pub(super) const REPLY: u8 = 2;
pub(super) const CLOSE: u8 = 4;
const HMAC: u8 = 8;
const FLAGS: u8 = OPEN | REPLY | CLOSE | HMAC;
const MAGIC: [u8; 3] = [0x14, 0xa7, 0x5b];
const HEADER_LEN: usize = 4;
const HMAC_LEN: usize = 16;

impl<'a> Request<'a> {
    /// Decodes a request; `None` for other packets and for a digest that is wrong, missing or
    /// unexpected. Such packets are not answered.
    pub fn decode(bytes: &'a [u8], key: Option<&[u8]>) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_LEN)?;
        let flags = header[3];
        if header[..3] != MAGIC || flags & !FLAGS != 0 || flags & REPLY != 0 {
            return None;
        }
        let rest = match (key, flags & HMAC != 0) {
            (None, false) => rest,
            (Some(key), true) => verified(key, header, rest)?,
            _ => return None,
        };
        if flags & OPEN != 0 {
            let kind = RequestKind::Open { and_close: flags & CLOSE != 0 };
            return Some(Self { kind, payload: rest });
        }
        let (token, payload) = rest.split_at_checked(8)?;
        let token = u64::from_le_bytes(token.try_into().ok()?);
        if flags & CLOSE != 0 {
            return Some(Self { kind: RequestKind::Close { token }, payload });
        }
        let sequence = u32::from_le_bytes(payload.get(..4)?.try_into().ok()?);
        Some(Self { kind: RequestKind::Echo { token, sequence }, payload })
    }
}

fn verified<'a>(key: &[u8], header: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    let (digest, body) = rest.split_at_checked(HMAC_LEN)?;
    // The digest covers the whole packet with the digest's bytes zeroed. The comparison takes
    // constant time.
    let state = digest_of(key)?.chain_update(header).chain_update([0; HMAC_LEN]);
    state.chain_update(body).verify_slice(digest).ok()?;
    Some(body)
}

fn digest_of(key: &[u8]) -> Option<Hmac<Md5>> {
    Hmac::<Md5>::new_from_slice(key).ok()
}

/// Begins a reply: magic, flags, space for the digest, token.
pub(super) fn begin(out: &mut Vec<u8>, flags: u8, token: u64, key: Option<&[u8]>) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.push(flags | REPLY | if key.is_some() { HMAC } else { 0 });
    if key.is_some() {
        out.extend_from_slice(&[0; HMAC_LEN]);
    }
    out.extend_from_slice(&token.to_le_bytes());
}

/// Writes the digest of a complete reply if there is a key.
pub(super) fn seal(out: &mut [u8], key: Option<&[u8]>) {
    let Some(digest) = key.and_then(digest_of).map(|state| state.chain_update(&*out).finalize())
    else {
        return;
    };
    if let Some(place) = out.get_mut(HEADER_LEN..HEADER_LEN + HMAC_LEN) {
        place.copy_from_slice(&digest.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_open_request_is_read() {
        // irtt 0.9.0, defaults with -d 1s -i 10ms -l 80.
        let bytes = [
            0x14, 0xa7, 0x5b, 0x01, 0x01, 0x02, 0x02, 0x80, 0xa8, 0xd6, 0xb9, 0x07, 0x03, 0x80,
            0xda, 0xc4, 0x09, 0x04, 0xa0, 0x01, 0x05, 0x06, 0x06, 0x06, 0x07, 0x06,
        ];
        let request = Request::decode(&bytes, None).unwrap();
        assert_eq!(request.kind, RequestKind::Open { and_close: false });
        let parameters = super::super::Parameters::decode(request.payload).unwrap();
        assert_eq!((parameters.duration_ns, parameters.interval_ns), (1_000_000_000, 10_000_000));
        assert_eq!((parameters.length, parameters.stamp_at, parameters.clock), (80, 3, 3));
        assert!(Request::decode(&bytes, Some(b"key")).is_none(), "a digest is demanded");
    }

    #[test]
    fn what_is_not_a_request_is_not_answered() {
        assert!(Request::decode(&[], None).is_none());
        assert!(Request::decode(&[0x14, 0xa7, 0x5b], None).is_none());
        assert!(Request::decode(&[0x14, 0xa7, 0x5b, 0x10], None).is_none(), "unknown flag");
        assert!(Request::decode(&[0x14, 0xa7, 0x5b, 0x03], None).is_none(), "a reply");
        assert!(Request::decode(&[0x14, 0xa7, 0x5b, 0, 1, 2], None).is_none(), "too short");
    }

    #[test]
    fn a_digest_is_checked_over_the_whole_packet() {
        let key = Some(b"secret".as_slice());
        let mut packet = Vec::new();
        begin(&mut packet, 0, 7, key);
        packet[3] &= !REPLY;
        packet.extend_from_slice(&5u32.to_le_bytes());
        seal(&mut packet, key);
        let request = Request::decode(&packet, key).unwrap();
        assert_eq!(request.kind, RequestKind::Echo { token: 7, sequence: 5 });
        assert!(Request::decode(&packet, Some(b"other")).is_none());
        assert!(Request::decode(&packet, None).is_none(), "a digest nobody asked for");
        packet[30] ^= 1;
        assert!(Request::decode(&packet, key).is_none());
    }
}
