//! Compares the cohorts of a plan, line by line.
//!
//! A line counts as one value, however often it was measured: its tests are similar, and treated as
//! independent they would show differences that do not exist. Means have intervals over lines;
//! quantiles of all round trips have intervals by resampling lines.

mod change;
mod classes;
mod compare;
mod health;
mod line;
mod outcomes;
mod panel;
mod series;
mod strata;

use underload_aqm::rng::Rng;

use crate::schema::{CohortCount, CohortStudy};

pub use compare::{compare, compare_groups};
use line::IDLE;
pub use line::{ClassDays, Line, LineSeries, Lines, Rows, SeriesName};
pub use panel::{Effect, LINES_LEAST, LineDay, Panel};
pub use series::BIN_MS;

/// Compares the cohorts. Equal lines and seed produce an equal study.
pub fn study(lines: &Lines, seed: u64) -> CohortStudy {
    let root = Rng::new(seed).child("study");
    let reference = lines.reference.and_then(|place| lines.cohorts.get(place));
    let cohorts = lines.cohorts.iter().enumerate().map(|(place, name)| {
        let count = |of: fn(&line::CohortRows) -> u64| lines.of_cohort(place).map_or(0, of);
        CohortCount {
            name: name.clone(),
            devices: count(|own| own.devices),
            silent: count(|own| own.silent),
            tests: count(|own| own.tests),
        }
    });
    let cohorts: Vec<CohortCount> = cohorts.collect();
    let all = (0..cohorts.len()).filter_map(|place| lines.of_cohort(place));
    let mut study = CohortStudy {
        unhealthy: health::check(lines, &cohorts),
        reference: reference.cloned().unwrap_or_default(),
        results: all.map(|own| line::sum(&own.outcomes)).sum(),
        cohorts,
        change: change::study(lines),
        series: (0..lines.series.len())
            .filter_map(|place| series::study(lines, place, &root))
            .collect(),
        outcomes: outcomes::study(lines),
        classes: classes::study(lines),
        uses: classes::uses(lines),
        qualities: classes::qualities(lines),
        ..CohortStudy::default()
    };
    if !study.unhealthy.is_empty() {
        for series in &mut study.series {
            series.comparisons.clear();
            series.stratified.clear();
        }
        study.qualities.iter_mut().for_each(|row| row.gain = None);
    }
    study
}

impl CohortStudy {
    /// Returns the main series: an upload, else a download, with the lowest marking.
    pub fn headline(&self) -> Option<&crate::schema::SeriesStudy> {
        self.series.iter().min_by_key(|series| (load_rank(&series.load), series.dscp))
    }
}

/// Orders loads by their importance for a headline.
fn load_rank(load: &str) -> u8 {
    match load {
        "upload" => 0,
        IDLE => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
