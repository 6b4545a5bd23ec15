//! The values of one column of some rows, in memory and in Parquet.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::Cell;

macro_rules! kinds {
    ($($(#[$doc:meta])*
    $kind:ident: $values:ty, $absent:expr, $reader:ident, $read:ident, $write:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        /// The values of one column of some rows.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Column { $($(#[$doc])* $kind($values),)* }

        impl Column {
            pub fn empty(kind: Kind) -> Self {
                Self::absent(kind, 0)
            }

            /// Returns a column that was not read: its numbers are 0 and its texts are empty.
            pub(super) fn absent(kind: Kind, rows: usize) -> Self {
                match kind { $(Kind::$kind => Self::$kind($absent(rows)),)* }
            }

            pub fn rows(&self) -> usize {
                match self { $(Self::$kind(values) => values.len(),)* }
            }

            /// Reads the next `rows` rows. `level` is the definition level of present values.
            pub(super) fn read(
                kind: Kind,
                from: &mut ColumnReader,
                rows: usize,
                level: i16,
            ) -> Result<Self> {
                match (kind, from) {
                    $((Kind::$kind, ColumnReader::$reader(from)) => {
                        $read(from, rows, level).map(Self::$kind)
                    })*
                    _ => Err(ParquetError::General("a column of another type".to_owned())),
                }
            }

            pub(super) fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<usize> {
                match self { $(Self::$kind(values) => $write(values, writer),)* }
            }
        }
    };
}

kinds! {
    Long: Vec<i64>, |rows| vec![0; rows],
        Int64ColumnReader, required, write_required::<Int64Type>;
    OptionalLong: Vec<Option<i64>>, |rows| vec![None; rows],
        Int64ColumnReader, optional, write_optional::<Int64Type>;
    Double: Vec<f64>, |rows| vec![0.0; rows],
        DoubleColumnReader, required, write_required::<DoubleType>;
    OptionalDouble: Vec<Option<f64>>, |rows| vec![None; rows],
        DoubleColumnReader, optional, write_optional::<DoubleType>;
    Boolean: Vec<bool>, |rows| vec![false; rows],
        BoolColumnReader, required, write_required::<BoolType>;
    Text: Vec<ByteArray>, |rows| vec![ByteArray::from(""); rows],
        ByteArrayColumnReader, required, write_required::<ByteArrayType>;
    OptionalText: Vec<Option<ByteArray>>, |rows| vec![None; rows],
        ByteArrayColumnReader, optional, write_optional::<ByteArrayType>;
    Bytes: Vec<ByteArray>, |rows| vec![ByteArray::from(""); rows],
        ByteArrayColumnReader, required, write_required::<ByteArrayType>;
    /// A list of numbers in each row.
    Longs: Lists, Lists::empty, Int64ColumnReader, lists, write_lists;
    /// As `Longs`, of small numbers that repeat.
    Counts: Lists, Lists::empty, Int64ColumnReader, lists, write_lists;
}

impl Kind {
    /// Returns the column's field in the schema of a file.
    pub(super) fn field(self, name: &str) -> Result<Type> {
        use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, INT64};
        let [required, optional, repeated] =
            [Repetition::REQUIRED, Repetition::OPTIONAL, Repetition::REPEATED];
        let (physical, repetition, logical) = match self {
            Self::Long => (INT64, required, None),
            Self::OptionalLong => (INT64, optional, None),
            Self::Double => (DOUBLE, required, None),
            Self::OptionalDouble => (DOUBLE, optional, None),
            Self::Boolean => (BOOLEAN, required, None),
            Self::Text => (BYTE_ARRAY, required, Some(LogicalType::String)),
            Self::OptionalText => (BYTE_ARRAY, optional, Some(LogicalType::String)),
            Self::Bytes => (BYTE_ARRAY, required, None),
            Self::Longs | Self::Counts => {
                // The three-level list of the Parquet specification.
                let element = Type::primitive_type_builder("element", INT64);
                let element = element.with_repetition(required).build()?;
                let list = Type::group_type_builder("list").with_repetition(repeated);
                let list = list.with_fields(vec![Arc::new(element)]).build()?;
                return Type::group_type_builder(name)
                    .with_repetition(required)
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![Arc::new(list)])
                    .build();
            }
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    /// Returns the path of a column whose numbers are stored as differences: times and counters
    /// rarely repeat but grow steadily, so that dictionaries of them would be large.
    pub(super) fn path_of_differences(self, name: &str) -> Option<ColumnPath> {
        match self {
            Self::Long => Some(ColumnPath::from(name)),
            Self::Longs => {
                Some(ColumnPath::new(vec![name.into(), "list".into(), "element".into()]))
            }
            _ => None,
        }
    }
}

impl Column {
    /// Adds a value. Values of another kind are a defect of this program: they are not added, and
    /// writing the columns fails because their lengths differ.
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Long(values), Cell::Long(value)) => values.push(value),
            (Self::OptionalLong(values), Cell::Long(value)) => values.push(Some(value)),
            (Self::OptionalLong(values), Cell::Absent) => values.push(None),
            (Self::Double(values), Cell::Double(value)) => values.push(value),
            (Self::OptionalDouble(values), Cell::Double(value)) => values.push(Some(value)),
            (Self::OptionalDouble(values), Cell::Absent) => values.push(None),
            (Self::Boolean(values), Cell::Boolean(value)) => values.push(value),
            (Self::Text(values), Cell::Text(text)) => {
                values.push(shared(values.last(), text.as_bytes()));
            }
            (Self::OptionalText(values), Cell::Text(text)) => {
                let last = values.last().and_then(Option::as_ref);
                values.push(Some(shared(last, text.as_bytes())));
            }
            (Self::OptionalText(values), Cell::Absent) => values.push(None),
            (Self::Bytes(values), Cell::Bytes(bytes)) => {
                values.push(shared(values.last(), &bytes));
            }
            (Self::Longs(lists) | Self::Counts(lists), Cell::Longs(numbers)) => {
                lists.push(&numbers);
            }
            _ => debug_assert!(false, "a row's cells have the kinds of the columns"),
        }
    }

    /// Returns the value of a row; absent behind the last row, and if a text is no valid UTF-8.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Long(values) => values.get(row).copied().into(),
            Self::OptionalLong(values) => values.get(row).copied().flatten().into(),
            Self::Double(values) => values.get(row).copied().into(),
            Self::OptionalDouble(values) => values.get(row).copied().flatten().into(),
            Self::Boolean(values) => values.get(row).copied().into(),
            Self::Bytes(values) => {
                values.get(row).map_or(Cell::Absent, |bytes| Cell::Bytes(bytes.data().into()))
            }
            Self::Text(_) | Self::OptionalText(_) => self.text(row).into(),
            Self::Longs(lists) | Self::Counts(lists) => lists.get(row).map(<[i64]>::to_vec).into(),
        }
    }

    /// Returns a text; `None` for another kind of column, an absent value, or invalid UTF-8.
    pub fn text(&self, row: usize) -> Option<&str> {
        let bytes = match self {
            Self::Text(values) => values.get(row),
            Self::OptionalText(values) => values.get(row)?.as_ref(),
            _ => None,
        };
        bytes?.as_utf8().ok()
    }
}

/// Returns the value of the previous row if it is equal, to share its bytes.
fn shared(last: Option<&ByteArray>, bytes: &[u8]) -> ByteArray {
    match last {
        Some(last) if last.data() == bytes => last.clone(),
        _ => ByteArray::from(bytes.to_vec()),
    }
}

/// The values of a column, in the type that [`values`](super::values) defines for its kind.
pub trait Values<'c>: Sized {
    /// Returns the values of a column of this type; `None` for a column of another type.
    fn of(column: &'c Column) -> Option<Self>;
}

macro_rules! values {
    ($($type:ty: $($kind:ident)|+;)*) => {$(
        impl<'c> Values<'c> for &'c $type {
            fn of(column: &'c Column) -> Option<Self> {
                match column {
                    $(Column::$kind(values))|+ => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}

values! {
    [i64]: Long;
    [Option<i64>]: OptionalLong;
    [f64]: Double;
    [Option<f64>]: OptionalDouble;
    [bool]: Boolean;
    [ByteArray]: Text | Bytes;
    [Option<ByteArray>]: OptionalText;
    Lists: Longs | Counts;
}

/// Lists of numbers, one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lists {
    numbers: Vec<i64>,
    /// The index in `numbers` after the last number of each list.
    ends: Vec<usize>,
}

impl Lists {
    fn empty(lists: usize) -> Self {
        Self { numbers: Vec::new(), ends: vec![0; lists] }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, numbers: &[i64]) {
        self.numbers.extend_from_slice(numbers);
        self.ends.push(self.numbers.len());
    }

    /// Returns the list of a row; `None` behind the last row.
    pub fn get(&self, row: usize) -> Option<&[i64]> {
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
}

/// Reads the next `rows` values of a column that has one in each row.
fn required<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
    level: i16,
) -> Result<Vec<T::T>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    read_records(rows, |left| {
        let levels = (level > 0).then_some(&mut levels);
        Ok(column.read_records(left, levels, None, &mut values)?.0)
    })?;
    if values.len() != rows {
        return Err(ParquetError::General("a row has no value".to_owned()));
    }
    Ok(values)
}

/// Reads the next `rows` rows of a column that may lack values.
fn optional<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
    level: i16,
) -> Result<Vec<Option<T::T>>> {
    if level == 0 {
        return Ok(required(column, rows, level)?.into_iter().map(Some).collect());
    }
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    read_records(rows, |left| {
        Ok(column.read_records(left, Some(&mut levels), None, &mut present)?.0)
    })?;
    let mut present = present.into_iter();
    let filled = levels.iter().map(|level| match level {
        0 => Ok(None),
        _ => present
            .next()
            .map(Some)
            .ok_or_else(|| ParquetError::General("fewer values than its levels say".to_owned())),
    });
    filled.collect()
}

/// Reads the next `rows` lists. An absent list is empty.
fn lists(column: &mut ColumnReaderImpl<Int64Type>, rows: usize, level: i16) -> Result<Lists> {
    let (mut defined, mut repeated, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    read_records(rows, |left| {
        let (defined, repeated) = (Some(&mut defined), Some(&mut repeated));
        Ok(column.read_records(left, defined, repeated, &mut numbers)?.0)
    })?;
    let (mut ends, mut end) = (Vec::with_capacity(rows), 0);
    for (defined, repeated) in defined.iter().zip(&repeated) {
        if *repeated == 0 {
            ends.push(end);
        }
        end += usize::from(*defined == level);
        if let Some(last) = ends.last_mut() {
            *last = end;
        }
    }
    if ends.len() != rows || end != numbers.len() {
        return Err(ParquetError::General("lists do not have their lengths".to_owned()));
    }
    Ok(Lists { numbers, ends })
}

/// Calls `read` with the number of missing rows until `rows` were read.
fn read_records(rows: usize, mut read: impl FnMut(usize) -> Result<usize>) -> Result<()> {
    let mut left = rows;
    while left > 0 {
        match read(left)? {
            0 => return Err(ParquetError::EOF(format!("{left} of {rows} rows are missing"))),
            some => left = left.saturating_sub(some),
        }
    }
    Ok(())
}

/// Writes a column that has a value in each row.
fn write_required<T: DataType>(
    values: &[T::T],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<usize> {
    writer.typed::<T>().write_batch(values, None, None)
}

/// Writes a column that may lack values.
fn write_optional<T: DataType>(
    values: &[Option<T::T>],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<usize> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.iter().flatten().cloned().collect();
    writer.typed::<T>().write_batch(&present, Some(&levels), None)
}

fn write_lists(lists: &Lists, writer: &mut SerializedColumnWriter<'_>) -> Result<usize> {
    let (defined, repeated) = lists.levels();
    writer.typed::<Int64Type>().write_batch(&lists.numbers, Some(&defined), Some(&repeated))
}
