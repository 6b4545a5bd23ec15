//! Parquet files of tables, with one row group per trial.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{LogicalType, Type as PhysicalType};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use underload_disk::{Access, NewFile};

use crate::columns::{Column, Kind, Layout};
use crate::error::{Result, StoreError};
use crate::files::open_file;
use crate::values::{as_differences, compressed, guarded};

/// A file to which row groups are added.
pub(crate) struct TableWriter<W: Write + Send> {
    path: PathBuf,
    writer: SerializedFileWriter<W>,
}

/// A table that gets its name once it is complete.
pub(crate) type NewTable = TableWriter<NewFile>;

impl<W: Write + Send> TableWriter<W> {
    pub(crate) fn new<S: AsRef<str>>(path: &Path, file: W, layout: &Layout<S>) -> Result<Self> {
        let writer = file_writer(file, layout).map_err(|error| write_error(path, &error))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Adds a row group of columns of equal length.
    pub(crate) fn write(&mut self, columns: &[Column]) -> Result<()> {
        append_columns(&mut self.writer, columns).map_err(|error| write_error(&self.path, &error))
    }

    pub(crate) fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(|error| write_error(&self.path, &error))
    }
}

impl NewTable {
    pub(crate) fn begin<S: AsRef<str>>(path: &Path, layout: &Layout<S>) -> Result<Self> {
        let file = NewFile::beside(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        Self::new(path, file, layout)
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
        let path = self.path.clone();
        place(self.finish()?).map_err(StoreError::io(&path, "write"))
    }
}

impl<W: Write + Send> fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the bytes of a file with these row groups.
pub(crate) fn bytes<S: AsRef<str>>(
    layout: &Layout<S>,
    groups: impl Iterator<Item = Vec<Column>>,
) -> Result<Vec<u8>, String> {
    let write = || -> ParquetResult<Vec<u8>> {
        let mut writer = file_writer(Vec::new(), layout)?;
        for columns in groups {
            append_columns(&mut writer, &columns)?;
        }
        writer.into_inner()
    };
    write().map_err(|error| error.to_string())
}

fn append_columns<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[Column],
) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        column.write(&mut writer)?;
        writer.close()?;
    }
    group.close().map(drop)
}

/// Copies the row groups of all `parts` to one file without decoding them. Without parts, the table
/// has no rows. The file is written completely or not at all, and must not exist.
pub(crate) fn merge(
    path: &Path,
    layout: &Layout,
    parts: impl Iterator<Item = PathBuf>,
) -> Result<()> {
    let mut table = NewTable::begin(path, layout)?;
    for part in parts {
        let input = File::open(&part).map_err(StoreError::io(&part, "open"))?;
        let copied = guarded(|| append_groups(&mut table.writer, &input));
        copied.map_err(|error| write_error(path, &error))?;
    }
    table.claim()
}

fn append_groups(writer: &mut SerializedFileWriter<NewFile>, input: &File) -> ParquetResult<()> {
    let reader = SerializedFileReader::new(input.try_clone()?)?;
    for metadata in reader.metadata().row_groups() {
        let mut group = writer.next_row_group()?;
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
}

/// Calls `take` with the columns of every row group whose trials `wanted` accepts. Rejects a file
/// with other columns than `layout`, or with more than `row_limit` accepted rows.
pub(crate) fn read(
    path: &Path,
    layout: &Layout,
    row_limit: u64,
    wanted: &dyn Fn(i64) -> bool,
    take: &mut dyn FnMut(&[Column]) -> Result<(), String>,
) -> Result<()> {
    let damaged = |reason: String| StoreError::damaged(path, reason);
    let reader = open(path, layout)?;
    let mut rows_left = row_limit;
    for position in 0..reader.num_row_groups() {
        let metadata = reader.metadata().row_group(position);
        let only_trial = single_trial(metadata.column(0).statistics());
        if only_trial.is_some_and(|trial| !wanted(trial)) {
            continue;
        }
        let rows = u64::try_from(metadata.num_rows()).unwrap_or(u64::MAX);
        rows_left = rows_left
            .checked_sub(rows)
            .ok_or_else(|| StoreError::TooLarge { path: path.to_owned(), row_limit })?;
        take(&read_group(&reader, position, layout).map_err(damaged)?).map_err(damaged)?;
    }
    Ok(())
}

/// Opens a table. Rejects other columns than `layout`.
pub(crate) fn open<S: AsRef<str>>(
    path: &Path,
    layout: &Layout<S>,
) -> Result<SerializedFileReader<File>> {
    reader(open_file(path)?, layout).map_err(|reason| StoreError::damaged(path, reason))
}

/// Reads the footer of a file. Rejects other columns than `layout`.
pub(crate) fn reader<R: ChunkReader + 'static, S: AsRef<str>>(
    file: R,
    layout: &Layout<S>,
) -> Result<SerializedFileReader<R>, String> {
    let read = || {
        let reader = SerializedFileReader::new(file)?;
        let is_equal = *reader.metadata().file_metadata().schema() == *schema(layout)?;
        Ok(is_equal.then_some(reader))
    };
    let reader = guarded(read).map_err(|error| error.to_string())?;
    reader.ok_or_else(|| "its columns are those of another version or sweep".to_owned())
}

/// Reads one row group, whose first columns are those of `layout`.
pub(crate) fn read_group<R: ChunkReader + 'static, S>(
    reader: &SerializedFileReader<R>,
    position: usize,
    layout: &Layout<S>,
) -> Result<Vec<Column>, String> {
    let rows = usize::try_from(reader.metadata().row_group(position).num_rows());
    let rows = rows.ok().filter(|rows| *rows <= MOST_GROUP_ROWS);
    let rows = rows.ok_or("a row group of an invalid size")?;
    let columns = guarded(|| {
        let group = reader.get_row_group(position)?;
        let kinds = layout.iter().map(|(_, kind)| *kind).enumerate();
        kinds.map(|(at, kind)| Column::read(kind, group.get_column_reader(at)?, rows)).collect()
    });
    columns.map_err(|error| error.to_string())
}

const MOST_GROUP_ROWS: usize = 1 << 24;

fn single_trial(statistics: Option<&Statistics>) -> Option<i64> {
    let Some(Statistics::Int64(statistics)) = statistics else { return None };
    let (min, max) = (statistics.min_opt()?, statistics.max_opt()?);
    (min == max).then_some(*min)
}

fn file_writer<W: Write + Send, S: AsRef<str>>(
    file: W,
    layout: &Layout<S>,
) -> ParquetResult<SerializedFileWriter<W>> {
    // Times and counters rarely repeat but grow steadily: differences are small, dictionaries
    // large.
    let steady = layout.iter().filter(|(_, kind)| *kind == Kind::Long);
    let properties = steady.fold(compressed()?, |properties, (name, _)| {
        as_differences(properties, ColumnPath::from(name.as_ref()))
    });
    SerializedFileWriter::new(file, schema(layout)?, Arc::new(properties.build()))
}

fn schema<S: AsRef<str>>(layout: &Layout<S>) -> ParquetResult<TypePtr> {
    let mut fields = Vec::with_capacity(layout.len());
    for (name, kind) in layout {
        let (physical, repetition) = kind.in_parquet();
        let is_text = physical == PhysicalType::BYTE_ARRAY;
        let field = Type::primitive_type_builder(name.as_ref(), physical)
            .with_repetition(repetition)
            .with_logical_type(is_text.then_some(LogicalType::String))
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("underload").with_fields(fields).build()?))
}

fn write_error(path: &Path, error: &ParquetError) -> StoreError {
    let reason = error.to_string();
    StoreError::Table { path: path.to_owned(), reason }
}
