//! Checks that no text makes the parser of sweep files panic, and that every cell of a valid file
//! can be computed.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use underload_scenario::source::Source;
use underload_run::sweep::Sweep;

const SCENARIO: &str = r#"
[path]
up = "5mbit"
rtt = "10ms"
up_queue = "fifo:limit=64KiB"
[phases]
load = "200ms"
[[flow]]
name = "bulk"
kind = "tcp"
direction = "up"
congestion_control = "cubic"
[[flow]]
kind = "probe"
interval = "5ms"
"#;

fuzz_target!(|text: &str| {
    let scenario = Source { name: "scenario.toml".to_owned(), text: SCENARIO.to_owned() };
    match Sweep::parse(text, "fuzz.toml", Some(scenario), "fuzz", BTreeMap::new()) {
        Ok(sweep) => {
            let last = sweep.manifest.cells - 1;
            for cell in [0, last / 3, last] {
                assert_eq!(sweep.values(cell).len(), sweep.manifest.columns.axes.len());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
