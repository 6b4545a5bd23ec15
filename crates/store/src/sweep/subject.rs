//! The contents of the report of a sweep.

use underload_record::schema::{Extreme, PlotRecord};

#[derive(Debug, Clone, PartialEq)]
pub struct SweepSubject {
    /// Heading; the name of the file if it has none.
    pub title: String,
    pub scenario: String,
    pub axes: Vec<String>,
    /// Names of the parts of each axis, and behind them the variants. Pictures name such a dimension by
    /// its position.
    pub parts: Vec<Vec<String>>,
    pub metrics: Vec<String>,
    /// Whether the user named each metric, so that a missing one is reported.
    pub requested: Vec<bool>,
    /// Position of the metric that ranks cells.
    pub ranked_by: usize,
    /// The extreme that counts as best.
    pub best: Extreme,
    /// Cells of the complete sweep.
    pub cells: u64,
    pub plots: Vec<SweepPlot>,
}

/// A picture of a sweep's cells.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPlot {
    /// Form, heading and words. Its variants and metrics are those below.
    pub picture: PlotRecord,
    /// The dimension with a curve, colour or row for each value.
    pub line: Option<usize>,
    /// The horizontal dimension; `None` for a scatter plot.
    pub x: Option<usize>,
    /// Position of the vertical metric.
    pub metric: usize,
    /// Position of the horizontal metric of a scatter plot.
    pub x_metric: Option<usize>,
    /// The cells that are shown, by their value of a dimension.
    pub only: Vec<(usize, String)>,
}
