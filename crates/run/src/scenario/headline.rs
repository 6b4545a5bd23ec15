//! `[headline]`: the comparison that a scenario is about.

use serde::Deserialize;
use toml::{Table, Value};
use underload_record::schema::Headline;

use super::arm::{self, Arm};
use super::error::{Fault, alternatives};
use super::metrics::Metrics;
use super::section::read_section;
use super::variants::{Variant, combinations};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    metric: String,
    says: String,
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
    if metric.is_empty() || says.is_empty() {
        return Err(Fault::new("metric", "a metric and the words for it may not be empty"));
    }
    if baseline_metric.is_empty() != baseline_says.is_empty() {
        let problem = "another metric and the words for it, `baseline_says`, go together";
        return Err(Fault::new("baseline_metric", problem));
    }
    Ok(Headline { metric, says, arm, baseline, baseline_metric, baseline_says })
}

/// Refuses one of what is no metric.
pub(super) fn check_metrics(headline: Option<&Headline>, metrics: &Metrics) -> Result<(), Fault> {
    let Some(headline) = headline else { return Ok(()) };
    metrics.check("headline.metric", &headline.metric)?;
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
    if headline.pairs(&all).is_empty() {
        let known = alternatives(all);
        let problem = format!("names no arm, or no other to hold it against; there are {known}");
        return Err(Fault::new("headline.arm", problem));
    }
    let chosen: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let is_told = !headline.pairs(&chosen).is_empty();
    Ok(is_told.then_some(headline))
}
