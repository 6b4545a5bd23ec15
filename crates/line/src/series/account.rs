//! The bytes that a series of measurements has moved in a day, in `account.json` of its directory.

use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};

use super::SeriesError;

/// The bytes of the current day, by local time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Account {
    /// The latest day with a measurement, such as `2026-11-24`; empty before the first.
    day: String,
    pub day_bytes: u64,
    /// Bytes of the last measurement that finished a step; what the next one will probably take.
    pub last_bytes: u64,
}

const FILE: &str = "account.json";
/// A larger file is not an account.
const BYTES_MAX: u64 = 4_096;
/// How long to wait while another process has the account locked.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

impl Account {
    /// Reads the account of a series; an empty one if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged: an unknown account must not allow
    /// more traffic.
    pub fn read(directory: &Path) -> Result<Self, SeriesError> {
        let path = directory.join(FILE);
        let text = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(facts) if facts.len() > BYTES_MAX => Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => std::fs::read(&path),
            Err(error) => Err(error),
        };
        let text = text.map_err(|source| SeriesError::File { path: path.clone(), source })?;
        serde_json::from_slice(&text).map_err(|source| SeriesError::DamagedAccount { path, source })
    }

    fn write(&self, directory: &Path) -> Result<(), SeriesError> {
        let path = directory.join(FILE);
        let written = serde_json::to_vec(self)
            .map_err(io::Error::from)
            .and_then(|text| disk::write_whole(&path, &text, Access::Usual));
        written.map_err(|source| SeriesError::File { path, source })
    }

    /// Returns the account as of a day: a later day starts at 0. A clock that was set back
    /// changes nothing.
    #[must_use]
    pub fn on(&self, today: Date) -> Self {
        let today = today.to_string();
        let mut account = self.clone();
        if today > account.day {
            account.day_bytes = 0;
            account.day = today;
        }
        account
    }

    /// Charges a measurement that is about to start with the bytes of the last one, the first one
    /// with all that it may use (`bytes_max`), on the disk: a measurement that is killed has used
    /// them.
    pub fn reserve(directory: &Path, today: Date, bytes_max: u64) -> Result<u64, SeriesError> {
        let _lock = lock(directory)?;
        let mut account = Self::read(directory)?.on(today);
        let reserved = if account.last_bytes == 0 { bytes_max } else { account.last_bytes };
        let reserved = reserved.min(bytes_max);
        account.add(reserved);
        account.write(directory)?;
        Ok(reserved)
    }

    /// Replaces the reserved bytes by those that were moved, and returns the account.
    pub fn settle(
        directory: &Path,
        today: Date,
        reserved: u64,
        moved: u64,
    ) -> Result<Self, SeriesError> {
        let _lock = lock(directory)?;
        let mut account = Self::read(directory)?.on(today);
        account.day_bytes = account.day_bytes.saturating_sub(reserved);
        account.add(moved);
        if moved > 0 {
            account.last_bytes = moved;
        }
        account.write(directory)?;
        Ok(account)
    }

    fn add(&mut self, bytes: u64) {
        self.day_bytes = self.day_bytes.saturating_add(bytes);
    }

    #[cfg(test)]
    pub fn of(day: Date, used: u64, last_bytes: u64) -> Self {
        Self { day: day.to_string(), day_bytes: used, last_bytes }
    }
}

/// Keeps other processes that measure into the series from changing the account.
fn lock(directory: &Path) -> Result<std::fs::File, SeriesError> {
    disk::lock_directory(directory, LOCK_PATIENCE)
        .map_err(|source| SeriesError::Locked { directory: directory.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use underload_disk::faults;

    use super::*;

    #[test]
    fn days_start_at_zero_bytes_and_a_clock_set_back_refunds_none() {
        let account = Account::of(date(2026, 11, 30), 500, 100);
        let used = |day| account.on(day).day_bytes;
        assert_eq!(used(date(2026, 11, 30)), 500);
        assert_eq!(used(date(2026, 12, 1)), 0);
        assert_eq!(used(date(2026, 11, 29)), 500);
        assert_eq!(account.on(date(2026, 12, 1)).last_bytes, 100);
    }

    #[test]
    fn a_killed_measurement_is_charged_like_the_last_one() {
        let directory = faults::private_tempdir().unwrap();
        let (path, day) = (directory.path(), date(2026, 11, 24));
        assert_eq!(Account::reserve(path, day, 500).unwrap(), 500, "the first one is unknown");
        Account::settle(path, day, 500, 70).unwrap();
        let reserved = Account::reserve(path, day, 430).unwrap();
        assert_eq!(
            (reserved, Account::read(path).unwrap().day_bytes),
            (70, 140),
            "if it is killed"
        );
        let account = Account::settle(path, day, reserved, 50).unwrap();
        assert_eq!((account.day_bytes, account.last_bytes), (120, 50));
        // A measurement that reached no server.
        let reserved = Account::reserve(path, day, 30).unwrap();
        assert_eq!(reserved, 30, "no more than it may use");
        let account = Account::settle(path, day, reserved, 0).unwrap();
        assert_eq!((account.day_bytes, account.last_bytes), (120, 50));
    }

    #[test]
    fn many_processes_lose_no_byte_of_the_account() {
        let directory = faults::private_tempdir().unwrap();
        let (path, day) = (directory.path(), date(2026, 11, 24));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let reserved = Account::reserve(path, day, 100).unwrap();
                        Account::settle(path, day, reserved, 7).unwrap();
                    }
                });
            }
        });
        assert_eq!(Account::read(path).unwrap().day_bytes, 8 * 20 * 7);
    }

    #[test]
    fn a_damaged_account_is_an_error_and_a_full_disk_leaves_the_old_one() {
        let directory = faults::private_tempdir().unwrap();
        let (path, day) = (directory.path(), date(2026, 11, 24));
        Account::settle(path, day, 0, 70).unwrap();
        let action = |path: &Path| Account::settle(path, day, 0, 30).is_ok();
        faults::at_every_step(&faults::tree(path), action, |_, path, _| {
            let account = Account::read(path).expect("whole");
            assert!([70, 100].contains(&account.day_bytes), "{account:?}");
        });
        for damaged in ["", "{", r#"{"day_bytes":-1}"#, r#"{"other":1}"#] {
            std::fs::write(path.join(FILE), damaged).unwrap();
            let error = Account::read(path).unwrap_err().to_string();
            assert!(error.contains("account.json: damaged; remove it"), "{damaged}: {error}");
        }
        std::fs::write(path.join(FILE), vec![b' '; 5_000]).unwrap();
        assert!(Account::read(path).is_err());
    }
}
