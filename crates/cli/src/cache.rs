//! `underload cache`: simulated trials that earlier runs kept.

use std::io::Write as _;

use anyhow::Context;
use clap::{Args, Subcommand};
use underload_run::cache::{Usage, prune, usage};
use underload_terminal::console::count;

use crate::quantity::size;

/// The command line of `underload cache`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs of 32 simulated trials and more keep them in $XDG_CACHE_HOME/underload (~/.cache/underload),
4 GiB at most: one that was interrupted goes on where it was, and one that was changed computes only
what is new.

Examples:
  underload cache size
  underload cache prune --to 1GiB")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Tells how many trials there are, and what they take.
    #[command(after_help = "Examples:
  underload cache size
  underload cache size --json")]
    Size {
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Removes the trials written longest ago.
    #[command(after_help = "Examples:
  underload cache prune
  underload cache prune --to 500MiB")]
    Prune {
        /// Until at most so much is left.
        #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0B")]
        to: u64,
        /// Prints what was removed as one JSON document.
        #[arg(long)]
        json: bool,
    },
}

impl Arguments {
    /// Does what was asked for.
    pub fn run(&self) -> anyhow::Result<()> {
        let (what, of, json) = match self.action {
            Action::Size { json } => ("", usage()?, json),
            Action::Prune { to, json } => ("removed ", prune(to)?, json),
        };
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, &of).context("writing JSON")?;
            return writeln!(out).context("writing JSON");
        }
        let Usage { folder, trials, bytes, .. } = &of;
        let (trials, folder) = (count(*trials as usize, "trial"), folder.display());
        let megabytes = *bytes as f64 / 1e6;
        writeln!(out, "{what}{trials}, {megabytes:.1} MB in {folder}").context("writing the size")
    }
}
