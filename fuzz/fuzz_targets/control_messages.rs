//! Checks that no bytes on the control connection make either end panic, that a parsed message
//! survives being written and parsed again, and that no token is accepted without a signature.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_probe::control::{Answer, Notice, Question, body_len, decode, encode, next_notice};
use underload_service::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    survives::<Question>(bytes);
    survives::<Answer>(bytes);
    survives::<Notice>(bytes);
    if let Some(length) = bytes.first_chunk() {
        let _ = body_len(*length);
    }
    let mut stream = bytes.to_vec();
    while next_notice(&mut stream).is_some() {}
    if let Ok(text) = std::str::from_utf8(bytes) {
        fuzzing::no_token(text);
    }
});

fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(message) = decode::<T>(bytes) else { return };
    let Ok(said) = encode(&message) else { return };
    let again: T = decode(&said[2..]).expect("its own words");
    assert_eq!(again, message);
}
