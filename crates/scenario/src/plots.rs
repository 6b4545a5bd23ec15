//! `[[plot]]`: pictures of the variants, in the form of a figure.

use std::collections::BTreeMap;

use underload_record::schema::{PlotAxis, PlotKind, PlotRecord};

use super::metrics::Metrics;
use super::statement::Statement;
use crate::keys::{Fault, alternatives, keys};

/// Maximum number of pictures of a scenario.
pub(super) const MOST_PLOTS: usize = 24;
/// Maximum number of variants that an error lists.
const MOST_NAMED: usize = 12;

keys! {
    pub(super) struct PlotKeys {
        /// `sweep`: lines over a parameter; `bars`: groups of bars, one for each `{x}`; `scatter`:
        /// one metric over another; `box`: median, quartiles and extremes over repeats; `cdf`: a
        /// family of distributions; `histogram`: shares of trials (of samples, if there are few
        /// trials) in bins; `heat`: a cell for each `{line}` and `{x}`; `time`: delay, backlog,
        /// rate and drops over time.
        kind: PlotKind,
        /// Heading of the picture.
        title: String,
        /// The variants by their names: `{line}` is the part that has a curve or a colour of its
        /// own, `{x}` the part along the x axis, `*` a part over which the mean is taken.
        variants: String,
        /// The metric along the y axis (of a `cdf` along the x axis), as in `[[published]]`. A
        /// `cdf` of `load.rtt` is over samples, of `load.rtt.mean` or another statistic over
        /// trials, of any other metric through the percentiles that are stored.
        metric: String = String::new(),
        /// Label of the metric's axis.
        says: String = String::new(),
        /// The metric along the x axis of a `scatter`. Throughput over delay has lines of equal
        /// power: that of the best variant, a tenth and a hundredth of it.
        x_metric: String = String::new(),
        /// A number for each variant along the x axis, in place of `x_metric`: `{ "1mbit/*" = 65.5
        /// }`.
        x_values: BTreeMap<String, f64> = BTreeMap::new(),
        /// Label of the x axis.
        x_says: String = String::new(),
        /// The variant by whose metric the metric of each variant is divided, such as
        /// `"bode/{x}/*"`; its parts `{line}`, `{x}` and `*` are those of `variants`.
        relative_to: String = String::new(),
        /// The variant whose metric is divided by the metric of each variant: how many times better
        /// that variant is.
        improvement_on: String = String::new(),
        /// Axes with a logarithmic scale.
        log: Vec<PlotAxis> = Vec::new(),
    }
}

impl Statement for PlotRecord {
    type Keys = PlotKeys;

    fn from_keys(keys: PlotKeys) -> Result<Vec<Self>, Fault> {
        check(&keys).map_err(|(key, problem)| Fault::new(key, problem))?;
        let PlotKeys { kind, title, variants, metric, says, x_metric, x_values, x_says, .. } = keys;
        let PlotKeys { relative_to, improvement_on, log, .. } = keys;
        Ok(vec![Self {
            kind,
            title,
            variants,
            metric,
            says,
            x_metric,
            x_values,
            x_says,
            relative_to,
            improvement_on,
            log,
        }])
    }

    fn check_metrics(&self, metrics: &Metrics) -> Result<(), Fault> {
        match self.kind {
            PlotKind::Time => {}
            PlotKind::Cdf | PlotKind::Histogram => metrics.check_family(&self.metric)?,
            _ => metrics.check("metric", &self.metric).map(drop)?,
        }
        match self.x_metric.as_str() {
            "" => Ok(()),
            x_metric => metrics.check("x_metric", x_metric).map(drop),
        }
    }

    fn check_variants(&self, variants: &[&str]) -> Result<(), Fault> {
        if self.points(variants).is_empty() {
            let known = alternatives(variants.iter().take(MOST_NAMED).copied());
            return Err(Fault::new("variants", format!("matches no variant; expected {known}")));
        }
        Ok(())
    }

    fn applies(&self, _: &[&str], chosen: &[&str]) -> bool {
        !self.points(chosen).is_empty()
    }
}

/// Returns the first key that is wrong, and the problem.
fn check(keys: &PlotKeys) -> Result<(), (&'static str, &'static str)> {
    let PlotKeys { kind, title, variants, metric, x_metric, x_values, .. } = keys;
    if title.is_empty() {
        return Err(("title", "a picture needs a heading"));
    }
    if metric.is_empty() != (*kind == PlotKind::Time) {
        return Err(("metric", "is needed by every kind but `time`, which has none"));
    }
    let has_x = usize::from(!x_metric.is_empty()) + usize::from(!x_values.is_empty());
    if has_x != usize::from(*kind == PlotKind::Scatter) {
        let problem = "is a key of `scatter` alone, which needs it or `x_values`, a number for \
                       each variant";
        return Err(("x_metric", problem));
    }
    if x_values.values().any(|value| !value.is_finite()) {
        return Err(("x_values", "expected finite numbers"));
    }
    if matches!(kind, PlotKind::Sweep | PlotKind::Heat) && !variants.contains("{x}") {
        return Err(("variants", "expected `{x}` in place of the part along the x axis"));
    }
    let holders = ["{line}", "{x}", "*"];
    let in_part = |part: &str| holders.map(|it| part.matches(it).count()).iter().sum::<usize>();
    if variants.split('/').any(|part| in_part(part) > 1) {
        return Err(("variants", "a part of a name has at most one of `{line}`, `{x}` and `*`"));
    }
    if ["{line}", "{x}"].iter().any(|place| variants.matches(place).count() > 1) {
        return Err(("variants", "a name has `{line}` and `{x}` once each at most"));
    }
    if !keys.relative_to.is_empty() && !keys.improvement_on.is_empty() {
        return Err(("improvement_on", "excludes `relative_to`; expected one of them"));
    }
    Ok(())
}
