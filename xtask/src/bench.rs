//! The benchmarks behind the numbers in the docs, by name.

use std::process::Command;

use anyhow::bail;

use crate::checks::succeed;

struct Bench {
    name: &'static str,
    what: &'static str,
    command: &'static [&'static str],
}

const BENCHES: &[Bench] = &[Bench {
    name: "queues",
    what: "nanoseconds per packet of every discipline beside a plain ring buffer",
    command: &["bench", "--package", "underload-aqm", "--bench", "queues", "--", "--table"],
}];

/// Runs the benchmark that is named first, with the other arguments for it.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        for bench in BENCHES {
            println!("{:<12}{}", bench.name, bench.what);
        }
        return Ok(());
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == *name) else {
        let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("there is no benchmark `{name}`; known: {}", known.join(", "));
    };
    succeed(Command::new("cargo").args(bench.command).args(rest))
}
