//! Checks that no datagrams make the server's UDP port panic, send more to an address than it sent,
//! or let an address join a session without answering its challenge.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_service::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::udp_port(bytes));
