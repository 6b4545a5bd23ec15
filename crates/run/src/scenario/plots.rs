//! `[[plot]]`: pictures of the arms, in the form of a figure.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;
use underload_record::schema::{PlotAxis, PlotKind, PlotRecord};

use super::arm::{self, Arm};
use super::document::take_tables;
use super::error::{Fault, alternatives};
use super::metrics::Metrics;
use super::section::read_section;
use super::variants::{Variant, combinations};

/// Pictures of a scenario, at most.
const MOST_PLOTS: usize = 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    kind: PlotKind,
    title: String,
    arms: String,
    #[serde(default)]
    metric: String,
    #[serde(default)]
    says: String,
    #[serde(default)]
    x_metric: String,
    #[serde(default)]
    x_values: BTreeMap<String, f64>,
    #[serde(default)]
    x_says: String,
    #[serde(default)]
    relative_to: String,
    #[serde(default)]
    improvement_on: String,
    #[serde(default)]
    log: Vec<PlotAxis>,
}

/// Its keys with their forms.
pub(super) fn keys() -> serde_json::Map<String, serde_json::Value> {
    super::trace::keys::<Keys>()
}

/// Takes them out of the root.
pub(super) fn take_plots(root: &mut Table) -> Result<Vec<PlotRecord>, Fault> {
    let tables = take_tables(root, "plot")?;
    if tables.len() > MOST_PLOTS {
        return Err(Fault::new("plot", format!("more than {MOST_PLOTS} pictures")));
    }
    let read = |(index, table): (usize, Table)| {
        let read = read_section(table).and_then(checked);
        read.map_err(|fault| fault.under(&format!("plot[{index}]")))
    };
    tables.into_iter().enumerate().map(read).collect()
}

fn checked(keys: Keys) -> Result<PlotRecord, Fault> {
    let Keys { kind, title, arms, metric, says, x_metric, x_values, x_says, .. } = keys;
    if title.is_empty() {
        return Err(Fault::new("title", "a picture needs a heading"));
    }
    let is_of_series = kind == PlotKind::Time;
    if metric.is_empty() != is_of_series {
        let problem = "is what every kind but `time` shows";
        return Err(Fault::new("metric", problem));
    }
    let has_x = usize::from(!x_metric.is_empty()) + usize::from(!x_values.is_empty());
    if has_x != usize::from(kind == PlotKind::Scatter) {
        let problem = "is what a `scatter` shows to the right, and no other; or `x_values`, a \
                       number for each arm";
        return Err(Fault::new("x_metric", problem));
    }
    if x_values.values().any(|value| !value.is_finite()) {
        return Err(Fault::new("x_values", "expected finite numbers"));
    }
    let needs_x = matches!(kind, PlotKind::Sweep | PlotKind::Heat);
    if needs_x && !arms.contains("{x}") {
        let problem = "expected `{x}` in place of the part that goes to the right";
        return Err(Fault::new("arms", problem));
    }
    for part in arms.split('/') {
        let places = ["{line}", "{x}", "*"].map(|place| part.matches(place).count());
        if places.iter().sum::<usize>() > 1 {
            let problem = "a part of a name has one of `{line}`, `{x}` and `*`, once";
            return Err(Fault::new("arms", problem));
        }
    }
    if ["{line}", "{x}"].iter().any(|place| arms.matches(place).count() > 1) {
        return Err(Fault::new("arms", "`{line}` and `{x}` stand once in a name"));
    }
    if !keys.relative_to.is_empty() && !keys.improvement_on.is_empty() {
        return Err(Fault::new("improvement_on", "goes without `relative_to`"));
    }
    let (relative_to, improvement_on, log) = (keys.relative_to, keys.improvement_on, keys.log);
    Ok(PlotRecord {
        kind,
        title,
        arms,
        metric,
        says,
        x_metric,
        x_values,
        x_says,
        relative_to,
        improvement_on,
        log,
    })
}

/// Refuses pictures of what is no metric.
pub(super) fn check_metrics(plots: &[PlotRecord], metrics: &Metrics) -> Result<(), Fault> {
    for (index, plot) in plots.iter().enumerate() {
        let check = || match plot.kind {
            PlotKind::Time => Ok(()),
            PlotKind::Cdf | PlotKind::Histogram => metrics.check_family("metric", &plot.metric),
            _ => metrics.check("metric", &plot.metric).map(drop),
        };
        let checked = check().and_then(|()| match plot.x_metric.as_str() {
            "" => Ok(()),
            x_metric => metrics.check("x_metric", x_metric).map(drop),
        });
        checked.map_err(|fault| fault.under(&format!("plot[{index}]")))?;
    }
    Ok(())
}

/// Refuses pictures of arms that the file does not have; leaves out those of arms that were not
/// chosen.
pub(super) fn chosen(
    plots: Vec<PlotRecord>,
    arms: &[Arm],
    own: &[Vec<Variant>],
) -> Result<Vec<PlotRecord>, Fault> {
    let all: Vec<String> = combinations(own).iter().map(|them| arm::name(them)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let chosen: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let mut kept = Vec::new();
    for (index, plot) in plots.into_iter().enumerate() {
        if plot.points(&all).is_empty() {
            let known = alternatives(all.iter().take(MOST_NAMED).copied());
            let problem = format!("names no arm; there are {known}");
            return Err(Fault::new(format!("plot[{index}].arms"), problem));
        }
        if !plot.points(&chosen).is_empty() {
            kept.push(plot);
        }
    }
    Ok(kept)
}

/// Arms that an error names.
const MOST_NAMED: usize = 12;
