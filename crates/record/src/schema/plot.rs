//! Figures of a run's variants that a scenario declares.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::expectation::{Expectation, names_variant};

/// A figure of a run's variants, as its scenario declares it.
///
/// `{line}` and `{x}` in `variants` match a part of a variant's name: variants with the same `{line}` are one
/// curve or one colour, in order of their `{x}`. A point is the mean over the variants that match `*`,
/// as in an [`Expectation`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlotRecord {
    pub kind: PlotKind,
    pub title: String,
    /// Pattern of the variants: `{line}/*/{x}`.
    pub variants: String,
    /// Metric on the y axis (the colour of a heat map), named as in an [`Expectation`]; for `cdf`
    /// and `histogram` without a statistic for a distribution over samples, or with one for a
    /// distribution over trials.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metric: String,
    /// Label of the axis of `metric`, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// Metric on the x axis of a scatter plot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_metric: String,
    /// Positions on the x axis instead of a metric, by a variant's name or a pattern.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub x_values: BTreeMap<String, f64>,
    /// Label of the x axis, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_says: String,
    /// Divides every value by that of this variant, which may have `{line}`, `{x}` and `*`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub relative_to: String,
    /// Divides the value of this variant by every value, to show by which factor each is better.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub improvement_on: String,
    /// Axes with a logarithmic scale.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<PlotAxis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// Lines over a parameter, `{x}`.
    #[default]
    Sweep,
    /// Groups of bars, one group for each `{x}`.
    Bars,
    /// A point per variant: one metric against another, with lines of equal power.
    Scatter,
    /// Median, quartiles and extremes over repeats.
    Box,
    Cdf,
    /// Shares of trials or samples in bins of equal width, one histogram per variant.
    Histogram,
    /// A cell for each `{line}` and `{x}`, coloured by its value.
    Heat,
    /// Delay, backlog, rate and drops over time, one figure per variant.
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotAxis {
    X,
    Y,
}

/// The variants that form one point of a plot: they differ only in the text in place of `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotPoint {
    /// Text in place of `{line}`; empty if the pattern has none.
    pub line: String,
    /// Text in place of `{x}`; empty if the pattern has none.
    pub x: String,
    /// Pattern of the variants, with `*` only.
    pub variants: String,
}

const PLACES: [&str; 3] = ["{line}", "{x}", "*"];

impl PlotRecord {
    /// Returns the points of the plot, in the order of `variants`.
    pub fn points(&self, variants: &[&str]) -> Vec<PlotPoint> {
        let mut points: Vec<PlotPoint> = Vec::new();
        for variant in variants {
            let Some((line, x)) = self.places(variant) else { continue };
            if !points.iter().any(|point| point.line == line && point.x == x) {
                let variants = filled(&self.variants, &line, &x);
                points.push(PlotPoint { line, x, variants });
            }
        }
        points
    }

    /// Returns the texts of `{line}` and `{x}` in a variant's name; `None` for a variant of no plot.
    fn places(&self, variant: &str) -> Option<(String, String)> {
        let plain = filled(&self.variants, "*", "*");
        if !names_variant(&plain, variant) {
            return None;
        }
        let (mut line, mut x) = (String::new(), String::new());
        for (wanted, part) in self.variants.split('/').zip(variant.split('/')) {
            let place = PLACES.into_iter().find(|place| wanted.contains(place));
            let Some((head, tail)) = place.and_then(|place| wanted.split_once(place)) else {
                continue;
            };
            let middle = part.get(head.len()..part.len().checked_sub(tail.len())?)?;
            match place {
                Some("{line}") => middle.clone_into(&mut line),
                Some("{x}") => middle.clone_into(&mut x),
                _ => {}
            }
        }
        Some((line, x))
    }

    /// Returns the expectation that computes the value of a point: its metric, divided by that of
    /// `relative_to` or dividing that of `improvement_on`.
    pub fn expectation(&self, metric: &str, point: &PlotPoint) -> Expectation {
        let at_point = |pattern: &str| filled(pattern, &point.line, &point.x);
        let (variant, relative_to) = match (self.relative_to.as_str(), self.improvement_on.as_str())
        {
            ("", "") => (point.variants.clone(), None),
            ("", better) => (at_point(better), Some(point.variants.clone())),
            (other, _) => (point.variants.clone(), Some(at_point(other))),
        };
        Expectation { metric: metric.to_owned(), variant, relative_to, ..Expectation::default() }
    }
}

impl Expectation {
    /// Returns `Some(false)` if both expectations compute the same number for the variants of a run,
    /// `Some(true)` if one number is the inverse of the other, and `None` if they are unrelated.
    pub fn is_inverse_of(&self, other: &Expectation, variants: &[&str]) -> Option<bool> {
        let named = |pattern: &str| -> BTreeSet<&str> {
            variants.iter().copied().filter(|variant| names_variant(pattern, variant)).collect()
        };
        if self.metric != other.metric || self.curve.is_some() || other.curve.is_some() {
            return None;
        }
        let (own, others) = (named(&self.variant), named(&other.variant));
        if own.is_empty() || others.is_empty() {
            return None;
        }
        match (&self.relative_to, &other.relative_to) {
            (None, None) => (own == others).then_some(false),
            (Some(by), Some(others_by)) => {
                let (by, others_by) = (named(by), named(others_by));
                let is_same = own == others && by == others_by;
                let is_inverse = own == others_by && by == others;
                is_same.then_some(false).or(is_inverse.then_some(true))
            }
            _ => None,
        }
    }
}

fn filled(pattern: &str, line: &str, x: &str) -> String {
    pattern.replace("{line}", line).replace("{x}", x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(variants: &str) -> PlotRecord {
        PlotRecord { variants: variants.to_owned(), ..PlotRecord::default() }
    }

    #[test]
    fn a_point_is_the_mean_of_the_variants_that_match_a_star() {
        let variants = ["1mbit/57ms/8KiB", "1mbit/117ms/8KiB", "2mbit/57ms/8KiB", "other"];
        let points = plot("{line}/*/{x}").points(&variants);
        let told: Vec<(&str, &str, &str)> = points
            .iter()
            .map(|it| (it.line.as_str(), it.x.as_str(), it.variants.as_str()))
            .collect();
        assert_eq!(told, [("1mbit", "8KiB", "1mbit/*/8KiB"), ("2mbit", "8KiB", "2mbit/*/8KiB")]);
        assert_eq!(plot("1mbit/{line}ms/{x}").points(&variants)[1].line, "117");
        assert!(plot("{line}").points(&variants).iter().all(|point| point.line == "other"));
    }

    #[test]
    fn an_inverted_ratio_is_recognised() {
        let variants = ["bode/a", "bode/b", "codel/a", "codel/b"];
        let mut wanted = plot("{line}/*");
        wanted.relative_to = "bode/*".to_owned();
        let points = wanted.points(&variants);
        let own = wanted.expectation("delay", &points[1]);
        assert_eq!((own.variant.as_str(), own.relative_to.as_deref()), ("codel/*", Some("bode/*")));
        let published = Expectation {
            metric: "delay".to_owned(),
            variant: "bode/*".to_owned(),
            relative_to: Some("codel/*".to_owned()),
            ..Expectation::default()
        };
        assert_eq!(published.is_inverse_of(&own, &variants), Some(true));
        assert_eq!(own.is_inverse_of(&own, &variants), Some(false));
        let other = Expectation { metric: "rate".to_owned(), ..published };
        assert_eq!(other.is_inverse_of(&own, &variants), None);
    }
}
