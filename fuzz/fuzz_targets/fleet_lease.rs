//! Checks any text as a lease, a session, or a request's authentication: an unsigned one is
//! rejected, and parsing a signed one does not panic.

#![no_main]

use std::sync::LazyLock;

use data_encoding::BASE64URL_NOPAD;
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_fleet::device::DeviceId;
use underload_fleet::lease::Claims;
use underload_fleet::request::{
    Authenticated, SessionSecrets, authenticate, holder, open_session, sender,
};

const NOW_MS: u64 = 1_800_000_000_000;
const SECRET: [u8; 32] = [9; 32];
const DEVICE: DeviceId = DeviceId([3; 16]);

static KEY: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("any seed is a key"));
static OPENED: LazyLock<SessionSecrets> =
    LazyLock::new(|| open_session(&SECRET, DEVICE, NOW_MS + 1_000));

fuzz_target!(|text: &str| {
    let mut keys = [[0; 32]];
    keys[0].copy_from_slice(KEY.public_key().as_ref());
    // The text as an attacker would present it.
    assert!(Claims::verify(text, &keys, "east", NOW_MS).is_err());
    // A lease that an orchestrator signs can be parsed.
    let signature = BASE64URL_NOPAD.encode(KEY.sign(text.as_bytes()).as_ref());
    let lease = format!("ull1.{}.{signature}", BASE64URL_NOPAD.encode(text.as_bytes()));
    if let Ok(claims) = Claims::verify(&lease, &keys, "east", NOW_MS) {
        assert_eq!(Claims::verify(&claims.sign(&KEY), &keys, "east", NOW_MS), Ok(claims));
    }

    if text != OPENED.session {
        assert!(holder(&SECRET, NOW_MS, text).is_err());
    }
    let (method, target, at_ms, body) = ("POST", "/v1/results", NOW_MS, b"{}");
    let tag = authenticate(&OPENED.key, method, target, at_ms, body);
    let good = Authenticated { session: &OPENED.session, tag: &tag, at_ms, method, target, body };
    let is_believed = |it: &Authenticated<'_>| sender(&SECRET, NOW_MS, it).is_ok();
    assert!(is_believed(&good));
    let changed = [
        (Authenticated { tag: text, ..good }, tag == text),
        (Authenticated { method: text, ..good }, method == text),
        (Authenticated { target: text, ..good }, target == text),
        (Authenticated { body: text.as_bytes(), ..good }, text == "{}"),
        (Authenticated { session: text, ..good }, text == OPENED.session),
    ];
    for (request, is_the_same) in changed {
        assert_eq!(is_believed(&request), is_the_same, "{request:?}");
    }
});
