//! The `underload-fleet` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    underload_fleet_cli::main()
}
