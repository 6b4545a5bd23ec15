//! No bytes on the control connection make either end panic, and no token passes unsigned.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_probe::service::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::control_messages(bytes));
