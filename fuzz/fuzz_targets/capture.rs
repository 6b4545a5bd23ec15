//! Checks that no capture and no packet script makes the reader of `underload replay` panic, and
//! that the packets are in order of time.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use underload_run::recording::Recording;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = Recording::read(Cursor::new(bytes.to_vec())) else { return };
    let mut last = None;
    for arrival in recording {
        let Ok(arrival) = arrival else { return };
        assert!(last.is_none_or(|last| last <= arrival.time));
        last = Some(arrival.time);
    }
});
