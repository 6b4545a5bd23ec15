//! A series of probes in all cohorts.

use underload_aqm::rng::Rng;

use super::compare::compare;
use super::line::{LOST_MS, Lines, SeriesRows};
use super::strata::stratified;
use crate::CONFIDENCE;
use crate::schema::{CohortSeries, Comparison, QuantileEstimate, SeriesStudy, Spread};
use crate::stats::{Ecdf, mean_interval, nearest_rank};

/// Width of the bars of a histogram, ms, as in Comcast 2021, Figures 5 and 6.
pub const BIN_MS: f64 = 15.0;
/// Bars of a histogram; larger values are counted together.
const BINS: usize = 100;
/// Maximum number of points of a distribution function.
const CURVE_POINTS: usize = 400;
/// Quantiles of all round trips.
const SHARES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
/// Minimum number of devices for quartiles of their medians.
const DEVICES_LEAST: usize = 8;

/// Returns `None` if no line has the series.
pub(super) fn study(lines: &Lines, place: usize, root: &Rng) -> Option<SeriesStudy> {
    let name = lines.series.get(place)?;
    let rows = |cohort| lines.of_series(cohort, place).filter(|rows| !rows.means.is_empty());
    let summary = |cohort: usize| {
        let mut rng = root.child(&format!("lines of {place}, {cohort}"));
        Some(rows(cohort)?.summary(&lines.cohorts[cohort], &mut rng))
    };
    let cohorts: Vec<CohortSeries> = (0..lines.cohorts.len()).filter_map(summary).collect();
    if cohorts.is_empty() {
        return None;
    }
    let compared = |cohort: usize, reference: usize| {
        let own = rows(cohort).filter(|_| cohort != reference)?;
        let against = |of: fn(&SeriesRows) -> &[f64]| {
            compare(of(own), lines.of_series(reference, place).map_or(&[][..], of))
        };
        Some(Comparison {
            cohort: lines.cohorts[cohort].clone(),
            against: lines.cohorts[reference].clone(),
            p99: against(|rows| &rows.p99s),
            mean: against(|rows| &rows.means),
            maximum: against(|rows| &rows.maxima),
            above_idle: against(|rows| &rows.above_idle),
        })
    };
    let reference = lines.reference.filter(|reference| *reference < lines.cohorts.len());
    let comparisons = reference.into_iter().flat_map(|reference| {
        (0..lines.cohorts.len()).filter_map(move |cohort| compared(cohort, reference))
    });
    let comparisons = comparisons.collect();
    Some(SeriesStudy {
        step: name.step.clone(),
        load: name.load.to_owned(),
        dscp: name.dscp,
        is_inside: name.is_inside,
        cohorts,
        comparisons,
        stratified: stratified(lines, place),
    })
}

impl SeriesRows {
    fn summary(&self, cohort: &str, rng: &mut Rng) -> CohortSeries {
        CohortSeries {
            cohort: cohort.to_owned(),
            devices: self.means.len() as u64,
            tests: self.tests,
            sent: self.sent,
            lost: self.lost,
            mean: spread(&self.means),
            maximum: spread(&self.maxima),
            above_idle: mean_interval(&self.above_idle, CONFIDENCE),
            quantiles: self.quantiles(rng),
            device_medians: self.device_medians(),
        }
    }

    /// Returns the quartiles of the devices' medians.
    fn device_medians(&self) -> Option<(f64, f64)> {
        if self.medians.len() < DEVICES_LEAST {
            return None;
        }
        let mut medians = self.medians.clone();
        medians.sort_by(f64::total_cmp);
        let quartile = |share| nearest_rank(&medians, share).filter(|ms| *ms < LOST_MS);
        quartile(0.25).zip(quartile(0.75))
    }

    fn quantiles(&self, rng: &mut Rng) -> Vec<QuantileEstimate> {
        let ms = |us: Option<f64>| us.map(|us| us / 1e3);
        let found = self.pooled.quantiles(&SHARES, CONFIDENCE, rng);
        let estimates = SHARES.into_iter().zip(found).map(|(share, found)| QuantileEstimate {
            share,
            ms: ms(found.estimate),
            low: ms(found.low),
            high: ms(found.high),
        });
        estimates.collect()
    }
}

fn spread(values: &[f64]) -> Spread {
    let Some(ecdf) = Ecdf::new(values.iter().copied()) else { return Spread::default() };
    let sorted = ecdf.sorted();
    let mut histogram = vec![0_u64; BINS];
    let mut beyond = 0;
    for value in sorted {
        match histogram.get_mut((value / BIN_MS).max(0.0) as usize) {
            Some(count) => *count += 1,
            None => beyond += 1,
        }
    }
    let percent = |count: u64| count as f64 * 100.0 / sorted.len() as f64;
    Spread {
        median: nearest_rank(sorted, 0.5).unwrap_or_default(),
        average: mean_interval(values, CONFIDENCE),
        curve: curve(&ecdf),
        half_height: ecdf.band_half_height(CONFIDENCE),
        histogram: histogram.into_iter().map(percent).collect(),
        beyond: percent(beyond),
    }
}

/// Returns the steps of the distribution function; if there are many, only steps at evenly spaced
/// shares.
fn curve(ecdf: &Ecdf) -> Vec<(f64, f64)> {
    let sorted = ecdf.sorted();
    if sorted.len() <= CURVE_POINTS {
        return ecdf.steps();
    }
    let point = |number: usize| {
        let rank = (number * sorted.len()).div_ceil(CURVE_POINTS);
        (sorted[rank - 1], rank as f64 / sorted.len() as f64)
    };
    let least = (sorted[0], 1.0 / sorted.len() as f64);
    std::iter::once(least).chain((1..=CURVE_POINTS).map(point)).collect()
}
