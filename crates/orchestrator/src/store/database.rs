//! The interface between the stores and a database: statements and transactions.
//!
//! A statement is written once, for SQLite and PostgreSQL. Its values are `$1`, `$2`, ... in the
//! order in which they first appear. The placeholder `{rows bytea bigint}` expands to a table of
//! values with the columns `column1` and `column2` of these types. A statement that contains it
//! runs once for all rows of values if the database supports that; any other statement runs once
//! per row. Where the SQL dialects differ, a statement contains a placeholder that each database
//! replaces with its own SQL ([`statement`]).

use std::path::Path;

use serde::de::DeserializeOwned;
use underload_fleet::device::DeviceId;
use underload_fleet::store::StoreError;

use super::encode::from_json;

/// A connection to a database. An error ends the transaction without changes.
pub(super) trait Database: Send {
    fn begin(&mut self, kind: Begin) -> Result<(), StoreError>;
    /// Makes this transaction the only one that reserves or frees leases.
    fn take_turn(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Commits the transaction, synced to disk.
    fn commit(&mut self) -> Result<(), StoreError>;
    /// Rolls back the open transaction, if any.
    fn roll_back(&mut self);
    /// Returns the rows that a statement selects for rows of values.
    fn query(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Row>, StoreError>;
    /// Runs a statement for rows of values, all or none. Returns the number of rows it changed.
    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64, StoreError>;
    /// Moves the write-ahead log into the file of the database. Does nothing with PostgreSQL.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Copies the database as it is at one instant into a new file.
    fn copy(&mut self, path: &Path) -> Result<(), StoreError>;
    /// Overwrites what was deleted, in the database's file and its log.
    fn scrub(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Opens another connection to the same store.
    fn connect(&self, access: Access) -> Result<Box<dyn Database>, StoreError>;
    /// The folder of the store; `None` if it is on a server.
    fn folder(&self) -> Option<&Path> {
        None
    }
}

/// Runs a change in a transaction, or not at all.
pub(super) fn change<T>(
    database: &mut dyn Database,
    change: impl FnOnce(&mut dyn Database) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    database.begin(Begin::Change)?;
    let done = change(database).and_then(|done| database.commit().map(|()| done));
    if done.is_err() {
        database.roll_back();
    }
    done
}

/// The kind of transaction that [`Database::begin`] starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Reads a consistent view of the store.
    View,
    Change,
    /// Reserves or frees leases.
    Admission,
    /// Claims work by locking a row, which is written after [`Begin::Change`]. Does nothing in a
    /// database without row locks.
    Fold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A value of a statement or a row. Booleans are 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::database::Value::from($value)),*] };
}
pub(super) use values;

macro_rules! from {
    ($($type:ty, $value:ident => $made:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

from! {
    i64, value => Self::Number(value);
    i16, value => Self::Number(i64::from(value));
    u32, value => Self::Number(i64::from(value));
    bool, value => Self::Number(i64::from(value));
    // Numbers above 2^63 are stored as the signed number of the same bits.
    u64, value => Self::Number(value as i64);
    usize, value => Self::Number(i64::try_from(value).unwrap_or(i64::MAX));
    &str, value => Self::Text(value.to_owned());
    String, value => Self::Text(value);
    &[u8], value => Self::Bytes(value.to_owned());
    Vec<u8>, value => Self::Bytes(value);
    DeviceId, value => Self::Bytes(value.0.to_vec());
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row that a statement selected; its values are read in their order.
pub(super) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// Reads the next value, which may be null.
    pub(super) fn optional(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            _ => Err(damaged("number")),
        }
    }

    pub(super) fn long(&mut self) -> Result<i64, StoreError> {
        self.optional()?.ok_or_else(|| damaged("number"))
    }

    /// Reads a number that may be above 2^63.
    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        self.long().map(|number| number as u64)
    }

    /// Reads a number of a smaller type.
    pub(super) fn small<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        T::try_from(self.long()?).map_err(|_| damaged("number"))
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(damaged("text")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(damaged("bytes")),
        }
    }

    /// Reads bytes of a fixed length, such as an identifier.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.bytes()?.try_into().map_err(|_| damaged("key"))
    }

    /// Reads a value that is stored as JSON.
    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        from_json(&self.text()?)
    }
}

fn damaged(kind: &str) -> StoreError {
    StoreError::broken(format!("a stored row is damaged: it has no {kind}"))
}

/// Version of the tables that this program creates.
pub(super) const VERSION: i64 = 1;
/// The oldest version that this program reads and writes as it is: that of the release before, so
/// that both can use a store at once while orchestrators are replaced one after the other.
const OLDEST: i64 = 1;

/// Returns an error if the tables have a version that this program does not know. `place` names the
/// database in the error.
pub(super) fn check_version(place: impl std::fmt::Display, version: i64) -> Result<(), StoreError> {
    let remedy = match version {
        OLDEST..=VERSION => return Ok(()),
        ..OLDEST => "start the release before this one first, which upgrades them",
        _ => "install the release that wrote them on this machine, too, or name another store",
    };
    Err(StoreError::broken(format!(
        "the tables in {place} are of version {version}, this program reads version {VERSION}: \
         {remedy}"
    )))
}

/// Returns the SQL of a statement: replaces `words`, in their order, and the table of values, which
/// `table` writes for the types of its columns.
pub(super) fn statement(
    sql: &str,
    words: &[(&str, &str)],
    table: impl Fn(&[&str]) -> String,
) -> String {
    let mut text = sql.to_owned();
    for (word, meaning) in words {
        if text.contains(word) {
            text = text.replace(word, meaning);
        }
    }
    let Some((before, rest)) = text.split_once("{rows ") else { return text };
    let Some((types, after)) = rest.split_once('}') else { return text };
    let types: Vec<&str> = types.split(' ').collect();
    format!("{before}{}{after}", table(&types))
}
