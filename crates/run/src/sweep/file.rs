//! Sweep files: a scenario, what is varied in it, and how often.
//!
//! ```toml
//! scenario = "comcast/upstream"     # a built-in one, or a file beside this one
//! repeats = 30
//!
//! [[axis]]
//! key = "path.rtt"
//! from = "5ms"
//! to = "200ms"
//! steps = 20
//! scale = "log"
//!
//! [stop]                            # a cell ends once the mean is precise enough
//! metric = "load.rtt.p99"
//! within_percent = 5
//! ```
//!
//! The whole format, key by key, is in `docs/how-to/sweep.md`.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::{Table, Value};
use underload_record::schema::{Extreme, PlotAxis};
use underload_scenario::keys::{keys, schema, word, words};

keys! {
    /// The keys of a sweep file.
    #[derive(Debug, Clone, Default, PartialEq, Serialize)]
    pub struct SweepFile {
        /// Heading of the sweep, one line.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub title: String = String::new(),
        /// The scenario: a built-in name, or a file beside this one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub scenario: Option<String>,
        /// Whether the scenario's short form is used.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub short: bool = false,
        /// `KEY=VALUE` overrides for every cell.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Names of the variants; all by default.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variants: Vec<String> = Vec::new(),
        /// Overrides the scenario's seed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub seed: Option<u64>,
        /// Trials of a cell, at most; overrides the scenario's.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub repeats: Option<u64>,
        /// How points are made of the axes: every combination, values drawn for each point, or
        /// values drawn such that each of as many equal parts of an axis as there are points is met
        /// once (McKay, Beckman and Conover 1979).
        pub design: Design = Design::Grid,
        /// Points of a design that draws them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub samples: Option<u64>,
        /// Metrics that have a column, as in `reference/run-json.md`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub metrics: Vec<String> = Vec::new(),
        /// When a cell ends before all of its repeats.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stop: Option<StopKeys>,
        /// How cells are ranked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub best: Option<BestKeys>,
        /// The dimensions of the sweep.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub axis: Vec<AxisKeys> = Vec::new(),
        /// Pictures in the report.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub plot: Vec<PlotKeys> = Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    #[default]
    Grid,
    Random,
    LatinHypercube,
}

keys! {
    /// The keys of `[[axis]]`: values, a range, or points that each override several keys.
    #[derive(Debug, Clone, Default, PartialEq, Serialize)]
    pub struct AxisKeys {
        /// Name of the column; by default the key.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The key of the scenario that the axis overrides.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// The values of the key.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub values: Option<Vec<Value>>,
        /// The first value of a range: a time, rate, size or number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub from: Option<Value>,
        /// The last value of a range.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub to: Option<Value>,
        /// Number of values of a range; a design that draws points needs none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub steps: Option<u64>,
        /// Whether a range grows by equal amounts, the default, or by equal factors.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub scale: Option<Scale>,
        /// Points: each with a `name` and the keys that it overrides.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub point: Option<Vec<Table>>,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    #[default]
    Linear,
    Log,
}

keys! {
    /// The keys of `[stop]`: a cell ends once half of its metric's 95 % interval is narrow enough.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct StopKeys {
        /// The metric whose mean is estimated.
        pub metric: String,
        /// Half of the interval, percent of the mean.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub within_percent: Option<f64>,
        /// Half of the interval, in the metric's unit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub within: Option<f64>,
        /// Trials of a cell, at least.
        #[serde(skip_serializing_if = "StopKeys::is_least")]
        pub least: u64 = Self::least(),
    }
}

words! {
    Design, word: Grid Random LatinHypercube;
    Scale, word: Linear Log;
    PlotForm, word: Sweep Scatter Box Heat;
}

impl StopKeys {
    fn least() -> u64 {
        5
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    fn is_least(least: &u64) -> bool {
        *least == Self::least()
    }
}

keys! {
    /// The keys of `[best]`.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct BestKeys {
        /// The metric that ranks cells by its mean.
        pub metric: String,
        /// Whether the largest or the smallest mean is the best.
        pub order: Extreme = Extreme::Smallest,
    }
}

keys! {
    /// The keys of `[[plot]]`. The rows of a sweep depend only on their metrics, each of which has
    /// a column.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PlotKeys {
        /// `sweep`: lines over an axis, means over all other axes; `scatter`: a point per cell, one
        /// metric over another; `box`: median, quartiles and extremes over cells; `heat`: a square
        /// for each value of two axes, coloured by the mean over all other axes.
        pub kind: PlotForm,
        /// Heading of the picture.
        pub title: String,
        /// The metric along the y axis, or of a heat map's colours.
        pub metric: String,
        /// Label of the metric, with its unit; by default its name.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub says: String = String::new(),
        /// The axis of the sweep along the x axis, or `variant`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub x: Option<String>,
        /// The metric along the x axis of a scatter plot.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub x_metric: Option<String>,
        /// Label of the x axis, with its unit; by default its name.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub x_says: String = String::new(),
        /// The axis of the sweep whose values have a curve, a colour or a row each, or `variant`,
        /// the default.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub line: Option<String>,
        /// The cells to show, by values of axes or the variant; all by default.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub only: BTreeMap<String, String> = BTreeMap::new(),
        /// Axes of the picture with a logarithmic scale.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub log: Vec<PlotAxis> = Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotForm {
    Sweep,
    Scatter,
    Box,
    Heat,
}

impl SweepFile {
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schema::<Self>();
        schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        schema["title"] = "underload sweep".into();
        schema
    }

    /// Returns the file without heading and pictures, on which its rows do not depend.
    pub(super) fn bare(&self) -> Self {
        Self { title: String::new(), plot: Vec::new(), ..self.clone() }
    }

    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_knows_the_keys_of_every_table_and_their_forms() {
        let schema = SweepFile::json_schema();
        let known = |pointer: &str| {
            let table = schema.pointer(pointer).and_then(|it| it["properties"].as_object());
            table.map(|keys| keys.keys().cloned().collect::<Vec<_>>()).unwrap_or_default().join(" ")
        };
        assert_eq!(
            known(""),
            "axis best design metrics plot repeats samples scenario seed set short stop title \
             variants"
        );
        assert_eq!(
            known("/properties/plot/items"),
            "kind line log metric only says title x x_metric x_says"
        );
        assert_eq!(known("/properties/axis/items"), "from key name point scale steps to values");
        assert_eq!(known("/properties/stop"), "least metric within within_percent");
        assert_eq!(known("/properties/best"), "metric order");
        let form = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(form("/properties/repeats/type"), "integer");
        assert_eq!(form("/properties/stop/properties/within/type"), "number");
        let designs = serde_json::json!(["grid", "random", "latin-hypercube"]);
        assert_eq!(form("/properties/design/enum"), designs);
        let kinds = serde_json::json!(["sweep", "scatter", "box", "heat"]);
        assert_eq!(form("/properties/plot/items/properties/kind/enum"), kinds);
        let point = form("/properties/axis/items/properties/point/items");
        assert_eq!(point, serde_json::json!({ "type": "object" }));
        assert_eq!(form("/additionalProperties"), false);
    }
}
