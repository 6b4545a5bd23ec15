//! Checks that no bytes make the parsers of an ndt7 server's messages, of a locate service's
//! answers and of addresses panic, that parsed values are within their limits, and that no
//! signature is shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_compat::ndt7::{Measurement, Ndt7Target, read_located};

fuzz_target!(|bytes: &[u8]| {
    for is_public in [true, false] {
        let Ok(found) = read_located(bytes, is_public) else { continue };
        assert!(!found.is_empty() && found.iter().all(|it| !it.target.name.contains('?')));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(read) = Measurement::decode(text) {
        assert!(read.rtt_us.is_none_or(|us| us > 0.0 && us < 1e9));
        assert!(read.sent_again_percent().is_none_or(|it| (0.0..=100.0).contains(&it)));
    }
    if let Ok(target) = Ndt7Target::of_host(text) {
        assert!(Ndt7Target::of_host(&format!("ndt7://{}", target.name)).is_ok(), "{text}");
    }
    let _ = Ndt7Target::of_urls(text, text);
});
