//! No bytes make the parser of a browser's offer panic; what it takes over into the answer is of
//! one line.
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
