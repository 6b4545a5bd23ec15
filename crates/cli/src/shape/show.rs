//! `underload shape show`: what the queues of shaped devices do.

use std::time::{Duration, Instant};

use clap::Args;
use underload_shape::machine::{Overview, Session};
use underload_terminal::console::{self, warning};
use underload_terminal::exit::causes;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity;

use super::require_rights;

#[derive(Debug, Args)]
#[command(after_help = "\
Counts are those since the device is shaped. The delay is that which the queue measures of recent
packets (CAKE, CoDel, PIE).

Examples:
  sudo underload shape show
  sudo underload shape show --every 1s
  sudo underload shape show --json | jq '.devices[].up.counts.dropped'")]
pub struct Arguments {
    /// Prints JSON; with --every, a document on each line.
    #[arg(long)]
    json: bool,
    /// Shows the present rates again and again, until Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = quantity::from_to("100ms", "1h"))]
    every: Option<Duration>,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        require_rights("shape", "show")?;
        let session = Session::open()?;
        let overview = |before: Option<(Duration, &Overview)>| -> anyhow::Result<Overview> {
            let (shaped, errors) = session.list()?;
            for error in errors {
                warning!("warning: {}", causes(&error.into()).join(": "));
            }
            Ok(Overview::new(shaped, before))
        };
        let Some(every) = self.every else {
            let overview = overview(None)?;
            return console::print_as(self.json, &overview, || overview.to_text());
        };
        let interrupt = Interrupt::watch()?;
        let mut before: Option<(Instant, Overview)> = None;
        while !interrupt.is_requested() {
            let now = Instant::now();
            let shown = overview(before.as_ref().map(|(then, before)| (now - *then, before)))?;
            if self.json {
                console::print(&format!("{}\n", serde_json::to_string(&shown)?))?;
            } else {
                console::print(&shown.to_lines())?;
            }
            before = Some((now, shown));
            sleep(every, &interrupt);
        }
        Ok(())
    }
}

/// Sleeps for `time`, or until Ctrl-C.
fn sleep(time: Duration, interrupt: &Interrupt) {
    let end = Instant::now() + time;
    while !interrupt.is_requested() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
