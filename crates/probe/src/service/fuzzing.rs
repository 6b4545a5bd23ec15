//! Doors into this module for the fuzz targets, compiled for them alone.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::next_notice;
use super::join::{Door, is_join};
use super::message::{Answer, Notice, Question, body_len, decode, encode};
use super::token::TokenKeys;
use crate::load::{Token, UdpFlows};

/// Reads any bytes as every message of the control connection; what is read survives being said
/// again.
pub fn control_messages(bytes: &[u8]) {
    survives::<Question>(bytes);
    survives::<Answer>(bytes);
    survives::<Notice>(bytes);
    if let Some(length) = bytes.first_chunk() {
        let _ = body_len(*length);
    }
    let mut stream = bytes.to_vec();
    while next_notice(&mut stream).is_some() {}
    if let (Ok(text), Ok(keys)) = (std::str::from_utf8(bytes), TokenKeys::for_fuzzing()) {
        assert!(!keys.signed(text), "a token that nobody signed");
    }
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(message) = decode::<T>(bytes) else { return };
    let Ok(said) = encode(&message) else { return };
    let again: T = decode(&said[2..]).expect("its own words");
    assert_eq!(again, message);
}

/// Plays datagrams from eight addresses to the server's UDP port. No address is sent more than it
/// sent, and none joins a session but one that answered its challenge within twenty seconds.
pub fn udp_port(bytes: &[u8]) {
    let door = Door::new(&[1; 32]);
    let flows = UdpFlows::default();
    let mut challenged: [Option<(u64, [u8; 16])>; 8] = [None; 8];
    let mut now_ns = 0;
    let mut rest = bytes;
    while let [length, hint, pause, after @ ..] = rest {
        let (datagram, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        now_ns += u64::from(*pause) * 200_000_000;
        let source = usize::from(hint & 7);
        let from = SocketAddr::from(([192, 0, 2, source as u8], 1000));
        let mut datagram = datagram.to_vec();
        make_likely(&mut datagram, hint >> 3, challenged[source].map(|(_, cookie)| cookie));
        let mut joined = None;
        let mut answer = vec![0; datagram.len()];
        let join = |_: &Token, address: IpAddr| {
            joined = Some(address);
            true
        };
        if !is_join(&datagram) {
            let _ = flows.offer(&datagram, from);
            continue;
        }
        let Some(length) = door.answer(&datagram, from, now_ns, &mut answer, join) else {
            assert_eq!(joined, None);
            continue;
        };
        assert!(length <= datagram.len());
        if let Some(address) = joined {
            assert_eq!(address, from.ip());
            let (at_ns, cookie) = challenged[source].expect("nobody joins without a challenge");
            assert!(now_ns - at_ns <= 20_000_000_000 && datagram[8..24] == cookie);
        } else if let Some(cookie) = answer.get(8..24).and_then(|it| it.try_into().ok()) {
            challenged[source] = Some((now_ns, cookie));
        }
    }
}

/// Turns a datagram into a well-formed hello or join where `hint` says so, since chance alone
/// would hardly ever write one.
fn make_likely(datagram: &mut Vec<u8>, hint: u8, cookie: Option<[u8; 16]>) {
    if hint & 3 == 0 {
        return;
    }
    datagram.resize(52, 0);
    datagram[..4].copy_from_slice(b"JUL1");
    if hint & 3 == 1 {
        datagram[4] = 1;
    } else if let Some(cookie) = cookie {
        datagram[4] = 3;
        datagram[8..24].copy_from_slice(&cookie);
    }
}
