//! The store of several orchestrators: PostgreSQL.
//!
//! None of them is the leader. Transactions that reserve or give back follow each other, by the
//! lock of one row, which is held for as short as can be: it ends before the disk has confirmed
//! the change, and the change is acknowledged only after (see `session`). All others run side
//! by side and lock the devices that they change, in order. A change that lost a race is told as
//! [`StoreError::Temporary`]. What a transaction needs is fetched at once, and what it changes is
//! written at its end, so that a batch of many requests takes a handful of statements.
//!
//! These calls block, and may not be made on a thread that drives asynchronous tasks.

mod archive;
mod base;
mod connect;
mod keeper;
mod session;
mod transaction;
mod write;

#[cfg(test)]
mod scratch;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use underload_fleet::retention::Retention;
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

pub use archive::PostgresArchive;
pub use keeper::PostgresKeeper;
use session::{Session, Source};
use transaction::PostgresTransaction;

use super::housekeeping::Housekeeping;

/// A store in PostgreSQL 15 or newer, for any number of orchestrators.
pub struct PostgresStore {
    source: Source,
    session: Option<Session>,
}

impl PostgresStore {
    /// Connects and brings the tables to this program's version.
    ///
    /// `postgres://USER:PASSWORD@HOST/DATABASE`; a folder with a socket as `?host=/FOLDER`. With
    /// `sslmode=require` or `verify-full` the connection is encrypted and the server's certificate
    /// is checked, against the system's authorities or those in the file `sslrootcert`.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] where the database is away, [`StoreError::Broken`] where the
    /// address is wrong or the tables are of a newer version.
    pub fn connect(url: &str) -> Result<Self, StoreError> {
        let source = Source::new(url)?;
        let mut session = source.open()?;
        session.migrate()?;
        Ok(Self { source, session: Some(session) })
    }

    /// Who answers questions, on a connection of its own.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn archive(&self) -> Result<PostgresArchive, StoreError> {
        PostgresArchive::new(self.source.clone())
    }

    /// Who puts results together in the background; where several do, they take turns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keeper(&self) -> Result<PostgresKeeper, StoreError> {
        PostgresKeeper::new(self.source.clone())
    }

    /// Who keeps this store in order in the background: puts results together, and moves old days
    /// to files in that folder; without one they stay. Orchestrators on several machines share the
    /// folder, and whoever comes while another is at work does nothing.
    ///
    /// # Errors
    /// [`StoreError`], also where that folder has the archive of another store.
    pub fn housekeeping(
        &self,
        archive: Option<&Path>,
        retention: Retention,
    ) -> Result<Housekeeping, StoreError> {
        Housekeeping::new(Box::new(self.keeper()?), archive, retention)
    }
}

impl Store for PostgresStore {
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        let session = self.source.session(&mut self.session)?;
        Ok(Box::new(PostgresTransaction::begin(session, needs)?))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address has a password.
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
