//! Checks that no ICMP message makes the parser of quoted headers panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_probe::path::read_quotes;

fuzz_target!(|bytes: &[u8]| read_quotes(bytes));
