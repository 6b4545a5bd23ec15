//! Summaries of a sweep's cells.

use std::slice;

use underload_record::CONFIDENCE;
use underload_record::schema::Interval;
use underload_record::stats::RunningMean;

use super::rows::{AxisValue, Layout, SweepColumns, SweepRow};
use crate::table::{Cell, Column, Kind};

/// The summary of a cell's trials.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepCell {
    pub cell: u64,
    /// The identity, as [`SweepRow::id`].
    pub id: String,
    pub values: Vec<AxisValue>,
    pub variant: String,
    /// Number of trials, with those that failed.
    pub trials: u64,
    pub failed: u64,
    /// Why the first trial failed; `None` if none did.
    pub error: Option<String>,
    /// Each metric over the valid trials, with the interval of its mean; `None` if no trial has it.
    pub metrics: Vec<Option<Interval>>,
}

/// Summarises rows, which are in order of their cells.
#[derive(Debug, Default)]
pub(super) struct CellFold(Option<(SweepCell, Vec<TrialMean>)>);

/// The mean of a metric over the valid trials of a cell. It exists only if each of them has a value: a
/// mean over the others would hide trials that lost every probe.
#[derive(Debug, Clone, Default)]
struct TrialMean {
    mean: RunningMean,
    lacks_one: bool,
}

impl TrialMean {
    fn interval(&self) -> Option<Interval> {
        if self.lacks_one { None } else { self.mean.interval(CONFIDENCE) }
    }
}

impl CellFold {
    /// Adds a row. Returns the cell before, if the row is of another one.
    pub(super) fn add(&mut self, row: &SweepRow) -> Option<SweepCell> {
        let is_other = self.0.as_ref().is_none_or(|(cell, _)| cell.cell != row.cell);
        let before = if is_other { self.finish() } else { None };
        let (cell, means) = self.0.get_or_insert_with(|| {
            let cell = SweepCell {
                cell: row.cell,
                id: row.id.clone(),
                values: row.values.clone(),
                variant: row.column("variant").map(Cell::to_string).unwrap_or_default(),
                ..SweepCell::default()
            };
            (cell, vec![TrialMean::default(); row.metrics.len()])
        });
        cell.trials += 1;
        if let Some(error) = &row.error {
            cell.failed += 1;
            cell.error.get_or_insert_with(|| error.clone());
        }
        if row.column("valid") == Some(&Cell::Boolean(true)) {
            for (mean, value) in means.iter_mut().zip(&row.metrics) {
                match value {
                    Some(value) => mean.mean.push(*value),
                    None => mean.lacks_one = true,
                }
            }
        }
        before
    }

    /// Returns the last cell.
    pub(super) fn finish(&mut self) -> Option<SweepCell> {
        let (mut cell, means) = self.0.take()?;
        cell.metrics = means.iter().map(TrialMean::interval).collect();
        Some(cell)
    }
}

impl SweepColumns {
    /// Returns names and kinds of the columns of `cells.parquet`.
    pub(super) fn cell_layout(&self) -> Layout {
        let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
        let mut layout = [("cell", Kind::Long), ("cell_id", Kind::Text)].map(named).to_vec();
        layout.extend(self.axis_layout());
        let own = [("variant", Kind::Text), ("trials", Kind::Long), ("failed", Kind::Long)];
        layout.extend(own.map(named));
        for metric in &self.metrics {
            let of = |end: &str| (format!("{metric}{end}"), Kind::OptionalDouble);
            layout.extend([".mean", ".low", ".high"].map(of));
        }
        layout.push(named(("error", Kind::OptionalText)));
        layout
    }

    /// Returns a row of `cells.parquet`.
    pub(super) fn cell_row<'a>(&'a self, cell: &'a SweepCell) -> impl Iterator<Item = Cell<'a>> {
        let metrics = cell.metrics.iter().flat_map(|interval| {
            let number = |number: fn(&Interval) -> Option<f64>| interval.as_ref().and_then(number);
            [number(|it| Some(it.mean)), number(|it| it.low), number(|it| it.high)]
        });
        [Cell::from(cell.cell), Cell::from(&cell.id)]
            .into_iter()
            .chain(self.axis_cells(&cell.values))
            .chain([Cell::from(&cell.variant), cell.trials.into(), cell.failed.into()])
            .chain(metrics.map(Cell::from))
            .chain([Cell::from(cell.error.as_ref())])
    }

    /// Reads a row of `cells.parquet`; `None` if it is damaged.
    pub(super) fn cell_at(&self, columns: &[Column], row: usize) -> Option<SweepCell> {
        let mut values = Values { columns: columns.iter(), row };
        let (cell, id) = (values.long()?, values.text()?);
        let axis = |values: &mut Values<'_>, is_amount: bool| {
            let text = values.text()?;
            let amount = if is_amount { *values.doubles()?.get(row)? } else { None };
            Some(AxisValue { text, amount })
        };
        let axes = self.axes.iter().map(|own| axis(&mut values, own.is_amount));
        let axes = axes.collect::<Option<_>>()?;
        let (variant, trials, failed) = (values.text()?, values.long()?, values.long()?);
        let repeats = u32::try_from(trials.saturating_sub(failed)).unwrap_or(u32::MAX);
        let mut metrics = Vec::with_capacity(self.metrics.len());
        for _ in &self.metrics {
            let mut number = || values.doubles()?.get(row).copied();
            let (mean, low, high) = (number()?, number()?, number()?);
            let interval = |mean| Interval { mean, low, high, confidence: CONFIDENCE, repeats };
            metrics.push(mean.map(interval));
        }
        let error = values.text();
        Some(SweepCell { cell, id, values: axes, variant, trials, failed, error, metrics })
    }
}

/// The values of one row, from its first column on.
struct Values<'a> {
    columns: slice::Iter<'a, Column>,
    row: usize,
}

impl Values<'_> {
    fn text(&mut self) -> Option<String> {
        self.columns.next()?.text(self.row).map(str::to_owned)
    }

    fn long(&mut self) -> Option<u64> {
        let Column::Long(values) = self.columns.next()? else { return None };
        u64::try_from(*values.get(self.row)?).ok()
    }

    fn doubles(&mut self) -> Option<&[Option<f64>]> {
        let Column::OptionalDouble(values) = self.columns.next()? else { return None };
        Some(values)
    }
}
