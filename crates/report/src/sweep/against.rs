//! Each variant of a sweep against the first, point by point.

use serde::Serialize;
use underload_record::comparison::Verdict;
use underload_record::schema::Interval;
use underload_store::sweep::SweepCell;

use super::unit;
use crate::words::{factor, thousands};

/// Maximum number of points that a sentence names.
const MOST_NAMED: usize = 4;

/// The verdicts of all variants, in bounded memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Against {
    /// The first variant's cell at the last point.
    base: Option<SweepCell>,
    pub(super) variants: Vec<Tally>,
}

/// At how many points a variant's value is lower than the first variant's, higher, or nearly the same.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Tally {
    variant: String,
    base: String,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Clone, Serialize)]
struct Outcome {
    verdict: Verdict,
    /// The verdict by the two values alone, without their ranges.
    direction: Verdict,
    points: u64,
    /// The smallest and the largest quotient, of the larger value over the smaller one.
    quotients: (f64, f64),
    /// Names of the first points.
    named: Vec<String>,
}

impl Against {
    /// Adds a cell; `point` describes its values. Variants vary fastest, so the first variant's cell at
    /// a point comes before all others of the point.
    pub(super) fn add(&mut self, cell: &SweepCell, metric: usize, name: &str, point: String) {
        let base = match &self.base {
            Some(base) if base.values == cell.values => base,
            _ => {
                self.base = Some(cell.clone());
                return;
            }
        };
        let (Some(own), Some(others)) = (value_of(cell, metric), value_of(base, metric)) else {
            return;
        };
        let (value, other) = (own.mean, others.mean);
        let verdict = Verdict::of_ranges(own, others, unit(name));
        let direction = Verdict::of_values(value, other, unit(name));
        let quotient = value.max(other) / value.min(other).max(f64::MIN_POSITIVE);
        let base = &base.variant;
        let known = self.variants.iter().position(|it| it.variant == cell.variant);
        let position = known.unwrap_or_else(|| {
            let (variant, base) = (cell.variant.clone(), base.clone());
            self.variants.push(Tally { variant, base, outcomes: Vec::new() });
            self.variants.len() - 1
        });
        let outcomes = &mut self.variants[position].outcomes;
        let told = |it: &Outcome| it.verdict == verdict && it.direction == direction;
        let found = outcomes.iter().position(told).unwrap_or_else(|| {
            let (quotients, named) = ((quotient, quotient), Vec::new());
            outcomes.push(Outcome { verdict, direction, points: 0, quotients, named });
            outcomes.len() - 1
        });
        let outcome = &mut outcomes[found];
        outcome.points += 1;
        outcome.quotients = (outcome.quotients.0.min(quotient), outcome.quotients.1.max(quotient));
        if outcome.named.len() < MOST_NAMED {
            outcome.named.push(point);
        }
    }

    /// Whether values of any point have no range, because it has too few trials.
    pub(super) fn has_few_trials(&self) -> bool {
        self.outcomes().any(|outcome| outcome.verdict == Verdict::TooFew)
    }

    /// Whether the values of at least one point have ranges.
    pub(super) fn has_ranges(&self) -> bool {
        self.outcomes().any(|outcome| outcome.verdict != Verdict::TooFew)
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.variants.iter().flat_map(|tally| &tally.outcomes)
    }

    /// Returns a sentence on each variant but the first, for the first few variants.
    pub(super) fn sentences(&self, metric: &str) -> Vec<String> {
        self.variants.iter().take(super::MOST_VARIANTS).map(|it| it.sentence(metric)).collect()
    }
}

impl Tally {
    fn sentence(&self, metric: &str) -> String {
        let all: u64 = self.outcomes.iter().map(|outcome| outcome.points).sum();
        let mut outcomes: Vec<&Outcome> = self.outcomes.iter().collect();
        outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.points));
        let part = |(position, outcome): (usize, &&Outcome)| {
            let than =
                if position == 0 { format!(" than with {}", self.base) } else { String::new() };
            let words = match outcome.told() {
                Verdict::NotSure if position > 0 => "not sure to differ".to_owned(),
                Verdict::NotSure => format!("is not sure to differ from that with {}", self.base),
                Verdict::Lower if position > 0 => "lower".to_owned(),
                Verdict::Higher if position > 0 => "higher".to_owned(),
                Verdict::Lower => format!("is lower{than}"),
                Verdict::Higher => format!("is higher{than}"),
                _ if position == 0 => format!("hardly differs from that with {}", self.base),
                _ => "hardly differs".to_owned(),
            };
            let share = match outcome.points {
                points if points == all => format!("at all {points} points"),
                points if position == 0 => format!("at {points} of {all} points"),
                points => format!("at {points}"),
            };
            format!("{words} {share}{}{}", outcome.amount(), outcome.names(position))
        };
        let parts: Vec<String> = outcomes.iter().enumerate().map(part).collect();
        format!("With {} {metric} {}.", self.variant, parts.join("; "))
    }
}

fn value_of(cell: &SweepCell, metric: usize) -> Option<&Interval> {
    cell.metrics.get(metric)?.as_ref().filter(|value| value.mean.is_finite())
}

impl Outcome {
    /// Returns the verdict, or the direction of the values if they have no range.
    fn told(&self) -> Verdict {
        if self.verdict == Verdict::TooFew { self.direction } else { self.verdict }
    }

    fn amount(&self) -> String {
        let (low, high) = self.quotients;
        let is_told = matches!(self.told(), Verdict::Lower | Verdict::Higher);
        match (factor(low), factor(high)) {
            _ if !is_told || !high.is_finite() => String::new(),
            (low, high) if low == high => format!(", {high} times"),
            (low, high) => format!(", {low} to {high} times"),
        }
    }

    /// Names the points of an exception.
    fn names(&self, position: usize) -> String {
        if position == 0 {
            return String::new();
        }
        let more = self.points - self.named.len() as u64;
        let more = if more > 0 { format!(" and {} more", thousands(more)) } else { String::new() };
        format!(" ({}{more})", self.named.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use underload_record::schema::Interval;
    use underload_store::sweep::AxisValue;

    use super::*;

    fn cell(rtt: &str, variant: &str, mean: f64) -> SweepCell {
        SweepCell {
            values: vec![AxisValue { text: rtt.to_owned(), amount: None }],
            variant: variant.to_owned(),
            metrics: vec![Some(Interval { mean, ..Interval::default() })],
            ..SweepCell::default()
        }
    }

    #[test]
    fn a_variant_is_compared_at_each_point_and_exceptions_are_named() {
        let mut against = Against::default();
        for (rtt, fifo, codel) in [("5ms", 100.0, 20.0), ("50ms", 300.0, 100.0), ("1s", 50.0, 60.0)]
        {
            for (variant, mean) in [("fifo", fifo), ("codel", codel), ("twin", fifo + 0.5)] {
                let cell = cell(rtt, variant, mean);
                against.add(&cell, 0, "load.rtt.p99", format!("rtt = {rtt}"));
            }
        }
        assert_eq!(
            against.sentences("load.rtt.p99"),
            [
                "With codel load.rtt.p99 is lower than with fifo at 2 of 3 points, 3.0 to 5.0 times; \
                 higher at 1, 1.2 times (rtt = 1s).",
                "With twin load.rtt.p99 hardly differs from that with fifo at all 3 points.",
            ]
        );
        assert!(against.has_few_trials() && !against.has_ranges());
    }

    #[test]
    fn values_whose_ranges_overlap_are_not_lower() {
        let mut against = Against::default();
        let with_range = |variant: &str, mean: f64, (low, high): (f64, f64)| {
            let mut cell = cell("5ms", variant, mean);
            let (low, high) = (Some(low), Some(high));
            cell.metrics = vec![Some(Interval { mean, low, high, ..Interval::default() })];
            cell
        };
        for (variant, mean, range) in [
            ("fifo", 100.0, (90.0, 110.0)),
            ("codel", 80.0, (60.0, 92.0)),
            ("pie", 80.0, (70.0, 88.0)),
        ] {
            against.add(&with_range(variant, mean, range), 0, "load.rtt.p99", String::new());
        }
        let sentences = against.sentences("load.rtt.p99");
        assert!(
            sentences[0].contains("is not sure to differ from that with fifo"),
            "{sentences:?}"
        );
        assert!(sentences[1].contains("is lower than with fifo"), "{sentences:?}");
        assert!(!against.has_few_trials() && against.has_ranges());
    }
}
