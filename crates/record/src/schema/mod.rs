//! The record of a run: plain types, serialised as they are.
//!
//! One schema serves simulated, emulated and measured runs, so that one reader, one plotter and one
//! table serve all three. `docs/run-format.md` describes the same fields for readers of the files.
//!
//! - [`RunRecord`] is the content of `run.json`: provenance, trials, arms, published numbers.
//! - [`TrialRecord`] is one arm run once: validity, phases, flows, latency, bottlenecks.
//! - [`Sample`] is one probe packet, a row of `samples.parquet`.
//! - [`PacketSighting`] is one packet at one place, a row of `packets.parquet`.
//! - [`Series`] is a named curve over the trial's time, many rows of `series.parquet`.
//! - [`ArmSummary`] pools the valid trials of one arm; [`Expectation`] holds a published number
//!   against it; [`StudyRecord`] compares lines that are each measured several times a day.
//! - [`CohortStudy`] compares the cohorts of a plan for many lines.
//!
//! Times are nanoseconds since the start of their trial, in `u64`. Rates are whole bits per second,
//! counted at the IP layer unless a field says otherwise. A field that is printed carries its unit
//! in its name. Lists keep the scenario's order; maps are ordered, so equal runs are equal bytes.

mod alarm;
mod arm;
mod cohorts;
mod expectation;
mod finding;
mod headline;
mod measure;
mod packet;
mod plot;
mod run;
mod sample;
mod study;
mod trial;
mod validity;

pub use alarm::{CeAlarm, CeRule};
pub use underload_aqm::packet::Ecn;

pub use arm::{
    ArmBottleneck, ArmLatency, ArmMetric, ArmRatio, ArmSummary, ArmThroughput, Interval, Judged,
};
pub use cohorts::{
    ClassStudy, CohortCount, CohortSeries, CohortStudy, Compared, Comparison, Estimate,
    OutcomeStudy, QuantileEstimate, SelfCheck, SeriesStudy, Spread, Stratified, Stratum, TierUse,
};
pub use expectation::{Choice, Expectation, Extreme, Verdict, names_arm};
pub use finding::{ClassLatency, Finding, ForeignTest, MarkingFate, Readings, Rpm};
pub use headline::Headline;
pub use measure::{
    Direction, Distribution, LatencyHistogram, LatencyMeasure, PacketCount, Phase, PhaseWindow,
    Quantile, Sanction,
};
pub use packet::PacketSighting;
pub use plot::{PlotAxis, PlotKind, PlotPoint, PlotRecord};
pub use run::{ArmRecord, FORMAT_VERSION, HostFacts, RunRecord, ScenarioRecord, World};
pub use sample::{Marking, NoMarking, Sample, Series, SeriesKind, SeriesPoint};
pub use study::{StudyClass, StudyGroup, StudyRecord};
pub use trial::{
    BottleneckSummary, FlowDirection, FlowRecord, LatencySummary, Metric, TrialRecord,
};
pub use validity::{InvalidReason, Timeliness, Validity, ValidityLimits};

/// Leaves a count out of a file where nothing was counted.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
