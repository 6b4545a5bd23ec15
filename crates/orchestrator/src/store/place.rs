//! The location of a store, as on a command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use underload_fleet::retention::Retention;
use underload_fleet::store::{Archive, Result, Store};

use super::archive::SqlArchive;
use super::housekeeping::Housekeeping;
use super::open::SqlStore;

/// The location of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory, for one orchestrator.
    Sqlite(PathBuf),
    /// The URL of a database, for any number of orchestrators.
    Postgres(String),
}

/// The text is not the location of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sqlite:DIR or postgres://USER@HOST/DATABASE")]
pub struct NotAPlace;

pub struct Connections {
    /// Connections for concurrent transactions.
    pub stores: Vec<Box<dyn Store>>,
    /// Connections for concurrent queries.
    pub archives: Vec<Box<dyn Archive>>,
    pub housekeeping: Housekeeping,
}

/// Connections that write, if the database supports more than one.
const WRITERS: usize = 4;
const READERS: usize = 3;

impl Place {
    /// Opens the store for an orchestrator, and creates it if it is missing. For `archive` see
    /// [`SqlStore::housekeeping`].
    pub fn open(&self, archive: Option<&Path>, retention: Retention) -> Result<Connections> {
        let (store, writers) = match self {
            Self::Sqlite(directory) => (SqlStore::sqlite(directory)?, 1),
            Self::Postgres(url) => (SqlStore::postgres(url)?, WRITERS),
        };
        let reader = |_| Ok(Box::new(store.archive()?) as Box<dyn Archive>);
        let archives = (0..READERS).map(reader).collect::<Result<_>>()?;
        let housekeeping = store.housekeeping(archive, retention)?;
        let mut stores: Vec<Box<dyn Store>> = vec![Box::new(store)];
        for _ in 1..writers {
            stores.push(self.beside()?);
        }
        Ok(Connections { stores, archives, housekeeping })
    }

    /// Opens the store for a short change, also while an orchestrator uses it.
    pub fn beside(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.store_beside()?))
    }

    pub(super) fn store_beside(&self) -> Result<SqlStore> {
        match self {
            Self::Sqlite(directory) => SqlStore::beside(directory),
            Self::Postgres(url) => SqlStore::postgres(url),
        }
    }

    /// Opens the store for queries, also while an orchestrator uses it.
    pub fn archive(&self) -> Result<Box<dyn Archive>> {
        Ok(Box::new(match self {
            Self::Sqlite(directory) => SqlArchive::sqlite(directory)?,
            Self::Postgres(url) => SqlStore::postgres(url)?.archive()?,
        }))
    }

    /// The directory; `None` for a database.
    pub fn directory(&self) -> Option<&Path> {
        if let Self::Sqlite(directory) = self { Some(directory) } else { None }
    }
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        if let Some(directory) = text.strip_prefix("sqlite:").filter(|it| !it.is_empty()) {
            return Ok(Self::Sqlite(PathBuf::from(directory)));
        }
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|it| text.starts_with(it));
        if is_postgres { Ok(Self::Postgres(text.to_owned())) } else { Err(NotAPlace) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(directory) => write!(f, "sqlite:{}", directory.display()),
            // The address may have a password.
            Self::Postgres(_) => f.write_str("the PostgreSQL store"),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_fleet::store::StoreError;

    #[test]
    fn places_parse_and_hide_passwords() {
        assert_eq!("sqlite:a/b".parse(), Ok(Place::Sqlite(PathBuf::from("a/b"))));
        let postgres: Place = "postgresql://user:secret@host/fleet".parse().expect("a place");
        assert!(!format!("{postgres} {postgres:?}").contains("secret"));
        for wrong in ["", "sqlite:", "a/b", "mysql://host/fleet", "postgres:host"] {
            assert_eq!(wrong.parse::<Place>(), Err(NotAPlace), "{wrong}");
        }
    }

    #[test]
    fn changes_of_another_connection_are_visible() {
        use underload_fleet::store::Needs;

        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::Sqlite(directory.path().join("store"));
        let told = place.beside().map(drop).expect_err("there is none yet");
        assert!(matches!(told, StoreError::Temporary { .. }), "{told}");
        let mut opened = place.open(None, Retention::default()).expect("it opens");
        let mut beside = place.beside().expect("it opens, too");
        let mut tx = beside.begin(&Needs::default()).expect("it begins");
        tx.put_setting("name", b"value").expect("it is put");
        tx.commit().expect("it is kept");
        let mut tx = opened.stores[0].begin(&Needs::default()).expect("it begins");
        assert_eq!(tx.setting("name").expect("it is read"), Some(b"value".to_vec()));
        drop(tx);
        assert!(place.open(None, Retention::default()).is_err(), "one orchestrator at a time");
    }
}
