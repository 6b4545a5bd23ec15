//! Pictures that a scenario asks for: its arms against each other, in the form of a figure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::expectation::{Expectation, names_arm};

/// A picture of a run's arms, as its scenario declares it.
///
/// `{line}` and `{x}` in `arms` stand for a part of an arm's name: arms with the same `{line}` are
/// one curve or one colour, in order of their `{x}`. Over `*` the mean is taken, as in an
/// [`Expectation`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlotRecord {
    /// The form of the picture.
    pub kind: PlotKind,
    /// Its heading.
    pub title: String,
    /// The arms in it: `{line}/*/{x}`.
    pub arms: String,
    /// What is shown upwards (of a heat map as colour), named as the metric of an [`Expectation`];
    /// of `cdf` and `histogram` without its statistic, or with one over trials.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metric: String,
    /// What the axis of `metric` is called, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// What a scatter plot shows to the right.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_metric: String,
    /// What it shows there instead: a number for each arm, by its name or a pattern of several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub x_values: BTreeMap<String, f64>,
    /// What the axis to the right is called, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_says: String,
    /// Every number is divided by that of this arm, which may have `{line}`, `{x}` and `*`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub relative_to: String,
    /// The number of this arm is divided by every number: how many times better.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub improvement_on: String,
    /// Axes that grow by factors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<PlotAxis>,
}

/// Forms of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// Lines over a parameter, `{x}`.
    #[default]
    Sweep,
    /// Groups of bars, one group for each `{x}`.
    Bars,
    /// A point per arm: one metric against another, with lines of equal power.
    Scatter,
    /// The spread over repeats: median, quartiles, extremes.
    Box,
    /// Cumulative distributions.
    Cdf,
    /// Shares of trials or samples in bins of equal width, an arm each.
    Histogram,
    /// A cell for each `{line}` and `{x}`, coloured by its number.
    Heat,
    /// Delay, backlog, rate and drops over time, an arm each.
    Time,
}

/// An axis of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotAxis {
    /// To the right.
    X,
    /// Upwards.
    Y,
}

/// Arms of a plot that make one point: those that differ only where the pattern has `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotPoint {
    /// What `{line}` stands for; empty without one.
    pub line: String,
    /// What `{x}` stands for; empty without one.
    pub x: String,
    /// The pattern of its arms, with `*` only.
    pub arms: String,
}

const PLACES: [&str; 3] = ["{line}", "{x}", "*"];

impl PlotRecord {
    /// The points that these arms make, in the order of the arms.
    pub fn points(&self, arms: &[&str]) -> Vec<PlotPoint> {
        let mut points: Vec<PlotPoint> = Vec::new();
        for arm in arms {
            let Some((line, x)) = self.places(arm) else { continue };
            if !points.iter().any(|point| point.line == line && point.x == x) {
                let arms = filled(&self.arms, &line, &x);
                points.push(PlotPoint { line, x, arms });
            }
        }
        points
    }

    /// What `{line}` and `{x}` stand for in an arm's name; `None` of an arm that is not meant.
    fn places(&self, arm: &str) -> Option<(String, String)> {
        let plain = filled(&self.arms, "*", "*");
        if !names_arm(&plain, arm) {
            return None;
        }
        let (mut line, mut x) = (String::new(), String::new());
        for (wanted, part) in self.arms.split('/').zip(arm.split('/')) {
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

    /// What the plot would hold against a run at this point: its metric, divided as it says.
    pub fn expectation(&self, metric: &str, point: &PlotPoint) -> Expectation {
        let of = |pattern: &str| filled(pattern, &point.line, &point.x);
        let (arm, relative_to) = match (self.relative_to.as_str(), self.improvement_on.as_str()) {
            ("", "") => (point.arms.clone(), None),
            ("", better) => (of(better), Some(point.arms.clone())),
            (other, _) => (point.arms.clone(), Some(of(other))),
        };
        Expectation { metric: metric.to_owned(), arm, relative_to, ..Expectation::default() }
    }
}

impl Expectation {
    /// Whether two of them speak of the same number, the arms of a run given; `Some(true)` where
    /// one is the other's inverse.
    pub fn is_inverse_of(&self, other: &Expectation, arms: &[&str]) -> Option<bool> {
        let named = |pattern: &str| -> BTreeSet<String> {
            let named = arms.iter().filter(|arm| names_arm(pattern, arm));
            named.map(|arm| (*arm).to_owned()).collect()
        };
        if self.metric != other.metric || self.choice.is_some() || other.choice.is_some() {
            return None;
        }
        let (own, others) = (named(&self.arm), named(&other.arm));
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

    fn plot(arms: &str) -> PlotRecord {
        PlotRecord { arms: arms.to_owned(), ..PlotRecord::default() }
    }

    #[test]
    fn points_are_arms_that_differ_where_the_mean_is_taken() {
        let arms = ["1mbit/57ms/8KiB", "1mbit/117ms/8KiB", "2mbit/57ms/8KiB", "other"];
        let points = plot("{line}/*/{x}").points(&arms);
        let told: Vec<(&str, &str, &str)> =
            points.iter().map(|it| (it.line.as_str(), it.x.as_str(), it.arms.as_str())).collect();
        assert_eq!(told, [("1mbit", "8KiB", "1mbit/*/8KiB"), ("2mbit", "8KiB", "2mbit/*/8KiB")]);
        assert_eq!(plot("1mbit/{line}ms/{x}").points(&arms)[1].line, "117");
        assert!(plot("{line}").points(&arms).iter().all(|point| point.line == "other"));
    }

    #[test]
    fn a_ratio_is_known_upside_down() {
        let arms = ["bode/a", "bode/b", "codel/a", "codel/b"];
        let mut wanted = plot("{line}/*");
        wanted.relative_to = "bode/*".to_owned();
        let points = wanted.points(&arms);
        let own = wanted.expectation("delay", &points[1]);
        assert_eq!((own.arm.as_str(), own.relative_to.as_deref()), ("codel/*", Some("bode/*")));
        let published = Expectation {
            metric: "delay".to_owned(),
            arm: "bode/*".to_owned(),
            relative_to: Some("codel/*".to_owned()),
            ..Expectation::default()
        };
        assert_eq!(published.is_inverse_of(&own, &arms), Some(true));
        assert_eq!(own.is_inverse_of(&own, &arms), Some(false));
        let other = Expectation { metric: "rate".to_owned(), ..published };
        assert_eq!(other.is_inverse_of(&own, &arms), None);
    }
}
