//! `[[published]]`: published numbers that a run is compared with.
//!
//! One table may declare several numbers: `values` has one per variant, `pairs` the same ratio of
//! several pairs of variants.

use std::collections::BTreeMap;

use serde::Serialize;
use underload_record::schema::{Curve, Expectation, Shape, Verdict, names_variant};

use super::error::no_variant;
use super::metrics::Metrics;
use super::statement::Statement;
use crate::keys::{Fault, keys, word, words};

impl Statement for Expectation {
    type Keys = PublishedKeys;

    fn from_keys(keys: PublishedKeys) -> Result<Vec<Self>, Fault> {
        keys.expand()
    }

    /// Also rejects a unit that is not the metric's: numbers are never converted.
    fn check_metrics(&self, metrics: &Metrics) -> Result<(), Fault> {
        let unit = metrics.check("metric", &self.metric)?;
        let (unit, of) = match (&self.curve, &self.relative_to) {
            // The unit belongs to the candidates' numbers in `among`, which may measure anything.
            (Some(_), _) => return Ok(()),
            (None, Some(_)) => (Some("1".to_owned()), "a ratio".to_owned()),
            (None, None) => (unit, format!("`{}`", self.metric)),
        };
        match unit.filter(|unit| *unit != self.unit) {
            None => Ok(()),
            Some(unit) => {
                let problem = format!("`{}` is not the unit of {of}; expected `{unit}`", self.unit);
                Err(Fault::new("unit", problem))
            }
        }
    }

    fn check_variants(&self, variants: &[&str]) -> Result<(), Fault> {
        let is_unknown =
            |pattern: &String| !variants.iter().any(|variant| names_variant(pattern, variant));
        match self.variant_patterns().into_iter().find(is_unknown) {
            Some(unknown) => Err(Fault::new("variant", no_variant(&unknown, variants))),
            None => Ok(()),
        }
    }

    fn applies(&self, made: &[&str], chosen: &[&str]) -> bool {
        self.variant_patterns().iter().all(|pattern| {
            let mut named =
                made.iter().filter(|variant| names_variant(pattern, variant)).peekable();
            named.peek().is_some() && named.all(|variant| chosen.contains(variant))
        })
    }
}

keys! {
    pub(super) struct PublishedKeys {
        /// The metric, one of those in `reference/run-json.md`.
        metric: String,
        /// The variant to which the number belongs. The number is a band from `low` or up to `high`
        /// or both, or `value` with a tolerance. `*` in a part of the name stands for any text: the
        /// mean over all matching variants counts.
        variant: Option<String>,
        /// The variant by whose metric that of `variant` is divided. If both have as many `*`, each
        /// variant is divided by the one with the same texts in place of the `*`, and the mean of
        /// the ratios counts.
        relative_to: Option<String>,
        /// Compares the shape of the curve of the variants in `among`: which has the largest
        /// (`peak`) or smallest (`trough`) metric, the smallest ratio of a metric to the one
        /// before (`rising`), or the largest over the smallest (`flat`).
        shape: Option<Shape>,
        /// The variants of the curve, each with its number on the axis; `{}` in `variant` stands
        /// for their names.
        among: Option<BTreeMap<String, f64>>,
        /// Variants whose metric is within this distance of the peak's or trough's belong to it,
        /// and the smallest of their numbers in `among` counts.
        within: Option<f64>,
        /// The lowest value that meets the published number.
        low: Option<f64>,
        /// The highest value that meets the published number.
        high: Option<f64>,
        /// The published number; needs a tolerance.
        value: Option<f64>,
        /// One number per variant, in place of `variant` and `value`.
        values: Option<BTreeMap<String, f64>>,
        /// Whether the numbers of `values` are lower or upper bounds; without this key they are
        /// values with a tolerance.
        values_are: Option<Bound>,
        /// Pairs of a variant and the variant that it is relative to, in place of `variant`
        /// and `relative_to`: the ratio of each pair.
        pairs: Option<Vec<Vec<String>>>,
        /// Tolerance on either side of the value, in `unit`.
        tolerance: Option<f64>,
        /// Tolerance on either side of the value, percent of it.
        tolerance_percent: Option<f64>,
        /// The unit of the metric; `1` for a ratio and a number without a unit; any with `shape`.
        unit: String,
        /// Where the number was published.
        source: String,
        /// How the number was read from its source.
        note: String = String::new(),
        /// Why the scenario misses the number, if it does; a miss is explained, never tuned away.
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
        let curve = self.curve()?;
        if self.values_are.is_some() && self.values.is_none() {
            return Err(Fault::new("values_are", "needs `values`"));
        }
        match (&self.variant, &self.values, &self.pairs) {
            (Some(variant), None, None) => {
                let band = self.band_of_one()?;
                let mut expectation = self.expectation(variant.clone(), band, self.value);
                expectation.curve = curve;
                Ok(vec![expectation])
            }
            (None, Some(values), None) if !values.is_empty() => {
                let mut values: Vec<(&String, &f64)> = values.iter().collect();
                values.sort_by_key(|&(variant, _)| natural_order(variant));
                values
                    .into_iter()
                    .map(|(variant, value)| self.expectation_of(variant, *value))
                    .collect()
            }
            (None, None, Some(pairs)) if !pairs.is_empty() && self.relative_to.is_none() => {
                let band = self.band_of_one()?;
                let of_pair = |pair: &Vec<String>| match pair.as_slice() {
                    [variant, other] => Ok(Expectation {
                        relative_to: Some(other.clone()),
                        ..self.expectation(variant.clone(), band, self.value)
                    }),
                    _ => Err(Fault::new("pairs", "expected two variants in each")),
                };
                pairs.iter().map(of_pair).collect()
            }
            _ => {
                let problem = "expected `variant`, or `values` with a number per variant, or \
                               `pairs` of variants to be compared";
                Err(Fault::new("variant", problem))
            }
        }
    }

    /// Returns the expectation for one variant of `values`.
    fn expectation_of(&self, variant: &str, value: f64) -> Result<Expectation, Fault> {
        let tolerated = self.tolerance.is_some() || self.tolerance_percent.is_some();
        let (band, value) = match self.values_are {
            None => (self.band_around(value)?, Some(value)),
            Some(_) if tolerated || self.low.is_some() || self.high.is_some() => {
                let problem = "excludes a tolerance, `low` and `high`";
                return Err(Fault::new("values_are", problem));
            }
            Some(Bound::Low) => (Band { low: Some(value), high: None }, None),
            Some(Bound::High) => (Band { low: None, high: Some(value) }, None),
        };
        Ok(self.expectation(variant.to_owned(), band, value))
    }

    fn curve(&self) -> Result<Option<Curve>, Fault> {
        let within = self.within.unwrap_or_default();
        let has_place = self.variant.as_ref().is_some_and(|variant| variant.contains("{}"));
        match (self.shape, &self.among) {
            (None, None) if self.within.is_none() && !has_place => Ok(None),
            (Some(shape), Some(among)) if among.len() > 1 && has_place => {
                if within < 0.0 || self.relative_to.is_some() {
                    let problem = "needs `within` of at least 0, and excludes `relative_to`";
                    return Err(Fault::new("shape", problem));
                }
                Ok(Some(Curve { shape, within, among: among.clone() }))
            }
            _ => {
                let problem = "a curve has `shape`, `among` with a number for each of two variants \
                               or more, and `{}` in `variant` for their names";
                Err(Fault::new("shape", problem))
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
                Err(Fault::new("tolerance", "needs `value`, and excludes `low` and `high`"))
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

    fn expectation(&self, variant: String, band: Band, value: Option<f64>) -> Expectation {
        Expectation {
            metric: self.metric.clone(),
            variant,
            relative_to: self.relative_to.clone(),
            curve: None,
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

/// Returns a key that sorts names by their numbers: `8KiB` before `16KiB`. A longer number is larger.
fn natural_order(name: &str) -> Vec<(usize, &[u8])> {
    let parts = name.as_bytes().chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let digits = |part: &[u8]| if part[0].is_ascii_digit() { part.len() } else { 0 };
    parts.map(|part| (digits(part), part)).collect()
}

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
