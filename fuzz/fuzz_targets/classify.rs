//! Checks that no bytes make the classifier panic or return positions outside of the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_emu::packet::{FlowKey, classify};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = classify(bytes, FlowKey(1)) {
        let layout = found.layout;
        assert!(layout.length as usize <= bytes.len());
        assert!(u32::from(layout.transport) <= layout.length);
        assert!(layout.tcp_payload.is_none_or(|payload| u32::from(payload) <= layout.length));
    }
});
