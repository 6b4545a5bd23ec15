//! The compared items of a report: the variants of one run, or of several runs side by side.

use std::collections::{BTreeMap, BTreeSet};

use underload_record::schema::{
    LatencyMeasure, LatencySummary, Phase, Quantile, RunRecord, TrialRecord, VariantLatency,
    VariantMetric, VariantRecord, VariantSummary, World,
};
use underload_store::RunData;

/// Name of the only variant of a scenario without variants.
const UNNAMED: &str = "default";
/// Kinds of flow that are not applications.
const PLAIN_KINDS: [&str; 4] = ["probe", "tcp", "udp", "line"];

/// Longest label in sentences in place of a name, characters.
const LONGEST_LABEL: usize = 40;

/// One variant of one run.
#[derive(Debug, Clone)]
pub(crate) struct Subject<'a> {
    pub(crate) run: &'a RunData,
    /// Position of the run among the report's runs.
    pub(crate) run_number: usize,
    pub(crate) variant: &'a VariantRecord,
    pub(crate) summary: &'a VariantSummary,
    /// The variant's valid trials.
    trials: Vec<&'a TrialRecord>,
    /// Short name, with the world if several runs are compared.
    pub(crate) name: String,
    /// Position among all subjects, which decides colour and dash.
    pub(crate) position: usize,
}

/// Returns every variant with a summary, in order of runs and variants.
pub(crate) fn subjects(runs: &[RunData]) -> Vec<Subject<'_>> {
    let mut all = Vec::new();
    for (run_number, run) in runs.iter().enumerate() {
        let summaries: BTreeMap<&str, &VariantSummary> = run
            .record
            .summaries
            .iter()
            .map(|summary| (summary.variant.as_str(), summary))
            .collect();
        let mut trials: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
        for trial in run.record.trials.iter().filter(|trial| trial.validity.is_valid()) {
            trials.entry(&trial.variant).or_default().push(trial);
        }
        for variant in &run.record.variants {
            let Some(summary) = summaries.get(variant.name.as_str()) else { continue };
            let trials = trials.remove(variant.name.as_str()).unwrap_or_default();
            let name = format!("{}{}", variant.name, run_suffix(runs, run_number));
            let position = all.len();
            all.push(Subject { run, run_number, variant, summary, trials, name, position });
        }
    }
    all
}

/// Returns ` (home)` if no two runs have the same label, else ` (sim)` if they differ by world, else
/// ` (run 2, sim)`; empty for a single run.
pub(crate) fn run_suffix(runs: &[RunData], number: usize) -> String {
    let Some(run) = runs.get(number).map(|run| &run.record) else { return String::new() };
    let alike = runs.iter().filter(|other| other.record.world == run.world).count();
    let start = |record: &RunRecord| record.host.started.chars().take(MINUTES).collect();
    match (runs.len(), alike) {
        (0 | 1, _) => String::new(),
        _ if are_distinct(runs, short_label) => format!(" ({})", short_label(run)),
        (_, 1) => format!(" ({})", run.world.name()),
        // Repeated runs of one line are named by their time.
        _ if run.world == World::Measured && are_distinct(runs, start) => {
            format!(" ({})", start(run).replace('T', " "))
        }
        _ => format!(" (run {}, {})", number + 1, run.world.name()),
    }
}

fn short_label(run: &RunRecord) -> String {
    run.label.chars().take(LONGEST_LABEL).collect()
}

/// Length of a time up to its minute: `2026-11-21T01:04`.
const MINUTES: usize = 16;

/// Whether the texts of the runs are all different, and none is empty.
fn are_distinct(runs: &[RunData], text: impl Fn(&RunRecord) -> String) -> bool {
    let texts: BTreeSet<String> = runs.iter().map(|run| text(&run.record)).collect();
    texts.len() == runs.len() && !texts.contains("")
}

impl<'a> Subject<'a> {
    /// Returns its run and its name there.
    pub(crate) fn of_run(&self) -> (&'a RunRecord, &'a str) {
        (&self.run.record, &self.variant.name)
    }

    /// Whether both are the same variant of one scenario, or of one test of another tool, in two runs.
    pub(crate) fn is_same_variant(&self, other: &Subject<'_>) -> bool {
        let (own, others) = (&self.run.record.scenario, &other.run.record.scenario);
        self.variant.name == other.variant.name
            && own.name == others.name
            && own.text == others.text
    }

    /// Returns the name with disciplines and profiles; only the label if it contains the name.
    pub(crate) fn title(&self) -> String {
        let (name, label) = (&self.variant.name, &self.variant.label);
        let suffix = &self.name[name.len()..];
        if label.is_empty() {
            self.name.clone()
        } else if self.is_in_label() {
            format!("{label}{suffix}")
        } else if suffix.is_empty() {
            format!("{name} ({label})")
        } else {
            format!("{name}{suffix}: {label}")
        }
    }

    /// Whether the label begins with the name, and the name is a complete name of a discipline.
    fn is_in_label(&self) -> bool {
        let (name, label) = (&self.variant.name, &self.variant.label);
        let rest = label.strip_prefix(name.as_str());
        let is_whole = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ' ']));
        is_whole && !name.contains(':')
    }

    /// Returns the name for headings; the title if the variant has no name of its own.
    pub(crate) fn heading(&self) -> String {
        if self.variant.name == UNNAMED { self.title() } else { self.name.clone() }
    }

    /// Returns the label as a sentence for captions; empty if the heading contains it.
    pub(crate) fn label_words(&self) -> String {
        let label = &self.variant.label;
        if label.is_empty() || self.variant.name == UNNAMED || *label == self.variant.name {
            String::new()
        } else {
            format!("{label}. ")
        }
    }

    /// Returns the name for sentences; the label if the name is uninformative, or if the variant is
    /// alone and its label short.
    pub(crate) fn called(&self) -> String {
        let name = &self.variant.name;
        let is_alone = self.run.record.variants.len() == 1;
        let label = &self.variant.label;
        if name == UNNAMED && !label.is_empty() {
            format!("{}{}", label.replace("; ", " and "), &self.name[name.len()..])
        } else if is_alone && self.is_in_label() && label.chars().count() <= LONGEST_LABEL {
            self.title()
        } else {
            self.name.clone()
        }
    }

    /// Returns ` of flow probe-dscp-45` if the variant has several probes on a schedule, as one per class.
    pub(crate) fn of_probe(&self, latency: &VariantLatency) -> String {
        match self.open_loop().len() {
            0 | 1 => String::new(),
            _ => format!(" of flow {}", latency.probe),
        }
    }

    /// Returns the working latency of every probe on a schedule, the headline first.
    pub(crate) fn open_loop(&self) -> Vec<&'a VariantLatency> {
        let is_wanted = |latency: &&VariantLatency| {
            latency.phase == Phase::Load
                && latency.measure == LatencyMeasure::RoundTrip
                && !latency.closed_loop
        };
        self.summary.latencies.iter().filter(is_wanted).collect()
    }

    /// Returns the numbers of each application, in the order of the flows, without counters of
    /// probes and bulk flows.
    pub(crate) fn applications(&self) -> Vec<(&'a str, Vec<&'a VariantMetric>)> {
        let mut applications: Vec<(&str, Vec<&VariantMetric>)> = Vec::new();
        for metric in self.summary.metrics.iter().filter(|metric| self.is_application(metric)) {
            match applications.iter_mut().find(|(flow, _)| *flow == metric.flow) {
                Some((_, metrics)) => metrics.push(metric),
                None => applications.push((&metric.flow, vec![metric])),
            }
        }
        applications
    }

    fn is_application(&self, metric: &VariantMetric) -> bool {
        let flows = self.trials().flat_map(|trial| &trial.flows);
        let mut of_metric = flows.filter(|flow| flow.name == metric.flow);
        of_metric.next().is_some_and(|flow| !PLAIN_KINDS.contains(&flow.kind.as_str()))
    }

    pub(crate) fn trials(&self) -> impl Iterator<Item = &'a TrialRecord> {
        self.trials.iter().copied()
    }

    /// Returns the headline latency of a phase in each valid trial that has it.
    pub(crate) fn latencies(&self, phase: Phase) -> Vec<(&'a TrialRecord, &'a LatencySummary)> {
        let Some(headline) = self.summary.headline(phase) else { return Vec::new() };
        let of = |trial: &'a TrialRecord| {
            let same = |summary: &&LatencySummary| {
                summary.probe == headline.probe
                    && summary.measure == headline.measure
                    && summary.window.phase == phase
            };
            trial.latencies.iter().find(same).map(|summary| (trial, summary))
        };
        self.trials().filter_map(of).collect()
    }

    /// Returns round trips of the headline probe in a phase, ns, over all valid trials.
    pub(crate) fn round_trips(&self, phase: Phase) -> Vec<u64> {
        let mut delays = Vec::new();
        for (trial, summary) in self.latencies(phase) {
            let Some(flow) = trial.flows.iter().position(|flow| flow.name == summary.probe) else {
                continue;
            };
            let samples = self.run.samples_of(trial.index).iter();
            let inside = samples.filter(|sample| {
                usize::from(sample.flow) == flow && summary.window.contains(sample.scheduled_ns)
            });
            delays.extend(inside.filter_map(|sample| sample.rtt_ns));
        }
        delays
    }

    /// Returns the valid trial with the middle median working latency, which plots show.
    pub(crate) fn representative(&self) -> Option<&'a TrialRecord> {
        let mut ranked: Vec<(i64, &TrialRecord)> = self
            .latencies(Phase::Load)
            .into_iter()
            .filter_map(|(trial, summary)| {
                summary.distribution.map(|distribution| (distribution.p50_ns, trial))
            })
            .collect();
        ranked.sort_by_key(|(median, trial)| (*median, trial.index));
        let middle = ranked.get(ranked.len().saturating_sub(1) / 2);
        middle.map(|(_, trial)| *trial).or_else(|| self.trials().next())
    }
}

/// Returns the highest percentile that at least half of the latencies have samples for. Latencies
/// without a median do not count.
pub(crate) fn usual_highest<'a>(latencies: impl Iterator<Item = &'a VariantLatency>) -> Quantile {
    let mut told: Vec<Quantile> =
        latencies.filter_map(|latency| Some(latency.highest_told()?.0)).collect();
    told.sort_unstable();
    told.get(told.len() / 2).copied().unwrap_or(Quantile::P99)
}
