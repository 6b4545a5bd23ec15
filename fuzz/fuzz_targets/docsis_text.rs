//! Checks for any text that both readers reject it or return a file that can be encoded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_docsis::text;

fuzz_target!(|text: &str| {
    for config in [text::from_toml(text), text::from_main(text)].into_iter().flatten() {
        let bytes = config.encode().expect("what was read has bytes");
        let again = text::from_toml(&text::to_toml(&config)).expect("our own TOML");
        assert_eq!(again.encode().expect("bytes"), bytes);
    }
});
