//! Distributions over devices: Figures 3 to 6 of Comcast 2021, by cohort.

use underload_record::cohorts::BIN_MS;
use underload_record::schema::{CohortSeries, CohortStudy, SeriesStudy, Spread};

use super::Plot;
use super::canvas::Ink;
use super::chart;
use super::distribution::{Bars, Staircase, cdf_plot};
use super::scale::Scale;
use crate::cohorts::{cohort_name, load_words, series_name};
use crate::words::thousands;

/// Maximum number of cohorts in a plot: more would cover one another.
const MOST_COHORTS: usize = 8;
/// Maximum and minimum number of bars of a histogram.
const MOST_BARS: usize = 40;
const LEAST_BARS: usize = 4;

/// Draws, for every series by its number, both distribution functions and a histogram of each
/// cohort.
pub(crate) fn plots(study: &CohortStudy) -> Vec<(usize, Vec<Plot>)> {
    let of_series = |(number, series): (usize, &SeriesStudy)| {
        let mean = |own: &CohortSeries| own.mean.clone();
        let maximum = |own: &CohortSeries| own.maximum.clone();
        let mut plots =
            vec![cdf(series, number, "mean", mean), cdf(series, number, "maximum", maximum)];
        let bars = series.cohorts.iter().map(|own| bars_of(&own.mean)).max().unwrap_or(LEAST_BARS);
        let highest = series.cohorts.iter().flat_map(|own| &own.mean.histogram);
        let highest = highest.copied().fold(0.0, f64::max);
        for (place, own) in series.cohorts.iter().take(MOST_COHORTS).enumerate() {
            plots.push(histogram(series, number, (place, own), bars, highest));
        }
        (number, plots)
    };
    study.series.iter().enumerate().map(of_series).collect()
}

fn cdf(
    series: &SeriesStudy,
    number: usize,
    words: &str,
    of: impl Fn(&CohortSeries) -> Spread,
) -> Plot {
    let staircase = |(position, own): (usize, &CohortSeries)| {
        let Spread { curve, half_height, .. } = of(own);
        let (devices, tests) = (thousands(own.devices), thousands(own.tests));
        let name = format!("{}: {devices} devices, {tests} tests", cohort_name(&own.cohort));
        Staircase { position, name, steps: curve, half_height: Some(half_height) }
    };
    let curves: Vec<Staircase> =
        series.cohorts.iter().take(MOST_COHORTS).enumerate().map(staircase).collect();
    let title = format!("{}: {words} latency {}", series_name(series), load_words(series));
    let caption = format!(
        "One value per device: the mean over its tests of the {words} round trip. Shaded: 95 % \
         band (Dvoretzky-Kiefer-Wolfowitz)."
    );
    cdf_plot(&format!("cdf-{words}-{number}"), &title, caption, "share of devices", &curves)
}

/// Returns the number of bars after which less than half a percent is left.
fn bars_of(spread: &Spread) -> usize {
    let mut left = spread.beyond;
    let beyond = spread.histogram.iter().rev().take_while(|percent| {
        left += **percent;
        left < 0.5
    });
    (spread.histogram.len() - beyond.count()).clamp(LEAST_BARS, MOST_BARS)
}

fn histogram(
    series: &SeriesStudy,
    number: usize,
    (place, own): (usize, &CohortSeries),
    bars: usize,
    highest: f64,
) -> Plot {
    let shares = &own.mean.histogram[..own.mean.histogram.len().min(bars)];
    let beyond = 100.0 - shares.iter().sum::<f64>();
    let beyond =
        if beyond > 0.05 { format!("; {beyond:.1} % beyond the axis") } else { String::new() };
    let caption = format!(
        "Mean round trip of each device {}, 15 ms bins, {} devices with {} tests{beyond}.",
        load_words(series),
        thousands(own.devices),
        thousands(own.tests)
    );
    let (group, step) = (cohort_name(&own.cohort), series_name(series));
    let title = format!("Histogram of mean round trips: {group}, {step}");
    let y = Scale::linear("% of devices", 0.0..chart::above(highest));
    let bars = Bars { start: 0.0, width: BIN_MS, count: bars, ink: Ink::Variant(place) };
    bars.plot(&format!("histogram-{number}-{place}"), title, caption, &y, shares)
}
