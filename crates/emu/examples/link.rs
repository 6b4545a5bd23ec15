//! Runs a command behind an emulated link: `cargo run -p underload-emu --example link -- --up 5mbit
//! --down 20mbit:delay=10ms -- ping -c 3 1.1.1.1`
#![expect(clippy::print_stderr, reason = "prose goes to stderr")]

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_emu::command::LinkCommand;
use underload_emu::gateway::{GatewayConfig, LaneConfig};
use underload_emu::machine::privilege;

#[derive(Parser)]
struct Options {
    #[arg(long, default_value = "10mbit")]
    up: String,
    #[arg(long, default_value = "10mbit")]
    down: String,
    #[arg(long, default_value = "fifo:limit=256KiB")]
    queue: String,
    #[arg(long)]
    log: Option<PathBuf>,
    #[arg(last = true)]
    command: Vec<OsString>,
}

fn main() -> Result<()> {
    let privilege = privilege::enter_with_internet()?;
    let options = Options::parse();
    let lane = |link: &str| -> Result<LaneConfig> {
        let link = LinkSetup::parse(link)?;
        let queue = QueueSetup::parse(&options.queue, &link.facts())?;
        Ok(LaneConfig { link, queue })
    };
    let gateway = GatewayConfig::new(lane(&options.up)?, lane(&options.down)?);
    let Options { command, log, .. } = options;
    let command = LinkCommand { gateway, command, log, keeps_stdout: false };
    let outcome = match command.run(privilege, &mut |note| eprintln!("underload: {note}")) {
        Ok(outcome) => outcome,
        Err(error) => match error.exit_status() {
            Some(status) => std::process::exit(status.into()),
            None => return Err(error.into()),
        },
    };
    let status = outcome.status;
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
}
