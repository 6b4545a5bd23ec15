//! Rows of a sweep's trials, as text for its journal and as cells for its table.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use underload_record::schema::TrialRecord;

use crate::table::{Cell, Kind, Table as _};
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AxisValue {
    /// As a scenario writes it.
    pub text: String,
    /// The value in s, bit/s, bytes or as a count; `None` for a text.
    pub amount: Option<f64>,
}

/// The trials that are computed at once: one, or those of a cell whose number of trials depends on
/// their results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepUnit {
    pub number: u64,
    /// In order of their trials.
    pub rows: Vec<SweepRow>,
}

/// A finished trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    pub cell: u64,
    /// The cell's identity, which is equal only for the same experiment, seed and program.
    pub id: String,
    pub values: Vec<AxisValue>,
    /// The columns of `trials.parquet`, in order.
    trial: Vec<Value>,
    pub metrics: Vec<Option<f64>>,
    /// Why the trial failed; `None` if it succeeded.
    pub error: Option<String>,
}

/// Names and kinds of columns.
pub(super) type Layout = Vec<(String, Kind)>;

impl SweepColumns {
    /// Returns names and kinds of the columns of a sweep's `trials.parquet`.
    pub(super) fn layout(&self) -> Layout {
        let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
        let mut layout = [("trial", Kind::Long), ("cell", Kind::Long), ("cell_id", Kind::Text)]
            .map(named)
            .to_vec();
        layout.extend(self.axis_layout());
        layout.extend(Trials::LAYOUT.iter().skip(1).copied().map(named));
        layout.extend(self.metrics.iter().map(|name| (name.clone(), Kind::OptionalDouble)));
        layout.push(named(("error", Kind::OptionalText)));
        layout
    }

    pub(super) fn axis_layout(&self) -> Layout {
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

    pub(super) fn axis_cells<'a>(
        &'a self,
        values: &'a [AxisValue],
    ) -> impl Iterator<Item = Cell<'a>> {
        self.axes.iter().zip(values).flat_map(|(axis, value)| {
            let amount = axis.is_amount.then_some(Cell::OptionalDouble(value.amount));
            [Cell::from(&value.text)].into_iter().chain(amount)
        })
    }
}

impl SweepRow {
    /// Makes the row of a trial; of a failed one, `trial` has only index, variant, repeat and seed.
    pub fn new(
        (cell, id): (u64, &str),
        values: &[AxisValue],
        trial: &TrialRecord,
        metrics: Vec<Option<f64>>,
        error: Option<String>,
    ) -> Self {
        let columns = Trials::LAYOUT.iter().zip(Trials::cells(&trial));
        let trial = columns.map(|((name, _), cell)| match *name {
            "valid" if error.is_some() => false.into(),
            _ => json(cell),
        });
        let (id, values, trial) = (id.to_owned(), values.to_vec(), trial.collect());
        Self { cell, id, values, trial, metrics, error }
    }

    /// Returns a value of `trials.parquet`; `None` if it has no such column.
    pub fn trial_value(&self, column: &str) -> Option<&Value> {
        let position = Trials::LAYOUT.iter().position(|(name, _)| *name == column)?;
        self.trial.get(position)
    }

    /// Returns the number of the trial in the sweep.
    pub(super) fn number(&self) -> Option<u64> {
        self.trial.first()?.as_u64()
    }

    /// Returns the values of the columns; `None` for a row of another sweep.
    pub(super) fn cells<'a>(&'a self, columns: &'a SweepColumns) -> Option<Vec<Cell<'a>>> {
        let is_of_sweep = self.values.len() == columns.axes.len()
            && self.metrics.len() == columns.metrics.len()
            && self.trial.len() == Trials::LAYOUT.len();
        let trial = Trials::LAYOUT.iter().zip(&self.trial);
        let mut trial = trial.map(|((_, kind), value)| cell(*kind, value));
        let mut cells = vec![trial.next()??, self.cell.into(), (&self.id).into()];
        cells.extend(columns.axis_cells(&self.values));
        for cell in trial {
            cells.push(cell?);
        }
        cells.extend(self.metrics.iter().map(|value| Cell::from(*value)));
        cells.push(self.error.as_ref().into());
        is_of_sweep.then_some(cells)
    }
}

/// Converts a value of `trials.parquet` to JSON.
fn json(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Long(number) | Cell::OptionalLong(Some(number)) => {
            i64::try_from(number).unwrap_or(i64::MAX).into()
        }
        Cell::Double(number) | Cell::OptionalDouble(Some(number)) => number.into(),
        Cell::Boolean(value) => value.into(),
        Cell::Text(text) | Cell::OptionalText(Some(text)) => text.into(),
        Cell::Bytes(bytes) => bytes.into(),
        Cell::Longs(numbers) => numbers.into(),
        Cell::OptionalLong(None) | Cell::OptionalDouble(None) | Cell::OptionalText(None) => {
            Value::Null
        }
    }
}

/// Converts JSON to a value of `trials.parquet`; `None` for a value of another kind.
fn cell(kind: Kind, value: &Value) -> Option<Cell<'_>> {
    Some(match kind {
        Kind::Long => value.as_i64()?.into(),
        Kind::OptionalLong if value.is_null() => Cell::OptionalLong(None),
        Kind::OptionalLong => Some(value.as_i64()?).into(),
        Kind::Boolean => value.as_bool()?.into(),
        Kind::Text => value.as_str()?.into(),
        Kind::OptionalText if value.is_null() => Cell::OptionalText(None),
        Kind::OptionalText => Some(value.as_str()?).into(),
        Kind::Double => value.as_f64()?.into(),
        Kind::OptionalDouble => Cell::OptionalDouble(value.as_f64()),
        Kind::Bytes | Kind::Longs | Kind::Counts => return None,
    })
}
