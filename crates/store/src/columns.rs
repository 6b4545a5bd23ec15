//! Tables of a few simple types. A column is declared once, by its name and the function that
//! returns its value of a row; schema, Parquet values and CSV fields follow from that.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

use parquet::basic::{Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::writer::SerializedColumnWriter;

use crate::values::{optional, required, write_optional, write_required};

/// The Rust type of a column's values.
pub trait Value: Sized {
    /// Returns the values of a column of this type; `None` for a column of another type.
    fn values(column: &Column) -> Option<&[Self]>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])*
    $kind:ident: $type:ty, $parquet:ty, $repetition:ident, $read:ident, $write:ident;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        /// The values of one column of one row group.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Column { $($(#[$doc])* $kind(Vec<$type>),)* }

        impl Kind {
            /// Returns the type in Parquet, and whether values may be absent.
            pub(crate) fn in_parquet(self) -> (PhysicalType, Repetition) {
                match self {
                    $(Self::$kind => (<$parquet>::get_physical_type(), Repetition::$repetition),)*
                }
            }
        }

        impl Column {
            pub(crate) fn empty(kind: Kind) -> Self {
                match kind { $(Kind::$kind => Self::$kind(Vec::new()),)* }
            }

            pub fn rows(&self) -> usize {
                match self { $(Self::$kind(values) => values.len(),)* }
            }

            /// Appends some rows of another column of the same kind.
            pub(crate) fn extend(&mut self, other: &Self, rows: Range<usize>) {
                match (self, other) {
                    $((Self::$kind(own), Self::$kind(other)) => {
                        own.extend_from_slice(&other[rows]);
                    })*
                    _ => debug_assert!(false, "the columns of one table have the same kinds"),
                }
            }

            /// Reads the next `rows` rows.
            pub(crate) fn read(
                kind: Kind,
                from: ColumnReader,
                rows: usize,
            ) -> ParquetResult<Self> {
                match kind {
                    $(Kind::$kind => {
                        $read(&mut get_typed_column_reader::<$parquet>(from), rows)
                            .map(Self::$kind)
                    })*
                }
            }

            pub(crate) fn write(
                &self,
                writer: &mut SerializedColumnWriter<'_>,
            ) -> ParquetResult<usize> {
                match self { $(Self::$kind(values) => $write::<$parquet>(values, writer),)* }
            }
        }

        $(impl Value for $type {
            fn values(column: &Column) -> Option<&[Self]> {
                match column {
                    Column::$kind(values) => Some(values),
                    _ => None,
                }
            }
        })*
    };
}

kinds! {
    Long: i64, Int64Type, REQUIRED, required, write_required;
    OptionalLong: Option<i64>, Int64Type, OPTIONAL, optional, write_optional;
    Text: ByteArray, ByteArrayType, REQUIRED, required, write_required;
    OptionalText: Option<ByteArray>, ByteArrayType, OPTIONAL, optional, write_optional;
    Boolean: bool, BoolType, REQUIRED, required, write_required;
    Double: f64, DoubleType, REQUIRED, required, write_required;
    OptionalDouble: Option<f64>, DoubleType, OPTIONAL, optional, write_optional;
}

/// Names and kinds of a table's columns, in order.
pub type Layout<S = &'static str> = [(S, Kind)];

#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// Stored as the nearest number of 64 bits.
    Long(i128),
    OptionalLong(Option<i128>),
    Text(Cow<'a, str>),
    OptionalText(Option<Cow<'a, str>>),
    Boolean(bool),
    Double(f64),
    OptionalDouble(Option<f64>),
}

/// The columns of a table, each with the function that returns its value of a row.
pub trait Schema: Sized + 'static {
    /// The item that one row stores, such as a trial or a packet.
    type Row<'a>;
    /// Name and value of each column, in order. The first column is the number of the trial.
    const COLUMNS: &'static [(&'static str, Get<Self>)];

    fn layout() -> Vec<(&'static str, Kind)> {
        Self::COLUMNS.iter().map(|(name, get)| (*name, get.kind())).collect()
    }

    fn cells<'a>(row: &'a Self::Row<'_>) -> impl Iterator<Item = Cell<'a>> {
        Self::COLUMNS.iter().map(move |(_, get)| get.cell(row))
    }

    /// Converts rows into the columns of [`Schema::COLUMNS`].
    fn columns<'a>(rows: impl Iterator<Item = Self::Row<'a>>) -> Vec<Column> {
        let mut columns = empty(&Self::layout());
        rows.for_each(|row| push(&mut columns, Self::cells(&row)));
        columns
    }

    /// Writes rows as CSV (RFC 4180); the field of an absent value is empty.
    fn write_csv<'a>(
        out: &mut impl Write,
        rows: impl Iterator<Item = Self::Row<'a>>,
    ) -> io::Result<()> {
        let names: Vec<&str> = Self::COLUMNS.iter().map(|(name, _)| *name).collect();
        writeln!(out, "{}", names.join(","))?;
        for row in rows {
            for (position, cell) in Self::cells(&row).enumerate() {
                write!(out, "{}{cell}", if position == 0 { "" } else { "," })?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The function that returns a column's value of a row.
pub enum Get<T: Schema> {
    Long(for<'a> fn(&T::Row<'a>) -> i128),
    OptionalLong(for<'a> fn(&T::Row<'a>) -> Option<i128>),
    Text(for<'a, 'b> fn(&'b T::Row<'a>) -> Cow<'b, str>),
    OptionalText(for<'a, 'b> fn(&'b T::Row<'a>) -> Option<Cow<'b, str>>),
    Boolean(for<'a> fn(&T::Row<'a>) -> bool),
    Double(for<'a> fn(&T::Row<'a>) -> f64),
}

impl<T: Schema> Get<T> {
    fn kind(&self) -> Kind {
        match self {
            Self::Long(_) => Kind::Long,
            Self::OptionalLong(_) => Kind::OptionalLong,
            Self::Text(_) => Kind::Text,
            Self::OptionalText(_) => Kind::OptionalText,
            Self::Boolean(_) => Kind::Boolean,
            Self::Double(_) => Kind::Double,
        }
    }

    fn cell<'b>(&self, row: &'b T::Row<'_>) -> Cell<'b> {
        match self {
            Self::Long(get) => Cell::Long(get(row)),
            Self::OptionalLong(get) => Cell::OptionalLong(get(row)),
            Self::Text(get) => Cell::Text(get(row)),
            Self::OptionalText(get) => Cell::OptionalText(get(row)),
            Self::Boolean(get) => Cell::Boolean(get(row)),
            Self::Double(get) => Cell::Double(get(row)),
        }
    }
}

/// Returns the columns of `layout` without values.
pub(crate) fn empty<S>(layout: &Layout<S>) -> Vec<Column> {
    layout.iter().map(|(_, kind)| Column::empty(*kind)).collect()
}

/// Appends a row to columns of the same kinds.
pub(crate) fn push<'a>(columns: &mut [Column], cells: impl Iterator<Item = Cell<'a>>) {
    columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
}

impl Column {
    fn push(&mut self, cell: Cell<'_>) {
        let long = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
        match (self, cell) {
            (Self::Long(values), Cell::Long(value)) => values.push(long(value)),
            (Self::OptionalLong(values), Cell::OptionalLong(value)) => {
                values.push(value.map(long));
            }
            (Self::Text(values), Cell::Text(text)) => values.push(shared(values.last(), &text)),
            (Self::OptionalText(values), Cell::OptionalText(text)) => {
                let last = values.last().and_then(Option::as_ref);
                values.push(text.map(|text| shared(last, &text)));
            }
            (Self::Boolean(values), Cell::Boolean(value)) => values.push(value),
            (Self::Double(values), Cell::Double(value)) => values.push(value),
            (Self::OptionalDouble(values), Cell::OptionalDouble(value)) => values.push(value),
            _ => debug_assert!(false, "a row's cells have the kinds of the layout"),
        }
    }
}

/// Returns the text of the previous row if it is equal, to share its bytes.
fn shared(last: Option<&ByteArray>, text: &str) -> ByteArray {
    match last {
        Some(last) if last.data() == text.as_bytes() => last.clone(),
        _ => ByteArray::from(text),
    }
}

impl fmt::Display for Cell<'_> {
    /// Writes a field of a CSV file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(value) | Self::OptionalLong(Some(value)) => write!(f, "{value}"),
            Self::Double(value) | Self::OptionalDouble(Some(value)) => write!(f, "{value}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Text(text) | Self::OptionalText(Some(text)) => {
                if text.contains(['"', ',', '\n', '\r']) {
                    write!(f, "\"{}\"", text.replace('"', "\"\""))
                } else {
                    f.write_str(text)
                }
            }
            Self::OptionalLong(None) | Self::OptionalText(None) | Self::OptionalDouble(None) => {
                Ok(())
            }
        }
    }
}

/// The columns of some rows, found by their names.
pub(crate) struct Group<'a, S> {
    pub(crate) layout: &'a Layout<S>,
    pub(crate) columns: &'a [Column],
}

impl<'a, S: AsRef<str>> Group<'a, S> {
    /// Returns the values of a column of this kind.
    pub(crate) fn get<V: Value>(&self, name: &str) -> Result<&'a [V], String> {
        let mut columns = self.layout.iter().zip(self.columns);
        let column = columns.find(|((own, _), _)| own.as_ref() == name);
        let values = column.and_then(|(_, column)| V::values(column));
        values.ok_or_else(|| format!("its column {name} is missing or of another kind"))
    }
}

pub(crate) fn utf8(value: &ByteArray) -> Result<&str, String> {
    value.as_utf8().map_err(|_| "text that is not UTF-8".to_owned())
}
