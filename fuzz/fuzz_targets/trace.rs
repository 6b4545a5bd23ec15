//! Checks that no bytes make the trace parser panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_aqm::link::Trace;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = Trace::parse(bytes) {
        assert!(trace.duration().as_nanos() > 0);
    }
});
