//! Checks that no datagram of STUN, DTLS or SCTP makes the server of a web page's channel panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_compat::channel::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::datagrams(bytes));
