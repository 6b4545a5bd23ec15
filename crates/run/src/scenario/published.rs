//! `[[published]]`: numbers that somebody published, to be held against this run.
//!
//! One table may stand for several numbers: `values` for a number per arm, `pairs` for the same
//! ratio of several pairs of arms.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use underload_record::schema::{Choice, Expectation, Extreme, Verdict, names_arm};

use super::error::no_arm;
use super::metrics::Metrics;
use crate::keys::{Fault, Faults, Try, keys, word, words};

/// Returns the numbers that the tables declare, each with the index of its table. A table with
/// `values` declares one number per arm, a table with `pairs` one per pair.
pub(super) fn published(
    tables: Vec<Try<PublishedKeys>>,
    faults: &mut Faults,
) -> Vec<(usize, Expectation)> {
    let mut numbers = Vec::new();
    for (index, Try(keys)) in tables.into_iter().enumerate() {
        let all = keys.map(|keys| keys.expand().map_err(|it| it.under(&format!("[{index}]"))));
        let all = all.and_then(|all| faults.accept(all)).unwrap_or_default();
        numbers.extend(all.into_iter().map(|number| (index, number)));
    }
    numbers
}

/// Rejects unknown metrics, and units that differ from the metric's unit: numbers are never
/// converted.
pub(super) fn check_metric(expected: &Expectation, metrics: &Metrics) -> Result<(), Fault> {
    let unit = metrics.check("metric", &expected.metric)?;
    let (unit, of) = match (&expected.choice, &expected.relative_to) {
        // The unit belongs to the candidates' numbers in `among`, which may measure anything.
        (Some(_), _) => return Ok(()),
        (None, Some(_)) => (Some("1".to_owned()), "a ratio".to_owned()),
        (None, None) => (unit, format!("`{}`", expected.metric)),
    };
    match unit.filter(|unit| *unit != expected.unit) {
        None => Ok(()),
        Some(unit) => {
            let problem = format!("`{}`: {of} is told in `{unit}`", expected.unit);
            Err(Fault::new("unit", problem))
        }
    }
}

/// Refuses a number about arms that are not among `all`.
pub(super) fn check_arms(expected: &Expectation, all: &[&str]) -> Result<(), Fault> {
    let is_unknown = |pattern: &String| !all.iter().any(|arm| names_arm(pattern, arm));
    match expected.arm_patterns().into_iter().find(is_unknown) {
        Some(unknown) => Err(Fault::new("arm", no_arm(&unknown, all))),
        None => Ok(()),
    }
}

/// Whether all arms that a number is about were chosen, of those that were made.
pub(super) fn is_chosen(expected: &Expectation, made: &[String], chosen: &[&str]) -> bool {
    expected.arm_patterns().iter().all(|pattern| {
        let mut named = made.iter().filter(|arm| names_arm(pattern, arm)).peekable();
        named.peek().is_some() && named.all(|arm| chosen.contains(&arm.as_str()))
    })
}

keys! {
    pub(super) struct PublishedKeys {
        metric: String,
        arm: Option<String>,
        /// The arm by whose number the arm's is divided.
        relative_to: Option<String>,
        /// With `among`: which arm is the best, not how good it is.
        best: Option<Extreme>,
        /// The arms to choose the best of, each with the number that stands for it.
        among: Option<BTreeMap<String, f64>>,
        /// How close a number is to the best that counts as the best.
        within: Option<f64>,
        low: Option<f64>,
        high: Option<f64>,
        value: Option<f64>,
        /// One number per arm, instead of `arm` and `value`.
        values: Option<BTreeMap<String, f64>>,
        /// What the numbers of `values` are, if not values with a tolerance.
        values_are: Option<Bound>,
        /// Arm and the arm it is relative to, instead of `arm` and `relative_to`.
        pairs: Option<Vec<Vec<String>>>,
        /// In `unit`, either side of a value.
        tolerance: Option<f64>,
        /// Tolerance either side of the value, percent of it.
        tolerance_percent: Option<f64>,
        unit: String,
        /// Where it was published.
        source: String,
        /// How the number was read off.
        note: String = String::new(),
        /// Why the scenario misses it, should it.
        cause: String = String::new(),
    }
}

impl PublishedKeys {
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
                let of_pair = |pair: &Vec<String>| match pair.as_slice() {
                    [arm, other] => Ok(Expectation {
                        relative_to: Some(other.clone()),
                        ..self.expectation(arm.clone(), band, self.value)
                    }),
                    _ => Err(Fault::new("pairs", "expected two arms in each")),
                };
                pairs.iter().map(of_pair).collect()
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
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Bound {
    Low,
    High,
}

words! { Bound, word: Low High; }

#[derive(Clone, Copy)]
struct Band {
    low: Option<f64>,
    high: Option<f64>,
}
