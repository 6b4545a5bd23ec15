//! Checks that no text makes the SPEC parser panic, and that an accepted SPEC can be built and
//! prints as an equal SPEC.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_aqm::config::LinkFacts;
use underload_aqm::registry::{LinkSetup, QueueSetup};

fuzz_target!(|text: &str| {
    let facts = LinkFacts::default();
    if let Ok(queue) = QueueSetup::parse(text, &facts) {
        let label = queue.label.to_string();
        let again = QueueSetup::parse(&label, &facts).expect("its own label");
        assert_eq!(again.label.to_string(), label);
    }
    if let Ok(link) = LinkSetup::parse(text) {
        let label = link.label.to_string();
        assert!(LinkSetup::parse(&label).is_ok(), "its own label: {label}");
    }
});
