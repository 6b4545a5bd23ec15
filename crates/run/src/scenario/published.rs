//! `[[published]]`: numbers that somebody published, to be held against this run.
//!
//! One table may stand for several numbers: `values` for a number per arm, `pairs` for the same
//! ratio of several pairs of arms.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use toml::Table;
use underload_record::schema::{Choice, Expectation, Extreme, Verdict};

use super::document::take_tables;
use super::error::Fault;
use super::metrics::Metrics;
use super::section::read_section;

/// Takes them out of the root, each with the number of its table: one with `values` stands for one
/// number per arm named there.
pub(super) fn take_published(root: &mut Table) -> Result<Vec<(usize, Expectation)>, Fault> {
    let mut expectations = Vec::new();
    for (index, table) in take_tables(root, "published")?.into_iter().enumerate() {
        let read = read_section(table).and_then(Keys::expand);
        let place = format!("published[{index}]");
        let read = read.map_err(|fault| fault.under(&place))?;
        expectations.extend(read.into_iter().map(|expectation| (index, expectation)));
    }
    Ok(expectations)
}

/// Refuses those of what is no metric, and units that are not the metric's: no number is ever
/// converted.
pub(super) fn check_metrics(
    published: &[(usize, Expectation)],
    metrics: &Metrics,
) -> Result<(), Fault> {
    for (index, expected) in published {
        let place = format!("published[{index}]");
        let unit = metrics.check("metric", &expected.metric).map_err(|it| it.under(&place))?;
        let (unit, of) = match (&expected.choice, &expected.relative_to) {
            // The number that stands for each candidate may be of anything.
            (Some(_), _) => continue,
            (None, Some(_)) => (Some("1".to_owned()), "a ratio".to_owned()),
            (None, None) => (unit, format!("`{}`", expected.metric)),
        };
        if let Some(unit) = unit.filter(|unit| *unit != expected.unit) {
            let problem = format!("`{}`: {of} is told in `{unit}`", expected.unit);
            return Err(Fault::new("unit", problem).under(&place));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    metric: String,
    arm: Option<String>,
    relative_to: Option<String>,
    /// With `among`: which arm is the best, not how good it is.
    best: Option<Extreme>,
    among: Option<BTreeMap<String, f64>>,
    within: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    value: Option<f64>,
    /// One number per arm, instead of `arm` and `value`.
    values: Option<BTreeMap<String, f64>>,
    /// What the numbers of `values` are, if not values with a tolerance.
    values_are: Option<Bound>,
    /// Arm and the arm it is relative to, instead of `arm` and `relative_to`.
    pairs: Option<Vec<(String, String)>>,
    /// In `unit`, either side of a value.
    tolerance: Option<f64>,
    /// Tolerance either side of the value, percent of it.
    tolerance_percent: Option<f64>,
    unit: String,
    source: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    cause: String,
}

/// Its keys with their forms.
pub(super) fn keys() -> serde_json::Map<String, serde_json::Value> {
    super::trace::keys::<Keys>()
}

impl Keys {
    fn expand(self) -> Result<Vec<Expectation>, Fault> {
        if self.metric.is_empty() || self.source.is_empty() {
            return Err(Fault::new("metric", "a metric and its source may not be empty"));
        }
        let numbers =
            [self.low, self.high, self.value, self.tolerance, self.tolerance_percent, self.within];
        let listed = self.values.iter().chain(&self.among).flatten().map(|(_, value)| *value);
        if numbers.into_iter().flatten().chain(listed).any(|number| !number.is_finite()) {
            return Err(Fault::new("", "expected finite numbers"));
        }
        let choice = self.choice()?;
        if self.values_are.is_some() && self.values.is_none() {
            return Err(Fault::new("values_are", "goes with `values`"));
        }
        match (&self.arm, &self.values, &self.pairs) {
            (Some(arm), None, None) => {
                let band = self.band_of_one()?;
                let mut expectation = self.expectation(arm.clone(), band, self.value);
                expectation.choice = choice;
                Ok(vec![expectation])
            }
            (None, Some(values), None) if !values.is_empty() => {
                let mut values: Vec<(&String, &f64)> = values.iter().collect();
                values.sort_by_key(|(arm, _)| in_order(arm));
                values.into_iter().map(|(arm, value)| self.of_arm(arm, *value)).collect()
            }
            (None, None, Some(pairs)) if !pairs.is_empty() && self.relative_to.is_none() => {
                let band = self.band_of_one()?;
                let of_pair = |(arm, other): &(String, String)| Expectation {
                    relative_to: Some(other.clone()),
                    ..self.expectation(arm.clone(), band, self.value)
                };
                Ok(pairs.iter().map(of_pair).collect())
            }
            _ => {
                let problem = "expected `arm`, or `values` with a number per arm, or `pairs` of \
                               arms to be compared";
                Err(Fault::new("arm", problem))
            }
        }
    }

    /// The expectation for one arm of a list of values.
    fn of_arm(&self, arm: &str, value: f64) -> Result<Expectation, Fault> {
        let tolerated = self.tolerance.is_some() || self.tolerance_percent.is_some();
        let (band, value) = match self.values_are {
            None => (self.band_around(value)?, Some(value)),
            Some(_) if tolerated || self.low.is_some() || self.high.is_some() => {
                let problem = "goes without a tolerance, `low` and `high`";
                return Err(Fault::new("values_are", problem));
            }
            Some(Bound::Low) => (Band { low: Some(value), high: None }, None),
            Some(Bound::High) => (Band { low: None, high: Some(value) }, None),
        };
        Ok(self.expectation(arm.to_owned(), band, value))
    }

    fn choice(&self) -> Result<Option<Choice>, Fault> {
        let within = self.within.unwrap_or_default();
        let has_place = self.arm.as_ref().is_some_and(|arm| arm.contains("{}"));
        match (self.best, &self.among) {
            (None, None) if self.within.is_none() && !has_place => Ok(None),
            (Some(best), Some(among)) if among.len() > 1 && has_place => {
                if within < 0.0 || self.relative_to.is_some() {
                    let problem = "goes with `within` of at least 0, and without `relative_to`";
                    return Err(Fault::new("best", problem));
                }
                Ok(Some(Choice { best, within, among: among.clone() }))
            }
            _ => {
                let problem = "a choice has `best` (\"largest\" or \"smallest\"), `among` with a \
                               number for each of two candidates or more, and `{}` in `arm` where \
                               their names go";
                Err(Fault::new("best", problem))
            }
        }
    }

    fn band_of_one(&self) -> Result<Band, Fault> {
        let tolerated = self.tolerance.is_some() || self.tolerance_percent.is_some();
        match (self.low, self.high, self.value) {
            (None, None, Some(value)) => self.band_around(value),
            (None, None, None) | (_, _, Some(_)) => {
                let problem = "expected `low` and/or `high`, or `value` with a tolerance";
                Err(Fault::new("value", problem))
            }
            _ if tolerated => {
                Err(Fault::new("tolerance", "goes with `value`, not with `low` and `high`"))
            }
            (Some(low), Some(high), None) if low > high => {
                Err(Fault::new("low", format!("{low} is above `high`, {high}")))
            }
            (low, high, None) => Ok(Band { low, high }),
        }
    }

    fn band_around(&self, value: f64) -> Result<Band, Fault> {
        let reach = match (self.tolerance, self.tolerance_percent) {
            (Some(reach), None) => reach,
            (None, Some(percent)) => value.abs() * percent / 100.0,
            _ => {
                let problem =
                    "expected `tolerance` (in `unit`) or `tolerance_percent`, one of them";
                return Err(Fault::new("tolerance", problem));
            }
        };
        if reach < 0.0 || self.low.is_some() || self.high.is_some() {
            let problem = "expected a tolerance of at least 0, and neither `low` nor `high`";
            return Err(Fault::new("tolerance", problem));
        }
        Ok(Band { low: Some(value - reach), high: Some(value + reach) })
    }

    fn expectation(&self, arm: String, band: Band, value: Option<f64>) -> Expectation {
        Expectation {
            metric: self.metric.clone(),
            arm,
            relative_to: self.relative_to.clone(),
            choice: None,
            value,
            low: band.low,
            high: band.high,
            unit: self.unit.clone(),
            source: self.source.clone(),
            short_form: false,
            measured: None,
            verdict: Verdict::NotMeasured,
            note: self.note.clone(),
            cause: self.cause.clone(),
        }
    }
}

/// A key that sorts names with numbers as people do: `8KiB` before `16KiB`.
fn in_order(name: &str) -> String {
    let (mut key, mut digits) = (String::new(), String::new());
    for c in name.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(key, "{digits:0>20}");
            digits.clear();
        }
        key.push(c);
    }
    key
}

/// The end of a band that a number belongs to.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bound {
    Low,
    High,
}

#[derive(Clone, Copy)]
struct Band {
    low: Option<f64>,
    high: Option<f64>,
}
