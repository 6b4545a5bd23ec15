//! The store of a single orchestrator: a SQLite file with a write-ahead log, synced at each commit.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags};
use underload_fleet::store::{Result, StoreError};

use super::database::{Access, Begin, Database, Row, VERSION, Value, check_version, statement};

/// A connection to the file.
#[derive(Debug)]
pub(super) struct Sqlite {
    connection: Connection,
    folder: PathBuf,
    /// Locks out other orchestrators; `None` for connections beside an orchestrator.
    _lock: Option<File>,
}

impl Sqlite {
    /// See [`super::SqlStore::sqlite`].
    pub(super) fn open(directory: &Path) -> Result<Self> {
        underload_disk::private_directory(directory).map_err(exposed(directory))?;
        let lock = underload_disk::lock_directory(directory, LOCK_PATIENCE).map_err(|error| {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return unreadable(directory)(error);
            }
            StoreError::temporary(format!(
                "the store in {} is in use by another orchestrator; for several, use PostgreSQL",
                directory.display()
            ))
        })?;
        check_whole(directory)?;
        // SQLite creates the log and its index with the access rights of the database.
        for name in [FILE, LOG, LOG_INDEX] {
            let path = directory.join(name);
            if name == FILE || path.exists() {
                underload_disk::make_private(&path).map_err(unreadable(directory))?;
            }
        }
        let opened = Self::connected(directory, OpenFlags::default(), Some(lock))?;
        opened.prepare()?;
        opened.check_pages()?;
        Ok(opened)
    }

    /// See [`super::SqlStore::beside`].
    pub(super) fn beside(directory: &Path) -> Result<Self> {
        let opened = Self::connected(directory, EXISTING, None).map_err(|error| match error {
            missing @ StoreError::Temporary { .. } => {
                let step = format!("no store in {}", directory.display());
                StoreError::temporary(step).because(missing)
            }
            broken @ StoreError::Broken { .. } => broken,
        })?;
        opened.prepare()?;
        Ok(opened)
    }

    /// Opens an existing store for queries.
    pub(super) fn reader(directory: &Path) -> Result<Self> {
        let opened = Self::connected(directory, EXISTING, None)?;
        opened.connection.execute_batch("PRAGMA query_only = ON").map_err(failed)?;
        opened.check_version()?;
        Ok(opened)
    }

    /// Opens the database in `directory` once its access rights are checked. Keeps `lock` open as
    /// long as the connection.
    fn connected(directory: &Path, flags: OpenFlags, lock: Option<File>) -> Result<Self> {
        underload_disk::check_directory(directory).map_err(exposed(directory))?;
        let connection = Connection::open_with_flags(directory.join(FILE), flags);
        let connection = connection.map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let folder = std::fs::canonicalize(directory).map_err(unreadable(directory))?;
        Ok(Self { connection, folder, _lock: lock })
    }

    /// Configures the connection for writing, and creates the tables if the file is new.
    fn prepare(&self) -> Result<()> {
        if self.number("user_version")? == NEW {
            self.create()?;
        }
        // Checked first, so that the file of another version or program is not changed.
        self.check_version()?;
        self.connection.execute_batch(SETTINGS).map_err(failed)
    }

    /// Creates the tables before there is a log, so that the file has them from the beginning.
    fn create(&self) -> Result<()> {
        // A transaction, because another process may create them too.
        let change = rusqlite::Transaction::new_unchecked(
            &self.connection,
            rusqlite::TransactionBehavior::Immediate,
        );
        let change = change.map_err(failed)?;
        if self.number("user_version")? == NEW {
            if !is_empty(&self.folder) {
                return Err(incomplete(&self.folder, "has no tables of underload"));
            }
            change.execute_batch(include_str!("tables.sql")).map_err(failed)?;
            change.pragma_update(None, "user_version", VERSION).map_err(failed)?;
        }
        change.commit().map_err(failed)
    }

    /// Checks the structure of a database that is read in seconds.
    fn check_pages(&self) -> Result<()> {
        if self.number("page_count")? * self.number("page_size")? > CHECKED_BYTES_MAX {
            return Ok(());
        }
        let mut said = String::new();
        let outcome = self.connection.pragma_query(None, "quick_check", |row| {
            said = row.get(0)?;
            Ok(())
        });
        outcome.map_err(failed)?;
        if said == "ok" { Ok(()) } else { Err(StoreError::broken(DAMAGED).because(said)) }
    }

    fn number(&self, pragma: &str) -> Result<i64> {
        self.connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(failed)
    }

    fn check_version(&self) -> Result<()> {
        check_version(self.folder.display(), self.number("user_version")?)?;
        let is_ours = self.connection.table_exists(None, "settings").map_err(failed)?;
        is_ours.then_some(()).ok_or_else(|| incomplete(&self.folder, "has no tables of underload"))
    }

    fn prepared(&self, sql: &str) -> Result<CachedStatement<'_>> {
        let table = |types: &[&str]| {
            let values: Vec<_> = (1..=types.len()).map(|number| format!("${number}")).collect();
            format!("VALUES ({})", values.join(", "))
        };
        self.connection.prepare_cached(&statement(sql, WORDS, table)).map_err(failed)
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.prepared(sql)?.execute([]).map(drop).map_err(failed)
    }
}

impl Database for Sqlite {
    fn begin(&mut self, kind: Begin) -> Result<()> {
        match kind {
            Begin::View => self.run("BEGIN")?,
            Begin::Change | Begin::Admission => self.run("BEGIN IMMEDIATE")?,
            // A lock would block all writers while results are read and folded.
            Begin::Fold => return Ok(()),
        }
        // A newer program may have changed the tables since this connection was opened.
        let version = self.prepared("PRAGMA user_version")?.query_row([], |row| row.get(0));
        let known = version.map_err(failed).and_then(|it| check_version(self.folder.display(), it));
        if known.is_err() {
            self.roll_back();
        }
        known
    }

    fn commit(&mut self) -> Result<()> {
        self.run("COMMIT")
    }

    fn roll_back(&mut self) {
        // Some errors end the transaction.
        if !self.connection.is_autocommit() {
            let _ = self.run("ROLLBACK");
        }
    }

    fn query(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        if rows.is_empty() {
            return Ok(found);
        }
        let mut statement = self.prepared(sql)?;
        let columns = statement.column_count();
        for values in rows {
            let values = rusqlite::params_from_iter(values);
            let mut rows = statement.query(values).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let values = (0..columns).map(|column| row.get(column));
                found.push(Row::new(values.collect::<Result<_, _>>().map_err(failed)?));
            }
        }
        #[cfg(test)]
        tests::count_steps(&statement);
        Ok(found)
    }

    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        // A single transaction, so one sync, for all rows.
        let is_alone = self.connection.is_autocommit();
        if is_alone {
            self.begin(Begin::Change)?;
        }
        let mut changed = 0;
        let mut statement = self.prepared(sql)?;
        for values in rows {
            let done = statement.execute(rusqlite::params_from_iter(values)).map_err(failed);
            match done {
                Ok(count) => changed += count as u64,
                Err(error) => {
                    drop(statement);
                    if is_alone {
                        self.roll_back();
                    }
                    return Err(error);
                }
            }
        }
        #[cfg(test)]
        tests::count_steps(&statement);
        drop(statement);
        if is_alone {
            self.commit()?;
        }
        Ok(changed)
    }

    fn copy(&mut self, path: &Path) -> Result<()> {
        let name = path.to_string_lossy();
        self.connection.execute("VACUUM INTO $1", [name]).map_err(failed)?;
        underload_disk::make_private(path).map_err(unreadable(path))
    }

    fn scrub(&mut self) -> Result<()> {
        // The copy that replaces the file may be larger than the memory.
        let vacuum = "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY";
        self.connection.execute_batch(vacuum).map_err(failed)?;
        let is_busy = |row: &rusqlite::Row<'_>| row.get(0);
        let log = "PRAGMA wal_checkpoint(TRUNCATE)";
        if self.connection.query_row(log, [], is_busy).map_err(failed)? {
            return Err(StoreError::temporary(format!("another program reads {FILE}")));
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        // Moves as much as possible now: writers do not wait for a page that reads.
        self.connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        let outcome = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.connection.busy_timeout(PATIENCE).map_err(failed)?;
        outcome.map_err(failed)
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn connect(&self, access: Access) -> Result<Box<dyn Database>> {
        Ok(Box::new(match access {
            Access::Read => Self::reader(&self.folder)?,
            Access::Write => Self::beside(&self.folder)?,
        }))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl FromSql for Value {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Text(_) => Self::Text(value.as_str()?.to_owned()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_owned()),
            _ => Self::Number(value.as_i64()?),
        })
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::metadata(directory.join(FILE)).map_or(true, |file| file.len() == 0)
}

/// Refuses a folder whose database is missing or empty, beside other files of a store.
fn check_whole(directory: &Path) -> Result<()> {
    let others = [LOG, "archive", "admin.token"];
    let found = others.into_iter().find(|name| directory.join(name).exists());
    match found.filter(|_| is_empty(directory)) {
        None => Ok(()),
        Some(name) => Err(incomplete(directory, &format!("is missing or empty beside {name}"))),
    }
}

/// The error for a part of a store, which must not be taken for a new one.
fn incomplete(directory: &Path, what: &str) -> StoreError {
    StoreError::broken(format!(
        "{}: {FILE} {what}: restore it from a copy, with its {LOG} if there is one, or begin a new \
         store in another folder",
        directory.display()
    ))
}

fn unreadable(directory: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let step = format!("the store in {}", directory.display());
    move |error| StoreError::temporary(step).because(error)
}

/// The error for a store that other users can read: it has the keys of leases and of operators'
/// cookies.
fn exposed(directory: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let step = format!("the store in {}", directory.display());
    move |error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => StoreError::broken(step).because(error),
        _ => StoreError::temporary(step).because(error),
    }
}

/// Converts an error of SQLite by whether a retry may succeed.
fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::broken(DAMAGED).because(error)
        }
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied,
        ) => StoreError::temporary("SQLite").because(error),
        _ => StoreError::broken("SQLite").because(error),
    }
}

pub(super) const FILE: &str = "fleet.sqlite";
const DAMAGED: &str = "SQLite: the file fleet.sqlite is damaged; stop the orchestrator and restore \
                       a copy, or save what is readable with `sqlite3 fleet.sqlite .recover`";
/// A larger database takes too long to check at each start.
const CHECKED_BYTES_MAX: i64 = 1 << 30;
/// SQLite's write-ahead log, and the index of the log.
const LOG: &str = "fleet.sqlite-wal";
const LOG_INDEX: &str = "fleet.sqlite-shm";
const EXISTING: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// Settings of a connection that writes.
const SETTINGS: &str = "PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = OFF;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -65536;
    PRAGMA wal_autocheckpoint = 8192;
    PRAGMA journal_size_limit = 67108864;";
/// SQLite allows one writer at a time, so rows need no locks and results are committed in the order
/// of their numbers. SQLite compares texts by their bytes, so comparisons need no collation. Of two
/// lower bounds of a column, it searches by the first, and reads all rows up to the second.
const WORDS: &[(&str, &str)] = &[
    (" FOR UPDATE SKIP LOCKED", ""),
    (" FOR UPDATE", ""),
    (" COLLATE \"C\"", ""),
    ("{numbers $7}", "SELECT value FROM json_each('[' || $7 || ']')"),
    ("{later}", "$1 <= 0 AND number > $2"),
    ("{later than $3}", "$1 <= 0 AND number > max($2, $3)"),
    ("{change}", "0"),
    ("{order}", "number"),
    ("{over}", "true"),
    ("{restarted}", "last_change - 1"),
    ("{place}", "instr"),
    ("{folded}", "number <= (SELECT last_number FROM progress)"),
];
/// `user_version` of a file without tables.
const NEW: i64 = 0;
/// How long a transaction waits for another one.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an orchestrator waits for one that is stopping.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Capacity of the cache of prepared statements; there are fewer statements than this.
const STATEMENTS: usize = 64;
