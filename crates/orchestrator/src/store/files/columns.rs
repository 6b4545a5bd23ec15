//! Parquet tables: written row by row, read in batches of columns.
//!
//! A histogram is two lists of equal length, bins and their counts, so that any program can read
//! it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use ring::digest::{Context, SHA256};
use underload_disk::{Access, NewFile};
use underload_fleet::bins::Bins;
use underload_fleet::store::{Result, StoreError};
use underload_store::values::{
    as_differences, compressed, guarded, optional, required, write_optional, write_required,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number that is often equal in many rows.
    Long,
    /// A number that is rarely equal in two rows and close to that of the row before.
    Rising,
    OptionalLong,
    OptionalReal,
    Text,
    OptionalText,
    Bytes,
    /// Bins of a histogram, ascending. The next column has its counts.
    Bins,
    /// Counts of the bins in the column before.
    Counts,
}

/// Declares the columns of a table, each with its name in a file, its kind and its value in a row:
/// an enum with the index of each column, `LAYOUT` for files, and the `values` of a row.
macro_rules! columns {
    ($table:ident of $it:ident: $row:ident;
        $($column:ident: $name:literal $kind:ident = $value:expr;)*) => {
        #[derive(Clone, Copy)]
        enum $table { $($column),* }

        impl $table {
            const LAYOUT: &'static $crate::store::files::columns::Layout =
                &[$(($name, $crate::store::files::columns::Kind::$kind)),*];

            fn values(
                $it: $row<'_>,
            ) -> impl Iterator<Item = $crate::store::files::columns::Value<'_>> {
                [$($value.into()),*].into_iter()
            }
        }
    };
}
pub(super) use columns;

/// Names and kinds of a table's columns, in order.
pub(super) type Layout = [(&'static str, Kind)];

#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Long(i64),
    OptionalLong(Option<i64>),
    OptionalReal(Option<f64>),
    Bytes(&'a [u8]),
    OptionalBytes(Option<&'a [u8]>),
    /// The bins or the counts of a histogram; `None` for an empty list.
    Histogram(Option<&'a Bins>),
}

macro_rules! from {
    ($($type:ty, $value:ident => $made:expr;)*) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from($value: $type) -> Self {
                $made
            }
        }
    )*};
}

from! {
    i64, number => Self::Long(number);
    u64, number => Self::Long(number as i64);
    Option<u64>, number => Self::OptionalLong(number.map(|number| number as i64));
    Option<f64>, number => Self::OptionalReal(number);
    &'a [u8; 16], bytes => Self::Bytes(bytes);
    &'a str, text => Self::Bytes(text.as_bytes());
    Option<&'a str>, text => Self::OptionalBytes(text.map(str::as_bytes));
    Option<&'a Bins>, bins => Self::Histogram(bins);
}

/// The values of one column of some rows.
#[derive(Debug)]
pub(super) enum Column {
    Long(Vec<i64>),
    OptionalLong(Vec<Option<i64>>),
    OptionalReal(Vec<Option<f64>>),
    Bytes(Vec<ByteArray>),
    OptionalBytes(Vec<Option<ByteArray>>),
    Bins(Lists),
    Counts(Lists),
    /// A column that was not read: its numbers are 0 and its texts are empty.
    Skipped,
}

/// Lists of numbers, one after the other.
#[derive(Debug, Default)]
pub(super) struct Lists {
    numbers: Vec<i64>,
    /// The index in `numbers` after the last number of each list.
    ends: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// A file under construction, which appears under its path only when finished.
pub(super) struct Writer {
    path: PathBuf,
    table: SerializedFileWriter<Summed>,
    kinds: Vec<Kind>,
    columns: Vec<Column>,
    buffered: usize,
    rows: u64,
}

impl Writer {
    /// Creates the file, and the directories above it.
    pub(super) fn new(path: &Path, layout: &Layout) -> Result<Self> {
        let directory = underload_disk::directory_of(path);
        underload_disk::create_directory(directory, Access::Owner).map_err(failed(directory))?;
        let file = NewFile::beside(path, Access::Owner).map_err(failed(path))?;
        let file = Summed { file, sum: Context::new(&SHA256), bytes: 0 };
        let table = properties(layout)
            .and_then(|properties| {
                SerializedFileWriter::new(file, schema(layout)?, Arc::new(properties))
            })
            .map_err(|error| unwritten(path, error))?;
        let kinds: Vec<Kind> = layout.iter().map(|(_, kind)| *kind).collect();
        let columns = kinds.iter().copied().map(Column::empty).collect();
        Ok(Self { path: path.to_owned(), table, kinds, columns, buffered: 0, rows: 0 })
    }

    /// Adds a row, with a value for each column of the layout.
    pub(super) fn row<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) -> Result<()> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.buffered += 1;
        self.rows += 1;
        if self.buffered >= ROWS_OF_GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let written = append(&mut self.table, &self.columns);
        written.map_err(|error| unwritten(&self.path, error))?;
        self.columns = self.kinds.iter().copied().map(Column::empty).collect();
        self.buffered = 0;
        Ok(())
    }

    /// Syncs the file to disk and moves it to its path. Removes it after an error.
    pub(super) fn finish(mut self) -> Result<Written> {
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

/// A file whose bytes are counted and hashed as they are written.
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
            Kind::OptionalText => Self::OptionalBytes(Vec::new()),
            Kind::Bins => Self::Bins(Lists::default()),
            Kind::Counts => Self::Counts(Lists::default()),
        }
    }

    fn read(kind: Kind, column: &mut ColumnReader, rows: usize) -> ParquetResult<Self> {
        use ColumnReader::{
            ByteArrayColumnReader as Bytes, DoubleColumnReader as Real, Int64ColumnReader as Long,
        };
        match (kind, column) {
            (Kind::Long | Kind::Rising, Long(column)) => required(column, rows).map(Self::Long),
            (Kind::OptionalLong, Long(column)) => optional(column, rows).map(Self::OptionalLong),
            (Kind::Bins, Long(column)) => Lists::read(column, rows).map(Self::Bins),
            (Kind::Counts, Long(column)) => Lists::read(column, rows).map(Self::Counts),
            (Kind::OptionalReal, Real(column)) => optional(column, rows).map(Self::OptionalReal),
            (Kind::Text | Kind::Bytes, Bytes(column)) => required(column, rows).map(Self::Bytes),
            (Kind::OptionalText, Bytes(column)) => optional(column, rows).map(Self::OptionalBytes),
            _ => Err(ParquetError::General("a column of another type".to_owned())),
        }
    }

    /// Adds a value. A value of another kind is a defect of this program: it is not added, and
    /// writing the file fails because its columns differ in length.
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
            (Self::Bins(lists), Value::Histogram(bins)) => {
                lists.push(bins.into_iter().flat_map(Bins::iter).map(|(bin, _)| i64::from(bin)));
            }
            (Self::Counts(lists), Value::Histogram(bins)) => {
                lists.push(bins.into_iter().flat_map(Bins::iter).map(|(_, count)| count as i64));
            }
            _ => {}
        }
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Long(values) => values.len(),
            Self::OptionalLong(values) => values.len(),
            Self::OptionalReal(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::OptionalBytes(values) => values.len(),
            Self::Bins(lists) | Self::Counts(lists) => lists.ends.len(),
            Self::Skipped => 0,
        }
    }

    /// Returns the histogram of a row, where `counts` is the next column; `None` if the row has no
    /// histogram or an invalid one.
    pub(super) fn bins(&self, counts: Option<&Self>, row: usize) -> Option<Bins> {
        let (Self::Bins(numbers), Some(Self::Counts(counts))) = (self, counts) else { return None };
        let (numbers, counts) = (numbers.get(row)?, counts.get(row)?);
        let pair = |(bin, count): (&i64, &i64)| Some((u16::try_from(*bin).ok()?, *count as u64));
        let mut pairs = Vec::with_capacity(numbers.len());
        pairs.extend(numbers.iter().zip(counts).map_while(pair));
        let is_whole = pairs.len() == numbers.len() && numbers.len() == counts.len();
        Bins::try_from(pairs).ok().filter(|_| is_whole)
    }

    pub(super) fn long(&self, row: usize) -> Option<i64> {
        match self {
            Self::Long(values) => values.get(row).copied(),
            Self::OptionalLong(values) => values.get(row).copied().flatten(),
            Self::Skipped => Some(0),
            _ => None,
        }
    }

    pub(super) fn real(&self, row: usize) -> Option<f64> {
        match self {
            Self::OptionalReal(values) => values.get(row).copied().flatten(),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Bytes(values) => values.get(row).map(ByteArray::data),
            Self::OptionalBytes(values) => values.get(row)?.as_ref().map(ByteArray::data),
            Self::Skipped => Some(&[]),
            _ => None,
        }
    }

    pub(super) fn text(&self, row: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(row)?).ok()
    }
}

impl Lists {
    fn push(&mut self, numbers: impl Iterator<Item = i64>) {
        self.numbers.extend(numbers);
        self.ends.push(self.numbers.len());
    }

    fn get(&self, row: usize) -> Option<&[i64]> {
        let start = row.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.numbers.get(start..*self.ends.get(row)?)
    }

    /// Returns the definition and repetition levels of Parquet. Each number and each empty list has
    /// one of both: 1 for a number, and 1 for a number that is not the first of its list.
    fn levels(&self) -> (Vec<i16>, Vec<i16>) {
        let (mut defined, mut repeated) = (Vec::new(), Vec::new());
        let mut start = 0;
        for end in &self.ends {
            defined.extend((start..*end).map(|_| 1));
            repeated.extend((start..*end).map(|place| i16::from(place > start)));
            if start == *end {
                defined.push(0);
                repeated.push(0);
            }
            start = *end;
        }
        (defined, repeated)
    }

    fn read(column: &mut ColumnReaderImpl<Int64Type>, rows: usize) -> ParquetResult<Self> {
        let (mut defined, mut repeated, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = rows;
        while left > 0 {
            let (d, r) = (Some(&mut defined), Some(&mut repeated));
            let (read, _, _) = column.read_records(left, d, r, &mut numbers)?;
            if read == 0 {
                return Err(ParquetError::EOF(format!("{left} rows are missing")));
            }
            left -= read;
        }
        let (mut ends, mut end) = (Vec::with_capacity(rows), 0);
        for (defined, repeated) in defined.iter().zip(&repeated) {
            if *repeated == 0 {
                ends.push(end);
            }
            end += usize::from(*defined == 1);
            if let Some(last) = ends.last_mut() {
                *last = end;
            }
        }
        if ends.len() != rows || end != numbers.len() {
            return Err(ParquetError::General("lists do not have their lengths".to_owned()));
        }
        Ok(Self { numbers, ends })
    }
}

fn append(writer: &mut SerializedFileWriter<Summed>, columns: &[Column]) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        match column {
            Column::Long(values) => write_required::<Int64Type>(values, &mut writer),
            Column::Bytes(values) => write_required::<ByteArrayType>(values, &mut writer),
            Column::Bins(lists) | Column::Counts(lists) => {
                let (defined, repeated) = lists.levels();
                let (defined, repeated) = (Some(&defined[..]), Some(&repeated[..]));
                writer.typed::<Int64Type>().write_batch(&lists.numbers, defined, repeated)
            }
            Column::OptionalLong(values) => write_optional::<Int64Type>(values, &mut writer),
            Column::OptionalReal(values) => write_optional::<DoubleType>(values, &mut writer),
            Column::OptionalBytes(values) => write_optional::<ByteArrayType>(values, &mut writer),
            Column::Skipped => Ok(0),
        }?;
        writer.close()?;
    }
    group.close().map(drop)
}

fn properties(layout: &Layout) -> ParquetResult<WriterProperties> {
    let mut properties = compressed()?;
    for (name, kind) in layout {
        properties = match kind {
            Kind::Rising => as_differences(properties, ColumnPath::from(*name)),
            Kind::Bins => {
                let path = vec![(*name).into(), "list".into(), "element".into()];
                as_differences(properties, ColumnPath::new(path))
            }
            _ => properties,
        };
    }
    Ok(properties.build())
}

fn schema(layout: &Layout) -> ParquetResult<TypePtr> {
    let field = |(name, kind): &(&str, Kind)| match kind {
        Kind::Long | Kind::Rising => format!("REQUIRED INT64 {name};"),
        Kind::OptionalLong => format!("OPTIONAL INT64 {name};"),
        Kind::OptionalReal => format!("OPTIONAL DOUBLE {name};"),
        Kind::Text => format!("REQUIRED BYTE_ARRAY {name} (STRING);"),
        Kind::OptionalText => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
        Kind::Bytes => format!("REQUIRED BYTE_ARRAY {name};"),
        // The three-level list of the Parquet specification.
        Kind::Bins | Kind::Counts => format!(
            "REQUIRED GROUP {name} (LIST) {{
               REPEATED GROUP list {{ REQUIRED INT64 element; }}
             }}"
        ),
    };
    let fields: Vec<String> = layout.iter().map(field).collect();
    parse_message_type(&format!("message underload {{ {} }}", fields.concat())).map(Arc::new)
}

/// Reads columns of a file in batches of rows.
pub(super) struct Reader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Kinds of all columns, and whether to read them.
    columns: Vec<(Kind, bool)>,
    group: usize,
    /// `None` for a column that is not read.
    open: Vec<Option<ColumnReader>>,
    rows_left: usize,
}

impl Reader {
    /// Opens a file to read the columns whose names `reads` accepts; the others are
    /// [`Column::Skipped`].
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the file is missing, damaged, or has other columns.
    pub(super) fn open(
        path: &Path,
        layout: &Layout,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let file = File::open(path).map_err(missing(path))?;
        let opened = guarded(|| {
            let file = SerializedFileReader::new(file)?;
            let is_known = *schema(layout)? == *file.metadata().file_metadata().schema();
            Ok((file, is_known))
        });
        let (file, is_known) = opened.map_err(|error| damaged(path, &error.to_string()))?;
        if !is_known {
            return Err(damaged(path, "unknown columns; another version may have written it"));
        }
        let columns = layout.iter().map(|(name, kind)| (*kind, is_read(name))).collect();
        let path = path.to_owned();
        Ok(Self { path, file, columns, group: 0, open: Vec::new(), rows_left: 0 })
    }

    /// Reads the columns of the next rows; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Column>>> {
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
            for (place, (_, is_read)) in self.columns.iter().enumerate() {
                let column = is_read.then(|| group.get_column_reader(place));
                self.open.push(column.transpose()?);
            }
        }
        let rows = self.rows_left.min(ROWS_AT_ONCE);
        self.rows_left -= rows;
        let open = self.open.iter_mut().zip(&self.columns);
        let read = |(open, (kind, _)): (&mut Option<ColumnReader>, &(Kind, bool))| match open {
            Some(open) => Column::read(*kind, open, rows),
            None => Ok(Column::Skipped),
        };
        open.map(read).collect::<ParquetResult<_>>().map(Some)
    }
}

fn unwritten(path: &Path, error: ParquetError) -> StoreError {
    StoreError::temporary(path.display().to_string()).because(error)
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

/// Rows of a row group; they are in memory until the group is written.
const ROWS_OF_GROUP: usize = 1 << 16;
/// Rows that a [`Reader`] has in memory.
const ROWS_AT_ONCE: usize = 1 << 12;
