//! Checks that no text makes the scenario parser panic, and that its errors can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_scenario::Scenario;

fuzz_target!(|text: &str| {
    if let Err(error) = Scenario::parse(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
});
