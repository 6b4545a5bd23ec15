//! Checks for any bytes that decoding, both text forms and the checks neither panic nor lose a
//! byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_docsis::check::check;
use underload_docsis::mic::Secret;
use underload_docsis::{Config, Limits, text};

fuzz_target!(|bytes: &[u8]| {
    let secret = Secret::new(b"fuzz");
    for finding in check(bytes, Some(&secret)) {
        assert!(finding.offset <= bytes.len());
    }
    let Ok((config, defects)) = Config::decode_lenient(bytes, &Limits::default()) else { return };
    assert_eq!(Config::decode(bytes).is_ok(), defects.is_empty());
    assert_eq!(config.encode().as_deref(), Ok(bytes));
    assert_eq!(config.describe().bytes, bytes.len());

    let toml = text::to_toml(&config);
    let read = text::from_toml(&toml).expect("our own TOML");
    assert_eq!(read.encode().as_deref(), Ok(bytes));

    let main = text::to_main(&config);
    let mut sealed = text::from_main(&main).expect("our own Main form");
    if sealed.seal(Some(&secret)).is_ok() {
        let bytes = sealed.encode().expect("a sealed file has bytes");
        assert_eq!(bytes.len() % 4, 0);
    }
    let mut resealed = config;
    let _ = resealed.seal(Some(&secret));
});
