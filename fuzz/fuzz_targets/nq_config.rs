//! Checks that no bytes make the parsers of responsiveness configurations and URLs panic, and that
//! an accepted URL prints its host and port again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_compat::nq::{NqConfig, NqTarget};

fuzz_target!(|bytes: &[u8]| {
    let _ = NqConfig::decode(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(target) = NqTarget::parse(text) {
        let again = NqTarget::parse(&format!("https://{}{}", target.authority(), target.path));
        assert!(again.is_ok_and(|again| again == target), "{text}");
    }
    if let Some(json) = NqConfig::encode_for(text) {
        assert!(NqConfig::decode(&json).is_ok(), "{text}");
    }
});
