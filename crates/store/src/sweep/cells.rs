//! A sweep's cells: what the trials of each come to, one cell after the other.

use std::sync::Arc;

use underload_record::CONFIDENCE;
use underload_record::schema::Interval;
use underload_record::stats::RunningMean;

use super::rows::{
    AXES, AxisColumn, AxisValue, CELL, ColumnValues, ID, Layout, SweepColumns, SweepRows,
    axis_cells,
};
use crate::columns::{Column, Kind};
use crate::trials::{self, Cell};

/// What the trials of a cell come to.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepCell {
    /// Number of the cell.
    pub cell: u64,
    /// Its identity, see [`super::SweepRow::id`].
    pub id: String,
    /// Its value of each axis.
    pub values: Vec<AxisValue>,
    /// Its arm.
    pub arm: String,
    /// Its trials, those that failed included.
    pub trials: u64,
    /// Trials that failed.
    pub failed: u64,
    /// Why the first of them did.
    pub error: Option<String>,
    /// Each metric over its valid trials, with the interval of its mean; `None` where no trial has
    /// it.
    pub metrics: Vec<Option<Interval>>,
}

/// Makes cells of rows that come in their order.
#[derive(Debug)]
pub(super) struct CellFold {
    columns: SweepColumns,
    places: Places,
    cell: Option<(SweepCell, Vec<RunningMean>)>,
}

/// Where the columns are.
#[derive(Debug)]
struct Places {
    arm: usize,
    valid: usize,
    metrics: usize,
    error: usize,
}

impl CellFold {
    pub(super) fn new(columns: &SweepColumns) -> Self {
        let axes = columns.axis_layout().len();
        let of_trial = |name: &str| {
            let position = trials::TRIALS.iter().position(|(own, _)| *own == name);
            AXES + axes + position.unwrap_or_default().saturating_sub(1)
        };
        let metrics = AXES + axes + trials::TRIALS.len() - 1;
        let places = Places {
            arm: of_trial("arm"),
            valid: of_trial("valid"),
            metrics,
            error: metrics + columns.metrics.len(),
        };
        Self { columns: columns.clone(), places, cell: None }
    }

    /// Adds rows; `take` is given each cell that is complete.
    pub(super) fn add<E>(
        &mut self,
        rows: &SweepRows,
        take: &mut dyn FnMut(SweepCell) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(view) = View::new(rows, &self.places, &self.columns) else { return Ok(()) };
        for row in 0..rows.len() {
            let number = u64::try_from(view.cells[row]).unwrap_or_default();
            if self.cell.as_ref().is_none_or(|(cell, _)| cell.cell != number) {
                self.finish(take)?;
                let means = vec![RunningMean::default(); self.columns.metrics.len()];
                self.cell = Some((view.cell(number, row), means));
            }
            let Some((cell, means)) = &mut self.cell else { continue };
            cell.trials += 1;
            if let Some(error) = view.errors[row] {
                cell.failed += 1;
                cell.error.get_or_insert_with(|| error.to_owned());
            }
            if view.valid[row] {
                for (mean, values) in means.iter_mut().zip(&view.metrics) {
                    values[row].into_iter().for_each(|value| mean.push(value));
                }
            }
        }
        Ok(())
    }

    /// No row follows.
    pub(super) fn finish<E>(
        &mut self,
        take: &mut dyn FnMut(SweepCell) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((mut cell, means)) = self.cell.take() else { return Ok(()) };
        cell.metrics = means.iter().map(|mean| mean.interval(CONFIDENCE)).collect();
        take(cell)
    }
}

/// Texts and amounts of an axis.
type AxisView<'a> = (Vec<&'a str>, Option<&'a [Option<f64>]>);

/// The columns that a cell needs.
struct View<'a> {
    cells: &'a [i64],
    ids: Vec<&'a str>,
    axes: Vec<AxisView<'a>>,
    arms: Vec<&'a str>,
    valid: &'a [bool],
    metrics: Vec<&'a [Option<f64>]>,
    errors: Vec<Option<&'a str>>,
}

impl<'a> View<'a> {
    /// `None` where the rows have other columns.
    fn new(rows: &'a SweepRows, places: &Places, columns: &SweepColumns) -> Option<Self> {
        let texts = |position| match rows.column(position)? {
            ColumnValues::Text(texts) => Some(texts),
            _ => None,
        };
        let doubles = |position| match rows.raw().get(position)? {
            Column::OptionalDouble(values) => Some(values.as_slice()),
            _ => None,
        };
        let mut axes = Vec::new();
        let mut position = AXES;
        for axis in &columns.axes {
            let values = texts(position)?;
            let amounts = if axis.is_amount { Some(doubles(position + 1)?) } else { None };
            position += 1 + usize::from(axis.is_amount);
            axes.push((values, amounts));
        }
        let metrics = (0..columns.metrics.len()).map(|metric| doubles(places.metrics + metric));
        let Column::Long(cells) = rows.raw().get(CELL)? else { return None };
        let Column::Boolean(valid) = rows.raw().get(places.valid)? else { return None };
        let ColumnValues::OptionalText(errors) = rows.column(places.error)? else { return None };
        Some(Self {
            cells,
            ids: texts(ID)?,
            axes,
            arms: texts(places.arm)?,
            valid,
            metrics: metrics.collect::<Option<_>>()?,
            errors,
        })
    }

    /// The cell of a row, without its trials.
    fn cell(&self, cell: u64, row: usize) -> SweepCell {
        let value = |(texts, amounts): &AxisView<'_>| AxisValue {
            text: texts[row].to_owned(),
            amount: amounts.and_then(|amounts| amounts[row]),
        };
        SweepCell {
            cell,
            id: self.ids[row].to_owned(),
            values: self.axes.iter().map(value).collect(),
            arm: self.arms[row].to_owned(),
            trials: 0,
            failed: 0,
            error: None,
            metrics: Vec::new(),
        }
    }
}

/// Names and kinds of the columns of `cells.parquet`.
pub(super) fn layout(columns: &SweepColumns) -> Layout {
    let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
    let mut layout = [("cell", Kind::Long), ("cell_id", Kind::Text)].map(named).to_vec();
    layout.extend(columns.axis_layout());
    let own = [("arm", Kind::Text), ("trials", Kind::Long), ("failed", Kind::Long)];
    layout.extend(own.map(named));
    for metric in &columns.metrics {
        let of = |end: &str| (format!("{metric}{end}"), Kind::OptionalDouble);
        layout.extend(["", ".low", ".high"].map(of));
    }
    layout.push(named(("error", Kind::OptionalText)));
    layout.into()
}

/// Cells as columns.
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
        let values = layout.iter().map(|(_, kind)| Column::empty(*kind)).collect();
        Self { columns: columns.clone(), layout, values, count: 0 }
    }

    pub(super) fn push(&mut self, cell: &SweepCell) {
        let long = |value: u64| Cell::Long(i64::try_from(value).unwrap_or(i64::MAX));
        let mut cells = vec![long(cell.cell), Cell::Text(cell.id.clone())];
        cells.extend(axis_cells(&self.columns.axes, &cell.values));
        cells.extend([Cell::Text(cell.arm.clone()), long(cell.trials), long(cell.failed)]);
        for interval in &cell.metrics {
            let of = |value: &dyn Fn(&Interval) -> Option<f64>| {
                Cell::OptionalDouble(interval.as_ref().and_then(value))
            };
            cells.extend([of(&|it| Some(it.mean)), of(&|it| it.low), of(&|it| it.high)]);
        }
        cells.push(Cell::OptionalText(cell.error.clone()));
        trials::push(&mut self.values, cells);
        self.count += 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The columns, which are empty then.
    pub(super) fn take(&mut self) -> Vec<Column> {
        self.count = 0;
        let empty = self.layout.iter().map(|(_, kind)| Column::empty(*kind)).collect();
        std::mem::replace(&mut self.values, empty)
    }

    pub(super) fn layout(&self) -> Layout {
        Arc::clone(&self.layout)
    }
}

/// The cells of a row group of `cells.parquet`.
pub(super) fn from_columns(columns: &SweepColumns, values: &[Column]) -> Vec<SweepCell> {
    let count = match values.first() {
        Some(Column::Long(cells)) => cells.len(),
        _ => 0,
    };
    let mut cells = Vec::with_capacity(count);
    for row in 0..count {
        let mut cursor = Cursor { values, column: 0, row };
        let (cell, id) = (cursor.long(), cursor.text());
        let axis = |axis: &AxisColumn| {
            let text = cursor.text();
            let amount = if axis.is_amount { cursor.double() } else { None };
            AxisValue { text, amount }
        };
        let axes = columns.axes.iter().map(axis).collect();
        let (arm, trials, failed) = (cursor.text(), cursor.long(), cursor.long());
        let interval = |_: &String| {
            let (mean, low, high) = (cursor.double(), cursor.double(), cursor.double());
            let repeats = u32::try_from(trials.saturating_sub(failed)).unwrap_or(u32::MAX);
            mean.map(|mean| Interval { mean, low, high, confidence: CONFIDENCE, repeats })
        };
        let metrics = columns.metrics.iter().map(interval).collect();
        let error = cursor.optional_text();
        cells.push(SweepCell { cell, id, values: axes, arm, trials, failed, error, metrics });
    }
    cells
}

/// One row, value after value. The columns have the kinds of the layout: that was checked.
struct Cursor<'a> {
    values: &'a [Column],
    column: usize,
    row: usize,
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<&Column> {
        self.column += 1;
        self.values.get(self.column - 1)
    }

    fn long(&mut self) -> u64 {
        let row = self.row;
        match self.next() {
            Some(Column::Long(values)) => u64::try_from(values[row]).unwrap_or_default(),
            _ => 0,
        }
    }

    fn double(&mut self) -> Option<f64> {
        let row = self.row;
        match self.next() {
            Some(Column::OptionalDouble(values)) => values[row],
            _ => None,
        }
    }

    fn text(&mut self) -> String {
        let row = self.row;
        let text = match self.next() {
            Some(Column::Text(values)) => values[row].as_utf8().ok(),
            _ => None,
        };
        text.unwrap_or_default().to_owned()
    }

    fn optional_text(&mut self) -> Option<String> {
        let row = self.row;
        match self.next() {
            Some(Column::OptionalText(values)) => {
                values[row].as_ref().and_then(|text| text.as_utf8().ok()).map(str::to_owned)
            }
            _ => None,
        }
    }
}
