//! Shared by the commands that write run directories and reports.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use indicatif::ProgressBar;
use underload_disk::{self as disk, Access};
use underload_store::StoreError;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;

/// Prints a line above the bar, or as a note if the bar is hidden.
pub fn print_line(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        note!("{line}");
    } else {
        bar.println(line);
    }
}

/// Marks the error of an occupied directory as bad input.
pub fn refuse_occupied<T>(made: Result<T, StoreError>) -> anyhow::Result<T> {
    match made {
        Err(error) if error.is_occupied() => Err(error).or_bad_input(),
        made => Ok(made?),
    }
}

/// Writes numbers for a program that collects them; `-` is stdout.
pub fn write_for_collector(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return console::print(text);
    }
    // Atomically, because the collector may read the file at any time.
    disk::write_whole(path, text.as_bytes(), Access::Usual)
        .with_context(|| path.display().to_string())
}

#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// Prints JSON instead of the table.
    pub json: bool,
    /// Opens the report in a browser.
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
