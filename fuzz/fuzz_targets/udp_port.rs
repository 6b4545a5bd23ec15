//! No datagrams make the server's UDP port panic, send an address more than it sent, or let an
//! address into a session that did not answer its challenge.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_service::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::udp_port(bytes));
