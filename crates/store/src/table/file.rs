//! Parquet files of tables, written and read some rows at a time. Headers of damaged files are not
//! trusted.

use std::cell::Cell as ThreadCell;
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};

use super::{Cell, Column, Kind, Layout, empty, push};

/// Rows of a row group, unless [`TableWriter::with_group_rows`] says otherwise.
const GROUP_ROWS: usize = 1 << 16;

/// Writes a file, either whole row groups or row by row.
pub struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    kinds: Vec<Kind>,
    /// Rows of the next row group, which has `group_rows`.
    pending: Vec<Column>,
    group_rows: usize,
}

impl<W: Write + Send> TableWriter<W> {
    pub fn new<S: AsRef<str>>(file: W, layout: &Layout<S>) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("underload ", env!("CARGO_PKG_VERSION")).to_owned());
        for (name, kind) in layout {
            if let Some(path) = kind.path_of_differences(name.as_ref()) {
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema(layout)?, properties)?;
        let kinds = layout.iter().map(|(_, kind)| *kind).collect();
        Ok(Self { writer, kinds, pending: empty(layout), group_rows: GROUP_ROWS })
    }

    /// Writes a row group after `rows` calls of [`TableWriter::push`], which are in memory until
    /// then.
    #[must_use]
    pub fn with_group_rows(self, rows: usize) -> Self {
        Self { group_rows: rows, ..self }
    }

    /// Adds a row.
    pub fn push<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<()> {
        push(&mut self.pending, cells);
        if self.pending_rows() >= self.group_rows { self.write_pending() } else { Ok(()) }
    }

    /// Adds a row group of columns of equal length, after the rows so far.
    pub fn write(&mut self, columns: &[Column]) -> Result<()> {
        self.write_pending()?;
        self.write_group(columns)
    }

    pub fn finish(mut self) -> Result<W> {
        self.write_pending()?;
        self.writer.into_inner()
    }

    fn pending_rows(&self) -> usize {
        self.pending.first().map_or(0, Column::rows)
    }

    fn write_pending(&mut self) -> Result<()> {
        if self.pending_rows() == 0 {
            return Ok(());
        }
        let empty = self.kinds.iter().copied().map(Column::empty).collect();
        let columns = std::mem::replace(&mut self.pending, empty);
        self.write_group(&columns)
    }

    fn write_group(&mut self, columns: &[Column]) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in columns {
            let Some(mut writer) = group.next_column()? else { break };
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close().map(drop)
    }

    /// Copies the row groups of a file with the same columns without decoding them.
    pub fn append_file(&mut self, input: &File) -> Result<()> {
        guarded(|| {
            let reader = SerializedFileReader::new(input.try_clone()?)?;
            for metadata in reader.metadata().row_groups() {
                let mut group = self.writer.next_row_group()?;
                for column in metadata.columns() {
                    let copied = ColumnCloseResult {
                        bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
                        rows_written: u64::try_from(metadata.num_rows()).unwrap_or(0),
                        metadata: column.clone(),
                        bloom_filter: None,
                        column_index: None,
                        offset_index: None,
                    };
                    group.append_column(input, copied)?;
                }
                group.close()?;
            }
            Ok(())
        })
    }
}

/// Reads columns of a file in batches of rows.
pub struct TableReader<R: ChunkReader + 'static = File> {
    file: SerializedFileReader<R>,
    /// Kinds of all columns, and whether to read them.
    columns: Vec<(Kind, bool)>,
    /// Positions of the row groups to read, last one first.
    groups: Vec<usize>,
    /// The columns of the current row group; `None` for a column that is not read.
    open: Vec<Option<ColumnReader>>,
    /// Unread rows of the current row group.
    rows_left: usize,
}

impl<R: ChunkReader + 'static> TableReader<R> {
    /// Opens a file. Columns whose names `is_read` rejects are not read: their numbers are 0 or
    /// `None`, and their texts are empty.
    ///
    /// # Errors
    /// Returns an error if the file is damaged or has other columns than `layout`.
    pub fn new<S: AsRef<str>>(
        file: R,
        layout: &Layout<S>,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let file = guarded(|| SerializedFileReader::new(file))?;
        if *file.metadata().file_metadata().schema() != *schema(layout)? {
            let problem = "its columns are those of another version or of another kind of table";
            return Err(ParquetError::General(problem.to_owned()));
        }
        let columns = layout.iter().map(|(name, kind)| (*kind, is_read(name.as_ref()))).collect();
        let groups = (0..file.num_row_groups()).rev().collect();
        Ok(Self { file, columns, groups, open: Vec::new(), rows_left: 0 })
    }

    /// Skips row groups that have one number in the first column, which `is_wanted` rejects.
    pub fn skip_groups(&mut self, is_wanted: impl Fn(i64) -> bool) {
        let metadata = self.file.metadata();
        self.groups.retain(|group| only_number(metadata.row_group(*group)).is_none_or(&is_wanted));
    }

    /// Returns the number of unread rows.
    pub fn rows_left(&self) -> u64 {
        let rows = |group: &usize| self.file.metadata().row_group(*group).num_rows();
        let in_groups = self.groups.iter().map(|group| u64::try_from(rows(group)).unwrap_or(0));
        in_groups.fold(self.rows_left as u64, u64::saturating_add)
    }

    /// Reads the columns of the next rows of a row group, `most` at most; `None` at the end.
    pub fn next(&mut self, most: usize) -> Result<Option<Vec<Column>>> {
        guarded(|| {
            while self.rows_left == 0 {
                let Some(group) = self.groups.pop() else { return Ok(None) };
                self.open_group(group)?;
            }
            let rows = self.rows_left.min(most);
            self.rows_left -= rows;
            let columns = self.open.iter_mut().zip(&self.columns);
            let read = |(open, (kind, _)): (&mut Option<ColumnReader>, &(Kind, bool))| match open {
                Some(open) => Column::read(*kind, open, rows),
                None => Ok(Column::absent(*kind, rows)),
            };
            columns.map(read).collect::<Result<_>>().map(Some)
        })
    }

    fn open_group(&mut self, group: usize) -> Result<()> {
        let group = self.file.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows());
        self.rows_left =
            rows.map_err(|_| ParquetError::General("a row group of an invalid size".to_owned()))?;
        self.open.clear();
        for (position, (_, is_read)) in self.columns.iter().enumerate() {
            let column = is_read.then(|| group.get_column_reader(position));
            self.open.push(column.transpose()?);
        }
        Ok(())
    }
}

fn only_number(group: &RowGroupMetaData) -> Option<i64> {
    let Some(Statistics::Int64(statistics)) = group.column(0).statistics() else { return None };
    let (min, max) = (statistics.min_opt()?, statistics.max_opt()?);
    (min == max).then_some(*min)
}

fn schema<S: AsRef<str>>(layout: &Layout<S>) -> Result<TypePtr> {
    let fields = layout.iter().map(|(name, kind)| kind.field(name.as_ref()).map(Arc::new));
    let fields = fields.collect::<Result<_>>()?;
    Ok(Arc::new(Type::group_type_builder("underload").with_fields(fields).build()?))
}
thread_local! {
    /// Whether this thread is in [`guarded`].
    static IS_GUARDED: ThreadCell<bool> = const { ThreadCell::new(false) };
}

/// Reads the columns `names` of a file that may be from another program, in which columns may have any
/// order, and passes the cells of each row to `add`. A cell is [`Cell::Absent`] if the file has no such
/// column.
///
/// # Errors
/// Returns an error if the file is damaged, or has more than `rows_max` rows.
pub fn rows_by_name(
    file: File,
    names: &[&str],
    rows_max: i64,
    mut add: impl FnMut(&[Cell<'static>]),
) -> Result<()> {
    guarded(|| {
        let file = SerializedFileReader::new(file)?;
        let metadata = file.metadata().file_metadata();
        if metadata.num_rows() > rows_max {
            return Err(ParquetError::General(format!("it has more than {rows_max} rows")));
        }
        let is_read = |field: &&TypePtr| field.is_primitive() && names.contains(&field.name());
        let fields = metadata.schema().get_fields().iter().filter(is_read).cloned().collect();
        let read =
            Type::group_type_builder(metadata.schema().name()).with_fields(fields).build()?;
        for row in file.get_row_iter(Some(read))? {
            let mut cells = vec![Cell::Absent; names.len()];
            for (name, field) in row?.into_columns() {
                let place = names.iter().position(|known| *known == name).unwrap_or_default();
                cells[place] = match field {
                    Field::Int(number) => Cell::Long(number.into()),
                    Field::Long(number) => Cell::Long(number),
                    Field::Str(text) => Cell::Text(text.into()),
                    Field::Bytes(bytes) => Cell::Bytes(bytes.data().to_vec().into()),
                    _ => Cell::Absent,
                };
            }
            add(&cells);
        }
        Ok(())
    })
}

/// Runs a step of the Parquet library. Some of its checks panic on damaged files: such a panic
/// becomes an error, and is not printed.
fn guarded<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    if !std::thread::panicking() {
        HOOK.call_once(print_unless_guarded);
    }
    let is_within_another = IS_GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(step));
    IS_GUARDED.set(is_within_another);
    done.unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(ParquetError::General(reason.unwrap_or("unreadable").to_owned()))
    })
}

/// Prints panics as the previous hook does, except those in [`guarded`].
fn print_unless_guarded() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IS_GUARDED.get() {
            print(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_check_of_the_library_that_fails_is_an_error_and_prints_nothing() {
        let printed = Arc::new(AtomicUsize::new(0));
        let (count, this) = (Arc::clone(&printed), std::thread::current().id());
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == this {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                print(panic);
            }
        }));
        print_unless_guarded();
        let error = guarded::<()>(|| {
            let nested = guarded::<()>(|| panic!("the length is negative"));
            assert!(nested.is_err(), "an error");
            panic!("so is the start")
        });
        let said = error.expect_err("it panics").to_string();
        assert!(said.contains("so is the start"), "{said}");
        assert_eq!(printed.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(|| panic!("ours")).is_err());
        assert_eq!(printed.load(Ordering::Relaxed), 1, "others are printed as before");
    }
}
