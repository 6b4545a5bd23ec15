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
//! ```
//!
//! The whole format, key by key, is in `docs/how-to/sweep.md`.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;
use underload_record::schema::{Extreme, PlotAxis};
use underload_scenario::keys::{Tables, keys, schema, word, words};
use underload_scenario::tables::Overrides;

/// Maximum number of trials of a sweep: their numbers have 32 bits.
pub(super) const MOST_TRIALS: u64 = u32::MAX as u64;
/// Maximum number of points of a design that draws them.
const MOST_SAMPLES: u64 = 100_000_000;
/// Maximum number of values of a range.
const MOST_STEPS: u64 = 100_000;

keys! {
    /// The keys of a sweep file.
    #[derive(Debug)]
    pub struct SweepFile [lenient] {
        /// Heading of the sweep, one line.
        pub title: String = String::new(),
        /// The scenario: a built-in name, or a file beside this one.
        pub scenario: Option<String>,
        /// Whether the scenario's short form is used.
        pub short: bool = false,
        /// `KEY=VALUE` overrides for every cell.
        pub set: Vec<String> = Vec::new(),
        /// Names of the variants; all by default.
        pub variants: Vec<String> = Vec::new(),
        /// Overrides the scenario's seed.
        pub seed: Option<u64>,
        /// Number of trials of a cell; overrides the scenario's.
        pub repeats: Option<u64> => 1..=MOST_TRIALS,
        /// How the points follow from the axes; `grid`: every combination of values; `random`:
        /// values drawn for each point.
        pub design: Design = Design::Grid,
        /// Number of points of the design `random`.
        pub samples: Option<u64> => 1..=MOST_SAMPLES,
        /// Metrics that have a column, as in `reference/run-json.md`.
        pub metrics: Vec<String> = Vec::new(),
        /// How cells are ranked.
        pub best: Option<BestKeys>,
        /// The dimensions of the sweep.
        pub(super) axis: Tables<AxisKeys> = Tables::default(),
        /// Pictures in the report.
        pub(super) plot: Tables<PlotKeys> = Tables::default(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    #[default]
    Grid,
    Random,
}

keys! {
    /// The keys of `[[axis]]`: values, a range, or points that each override several keys.
    #[derive(Debug)]
    pub(super) struct AxisKeys {
        /// Name of the column; by default the key.
        pub(super) name: Option<String>,
        /// The key of the scenario that the axis overrides.
        pub(super) key: Option<String>,
        /// The values of the key.
        pub(super) values: Option<Vec<Value>>,
        /// The first value of a range: a time, rate, size or number.
        pub(super) from: Option<Value>,
        /// The last value of a range.
        pub(super) to: Option<Value>,
        /// Number of values of a range; a design that draws points needs none.
        pub(super) steps: Option<u64> => 2..=MOST_STEPS,
        /// Whether a range grows by equal amounts, the default, or by equal factors.
        pub(super) scale: Option<Scale>,
        /// Points: each with a `name` and the keys that it overrides.
        pub(super) point: Option<Tables<PointKeys>>,
    }
}

keys! {
    /// A point of an axis.
    #[derive(Debug)]
    pub(super) struct PointKeys {
        /// The value of the axis.
        pub(super) name: String,
        pub(super) overrides: Overrides [flat],
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scale {
    #[default]
    Linear,
    Log,
}

words! {
    Design, word: Grid Random;
    Scale, word: Linear Log;
    PlotForm, word: Sweep Scatter Box Heat;
}

keys! {
    /// The keys of `[best]`.
    #[derive(Debug)]
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
    #[derive(Debug)]
    pub(super) struct PlotKeys {
        /// `sweep`: lines over an axis, means over all other axes; `scatter`: a point per cell, one
        /// metric over another; `box`: median, quartiles and extremes over cells; `heat`: a square
        /// for each value of two axes, coloured by the mean over all other axes.
        pub(super) kind: PlotForm,
        /// Heading of the picture.
        pub(super) title: String,
        /// The metric along the y axis, or of a heat map's colours.
        pub(super) metric: String,
        /// Label of the metric, with its unit; by default its name.
        pub(super) says: String = String::new(),
        /// The axis of the sweep along the x axis, or `variant`.
        pub(super) x: Option<String>,
        /// The metric along the x axis of a scatter plot.
        pub(super) x_metric: Option<String>,
        /// Label of the x axis, with its unit; by default its name.
        pub(super) x_says: String = String::new(),
        /// The axis of the sweep whose values have a curve, a colour or a row each, or `variant`,
        /// the default.
        pub(super) line: Option<String>,
        /// The cells to show, by values of axes or the variant; all by default.
        pub(super) only: BTreeMap<String, String> = BTreeMap::new(),
        /// Axes of the picture with a logarithmic scale.
        pub(super) log: Vec<PlotAxis> = Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlotForm {
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
            "axis best design metrics plot repeats samples scenario seed set short title \
             variants"
        );
        assert_eq!(
            known("/properties/plot/items"),
            "kind line log metric only says title x x_metric x_says"
        );
        assert_eq!(known("/properties/axis/items"), "from key name point scale steps to values");
        assert_eq!(known("/properties/best"), "metric order");
        let form = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(form("/properties/repeats/type"), "integer");
        let designs = serde_json::json!(["grid", "random"]);
        assert_eq!(form("/properties/design/enum"), designs);
        let kinds = serde_json::json!(["sweep", "scatter", "box", "heat"]);
        assert_eq!(form("/properties/plot/items/properties/kind/enum"), kinds);
        let point = "/properties/axis/items/properties/point/items";
        assert_eq!(known(point), "flow name path phases");
        assert_eq!(form("/additionalProperties"), false);
    }
}
