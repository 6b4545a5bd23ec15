//! The tests of the examples, which say what the examples show.

#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../examples/codel_in_my_simulator.rs"]
mod codel_in_my_simulator;
#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../examples/dualpi2_shares.rs"]
mod dualpi2_shares;
