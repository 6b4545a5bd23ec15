//! A store, opened: the connection that writes, and those beside it.

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

/// A store in a database.
pub struct SqlStore {
    pub(super) database: Box<dyn Database>,
}

impl SqlStore {
    /// Opens the store in a directory for one orchestrator; both are made if they are missing.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] if another orchestrator has it, or the disk is full;
    /// [`StoreError::Broken`] if the store is damaged, of a newer version, or open to other users
    /// of this machine.
    pub fn sqlite(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Sqlite::open(directory)?) })
    }

    /// Opens the store in a directory for a short change, also while an orchestrator is at work
    /// with it.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] if there is none, [`StoreError::Broken`] if other users of this
    /// machine can read it.
    pub fn beside(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Sqlite::beside(directory)?) })
    }

    /// Connects to PostgreSQL 15 or newer for any number of orchestrators, and brings the tables
    /// to this program's version.
    ///
    /// `postgres://USER:PASSWORD@HOST/DATABASE`; a folder with a socket as `?host=/FOLDER`. With
    /// `sslmode=require` or `verify-full` the connection is encrypted and the server's certificate
    /// is checked, against the system's authorities or those in the file `sslrootcert`.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] if the database is away, [`StoreError::Broken`] if the address is
    /// wrong or the tables are of a newer version.
    pub fn postgres(url: &str) -> Result<Self, StoreError> {
        Ok(Self { database: Box::new(Postgres::open(url)?) })
    }

    /// Opens a connection that answers questions, without keeping this store waiting.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn archive(&self) -> Result<SqlArchive, StoreError> {
        Ok(SqlArchive::new(self.database.connect(Access::Read)?))
    }

    /// Opens a connection that folds results in the background. Keepers of several orchestrators
    /// take turns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keeper(&self) -> Result<Keeper, StoreError> {
        Ok(Keeper::new(self.database.connect(Access::Write)?))
    }

    /// Opens what keeps this store in order in the background: folds results, and moves old days
    /// to files in that folder. Without one they go to `archive` in the store's own folder, and
    /// stay in a database on a server. Orchestrators on several machines share the folder: one that
    /// comes while another is at work does nothing.
    ///
    /// # Errors
    /// [`StoreError`], also if that folder has the archive of another store.
    pub fn housekeeping(
        &self,
        archive: Option<&Path>,
        retention: Retention,
    ) -> Result<Housekeeping, StoreError> {
        let keeper = self.keeper()?;
        let own = keeper.root().map(|root| root.join(ARCHIVE));
        let folder = archive.or(own.as_deref()).map(Path::to_owned);
        Housekeeping::new(keeper, folder.as_deref(), retention)
    }
}

impl Store for SqlStore {
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(SqlTransaction::begin(&mut *self.database, needs)?))
    }
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address of a database has a password.
        f.debug_struct("SqlStore").finish_non_exhaustive()
    }
}

/// The folder of the archive in the store's directory.
const ARCHIVE: &str = "archive";
