//! The rows of a sweep's trials as columns.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parquet::data_type::ByteArray;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use underload_record::schema::TrialRecord;

use crate::columns::{self, Column, Kind};
use crate::trials::{self, Cell};
use crate::values::guarded;

/// The columns of a sweep: its axes, then those of `trials.parquet`, then its metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepColumns {
    /// The axes, by name.
    pub axes: Vec<AxisColumn>,
    /// Names of the metrics.
    pub metrics: Vec<String>,
}

/// The column of an axis: the values as a scenario writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisColumn {
    /// Name of the axis and its column.
    pub name: String,
    /// Whether all values are amounts; then `NAME.amount` has them as numbers: s, bit/s, bytes or
    /// ones.
    pub is_amount: bool,
}

/// A value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisValue {
    /// As a scenario writes it.
    pub text: String,
    /// As a number, where it is one: s, bit/s, bytes or ones.
    pub amount: Option<f64>,
}

/// One trial of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct SweepRow<'a> {
    /// Number of the cell.
    pub cell: u64,
    /// The cell's identity: the same only for the same experiment, seed and program.
    pub id: &'a str,
    /// A value for each axis.
    pub values: &'a [AxisValue],
    /// The trial; of a failed one its place.
    pub trial: &'a TrialRecord,
    /// A value for each metric.
    pub metrics: &'a [Option<f64>],
    /// Why it failed.
    pub error: Option<&'a str>,
}

/// Rows of a sweep, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRows {
    layout: Layout,
    columns: Vec<Column>,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues<'a> {
    /// Whole numbers.
    Long(&'a [i64]),
    /// Whole numbers, where there are any.
    OptionalLong(&'a [Option<i64>]),
    /// Numbers, where there are any.
    OptionalDouble(&'a [Option<f64>]),
    /// Yes or no.
    Boolean(&'a [bool]),
    /// Texts.
    Text(Vec<&'a str>),
    /// Texts, where there are any.
    OptionalText(Vec<Option<&'a str>>),
}

/// Names and kinds of the columns.
pub(super) type Layout = Arc<[(String, Kind)]>;

/// Position of `trial`.
pub(super) const TRIAL: usize = 0;
/// Position of `cell`.
pub(super) const CELL: usize = 1;
/// Position of the cell's identity.
pub(super) const ID: usize = 2;
/// Position of the first axis.
pub(super) const AXES: usize = 3;

impl SweepColumns {
    /// Names and kinds of a row's columns.
    pub(super) fn layout(&self) -> Layout {
        let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
        let mut layout = [("trial", Kind::Long), ("cell", Kind::Long), ("cell_id", Kind::Text)]
            .map(named)
            .to_vec();
        layout.extend(self.axis_layout());
        layout.extend(trials::TRIALS[1..].iter().map(|(name, kind)| named((name, *kind))));
        layout.extend(self.metrics.iter().map(|name| (name.clone(), Kind::OptionalDouble)));
        layout.push(named(("error", Kind::OptionalText)));
        layout.into()
    }

    /// Those of the axes alone.
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

    /// Names that an axis or metric cannot have, because a column has it.
    pub fn reserved() -> impl Iterator<Item = &'static str> {
        let own = ["cell", "cell_id", "error", "trials", "failed"];
        own.into_iter().chain(trials::TRIALS.iter().map(|(name, _)| *name))
    }

    /// The cells of a row.
    fn cells(&self, row: &SweepRow<'_>) -> Vec<Cell> {
        let mut of_trial = trials::row(row.trial);
        if row.error.is_some() {
            of_trial[VALID] = Cell::Boolean(false);
        }
        let mut of_trial = of_trial.into_iter();
        let mut cells: Vec<Cell> = of_trial.next().into_iter().collect();
        cells.push(Cell::Long(i64::try_from(row.cell).unwrap_or(i64::MAX)));
        cells.push(Cell::Text(row.id.to_owned()));
        cells.extend(axis_cells(&self.axes, row.values));
        cells.extend(of_trial);
        cells.extend(row.metrics.iter().map(|value| Cell::OptionalDouble(*value)));
        cells.push(Cell::OptionalText(row.error.map(str::to_owned)));
        cells
    }
}

/// Position of `valid` in a row of `trials.parquet`.
const VALID: usize = 4;

/// The cells of a row's axes.
pub(super) fn axis_cells<'a>(
    axes: &'a [AxisColumn],
    values: &'a [AxisValue],
) -> impl Iterator<Item = Cell> + 'a {
    axes.iter().zip(values).flat_map(|(axis, value)| {
        let amount = axis.is_amount.then_some(Cell::OptionalDouble(value.amount));
        [Cell::Text(value.text.clone())].into_iter().chain(amount)
    })
}

impl SweepRows {
    /// No rows.
    pub fn new(columns: &SweepColumns) -> Self {
        Self::empty(&columns.layout())
    }

    pub(super) fn empty(layout: &Layout) -> Self {
        let columns = layout.iter().map(|(_, kind)| Column::empty(*kind)).collect();
        Self { layout: Arc::clone(layout), columns }
    }

    pub(super) fn of(layout: &Layout, columns: Vec<Column>) -> Self {
        Self { layout: Arc::clone(layout), columns }
    }

    /// Adds a row. `columns` are those that it was made with.
    pub fn push(&mut self, columns: &SweepColumns, row: &SweepRow<'_>) {
        trials::push(&mut self.columns, columns.cells(row));
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.trials().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The trial of each row.
    pub fn trials(&self) -> &[i64] {
        match self.columns.first() {
            Some(Column::Long(trials)) => trials,
            _ => &[],
        }
    }

    /// Names of the columns, and their values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, ColumnValues<'_>)> {
        self.layout
            .iter()
            .zip(&self.columns)
            .map(|((name, _), column)| (name.as_str(), values(column)))
    }

    /// The column at a position.
    pub(super) fn column(&self, position: usize) -> Option<ColumnValues<'_>> {
        self.columns.get(position).map(values)
    }

    pub(super) fn layout(&self) -> Layout {
        Arc::clone(&self.layout)
    }

    /// Adds rows of others.
    pub(super) fn extend(&mut self, others: &SweepRows, rows: Range<usize>) {
        for (own, other) in self.columns.iter_mut().zip(&others.columns) {
            extend(own, other, rows.clone());
        }
    }

    pub(super) fn raw(&self) -> &[Column] {
        &self.columns
    }

    /// The rows as the bytes of a Parquet file.
    ///
    /// # Errors
    /// What the encoder says.
    pub fn to_parquet(&self) -> Result<Vec<u8>, String> {
        columns::bytes(&self.layout, std::iter::once(self.columns.clone()))
    }

    /// The rows of such a file.
    ///
    /// # Errors
    /// What is wrong with it, such as columns of another sweep.
    pub fn from_parquet(columns: &SweepColumns, bytes: Vec<u8>) -> Result<Self, String> {
        let layout = columns.layout();
        let mut rows = Self::empty(&layout);
        let reader =
            guarded(|| SerializedFileReader::new(Bytes::from(bytes))).map_err(|e| e.to_string())?;
        check_schema(&reader, &layout)?;
        for position in 0..reader.num_row_groups() {
            let group = Self::of(&layout, group(&reader, position, &layout)?);
            rows.extend(&group, 0..group.len());
        }
        Ok(rows)
    }
}

/// One row group of a file.
pub(super) fn group<R: ChunkReader + 'static>(
    reader: &SerializedFileReader<R>,
    position: usize,
    layout: &Layout,
) -> Result<Vec<Column>, String> {
    let rows = reader.metadata().row_group(position).num_rows();
    let rows = usize::try_from(rows).ok().filter(|rows| *rows <= MOST_GROUP_ROWS);
    let rows = rows.ok_or("a row group of an impossible size")?;
    let columns = guarded(|| columns::read_group(reader, position, layout, rows));
    columns.map_err(|error| error.to_string())
}

/// Refuses a file with other columns.
pub(super) fn check_schema<R: ChunkReader + 'static>(
    reader: &SerializedFileReader<R>,
    layout: &Layout,
) -> Result<(), String> {
    let wanted = columns::schema(layout).map_err(|error| error.to_string())?;
    if *reader.metadata().file_metadata().schema() == *wanted {
        return Ok(());
    }
    Err("its columns are not those of this sweep".to_owned())
}

/// Rows of a row group, at most.
const MOST_GROUP_ROWS: usize = 1 << 24;

/// What a file's bytes are known by.
pub(super) fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(&digest(&SHA256, bytes).as_ref()[..8])
}

fn extend(own: &mut Column, other: &Column, rows: Range<usize>) {
    match (own, other) {
        (Column::Long(own), Column::Long(other)) => own.extend_from_slice(&other[rows]),
        (Column::OptionalLong(own), Column::OptionalLong(other)) => {
            own.extend_from_slice(&other[rows]);
        }
        (Column::Text(own), Column::Text(other)) => own.extend_from_slice(&other[rows]),
        (Column::OptionalText(own), Column::OptionalText(other)) => {
            own.extend_from_slice(&other[rows]);
        }
        (Column::Boolean(own), Column::Boolean(other)) => own.extend_from_slice(&other[rows]),
        (Column::Double(own), Column::Double(other)) => own.extend_from_slice(&other[rows]),
        (Column::OptionalDouble(own), Column::OptionalDouble(other)) => {
            own.extend_from_slice(&other[rows]);
        }
        _ => debug_assert!(false, "rows of one sweep have the same columns"),
    }
}

fn values(column: &Column) -> ColumnValues<'_> {
    fn text(value: &ByteArray) -> &str {
        value.as_utf8().unwrap_or_default()
    }
    match column {
        Column::Long(values) => ColumnValues::Long(values),
        Column::OptionalLong(values) => ColumnValues::OptionalLong(values),
        Column::OptionalDouble(values) => ColumnValues::OptionalDouble(values),
        Column::Boolean(values) => ColumnValues::Boolean(values),
        Column::Text(values) => ColumnValues::Text(values.iter().map(text).collect()),
        Column::OptionalText(values) => ColumnValues::OptionalText(
            values.iter().map(|value| value.as_ref().map(text)).collect(),
        ),
        // No column of a sweep is of that kind.
        Column::Double(_) => ColumnValues::OptionalDouble(&[]),
    }
}
