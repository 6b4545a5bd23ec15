//! Checks any text as the plan of a fleet: it is a plan whose load consists of finite numbers, or
//! an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_fleet::plan::{Load, Plan};

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::parse(text) else { return };
    let load = Load::of(&plan);
    let up_and_down = |pair: underload_fleet::plan::Directions| [pair.up, pair.down];
    let numbers = [load.runs_per_s, load.requests_per_s, load.stored_bytes_per_day];
    let numbers = numbers.into_iter().chain(up_and_down(load.servers_bit_per_s));
    let numbers = numbers.chain(up_and_down(load.servers_reserved_percent));
    for number in numbers.chain([load.line_bytes_per_month]) {
        assert!(number.is_finite() && number >= 0.0, "{number}");
    }
    assert!((0.0..=100.000_001).contains(&load.blocked_percent), "{}", load.blocked_percent);
    let overlap = load.segment_overlap_percent.unwrap_or(0.0);
    assert!((0.0..=100.0).contains(&overlap), "{overlap}");
    load.excesses(&plan);
});
