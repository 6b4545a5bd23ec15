//! The stored runs of a line over weeks.
//!
//! - [`collect()`]: reads run directories and returns numbers over time.
//! - [`prometheus()`]: the newest numbers for a collector.
//! - [`removed`]: the numbers that remain of a run whose directory was removed.
//! - [`marks`]: dated remarks such as "new router".

mod collect;
mod lines;
pub mod marks;
mod prometheus;
pub mod removed;

use serde_json::{Value, json};
use underload_record::history::{Change, Followed, Labelled, Mark, Marked, Trend, Windows};
use underload_report::history_sentences;

pub use collect::{Collected, HistoryError, Run, Step, collect, point};
pub use prometheus::prometheus;

/// The runs of a line, compared.
pub struct History {
    pub collected: Collected,
    /// Every number of every step over time.
    pub trends: Vec<Trend>,
    /// The numbers around each mark.
    pub marks: Vec<Marked>,
    pub labels: Vec<Labelled>,
    /// Sentences about the number of [`History::new`].
    pub sentences: Vec<String>,
}

impl History {
    /// Compares the recent runs with the baseline. The sentences are about `metric`.
    pub fn new(collected: Collected, metric: Followed, windows: Windows) -> Self {
        let trends = collected.trends(windows);
        let marks = marked(&trends, &collected.marks);
        let labels = collected.labelled();
        let sentences = history_sentences((&trends, &marks, &labels), metric, collected.runs.len());
        Self { collected, trends, marks, labels, sentences }
    }

    /// Returns the document of `underload history --json`.
    pub fn document(&self) -> Value {
        let run = |run: &Run| json!({ "at_s": run.at_s, "label": run.label, "grade": run.grade });
        json!({
            "version": 1,
            "sentences": self.sentences,
            "runs": self.collected.runs.iter().map(run).collect::<Vec<Value>>(),
            "trends": self.trends,
            "marks": self.marks,
            "labels": self.labels,
            "left_out": self.collected.skipped,
        })
    }
}

/// Compares every number on both sides of each mark.
fn marked(trends: &[Trend], marks: &[Mark]) -> Vec<Marked> {
    let around: Vec<Vec<Option<Change>>> = trends.iter().map(|it| it.around(marks)).collect();
    let of_mark = |(place, mark): (usize, &Mark)| {
        let changes = around.iter().filter_map(|changes| changes.get(place)?.clone());
        Marked { mark: mark.clone(), changes: changes.collect() }
    };
    marks.iter().enumerate().map(of_mark).collect()
}

/// Parses the name of a number that is followed over time.
///
/// # Errors
/// Returns the accepted names.
pub fn followed(text: &str) -> Result<Followed, String> {
    let known = || Followed::ALL.map(Followed::name).join(", ");
    let named = Followed::ALL.into_iter().find(|followed| followed.name() == text);
    named.ok_or_else(|| format!("there are {}", known()))
}
