//! A series of probes in all cohorts.

use underload_aqm::rng::Rng;

use super::compare::compare;
use super::line::{LOST_MS, Line, Lines};
use super::strata::stratified;
use crate::CONFIDENCE;
use crate::schema::{CohortSeries, Comparison, QuantileEstimate, SeriesStudy, Spread};
use crate::stats::{BinnedClusters, Ecdf, mean_interval, nearest_rank};

/// Width of the bars of a histogram, ms, as in Comcast 2021, Figures 5 and 6.
pub const BIN_MS: f64 = 15.0;
/// Bars of a histogram; larger values are counted together.
const BINS: usize = 100;
/// Maximum number of points of a distribution function.
const CURVE_POINTS: usize = 400;
/// Quantiles of all round trips.
const SHARES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
/// More lines than this are combined at random into this number of clusters, whose sums vary like
/// those of the lines. Resampling then takes as long for a million lines as for a thousand.
const CLUSTERS_MAX: usize = 1_000;
/// Minimum number of devices for quartiles of their medians.
const DEVICES_LEAST: usize = 8;

/// Returns `None` if no line has the series.
pub(super) fn study(lines: &Lines, place: usize, root: &Rng) -> Option<SeriesStudy> {
    let name = lines.series.get(place)?;
    let values: Vec<Values> =
        (0..lines.cohorts.len()).map(|cohort| Values::new(lines, place, cohort)).collect();
    let cohorts: Vec<CohortSeries> = values
        .iter()
        .enumerate()
        .filter(|(_, values)| !values.means.is_empty())
        .map(|(cohort, values)| {
            let mut rng = root.child(&format!("lines of {place}, {cohort}"));
            let quantiles = quantiles(lines, place, cohort, &mut rng);
            values.summary(lines, place, cohort, quantiles)
        })
        .collect();
    if cohorts.is_empty() {
        return None;
    }
    let compared = |(cohort, values): (usize, &Values), reference: usize, against: &Values| {
        (cohort != reference && !values.means.is_empty()).then(|| Comparison {
            cohort: lines.cohorts[cohort].clone(),
            against: lines.cohorts[reference].clone(),
            p99: compare(&values.p99s, &against.p99s),
            mean: compare(&values.means, &against.means),
            maximum: compare(&values.maxima, &against.maxima),
            above_idle: compare(&values.above_idle, &against.above_idle),
        })
    };
    let comparisons = lines.reference.map_or(Vec::new(), |reference| {
        let Some(against) = values.get(reference) else { return Vec::new() };
        let cohorts = values.iter().enumerate();
        cohorts.filter_map(|cohort| compared(cohort, reference, against)).collect()
    });
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

/// Values of the lines of a cohort, ms.
#[derive(Default)]
struct Values {
    p99s: Vec<f64>,
    means: Vec<f64>,
    maxima: Vec<f64>,
    above_idle: Vec<f64>,
}

impl Values {
    fn new(lines: &Lines, place: usize, cohort: usize) -> Self {
        let idle = lines.idle_of(place);
        let mut all = Self::default();
        for line in lines.of_cohort(cohort) {
            let Some(series) = line.series.get(&place) else { continue };
            all.p99s.extend(lines.quantile_ms(series, 0.99));
            all.means.extend(series.mean_ms());
            all.maxima.extend(series.maximum_ms());
            let idle = idle.and_then(|idle| line.series.get(&idle)?.mean_ms());
            all.above_idle.extend(series.mean_ms().zip(idle).map(|(loaded, idle)| loaded - idle));
        }
        all
    }

    fn summary(
        &self,
        lines: &Lines,
        place: usize,
        cohort: usize,
        quantiles: Vec<QuantileEstimate>,
    ) -> CohortSeries {
        let mut summary = CohortSeries {
            cohort: lines.cohorts[cohort].clone(),
            devices: self.means.len() as u64,
            mean: spread(&self.means),
            maximum: spread(&self.maxima),
            above_idle: mean_interval(&self.above_idle, CONFIDENCE),
            quantiles,
            device_medians: device_medians(lines, place, cohort),
            ..CohortSeries::default()
        };
        for series in lines.of_cohort(cohort).filter_map(|line| line.series.get(&place)) {
            summary.tests += u64::from(series.tests);
            summary.sent += series.sent;
            summary.lost += series.lost;
        }
        summary
    }
}

/// Returns the quartiles of the devices' medians.
fn device_medians(lines: &Lines, place: usize, cohort: usize) -> Option<(f64, f64)> {
    let own = lines.of_cohort(cohort).filter_map(|line| line.series.get(&place));
    let mut medians: Vec<f64> = own.filter_map(|own| lines.quantile_ms(own, 0.5)).collect();
    if medians.len() < DEVICES_LEAST {
        return None;
    }
    medians.sort_by(f64::total_cmp);
    let quartile = |share| nearest_rank(&medians, share).filter(|ms| *ms < LOST_MS);
    quartile(0.25).zip(quartile(0.75))
}

fn quantiles(lines: &Lines, place: usize, cohort: usize, rng: &mut Rng) -> Vec<QuantileEstimate> {
    let own: Vec<&Line> =
        lines.of_cohort(cohort).filter(|line| line.series.contains_key(&place)).collect();
    let clusters = own.len().min(CLUSTERS_MAX);
    let mut binned = BinnedClusters::new(lines.bin_ratio, lines.bins, clusters);
    for (number, line) in own.iter().enumerate() {
        let series = &line.series[&place];
        let cluster = number % clusters;
        for (bin, count) in &series.bins {
            binned.add(cluster, usize::from(*bin), u64::from(*count));
        }
        binned.add_beyond(cluster, series.lost);
    }
    let ms = |us: Option<f64>| us.map(|us| us / 1e3);
    let found = binned.quantiles(&SHARES, CONFIDENCE, rng);
    SHARES
        .into_iter()
        .zip(found)
        .map(|(share, found)| QuantileEstimate {
            share,
            ms: ms(found.estimate),
            low: ms(found.low),
            high: ms(found.high),
        })
        .collect()
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
