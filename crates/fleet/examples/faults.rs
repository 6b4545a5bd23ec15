//! Fleets in which everything goes wrong: `faults [FLEETS] [FIRST_SEED]`.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::process::ExitCode;

use underload_fleet::faults::{Report, run};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (fleets, first) = (numbers.next().unwrap_or(1_000), numbers.next().unwrap_or(0));
    let mut all = Report::default();
    for seed in first..first + fleets {
        match run(seed) {
            Ok(report) => all.add(&report),
            Err(broken) => {
                println!("{broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{fleets} fleets, no promise broken: {all:?}");
    ExitCode::SUCCESS
}
