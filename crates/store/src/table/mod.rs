//! Parquet tables. A table is declared once, by [`table!`](crate::table!): the names and kinds of
//! its columns, the values of a row, and a struct with the values of each column for readers.
//!
//! | module | content |
//! |---|---|
//! | `cell` | a value of a row, and CSV |
//! | `column` | the values of a column, and their form in Parquet |
//! | `file` | writes and reads files, some rows at a time |

mod cell;
mod column;
mod file;

use std::io::{self, Write};

pub use cell::Cell;
pub use column::{Column, Kind, Lists, Values};
pub use file::{TableReader, TableWriter};

/// Names and kinds of a table's columns, in order.
pub type Layout<S = &'static str> = [(S, Kind)];

/// The columns of a table, declared by [`table!`](crate::table!).
pub trait Table {
    /// The item that one row stores, such as a trial.
    type Row<'a>;
    const LAYOUT: &'static Layout;

    /// Returns the value of each column for a row, in order.
    fn cells<'a>(row: &'a Self::Row<'_>) -> impl Iterator<Item = Cell<'a>>;

    /// Converts rows into columns.
    fn columns<'a>(rows: impl Iterator<Item = Self::Row<'a>>) -> Vec<Column> {
        let mut columns = empty(Self::LAYOUT);
        rows.for_each(|row| push(&mut columns, Self::cells(&row)));
        columns
    }

    /// Writes rows as CSV (RFC 4180); the field of an absent value is empty.
    fn write_csv<'a>(
        out: &mut impl Write,
        rows: impl Iterator<Item = Self::Row<'a>>,
    ) -> io::Result<()> {
        let names: Vec<&str> = Self::LAYOUT.iter().map(|(name, _)| *name).collect();
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

/// Returns the columns of `layout` without values.
pub fn empty<S>(layout: &Layout<S>) -> Vec<Column> {
    layout.iter().map(|(_, kind)| Column::empty(*kind)).collect()
}

/// Appends a row. Its cells have the kinds of the columns.
pub fn push<'a>(columns: &mut [Column], cells: impl Iterator<Item = Cell<'a>>) {
    columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
}

/// Declares a table: `struct NAME of ROW: TYPE { COLUMN: KIND = VALUE; }`, where TYPE has a
/// lifetime, KIND is one of [`Kind`](crate::table::Kind), and VALUE is an expression that converts into a
/// [`Cell`](crate::table::Cell). Implements [`Table`](crate::table::Table) for NAME, which has a field with the
/// values of each column, and `view`, which borrows them of columns.
#[macro_export]
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis struct $table:ident of $row:ident: $item:ident {
        $($(#[$note:meta])* $column:ident: $kind:ident = $value:expr;)*
    }) => {
        $(#[$doc])*
        #[allow(dead_code, reason = "readers need not use every column")]
        #[derive(Clone, Copy)]
        $vis struct $table<'c> {
            $($(#[$note])* $vis $column: $crate::table::values::$kind<'c>,)*
        }

        impl $crate::table::Table for $table<'_> {
            type Row<'a> = $item<'a>;
            const LAYOUT: &'static $crate::table::Layout =
                &[$((stringify!($column), $crate::table::Kind::$kind)),*];

            fn cells<'a>(
                $row: &'a Self::Row<'_>,
            ) -> impl Iterator<Item = $crate::table::Cell<'a>> {
                [$($crate::table::Cell::from($value)),*].into_iter()
            }
        }

        #[allow(dead_code, reason = "tables that are only written have no readers")]
        impl<'c> $table<'c> {
            /// Borrows the values of each column; `None` for columns of other kinds.
            $vis fn view(columns: &'c [$crate::table::Column]) -> Option<Self> {
                let mut columns = columns.iter();
                Some(Self { $($column: $crate::table::Values::of(columns.next()?)?),* })
            }
        }
    };
}

/// The values of a column of each [`Kind`].
pub mod values {
    use parquet::data_type::ByteArray;

    pub type Long<'c> = &'c [i64];
    pub type OptionalLong<'c> = &'c [Option<i64>];
    pub type Double<'c> = &'c [f64];
    pub type OptionalDouble<'c> = &'c [Option<f64>];
    pub type Boolean<'c> = &'c [bool];
    pub type Text<'c> = &'c [ByteArray];
    pub type OptionalText<'c> = &'c [Option<ByteArray>];
    pub type Bytes<'c> = &'c [ByteArray];
    pub type Longs<'c> = &'c super::Lists;
    pub type Counts<'c> = &'c super::Lists;
}
