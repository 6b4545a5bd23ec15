//! PostgreSQL, the database for several orchestrators.
//!
//! The orchestrators have no leader. Transactions that reserve or free leases are serialised by the
//! lock of one row. All others run concurrently and lock the devices that they change, in order. A
//! transaction that lost a race fails with [`StoreError::Temporary`].
//!
//! A synced commit takes milliseconds, during which locks are held. So an admission commits without
//! a sync, which releases its locks, and then waits for a second, empty transaction that is synced.
//! The write-ahead log is sequential: when the second transaction is on disk, so are the first and
//! all that it has read. Nothing is acknowledged before that.
//!
//! The calls here block, and must not be made on threads of asynchronous tasks.

mod connect;

#[cfg(test)]
#[path = "../../../tests/support/postgres.rs"]
mod scratch;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Statement};
use underload_fleet::store::{Cause, StoreError};

use super::database::{Access, Begin, Database, Row, VERSION, Value, check_version, statement};
use connect::{Address, failed};

/// A connection with its prepared statements. A lost connection is opened again with the next
/// transaction.
pub(super) struct Postgres {
    address: Address,
    client: Client,
    statements: HashMap<String, Statement>,
    is_open: bool,
    /// Whether this transaction has the lock of those that reserve or free leases.
    has_turn: bool,
    /// When the version of the tables was read last.
    checked: Option<Instant>,
}

impl Postgres {
    /// See [`super::SqlStore::postgres`].
    pub(super) fn open(url: &str) -> Result<Self, StoreError> {
        let mut opened = Self::new(Address::new(url)?)?;
        opened.batch("BEGIN")?;
        opened.is_open = true;
        let prepared = opened.prepare();
        if prepared.is_err() {
            opened.roll_back();
        }
        prepared.map(|()| opened)
    }

    fn new(address: Address) -> Result<Self, StoreError> {
        let client = address.connect()?;
        let (statements, checked) = (HashMap::new(), None);
        let (is_open, has_turn) = (false, false);
        let mut opened = Self { address, client, statements, is_open, has_turn, checked };
        opened.batch(LIMITS)?;
        Ok(opened)
    }

    /// Runs statements without values.
    fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).map_err(failed)
    }

    /// Reconnects after a lost connection, unless a transaction was lost with it.
    fn reconnect(&mut self) -> Result<(), StoreError> {
        if !self.is_open && self.client.is_closed() {
            *self = Self::new(self.address.clone())?;
        }
        Ok(())
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let table = |types: &[&str]| {
            let of = |(place, kind): (usize, &&str)| format!("${}::{kind}[]", place + 1);
            let arrays: Vec<String> = types.iter().enumerate().map(of).collect();
            let names: Vec<_> = (1..=types.len()).map(|place| format!("column{place}")).collect();
            format!("SELECT * FROM unnest({}) AS u ({})", arrays.join(", "), names.join(", "))
        };
        let prepared = self.client.prepare(&statement(sql, WORDS, table)).map_err(failed)?;
        self.statements.insert(sql.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Calls `run` with the values of a statement, once for each row or once for all rows.
    fn run(
        &mut self,
        sql: &str,
        rows: &[Vec<Value>],
        mut run: impl FnMut(&mut Client, &Statement, &[&(dyn ToSql + Sync)]) -> Done,
    ) -> Result<(), StoreError> {
        let Some(first) = rows.first() else { return Ok(()) };
        self.reconnect()?;
        let statement = self.statement(sql)?;
        if !sql.contains("{rows ") {
            for values in rows {
                let values: Vec<_> = values.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
                run(&mut self.client, &statement, &values).map_err(failed)?;
            }
            return Ok(());
        }
        let column = |place| rows.iter().filter_map(|row| row.get(place)).collect();
        let columns: Vec<Vec<&Value>> = (0..first.len()).map(column).collect();
        let values: Vec<_> = columns.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
        run(&mut self.client, &statement, &values).map_err(failed)
    }

    fn number(&mut self, sql: &str, values: Vec<Value>) -> Result<i64, StoreError> {
        let row = self.query(sql, &[values])?.pop();
        row.map_or(Ok(0), |mut row| row.long())
    }

    /// Checks the version of the tables once a second: a newer program may have changed them.
    fn check_version_again(&mut self) -> Result<(), StoreError> {
        if self.checked.is_some_and(|at| at.elapsed() < CHECKED_FOR) {
            return Ok(());
        }
        check_version("the database", self.number(VERSION_OF_TABLES, vec![])?)?;
        self.checked = Some(Instant::now());
        Ok(())
    }

    /// Creates the tables if they are missing. Orchestrators that start at once wait.
    fn prepare(&mut self) -> Result<(), StoreError> {
        self.batch(&format!("SELECT pg_advisory_xact_lock({CREATION})"))?;
        let table = "CREATE TABLE IF NOT EXISTS underload_version (version bigint NOT NULL)";
        self.batch(&format!("SET LOCAL client_min_messages = warning; {table}"))?;
        if self.query(VERSION_OF_TABLES, &[vec![]])?.is_empty() {
            self.batch(include_str!("tables.sql"))?;
            self.batch(&format!("INSERT INTO underload_version VALUES ({VERSION})"))?;
        }
        self.check_version_again()?;
        self.batch(MOVED)?;
        self.commit()
    }
}

type Done = Result<(), postgres::Error>;

impl Database for Postgres {
    fn begin(&mut self, kind: Begin) -> Result<(), StoreError> {
        if self.is_open {
            return Ok(());
        }
        self.reconnect()?;
        self.is_open = true;
        self.has_turn = kind == Begin::Admission;
        let begun = match kind {
            Begin::View => self.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            Begin::Change | Begin::Fold => self.batch("BEGIN"),
            Begin::Admission => self.batch(&format!("BEGIN; {TURN}")),
        };
        let begun = begun.and_then(|()| self.check_version_again());
        if begun.is_err() {
            self.roll_back();
        }
        begun
    }

    fn take_turn(&mut self) -> Result<(), StoreError> {
        if !self.has_turn {
            self.batch(TURN)?;
            self.has_turn = true;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if !self.has_turn {
            self.batch("COMMIT")?;
            self.is_open = false;
            return Ok(());
        }
        self.batch("SET LOCAL synchronous_commit = off; COMMIT")?;
        self.is_open = false;
        // An empty transaction is not written to the log, so this one emits a message.
        self.batch("SELECT pg_logical_emit_message(true, 'underload', '')")
    }

    fn roll_back(&mut self) {
        if self.is_open && !self.client.is_closed() {
            // If this fails, the connection is lost, which ends the transaction.
            let _ = self.client.batch_execute("ROLLBACK");
        }
        self.is_open = false;
    }

    fn query(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Row>, StoreError> {
        let mut found = Vec::new();
        self.run(sql, rows, |client, statement, values| {
            for row in client.query(statement, values)? {
                let values = (0..row.len()).map(|column| row.try_get(column));
                found.push(Row::new(values.collect::<Result<_, _>>()?));
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64, StoreError> {
        let mut changed = 0;
        self.run(sql, rows, |client, statement, values| {
            changed += client.execute(statement, values)?;
            Ok(())
        })?;
        Ok(changed)
    }

    fn copy(&mut self, path: &Path) -> Result<(), StoreError> {
        self.address.dump(path)
    }

    fn connect(&self, _: Access) -> Result<Box<dyn Database>, StoreError> {
        Ok(Box::new(Self::new(self.address.clone())?))
    }
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Cause> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Number(number) => match *kind {
                Type::BOOL => (*number != 0).to_sql(kind, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                _ => number.to_sql(kind, out),
            },
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        TYPES.contains(kind)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Cause> {
        Ok(match *kind {
            Type::BOOL => Self::Number(i64::from(bool::from_sql(kind, raw)?)),
            Type::INT2 => Self::Number(i64::from(i16::from_sql(kind, raw)?)),
            Type::INT4 => Self::Number(i64::from(i32::from_sql(kind, raw)?)),
            Type::INT8 => Self::Number(i64::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_owned()),
            _ => Self::Text(String::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Cause> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        TYPES.contains(kind)
    }
}

/// Column types that a [`Value`] is decoded from.
const TYPES: &[Type] =
    &[Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::TEXT, Type::VARCHAR, Type::BYTEA];
const VERSION_OF_TABLES: &str = "SELECT version FROM underload_version";
const CHECKED_FOR: Duration = Duration::from_secs(1);
/// Settings of a session. The idle timeout ends the session of a client that stalls within a
/// transaction, which releases its locks.
const LIMITS: &str = "SET idle_in_transaction_session_timeout = '10s';
    SET lock_timeout = '10s';
    SET statement_timeout = '120s';
    SET jit = off";
const TURN: &str = "SELECT 1 FROM turns WHERE name = 'admission' FOR UPDATE";
/// Concurrent transactions do not commit in the order of their numbers, so results are
/// folded by transaction, up to the oldest open one.
const WORDS: &[(&str, &str)] = &[
    ("{numbers $7}", "SELECT unnest(string_to_array($7, ',')::bigint[])"),
    ("{later}", "(change, number) > ($1, $2)"),
    ("{later than $3}", "(change, number) > ($1, $2) AND number > $3"),
    ("{change}", "change"),
    ("{restarted}", "last_change"),
    ("{place}", "strpos"),
    ("{order}", "change, number"),
    ("{folded}", "(change, number) <= (SELECT last_change, last_number FROM progress)"),
    ("{over}", "change < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"),
];
/// Key of the advisory lock that the creation of the tables takes. Other programs that use this
/// database must use other numbers.
const CREATION: i64 = 0x756e_6465_726c_6f61;
/// A database that was restored on another server numbers its transactions from the start again.
/// Folded results then get a number below all transactions, so that the others are folded next.
const MOVED: &str = "DO $$ BEGIN
    IF (SELECT min(last_change) FROM progress) > pg_current_xact_id()::text::bigint THEN
        UPDATE results SET change = CASE
            WHEN (change, number) <= (last_change, last_number) THEN -1
            ELSE 0 END
        FROM progress;
        UPDATE progress SET last_change = 0, last_number = 0;
    END IF;
END $$";
