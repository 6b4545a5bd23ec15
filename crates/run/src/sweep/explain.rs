//! The heading of a sweep, its settings with their origins, and doubts about its ranking.

use toml::Table;

use underload_record::schema::{Extreme, Quantile};
use underload_scenario::document::Document;
use underload_scenario::explain::origin;
use underload_scenario::keys::listed;
use underload_scenario::{FlowKind, Setting, SettingValue, Variant};

use underload_store::sweep::{SweepManifest, SweepSubject};

use super::{Bins, Sweep, SweepFile};

impl Sweep {
    /// Returns the settings of the file except its pictures, each axis, and the settings of the
    /// scenario. A setting that an axis varies has the axis's values.
    pub fn settings(&self) -> Vec<Setting> {
        let SweepManifest { text, name, .. } = &self.manifest;
        let document = Document::parse(text, name);
        let document = document.unwrap_or_else(|_| Document::new(name, Table::new()));
        let setting = |key: String, value: Option<String>, origin: String| {
            let values = vec![SettingValue { value, origin, variants: Vec::new() }];
            Setting { key, values }
        };
        let mut own = listed::<SweepFile>(&document.root);
        own.retain(|it| !matches!(it.key, "title" | "axis" | "plot"));
        let own = own.into_iter().map(|it| {
            let source = document.source_of(it.key, None);
            setting(format!("sweep.{}", it.key), it.value, origin(source, it.default))
        });
        let axes = self.axes.iter().enumerate().map(|(index, axis)| {
            let source = document.source_of(&format!("axis[{index}]"), None);
            let origin = origin(source, None);
            setting(format!("sweep.axis.{}", axis.name), Some(axis.words()), origin)
        });
        let varied = self.scenario.settings().into_iter().map(|own| match self.axis_of(&own.key) {
            None => own,
            Some(index) => {
                let axis = &self.axes[index];
                setting(own.key, Some(axis.words()), format!("axis {}", axis.name))
            }
        });
        own.chain(axes).chain(varied).collect()
    }

    /// Returns the heading of the sweep file; if it has none, the scenario's.
    pub fn title(&self) -> &str {
        let own = self.file.title.as_str();
        if own.is_empty() { &self.scenario.title } else { own }
    }

    /// Returns what a report shows of the cells.
    pub fn subject(&self, bins: &Bins) -> SweepSubject {
        let metrics = &self.file.metrics;
        let best = self.file.best.as_ref();
        let ranked = best.and_then(|best| metrics.iter().position(|name| *name == best.metric));
        let title = self.title();
        SweepSubject {
            title: if title.is_empty() { &self.manifest.name } else { title }.to_owned(),
            scenario: self.scenario.name.clone(),
            axes: self.axes.iter().map(|axis| axis.name.clone()).collect(),
            parts: bins.labels(),
            requested: metrics.iter().map(|metric| self.requests(metric)).collect(),
            ranked_by: ranked.unwrap_or_default(),
            metrics: metrics.clone(),
            best: best.map_or(Extreme::Smallest, |best| best.order),
            cells: self.manifest.cells,
            plots: self.plots.clone(),
        }
    }

    /// Returns a warning if cells are ranked by a percentile that needs more samples than a trial
    /// has. `None` for sweeps that vary the probes or the load.
    pub fn doubtful_ranking(&self) -> Option<String> {
        let metric = self.file.best.as_ref()?.metric.as_str();
        let quantile = Quantile::from_name(metric.strip_prefix("load.rtt.")?)?;
        let is_varied = |name: &str| name.starts_with("phases.") || name.starts_with("flow.");
        if self.axes().any(|(name, _)| is_varied(name)) {
            return None;
        }
        let samples = self.scenario.variants.iter().filter_map(samples_of_load).min()?;
        let reliable = Quantile::highest_told_by(samples);
        (!quantile.is_told_by(samples)).then(|| {
            format!(
                "cells are ranked by {metric}, of about {samples} samples in each trial: {} needs \
                 {}; probe more often, or rank by load.rtt.{}",
                quantile.name(),
                quantile.fewest_samples(),
                reliable.name()
            )
        })
    }
}

/// Returns the number of probes of the variant's first probe flow during the load.
fn samples_of_load(variant: &Variant) -> Option<u64> {
    let interval = variant.flows.iter().find_map(|flow| match &flow.kind {
        FlowKind::Probe(probe) => Some(probe.interval),
        _ => None,
    })?;
    variant.phases.load.as_nanos().checked_div(interval.as_nanos())
}
