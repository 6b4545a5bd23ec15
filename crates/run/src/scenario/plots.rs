//! `[[plot]]`: pictures of the arms, in the form of a figure.

use std::collections::BTreeMap;

use underload_record::schema::{PlotAxis, PlotKind, PlotRecord};

use super::metrics::Metrics;
use crate::keys::{Fault, Faults, Try, alternatives, keys};

/// Pictures of a scenario, at most.
const MOST_PLOTS: usize = 24;

keys! {
    pub(super) struct PlotKeys {
        /// The form of the picture.
        kind: PlotKind,
        title: String,
        /// The arms, with `{line}`, `{x}` and `*` in place of parts of their names.
        arms: String,
        /// What goes upwards; of a `cdf` to the right.
        metric: String = String::new(),
        /// What the metric's axis is called.
        says: String = String::new(),
        /// What a `scatter` shows to the right.
        x_metric: String = String::new(),
        /// A number for each arm to the right, in place of `x_metric`.
        x_values: BTreeMap<String, f64> = BTreeMap::new(),
        /// What the axis to the right is called.
        x_says: String = String::new(),
        /// The arm by whose number every number is divided.
        relative_to: String = String::new(),
        /// The arm whose number is divided by every number.
        improvement_on: String = String::new(),
        /// Axes that grow by factors.
        log: Vec<PlotAxis> = Vec::new(),
    }
}

/// The pictures that the tables declare, each with the number of its table.
pub(super) fn plots(tables: Vec<Try<PlotKeys>>, faults: &mut Faults) -> Vec<(usize, PlotRecord)> {
    if tables.len() > MOST_PLOTS {
        faults.add(Fault::new("", format!("more than {MOST_PLOTS} pictures")));
    }
    let mut plots = Vec::new();
    for (index, Try(keys)) in tables.into_iter().enumerate() {
        let plot = keys.map(|keys| checked(keys).map_err(|it| it.under(&format!("[{index}]"))));
        plots.extend(plot.and_then(|plot| faults.accept(plot)).map(|plot| (index, plot)));
    }
    plots
}

fn checked(keys: PlotKeys) -> Result<PlotRecord, Fault> {
    let PlotKeys { kind, title, arms, metric, says, x_metric, x_values, x_says, .. } = keys;
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

/// Refuses metrics that the scenario does not have.
pub(super) fn check_metrics(plot: &PlotRecord, metrics: &Metrics) -> Result<(), Fault> {
    match plot.kind {
        PlotKind::Time => {}
        PlotKind::Cdf | PlotKind::Histogram => metrics.check_family("metric", &plot.metric)?,
        _ => metrics.check("metric", &plot.metric).map(drop)?,
    }
    match plot.x_metric.as_str() {
        "" => Ok(()),
        x_metric => metrics.check("x_metric", x_metric).map(drop),
    }
}

/// Refuses a picture of none of these arms.
pub(super) fn check_arms(plot: &PlotRecord, all: &[&str]) -> Result<(), Fault> {
    if plot.points(all).is_empty() {
        let known = alternatives(all.iter().take(MOST_NAMED).copied());
        return Err(Fault::new("arms", format!("names no arm; there are {known}")));
    }
    Ok(())
}

/// Arms that an error names.
const MOST_NAMED: usize = 12;
