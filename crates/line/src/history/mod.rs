//! The stored runs of a line over weeks.
//!
//! - [`collect()`]: reads run directories and returns numbers over time.
//! - [`kept`]: the numbers that remain of a run whose directory was removed.
//! - [`sentence`]: sentences about them.

mod collect;
pub mod kept;
mod sentences;

use serde_json::{Value, json};
use underload_record::history::{Followed, Trend, Windows};

pub use collect::{Collected, Run, Step, collect};
pub use sentences::sentence;

/// The runs of a line, compared.
pub struct History {
    pub collected: Collected,
    /// Every number of every step over time.
    pub trends: Vec<Trend>,
    /// Sentences about the number of [`History::new`].
    pub sentences: Vec<String>,
}

impl History {
    /// Compares the recent runs with those of the baseline. The sentences are about `metric`.
    pub fn new(collected: Collected, metric: Followed, windows: Windows) -> Self {
        let trends = collected.trends(windows);
        let sentences = sentences::sentences(&trends, metric, collected.runs.len());
        Self { collected, trends, sentences }
    }

    /// Returns the document of `underload history --json`.
    pub fn document(&self) -> Value {
        json!({
            "version": 1,
            "sentences": self.sentences,
            "trends": self.trends,
            "left_out": self.collected.skipped,
        })
    }
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
