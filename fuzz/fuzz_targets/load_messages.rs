//! Checks that no bytes make the load protocol's parsers panic, and that an accepted request can be
//! sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_probe::load::{Request, Response};

fuzz_target!(|bytes: &[u8]| {
    let mut request = [0; Request::LEN];
    let len = bytes.len().min(request.len());
    request[..len].copy_from_slice(&bytes[..len]);
    if let Ok(decoded) = Request::decode(&request) {
        let again = decoded.encode().and_then(|bytes| Request::decode(&bytes));
        assert!(again.is_ok_and(|again| again == decoded));
    }
    if let Some((head, reason)) = bytes.split_first_chunk() {
        let _ = Response::decode(head, reason);
    }
});
