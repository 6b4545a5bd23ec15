//! Parquet, column by column: a table of a few plain types, one row group per trial.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::column::reader::get_typed_column_reader;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use underload_disk::{Access, GrowingFile, NewFile};

use crate::StoreError;
use crate::read::open_file;
use crate::values::{guarded, optional, required, with_levels};

/// Type and meaning of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of 64 bits.
    Long,
    /// The same, some of them absent.
    OptionalLong,
    /// UTF-8.
    Text,
    /// The same, some of it absent.
    OptionalText,
    /// True or false.
    Boolean,
    /// Floating point of 64 bits.
    Double,
    /// The same, some of them absent.
    OptionalDouble,
}

/// The values of one column of one row group.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Of [`Kind::Long`].
    Long(Vec<i64>),
    /// Of [`Kind::OptionalLong`].
    OptionalLong(Vec<Option<i64>>),
    /// Of [`Kind::Text`].
    Text(Vec<ByteArray>),
    /// Of [`Kind::OptionalText`].
    OptionalText(Vec<Option<ByteArray>>),
    /// Of [`Kind::Boolean`].
    Boolean(Vec<bool>),
    /// Of [`Kind::Double`].
    Double(Vec<f64>),
    /// Of [`Kind::OptionalDouble`].
    OptionalDouble(Vec<Option<f64>>),
}

/// Names and kinds of a table's columns, in order. The first is the trial.
pub(super) type Layout<S = &'static str> = [(S, Kind)];

impl Column {
    /// A column without values.
    pub(super) fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Long => Self::Long(Vec::new()),
            Kind::OptionalLong => Self::OptionalLong(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
            Kind::OptionalText => Self::OptionalText(Vec::new()),
            Kind::Boolean => Self::Boolean(Vec::new()),
            Kind::Double => Self::Double(Vec::new()),
            Kind::OptionalDouble => Self::OptionalDouble(Vec::new()),
        }
    }
}

/// Writes a file with one row group.
pub(super) fn write(
    path: &Path,
    file: GrowingFile,
    layout: &Layout,
    columns: &[Column],
) -> Result<(), StoreError> {
    let mut writer = TableWriter::new(path, file, layout)?;
    writer.write_group(columns)?;
    writer.close()
}

/// A file that row groups are added to.
pub(super) struct TableWriter {
    path: PathBuf,
    writer: SerializedFileWriter<GrowingFile>,
}

impl TableWriter {
    pub(super) fn new(path: &Path, file: GrowingFile, layout: &Layout) -> Result<Self, StoreError> {
        let writer = file_writer(file, layout).map_err(|error| write_error(path, &error))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Adds a row group; all columns have as many values.
    pub(super) fn write_group(&mut self, columns: &[Column]) -> Result<(), StoreError> {
        append_columns(&mut self.writer, columns).map_err(|error| write_error(&self.path, &error))
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        let closed = self.writer.close();
        closed.map(drop).map_err(|error| write_error(&self.path, &error))
    }
}

/// A table under way, in no other's place until it is whole.
pub(super) struct NewTable {
    writer: SerializedFileWriter<NewFile>,
    path: PathBuf,
}

impl NewTable {
    pub(super) fn begin<S: AsRef<str>>(
        path: &Path,
        layout: &Layout<S>,
    ) -> Result<Self, StoreError> {
        let file = NewFile::beside(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        let writer = file_writer(file, layout).map_err(|error| write_error(path, &error))?;
        Ok(Self { writer, path: path.to_owned() })
    }

    /// Adds a row group; all columns have as many values.
    pub(super) fn write(&mut self, columns: &[Column]) -> Result<(), StoreError> {
        append_columns(&mut self.writer, columns).map_err(|error| write_error(&self.path, &error))
    }

    /// The finished table, if no other file has its name.
    pub(super) fn claim(self) -> Result<(), StoreError> {
        self.finish(NewFile::claim)
    }

    /// The finished table, in the place of any other file of its name.
    pub(super) fn replace(self) -> Result<(), StoreError> {
        self.finish(NewFile::replace)
    }

    fn finish(self, place: fn(NewFile) -> io::Result<()>) -> Result<(), StoreError> {
        let Self { writer, path } = self;
        let file = writer.into_inner().map_err(|error| write_error(&path, &error))?;
        place(file).map_err(StoreError::io(&path, "write"))
    }
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A file's bytes, with one row group of each.
pub(super) fn bytes<S: AsRef<str>>(
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

pub(super) fn append_columns<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[Column],
) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        match column {
            Column::Long(values) => writer.typed::<Int64Type>().write_batch(values, None, None),
            Column::Text(values) => writer.typed::<ByteArrayType>().write_batch(values, None, None),
            Column::Boolean(values) => writer.typed::<BoolType>().write_batch(values, None, None),
            Column::Double(values) => writer.typed::<DoubleType>().write_batch(values, None, None),
            Column::OptionalLong(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<Int64Type>().write_batch(&present, Some(&levels), None)
            }
            Column::OptionalDouble(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<DoubleType>().write_batch(&present, Some(&levels), None)
            }
            Column::OptionalText(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)
            }
        }?;
        writer.close()?;
    }
    group.close().map(drop)
}

/// Writes one file with the row groups of all `parts`, which are copied and not decoded. Without
/// parts, a table without rows. It is there whole or not at all, and in no other file's place.
pub(super) fn merge(
    path: &Path,
    layout: &Layout,
    parts: impl Iterator<Item = std::path::PathBuf>,
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

/// Reads every row group whose trials `wanted` may want, and gives its columns to `take`. Refuses a
/// file with other columns than `layout`, or with more than `row_limit` rows wanted.
pub(super) fn read(
    path: &Path,
    layout: &Layout,
    row_limit: u64,
    wanted: &dyn Fn(i64) -> bool,
    take: &mut dyn FnMut(Vec<Column>) -> Result<(), String>,
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
        take(columns.map_err(|error| damaged(error.to_string()))?).map_err(damaged)?;
    }
    Ok(())
}

/// Opens a table, and refuses one with other columns.
pub(super) fn open<S: AsRef<str>>(
    path: &Path,
    layout: &Layout<S>,
) -> Result<SerializedFileReader<File>, StoreError> {
    let file = open_file(path)?;
    let damaged = |reason: String| StoreError::Damaged { path: path.to_owned(), reason };
    let told = |error: ParquetError| damaged(error.to_string());
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(told)?;
    if *reader.metadata().file_metadata().schema() != *schema(layout).map_err(told)? {
        return Err(damaged("its columns are not those of this format version".to_owned()));
    }
    Ok(reader)
}

pub(super) fn read_group<R: ChunkReader + 'static, S>(
    reader: &SerializedFileReader<R>,
    position: usize,
    layout: &Layout<S>,
    rows: usize,
) -> ParquetResult<Vec<Column>> {
    let group = reader.get_row_group(position)?;
    let mut columns = Vec::with_capacity(layout.len());
    for (index, (_, kind)) in layout.iter().enumerate() {
        let column = group.get_column_reader(index)?;
        columns.push(match kind {
            Kind::Long => {
                Column::Long(required(&mut get_typed_column_reader::<Int64Type>(column), rows)?)
            }
            Kind::Text => {
                Column::Text(required(&mut get_typed_column_reader::<ByteArrayType>(column), rows)?)
            }
            Kind::Boolean => {
                Column::Boolean(required(&mut get_typed_column_reader::<BoolType>(column), rows)?)
            }
            Kind::Double => {
                Column::Double(required(&mut get_typed_column_reader::<DoubleType>(column), rows)?)
            }
            Kind::OptionalLong => Column::OptionalLong(optional(
                &mut get_typed_column_reader::<Int64Type>(column),
                rows,
            )?),
            Kind::OptionalDouble => Column::OptionalDouble(optional(
                &mut get_typed_column_reader::<DoubleType>(column),
                rows,
            )?),
            Kind::OptionalText => Column::OptionalText(optional(
                &mut get_typed_column_reader::<ByteArrayType>(column),
                rows,
            )?),
        });
    }
    Ok(columns)
}

fn single_trial(statistics: Option<&Statistics>) -> Option<i64> {
    let Some(Statistics::Int64(statistics)) = statistics else { return None };
    let (min, max) = (statistics.min_opt()?, statistics.max_opt()?);
    (min == max).then_some(*min)
}

pub(super) fn file_writer<W: Write + Send, S: AsRef<str>>(
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

pub(super) fn schema<S: AsRef<str>>(layout: &Layout<S>) -> ParquetResult<TypePtr> {
    let mut fields = Vec::with_capacity(layout.len());
    for (name, kind) in layout {
        let physical = match kind {
            Kind::Long | Kind::OptionalLong => PhysicalType::INT64,
            Kind::Text | Kind::OptionalText => PhysicalType::BYTE_ARRAY,
            Kind::Boolean => PhysicalType::BOOLEAN,
            Kind::Double | Kind::OptionalDouble => PhysicalType::DOUBLE,
        };
        let optional =
            matches!(kind, Kind::OptionalLong | Kind::OptionalText | Kind::OptionalDouble);
        let text = matches!(kind, Kind::Text | Kind::OptionalText);
        let field = Type::primitive_type_builder(name.as_ref(), physical)
            .with_repetition(if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(text.then_some(LogicalType::String))
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("underload").with_fields(fields).build()?))
}

pub(super) fn write_error(path: &Path, error: &ParquetError) -> StoreError {
    let reason = error.to_string();
    StoreError::Table { path: path.to_owned(), reason }
}
