//! `underload fleet audit`: prints the log of operators' actions.

use std::fmt::Write as _;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use underload_fleet::store::LogEntry;
use underload_orchestrator::store::Place;
use underload_record::text::one_line;
use underload_terminal::console;

use super::lines::moment;
use super::orchestrator::existing_store;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet audit --since 2026-11-30
  underload fleet audit --json --since 2026-11-30T04:00:00Z > audit.jsonl")]
pub(super) struct Arguments {
    /// Only entries from this day or time on, UTC.
    #[arg(long, value_name = "DATE", value_parser = moment, default_value = "1970-01-01",
        hide_default_value = true)]
    since: u64,
    /// Prints one JSON document a line.
    #[arg(long)]
    json: bool,
    /// The orchestrator's store: sqlite:DIR or postgres://USER@HOST/DATABASE [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let place = existing_store(self.store.as_ref())?;
        let entries = place.archive().and_then(|mut archive| archive.log(usize::MAX));
        let entries = entries.with_context(|| place.to_string())?;
        let mut text = String::new();
        for LogEntry { at_ms, who, what } in entries.iter().rev() {
            if *at_ms < self.since {
                continue;
            }
            let at = i64::try_from(*at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
            let at = at.map_or_else(String::new, |at| format!("{at:.3}"));
            let _ = if self.json {
                writeln!(text, "{}", json!({ "at": at, "who": who, "what": what }))
            } else {
                writeln!(text, "{at}  {}: {}", one_line(who), one_line(what))
            };
        }
        console::print(&text)
    }
}
