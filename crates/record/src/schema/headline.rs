//! The comparison that a run's first sentence states.

use serde::{Deserialize, Serialize};

use super::expectation::{filled, stars, variants_named};

/// The main comparison of a run, as its scenario declares it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Headline {
    /// The metric to compare, named as in an [`super::Expectation`]. If it is empty, the working
    /// latency of every variant is compared with that of `baseline` instead of the first variant.
    pub metric: String,
    /// Words for the metric in a sentence, without its statistic: `working latency of DSCP 45`.
    pub says: String,
    /// Pattern of the variants to compare; each part may have one `*` for any text. Empty: every variant.
    pub variant: String,
    /// The variant to compare with. If it has as many `*` as `variant`, each variant is compared
    /// with the one that has the same texts in place of the `*`. If it is empty, a variant is
    /// compared with itself by `baseline_metric`, or with no variant if `baseline_metric` is empty,
    /// too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline: String,
    /// Metric of the baseline variant; empty = `metric`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline_metric: String,
    /// Words for `baseline_metric` in a sentence: `best effort`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline_says: String,
}

impl Headline {
    /// Returns the variants to compare, each with its baseline.
    pub fn pairs<'a>(&self, variants: &[&'a str]) -> Vec<(&'a str, Option<&'a str>)> {
        let named = if self.variant.is_empty() {
            variants.iter().map(|variant| (*variant, Vec::new())).collect()
        } else {
            variants_named(&self.variant, variants)
        };
        let is_parallel = stars(&self.variant) == stars(&self.baseline);
        let pair = |(variant, parts): (&'a str, Vec<&'a str>)| {
            if self.baseline.is_empty() {
                let own = (!self.baseline_metric.is_empty()).then_some(variant);
                return Some((variant, own));
            }
            let wanted =
                if is_parallel { filled(&self.baseline, &parts) } else { self.baseline.clone() };
            let other = variants.iter().copied().find(|other| *other == wanted)?;
            (variant != other || !self.baseline_metric.is_empty()).then_some((variant, Some(other)))
        };
        named.into_iter().filter_map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_paired_by_the_text_that_stars_match() {
        let variants = ["fifo/lte", "fifo/subway", "bode/lte", "bode/subway"];
        let pairs = |variant: &str, baseline: &str, baseline_metric: &str| {
            let [variant, baseline, baseline_metric] =
                [variant, baseline, baseline_metric].map(str::to_owned);
            Headline { variant, baseline, baseline_metric, ..Headline::default() }.pairs(&variants)
        };
        let each = [("bode/lte", Some("fifo/lte")), ("bode/subway", Some("fifo/subway"))];
        assert_eq!(pairs("bode/*", "fifo/*", ""), each);
        assert_eq!(pairs("bode/lte", "fifo/lte", ""), each[..1]);
        assert_eq!(pairs("*/lte", "fifo/lte", ""), each[..1], "nothing is held against itself");
        assert_eq!(pairs("fifo/lte", "", ""), [("fifo/lte", None)]);
        assert_eq!(pairs("", "", ""), variants.map(|variant| (variant, None)), "every variant");
        let others = ["fifo/subway", "bode/lte", "bode/subway"];
        assert_eq!(pairs("", "fifo/lte", ""), others.map(|variant| (variant, Some("fifo/lte"))));
        assert_eq!(pairs("fifo/lte", "", "other"), [("fifo/lte", Some("fifo/lte"))]);
        assert_eq!(pairs("bode/*", "codel/*", ""), [], "there is no such variant");
    }
}
