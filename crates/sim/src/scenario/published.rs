//! `[[published]]`: numbers that somebody published, to be held against this run.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;
use underload_report::schema::{Expectation, Verdict};

use super::document::take_tables;
use super::error::Fault;
use super::section::read_section;

/// Takes them out of the root. One table with `values` stands for one number per arm named there.
pub(super) fn take_published(root: &mut Table) -> Result<Vec<Expectation>, Fault> {
    let mut expectations = Vec::new();
    for (index, table) in take_tables(root, "published")?.into_iter().enumerate() {
        let read = read_section(table).and_then(Keys::expand);
        let place = format!("published[{index}]");
        expectations.extend(read.map_err(|fault| fault.under(&place))?);
    }
    Ok(expectations)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    metric: String,
    arm: Option<String>,
    relative_to: Option<String>,
    low: Option<f64>,
    high: Option<f64>,
    value: Option<f64>,
    /// One number per arm, instead of `arm` and `value`.
    values: Option<BTreeMap<String, f64>>,
    /// In `unit`, either side of a value.
    tolerance: Option<f64>,
    /// Of the value, either side of it.
    tolerance_percent: Option<f64>,
    unit: String,
    source: String,
    #[serde(default)]
    note: String,
}

impl Keys {
    fn expand(self) -> Result<Vec<Expectation>, Fault> {
        if self.metric.is_empty() || self.source.is_empty() {
            return Err(Fault::new("metric", "a metric and its source may not be empty"));
        }
        let numbers = [self.low, self.high, self.value, self.tolerance, self.tolerance_percent];
        let listed = self.values.iter().flatten().map(|(_, value)| *value);
        if numbers.into_iter().flatten().chain(listed).any(|number| !number.is_finite()) {
            return Err(Fault::new("", "expected finite numbers"));
        }
        match (&self.arm, &self.values) {
            (Some(arm), None) => {
                let band = self.band_of_one()?;
                Ok(vec![self.expectation(arm.clone(), band)])
            }
            (None, Some(values)) if !values.is_empty() => values
                .iter()
                .map(|(arm, value)| {
                    let band = self.band_around(*value)?;
                    Ok(self.expectation(arm.clone(), band))
                })
                .collect(),
            _ => Err(Fault::new("arm", "expected `arm`, or `values` with a number per arm")),
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

    fn expectation(&self, arm: String, band: Band) -> Expectation {
        Expectation {
            metric: self.metric.clone(),
            arm,
            relative_to: self.relative_to.clone(),
            low: band.low,
            high: band.high,
            unit: self.unit.clone(),
            source: self.source.clone(),
            measured: None,
            verdict: Verdict::NotMeasured,
            note: self.note.clone(),
        }
    }
}

#[derive(Clone, Copy)]
struct Band {
    low: Option<f64>,
    high: Option<f64>,
}
