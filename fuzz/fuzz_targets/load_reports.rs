//! Checks that no bytes from a server make the client of a load flow panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_probe::load::read_reports;

fuzz_target!(|bytes: &[u8]| read_reports(bytes));
