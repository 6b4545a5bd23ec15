//! Parquet, column by column: a table of a few plain types, written row by row, read by batches.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use ring::digest::{Context, SHA256};
use underload_disk::{Access, NewFile};
use underload_fleet::store::StoreError;
use underload_store::values::{guarded, optional, required, with_levels};

/// Type of a column. An optional one may be absent in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number that repeats.
    Long,
    /// A number that hardly repeats and is near the one before it.
    Rising,
    OptionalLong,
    OptionalReal,
    Text,
    OptionalText,
    Bytes,
    OptionalBytes,
}

/// Names and kinds of a table's columns, in order.
pub(super) type Layout = [(&'static str, Kind)];

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Long(i64),
    OptionalLong(Option<i64>),
    OptionalReal(Option<f64>),
    Bytes(&'a [u8]),
    OptionalBytes(Option<&'a [u8]>),
}

/// The values of one column of some rows.
#[derive(Debug)]
pub(super) enum Column {
    Long(Vec<i64>),
    OptionalLong(Vec<Option<i64>>),
    OptionalReal(Vec<Option<f64>>),
    Bytes(Vec<ByteArray>),
    OptionalBytes(Vec<Option<ByteArray>>),
}

/// What a finished file is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Written {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Hexadecimal SHA-256 of its bytes.
    pub(super) sha256: String,
}

/// A file that rows are added to. It is there whole or not at all.
pub(super) struct Writer {
    path: PathBuf,
    table: SerializedFileWriter<Summed>,
    columns: Vec<Column>,
    buffered: usize,
    rows: u64,
}

impl Writer {
    /// Begins the file, and the directories above it.
    ///
    /// # Errors
    /// [`StoreError::Temporary`], for example where the disk is full.
    pub(super) fn new(path: &Path, layout: &Layout) -> Result<Self, StoreError> {
        let directory = underload_disk::directory_of(path);
        underload_disk::create_directory(directory, Access::Owner).map_err(failed(directory))?;
        let file = NewFile::beside(path, Access::Owner).map_err(failed(path))?;
        let file = Summed { file, sum: Context::new(&SHA256), bytes: 0 };
        let table = properties(layout)
            .and_then(|properties| {
                SerializedFileWriter::new(file, schema(layout)?, Arc::new(properties))
            })
            .map_err(|error| unwritten(path, error))?;
        let columns = layout.iter().map(|(_, kind)| Column::empty(*kind)).collect();
        Ok(Self { path: path.to_owned(), table, columns, buffered: 0, rows: 0 })
    }

    /// Adds a row, which has a value for each column of the layout.
    ///
    /// # Errors
    /// [`StoreError::Temporary`], for example where the disk is full.
    pub(super) fn row(&mut self, values: &[Value<'_>]) -> Result<(), StoreError> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(*value);
        }
        self.buffered += 1;
        self.rows += 1;
        if self.buffered >= ROWS_OF_GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        let written = append(&mut self.table, &self.columns);
        written.map_err(|error| unwritten(&self.path, error))?;
        self.columns.iter_mut().for_each(Column::clear);
        self.buffered = 0;
        Ok(())
    }

    /// Ends the file, which is on disk then.
    ///
    /// # Errors
    /// [`StoreError::Temporary`]; there is no such file then.
    pub(super) fn finish(mut self) -> Result<Written, StoreError> {
        if self.buffered > 0 {
            self.write_group()?;
        }
        let file = self.table.into_inner().map_err(|error| unwritten(&self.path, error))?;
        let Summed { file, sum, bytes } = file;
        file.claim().map_err(failed(&self.path))?;
        let sha256 = data_encoding::HEXLOWER.encode(sum.finish().as_ref());
        Ok(Written { rows: self.rows, bytes, sha256 })
    }
}

/// A file whose bytes are counted and summed up as they are written.
struct Summed {
    file: NewFile,
    sum: Context,
    bytes: u64,
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

impl Column {
    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Long | Kind::Rising => Self::Long(Vec::new()),
            Kind::OptionalLong => Self::OptionalLong(Vec::new()),
            Kind::OptionalReal => Self::OptionalReal(Vec::new()),
            Kind::Text | Kind::Bytes => Self::Bytes(Vec::new()),
            Kind::OptionalText | Kind::OptionalBytes => Self::OptionalBytes(Vec::new()),
        }
    }

    /// A value of another kind than the column's is a mistake of this program, which the writer
    /// of the file tells: its columns are not of one length then.
    fn push(&mut self, value: Value<'_>) {
        let bytes = |value: &[u8]| ByteArray::from(value.to_vec());
        match (self, value) {
            (Self::Long(values), Value::Long(value)) => values.push(value),
            (Self::OptionalLong(values), Value::OptionalLong(value)) => values.push(value),
            (Self::OptionalReal(values), Value::OptionalReal(value)) => values.push(value),
            (Self::Bytes(values), Value::Bytes(value)) => values.push(bytes(value)),
            (Self::OptionalBytes(values), Value::OptionalBytes(value)) => {
                values.push(value.map(bytes));
            }
            _ => {}
        }
    }

    /// How many values it has.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Long(values) => values.len(),
            Self::OptionalLong(values) => values.len(),
            Self::OptionalReal(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::OptionalBytes(values) => values.len(),
        }
    }

    /// A number, where the row has one.
    pub(super) fn long(&self, row: usize) -> Option<i64> {
        match self {
            Self::Long(values) => values.get(row).copied(),
            Self::OptionalLong(values) => values.get(row).copied().flatten(),
            _ => None,
        }
    }

    /// A real number, where the row has one.
    pub(super) fn real(&self, row: usize) -> Option<f64> {
        match self {
            Self::OptionalReal(values) => values.get(row).copied().flatten(),
            _ => None,
        }
    }

    /// Bytes, where the row has some.
    pub(super) fn bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Bytes(values) => values.get(row).map(ByteArray::data),
            Self::OptionalBytes(values) => values.get(row)?.as_ref().map(ByteArray::data),
            _ => None,
        }
    }

    /// The same as text.
    pub(super) fn text(&self, row: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(row)?).ok()
    }

    fn clear(&mut self) {
        match self {
            Self::Long(values) => values.clear(),
            Self::OptionalLong(values) => values.clear(),
            Self::OptionalReal(values) => values.clear(),
            Self::Bytes(values) => values.clear(),
            Self::OptionalBytes(values) => values.clear(),
        }
    }
}

fn append(writer: &mut SerializedFileWriter<Summed>, columns: &[Column]) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        match column {
            Column::Long(values) => writer.typed::<Int64Type>().write_batch(values, None, None),
            Column::Bytes(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, None, None)
            }
            Column::OptionalLong(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<Int64Type>().write_batch(&present, Some(&levels), None)
            }
            Column::OptionalReal(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<DoubleType>().write_batch(&present, Some(&levels), None)
            }
            Column::OptionalBytes(values) => {
                let (present, levels) = with_levels(values);
                writer.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)
            }
        }?;
        writer.close()?;
    }
    group.close().map(drop)
}

fn properties(layout: &Layout) -> ParquetResult<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("underload ", env!("CARGO_PKG_VERSION")).to_owned());
    for (name, _) in layout.iter().filter(|(_, kind)| *kind == Kind::Rising) {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(*name), false)
            .set_column_encoding(ColumnPath::from(*name), Encoding::DELTA_BINARY_PACKED);
    }
    for (name, _) in layout.iter().filter(|(_, kind)| *kind == Kind::OptionalBytes) {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*name), false);
    }
    Ok(properties.build())
}

fn schema(layout: &Layout) -> ParquetResult<TypePtr> {
    let mut fields = Vec::with_capacity(layout.len());
    for (name, kind) in layout {
        let physical = match kind {
            Kind::Long | Kind::Rising | Kind::OptionalLong => PhysicalType::INT64,
            Kind::OptionalReal => PhysicalType::DOUBLE,
            _ => PhysicalType::BYTE_ARRAY,
        };
        let is_optional = matches!(
            kind,
            Kind::OptionalLong | Kind::OptionalReal | Kind::OptionalText | Kind::OptionalBytes
        );
        let is_text = matches!(kind, Kind::Text | Kind::OptionalText);
        let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(is_text.then_some(LogicalType::String))
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("underload").with_fields(fields).build()?))
}

/// Reads some columns of a file, some rows at a time.
pub(super) struct Reader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Positions and kinds of the columns that are wanted.
    wanted: Vec<(usize, Kind)>,
    group: usize,
    open: Vec<Open>,
    rows_left: usize,
}

enum Open {
    Long(ColumnReaderImpl<Int64Type>, bool),
    Real(ColumnReaderImpl<DoubleType>),
    Bytes(ColumnReaderImpl<ByteArrayType>, bool),
}

impl Reader {
    /// Opens a file for reading the columns of these names, in the order of the layout.
    ///
    /// # Errors
    /// [`StoreError::Broken`] where the file is missing, damaged, or has other columns.
    pub(super) fn open(path: &Path, layout: &Layout, names: &[&str]) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(missing(path))?;
        let opened = guarded(|| {
            let file = SerializedFileReader::new(file)?;
            let is_same = *file.metadata().file_metadata().schema() == *schema(layout)?;
            Ok((file, is_same))
        });
        let (file, is_same) = opened.map_err(|error| damaged(path, &error.to_string()))?;
        if !is_same {
            return Err(damaged(path, "its columns are not those of this version"));
        }
        let columns = layout.iter().enumerate();
        let wanted = columns.filter(|(_, (name, _))| names.is_empty() || names.contains(name));
        let wanted = wanted.map(|(place, (_, kind))| (place, *kind)).collect();
        let path = path.to_owned();
        Ok(Self { path, file, wanted, group: 0, open: Vec::new(), rows_left: 0 })
    }

    /// The columns of the next rows; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Broken`] where the file is damaged.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Column>>, StoreError> {
        let path = self.path.clone();
        guarded(|| self.next_batch()).map_err(|error| damaged(&path, &error.to_string()))
    }

    fn next_batch(&mut self) -> ParquetResult<Option<Vec<Column>>> {
        while self.rows_left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            let rows = self.file.metadata().row_group(self.group).num_rows();
            self.rows_left = usize::try_from(rows).unwrap_or(0);
            let group = self.file.get_row_group(self.group)?;
            self.group += 1;
            self.open.clear();
            for (place, kind) in &self.wanted {
                let column = group.get_column_reader(*place)?;
                self.open.push(match kind {
                    Kind::Long | Kind::Rising => Open::Long(get_typed_column_reader(column), false),
                    Kind::OptionalLong => Open::Long(get_typed_column_reader(column), true),
                    Kind::OptionalReal => Open::Real(get_typed_column_reader(column)),
                    Kind::Text | Kind::Bytes => Open::Bytes(get_typed_column_reader(column), false),
                    Kind::OptionalText | Kind::OptionalBytes => {
                        Open::Bytes(get_typed_column_reader(column), true)
                    }
                });
            }
        }
        let rows = self.rows_left.min(ROWS_AT_ONCE);
        self.rows_left -= rows;
        let read = |open: &mut Open| match open {
            Open::Long(column, false) => required(column, rows).map(Column::Long),
            Open::Long(column, true) => optional(column, rows).map(Column::OptionalLong),
            Open::Real(column) => optional(column, rows).map(Column::OptionalReal),
            Open::Bytes(column, false) => required(column, rows).map(Column::Bytes),
            Open::Bytes(column, true) => optional(column, rows).map(Column::OptionalBytes),
        };
        self.open.iter_mut().map(read).collect::<ParquetResult<_>>().map(Some)
    }
}

fn unwritten(path: &Path, error: ParquetError) -> StoreError {
    StoreError::temporary(path.display().to_string()).because(error)
}

/// What the file system said about a path.
pub(super) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::temporary(path.display().to_string()).because(error)
}

/// The same of a file that has to be there.
pub(super) fn missing(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + '_ {
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => damaged(path, "it is missing; restore it from a copy"),
        _ => failed(path)(error),
    }
}

/// A file that is not what it was.
pub(super) fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::broken(format!("the archive's file {}: {why}", path.display()))
}

/// Rows that are encoded together, and kept in memory until then.
const ROWS_OF_GROUP: usize = 1 << 16;
/// Rows that are in memory at a time.
const ROWS_AT_ONCE: usize = 1 << 12;
