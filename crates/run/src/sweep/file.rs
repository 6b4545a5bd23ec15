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
//! [stop]                            # a cell ends as soon as it knows enough
//! metric = "load.rtt.p99"
//! within_percent = 5
//! ```
//!
//! The whole format, key by key, is in `docs/how-to/sweep.md`.

use serde::Serialize;
use toml::{Table, Value};
use underload_record::schema::Extreme;

use super::plots::PlotKeys;
use crate::keys::{keys, schema, word, words};

keys! {
    /// The keys of a sweep file.
    #[derive(Debug, Clone, Default, PartialEq, Serialize)]
    pub struct SweepFile {
        /// Heading of the sweep, one line.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub title: String = String::new(),
        /// The scenario: a built-in name, or a file beside this one; `None` where the caller has
        /// it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub scenario: Option<String>,
        /// Takes the scenario's short form.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub short: bool = false,
        /// `KEY=VALUE` overrides that hold for every cell.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Names of the arms to take; empty for all.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub arms: Vec<String> = Vec::new(),
        /// Instead of the scenario's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub seed: Option<u64>,
        /// Trials of a cell, at most; instead of the scenario's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub repeats: Option<u64>,
        /// How the axes make points.
        pub design: Design = Design::Grid,
        /// Points of a design that draws them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub samples: Option<u64>,
        /// Names of the metrics that get a column, see `underload_record::metric`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub metrics: Vec<String> = Vec::new(),
        /// When a cell knows enough.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stop: Option<StopKeys>,
        /// Which cells are the best.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub best: Option<BestKeys>,
        /// What is varied.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub axis: Vec<AxisKeys> = Vec::new(),
        /// Pictures in its report.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub plot: Vec<PlotKeys> = Vec::new(),
    }
}

/// How axes make points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Every value of each axis with every value of the others.
    #[default]
    Grid,
    /// Each axis is drawn for each point.
    Random,
    /// Each axis is cut into as many equal parts as there are points, and each part is met once
    /// (McKay, Beckman and Conover 1979).
    LatinHypercube,
}

keys! {
    /// The keys of `[[axis]]`: values, a range, or points that each override several keys.
    #[derive(Debug, Clone, Default, PartialEq, Serialize)]
    pub struct AxisKeys {
        /// Name of its column; the key where there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The key of the scenario that it overrides.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// Its values.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub values: Option<Vec<Value>>,
        /// The first value of a range: a time, rate, size or number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub from: Option<Value>,
        /// The last one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub to: Option<Value>,
        /// How many values of a range are taken.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub steps: Option<u64>,
        /// Whether a range grows by equal amounts or by equal factors.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub scale: Option<Scale>,
        /// Points: each with a `name` and the keys that it overrides.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub point: Option<Vec<Table>>,
    }
}

/// How a range grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// By equal amounts.
    #[default]
    Linear,
    /// By equal factors.
    Log,
}

keys! {
    /// The keys of `[stop]`: a cell ends once half of its metric's 95 % interval is within this.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct StopKeys {
        /// The metric whose mean is to be known.
        pub metric: String,
        /// Of the mean, percent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub within_percent: Option<f64>,
        /// In the metric's own unit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub within: Option<f64>,
        /// Trials that a cell has at least.
        #[serde(skip_serializing_if = "StopKeys::is_least")]
        pub least: u64 = Self::least(),
    }
}

words! {
    Design, word: Grid Random LatinHypercube;
    Scale, word: Linear Log;
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
        /// Which end is the best.
        pub order: Extreme = Extreme::Smallest,
    }
}

impl SweepFile {
    /// The schema of sweep files, for editors, asked of the code that reads them.
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schema::<Self>();
        schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        schema["title"] = "underload sweep".into();
        schema
    }

    /// The file without what its rows do not depend on: heading and pictures.
    pub(super) fn bare(&self) -> Self {
        Self { title: String::new(), plot: Vec::new(), ..self.clone() }
    }

    /// The file as text.
    ///
    /// # Errors
    /// Values that TOML has no words for.
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
            "arms axis best design metrics plot repeats samples scenario seed set short stop title"
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
