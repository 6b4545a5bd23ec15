//! `[headline]`: the comparison that a scenario is about.

use underload_record::schema::{Headline, names_variant};

use super::error::no_variant;
use super::metrics::Metrics;
use super::statement::Statement;
use crate::keys::{Fault, alternatives, keys};

keys! {
    pub(super) struct HeadlineKeys {
        /// The metric of the headline, as in `[[published]]`; `load.rtt.p99` by default.
        metric: String = String::new(),
        /// Words for the metric without its statistic; by default those of a working latency, or
        /// the metric's name.
        says: String = String::new(),
        /// The variant to report; with `*` as in `[[published]]`, each variant that matches; every
        /// variant by default.
        variant: String = String::new(),
        /// The variant to compare with; if it has as many `*` as `variant`, the one with the same
        /// texts in their place.
        baseline: String = String::new(),
        /// Another metric to compare with: that of the baseline, or without a baseline that of the
        /// variant itself.
        baseline_metric: String = String::new(),
        /// Words for `baseline_metric` in the sentence.
        baseline_says: String = String::new(),
    }
}

impl Statement for Headline {
    type Keys = HeadlineKeys;

    fn from_keys(keys: HeadlineKeys) -> Result<Vec<Self>, Fault> {
        let HeadlineKeys { metric, says, variant, baseline, baseline_metric, baseline_says } = keys;
        if metric.is_empty() && baseline.is_empty() {
            let problem = "expected a metric such as \"load.rtt.p99\", or the `baseline` that the \
                           variants are compared with";
            return Err(Fault::new("metric", problem));
        }
        if [&metric, &says, &variant, &baseline_metric].iter().all(|it| it.is_empty()) {
            return Ok(vec![Self { baseline, ..Self::default() }]);
        }
        let metric = if metric.is_empty() { "load.rtt.p99".to_owned() } else { metric };
        let says = if says.is_empty() { default_words(&metric) } else { says };
        if baseline_metric.is_empty() != baseline_says.is_empty() {
            let problem = "another metric and the words for it, `baseline_says`, go together";
            return Err(Fault::new("baseline_metric", problem));
        }
        Ok(vec![Self { metric, says, variant, baseline, baseline_metric, baseline_says }])
    }

    fn check_metrics(&self, metrics: &Metrics) -> Result<(), Fault> {
        let named = [("metric", &self.metric), ("baseline_metric", &self.baseline_metric)];
        let mut named = named.into_iter().filter(|(_, metric)| !metric.is_empty());
        named.try_for_each(|(key, metric)| metrics.check(key, metric).map(drop))
    }

    fn check_variants(&self, variants: &[&str]) -> Result<(), Fault> {
        let Self { variant, baseline, .. } = self;
        if !variant.is_empty() && !variants.iter().any(|it| names_variant(variant, it)) {
            return Err(Fault::new("variant", no_variant(variant, variants)));
        }
        let is_pattern = baseline.contains('*');
        if !(baseline.is_empty() || is_pattern || variants.contains(&baseline.as_str())) {
            return Err(Fault::new("baseline", no_variant(baseline, variants)));
        }
        if self.pairs(variants).is_empty() {
            let known = alternatives(variants.iter().copied());
            let problem =
                format!("matches no variant that has another to be compared with: {known}");
            return Err(Fault::new("variant", problem));
        }
        Ok(())
    }

    fn applies(&self, _: &[&str], chosen: &[&str]) -> bool {
        !self.pairs(chosen).is_empty()
    }
}

/// Returns what a sentence calls a metric for which the scenario has no words.
fn default_words(metric: &str) -> String {
    match metric.split_once("load.rtt.") {
        Some(("", _)) => "working latency".to_owned(),
        Some((probe, _)) => format!("working latency of {}", probe.trim_end_matches('/')),
        None => metric.replace(['.', '_'], " "),
    }
}
