//! Checks that no capture and no packet script makes the readers of `underload replay` panic, and
//! that the packets are in order of time.
#![no_main]
#![allow(dead_code, reason = "the program's own files, of which a part is enough here")]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;

// The readers are part of a program, not of a library.
#[path = "../../crates/cli/src/replay"]
pub mod replay {
    pub mod arrival;
    pub mod capture;
    pub mod filter;
    pub mod input;
    pub mod order;
    pub mod script;
}

use replay::filter::Filter;

fuzz_target!(|bytes: &[u8]| {
    // Half of the inputs are read without a filter.
    let text = if bytes.len().is_multiple_of(2) { "port 443" } else { "host ::1 udp" };
    let filter = if bytes.len() % 4 < 2 { Ok(Filter::default()) } else { text.parse() };
    let Ok(filter) = filter else { return };
    let Ok(arrivals) = replay::input::read(Cursor::new(bytes.to_vec()), &filter) else { return };
    let mut last = None;
    for arrival in arrivals {
        let Ok(arrival) = arrival else { return };
        assert!(last.is_none_or(|last| last <= arrival.time));
        last = Some(arrival.time);
    }
});
