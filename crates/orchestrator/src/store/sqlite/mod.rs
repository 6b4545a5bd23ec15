//! One orchestrator's store: a SQLite file with a write-ahead log, synced at each commit.

mod archive;
mod base;
mod keeper;
mod transaction;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use underload_fleet::retention::Retention;
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

pub use archive::SqliteArchive;
pub use keeper::SqliteKeeper;
use transaction::SqliteTransaction;

use super::housekeeping::Housekeeping;

/// A store in a directory of its own, for one orchestrator.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    directory: PathBuf,
    /// Keeps other orchestrators out as long as this one lives; `None` beside one.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the store in a directory, which is made where it is missing.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] where another orchestrator has it, or the disk is full;
    /// [`StoreError::Broken`] where what is there is damaged, of a newer version, or open to other
    /// users of this machine.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let told = |error: std::io::Error| StoreError::Temporary {
            what: format!("the store in {}: {error}", directory.display()),
        };
        underload_disk::private_directory(directory).map_err(exposed(directory))?;
        let lock = underload_disk::lock_directory(directory, LOCK_PATIENCE).map_err(|error| {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return told(error);
            }
            let what = format!(
                "the store in {} is in use by another orchestrator; several at once need \
                 PostgreSQL",
                directory.display()
            );
            StoreError::Temporary { what }
        })?;
        // SQLite gives the log and its index the rights of the database.
        for name in [FILE, LOG, LOG_INDEX] {
            let path = directory.join(name);
            if name == FILE || path.exists() {
                underload_disk::make_private(&path).map_err(told)?;
            }
        }
        let connection = connect(directory, OpenFlags::default())?;
        prepare(&connection)?;
        migrate(&connection, directory)?;
        Ok(Self { connection, directory: directory.to_owned(), _lock: Some(lock) })
    }

    /// Opens a store that is there for a short change, also while an orchestrator is at work with
    /// it.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] where there is none, [`StoreError::Broken`] where other users of
    /// this machine can read it.
    pub fn beside(directory: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(directory, flags).map_err(|error| match error {
            StoreError::Temporary { what } => StoreError::Temporary {
                what: format!("there is no store in {}: {what}", directory.display()),
            },
            broken @ StoreError::Broken { .. } => broken,
        })?;
        prepare(&connection)?;
        migrate(&connection, directory)?;
        Ok(Self { connection, directory: directory.to_owned(), _lock: None })
    }

    /// Who answers questions, without keeping this store waiting.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn archive(&self) -> Result<SqliteArchive, StoreError> {
        SqliteArchive::open(&self.directory)
    }

    /// Who puts results together in the background. One for each store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keeper(&self) -> Result<SqliteKeeper, StoreError> {
        SqliteKeeper::open(&self.directory)
    }

    /// Who keeps this store in order in the background: puts results together, moves old days to
    /// files in that folder, by default `archive` in the store's own. One for each store.
    ///
    /// # Errors
    /// [`StoreError`], also where that folder has the archive of another store.
    pub fn housekeeping(
        &self,
        archive: Option<&Path>,
        retention: Retention,
    ) -> Result<Housekeeping, StoreError> {
        let folder = archive.map_or_else(|| self.directory.join(ARCHIVE), Path::to_owned);
        Housekeeping::new(Box::new(self.keeper()?), Some(&folder), retention)
    }
}

impl Store for SqliteStore {
    fn begin(&mut self, _needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(SqliteTransaction::begin(&self.connection)?))
    }
}

/// Opens the file of a store.
fn connect(directory: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    underload_disk::check_directory(directory).map_err(exposed(directory))?;
    let connection = Connection::open_with_flags(directory.join(FILE), flags).map_err(told)?;
    connection.busy_timeout(PATIENCE).map_err(told)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// The error for a store that other users can read: it has the keys of leases and of operators'
/// cookies.
fn exposed(directory: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    move |error| {
        let what = format!("the store in {}: {error}", directory.display());
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => StoreError::Broken { what },
            _ => StoreError::Temporary { what },
        }
    }
}

/// Settings of a connection that writes.
fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA foreign_keys = OFF;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -65536;
             PRAGMA wal_autocheckpoint = 8192;
             PRAGMA journal_size_limit = 67108864;",
        )
        .map_err(told)
}

/// The version of the tables, which is not above this program's.
fn version(connection: &Connection, directory: &Path) -> Result<i64, StoreError> {
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(told)?;
    if version > VERSION {
        let what = format!(
            "the store in {} is of version {version}, this program reads up to {VERSION}: start \
             the newer program that wrote it, or restore a copy from before it did",
            directory.display()
        );
        return Err(StoreError::Broken { what });
    }
    Ok(version)
}

/// Brings the tables to this program's version.
fn migrate(connection: &Connection, directory: &Path) -> Result<(), StoreError> {
    let change = match version(connection, directory)? {
        0 => include_str!("tables.sql"),
        1 => TO_VERSION_2,
        // Results and sums have checksums since version 3; earlier programs cannot read them.
        2 => "",
        _ => return Ok(()),
    };
    let change = format!("BEGIN IMMEDIATE;\n{change}\nPRAGMA user_version = {VERSION};\nCOMMIT;");
    connection.execute_batch(&change).map_err(told)
}

/// What SQLite said, told apart by whether another try may help.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives it")]
fn told(error: rusqlite::Error) -> StoreError {
    let what = format!("SQLite: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Broken {
            what: format!(
                "{what}: the file {FILE} is damaged; stop the orchestrator and restore a copy, or \
                 save what is readable with `sqlite3 {FILE} .recover`"
            ),
        },
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied,
        ) => StoreError::Temporary { what },
        _ => StoreError::Broken { what },
    }
}

/// The file in the store's directory.
const FILE: &str = "fleet.sqlite";
/// SQLite's log of what is written, and the index of the log.
const LOG: &str = "fleet.sqlite-wal";
const LOG_INDEX: &str = "fleet.sqlite-shm";
/// The folder of the archive in the store's directory.
const ARCHIVE: &str = "archive";
/// Version of the tables.
const VERSION: i64 = 3;
/// Results are found by their day and plan, so that days can be moved to files.
const TO_VERSION_2: &str = "CREATE INDEX IF NOT EXISTS results_by_day ON results (day, plan);";
/// How long a change waits for another of the same process.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an orchestrator waits for one that is ending.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Statements that stay prepared, more than there are.
const STATEMENTS: usize = 64;
