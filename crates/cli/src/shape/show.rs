//! `underload shape show`: what the queues of shaped devices do.

use clap::Args;
use underload_shape::machine::{Overview, Session};
use underload_terminal::console::{self, warning};
use underload_terminal::exit::causes;

use super::require_rights;

#[derive(Debug, Args)]
#[command(after_help = "\
Counts are those since the device is shaped. The delay is that which the queue measures of recent
packets (CAKE, CoDel, PIE).

Examples:
  sudo underload shape show
  sudo watch --interval 1 underload shape show
  sudo underload shape show --json | jq '.devices[].up.counts.dropped'")]
pub struct Arguments {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        require_rights("shape", "show")?;
        let (shaped, errors) = Session::open()?.list()?;
        for error in errors {
            warning!("warning: {}", causes(&error.into()).join(": "));
        }
        let overview = Overview::new(shaped);
        console::print_as(self.json, &overview, || overview.to_text())
    }
}
