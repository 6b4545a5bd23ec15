//! Rows of a sweep's trials, as text for its journal and as cells for its table.

use serde::{Deserialize, Serialize};
use underload_record::schema::TrialRecord;

use crate::table::{Cell, Kind, Table as _};
use crate::trials::Trials;

/// The columns of a sweep: its axes, then those of `trials.parquet`, then its metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A finished trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// The number of the trial in the sweep.
    pub trial: u64,
    pub cell: u64,
    /// The cell's identity, which is equal only for the same experiment, seed and program.
    pub id: String,
    pub values: Vec<AxisValue>,
    /// The columns of a run's `trials.parquet` after the first, in order.
    columns: Vec<Cell<'static>>,
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
            let amount = axis.is_amount.then(|| value.amount.into());
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
        let columns = Trials::LAYOUT.iter().zip(Trials::cells(&trial)).skip(1);
        let columns = columns.map(|((name, _), cell)| match *name {
            "valid" if error.is_some() => false.into(),
            _ => cell.into_owned(),
        });
        let (columns, number) = (columns.collect(), trial.index.into());
        let (id, values) = (id.to_owned(), values.to_vec());
        Self { trial: number, cell, id, values, columns, metrics, error }
    }

    /// Returns a value of a run's `trials.parquet`; `None` if it has no such column.
    pub fn column(&self, name: &str) -> Option<&Cell<'static>> {
        let position = Trials::LAYOUT.iter().skip(1).position(|(column, _)| *column == name)?;
        self.columns.get(position)
    }

    /// Whether the row has a value for each column.
    pub(super) fn has(&self, columns: &SweepColumns) -> bool {
        self.values.len() == columns.axes.len()
            && self.columns.len() == Trials::LAYOUT.len() - 1
            && self.metrics.len() == columns.metrics.len()
    }

    /// Returns the values of the sweep's `trials.parquet`.
    pub(super) fn cells<'a>(&'a self, columns: &'a SweepColumns) -> impl Iterator<Item = Cell<'a>> {
        [self.trial.into(), self.cell.into(), Cell::from(&self.id)]
            .into_iter()
            .chain(columns.axis_cells(&self.values))
            .chain(self.columns.iter().cloned())
            .chain(self.metrics.iter().map(|value| (*value).into()))
            .chain([self.error.as_ref().into()])
    }
}
