//! Drops the parts of a trial that no report shows, for runs of thousands of trials: about nine
//! tenths of the record.
//!
//! Pages, plots, tables and sentences do not change. In addition to a run's summaries they use a
//! trial's verdict, its alarms, the latencies that a sentence or a plot is about, and the complete
//! trials that a page lists.

use std::collections::{BTreeMap, BTreeSet};

use underload_record::schema::{LatencyMeasure, Phase, PlotRecord, RunRecord, TrialRecord};

use crate::page::MOST_TRIALS;

/// Drops the parts of one run's trials that no report shows, trial by trial.
pub(crate) struct Reducer {
    /// Latencies that are shown of each trial; `None` for all, because a plot needs another one.
    latencies: Option<BTreeSet<(LatencyMeasure, Phase)>>,
    /// Flows of each variant in earlier trials.
    flows: BTreeMap<String, BTreeSet<String>>,
    /// Number of trials so far.
    trials: usize,
}

impl Reducer {
    pub(crate) fn new(record: &RunRecord) -> Self {
        let of_plot = |plot: &PlotRecord| [plot.metric.clone(), plot.x_metric.clone()];
        let of_headline = record.scenario.headline.iter();
        let of_headline =
            of_headline.flat_map(|it| [it.metric.clone(), it.baseline_metric.clone()]);
        let metrics = record.scenario.plots.iter().flat_map(of_plot).chain(of_headline);
        let shown = metrics.filter(|metric| !metric.is_empty()).map(|metric| latency_of(&metric));
        let always =
            [Phase::Idle, Phase::Load].map(|phase| Some((LatencyMeasure::RoundTrip, phase)));
        let latencies = always.into_iter().chain(shown).collect();
        Self { latencies, flows: BTreeMap::new(), trials: 0 }
    }

    /// Drops the unshown parts of the next trial.
    pub(crate) fn reduce(&mut self, trial: &mut TrialRecord) {
        self.trials += 1;
        // Pages describe a flow by its first trial.
        let has_new_flow = trial.validity.is_valid() && self.is_news(trial);
        let Some(shown) = &self.latencies else { return };
        if self.trials <= MOST_TRIALS || has_new_flow {
            return;
        }
        let is_shown = |measure, phase| shown.contains(&(measure, phase));
        trial.latencies.retain(|latency| is_shown(latency.measure, latency.window.phase));
        trial.latencies.shrink_to_fit();
        trial.phases.shrink_to_fit();
        trial.flows = Vec::new();
        trial.bottlenecks = Vec::new();
        trial.conditions = BTreeMap::new();
    }

    fn is_news(&mut self, trial: &TrialRecord) -> bool {
        let known = self.flows.entry(trial.variant.clone()).or_default();
        let before = known.len();
        let unknown = trial.flows.iter().map(|flow| &flow.name);
        let unknown: Vec<String> = unknown.filter(|name| !known.contains(*name)).cloned().collect();
        known.extend(unknown);
        known.len() > before
    }
}

/// Returns the latency of a metric, named as in [`underload_record::schema::Expectation`]; `None`
/// for other metrics.
fn latency_of(metric: &str) -> Option<(LatencyMeasure, Phase)> {
    let of_probe = metric.split_once('/').map_or(metric, |(_, of_probe)| of_probe);
    let (phase, rest) = of_probe.split_once('.')?;
    let measure = match rest.split('.').next()? {
        "rtt" | "loss" => LatencyMeasure::RoundTrip,
        "up" => LatencyMeasure::OneWayUp,
        "down" => LatencyMeasure::OneWayDown,
        _ => return None,
    };
    Some((measure, Phase::from_name(phase)?))
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{
        CeAlarm, CeRule, Direction, FlowRecord, Headline, Metric, PlotKind, World,
    };
    use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};
    use underload_record::{LatencyPools, conclude};
    use underload_store::{RunData, RunDir};

    use super::*;
    use crate::combine::load_to_show;
    use crate::{load, plots, render, summary_lines, table, warnings};

    #[test]
    fn a_metric_names_its_latency() {
        let load = |measure| Some((measure, Phase::Load));
        for (metric, want) in [
            ("load.rtt.p99", load(LatencyMeasure::RoundTrip)),
            ("probe-dscp-45/load.rtt.p99", load(LatencyMeasure::RoundTrip)),
            ("load.rtt.mean.within.15-30", load(LatencyMeasure::RoundTrip)),
            ("load.rtt", load(LatencyMeasure::RoundTrip)),
            ("load.loss", load(LatencyMeasure::RoundTrip)),
            ("idle.up.p50", Some((LatencyMeasure::OneWayUp, Phase::Idle))),
            ("load.down.p50", load(LatencyMeasure::OneWayDown)),
            ("load.sojourn.up.p99", None),
            ("goodput.up", None),
            ("bulk/ratio.other", None),
            ("call/mos", None),
            ("", None),
        ] {
            assert_eq!(latency_of(metric), want, "{metric}");
        }
    }

    fn alarm(flow: &str) -> CeAlarm {
        CeAlarm {
            flow: flow.to_owned(),
            direction: Direction::Up,
            rule: CeRule::Idle,
            start_ns: 0,
            end_ns: 1_000_000_000,
            ecn_packets: 100,
            ce_packets: 90,
            rate_bit_per_s: None,
            fair_share_bit_per_s: None,
        }
    }

    /// Returns a synthetic run with more trials than `run.json` stores, each with other numbers.
    fn many(plot: Option<&str>) -> RunRecord {
        let queues = [BUFFER_CONTROL, DOCSIS_PIE];
        let mut record = synthetic::record(World::Sim, &queues);
        let few = synthetic::trials(&queues, 2, 50_000_000);
        let mut pools = LatencyPools::default();
        for index in 0..2_100_u32 {
            let synthetic::Trial { record: mut trial, samples, .. } =
                few[index as usize % few.len()].clone();
            (trial.index, trial.repeat) = (index, index / 2);
            for latency in trial.latencies.iter_mut().filter_map(|it| it.distribution.as_mut()) {
                latency.p50_ns += i64::from(index % 91) * 10_000;
                latency.p99_ns += i64::from(index % 97) * 20_000;
            }
            trial.conditions.insert("line".to_owned(), index.to_string());
            if index % 700 == 699 {
                trial.ce_alarms.push(alarm(&trial.flows[0].name));
            }
            if index % 900 == 899 {
                trial.validity = synthetic::late();
            }
            // An application that the listed trials do not have.
            if index == 2_000 {
                let (name, kind) = ("late-call".to_owned(), "voip".to_owned());
                let unit = "MOS".to_owned();
                let metrics = vec![Metric { name: "mos".to_owned(), unit, value: Some(4.0) }];
                trial.flows.push(FlowRecord { name, kind, metrics, ..FlowRecord::default() });
            }
            pools.add(&trial, &samples);
            record.trials.push(trial);
        }
        record.complete = true;
        record.scenario.headline = Some(Headline {
            metric: "load.up.p99".to_owned(),
            says: "one-way delay".to_owned(),
            variant: record.variants[1].name.clone(),
            baseline: record.variants[0].name.clone(),
            ..Headline::default()
        });
        let plot = plot.map(|metric| PlotRecord {
            kind: PlotKind::Box,
            title: "Each trial".to_owned(),
            variants: "{line}".to_owned(),
            metric: metric.to_owned(),
            says: metric.to_owned(),
            ..PlotRecord::default()
        });
        record.scenario.plots = plot.into_iter().collect();
        conclude(&mut record, &pools);
        record
    }

    fn written(record: RunRecord) -> [Vec<RunData>; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        let (samples, series) = (Vec::new(), Vec::new());
        let data = RunData { record, samples, series, left_out: Vec::new() };
        RunDir::write(&path, &data).expect("written");
        [load(&[&path]).expect("a run"), load_to_show(&[&path]).expect("a run")]
    }

    #[test]
    fn a_report_of_reduced_data_equals_the_full_one() {
        for plot in [None, Some("load.rtt.p50")] {
            let [whole, left] = written(many(plot));
            let in_full = |run: &RunData| {
                run.record.trials.iter().filter(|trial| !trial.flows.is_empty()).count()
            };
            assert_eq!(in_full(&whole[0]), 2_100);
            assert!(in_full(&left[0]) < 220, "the premise: most are reduced");
            let pictures = |runs: &[RunData]| -> Vec<String> {
                let plots = plots(runs);
                plots.iter().map(crate::Plot::svg).collect()
            };
            assert_eq!(pictures(&left), pictures(&whole));
            assert!(pictures(&whole).concat().contains("Each trial") == plot.is_some());
            assert_eq!(render(&left).expect("a page"), render(&whole).expect("a page"));
            assert_eq!(table(&left), table(&whole));
            assert_eq!(summary_lines(&left), summary_lines(&whole));
            assert_eq!(warnings(&left), warnings(&whole));
            assert_eq!(left[0].record.comparisons, whole[0].record.comparisons);
            assert_eq!(left[0].record.comparisons.len(), 1, "{:?}", summary_lines(&left));
        }
    }

    #[test]
    fn plots_of_other_metrics_need_all_samples() {
        let [whole, left] = written(many(Some("load.sojourn.up.p99")));
        assert_eq!(left, whole);
    }
}
