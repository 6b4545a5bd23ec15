//! Entry points into this crate for the fuzz targets, compiled for them alone.

use std::net::{IpAddr, SocketAddr};

use underload_probe::load::{Token, UdpFlows};

use crate::front::{AddressProof, is_join};
use crate::tokens::TokenKeys;

/// Panics if `text` is a token that the server's keys signed: no input can know the keys.
pub fn no_token(text: &str) {
    if let Ok(keys) = TokenKeys::for_fuzzing() {
        assert!(!keys.signed(text), "a token without a valid signature was accepted");
    }
}

/// Sends datagrams from eight addresses to the server's UDP port. No address receives more bytes
/// than it sent, and none joins a session except one that answered its challenge within twenty
/// seconds.
pub fn udp_port(bytes: &[u8]) {
    let proof = AddressProof::new(&[1; 32]);
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
        let Some(length) = proof.answer(&datagram, from, now_ns, &mut answer, join) else {
            assert_eq!(joined, None);
            continue;
        };
        assert!(length <= datagram.len());
        if let Some(address) = joined {
            assert_eq!(address, from.ip());
            let (at_ns, cookie) =
                challenged[source].expect("an address joined without a challenge");
            assert!(now_ns - at_ns <= 20_000_000_000 && datagram[8..24] == cookie);
        } else if let Some(cookie) = answer.get(8..24).and_then(|it| it.try_into().ok()) {
            challenged[source] = Some((now_ns, cookie));
        }
    }
}

/// Turns a datagram into a well-formed hello or join if `hint` selects it: random bytes hardly ever
/// form one.
fn make_likely(datagram: &mut Vec<u8>, hint: u8, cookie: Option<[u8; 16]>) {
    if hint.is_multiple_of(4) {
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
