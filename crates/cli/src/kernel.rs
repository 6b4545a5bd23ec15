//! `underload kernel`: the kernel of the worlds `kernel` and `kernel-tcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use underload_emu::guest::Image;
use underload_run::world::kernel::{directory, guest, label};
use underload_terminal::console;
use underload_terminal::exit::OrBadInput as _;

/// The command line of `underload kernel`.
#[derive(Debug, Args)]
#[command(after_help = "\
`underload run SCENARIO --world kernel` runs a scenario with Linux's own TCP and queues in virtual
time, `--world kernel-tcp` with its TCP before our queues. Both need a User-Mode Linux with time
travel, which `cargo xtask kernel` builds. The variable UNDERLOAD_KERNEL names another one for a
single run.

Examples:
  underload kernel install target/kernel/linux
  underload kernel status")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Checks a kernel and installs it for this user, instead of the one before.
    #[command(after_help = "Examples:
  underload kernel install target/kernel/linux")]
    Install {
        /// The kernel: a program named `linux`.
        file: PathBuf,
    },
    /// Prints which kernel the worlds `kernel` and `kernel-tcp` run.
    #[command(after_help = "Examples:
  underload kernel status")]
    Status,
    /// Runs the first process of a guest.
    #[command(hide = true)]
    Guest,
}

/// Installs or shows the kernel, or is a guest's first process.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let image = match &arguments.action {
        Action::Install { file } => Image::open(file).or_bad_input()?.install(&directory()?)?,
        Action::Status => Image::find(&directory()?).or_bad_input()?,
        Action::Guest => return Ok(guest::run()?),
    };
    console::print(&format!("{}\n{}\n", label(&image), image.path().display()))
}
