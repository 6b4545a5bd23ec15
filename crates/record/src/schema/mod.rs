//! The record of a run: plain types, serialised as they are.
//!
//! Simulated, emulated and measured runs share one schema, so that they share readers, plots and
//! tables. `docs/reference/run-json.md` describes the fields for readers of the files.
//!
//! - [`RunRecord`] is the content of `run.json`: provenance, trials, variants, published numbers.
//! - [`TrialRecord`] is one repeat of one variant: validity, phases, flows, latency, bottlenecks.
//! - [`Sample`] is one probe packet, a row of `samples.parquet`.
//! - [`Series`] is a named curve over the trial's time, many rows of `series.parquet`.
//! - [`VariantSummary`] summarises the valid trials of one variant; [`Expectation`] compares it with a
//!   published number; [`StudyRecord`] compares lines that are each measured several times a day.
//! - [`CohortStudy`] compares the cohorts of a plan for many lines.
//!
//! Times are nanoseconds since the start of their trial, in `u64`. Rates are whole bits per second,
//! counted at the IP layer unless a field says otherwise. The name of a field has its unit. Lists
//! are in the scenario's order and maps are sorted, so equal runs have equal bytes.

mod alarm;
mod cohorts;
mod direction;
mod expectation;
mod finding;
mod headline;
mod inside;
mod location;
mod measure;
mod plot;
mod run;
mod sample;
mod study;
mod trial;
mod validity;
mod variant;

pub use alarm::{CeAlarm, CeRule};
pub use underload_aqm::packet::Ecn;

pub use cohorts::{
    Change, ChangeStudy, ClassStudy, CohortCount, CohortSeries, CohortStudy, Compared, Comparison,
    Estimate, OutcomeStudy, QualityStudy, QuantileEstimate, SeriesChange, SeriesStudy, Spread,
    Stratified, Stratum, TierUse, Unhealthy,
};
pub use direction::{Direction, PerDirection};
pub use expectation::{Curve, Expectation, Extreme, Shape, Verdict, names_variant};
pub use finding::{
    Finding, ForeignTest, MarkingFate, QualityOfOutcome, Readings, Recovery, Rpm, Unmeasured,
};
pub use headline::Headline;
pub use inside::{InsideLatency, Vantage};
pub use location::{HopReadings, Location, PathHop, PathSegment, SegmentDelay};
pub use measure::{
    Distribution, LatencyHistogram, LatencyMeasure, PacketCount, Phase, PhaseWindow, Quantile,
    Sanction,
};
pub use plot::{PlotAxis, PlotKind, PlotPoint, PlotRecord};
pub use run::{FORMAT_VERSION, HostFacts, RunRecord, ScenarioRecord, VariantRecord, World};
pub use sample::{Marking, NoMarking, Sample, Series, SeriesKind, SeriesPoint};
pub use study::{StudyClass, StudyGroup, StudyRecord};
pub use trial::{
    BottleneckSummary, FlowDirection, FlowRecord, LatencySummary, Metric, TrialRecord,
};
pub use validity::{InvalidReason, Timeliness, Validity, ValidityLimits};
pub use variant::{
    Interval, Judged, VariantBottleneck, VariantInside, VariantLatency, VariantMetric,
    VariantRatio, VariantSummary, VariantThroughput,
};

/// Returns whether a count is 0, which files omit.
fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}
