//! No datagrams make the irtt responder panic, send an unproven address more than it sent, answer
//! with more bytes than the request, or keep more sessions than its limit.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use underload_probe::Instants;
use underload_compat::irtt::{IrttLimits, Responder, ResponderReply};
use underload_probe::service::CompatLedger;

fn token() -> Option<u64> {
    Some(0x0101_0101_0101_0101)
}

// Datagrams, each after its length; the second byte says who sends and whether the first four
// bytes and the token are made right.
fuzz_target!(|bytes: &[u8]| {
    let limits = IrttLimits { sessions_max: 4, ..IrttLimits::default() };
    let mut responder = Responder::new(limits, None, CompatLedger::unlimited(), token);
    let mut out = Vec::new();
    let mut rest = bytes;
    let (mut now_ns, mut received, mut sent) = (0, 0, 0);
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
        received += datagram.len();
        if matches!(reply, ResponderReply::Send { .. }) {
            sent += out.len();
        }
        assert!(responder.sessions() <= 4);
        assert!(sent <= received, "{sent} bytes for {received}");
    }
});
