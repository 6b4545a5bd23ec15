//! `underload fleet backup` and `underload fleet restore`: whole copies of a store.
//!
//! A backup is a folder with the files of the store and, written last, [`MANIFEST`] with their
//! hashes. A folder without it is not a backup.

use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};
use underload_orchestrator::store::{CopiedFile, Place};
use underload_record::text::{count, one_line};
use underload_terminal::VERSION;
use underload_terminal::console::note;
use underload_terminal::exit::{OrBadInput, bad_input};

use super::orchestrator::{existing_store, store};

#[derive(Debug, Args)]
#[command(after_help = "\
Works while orchestrators run. A store in PostgreSQL is dumped by `pg_dump`, which must be installed.
The copy has the keys of the fleet: who can read it can act as an operator.

Examples:
  underload fleet backup /backup/fleet-2026-11-30
  underload fleet backup /backup/today --store sqlite:/var/lib/underload-orchestrator")]
pub(super) struct Backup {
    /// The folder to write, which is empty or does not exist.
    directory: PathBuf,
    /// The orchestrator's store: sqlite:DIR or postgres://USER@HOST/DATABASE [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet restore /backup/fleet-2026-11-30 --store sqlite:/var/lib/underload-orchestrator")]
pub(super) struct Restore {
    /// The folder that `underload fleet backup` wrote.
    directory: PathBuf,
    /// The store to create, whose folder is empty or does not exist [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

/// The content of [`MANIFEST`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    /// The program that wrote the backup.
    version: String,
    /// The database is the last one.
    files: Vec<CopiedFile>,
}

const MANIFEST: &str = "backup.json";
const MANIFEST_MAX: u64 = 256 << 20;
const FORMAT: u32 = 1;

impl Backup {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let place = existing_store(self.store.as_ref())?;
        let directory = empty(&self.directory)?;
        let written = || {
            let files = place.copy_to(directory).with_context(|| place.to_string())?;
            let manifest = Manifest { format: FORMAT, version: VERSION.to_owned(), files };
            let text = serde_json::to_vec_pretty(&manifest)?;
            disk::write_whole(&directory.join(MANIFEST), &text, Access::Owner)
                .with_context(|| directory.join(MANIFEST).display().to_string())?;
            Ok(manifest.files.len())
        };
        let files = or_removed(directory, written())?;
        note!("{}: {}", directory.display(), count(files, "file"));
        Ok(())
    }
}

impl Restore {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let files = self.files().or_bad_input()?;
        let place = store(self.store.as_ref())?;
        let Some(target) = place.directory() else {
            let mut files = files.iter();
            files.try_for_each(|file| file.verify(&self.directory, None)).or_bad_input()?;
            return Err(bad_input(anyhow!(
                "a store in PostgreSQL is restored by `pg_restore --dbname DATABASE {0}/fleet.pgdump` \
                 and a copy of {0}/archive, which --archive of the orchestrator names",
                self.directory.display()
            )));
        };
        let target = empty(target)?;
        // The database last: without it, an orchestrator refuses the folder.
        let restored = || {
            files.iter().try_for_each(|file| file.verify(&self.directory, Some(target)))?;
            place.archive().map(drop)
        };
        or_removed(target, restored().with_context(|| place.to_string()))?;
        note!("{place}: {}", count(files.len(), "file"));
        Ok(())
    }

    /// Returns the files of the backup.
    fn files(&self) -> anyhow::Result<Vec<CopiedFile>> {
        let path = self.directory.join(MANIFEST);
        let text = disk::read_file(&path, MANIFEST_MAX).with_context(|| {
            format!("{}: no whole backup, without {MANIFEST}", self.directory.display())
        })?;
        let read = || path.display().to_string();
        let manifest: Manifest = serde_json::from_slice(&text).with_context(read)?;
        if manifest.format != FORMAT {
            let (format, version) = (manifest.format, one_line(&manifest.version));
            return Err(anyhow!(
                "{}: format {format}; this program reads {FORMAT}: use {version}, which wrote it",
                path.display()
            ));
        }
        let is_inside = |file: &&CopiedFile| {
            let mut parts = Path::new(&file.path).components();
            !file.path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        match manifest.files.iter().find(|file| !is_inside(file)) {
            Some(file) => Err(anyhow!("{}: the path {:?}", path.display(), file.path)),
            None => Ok(manifest.files),
        }
    }
}

/// Creates a private folder, or accepts an empty one.
fn empty(directory: &Path) -> anyhow::Result<&Path> {
    let at = || directory.display().to_string();
    disk::private_directory(directory).with_context(at).or_bad_input()?;
    match std::fs::read_dir(directory).with_context(at)?.next() {
        Some(_) => Err(bad_input(anyhow!("{}: expected an empty folder", at()))),
        None => Ok(directory),
    }
}

/// Removes a folder after an error, so that it is not taken for a whole one.
fn or_removed<T>(directory: &Path, done: anyhow::Result<T>) -> anyhow::Result<T> {
    done.map_err(|error| {
        let removed = std::fs::remove_dir_all(directory);
        let is_left = removed.is_err_and(|it| it.kind() != io::ErrorKind::NotFound);
        let left = if is_left { "; its folder cannot be removed" } else { "" };
        error.context(format!("{}: not written{left}", directory.display()))
    })
}
