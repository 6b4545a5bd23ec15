//! Summaries of a sweep's cells.

use std::sync::Arc;

use parquet::data_type::ByteArray;
use underload_record::CONFIDENCE;
use underload_record::schema::Interval;
use underload_record::stats::RunningMean;

use super::rows::{AxisColumn, AxisValue, Group, Layout, SweepColumns, SweepRows, axis_cells};
use crate::table::{self, Cell, Column, Kind};

/// The summary of a cell's trials.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepCell {
    pub cell: u64,
    /// The identity, as [`super::SweepRow::id`].
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
#[derive(Debug)]
pub(super) struct CellFold {
    columns: SweepColumns,
    cell: Option<(SweepCell, Vec<RunningMean>)>,
}

impl CellFold {
    pub(super) fn new(columns: &SweepColumns) -> Self {
        Self { columns: columns.clone(), cell: None }
    }

    /// Adds rows, and calls `take` with each complete cell.
    pub(super) fn add<E>(
        &mut self,
        rows: &SweepRows,
        take: &mut dyn FnMut(SweepCell) -> Result<(), E>,
    ) -> Result<(), E> {
        let Ok(view) = View::new(&self.columns, rows.group()) else { return Ok(()) };
        let Ok(valid) = view.group.get::<&[bool]>("valid") else { return Ok(()) };
        for row in 0..rows.len() {
            let number = u64::try_from(view.cells[row]).unwrap_or_default();
            if self.cell.as_ref().is_none_or(|(cell, _)| cell.cell != number) {
                self.finish(take)?;
                let means = vec![RunningMean::default(); self.columns.metrics.len()];
                self.cell = Some((view.cell(row), means));
            }
            let Some((cell, means)) = &mut self.cell else { continue };
            cell.trials += 1;
            if let Some(error) = &view.errors[row] {
                cell.failed += 1;
                cell.error.get_or_insert_with(|| text(error));
            }
            if valid[row] {
                for (mean, values) in means.iter_mut().zip(&view.metrics) {
                    values[row].into_iter().for_each(|value| mean.push(value));
                }
            }
        }
        Ok(())
    }

    /// Calls `take` with the last cell.
    pub(super) fn finish<E>(
        &mut self,
        take: &mut dyn FnMut(SweepCell) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((mut cell, means)) = self.cell.take() else { return Ok(()) };
        cell.metrics = means.iter().map(|mean| mean.interval(CONFIDENCE)).collect();
        take(cell)
    }
}

/// The texts and the amounts of an axis.
type AxisView<'a> = (&'a [ByteArray], Option<&'a [Option<f64>]>);

/// The columns of a table of trials or cells from which a cell is computed.
struct View<'a> {
    group: Group<'a, String>,
    cells: &'a [i64],
    ids: &'a [ByteArray],
    axes: Vec<AxisView<'a>>,
    variants: &'a [ByteArray],
    metrics: Vec<&'a [Option<f64>]>,
    errors: &'a [Option<ByteArray>],
}

impl<'a> View<'a> {
    fn new(columns: &SweepColumns, group: Group<'a, String>) -> Result<Self, String> {
        let axis = |axis: &AxisColumn| {
            let amount = || group.get(&format!("{}.amount", axis.name));
            Ok((group.get(&axis.name)?, axis.is_amount.then(amount).transpose()?))
        };
        let axes = columns.axes.iter().map(axis).collect::<Result<_, String>>()?;
        let metrics = columns.metrics.iter().map(|metric| group.get(metric));
        Ok(Self {
            cells: group.get("cell")?,
            ids: group.get("cell_id")?,
            axes,
            variants: group.get("variant")?,
            metrics: metrics.collect::<Result<_, _>>()?,
            errors: group.get("error")?,
            group,
        })
    }

    fn cell(&self, row: usize) -> SweepCell {
        let value = |(texts, amounts): &AxisView<'_>| AxisValue {
            text: text(&texts[row]),
            amount: amounts.and_then(|amounts| amounts[row]),
        };
        SweepCell {
            cell: u64::try_from(self.cells[row]).unwrap_or_default(),
            id: text(&self.ids[row]),
            values: self.axes.iter().map(value).collect(),
            variant: text(&self.variants[row]),
            ..SweepCell::default()
        }
    }
}

fn text(bytes: &ByteArray) -> String {
    bytes.as_utf8().unwrap_or_default().to_owned()
}

/// Returns names and kinds of the columns of `cells.parquet`.
pub(super) fn layout(columns: &SweepColumns) -> Layout {
    let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
    let mut layout = [("cell", Kind::Long), ("cell_id", Kind::Text)].map(named).to_vec();
    layout.extend(columns.axis_layout());
    let own = [("variant", Kind::Text), ("trials", Kind::Long), ("failed", Kind::Long)];
    layout.extend(own.map(named));
    for metric in &columns.metrics {
        let of = |end: &str| (format!("{metric}{end}"), Kind::OptionalDouble);
        layout.extend(["", ".low", ".high"].map(of));
    }
    layout.push(named(("error", Kind::OptionalText)));
    layout.into()
}

#[derive(Debug)]
pub(super) struct CellRows {
    columns: SweepColumns,
    layout: Layout,
    values: Vec<Column>,
    count: usize,
}

impl CellRows {
    pub(super) fn new(columns: &SweepColumns) -> Self {
        let layout = layout(columns);
        let values = table::empty(&layout);
        Self { columns: columns.clone(), layout, values, count: 0 }
    }

    pub(super) fn push(&mut self, cell: &SweepCell) {
        let metrics = cell.metrics.iter().flat_map(|interval| {
            let of = |value: fn(&Interval) -> Option<f64>| {
                Cell::OptionalDouble(interval.as_ref().and_then(value))
            };
            [of(|it| Some(it.mean)), of(|it| it.low), of(|it| it.high)]
        });
        let cells = [Cell::Long(cell.cell.into()), Cell::Text((&cell.id).into())]
            .into_iter()
            .chain(axis_cells(&self.columns.axes, &cell.values))
            .chain([
                Cell::Text((&cell.variant).into()),
                Cell::Long(cell.trials.into()),
                Cell::Long(cell.failed.into()),
            ])
            .chain(metrics)
            .chain([Cell::OptionalText(cell.error.as_deref().map(Into::into))]);
        table::push(&mut self.values, cells);
        self.count += 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the columns, and leaves them empty.
    pub(super) fn take(&mut self) -> Vec<Column> {
        self.count = 0;
        std::mem::replace(&mut self.values, table::empty(&self.layout))
    }

    pub(super) fn layout(&self) -> Layout {
        Arc::clone(&self.layout)
    }
}

/// Returns the cells of a row group of `cells.parquet`.
pub(super) fn from_columns(
    columns: &SweepColumns,
    layout: &Layout,
    values: &[Column],
) -> Result<Vec<SweepCell>, String> {
    let view = View::new(columns, Group { layout, columns: values })?;
    let [trials, failed] = ["trials", "failed"].map(|name| view.group.get::<&[i64]>(name));
    let (trials, failed) = (trials?, failed?);
    let ends = |end: &str| -> Result<Vec<&[Option<f64>]>, String> {
        let names = columns.metrics.iter().map(|metric| format!("{metric}{end}"));
        names.map(|name| view.group.get(&name)).collect()
    };
    let (lows, highs) = (ends(".low")?, ends(".high")?);
    let cell = |row: usize| {
        let count = |values: &[i64]| u64::try_from(values[row]).unwrap_or_default();
        let (trials, failed) = (count(trials), count(failed));
        let repeats = u32::try_from(trials.saturating_sub(failed)).unwrap_or(u32::MAX);
        let interval = |metric: usize| {
            let (low, high) = (lows[metric][row], highs[metric][row]);
            let mean = view.metrics[metric][row];
            mean.map(|mean| Interval { mean, low, high, confidence: CONFIDENCE, repeats })
        };
        let metrics = (0..view.metrics.len()).map(interval).collect();
        let error = view.errors[row].as_ref().map(text);
        SweepCell { trials, failed, error, metrics, ..view.cell(row) }
    };
    Ok((0..view.cells.len()).map(cell).collect())
}
