//! Shared by the commands that write run directories and reports.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use indicatif::ProgressBar;
use underload_report::{PageError, replace_numbers};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput as _;

/// Prints a line above the bar, or as a note if the bar is hidden.
pub fn print_line(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        note!("{line}");
    } else {
        bar.println(line);
    }
}

/// Writes numbers for a program that collects them; `-` is stdout. Replaces only a file that an
/// earlier call wrote.
pub fn write_for_collector(path: &Path, numbers: &str) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return console::print(numbers);
    }
    let written = replace_numbers(path, numbers);
    written.bad_input_if(|error| matches!(error, PageError::NotOurs { .. }))
}

/// How the result of a run is shown.
#[derive(Debug, Clone, Copy, Args)]
pub struct Show {
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Opens the report in a browser.
    #[arg(long)]
    pub open: bool,
}

/// The program that opens files as the desktop does.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// Opens a file as the desktop does. Warns if this fails.
pub fn open_in_desktop(file: &Path) {
    // The absolute path never begins with a hyphen, as an option does.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut command = Command::new(OPENER);
    command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        warning!("{}: cannot be opened with {OPENER}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_collector_file_replaces_only_one_of_this_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line.prom");
        for text in ["# HELP underload_latency_seconds", "# HELP underload_goodput", ""] {
            write_for_collector(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, "{}").unwrap();
        let error = write_for_collector(&path, "# HELP underload_latency_seconds").unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("not written by this program"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    }
}
