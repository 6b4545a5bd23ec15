//! Shared by the commands that write run directories and reports.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use indicatif::ProgressBar;
use underload_disk::{self as disk, Access};
use underload_store::StoreError;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput, refuse};

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

/// Writes numbers for a program that collects them; `-` is stdout. Replaces only a file that an
/// earlier call wrote.
pub fn write_for_collector(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return console::print(text);
    }
    let mut start = Vec::new();
    if path.is_file() {
        let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut start));
        read.with_context(|| path.display().to_string())?;
    }
    if !start.is_empty() && !start.starts_with(b"# HELP underload") {
        let path = path.display();
        refuse!("{path}: already there and not written by this program; name another file");
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
