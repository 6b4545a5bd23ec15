//! `cargo xtask`: the checks that CI runs, and the benchmarks and figures of the documentation.

fn main() {}
