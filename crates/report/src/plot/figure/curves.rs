//! Families of cumulative distributions: over trials, over samples, or through known quantiles.

use underload_record::schema::{Expectation, Phase, PlotAxis, Quantile, names_variant};
use underload_record::stats::Ecdf;
use underload_record::{metric_of, metric_over_trials};

use super::grid::{position, variants};
use super::picture::Picture;
use crate::plot::Plot;
use crate::plot::canvas::Ink;
use crate::plot::chart::{self, Panel, Published};
use crate::plot::distribution::staircase;
use crate::plot::scale::Scale;
use crate::subject::Subject;
use underload_record::comparison::statistic;

const HEIGHT: u32 = 290;
/// Quantiles through which a curve is drawn if single values are not stored.
const KNOWN: [Quantile; 6] =
    [Quantile::P50, Quantile::P90, Quantile::P95, Quantile::P99, Quantile::P999, Quantile::Max];

struct Family {
    lines: Vec<String>,
    /// Line, and the steps of its distribution function.
    curves: Vec<(usize, Vec<(f64, f64)>)>,
    published: Vec<(f64, Published)>,
    of: Of,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Trials,
    Samples,
    Quantiles,
}

pub(super) fn draw(picture: &Picture<'_>, subjects: &[Subject<'_>]) -> Option<Plot> {
    let plot = picture.plot;
    let family = family(picture, subjects);
    let values = family.curves.iter().flat_map(|(_, curve)| curve.iter().map(|(value, _)| *value));
    let published = family.published.iter().flat_map(|(_, published)| published.ends());
    let x = Scale::over(&plot.says, (plot, PlotAxis::X), values.chain(published));
    if family.curves.iter().all(|(_, curve)| curve.is_empty()) {
        return None;
    }
    let share = match family.of {
        Of::Trials => "share of trials",
        Of::Samples => "share of samples",
        Of::Quantiles => "share of packets",
    };
    let mut caption = match family.of {
        Of::Trials => "One value per valid trial.".to_owned(),
        Of::Samples => "All samples, valid trials pooled.".to_owned(),
        Of::Quantiles => "Drawn through the 50th, 90th, 95th, 99th and 99.9th percentile and the \
                          largest value (rings), the only numbers that are stored."
            .to_owned(),
    };
    if !family.published.is_empty() {
        caption += " Diamonds and brackets: published.";
    }
    let named = family.lines.iter().enumerate().filter(|(_, name)| !name.is_empty());
    let names: Vec<(Ink, String)> =
        named.map(|(line, name)| (Ink::Variant(line), name.clone())).collect();
    let y = Scale::linear(share, 0.0..1.0);
    Some(chart::with_legend(&picture.name, &plot.title, caption, HEIGHT, &names, |canvas, rows| {
        let mut panel = Panel::new(canvas, (rows.0, rows.1 - 16), &x, &y);
        panel.describe(&[]);
        for (line, steps) in &family.curves {
            if family.of == Of::Quantiles {
                panel.curve(steps, Ink::Variant(*line), 2.0);
                panel.rings(steps, Ink::Solid(*line));
            } else {
                // Corners too close to be visible are found along the axis.
                let along: Vec<(f64, f64)> =
                    steps.iter().map(|(value, share)| (x.share(*value), *share)).collect();
                let corners = staircase(&along, 1.0);
                let stairs: Vec<(f64, f64)> =
                    corners.into_iter().map(|(at, share)| (x.value(at), share)).collect();
                panel.curve(&stairs, Ink::Variant(*line), 2.0);
            }
        }
        for (share, published) in &family.published {
            panel.published_across(*share, *published);
        }
    }))
}

fn family(picture: &Picture<'_>, subjects: &[Subject<'_>]) -> Family {
    let (plot, record) = (picture.plot, &picture.run.record);
    let variants = variants(picture.run);
    let (stem, quantile) = statistic(&plot.metric);
    let phase = stem.strip_suffix(".rtt").and_then(Phase::from_name);
    let of = match (quantile, phase) {
        (Some(_), _) => Of::Trials,
        (None, Some(_)) => Of::Samples,
        (None, None) => Of::Quantiles,
    };
    let mut family = Family { lines: Vec::new(), curves: Vec::new(), published: Vec::new(), of };
    for point in plot.points(&variants) {
        // Each point of this kind of picture is one curve, whatever replaces `{x}`.
        let name = [point.line.as_str(), point.x.as_str()];
        let name: Vec<&str> = name.into_iter().filter(|part| !part.is_empty()).collect();
        let line = position(&mut family.lines, &name.join(", "));
        let named: Vec<&str> = variants
            .iter()
            .copied()
            .filter(|variant| names_variant(&point.variants, variant))
            .collect();
        let steps = match of {
            Of::Trials => {
                let values = named
                    .iter()
                    .flat_map(|variant| metric_over_trials(record, variant, &plot.metric))
                    .flatten()
                    .filter(|value| value.is_finite());
                Ecdf::new(values).map_or(Vec::new(), |ecdf| ecdf.steps())
            }
            Of::Samples => {
                let of_variant =
                    |subject: &&Subject<'_>| named.contains(&subject.variant.name.as_str());
                let phase = phase.unwrap_or_default();
                let values =
                    subjects.iter().filter(of_variant).flat_map(|it| it.round_trips(phase));
                let ms = values.map(|ns| ns as f64 / 1e6);
                Ecdf::new(ms).map_or(Vec::new(), |ecdf| ecdf.steps())
            }
            Of::Quantiles => through_known(picture, &named),
        };
        family.curves.push((line, steps));
        family.published.extend(published(picture, &point.variants));
    }
    family
}

/// Appends a statistic to a metric such as `load.queuing.down` or `download/delivery`.
fn with_statistic(metric: &str, quantile: Quantile) -> String {
    let joint = if metric.contains('/') && !metric.contains('.') { '_' } else { '.' };
    format!("{metric}{joint}{}", quantile.name())
}

fn share_of(quantile: Quantile) -> f64 {
    match quantile {
        Quantile::P50 => 0.5,
        Quantile::P90 => 0.9,
        Quantile::P95 => 0.95,
        Quantile::P99 => 0.99,
        Quantile::P999 => 0.999,
        _ => 1.0,
    }
}

fn through_known(picture: &Picture<'_>, named: &[&str]) -> Vec<(f64, f64)> {
    let Some(variant) = named.first() else { return Vec::new() };
    let value = |quantile: Quantile| {
        let name = with_statistic(&picture.plot.metric, quantile);
        metric_of(&picture.run.record, variant, &name).map(|value| (value, share_of(quantile)))
    };
    KNOWN.into_iter().filter_map(value).collect()
}

/// Returns the published quantiles of these variants' distribution, each with its share, and the
/// published shares, each with the range that it is of.
fn published(picture: &Picture<'_>, variants: &str) -> Vec<(f64, Published)> {
    let within = format!("{}.within.", picture.plot.metric);
    let range = |it: &Expectation| {
        let (low, high) = it.metric.strip_prefix(&within)?.split_once('-')?;
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        let range = Expectation { value: None, low: Some(low), high: Some(high), ..it.clone() };
        Some((it.value.or(it.low)? / 100.0, Published::new(&range, false)))
    };
    let shares = picture.run.record.expectations.iter().filter(|it| it.variant == variants);
    let mut published: Vec<_> = shares.filter_map(range).collect();
    for quantile in KNOWN {
        let name = with_statistic(&picture.plot.metric, quantile);
        let expectations = picture.run.record.expectations.iter();
        let own = expectations.filter(|it| it.metric == name && it.variant == variants);
        let plain = own.filter(|it| it.relative_to.is_none() && it.curve.is_none());
        published.extend(plain.map(|it| (share_of(quantile), Published::new(it, false))));
    }
    published
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{PlotRecord, RunRecord};
    use underload_store::RunData;

    use super::*;

    #[test]
    fn a_published_share_is_the_range_at_its_height() {
        let share = |value, low| Expectation {
            metric: "load.rtt.max.within.15-30".to_owned(),
            variant: "aqm".to_owned(),
            value,
            low,
            ..Expectation::default()
        };
        let expectations = vec![share(Some(77.0), Some(69.0)), share(None, Some(90.0))];
        let record = RunRecord { expectations, ..RunRecord::default() };
        let run = RunData { record, samples: vec![], series: vec![], left_out: vec![] };
        let plot = PlotRecord { metric: "load.rtt.max".to_owned(), ..PlotRecord::default() };
        let picture = Picture { name: "plot".to_owned(), plot: &plot, run: &run };
        let drawn = published(&picture, "aqm");
        let shares: Vec<f64> = drawn.iter().map(|(share, _)| *share).collect();
        assert_eq!(shares, [0.77, 0.9]);
        assert!(drawn.iter().all(|(_, range)| range.ends().eq([15.0, 30.0])));
        assert!(published(&picture, "buffer").is_empty());
        let mean = PlotRecord { metric: "load.rtt.mean".to_owned(), ..plot.clone() };
        assert!(published(&Picture { plot: &mean, ..picture }, "aqm").is_empty());
    }
}
