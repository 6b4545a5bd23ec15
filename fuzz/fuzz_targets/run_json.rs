//! Checks that no bytes make the parser of run records panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_store::parse_run_json;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_run_json(bytes);
});
