//! `underload cache`: size and removal of the cache of simulated trials.

use clap::{Args, Subcommand};
use underload_run::cache::{Usage, prune, usage};
use underload_terminal::console::{self, count};
use underload_terminal::quantity::size;

#[derive(Debug, Args)]
#[command(after_help = "\
Runs of at least 32 simulated trials store them in $XDG_CACHE_HOME/underload (~/.cache/underload),
which holds at most 4 GiB. A run that is repeated after an interruption or a change computes only
the trials that are not stored.

Examples:
  underload cache size
  underload cache prune --to 1GiB")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints the number of stored trials and their size.
    #[command(after_help = "Examples:
  underload cache size
  underload cache size --json")]
    Size {
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Removes the oldest trials.
    #[command(after_help = "Examples:
  underload cache prune
  underload cache prune --to 500MiB")]
    Prune {
        /// Size of the cache afterwards, at most, such as 500MiB.
        #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0B")]
        to: u64,
        /// Prints number and size of the removed trials as one JSON document.
        #[arg(long)]
        json: bool,
    },
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let (what, usage, json) = match self.action {
            Action::Size { json } => ("", usage()?, json),
            Action::Prune { to, json } => ("removed ", prune(to)?, json),
        };
        if json {
            return console::print_json(&usage);
        }
        let Usage { folder, trials, bytes, .. } = &usage;
        let (trials, folder) = (count(*trials as usize, "trial"), folder.display());
        let megabytes = *bytes as f64 / 1e6;
        console::print(&format!("{what}{trials}, {megabytes:.1} MB in {folder}\n"))
    }
}
