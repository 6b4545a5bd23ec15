//! Distributions over trials: Figures 3 to 6 of Comcast 2021.

use underload_record::CONFIDENCE;
use underload_record::schema::{Phase, Quantile};
use underload_record::stats::{Ecdf, FixedBins};

use super::canvas::Ink;
use super::chart::{self, Axis};
use super::{Plot, PlotError};
use crate::subject::Subject;
use crate::words::{significant, thousands};

/// With fewer trials per arm than this, a CDF over trials is a few steps that say nothing.
const FEW_TRIALS: usize = 10;

/// Arms beyond this many have no histogram: nobody would compare them.
pub(crate) const MOST_HISTOGRAMS: usize = 12;

/// Bars that fit side by side.
const BINS: u64 = 40;

/// Curves that may have bands around them; more would cover one another.
const MOST_BANDS: usize = 4;

/// Points of a curve; more cannot be seen.
const CURVE_POINTS: usize = 400;

/// CDFs of mean and maximum working latency over trials, or of the round trips of all samples when
/// there are few trials.
pub(super) fn cdfs(subjects: &[Subject<'_>]) -> Result<Vec<Plot>, PlotError> {
    let trials = |subject: &Subject<'_>| subject.latencies(Phase::Load).len();
    let most = subjects.iter().map(trials).max().unwrap_or(0);
    if most >= FEW_TRIALS {
        let mean = over_trials(subjects, Quantile::Mean, "cdf-mean", "mean")?;
        let max = over_trials(subjects, Quantile::Max, "cdf-max", "maximum")?;
        return Ok(mean.into_iter().chain(max).collect());
    }
    let mut plots = Vec::new();
    for (phase, name, words) in
        [(Phase::Load, "cdf-load", "Working latency"), (Phase::Idle, "cdf-idle", "Idle latency")]
    {
        plots.extend(over_samples(subjects, phase, name, words)?);
    }
    Ok(plots)
}

fn over_trials(
    subjects: &[Subject<'_>],
    quantile: Quantile,
    name: &str,
    words: &str,
) -> Result<Option<Plot>, PlotError> {
    let curves = curves(subjects, |subject| {
        let latencies = subject.latencies(Phase::Load);
        let values = latencies.iter().filter_map(|(_, summary)| summary.distribution.as_ref());
        values.filter_map(|all| u64::try_from(quantile.of(all)).ok()).collect()
    });
    let counts = curves.iter().map(|(_, ecdf)| ecdf.sorted().len());
    let caption = format!(
        "One value per valid trial ({} trials per arm): the {words} round trip of the load \
         phase.{}",
        range_of(counts),
        if banded(&curves) { " Shaded: 95 % band (Dvoretzky-Kiefer-Wolfowitz)." } else { "" }
    );
    let title = format!("Cumulative distribution of {words} working latency");
    cdf(name, title, caption, Of::Trials, &curves)
}

fn over_samples(
    subjects: &[Subject<'_>],
    phase: Phase,
    name: &str,
    words: &str,
) -> Result<Option<Plot>, PlotError> {
    let curves = curves(subjects, |subject| subject.round_trips(phase));
    let counts = curves.iter().map(|(_, ecdf)| ecdf.sorted().len());
    let caption = format!(
        "All probe samples of the {phase} phase, valid trials pooled ({} samples per arm); there \
         are too few trials for a distribution over trials.",
        range_of(counts)
    );
    let title = format!("{words}: cumulative distribution over samples");
    cdf(name, title, caption, Of::Samples, &curves)
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

fn cdf(
    name: &str,
    title: String,
    caption: String,
    of: Of,
    curves: &[(&Subject<'_>, Ecdf)],
) -> Result<Option<Plot>, PlotError> {
    let share = match of {
        Of::Trials => "share of trials",
        Of::Samples => "share of samples",
    };
    let last = |ecdf: &Ecdf| ecdf.sorted().last().copied().unwrap_or(0.0);
    let Some(largest) = curves.iter().map(|(_, ecdf)| last(ecdf)).reduce(f64::max) else {
        return Ok(None);
    };
    let names: Vec<(Ink, String)> =
        curves.iter().map(|(subject, _)| (Ink::Arm(subject.position), subject.title())).collect();
    let mut legend_height = 0;
    let measure = chart::legend(None, &names).map(|height| legend_height = height);
    let height = legend_height + 280;
    chart::plot(name, title, caption, height, |area| {
        measure?;
        chart::legend(Some(area), &names)?;
        let x = Axis { name: "round-trip time, ms", range: 0.0..chart::above(largest) };
        let y = Axis { name: share, range: 0.0..1.0 };
        let mut panel = chart::panel(area, legend_height, height - 16, &x, &y)?;
        for (subject, ecdf) in curves {
            let points = staircase(&ecdf.steps(), x.range.end);
            // Samples of a trial are not independent: a band around them would be far too narrow.
            if of == Of::Trials && banded(curves) {
                let half = ecdf.band(CONFIDENCE).half_height;
                chart::surface(&mut panel, band(&points, half), Ink::Faint(subject.position))?;
            }
            chart::curve(&mut panel, points, Ink::Arm(subject.position), 2.0)?;
        }
        Ok(())
    })
    .map(Some)
}

/// The values that a distribution is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Trials,
    Samples,
}

fn banded(curves: &[(&Subject<'_>, Ecdf)]) -> bool {
    curves.len() <= MOST_BANDS
}

/// The outline of all points within `half` above and below the staircase, cut at 0 and 1.
pub(super) fn band(stairs: &[(f64, f64)], half: f64) -> Vec<(f64, f64)> {
    let upper = stairs.iter().map(|(x, share)| (*x, (share + half).min(1.0)));
    let lower = stairs.iter().rev().map(|(x, share)| (*x, (share - half).max(0.0)));
    upper.chain(lower).collect()
}

/// The steps of the function from 0 to `end`, thinned to what can be seen.
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

/// A bar chart per arm of the mean working latency: over trials as the paper has it (its bars are
/// 15 ms wide, as they are here for its range), over samples when there are few trials.
pub(super) fn histograms(subjects: &[Subject<'_>]) -> Result<Vec<Plot>, PlotError> {
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
    // One scale for all, so that the bars can be compared; it leaves a long tail to the last words.
    let ends = values.iter().filter_map(|(_, values, _)| {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let rank = |share| underload_record::stats::nearest_rank(&sorted, share);
        Some((*sorted.first()?, rank(0.995)?))
    });
    let Some((least, most)) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        return Ok(Vec::new());
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

/// Where bins begin, how wide they are and how many, for values from `least` to `most`: from 0 on,
/// unless the values are far from it and close to each other; of a width that is a round number.
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
) -> Result<Plot, PlotError> {
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
    chart::plot(&name, subject.heading(), caption, 200, |area| {
        let width_ms = bins.width_ns as f64 / 1e6;
        let start = start_ns as f64 / 1e6;
        let end = start + width_ms * bins.counts.len() as f64;
        let x = Axis { name: "round-trip time, ms", range: start..end };
        let y_name = if of == "trials" { "% of trials" } else { "% of samples" };
        let y = Axis { name: y_name, range: 0.0..chart::above(highest) };
        let mut panel = chart::panel(area, 0, 184, &x, &y)?;
        for (bin, share) in shares(bins).into_iter().enumerate().filter(|(_, share)| *share > 0.0) {
            let gap = width_ms * 0.06;
            let from = start + width_ms * bin as f64 + gap;
            let to = start + width_ms * (bin + 1) as f64 - gap;
            chart::bar(&mut panel, (from, 0.0), (to, share), Ink::Arm(subject.position))?;
        }
        Ok(())
    })
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
