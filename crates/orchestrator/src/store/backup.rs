//! Copies a store while orchestrators use it: the database first and then the files that it names,
//! none of which is deleted meanwhile.

use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};
use underload_disk::sync_directory;
use underload_fleet::store::{Result, StoreError};

use super::files::{self, Files, copy_file, hash};
use super::housekeeping::temporary;
use super::open::{ARCHIVE, SqlStore};
use super::place::Place;
use super::sqlite::FILE;
use super::tables;

/// A file of a copied store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopiedFile {
    /// Relative to the copy.
    pub path: String,
    /// Hexadecimal SHA-256.
    pub sha256: String,
}

impl CopiedFile {
    /// Verifies the file in a directory and copies it, synced to disk, if `to` names another one.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the file does not have this hash.
    pub fn verify(&self, from: &Path, to: Option<&Path>) -> Result<()> {
        let from = from.join(&self.path);
        let copied = to.map_or_else(|| hash(&from), |to| copy_file(&from, &to.join(&self.path)));
        if copied? == self.sha256 {
            return Ok(());
        }
        let from = from.display();
        Err(StoreError::broken(format!("{from}: its hash is another; the copy is damaged")))
    }
}

impl Place {
    /// Copies the store into an empty directory. Returns the files of the copy, the database last.
    pub fn copy_to(&self, directory: &Path) -> Result<Vec<CopiedFile>> {
        let mut database = self.store_beside()?.database;
        // While readers are there, no file of the archive is deleted.
        let readers = Files::read(&mut *database)?;
        let copied = if self.directory().is_some() { FILE } else { DUMP };
        let path = directory.join(copied);
        database.copy(&path)?;
        // The catalogue in a dump cannot be read: all files that it may name are copied.
        let parts = match self {
            Self::Sqlite(_) => {
                let mut copy = SqlStore::beside(directory)?.database;
                tables::put_setting(&mut *copy, tables::ARCHIVE, &ARCHIVE)?;
                files::parts(&mut *copy)?
            }
            Self::Postgres(_) => files::stored(&mut *database)?,
        };
        let mut all = Vec::new();
        for part in parts.into_iter().filter(files::Part::has_runs) {
            let file = CopiedFile {
                path: format!("{ARCHIVE}/{}", part.path),
                sha256: part.sha256.clone(),
            };
            let from = part.in_folder(&readers.folder);
            if copy_file(&from, &directory.join(&file.path))? != file.sha256 {
                return Err(files::changed(&from));
            }
            all.push(file);
        }
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.and_then(|()| sync_directory(directory)).map_err(|it| temporary(&path, it))?;
        all.push(CopiedFile { path: copied.to_owned(), sha256: hash(&path)? });
        Ok(all)
    }
}

/// File of a dump of PostgreSQL, in `pg_dump`'s own format.
const DUMP: &str = "fleet.pgdump";
