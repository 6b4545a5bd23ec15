//! The rules of M-Lab's public servers: terms that the user accepts once, and pauses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use underload_disk::{self as disk, Access, folders};

use crate::LineError;
use crate::series::PUBLIC_PAUSE_LEAST;

pub const TERMS: &str = "\
M-Lab (Measurement Lab) runs these servers as a public experiment:
  - your IP address and the result are stored and published, for everyone and forever;
  - a test transfers as much as your line carries in 20 s: about 250 MB at 100 Mbit/s;
  - 40 tests a day are allowed; more are refused.
Its terms:   https://www.measurementlab.net/aup/
Its privacy: https://www.measurementlab.net/privacy/";

/// Whether the user has accepted [`TERMS`].
///
/// # Errors
/// Returns an error if this user has no folder of data.
pub fn has_accepted() -> Result<bool, LineError> {
    Ok(data("mlab-terms-accepted")?.is_file())
}

/// Stores that the user accepts [`TERMS`], and returns the file that says so.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn accept() -> Result<PathBuf, LineError> {
    let file = data("mlab-terms-accepted")?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    store(&file, &format!("{TERMS}\n\naccepted {now}\n"))?;
    Ok(file)
}

/// Returns how long to wait before the first test of a series, if any process of this program has
/// recently tested at M-Lab's servers.
///
/// # Errors
/// Returns an error if this user has no folder of data.
pub fn pause_before_first() -> Result<Option<Duration>, LineError> {
    let Ok(text) = fs::read_to_string(data("mlab-last-test")?) else { return Ok(None) };
    let Ok(last) = text.trim().parse::<jiff::Timestamp>() else { return Ok(None) };
    // A time in the future is from a wrong clock.
    let since = Duration::try_from(jiff::Timestamp::now().duration_since(last)).ok();
    Ok(since.and_then(|since| PUBLIC_PAUSE_LEAST.checked_sub(since)))
}

/// Stores the time of a test before it starts, because failed tests count too.
pub(super) fn remember_test() -> Result<(), LineError> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ\n").to_string();
    store(&data("mlab-last-test")?, &now)
}

fn data(name: &str) -> Result<PathBuf, LineError> {
    Ok(folders::data().ok_or(LineError::NoDataFolder)?.join(name))
}

fn store(file: &Path, text: &str) -> Result<(), LineError> {
    disk::create_directory(disk::directory_of(file), Access::Usual)
        .and_then(|_| disk::write_whole(file, text.as_bytes(), Access::Usual))
        .map_err(|source| LineError::File { path: file.to_owned(), source })
}
