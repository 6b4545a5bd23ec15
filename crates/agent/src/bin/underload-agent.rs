//! The agent alone, for machines with little memory. `underload fleet agent` does the same.

#![expect(
    clippy::print_stderr,
    reason = "a program without the options of a terminal: it prints only warnings and errors"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use underload_agent::arguments::Arguments;
use underload_agent::device::{self, End};

/// Measures this line by a plan, as an orchestrator permits.
#[derive(Debug, Parser)]
#[command(version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    let program = Program::parse();
    let stop = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the program at once.
        let watched = flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)));
        if let Err(error) = watched {
            eprintln!("watching for signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    match device::run(program.arguments.config(&stop), &stop, &|words| eprintln!("{words}")) {
        Ok(End::Stopped) => ExitCode::SUCCESS,
        Ok(End::Removed) => {
            eprintln!("an orchestrator has removed this device: it stops for good");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            let mut reason = std::error::Error::source(&error);
            while let Some(error) = reason {
                eprintln!("  because: {error}");
                reason = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
