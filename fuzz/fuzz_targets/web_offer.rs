//! Checks that no bytes make the parser of a browser's offer panic, and that the fields copied into
//! the answer contain no line breaks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_compat::channel::Offer;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(offer) = Offer::parse(text) {
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(is_plain(&offer.mid) && is_plain(&offer.name), "{text}");
    }
});
