//! `[headline]`: the comparison that a scenario is about.

use serde::Deserialize;
use toml::{Table, Value};
use underload_record::schema::{Headline, names_arm};

use super::arm::{self, Arm};
use super::error::{Fault, alternatives, no_arm};
use super::metrics::Metrics;
use super::section::read_section;
use super::variants::{Variant, combinations};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    metric: String,
    #[serde(default)]
    says: String,
    #[serde(default)]
    arm: String,
    #[serde(default)]
    baseline: String,
    #[serde(default)]
    baseline_metric: String,
    #[serde(default)]
    baseline_says: String,
}

/// Its keys with their forms.
pub(super) fn keys() -> serde_json::Map<String, serde_json::Value> {
    super::trace::keys::<Keys>()
}

/// Takes it out of the root.
pub(super) fn take_headline(root: &mut Table) -> Result<Option<Headline>, Fault> {
    let table = match root.remove("headline") {
        None => return Ok(None),
        Some(Value::Table(table)) => table,
        Some(_) => return Err(Fault::new("headline", "expected a table: [headline]")),
    };
    read_section(table).and_then(checked).map(Some).map_err(|fault| fault.under("headline"))
}

fn checked(keys: Keys) -> Result<Headline, Fault> {
    let Keys { metric, says, arm, baseline, baseline_metric, baseline_says } = keys;
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

/// Refuses one of what is no metric.
pub(super) fn check_metrics(headline: Option<&Headline>, metrics: &Metrics) -> Result<(), Fault> {
    let Some(headline) = headline else { return Ok(()) };
    if !headline.metric.is_empty() {
        metrics.check("headline.metric", &headline.metric)?;
    }
    if !headline.baseline_metric.is_empty() {
        metrics.check("headline.baseline_metric", &headline.baseline_metric)?;
    }
    Ok(())
}

/// Refuses a headline of arms that the file does not have; none where those that it has were not
/// chosen.
pub(super) fn chosen(
    headline: Option<Headline>,
    arms: &[Arm],
    own: &[Vec<Variant>],
) -> Result<Option<Headline>, Fault> {
    let Some(headline) = headline else { return Ok(None) };
    let all: Vec<String> = combinations(own).iter().map(|them| arm::name(them)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let is_named = |arm: &&str| names_arm(&headline.arm, arm);
    if !headline.arm.is_empty() && !all.iter().any(is_named) {
        return Err(Fault::new("headline.arm", no_arm(&headline.arm, &all)));
    }
    let is_pattern = headline.baseline.contains('*');
    if !(headline.baseline.is_empty() || is_pattern || all.contains(&headline.baseline.as_str())) {
        return Err(Fault::new("headline.baseline", no_arm(&headline.baseline, &all)));
    }
    if headline.pairs(&all).is_empty() {
        let known = alternatives(all);
        let problem =
            format!("names no arm that has another to be compared with; there are {known}");
        return Err(Fault::new("headline.arm", problem));
    }
    let chosen: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let is_told = !headline.pairs(&chosen).is_empty();
    Ok(is_told.then_some(headline))
}
