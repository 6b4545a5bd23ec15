//! Distributions over devices: Figures 3 to 6 of Comcast 2021, by cohort.

use underload_record::cohorts::BIN_MS;
use underload_record::schema::{CohortSeries, CohortStudy, SeriesStudy, Spread};

use super::canvas::Ink;
use super::chart::{self, Axis};
use super::distribution::{band, staircase};
use super::{Plot, PlotError};
use crate::cohorts::{cohort_name, load_words, series_name};
use crate::words::thousands;

/// Cohorts that are drawn; more would cover one another.
const MOST_COHORTS: usize = 8;
/// Bars that fit side by side.
const MOST_BARS: usize = 40;
/// Bars at least.
const LEAST_BARS: usize = 4;

/// Both distribution functions and a histogram of each cohort, for every series, in their order.
pub(crate) fn plots(study: &CohortStudy) -> Result<Vec<(usize, Vec<Plot>)>, PlotError> {
    let of_series = |(number, series): (usize, &SeriesStudy)| {
        let mean = |own: &CohortSeries| own.mean.clone();
        let maximum = |own: &CohortSeries| own.maximum.clone();
        let mut plots =
            vec![cdf(series, number, "mean", mean)?, cdf(series, number, "maximum", maximum)?];
        let bars = series.cohorts.iter().map(|own| bars_of(&own.mean)).max().unwrap_or(LEAST_BARS);
        let highest = series.cohorts.iter().flat_map(|own| &own.mean.histogram);
        let highest = highest.copied().fold(0.0, f64::max);
        for (place, own) in series.cohorts.iter().take(MOST_COHORTS).enumerate() {
            plots.push(histogram(series, number, (place, own), bars, highest)?);
        }
        Ok((number, plots))
    };
    study.series.iter().enumerate().map(of_series).collect()
}

fn cdf(
    series: &SeriesStudy,
    number: usize,
    words: &str,
    of: impl Fn(&CohortSeries) -> Spread,
) -> Result<Plot, PlotError> {
    let cohorts: Vec<(&CohortSeries, Spread)> =
        series.cohorts.iter().take(MOST_COHORTS).map(|own| (own, of(own))).collect();
    let longest = cohorts.iter().filter_map(|(_, spread)| spread.curve.last().map(|last| last.0));
    let longest = longest.fold(0.0, f64::max);
    let names: Vec<(Ink, String)> = cohorts
        .iter()
        .enumerate()
        .map(|(place, (own, _))| {
            let tests = thousands(own.tests);
            let devices = thousands(own.devices);
            let name = cohort_name(&own.cohort);
            (Ink::Arm(place), format!("{name}: {devices} devices, {tests} tests"))
        })
        .collect();
    let mut legend_height = 0;
    let measured = chart::legend(None, &names).map(|height| legend_height = height);
    let height = legend_height + 280;
    let title = format!("{}: {words} latency {}", series_name(series), load_words(series));
    let caption = format!(
        "One value per device: the mean over its tests of the {words} round trip. Shaded: 95 % \
         band (Dvoretzky-Kiefer-Wolfowitz)."
    );
    chart::plot(&format!("cdf-{words}-{number}"), title, caption, height, |area| {
        measured?;
        chart::legend(Some(area), &names)?;
        let x = Axis { name: "round-trip time, ms", range: 0.0..chart::above(longest) };
        let y = Axis { name: "share of devices", range: 0.0..1.0 };
        let mut panel = chart::panel(area, legend_height, height - 16, &x, &y)?;
        for (place, (_, spread)) in cohorts.iter().enumerate() {
            let points = staircase(&spread.curve, x.range.end);
            chart::surface(&mut panel, band(&points, spread.half_height), Ink::Faint(place))?;
            chart::curve(&mut panel, points, Ink::Arm(place), 2.0)?;
        }
        Ok(())
    })
}

/// Bars up to the one that leaves less than half a percent beyond.
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
) -> Result<Plot, PlotError> {
    let shares = own.mean.histogram.iter().take(bars);
    let beyond = 100.0 - shares.clone().sum::<f64>();
    let beyond =
        if beyond > 0.05 { format!("; {beyond:.1} % beyond the axis") } else { String::new() };
    let caption = format!(
        "Mean round trip of each device {}, 15 ms bins, {} devices with {} tests{beyond}.",
        load_words(series),
        thousands(own.devices),
        thousands(own.tests)
    );
    let title = format!("{}: {}", cohort_name(&own.cohort), series_name(series));
    chart::plot(&format!("histogram-{number}-{place}"), title, caption, 200, |area| {
        let x = Axis { name: "round-trip time, ms", range: 0.0..BIN_MS * bars as f64 };
        let y = Axis { name: "% of devices", range: 0.0..chart::above(highest) };
        let mut panel = chart::panel(area, 0, 184, &x, &y)?;
        for (bar, share) in shares.enumerate().filter(|(_, share)| **share > 0.0) {
            let gap = BIN_MS * 0.06;
            let (from, to) = (BIN_MS * bar as f64 + gap, BIN_MS * (bar + 1) as f64 - gap);
            chart::bar(&mut panel, (from, 0.0), (to, *share), Ink::Arm(place))?;
        }
        Ok(())
    })
}
