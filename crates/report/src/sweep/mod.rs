//! The results of a sweep of up to a million cells, gathered in bounded memory: best, worst and
//! failed cells, means over each axis, and the data of the plots that the sweep declares.

mod against;
mod pictures;

use serde::Serialize;
use underload_record::comparison::REPEATS;
use underload_record::schema::{Extreme, Interval, PlotKind, PlotRecord};
use underload_store::sweep::{SweepCell, SweepPlot, SweepSubject};

use crate::plot::Plot;
use crate::table::{COLUMNS, Row, render};
use crate::words::{one_line, significant, thousands, usual_unit, wrap};
use against::{Against, Tally};
use pictures::{Gathered, mean_of};

/// The results of a sweep, in bounded memory.
#[derive(Debug, Clone)]
pub struct SweepOutcome {
    pub(crate) subject: SweepSubject,
    cells: u64,
    trials: u64,
    failed: u64,
    pub(crate) best: Vec<SweepCell>,
    worst: Vec<SweepCell>,
    failures: Vec<SweepCell>,
    has_metric: Vec<bool>,
    has_more_variants: bool,
    /// The pictures that the sweep declares.
    declared: Vec<Gathered>,
    /// The ranking metric over each axis.
    over_axes: Vec<Gathered>,
    against: Against,
}

/// Cells in each ranking.
const LISTED: usize = 10;
/// Maximum number of failed cells in the list.
const FAILURES: usize = 10;
/// Maximum number of variants with a sentence.
const MOST_VARIANTS: usize = 12;
/// Maximum number of axes with a plot.
const MOST_AXES: usize = 8;
/// Maximum number of metrics in a table beside the ranking one.
const MORE_METRICS: usize = 3;
/// Widest value of an axis in a table, characters.
const WIDEST: usize = 32;

#[derive(Debug, Serialize)]
struct Document<'a> {
    title: &'a str,
    scenario: &'a str,
    directory: String,
    complete: bool,
    cells: u64,
    trials: u64,
    failed_cells: u64,
    /// Each variant against the first, point by point.
    compared: &'a [Tally],
    ranked_by: &'a str,
    best: Vec<CellDocument<'a>>,
    worst: Vec<CellDocument<'a>>,
    failures: Vec<CellDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct CellDocument<'a> {
    cell: u64,
    variant: &'a str,
    axes: serde_json::Map<String, serde_json::Value>,
    trials: u64,
    metrics: serde_json::Map<String, serde_json::Value>,
    error: Option<&'a str>,
}

impl SweepOutcome {
    /// Makes an empty result.
    pub fn new(subject: SweepSubject) -> Self {
        let axes = subject.axes.iter().zip(&subject.parts).take(MOST_AXES).enumerate();
        let axes = axes.filter(|(_, (_, parts))| parts.len() > 1);
        let over_axes = axes.map(|(axis, (name, _))| over_axis(&subject, axis, name));
        Self {
            over_axes: over_axes.map(Gathered::new).collect(),
            declared: subject.plots.iter().cloned().map(Gathered::new).collect(),
            has_metric: vec![false; subject.metrics.len()],
            subject,
            cells: 0,
            trials: 0,
            failed: 0,
            best: Vec::new(),
            worst: Vec::new(),
            failures: Vec::new(),
            has_more_variants: false,
            against: Against::default(),
        }
    }

    /// Adds a cell, with its part of each dimension.
    pub fn add(&mut self, cell: &SweepCell, parts: &[Option<usize>]) {
        self.cells += 1;
        self.trials += cell.trials;
        for (has, metric) in self.has_metric.iter_mut().zip(&cell.metrics) {
            *has |= metric.is_some();
        }
        if cell.failed > 0 {
            self.failed += 1;
            if self.failures.len() < FAILURES {
                self.failures.push(cell.clone());
            }
        }
        self.has_more_variants |= parts.last().is_some_and(Option::is_none);
        let plots = self.declared.iter_mut().chain(&mut self.over_axes);
        plots.for_each(|plot| plot.add(cell, parts));
        let (point, by) = (self.point(cell).join(", "), self.subject.ranked_by);
        let metric = self.ranking().0.to_owned();
        self.against.add(cell, by, &metric, point);
        let smallest = self.subject.best == Extreme::Smallest;
        keep(&mut self.best, cell, by, smallest);
        keep(&mut self.worst, cell, by, !smallest);
    }

    fn rank(&self, cell: &SweepCell) -> Option<f64> {
        mean_of(cell, self.subject.ranked_by)
    }

    /// Whether all cells were added.
    pub fn is_complete(&self) -> bool {
        self.cells >= self.subject.cells
    }

    /// Returns the metrics that the user named and no cell has: misspelt, or not of this scenario.
    pub fn unknown_metrics(&self) -> Vec<&str> {
        let named = self.subject.metrics.iter().zip(&self.has_metric);
        let asked = named.zip(&self.subject.requested).filter(|(_, asked)| **asked);
        asked.filter(|((_, has), _)| !**has).map(|((name, _), _)| name.as_str()).collect()
    }

    /// Returns the numbers of cells, trials and failures in words.
    pub fn sentence(&self) -> String {
        let (cells, trials) = (thousands(self.cells), thousands(self.trials));
        let of = if self.is_complete() {
            String::new()
        } else {
            format!(" of {}", thousands(self.subject.cells))
        };
        let failed = match self.failed {
            0 => String::new(),
            some => format!(", {} of the cells failed", thousands(some)),
        };
        let (cell, trial) = (plural("cell", self.subject.cells), plural("trial", self.trials));
        format!("{cells}{of} {cell}, {trials} {trial}{failed}")
    }

    /// Returns how each variant does against the first, the best and the worst cell, and, for cells of
    /// one trial, how many show how sure that is. Empty with fewer than two cells that have the ranking metric.
    pub(crate) fn result(&self) -> Vec<String> {
        let ranked = self.best.first().zip(self.worst.first());
        let Some((best, worst)) = ranked.filter(|(best, worst)| best.cell != worst.cell) else {
            return Vec::new();
        };
        let (metric, best_word) = self.ranking();
        let worst_word = if best_word == "smallest" { "largest" } else { "smallest" };
        let unit = unit(metric);
        let words = |cell: &SweepCell| {
            let value = self.rank(cell).map_or("-".to_owned(), significant);
            format!("{} ({})", [&value, unit].join(" ").trim_end(), self.place(cell).join(", "))
        };
        let (best_words, worst_words) = (words(best), words(worst));
        let mut lines = self.against.sentences(metric);
        lines.push(format!(
            "The {best_word} {metric} is {best_words}, the {worst_word} {worst_words}."
        ));
        let few = if self.trials <= self.cells {
            "One trial each"
        } else {
            "Fewer than five trials each"
        };
        if self.trials <= self.cells || self.against.has_few_trials() {
            lines.push(format!("{few}: `repeats = {REPEATS}` in the file shows how sure this is."));
        }
        if self.against.has_ranges() {
            let rule = "Lower and higher are values whose ranges over the trials are apart.";
            lines.push(rule.to_owned());
        }
        lines.iter().map(|line| one_line(line)).collect()
    }

    /// Returns the values of a cell's axes and its variant: `path.up = 4mbit`, `codel`.
    fn place(&self, cell: &SweepCell) -> Vec<String> {
        self.point(cell).into_iter().chain([cell.variant.clone()]).collect()
    }

    fn point(&self, cell: &SweepCell) -> Vec<String> {
        let axes = self.subject.axes.iter().zip(&cell.values);
        axes.map(|(name, value)| format!("{name} = {}", value.text)).collect()
    }

    /// Returns the name of the ranking metric, and the word for its best end.
    fn ranking(&self) -> (&str, &'static str) {
        let name = self.subject.metrics.get(self.subject.ranked_by).map_or("", String::as_str);
        let word = match self.subject.best {
            Extreme::Smallest => "smallest",
            Extreme::Largest => "largest",
        };
        (name, word)
    }

    /// Returns the best, worst and failed cells for a terminal.
    pub fn table(&self) -> String {
        let (metric, word) = self.ranking();
        let counts = one_line(&self.sentence());
        let lines = self.result().into_iter().chain([counts]);
        let lines: Vec<String> = lines.flat_map(|line| wrap(&line, COLUMNS)).collect();
        let mut text = lines.join("\n") + "\n";
        for (title, cells) in [
            (format!("best by {metric}, {word} first"), &self.best),
            (format!("worst by {metric}"), &self.worst),
        ] {
            // With few cells the second list would be the first one backwards.
            let is_needed = title.starts_with("best") || self.cells > LISTED as u64;
            if is_needed && !cells.is_empty() {
                let mut rows = vec![Row::Title(title), Row::Cells(self.head())];
                rows.extend(cells.iter().map(|cell| Row::Cells(self.line(cell))));
                text = format!("{text}\n{}", render(&rows));
            }
        }
        if !self.failures.is_empty() {
            let mut rows = vec![Row::Title("failed".to_owned())];
            rows.extend(self.failures.iter().map(|cell| Row::Note(self.failure(cell))));
            text = format!("{text}\n{}", render(&rows));
        }
        text
    }

    /// Formats a failed cell: `cell 7, path.up = 4mbit, codel: ERROR`.
    pub(crate) fn failure(&self, cell: &SweepCell) -> String {
        let error = cell.error.as_deref().unwrap_or_default();
        one_line(&format!("cell {}, {}: {error}", cell.cell, self.place(cell).join(", ")))
    }

    /// Returns the positions of the ranking metric and of some others.
    fn shown_metrics(&self) -> Vec<usize> {
        let ranked = self.subject.ranked_by;
        let others = (0..self.subject.metrics.len()).filter(|metric| *metric != ranked);
        let others = others.filter(|metric| self.has_metric[*metric]).take(MORE_METRICS);
        std::iter::once(ranked).chain(others).collect()
    }

    pub(crate) fn head(&self) -> Vec<String> {
        let metrics = self.shown_metrics();
        let metrics = metrics.iter().filter_map(|metric| self.subject.metrics.get(*metric));
        let own = ["variant", "trials"].map(str::to_owned);
        ["cell".to_owned()]
            .into_iter()
            .chain(self.subject.axes.iter().cloned())
            .chain(own)
            .chain(metrics.cloned())
            .collect()
    }

    pub(crate) fn line(&self, cell: &SweepCell) -> Vec<String> {
        let short = |text: &str| {
            let text = one_line(text);
            match text.char_indices().nth(WIDEST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        };
        let mut line = vec![cell.cell.to_string()];
        line.extend(cell.values.iter().map(|value| short(&value.text)));
        line.extend([short(&cell.variant), cell.trials.to_string()]);
        for (place, metric) in self.shown_metrics().into_iter().enumerate() {
            let interval = cell.metrics.get(metric).and_then(Option::as_ref);
            line.push(interval.map_or("-".to_owned(), |it| told(it, place == 0)));
        }
        line
    }

    pub(crate) fn worst(&self) -> &[SweepCell] {
        if self.cells > LISTED as u64 { &self.worst } else { &[] }
    }

    pub(crate) fn failures(&self) -> (&[SweepCell], u64) {
        (&self.failures, self.failed)
    }

    pub fn to_json(&self, directory: &std::path::Path) -> serde_json::Result<String> {
        let document = Document {
            title: &self.subject.title,
            scenario: &self.subject.scenario,
            directory: directory.display().to_string(),
            complete: self.is_complete(),
            cells: self.cells,
            trials: self.trials,
            failed_cells: self.failed,
            compared: &self.against.variants,
            ranked_by: self.ranking().0,
            best: self.best.iter().map(|cell| self.document(cell)).collect(),
            worst: self.worst.iter().map(|cell| self.document(cell)).collect(),
            failures: self.failures.iter().map(|cell| self.document(cell)).collect(),
        };
        serde_json::to_string_pretty(&document)
    }

    fn document<'a>(&'a self, cell: &'a SweepCell) -> CellDocument<'a> {
        let axes = self.subject.axes.iter().zip(&cell.values);
        let number = |interval: &Option<Interval>| {
            serde_json::json!(interval.map(|it| {
                serde_json::json!({ "mean": it.mean, "low": it.low, "high": it.high })
            }))
        };
        let metrics = self.subject.metrics.iter().zip(&cell.metrics);
        CellDocument {
            cell: cell.cell,
            variant: &cell.variant,
            axes: axes.map(|(name, value)| (name.clone(), value.text.clone().into())).collect(),
            trials: cell.trials,
            metrics: metrics.map(|(name, value)| (name.clone(), number(value))).collect(),
            error: cell.error.as_deref(),
        }
    }

    /// Draws the plots that the sweep declares, and those over each axis, that have values.
    pub(crate) fn plots(&self) -> (Vec<Plot>, Vec<Plot>) {
        let draw = |gathered: &[Gathered], name: &str| {
            let plots = gathered.iter().enumerate().filter_map(|(number, plot)| {
                let name = format!("{name}-{number}");
                plot.draw(&name, &self.subject.parts, self.has_more_variants)
            });
            plots.collect()
        };
        (draw(&self.declared, "picture"), draw(&self.over_axes, "axis"))
    }
}

/// Returns the plot of the ranking metric over an axis, with a line for each variant.
fn over_axis(subject: &SweepSubject, axis: usize, name: &str) -> SweepPlot {
    let metric = subject.metrics.get(subject.ranked_by).map_or("", String::as_str);
    let picture = PlotRecord {
        kind: PlotKind::Sweep,
        title: format!("{metric} over {name}"),
        says: [metric, unit(metric)].join(", ").trim_end_matches(", ").to_owned(),
        x_says: name.to_owned(),
        ..PlotRecord::default()
    };
    let (line, x, metric) = (Some(subject.axes.len()), Some(axis), subject.ranked_by);
    SweepPlot { picture, line, x, metric, x_metric: None, only: Vec::new() }
}

/// Returns the unit of a metric; empty for one of an application.
pub(crate) fn unit(metric: &str) -> &'static str {
    if metric.contains('/') { "" } else { usual_unit(metric) }
}

/// Adds an s to a noun unless the count is 1.
fn plural(noun: &str, count: u64) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// Inserts a cell into a ranking of at most [`LISTED`], after equal ones.
fn keep(kept: &mut Vec<SweepCell>, cell: &SweepCell, by: usize, smallest: bool) {
    let Some(value) = mean_of(cell, by) else { return };
    let is_before = |other: &SweepCell| match mean_of(other, by) {
        Some(other) if smallest => other <= value,
        Some(other) => other >= value,
        None => true,
    };
    let place = kept.partition_point(is_before);
    if place < LISTED {
        kept.insert(place, cell.clone());
        kept.truncate(LISTED);
    }
}

/// Formats a mean, with half of its interval if `with_half`.
fn told(interval: &Interval, with_half: bool) -> String {
    let half = interval.low.zip(interval.high).map(|(low, high)| (high - low) / 2.0);
    match half.filter(|_| with_half) {
        Some(half) => format!("{} ±{}", significant(interval.mean), significant(half)),
        None => significant(interval.mean),
    }
}
