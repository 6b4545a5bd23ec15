//! Files of tables: Parquet, one row group per trial.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use underload_disk::{Access, NewFile};

use crate::columns::{Column, Kind, Layout};
use crate::error::StoreError;
use crate::files::open_file;
use crate::values::guarded;

/// A file that row groups are added to.
pub(crate) struct TableWriter<W: Write + Send> {
    path: PathBuf,
    writer: SerializedFileWriter<W>,
}

/// A table that gets its name when it is complete.
pub(crate) type NewTable = TableWriter<NewFile>;

impl<W: Write + Send> TableWriter<W> {
    pub(crate) fn new<S: AsRef<str>>(
        path: &Path,
        file: W,
        layout: &Layout<S>,
    ) -> Result<Self, StoreError> {
        let writer = file_writer(file, layout).map_err(|error| write_error(path, &error))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Adds a row group; all columns have as many values.
    pub(crate) fn write(&mut self, columns: &[Column]) -> Result<(), StoreError> {
        append_columns(&mut self.writer, columns).map_err(|error| write_error(&self.path, &error))
    }

    /// Writes the end of the file.
    pub(crate) fn finish(self) -> Result<W, StoreError> {
        self.writer.into_inner().map_err(|error| write_error(&self.path, &error))
    }
}

impl NewTable {
    pub(crate) fn begin<S: AsRef<str>>(
        path: &Path,
        layout: &Layout<S>,
    ) -> Result<Self, StoreError> {
        let file = NewFile::beside(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        Self::new(path, file, layout)
    }

    /// Names the finished table, if no other file has its name.
    pub(crate) fn claim(self) -> Result<(), StoreError> {
        self.place(NewFile::claim)
    }

    /// Names the finished table, in the place of any other file of its name.
    pub(crate) fn replace(self) -> Result<(), StoreError> {
        self.place(NewFile::replace)
    }

    fn place(self, place: fn(NewFile) -> io::Result<()>) -> Result<(), StoreError> {
        let path = self.path.clone();
        place(self.finish()?).map_err(StoreError::io(&path, "write"))
    }
}

impl<W: Write + Send> fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A file's bytes, with one row group of each.
pub(crate) fn bytes<S: AsRef<str>>(
    layout: &Layout<S>,
    groups: impl Iterator<Item = Vec<Column>>,
) -> Result<Vec<u8>, String> {
    let told = |error: ParquetError| error.to_string();
    let mut writer = file_writer(Vec::new(), layout).map_err(told)?;
    for columns in groups {
        append_columns(&mut writer, &columns).map_err(told)?;
    }
    writer.into_inner().map_err(told)
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

/// Writes one file with the row groups of all `parts`, which are copied and not decoded. Without
/// parts, a table without rows. It is there whole or not at all, and in no other file's place.
pub(crate) fn merge(
    path: &Path,
    layout: &Layout,
    parts: impl Iterator<Item = PathBuf>,
) -> Result<(), StoreError> {
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

/// Reads every row group whose trials `wanted` accepts, and passes its columns to `take`. Refuses a
/// file with other columns than `layout`, or with more than `row_limit` accepted rows.
pub(crate) fn read(
    path: &Path,
    layout: &Layout,
    row_limit: u64,
    wanted: &dyn Fn(i64) -> bool,
    take: &mut dyn FnMut(&[Column]) -> Result<(), String>,
) -> Result<(), StoreError> {
    let damaged = |reason: String| StoreError::Damaged { path: path.to_owned(), reason };
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
        let columns = guarded(|| read_group(&reader, position, layout, rows as usize));
        take(&columns.map_err(|error| damaged(error.to_string()))?).map_err(damaged)?;
    }
    Ok(())
}

/// Opens a table, and refuses one with other columns.
pub(crate) fn open<S: AsRef<str>>(
    path: &Path,
    layout: &Layout<S>,
) -> Result<SerializedFileReader<File>, StoreError> {
    let file = open_file(path)?;
    let damaged = |reason: String| StoreError::Damaged { path: path.to_owned(), reason };
    let told = |error: ParquetError| damaged(error.to_string());
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(told)?;
    if !has_layout(&reader, layout).map_err(told)? {
        return Err(damaged("its columns are not those of this format version".to_owned()));
    }
    Ok(reader)
}

/// Whether a file has exactly the columns of a layout.
pub(crate) fn has_layout<R: ChunkReader + 'static, S: AsRef<str>>(
    reader: &SerializedFileReader<R>,
    layout: &Layout<S>,
) -> ParquetResult<bool> {
    Ok(*reader.metadata().file_metadata().schema() == *schema(layout)?)
}

pub(crate) fn read_group<R: ChunkReader + 'static, S>(
    reader: &SerializedFileReader<R>,
    position: usize,
    layout: &Layout<S>,
    rows: usize,
) -> ParquetResult<Vec<Column>> {
    let group = reader.get_row_group(position)?;
    let kinds = layout.iter().map(|(_, kind)| *kind).enumerate();
    kinds.map(|(at, kind)| Column::read(kind, group.get_column_reader(at)?, rows)).collect()
}

fn single_trial(statistics: Option<&Statistics>) -> Option<i64> {
    let Some(Statistics::Int64(statistics)) = statistics else { return None };
    let (min, max) = (statistics.min_opt()?, statistics.max_opt()?);
    (min == max).then_some(*min)
}

fn file_writer<W: Write + Send, S: AsRef<str>>(
    file: W,
    layout: &Layout<S>,
) -> ParquetResult<SerializedFileWriter<W>> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("underload ", env!("CARGO_PKG_VERSION")).to_owned());
    // Times and counters hardly repeat but grow steadily: differences are small, dictionaries
    // large.
    for (name, _) in layout.iter().filter(|(_, kind)| *kind == Kind::Long) {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name.as_ref()), false)
            .set_column_encoding(ColumnPath::from(name.as_ref()), Encoding::DELTA_BINARY_PACKED);
    }
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
