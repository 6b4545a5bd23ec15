//! Entry point of the program `underload-fleet`; its commands are in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    underload_fleet_cli::main()
}
