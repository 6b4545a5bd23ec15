//! Parquet files of the archive: written with their hash, and read in batches of rows.
//!
//! A histogram is two lists of equal length, bins and their counts, so that any program can read
//! it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use ring::digest::{Context, SHA256};
use underload_disk::{Access, NewFile};
use underload_fleet::bins::Bins;
use underload_fleet::store::{Result, StoreError};
use underload_store::table::{Column, Lists, Table, TableReader, TableWriter};

/// A file under construction, which appears under its path only when finished.
pub(super) struct Writer {
    path: PathBuf,
    table: TableWriter<Summed>,
}

impl Writer {
    /// Creates the file, and the directories above it.
    pub(super) fn new<T: Table>(path: &Path) -> Result<Self> {
        let file = Summed::new(path).map_err(failed(path))?;
        let table = TableWriter::new(file, T::LAYOUT).map_err(unwritten(path))?;
        Ok(Self { path: path.to_owned(), table })
    }

    pub(super) fn row<T: Table>(&mut self, row: &T::Row<'_>) -> Result<()> {
        self.table.push(T::cells(row)).map_err(unwritten(&self.path))
    }

    /// Syncs the file to disk and moves it to its path. Removes it after an error. Returns its bytes
    /// and their hash.
    pub(super) fn finish(self) -> Result<(u64, String)> {
        let file = self.table.finish().map_err(unwritten(&self.path))?;
        Ok((file.bytes, file.finish().map_err(failed(&self.path))?))
    }
}

/// Copies a file, synced to disk, and creates the directories above it. Returns its hash.
pub(in crate::store) fn copy_file(from: &Path, to: &Path) -> Result<String> {
    let mut file = File::open(from).map_err(missing(from))?;
    let mut copy = Summed::new(to).map_err(failed(to))?;
    std::io::copy(&mut file, &mut copy).map_err(failed(to))?;
    copy.finish().map_err(failed(to))
}

/// A file whose bytes are counted and hashed as they are written.
struct Summed {
    file: NewFile,
    sum: Context,
    bytes: u64,
}

impl Summed {
    fn new(path: &Path) -> std::io::Result<Self> {
        underload_disk::create_directory(underload_disk::directory_of(path), Access::Owner)?;
        let file = NewFile::beside(path, Access::Owner)?;
        Ok(Self { file, sum: Context::new(&SHA256), bytes: 0 })
    }

    fn finish(self) -> std::io::Result<String> {
        self.file.claim()?;
        Ok(data_encoding::HEXLOWER.encode(self.sum.finish().as_ref()))
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Reads columns of a file in batches of rows.
pub(super) struct Reader {
    path: PathBuf,
    table: TableReader,
}

impl Reader {
    /// Opens a file to read the columns whose names `is_read` accepts; the numbers of the others
    /// are 0 or `None`, and their texts are empty.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the file is missing, damaged, or has other columns.
    pub(super) fn open<T: Table>(path: &Path, is_read: impl Fn(&str) -> bool) -> Result<Self> {
        let file = File::open(path).map_err(missing(path))?;
        let table = TableReader::new(file, T::LAYOUT, is_read);
        let table = table.map_err(|error| damaged(path, &error.to_string()))?;
        Ok(Self { path: path.to_owned(), table })
    }

    /// Reads the columns of the next rows; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Column>>> {
        let columns = self.table.next(ROWS_AT_ONCE);
        columns.map_err(|error| damaged(&self.path, &error.to_string()))
    }
}

/// Returns the bins of a histogram as a list; without a histogram it is empty.
pub(super) fn bins_of(histogram: Option<&Bins>) -> Vec<i64> {
    histogram.into_iter().flat_map(Bins::iter).map(|(bin, _)| i64::from(bin)).collect()
}

/// Returns the counts of the bins that [`bins_of`] returns.
pub(super) fn counts_of(histogram: Option<&Bins>) -> Vec<i64> {
    histogram.into_iter().flat_map(Bins::iter).map(|(_, count)| count as i64).collect()
}

/// Returns the histogram of a row; `None` for invalid lists.
pub(super) fn histogram(bins: &Lists, counts: &Lists, row: usize) -> Option<Bins> {
    let (bins, counts) = (bins.get(row)?, counts.get(row)?);
    let pair = |(bin, count): (&i64, &i64)| Some((u16::try_from(*bin).ok()?, *count as u64));
    let pairs: Vec<(u16, u64)> = bins.iter().zip(counts).map(pair).collect::<Option<_>>()?;
    Bins::try_from(pairs).ok().filter(|_| bins.len() == counts.len())
}

/// Returns a text; `None` if it is not UTF-8.
pub(super) fn text(bytes: &ByteArray) -> Option<&str> {
    bytes.as_utf8().ok()
}

fn unwritten(path: &Path) -> impl FnOnce(ParquetError) -> StoreError + '_ {
    move |error| StoreError::temporary(path.display().to_string()).because(error)
}

/// Wraps an I/O error with its path.
pub(super) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::temporary(path.display().to_string()).because(error)
}

/// As [`failed`], but [`StoreError::Broken`] if the file does not exist.
pub(super) fn missing(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + '_ {
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => damaged(path, "it is missing; restore it from a copy"),
        _ => failed(path)(error),
    }
}

pub(super) fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::broken(format!("the archive's file {}: {why}", path.display()))
}

/// Rows that a [`Reader`] has in memory.
const ROWS_AT_ONCE: usize = 1 << 12;
