//! Scales: where a value is along an axis, and what is written beside the axis.

use std::ops::Range;

use underload_record::schema::{PlotAxis, PlotRecord};

use crate::words::significant;

/// A scale: its name with unit, and its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    pub name: String,
    /// A scale with an empty range shows its only value in the middle.
    pub range: Range<f64>,
    pub kind: ScaleKind,
}

/// How a scale places and labels values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    Linear,
    /// By powers of ten; values that are not positive are at the start.
    Logarithmic,
    /// Days since 1970, as dates; parts of a day as times, both of the zone that the days are in.
    Days,
    /// Days since 1970, as dates; parts of a day have no meaning.
    Dates,
}

impl Scale {
    pub fn linear(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Linear }
    }

    /// Makes a scale by powers of ten.
    pub fn logarithmic(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Logarithmic }
    }

    /// Makes a scale of [`ScaleKind::Days`].
    pub fn days(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Days }
    }

    /// Makes a scale of [`ScaleKind::Dates`].
    pub fn dates(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Dates }
    }

    /// Makes the scale of a scenario's plot for an axis that includes all values. A linear one
    /// starts at 0 unless a value is negative.
    pub(super) fn over(
        name: &str,
        (plot, axis): (&PlotRecord, PlotAxis),
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let is_log = plot.log.contains(&axis);
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!is_log || *value > 0.0)).collect();
        let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        if is_log && !values.is_empty() {
            let margin = 10_f64.powf(0.08);
            return Self::logarithmic(name, least / margin..most * margin);
        }
        let reach = (most - least.min(0.0)).max(f64::MIN_POSITIVE);
        let from = if least < 0.0 { least - reach * 0.05 } else { 0.0 };
        let to = if most <= 0.0 { reach * 0.05 } else { most + reach * 0.06 };
        Self::linear(name, from..to)
    }

    pub(super) fn is_log(&self) -> bool {
        self.kind == ScaleKind::Logarithmic
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.range.start..=self.range.end).contains(&value)
    }

    /// Returns the range as positions on the scale: for a logarithmic scale, the exponents.
    pub(super) fn placed_range(&self) -> Range<f64> {
        self.place(self.range.start)..self.place(self.range.end)
    }

    /// Returns the share of the axis that is before a value, 0 to 1; values outside are at an end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let Range { start, end } = self.placed_range();
        let share = (self.place(value) - start) / (end - start);
        if share.is_nan() { 0.5 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns the value after a share of the axis, the inverse of [`Scale::share`].
    pub(super) fn value(&self, share: f64) -> f64 {
        let Range { start, end } = self.placed_range();
        let place = start + share * (end - start);
        if self.is_log() { 10_f64.powf(place) } else { place }
    }

    /// Returns at most `most` values with labels, some of which are empty.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let tick = |place: f64| {
            let value = if self.is_log() { 10_f64.powf(place) } else { place };
            (value, self.label(place))
        };
        round_numbers(&self.placed_range(), most).into_iter().map(tick).collect()
    }

    fn place(&self, value: f64) -> f64 {
        if !self.is_log() {
            return value;
        }
        if value > 0.0 { value.log10() } else { f64::NEG_INFINITY }
    }

    fn label(&self, place: f64) -> String {
        let is_whole = (place - place.round()).abs() <= 1e-6;
        match self.kind {
            ScaleKind::Linear => number(place),
            ScaleKind::Dates if !is_whole => String::new(),
            ScaleKind::Days | ScaleKind::Dates => date(place),
            // Over less than two decades, labels at whole powers alone would be too few.
            ScaleKind::Logarithmic if !is_whole => {
                let is_long = self.range.end > self.range.start * 100.0;
                if is_long { String::new() } else { significant(10_f64.powf(place)) }
            }
            ScaleKind::Logarithmic if !(-3.5..4.5).contains(&place) => format!("1e{place:.0}"),
            ScaleKind::Logarithmic => number(10_f64.powf(place)),
        }
    }
}

/// Returns round numbers within a range, as many as fit in `most`: the multiples of 1, 2 or 5 times
/// a power of ten.
fn round_numbers(range: &Range<f64>, most: usize) -> Vec<f64> {
    let span = range.end - range.start;
    if !span.is_finite() || span <= 0.0 {
        return vec![range.start];
    }
    let power = 10_f64.powf(span.log10().floor() + 1.0);
    let steps = (0..4).flat_map(|decade| [1.0, 2.0, 5.0].map(|part| part * 10_f64.powi(decade)));
    let multiples = |parts: f64| {
        // The tolerance includes multiples at the ends of the range, which rounding may put outside of it.
        let first = (range.start / power * parts - 1e-9).ceil();
        let last = (range.end / power * parts + 1e-9).floor();
        (first, (last - first + 1.0).max(0.0) as usize)
    };
    let fitting = steps.map(|parts| (parts, multiples(parts))).take_while(|it| it.1.1 <= most);
    let Some((parts, (first, count))) = fitting.last() else { return Vec::new() };
    (0..count).map(|number| (first + number as f64) * power / parts).collect()
}

/// Formats days since 1970 as `11-22`, or within a day as `06:30`.
fn date(days: f64) -> String {
    let minutes = (days * 1440.0).round() as i64;
    let Ok(at) = jiff::Timestamp::from_second(minutes.saturating_mul(60)) else {
        return String::new();
    };
    let format = if minutes.rem_euclid(1440) == 0 { "%m-%d" } else { "%H:%M" };
    at.strftime(format).to_string()
}

/// Formats a number of an axis with no more digits than it needs.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_most_round_numbers_that_fit() {
        let numbers = |range: Range<f64>, most| -> Vec<String> {
            round_numbers(&range, most).into_iter().map(number).collect()
        };
        assert_eq!(numbers(0.0..1.0, 6), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(numbers(0.0..24.07, 8), ["0", "5", "10", "15", "20"]);
        assert_eq!(numbers(0.0..2103.1, 4), ["0", "1000", "2000"]);
        assert_eq!(numbers(-0.5..23.5, 8), ["0", "5", "10", "15", "20"]);
        assert_eq!(numbers(0.3..0.7, 6), ["0.3", "0.4", "0.5", "0.6", "0.7"]);
        assert_eq!(numbers(-2.6..4.6, 6), ["-2", "0", "2", "4"]);
        assert_eq!(numbers(7.0..7.0, 6), ["7"]);
        assert_eq!(numbers(0.0..f64::INFINITY, 6).len(), 1);
        assert_eq!(numbers(0.0..1.0, 0).len(), 0);
    }

    #[test]
    fn labels_of_powers_are_short() {
        let labels = |range: Range<f64>| -> Vec<String> {
            Scale::logarithmic("", range).ticks(6).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(1.0..300.0), ["1", "", "10", "", "100"]);
        assert_eq!(labels(1.0..20.0), ["1", "3.16", "10"]);
    }

    #[test]
    fn a_value_is_the_inverse_of_its_share() {
        for scale in [Scale::logarithmic("", 0.5..300.0), Scale::linear("", -2.0..50.0)] {
            assert!((scale.value(scale.share(40.0)) - 40.0).abs() < 1e-9);
            assert_eq!((scale.share(-3.0), scale.share(1e9)), (0.0, 1.0), "at the ends");
        }
        assert!((Scale::linear("", 4.0..4.0).share(4.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_scale_includes_all_values_of_a_plot() {
        let mut plot = PlotRecord::default();
        let plain = Scale::over("", (&plot, PlotAxis::Y), [-2.0, 4.0].into_iter());
        assert!(plain.range.start < -2.0 && plain.range.end > 4.0);
        plot.log = vec![PlotAxis::Y];
        assert!(Scale::over("", (&plot, PlotAxis::Y), [1.0, 10.0].into_iter()).range.start < 1.0);
        assert!(Scale::over("", (&plot, PlotAxis::Y), std::iter::empty()).range.end.is_finite());
    }
}
