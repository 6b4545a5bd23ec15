//! `underload link --meter`: rates, queues and drops of the links in the terminal's last line.
//!
//! The line is outside the scrolling region, so the command has the rest of the terminal. A
//! full-screen program may overwrite the line until it is drawn again.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use ::console::Term;
use underload_emu::command::Watch;
use underload_emu::gateway::{LaneConfig, Reading};
use underload_terminal::exit::refuse;

use crate::measure::view::BLOCKS;

#[derive(Debug)]
pub struct Meter {
    /// Names of the links, up first.
    links: [String; 2],
    before: Option<(Instant, [Reading; 2])>,
    /// Rows of the terminal when the scrolling region was set.
    rows: u16,
    /// The newest `LOOKS` backlogs up and down, bytes.
    backlogs: [Vec<u64>; 2],
}

/// Number of readings that the picture of a queue shows.
const LOOKS: usize = 16;

impl Meter {
    /// Takes the links, up first. Refuses if stderr is not a terminal.
    pub fn new(lanes: [&LaneConfig; 2]) -> anyhow::Result<Self> {
        if !io::stderr().is_terminal() {
            refuse!("--meter needs a terminal on stderr; --log DIR writes the numbers to files");
        }
        let links = lanes.map(|lane| lane.link.label.to_string());
        Ok(Self { links, before: None, rows: 0, backlogs: [Vec::new(), Vec::new()] })
    }

    fn line(&mut self, now: Instant, readings: &[Reading; 2], columns: usize) -> String {
        let before = self.before.replace((now, *readings));
        let seconds = before.map_or(0.0, |(then, _)| now.duration_since(then).as_secs_f64());
        let mut parts = Vec::new();
        for (way, name) in ["up", "down"].into_iter().enumerate() {
            let reading = readings[way];
            let old = before.map_or(reading, |(_, readings)| readings[way]);
            let bits = reading.sent.bytes.saturating_sub(old.sent.bytes) as f64 * 8.0;
            let rate = if seconds > 0.0 { bits / seconds / 1e6 } else { 0.0 };
            let backlogs = &mut self.backlogs[way];
            backlogs.push(reading.backlog.bytes);
            if backlogs.len() > LOOKS {
                backlogs.remove(0);
            }
            let (picture, packets) = (picture(backlogs), reading.backlog.packets);
            let (link, kilobytes) = (&self.links[way], reading.backlog.bytes as f64 / 1e3);
            parts.push(format!(
                "{name} {link} {rate:.1} Mbit/s {picture} {packets} packets {kilobytes:.0} kB, \
                 {} dropped, {} marked",
                reading.dropped, reading.marked
            ));
        }
        parts.join(" | ").chars().take(columns).collect()
    }
}

/// Draws the backlog over time, scaled to its largest value.
fn picture(backlogs: &[u64]) -> String {
    let most = backlogs.iter().max().copied().unwrap_or(0).max(1);
    let bar = |bytes: &u64| BLOCKS[(u128::from(*bytes) * 7 / u128::from(most)).min(7) as usize];
    let missing = LOOKS - backlogs.len().min(LOOKS);
    " ".repeat(missing) + &backlogs.iter().map(bar).collect::<String>()
}

impl Watch for Meter {
    fn look(&mut self, readings: [Reading; 2]) {
        let (rows, columns) = Term::stderr().size();
        let mut text = String::new();
        if rows != self.rows && rows > 1 {
            // Scrolls by one line, then limits the scrolling region to the rows above the last.
            let above = rows - 1;
            let _ = write!(text, "\n\u{1b}7\u{1b}[1;{above}r\u{1b}8\u{1b}[1A");
            self.rows = rows;
        }
        let line = self.line(Instant::now(), &readings, usize::from(columns.saturating_sub(1)));
        let _ = write!(text, "\u{1b}7\u{1b}[{rows};1H\u{1b}[2K{line}\u{1b}8");
        // A single write, because the command writes to the same terminal.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    fn end(&mut self) {
        let rows = self.rows;
        let text = format!("\u{1b}7\u{1b}[r\u{1b}[{rows};1H\u{1b}[2K\u{1b}8");
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_queue_is_drawn_against_its_longest() {
        assert_eq!(picture(&[0, 50, 100]), format!("{}▁▄█", " ".repeat(LOOKS - 3)));
        assert_eq!(picture(&[0; LOOKS]), "▁".repeat(LOOKS));
        assert_eq!(picture(&[u64::MAX]).chars().last(), Some('█'));
    }

    #[test]
    fn rates_are_computed_between_two_readings() {
        let links = ["10mbit".to_owned(), "unlimited".to_owned()];
        let mut meter = Meter { links, before: None, rows: 0, backlogs: [Vec::new(), Vec::new()] };
        let start = Instant::now();
        let first = meter.line(start, &[Reading::default(); 2], 200);
        assert!(first.starts_with("up 10mbit 0.0 Mbit/s"), "{first}");
        let mut reading = Reading::default();
        reading.sent.bytes = 625_000;
        let line = meter.line(start + Duration::from_millis(500), &[reading; 2], 200);
        assert!(line.starts_with("up 10mbit 10.0 Mbit/s"), "{line}");
        assert!(line.contains(" | down unlimited 10.0 Mbit/s"), "{line}");
        assert_eq!(
            meter.line(start + Duration::from_secs(1), &[reading; 2], 20).chars().count(),
            20
        );
    }
}
