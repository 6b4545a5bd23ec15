//! Distributions over trials: Figures 3 to 6 of Comcast 2021. Also used for distributions over
//! devices.

use underload_record::CONFIDENCE;
use underload_record::schema::{Phase, Quantile};
use underload_record::stats::{Ecdf, FixedBins};

use super::Plot;
use super::canvas::Ink;
use super::chart::{self, Panel};
use super::scale::Scale;
use crate::subject::Subject;
use crate::words::{significant, thousands};

/// With fewer trials per variant, a CDF over trials would be a few steps.
const FEW_TRIALS: usize = 10;

/// Maximum number of variants with a histogram: more would not be compared.
pub(crate) const MOST_HISTOGRAMS: usize = 12;

/// Maximum number of bars of a histogram.
const BINS: u64 = 40;

/// Maximum number of curves with bands around them: more bands would cover one another.
const MOST_BANDS: usize = 4;

/// Maximum number of points of a curve: more would not be visible.
const CURVE_POINTS: usize = 400;

/// Draws CDFs of mean and maximum working latency, or with few trials of all round trips.
pub(super) fn cdfs(subjects: &[Subject<'_>]) -> Vec<Plot> {
    let trials = |subject: &Subject<'_>| subject.latencies(Phase::Load).len();
    let most = subjects.iter().map(trials).max().unwrap_or(0);
    if most >= FEW_TRIALS {
        let mean = over_trials(subjects, Quantile::Mean, "cdf-mean", "mean");
        let max = over_trials(subjects, Quantile::Max, "cdf-max", "maximum");
        return mean.into_iter().chain(max).collect();
    }
    let mut plots = Vec::new();
    for (phase, name, words) in
        [(Phase::Load, "cdf-load", "Working latency"), (Phase::Idle, "cdf-idle", "Idle latency")]
    {
        plots.extend(over_samples(subjects, phase, name, words));
    }
    plots
}

fn over_trials(
    subjects: &[Subject<'_>],
    quantile: Quantile,
    name: &str,
    words: &str,
) -> Option<Plot> {
    let curves = curves(subjects, |subject| {
        let latencies = subject.latencies(Phase::Load);
        let values = latencies.iter().filter_map(|(_, summary)| summary.distribution.as_ref());
        values.filter_map(|all| u64::try_from(quantile.of(all)).ok()).collect()
    });
    let counts = curves.iter().map(|(_, ecdf)| ecdf.sorted().len());
    let caption = format!(
        "One value per valid trial ({} trials per variant): the {words} round trip of the load \
         phase.{}",
        range_of(counts),
        if has_bands(&curves) { " Shaded: 95 % band (Dvoretzky-Kiefer-Wolfowitz)." } else { "" }
    );
    let title = format!("Cumulative distribution of {words} working latency");
    cdf(name, &title, caption, "share of trials", &curves)
}

fn over_samples(subjects: &[Subject<'_>], phase: Phase, name: &str, words: &str) -> Option<Plot> {
    let curves = curves(subjects, |subject| subject.round_trips(phase));
    let counts = curves.iter().map(|(_, ecdf)| ecdf.sorted().len());
    let caption = format!(
        "All probe samples of the {phase} phase, valid trials pooled ({} per variant); there \
         are too few trials for a distribution over trials.",
        range_of(counts)
    );
    let title = format!("{words}: cumulative distribution over samples");
    cdf(name, &title, caption, SHARE_OF_SAMPLES, &curves)
}

fn curves<'s, 'a>(
    subjects: &'s [Subject<'a>],
    values: impl Fn(&Subject<'a>) -> Vec<u64>,
) -> Vec<(&'s Subject<'a>, Ecdf)> {
    let curve = |subject: &'s Subject<'a>| {
        let ms = values(subject).into_iter().map(|ns| ns as f64 / 1e6);
        Ecdf::new(ms).map(|ecdf| (subject, ecdf))
    };
    subjects.iter().filter_map(curve).collect()
}

const SHARE_OF_SAMPLES: &str = "share of samples";

fn cdf(
    name: &str,
    title: &str,
    caption: String,
    share: &str,
    curves: &[(&Subject<'_>, Ecdf)],
) -> Option<Plot> {
    if curves.is_empty() {
        return None;
    }
    // Samples of a trial are not independent: a band around them would be far too narrow.
    let is_banded = share != SHARE_OF_SAMPLES && has_bands(curves);
    let staircase = |(subject, ecdf): &(&Subject<'_>, Ecdf)| Staircase {
        position: subject.position,
        name: subject.heading(),
        steps: ecdf.steps(),
        half_height: is_banded.then(|| ecdf.band_half_height(CONFIDENCE)),
    };
    let staircases: Vec<Staircase> = curves.iter().map(staircase).collect();
    Some(cdf_plot(name, title, caption, share, &staircases))
}

fn has_bands(curves: &[(&Subject<'_>, Ecdf)]) -> bool {
    curves.len() <= MOST_BANDS
}

/// An empirical distribution function to draw.
pub(super) struct Staircase {
    /// Position of the variant or cohort, which decides the colour.
    pub(super) position: usize,
    pub(super) name: String,
    /// Round-trip time, ms, and the share of values up to it.
    pub(super) steps: Vec<(f64, f64)>,
    /// Half the height of the band around the curve; `None` for no band.
    pub(super) half_height: Option<f64>,
}

/// Draws distribution functions of round-trip times with a legend.
pub(super) fn cdf_plot(
    name: &str,
    title: &str,
    caption: String,
    share: &str,
    curves: &[Staircase],
) -> Plot {
    let largest = curves.iter().filter_map(|curve| curve.steps.last()).map(|last| last.0);
    let largest = largest.fold(0.0, f64::max);
    let names: Vec<(Ink, String)> =
        curves.iter().map(|curve| (Ink::Variant(curve.position), curve.name.clone())).collect();
    let x = Scale::linear("round-trip time, ms", 0.0..chart::above(largest));
    let y = Scale::linear(share, 0.0..1.0);
    chart::with_legend(name, title, caption, 280, &names, |canvas, (top, bottom)| {
        let mut panel = Panel::new(canvas, (top, bottom - 16), &x, &y);
        panel.describe(&[]);
        for Staircase { position, steps, half_height, .. } in curves {
            let points = staircase(steps, x.range.end);
            if let Some(half) = half_height {
                panel.surface(&band(&points, *half), Ink::Faint(*position));
            }
            panel.curve(&points, Ink::Variant(*position), 2.0);
        }
    })
}

/// Returns the outline of all points within `half` above and below the staircase, cut at 0 and 1.
fn band(stairs: &[(f64, f64)], half: f64) -> Vec<(f64, f64)> {
    let upper = stairs.iter().map(|(x, share)| (*x, (share + half).min(1.0)));
    let lower = stairs.iter().rev().map(|(x, share)| (*x, (share - half).max(0.0)));
    upper.chain(lower).collect()
}

/// Returns the corners of the function from 0 to `end`, without those too close to be visible.
pub(super) fn staircase(steps: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let pixel = end / CURVE_POINTS as f64;
    let (mut points, mut share) = (Vec::new(), 0.0);
    let mut drawn_to = f64::NEG_INFINITY;
    for (position, (x, next)) in steps.iter().enumerate() {
        let is_last = position + 1 == steps.len();
        if *x - drawn_to < pixel && !is_last {
            continue;
        }
        // A skipped step's height is reached before this one's.
        let before = if position > 0 { steps[position - 1].1 } else { 0.0 };
        points.push((*x, share));
        points.push((*x, before.max(share)));
        points.push((*x, *next));
        (share, drawn_to) = (*next, *x);
    }
    points.push((end, share));
    points
}

/// Draws a bar chart per variant of the mean working latency: over trials as in the paper (whose bars
/// of 15 ms also result here for its range), over samples if there are few trials.
pub(super) fn histograms(subjects: &[Subject<'_>]) -> Vec<Plot> {
    let values: Vec<(&Subject<'_>, Vec<u64>, &str)> = subjects
        .iter()
        .map(|subject| {
            let latencies = subject.latencies(Phase::Load);
            if latencies.len() < FEW_TRIALS {
                return (subject, subject.round_trips(Phase::Load), "samples");
            }
            let means = latencies.iter().filter_map(|(_, summary)| summary.distribution);
            (subject, means.filter_map(|all| u64::try_from(all.mean_ns).ok()).collect(), "trials")
        })
        .filter(|(_, values, _)| !values.is_empty())
        .collect();
    // All charts share one scale, so that bars can be compared. A long tail is in the caption only.
    let ends = values.iter().filter_map(|(_, values, _)| {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let rank = |share| underload_record::stats::nearest_rank(&sorted, share);
        Some((*sorted.first()?, rank(0.995)?))
    });
    let Some((least, most)) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        return Vec::new();
    };
    let (start_ns, width_ns, bins) = bins(least, most);
    let counted: Vec<(&Subject<'_>, FixedBins, &str)> = values
        .into_iter()
        .map(|(subject, values, of)| {
            let above = values.into_iter().map(|value| value.saturating_sub(start_ns));
            (subject, FixedBins::count(above, width_ns, bins), of)
        })
        .collect();
    let highest = counted.iter().flat_map(|(_, bins, _)| shares(bins)).fold(0.0, f64::max);
    let draw = |(subject, bins, of): &(&Subject<'_>, FixedBins, &str)| {
        histogram(subject, (bins, start_ns), of, highest)
    };
    counted.iter().map(draw).collect()
}

/// Returns start, width and number of bins for values from `least` to `most`. Bins start at 0,
/// unless the values are far from 0 and close to each other; the width is a round number.
fn bins(least: u64, most: u64) -> (u64, u64, usize) {
    let start = if least / 2 > most - least { least } else { 0 };
    let span = (most - start).max(1);
    let is_enough = |width: &u64| span / width < BINS;
    let widths = (0..14).flat_map(|power| {
        let unit = 10_000_u64.saturating_mul(10_u64.saturating_pow(power));
        [unit, unit.saturating_mul(3) / 2, unit.saturating_mul(2), unit.saturating_mul(5)]
    });
    let width = widths.into_iter().find(is_enough).unwrap_or(span);
    let start = start / width * width;
    (start, width, ((most - start) / width + 1) as usize)
}

fn histogram(
    subject: &Subject<'_>,
    (bins, start_ns): (&FixedBins, u64),
    of: &str,
    highest: f64,
) -> Plot {
    let what = if of == "trials" { "Mean round trip per trial" } else { "Round trip per sample" };
    let count: u64 = bins.counts.iter().sum::<u64>() + bins.beyond;
    let beyond = match bins.beyond {
        0 => String::new(),
        beyond => format!("; {} beyond the axis", thousands(beyond)),
    };
    let width = significant(bins.width_ns as f64 / 1e6);
    let caption = format!(
        "{}{what} under load, bins of {width} ms, {} {of}{beyond}.",
        subject.label_words(),
        thousands(count)
    );
    let name = format!("histogram-{}", subject.position);
    let y_name = if of == "trials" { "% of trials" } else { "% of samples" };
    let y = Scale::linear(y_name, 0.0..chart::above(highest));
    let (start, width) = (start_ns as f64 / 1e6, bins.width_ns as f64 / 1e6);
    let shares = shares(bins);
    let bars = Bars { start, width, count: shares.len(), ink: Ink::Variant(subject.position) };
    let title = format!("Histogram of round trips under load: {}", subject.heading());
    bars.plot(&name, title, caption, &y, &shares)
}

/// Bars of a histogram of round-trip times, ms.
pub(super) struct Bars {
    pub(super) start: f64,
    pub(super) width: f64,
    /// Bars that the axis has room for.
    pub(super) count: usize,
    pub(super) ink: Ink,
}

impl Bars {
    pub(super) fn plot(
        &self,
        name: &str,
        title: String,
        caption: String,
        y: &Scale,
        shares: &[f64],
    ) -> Plot {
        let Self { start, width, count, ink } = *self;
        let end = start + width * count as f64;
        let x = Scale::linear("round-trip time, ms", start..end);
        chart::plot(name, title, caption, 200, |canvas| {
            let mut panel = Panel::new(canvas, (0, 184), &x, y);
            panel.describe(&[]);
            for (bar, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let gap = width * 0.06;
                let from = start + width * bar as f64 + gap;
                let to = start + width * (bar + 1) as f64 - gap;
                panel.bar((from, 0.0), (to, *share), ink);
            }
        })
    }
}

fn shares(bins: &FixedBins) -> Vec<f64> {
    let count = (bins.counts.iter().sum::<u64>() + bins.beyond).max(1) as f64;
    bins.counts.iter().map(|in_bin| *in_bin as f64 * 100.0 / count).collect()
}

fn range_of(counts: impl Iterator<Item = usize> + Clone) -> String {
    let least = counts.clone().min().unwrap_or(0) as u64;
    let most = counts.max().unwrap_or(0) as u64;
    if least == most {
        thousands(most)
    } else {
        format!("{} to {}", thousands(least), thousands(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_the_values() {
        const MS: u64 = 1_000_000;
        assert_eq!(bins(20 * MS, 599 * MS), (0, 15 * MS, 40), "the paper's");
        assert_eq!(bins(20 * MS, 43 * MS), (0, 3 * MS / 2, 29));
        assert_eq!(bins(950 * MS, 1_000 * MS), (950 * MS - 950 * MS % 1_500_000, 1_500_000, 34));
        assert_eq!(bins(7, 7), (0, 10_000, 1));
        let (start, width, count) = bins(0, u64::MAX);
        assert!(start == 0 && width > 0 && count <= 41, "{width} {count}");
    }
}
