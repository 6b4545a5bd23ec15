//! Distributions of the delays of groups.

use underload_fleet::store::{Archive, Dimension, Sum};
use underload_report::diagram::{Curve, Diagram, Mark, Panel, Scale};

use super::overview::headline;
use super::problem::Problem;
use super::question::Ask;
use super::sheet::{Figure, Section, Sheet};
use super::summary::{self, Loaded, cumulative, largest, made_of, quantile_ms, shares};
use super::table::{Cell, Table, number, words};

/// Maximum number of bars of a histogram.
const BARS: usize = 40;
/// Width of a bar in the published figures, used if [`BARS`] of them cover the range.
const BAR_MS: f64 = 15.0;
const GROUPS_MAX: usize = 500;

pub(super) fn sheet(archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
    let filter = &ask.question.filter;
    summary::check_group(archive, ask, filter)?;
    let by = summary::dimensions(archive, ask)?;
    let mut whole = Loaded::read(archive, ask, filter, &by)?;
    whole.sums.sort_by_key(|sum| std::cmp::Reverse(sum.tests));
    let range = Range::from_query(ask, &whole)?;
    let mut sections = Vec::new();
    if let Some(range) = range {
        sections.push(distribution(ask, &whole, &by, range));
        sections.push(histogram(ask, &whole, &by, range));
    }
    sections.push(groups(&whole, &by));
    let mut sentences = vec![headline(ask, &whole, &by, filter)];
    sentences.extend(whole.left_out_sentence());
    Ok(Sheet { title: "Study".to_owned(), sentences, sections })
}

/// A range of delays, milliseconds.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Range {
    /// The range of the query, or nearly all that was measured; `None` without data.
    fn from_query(ask: &Ask, whole: &Loaded) -> Result<Option<Self>, Problem> {
        let groups = largest(whole);
        let of = |share| groups.iter().filter_map(move |sum| quantile_ms(&sum.bins, 0, share));
        let (Some(least), Some(most)) = (of(0.0).reduce(f64::min), of(0.999).reduce(f64::max))
        else {
            return Ok(None);
        };
        let is_logarithmic = ask.question.is_logarithmic()?;
        let (low, high) = ask.question.range_ms()?;
        let low = low.unwrap_or(if is_logarithmic { least / 1.05 } else { 0.0 });
        let low = if is_logarithmic { low.max(1e-3) } else { low };
        let high = high.unwrap_or(most * 1.1).max(low * 1.05 + 1e-3);
        Ok(Some(Self { low, high, is_logarithmic }))
    }

    fn scale(self, name: &str) -> Scale {
        let range = self.low..self.high;
        if self.is_logarithmic {
            Scale::logarithmic(name, range)
        } else {
            Scale::linear(name, range)
        }
    }
}

fn distribution(ask: &Ask, whole: &Loaded, by: &[Dimension], range: Range) -> Section {
    let groups = largest(whole);
    let curve = |sum: &&Sum| {
        let points = clipped(cumulative(&sum.bins, sum.lost), range);
        Curve::line(&summary::group_words(by, sum, 0), points)
    };
    let curves: Vec<Curve> = groups.iter().map(curve).collect();
    let rows = curves.iter().flat_map(|curve| {
        let row = |(delay, share): &(f64, f64)| {
            vec![Cell::text(&curve.name), Cell::Number(*delay), Cell::Number(*share)]
        };
        curve.points.iter().map(row)
    });
    let table = Table {
        name: "distribution",
        columns: vec![
            words("group", "Group"),
            number("delay_ms", "Round trip", "ms"),
            number("share_percent", "Share up to it", "% of probes"),
        ],
        rows: rows.collect(),
    };
    let heading = format!("Cumulative distribution of round trips, {}", whole.words());
    let mut section = Section::new(heading, table);
    section.figure = Some(Figure {
        diagram: Diagram {
            name: "distribution".to_owned(),
            title: format!("Cumulative distribution of round trips, {}", whole.words()),
            panels: vec![Panel {
                x: range.scale("round-trip time, ms"),
                y: Scale::linear("% of probes", 0.0..100.0),
                curves,
            }],
        },
        caption: format!(
            "All probes of all runs; a curve ends below 100 % where probes were lost. {}",
            made_of(ask, whole, by, &groups)
        ),
        zoom: ("low_ms", "high_ms"),
        point_notes: Vec::new(),
    });
    section
}

/// Returns the points within the range, and the shares at its ends.
fn clipped(points: Vec<(f64, f64)>, range: Range) -> Vec<(f64, f64)> {
    let before = points.iter().rfind(|point| point.0 < range.low).map_or(0.0, |point| point.1);
    let last = points.iter().rfind(|point| point.0 <= range.high).map_or(before, |point| point.1);
    let mut kept = vec![(range.low, before)];
    kept.extend(points.into_iter().filter(|(at, _)| (range.low..=range.high).contains(at)));
    kept.push((range.high, last));
    kept
}

/// Width of the bars: as published where they fit, otherwise a round number, and never below the
/// width of the bins that the delays were counted in.
fn bar_width_ms(range: Range) -> f64 {
    let span = range.high - range.low;
    if (4.0..=BARS as f64).contains(&(span / BAR_MS)) {
        return BAR_MS;
    }
    let least = (span / BARS as f64).max(range.high * 0.04);
    let magnitude = 10_f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * magnitude);
    round.into_iter().find(|width| *width >= least).unwrap_or(least)
}

/// Bars of equal width; the first begins at a multiple of the width.
#[derive(Debug, Clone, Copy)]
struct Bars {
    from_ms: f64,
    width_ms: f64,
    count: usize,
}

impl Bars {
    fn over(range: Range) -> Self {
        let width_ms = bar_width_ms(range);
        let from_ms = (range.low / width_ms).floor() * width_ms;
        let count = (((range.high - from_ms) / width_ms).ceil() as usize).clamp(1, BARS + 1);
        Self { from_ms, width_ms, count }
    }

    /// Returns the lower edge of a bar, in milliseconds. For `bar == count` this is the upper edge
    /// of the last bar.
    fn start_ms(self, bar: usize) -> f64 {
        self.from_ms + self.width_ms * bar as f64
    }

    fn panel(self, name: &str, shares: &[f64], highest: f64) -> Panel {
        let shown = shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let middle = |bar| self.start_ms(bar) + self.width_ms / 2.0;
        let points = shown.map(|(bar, share)| (middle(bar), *share)).collect();
        Panel {
            x: Scale::linear("round-trip time, ms", self.from_ms..self.start_ms(self.count)),
            y: Scale::linear("% of probes", 0.0..highest * 1.06),
            curves: vec![Curve { name: name.to_owned(), mark: Mark::Bar(self.width_ms), points }],
        }
    }

    fn rows(self, name: &str, shares: &[f64]) -> impl Iterator<Item = Vec<Cell>> {
        shares.iter().enumerate().map(move |(bar, share)| {
            let [low, high] = [bar, bar + 1].map(|bar| Cell::Number(self.start_ms(bar)));
            vec![Cell::text(name), low, high, Cell::Number(*share)]
        })
    }
}

fn histogram(ask: &Ask, whole: &Loaded, by: &[Dimension], range: Range) -> Section {
    let groups = largest(whole);
    let bars = Bars::over(range);
    let shares_of =
        |sum: &Sum| shares(&sum.bins, sum.lost, bars.from_ms, bars.width_ms, bars.count);
    let counted: Vec<(String, Vec<f64>)> =
        groups.iter().map(|sum| (summary::group_words(by, sum, 0), shares_of(sum))).collect();
    let highest = counted.iter().flat_map(|(_, shares)| shares).copied().fold(1.0, f64::max);
    let table = Table {
        name: "histogram",
        columns: vec![
            words("group", "Group"),
            number("from_ms", "From", "ms"),
            number("to_ms", "to", "ms"),
            number("share_percent", "Share", "% of probes"),
        ],
        rows: counted.iter().flat_map(|(name, shares)| bars.rows(name, shares)).collect(),
    };
    let beyond = counted.iter().filter_map(|(name, shares)| {
        let beyond = 100.0 - shares.iter().sum::<f64>();
        let words = underload_report::significant(beyond);
        (beyond >= 0.05).then(|| format!("{words} % of {name} lie beyond the axis or were lost."))
    });
    let beyond: Vec<String> = beyond.collect();
    let panel = |(name, shares): &(String, Vec<f64>)| bars.panel(name, shares, highest);
    let title = format!("Histogram of round trips, {}", whole.words());
    let mut section = Section::new(title.clone(), table);
    section.figure = Some(Figure {
        diagram: Diagram {
            name: "histogram".to_owned(),
            title,
            panels: counted.iter().map(panel).collect(),
        },
        caption: format!(
            "Bars of {} ms, percent of all probes of the group. {} {}",
            underload_report::significant(bars.width_ms),
            made_of(ask, whole, by, &groups),
            beyond.join(" ")
        ),
        zoom: ("low_ms", "high_ms"),
        point_notes: Vec::new(),
    });
    section
}

fn groups(whole: &Loaded, by: &[Dimension]) -> Section {
    let row = |sum: &Sum| {
        let mut row = vec![Cell::Text(summary::group_words(by, sum, 0))];
        row.extend(summary::cells(sum));
        row
    };
    let table = Table {
        name: "groups",
        columns: std::iter::once(words("group", "Group")).chain(summary::columns()).collect(),
        rows: whole.sums.iter().take(GROUPS_MAX).map(row).collect(),
    };
    let mut section = Section::new(format!("Groups, {}", whole.words()), table);
    let left_out = match whole.sums.len() {
        all if all > GROUPS_MAX => format!(" The {GROUPS_MAX} largest of {all} groups."),
        _ => String::new(),
    };
    section.note = format!(
        "Quantiles are of all probes together, within 1 %; – where the probe at that place was \
         lost. The command underload fleet study compares them by device, with intervals.\
         {left_out}"
    );
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: f64, high: f64) -> Range {
        Range { low, high, is_logarithmic: false }
    }

    #[test]
    fn bars_are_as_published_where_they_fit_and_never_narrower_than_what_was_counted() {
        assert!((bar_width_ms(range(0.0, 300.0)) - 15.0).abs() < 1e-9);
        assert!((bar_width_ms(range(0.0, 30.0)) - 2.0).abs() < 1e-9, "4 % of 30 is 1.2");
        assert!((bar_width_ms(range(0.0, 2_000.0)) - 100.0).abs() < 1e-9);
        assert!((bar_width_ms(range(200.0, 210.0)) - 10.0).abs() < 1e-9);
        for (low, high) in [(0.0, 0.01), (0.0, 1e6), (999.0, 1_000.0)] {
            let range = range(low, high);
            let width = bar_width_ms(range);
            assert!((high - low) / width <= 40.0 + 1e-6 && width >= high * 0.04 - 1e-9, "{width}");
        }
    }

    #[test]
    fn a_curve_is_cut_at_the_ends_of_its_range() {
        let points = vec![(1.0, 0.0), (2.0, 50.0), (4.0, 90.0)];
        assert_eq!(clipped(points, range(1.5, 3.0)), [(1.5, 0.0), (2.0, 50.0), (3.0, 50.0)]);
        assert_eq!(clipped(vec![(1.0, 80.0)], range(2.0, 3.0)), [(2.0, 80.0), (3.0, 80.0)]);
    }
}
