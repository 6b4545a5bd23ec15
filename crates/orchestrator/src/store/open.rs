//! Opens a store: the connection that writes, and others beside it.

use std::path::Path;

use underload_fleet::retention::Retention;
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

use super::archive::SqlArchive;
use super::database::{Access, Database};
use super::housekeeping::Housekeeping;
use super::keeper::Keeper;
use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::transaction::SqlTransaction;

/// A store in SQLite or PostgreSQL.
pub struct SqlStore {
    pub(super) database: Box<dyn Database>,
}

impl SqlStore {
    /// Opens the store in a directory for one orchestrator, and creates both if they are missing.
    ///
    /// # Errors
    /// Returns [`StoreError::Temporary`] if another orchestrator uses the store or the disk is
    /// full, and [`StoreError::Broken`] if the store is damaged, of another version, or accessible
    /// to other users of this machine.
    pub fn sqlite(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Sqlite::open(directory)?) })
    }

    /// Opens the store in a directory for a short change, also while an orchestrator uses it.
    ///
    /// # Errors
    /// As [`SqlStore::sqlite`], and [`StoreError::Temporary`] if there is no store.
    pub fn beside(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Sqlite::beside(directory)?) })
    }

    /// Connects to PostgreSQL 15 or newer for any number of orchestrators, and creates the tables
    /// if they are missing.
    ///
    /// `postgres://USER:PASSWORD@HOST/DATABASE`; a directory with a socket as `?host=/DIR`. With
    /// `sslmode=require` or `verify-full` the connection is encrypted and the server's certificate
    /// is checked, against the system's authorities or those in the file `sslrootcert`.
    ///
    /// # Errors
    /// Returns [`StoreError::Temporary`] if the database is unreachable, and
    /// [`StoreError::Broken`] if the address is invalid or the tables are of another version.
    pub fn postgres(url: &str) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Postgres::open(url)?) })
    }

    /// Opens a connection for queries, which does not block this store.
    pub fn archive(&self) -> Result<SqlArchive, StoreError> {
        Ok(SqlArchive::new(self.database.connect(Access::Read)?))
    }

    /// Opens a connection that folds results in the background.
    pub fn keeper(&self) -> Result<Keeper, StoreError> {
        Ok(Keeper::new(self.database.connect(Access::Write)?))
    }

    /// Opens the background work, which moves old days to files in `archive`, by default in a
    /// subdirectory of an SQLite store; with PostgreSQL and without `archive`, days stay in the
    /// database. Orchestrators on several machines share the directory: while one works on it, the
    /// others do nothing.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the directory contains the archive of another store.
    pub fn housekeeping(
        &self,
        archive: Option<&Path>,
        retention: Retention,
    ) -> Result<Housekeeping, StoreError> {
        let keeper = self.keeper()?;
        let own = keeper.database.folder().map(|root| root.join(ARCHIVE));
        Housekeeping::new(keeper, archive.or(own.as_deref()), retention)
    }
}

impl Store for SqlStore {
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(SqlTransaction::begin(&mut *self.database, needs)?))
    }
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the address, which has a password.
        f.debug_struct("SqlStore").finish_non_exhaustive()
    }
}

/// Name of the folder of the archive in a store.
pub(super) const ARCHIVE: &str = "archive";
