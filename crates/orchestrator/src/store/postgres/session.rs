//! A connection with its prepared statements.
//!
//! A commit that waits for the disk takes milliseconds, and a lock is held until it is over. So a
//! change that holds the turn of admission commits without waiting, which ends its locks, and
//! then waits for the disk by a second, empty change that is synced. What is written ahead is one
//! sequence: when the second is on disk, so is the first, and so is everything that the first had
//! seen of others. Nobody acknowledges before that.

use std::collections::HashMap;
use std::fmt;

use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Row, Statement};
use underload_fleet::store::StoreError;

use super::connect::Address;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Source {
    address: Address,
}

/// A connection.
pub(super) struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Source {
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        Ok(Self { address: Address::new(url)? })
    }

    /// A new connection.
    pub(super) fn open(&self) -> Result<Session, StoreError> {
        let mut client = self.address.connect()?;
        // Whoever stops in the middle of a change must not keep the others waiting.
        client
            .batch_execute(
                "SET idle_in_transaction_session_timeout = '10s';
                 SET lock_timeout = '10s';
                 SET statement_timeout = '120s';
                 SET jit = off",
            )
            .map_err(told)?;
        Ok(Session { client, statements: HashMap::new() })
    }

    /// The connection, or a new one where it is lost.
    pub(super) fn session<'a>(
        &self,
        session: &'a mut Option<Session>,
    ) -> Result<&'a mut Session, StoreError> {
        let kept = session.take().filter(|session| !session.client.is_closed());
        let fresh = match kept {
            Some(kept) => kept,
            None => self.open()?,
        };
        Ok(session.insert(fresh))
    }
}

impl Session {
    /// Runs statements without values.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).map_err(told)
    }

    /// Rows of a statement, which stays prepared.
    pub(super) fn rows(&mut self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(sql)?;
        self.client.query(&statement, values).map_err(told)
    }

    /// The number of rows that a statement changed.
    pub(super) fn change(&mut self, sql: &str, values: Values<'_>) -> Result<u64, StoreError> {
        let statement = self.statement(sql)?;
        self.client.execute(&statement, values).map_err(told)
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).map_err(told)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Returns once all that was committed so far, by anybody, is on disk.
    pub(super) fn wait_for_disk(&mut self) -> Result<(), StoreError> {
        // An empty change is not written, so that it has to say something.
        self.rows("SELECT pg_logical_emit_message(true, 'underload', '')", &[]).map(drop)
    }

    /// Takes a change back, if one is open.
    pub(super) fn roll_back(&mut self) {
        if !self.client.is_closed() {
            // A connection that cannot even do that is lost, and with it the change.
            let _ = self.client.batch_execute("ROLLBACK");
        }
    }

    /// Brings the tables to this program's version; others that try it wait.
    pub(super) fn migrate(&mut self) -> Result<(), StoreError> {
        self.batch("BEGIN")?;
        let migrated = self.migrate_within();
        if migrated.is_err() {
            self.roll_back();
        }
        migrated
    }

    fn migrate_within(&mut self) -> Result<(), StoreError> {
        self.rows("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION])?;
        let table = "CREATE TABLE IF NOT EXISTS underload_version (version bigint NOT NULL)";
        self.batch(&format!("SET LOCAL client_min_messages = warning; {table}"))?;
        let versions = self.client.query("SELECT version FROM underload_version", &[]);
        let version = match versions.map_err(told)?.first() {
            Some(row) => row.try_get(0).map_err(told)?,
            None => 0,
        };
        if version > VERSION {
            let what = format!(
                "the tables in the database are of version {version}, this program reads up to \
                 {VERSION}: start the newer program that made them"
            );
            return Err(StoreError::Broken { what });
        }
        if version == 0 {
            self.batch(include_str!("tables.sql"))?;
            self.batch(&format!("INSERT INTO underload_version VALUES ({VERSION})"))?;
        }
        if (1..VERSION).contains(&version) {
            let changes = [(1, TO_VERSION_2), (2, TO_VERSION_3)];
            for (_, change) in changes.iter().filter(|(from, _)| *from >= version) {
                self.batch(change)?;
            }
            self.batch(&format!("UPDATE underload_version SET version = {VERSION}"))?;
        }
        self.batch(MOVED)?;
        self.batch("COMMIT")
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// What PostgreSQL said, told apart by whether another try may help.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives it")]
pub(super) fn told(error: postgres::Error) -> StoreError {
    let what = match error.as_db_error() {
        Some(said) => format!("PostgreSQL: {} ({})", said.message(), said.code().code()),
        None => format!("PostgreSQL: {}", in_full(&error)),
    };
    let Some(code) = error.code() else {
        // No answer: the connection is lost, or was never there.
        return StoreError::Temporary { what };
    };
    // Classes: connection, rights that changed, transaction rolled back, resources such as the
    // disk, somebody's lock or shutdown, disk errors.
    let passes = ["08", "25", "40", "53", "55", "57", "58"];
    let is_temporary = passes.iter().any(|class| code.code().starts_with(class));
    if is_temporary || *code == SqlState::UNIQUE_VIOLATION {
        StoreError::Temporary { what }
    } else {
        StoreError::Broken { what }
    }
}

/// What happened, and why.
pub(super) fn in_full(error: &postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The lock of those who change tables: a number that nobody else uses in this database.
const MIGRATION: i64 = 0x756e_6465_726c_6f61;
/// A database that was restored elsewhere counts its transactions anew: results that were put
/// together come before all of its transactions then, and the others are its first.
const MOVED: &str = "DO $$ BEGIN
    IF (SELECT min(last_change) FROM progress) > pg_current_xact_id()::text::bigint THEN
        UPDATE results SET change = CASE
            WHEN (change, number) <= (last_change, last_number) THEN -1
            ELSE 0 END
        FROM progress;
        UPDATE progress SET last_change = 0, last_number = 0;
    END IF;
END $$";
/// Version of the tables.
const VERSION: i64 = 3;
/// Results of one transaction can be folded in parts: progress is the last result that was folded,
/// before it was the first transaction that was not. The column has another name, so that programs
/// of version 2 that are still connected fail where they would fold results twice or skip some.
pub(super) const TO_VERSION_3: &str = "ALTER TABLE progress RENAME COLUMN change TO last_change;
    ALTER TABLE progress ADD COLUMN last_number bigint NOT NULL DEFAULT 0";
/// Results are found by their day and plan, so that days can be moved to files.
const TO_VERSION_2: &str =
    "CREATE INDEX IF NOT EXISTS results_by_day ON results (day, plan, number)";
