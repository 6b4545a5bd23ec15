//! Compares the cohorts of a plan, line by line.
//!
//! A line counts as one value, however often it was measured: its tests are similar, and treated as
//! independent they would show differences that do not exist. Means have intervals over lines;
//! quantiles of all round trips have intervals by resampling lines.

mod classes;
mod compare;
mod health;
mod line;
mod outcomes;
mod series;
mod strata;

use underload_aqm::rng::Rng;

use crate::schema::{CohortCount, CohortStudy};

pub use compare::{compare, compare_groups};
use line::IDLE;
pub use line::{ClassDays, Line, LineSeries, Lines, SeriesName};
pub use series::BIN_MS;

/// Compares the cohorts. Equal lines and seed produce an equal study.
pub fn study(lines: &Lines, seed: u64) -> CohortStudy {
    let root = Rng::new(seed).child("study");
    let reference = lines.reference.and_then(|place| lines.cohorts.get(place));
    let cohorts = lines.cohorts.iter().enumerate().map(|(place, name)| {
        let own = lines.of_cohort(place).filter(|line| line.tests > 0);
        let (devices, tests) =
            own.fold((0, 0), |(devices, tests), line| (devices + 1, tests + u64::from(line.tests)));
        let silent = lines.of_cohort(place).filter(|line| line.is_silent()).count() as u64;
        CohortCount { name: name.clone(), devices, silent, tests }
    });
    let cohorts: Vec<CohortCount> = cohorts.collect();
    let mut study = CohortStudy {
        unhealthy: health::check(lines, &cohorts),
        reference: reference.cloned().unwrap_or_default(),
        results: lines.lines.iter().flat_map(|line| &line.outcomes).map(|n| u64::from(*n)).sum(),
        sampled: 1.0,
        cohorts,
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
