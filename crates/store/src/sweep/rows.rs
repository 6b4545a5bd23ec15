//! Rows of a sweep's trials, as columns.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parquet::errors::ParquetError;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use underload_record::schema::TrialRecord;

use crate::table::{self, Cell, Column, Kind, Table as _, TableReader, Values};
use crate::table_file;
use crate::trials::Trials;

/// The columns of a sweep: its axes, then those of `trials.parquet`, then its metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepColumns {
    pub axes: Vec<AxisColumn>,
    pub metrics: Vec<String>,
}

/// The column of an axis: the values as a scenario writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisColumn {
    /// Name of the axis and its column.
    pub name: String,
    /// Whether all values are amounts, which the column `NAME.amount` has as numbers: s, bit/s,
    /// bytes or counts.
    pub is_amount: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AxisValue {
    /// As a scenario writes it.
    pub text: String,
    /// The value in s, bit/s, bytes or as a count; `None` for a text.
    pub amount: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
pub struct SweepRow<'a> {
    pub cell: u64,
    /// The cell's identity, which is equal only for the same experiment, seed and program.
    pub id: &'a str,
    pub values: &'a [AxisValue],
    /// The trial; only index, variant, repeat and seed of a failed one.
    pub trial: &'a TrialRecord,
    pub metrics: &'a [Option<f64>],
    /// Why the trial failed; `None` if it succeeded.
    pub error: Option<&'a str>,
}

/// Rows of a sweep, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRows {
    layout: Layout,
    columns: Vec<Column>,
}

/// Rows that are read at once.
pub(super) const BATCH_ROWS: usize = 1 << 14;

/// Names and kinds of columns.
pub(super) type Layout = Arc<[(String, Kind)]>;

impl SweepColumns {
    pub(super) fn layout(&self) -> Layout {
        let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
        let mut layout = [("trial", Kind::Long), ("cell", Kind::Long), ("cell_id", Kind::Text)]
            .map(named)
            .to_vec();
        layout.extend(self.axis_layout());
        layout.extend(Trials::LAYOUT.iter().skip(1).copied().map(named));
        layout.extend(self.metrics.iter().map(|name| (name.clone(), Kind::OptionalDouble)));
        layout.push(named(("error", Kind::OptionalText)));
        layout.into()
    }

    pub(super) fn axis_layout(&self) -> Vec<(String, Kind)> {
        let mut layout = Vec::new();
        for axis in &self.axes {
            layout.push((axis.name.clone(), Kind::Text));
            if axis.is_amount {
                layout.push((format!("{}.amount", axis.name), Kind::OptionalDouble));
            }
        }
        layout
    }

    /// Returns names of other columns, which an axis or metric cannot have.
    pub fn reserved() -> impl Iterator<Item = &'static str> {
        let own = ["cell", "cell_id", "error", "trials", "failed"];
        own.into_iter().chain(Trials::LAYOUT.iter().map(|(name, _)| *name))
    }

    fn cells<'a>(&'a self, row: &'a SweepRow<'_>) -> impl Iterator<Item = Cell<'a>> {
        let own = [
            Cell::Long(row.trial.index.into()),
            Cell::Long(row.cell.into()),
            Cell::Text(row.id.into()),
        ];
        let of_trial = Trials::LAYOUT.iter().zip(Trials::cells(&row.trial)).skip(1);
        let of_trial = of_trial.map(|((name, _), cell)| match (*name, row.error) {
            ("valid", Some(_)) => Cell::Boolean(false),
            _ => cell,
        });
        own.into_iter()
            .chain(axis_cells(&self.axes, row.values))
            .chain(of_trial)
            .chain(row.metrics.iter().map(|value| Cell::OptionalDouble(*value)))
            .chain([Cell::OptionalText(row.error.map(Cow::from))])
    }
}

pub(super) fn axis_cells<'a>(
    axes: &'a [AxisColumn],
    values: &'a [AxisValue],
) -> impl Iterator<Item = Cell<'a>> {
    axes.iter().zip(values).flat_map(|(axis, value)| {
        let amount = axis.is_amount.then_some(Cell::OptionalDouble(value.amount));
        [Cell::Text((&value.text).into())].into_iter().chain(amount)
    })
}

impl SweepRows {
    pub fn new(columns: &SweepColumns) -> Self {
        Self::empty(&columns.layout())
    }

    pub(super) fn empty(layout: &Layout) -> Self {
        Self { layout: Arc::clone(layout), columns: table::empty(layout) }
    }

    pub(super) fn from_columns(layout: &Layout, columns: Vec<Column>) -> Self {
        Self { layout: Arc::clone(layout), columns }
    }

    /// Adds a row. `columns` must be those of [`SweepRows::new`].
    pub fn push(&mut self, columns: &SweepColumns, row: &SweepRow<'_>) {
        table::push(&mut self.columns, columns.cells(row));
    }

    pub fn len(&self) -> usize {
        self.trials().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn trials(&self) -> &[i64] {
        self.column("trial").unwrap_or_default()
    }

    /// Returns the values of a column; `None` if the column does not exist or has another type.
    pub fn column<'a, V: Values<'a>>(&'a self, name: &str) -> Option<V> {
        self.group().get(name).ok()
    }

    /// Returns the texts of a column, `None` for rows without one; `None` for a column of another
    /// type.
    pub fn texts(&self, name: &str) -> Option<Vec<Option<&str>>> {
        let (_, column) = self.columns().find(|(own, _)| *own == name)?;
        match column {
            Column::Text(_) | Column::OptionalText(_) => {
                Some((0..column.rows()).map(|row| column.text(row)).collect())
            }
            _ => None,
        }
    }

    pub(super) fn group(&self) -> Group<'_, String> {
        Group { layout: &self.layout, columns: &self.columns }
    }

    /// Returns the columns with their names.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.layout.iter().zip(&self.columns).map(|((name, _), column)| (name.as_str(), column))
    }

    pub(super) fn layout(&self) -> Layout {
        Arc::clone(&self.layout)
    }

    /// Appends some rows of `others`.
    pub(super) fn extend(&mut self, others: &SweepRows, rows: Range<usize>) {
        for (own, other) in self.columns.iter_mut().zip(&others.columns) {
            own.extend(other, rows.clone());
        }
    }

    pub(super) fn raw(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the bytes of a Parquet file.
    pub fn to_parquet(&self) -> Result<Vec<u8>, String> {
        let bytes = table_file::bytes(&self.layout, std::iter::once(self.columns.clone()));
        bytes.map_err(|error| error.to_string())
    }

    /// Reads the rows of a Parquet file. Rejects columns of another sweep.
    pub fn from_parquet(columns: &SweepColumns, bytes: Vec<u8>) -> Result<Self, String> {
        let layout = columns.layout();
        let mut rows = Self::empty(&layout);
        let damaged = |error: ParquetError| error.to_string();
        let reader = TableReader::new(Bytes::from(bytes), &layout, |_| true);
        let mut reader = reader.map_err(damaged)?;
        while let Some(columns) = reader.next(BATCH_ROWS).map_err(damaged)? {
            let group = Self::from_columns(&layout, columns);
            rows.extend(&group, 0..group.len());
        }
        Ok(rows)
    }
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(&digest(&SHA256, bytes).as_ref()[..8])
}

/// The columns of some rows, found by their names.
pub(crate) struct Group<'a, S> {
    pub(crate) layout: &'a table::Layout<S>,
    pub(crate) columns: &'a [Column],
}

impl<'a, S: AsRef<str>> Group<'a, S> {
    /// Returns the values of a column of this kind.
    pub(crate) fn get<V: Values<'a>>(&self, name: &str) -> Result<V, String> {
        let mut columns = self.layout.iter().zip(self.columns);
        let column = columns.find(|((own, _), _)| own.as_ref() == name);
        let values = column.and_then(|(_, column)| V::of(column));
        values.ok_or_else(|| format!("its column {name} is missing or of another kind"))
    }
}
