//! Checks that no datagrams make the irtt responder panic, send more to an unproven address than it
//! sent, or exceed its number of sessions. An address that has used its token may get a larger
//! answer to an open request.
#![no_main]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use underload_probe::Instants;
use underload_compat::irtt::{IrttLimits, Responder, ResponderReply};
use underload_service::CompatLedger;

#[allow(clippy::unnecessary_wraps, reason = "the responder asks for a token that may be missing")]
fn token() -> Option<u64> {
    Some(0x0101_0101_0101_0101)
}

// Datagrams, each after its length. The second byte selects the sender, and whether the first four
// bytes and the token are made valid.
fuzz_target!(|bytes: &[u8]| {
    let limits = IrttLimits { sessions_max: 4, ..IrttLimits::default() };
    let mut responder = Responder::new(limits, None, CompatLedger::unlimited(), token);
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut now_ns = 0;
    // The bytes that each address sent and received, until it has used its token.
    let mut unproven: BTreeMap<SocketAddr, Option<(usize, usize)>> = BTreeMap::new();
    while let [len, hint, after @ ..] = rest {
        let (datagram, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        let mut datagram = datagram.to_vec();
        if hint & 1 == 0 && datagram.len() >= 12 {
            datagram[..3].copy_from_slice(&[0x14, 0xa7, 0x5b]);
            datagram[3] &= 5;
            if datagram[3] & 1 == 0 {
                datagram[4..12].fill(1);
            }
        }
        let client = SocketAddr::from(([192, 0, 2, hint >> 4], 1000));
        now_ns += u64::from(*hint) * 1_000_000;
        let now = Instants { run_ns: now_ns, unix_ns: now_ns };
        let reply = responder.answer(now, client, &datagram, || now, &mut out);
        let account = unproven.entry(client).or_insert(Some((0, 0)));
        let is_answered = matches!(reply, ResponderReply::Send { .. });
        if is_answered && datagram.get(3).is_some_and(|flags| flags & 1 == 0) {
            *account = None;
        }
        if let Some((received, sent)) = account {
            *received += datagram.len();
            *sent += if is_answered { out.len() } else { 0 };
            assert!(*sent <= *received, "{sent} bytes for {received}");
        }
        assert!(responder.sessions() <= 4);
    }
});
