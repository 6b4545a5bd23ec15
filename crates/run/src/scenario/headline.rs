//! `[headline]`: the comparison that a scenario is about.

use underload_record::schema::{Headline, names_arm};

use super::error::no_arm;
use super::metrics::Metrics;
use crate::keys::{Fault, Faults, alternatives, keys};

keys! {
    pub(super) struct HeadlineKeys {
        /// The number that the run is about.
        metric: String = String::new(),
        /// Words for the metric without its statistic.
        says: String = String::new(),
        /// The arm that the number is of; every arm if it is empty.
        arm: String = String::new(),
        /// The arm to compare with.
        baseline: String = String::new(),
        /// Another metric of the baseline to compare with.
        baseline_metric: String = String::new(),
        /// Words for the baseline's metric.
        baseline_says: String = String::new(),
    }
}

/// The headline that the keys declare.
pub(super) fn checked(keys: HeadlineKeys) -> Result<Headline, Fault> {
    let HeadlineKeys { metric, says, arm, baseline, baseline_metric, baseline_says } = keys;
    if metric.is_empty() && baseline.is_empty() {
        let problem = "expected a metric such as \"load.rtt.p99\", or the `baseline` that the arms \
                       are compared with";
        return Err(Fault::new("metric", problem));
    }
    let is_baseline_alone = [&metric, &says, &arm, &baseline_metric].iter().all(|it| it.is_empty());
    if is_baseline_alone {
        return Ok(Headline { baseline, ..Headline::default() });
    }
    let metric = if metric.is_empty() { "load.rtt.p99".to_owned() } else { metric };
    let says = if says.is_empty() { default_words(&metric) } else { says };
    if baseline_metric.is_empty() != baseline_says.is_empty() {
        let problem = "another metric and the words for it, `baseline_says`, go together";
        return Err(Fault::new("baseline_metric", problem));
    }
    Ok(Headline { metric, says, arm, baseline, baseline_metric, baseline_says })
}

/// What a sentence calls a metric for which the scenario has no words.
fn default_words(metric: &str) -> String {
    match metric.split_once("load.rtt.") {
        Some(("", _)) => "working latency".to_owned(),
        Some((probe, _)) => format!("working latency of {}", probe.trim_end_matches('/')),
        None => metric.to_owned(),
    }
}

/// Refuses metrics that the scenario does not have.
pub(super) fn check_metrics(headline: &Headline, metrics: &Metrics, faults: &mut Faults) {
    for (key, metric) in
        [("metric", &headline.metric), ("baseline_metric", &headline.baseline_metric)]
    {
        if !metric.is_empty() {
            faults.accept(metrics.check(key, metric));
        }
    }
}

/// Refuses arms that are not among `all`.
pub(super) fn check_arms(headline: &Headline, all: &[&str]) -> Result<(), Fault> {
    let is_named = |arm: &&str| names_arm(&headline.arm, arm);
    if !headline.arm.is_empty() && !all.iter().any(is_named) {
        return Err(Fault::new("arm", no_arm(&headline.arm, all)));
    }
    let is_pattern = headline.baseline.contains('*');
    if !(headline.baseline.is_empty() || is_pattern || all.contains(&headline.baseline.as_str())) {
        return Err(Fault::new("baseline", no_arm(&headline.baseline, all)));
    }
    if headline.pairs(all).is_empty() {
        let known = alternatives(all.iter().copied());
        let problem =
            format!("names no arm that has another to be compared with; there are {known}");
        return Err(Fault::new("arm", problem));
    }
    Ok(())
}
