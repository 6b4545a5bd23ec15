//! Tables of a directory: files that get their names once they are complete, and are checked when
//! they are read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use underload_disk::{Access, NewFile};

use crate::error::{Result, StoreError};
use crate::files::open_file;
use crate::table::{Cell, Column, Layout, TableReader, TableWriter};

/// Rows that are read at once, which bounds the memory that a damaged file can allocate.
const BATCH_ROWS: usize = 1 << 16;

/// A table that gets its name once it is complete.
pub(crate) struct NewTable {
    path: PathBuf,
    writer: TableWriter<NewFile>,
}

impl NewTable {
    pub(crate) fn begin<S: AsRef<str>>(path: &Path, layout: &Layout<S>) -> Result<Self> {
        let file = NewFile::beside(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        let writer = TableWriter::new(file, layout).map_err(not_written(path))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// As [`TableWriter::with_group_rows`].
    pub(crate) fn with_group_rows(self, rows: usize) -> Self {
        Self { writer: self.writer.with_group_rows(rows), ..self }
    }

    pub(crate) fn push<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<()> {
        self.writer.push(cells).map_err(not_written(&self.path))
    }

    /// Names the finished table, unless a file of its name exists.
    pub(crate) fn claim(self) -> Result<()> {
        self.place(NewFile::claim)
    }

    /// Names the finished table, and replaces a file of its name.
    pub(crate) fn replace(self) -> Result<()> {
        self.place(NewFile::replace)
    }

    fn place(self, place: fn(NewFile) -> io::Result<()>) -> Result<()> {
        let file = self.writer.finish().map_err(not_written(&self.path))?;
        place(file).map_err(StoreError::io(&self.path, "write"))
    }
}

/// Writes one file with the rows of all `parts`, without decoding them. Without parts, the table
/// has no rows. The file is written completely or not at all, and must not exist.
pub(crate) fn merge(
    path: &Path,
    layout: &Layout,
    parts: impl Iterator<Item = PathBuf>,
) -> Result<()> {
    let mut table = NewTable::begin(path, layout)?;
    for part in parts {
        let input = File::open(&part).map_err(StoreError::io(&part, "open"))?;
        table.writer.append_file(&input).map_err(not_written(path))?;
    }
    table.claim()
}

/// Calls `take` with the columns of some rows at a time, of all row groups but those of a single
/// trial that `wanted` rejects. Rejects a file with other columns than `layout`, or with more than
/// `row_limit` such rows.
pub(crate) fn read(
    path: &Path,
    layout: &Layout,
    row_limit: u64,
    wanted: &dyn Fn(i64) -> bool,
    take: &mut dyn FnMut(&[Column]) -> Result<(), String>,
) -> Result<()> {
    let mut reader = open(path, layout, |_| true)?;
    reader.skip_groups(wanted);
    if reader.rows_left() > row_limit {
        return Err(StoreError::TooLarge { path: path.to_owned(), row_limit });
    }
    while let Some(columns) = reader.next(BATCH_ROWS).map_err(damaged(path))? {
        take(&columns).map_err(damaged(path))?;
    }
    Ok(())
}

/// Opens a table to read the columns whose names `is_read` accepts. Rejects other columns than
/// `layout`.
pub(crate) fn open<S: AsRef<str>>(
    path: &Path,
    layout: &Layout<S>,
    is_read: impl Fn(&str) -> bool,
) -> Result<TableReader> {
    TableReader::new(open_file(path)?, layout, is_read).map_err(damaged(path))
}

pub(crate) fn damaged<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> StoreError {
    move |reason| StoreError::damaged(path, reason)
}

pub(crate) fn not_written(path: &Path) -> impl Fn(ParquetError) -> StoreError {
    move |error| StoreError::Table { path: path.to_owned(), reason: error.to_string() }
}
