//! The comparison that a run's first sentence states.

use serde::{Deserialize, Serialize};

use super::expectation::{arms_named, filled, stars};

/// The main comparison of a run, as its scenario declares it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Headline {
    /// The metric to compare, named as in an [`super::Expectation`]. If it is empty, the working
    /// latency of every arm is compared with that of `baseline` instead of the first arm.
    pub metric: String,
    /// Words for the metric in a sentence, without its statistic: `working latency of DSCP 45`.
    pub says: String,
    /// Pattern of the arms to compare; each part may have one `*` for any text. Empty: every arm.
    pub arm: String,
    /// The arm to compare with. If it has as many `*` as `arm`, the arm with the same text there.
    /// Empty: the arm itself if `baseline_metric` is set, otherwise none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline: String,
    /// Metric of the baseline arm; empty = `metric`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline_metric: String,
    /// Words for `baseline_metric` in a sentence: `best effort`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline_says: String,
}

impl Headline {
    /// Returns the arms to compare, each with its baseline.
    pub fn pairs<'a>(&self, arms: &[&'a str]) -> Vec<(&'a str, Option<&'a str>)> {
        let named = if self.arm.is_empty() {
            arms.iter().map(|arm| (*arm, Vec::new())).collect()
        } else {
            arms_named(&self.arm, arms)
        };
        let is_parallel = stars(&self.arm) == stars(&self.baseline);
        let pair = |(arm, parts): (&'a str, Vec<&'a str>)| {
            if self.baseline.is_empty() {
                let own = (!self.baseline_metric.is_empty()).then_some(arm);
                return Some((arm, own));
            }
            let wanted =
                if is_parallel { filled(&self.baseline, &parts) } else { self.baseline.clone() };
            let other = arms.iter().copied().find(|other| *other == wanted)?;
            (arm != other || !self.baseline_metric.is_empty()).then_some((arm, Some(other)))
        };
        named.into_iter().filter_map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_paired_by_what_their_stars_stand_for() {
        let arms = ["fifo/lte", "fifo/subway", "bode/lte", "bode/subway"];
        let pairs = |arm: &str, baseline: &str, baseline_metric: &str| {
            let [arm, baseline, baseline_metric] =
                [arm, baseline, baseline_metric].map(str::to_owned);
            Headline { arm, baseline, baseline_metric, ..Headline::default() }.pairs(&arms)
        };
        let each = [("bode/lte", Some("fifo/lte")), ("bode/subway", Some("fifo/subway"))];
        assert_eq!(pairs("bode/*", "fifo/*", ""), each);
        assert_eq!(pairs("bode/lte", "fifo/lte", ""), each[..1]);
        assert_eq!(pairs("*/lte", "fifo/lte", ""), each[..1], "nothing is held against itself");
        assert_eq!(pairs("fifo/lte", "", ""), [("fifo/lte", None)]);
        assert_eq!(pairs("", "", ""), arms.map(|arm| (arm, None)), "every variant");
        let others = ["fifo/subway", "bode/lte", "bode/subway"];
        assert_eq!(pairs("", "fifo/lte", ""), others.map(|arm| (arm, Some("fifo/lte"))));
        assert_eq!(pairs("fifo/lte", "", "other"), [("fifo/lte", Some("fifo/lte"))]);
        assert_eq!(pairs("bode/*", "codel/*", ""), [], "there is no such variant");
    }
}
