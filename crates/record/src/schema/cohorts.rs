//! The comparison of the cohorts of a plan.

use serde::{Deserialize, Serialize};

use super::{Interval, is_zero};
use crate::verdict::{EffectRange, Verdict};

/// A study of many lines, collected from their devices. Delays are round trips in ms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CohortStudy {
    pub plan: String,
    pub title: String,
    /// The cohort that the others are compared with; empty if there is only one.
    pub reference: String,
    /// Start of the first run that counts, milliseconds since 1970.
    pub first_ms: Option<u64>,
    /// Start of the last run that counts, milliseconds since 1970.
    pub last_ms: Option<u64>,
    /// Results that were read, including those of failed runs.
    pub results: u64,
    /// Runs that no day counts because they arrived more than two days after later runs.
    pub late_runs: u64,
    /// Days that are excluded because only their sums are stored.
    pub summed_days: u64,
    /// End of the last such day, milliseconds since 1970.
    pub summed_until_ms: Option<u64>,
    pub cohorts: Vec<CohortCount>,
    /// Reasons for which the cohorts are not compared; empty if they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<Unhealthy>,
    /// The same lines before and after a change; `None` if cohorts are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeStudy>,
    pub series: Vec<SeriesStudy>,
    pub outcomes: Vec<OutcomeStudy>,
    /// Lag of each class, averaged over days.
    pub classes: Vec<ClassStudy>,
    /// Share of the access line's rate that the loads used.
    pub uses: Vec<TierUse>,
    /// Quality of Outcome under each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qualities: Vec<QualityStudy>,
}

/// Lines before and after their change, beside lines that did not change, on the same days.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChangeStudy {
    /// The attribute that changed.
    pub attribute: String,
    /// Lines that are excluded because the attribute changed several times, or at another time.
    pub excluded: u64,
    /// The series that lines of both kinds have before and after.
    pub series: Vec<SeriesChange>,
}

/// A series of the same lines before and after.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesChange {
    pub step: String,
    /// The load of the step, as in [`SeriesStudy::load`].
    pub load: String,
    pub dscp: u8,
    pub is_inside: bool,
    /// By the 99th percentile of each line's probes.
    pub p99: Change,
    /// By each line's mean.
    pub mean: Change,
}

/// The effect of a change on one number of each line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Lines that changed, and others.
    pub lines: [u64; 2],
    /// Median of the values after over those before: of lines that changed, and of others.
    pub medians: [f64; 2],
    /// The ratio of lines that changed relative to that of others; `None` with too few lines, or if
    /// lost probes decide.
    pub effect: Option<EffectRange>,
    pub verdict: Verdict,
}

/// A reason for which the cohorts are not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Unhealthy {
    /// More than one device in a hundred has results in several cohorts.
    Moved { devices: u64, of: u64 },
    /// The devices are not divided as the plan draws them (p < 0.001).
    Unplanned { cohort: String, devices: u64, of: u64, planned_percent: f64 },
    /// More devices of the cohort than of the reference, or fewer, are silent (p < 0.001): those that
    /// measured may not be alike.
    Silent { cohort: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CohortCount {
    pub name: String,
    /// Devices with a successful run.
    pub devices: u64,
    /// Further devices, on which runs were due and none was successful.
    pub silent: u64,
    /// Successful runs of these devices.
    pub tests: u64,
}

/// A series of probes in all cohorts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesStudy {
    pub step: String,
    /// The load of the step: `latency` (none), `upload`, `download`.
    pub load: String,
    /// DSCP of the probes; 0 inside the load.
    pub dscp: u8,
    /// Whether the values are round trips of the loading connections instead of probes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_inside: bool,
    pub cohorts: Vec<CohortSeries>,
    pub comparisons: Vec<Comparison>,
    /// Each cohort against the reference, compared within strata of similar lines.
    pub stratified: Vec<Stratified>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CohortSeries {
    pub cohort: String,
    pub devices: u64,
    pub tests: u64,
    pub sent: u64,
    pub lost: u64,
    /// A value per device: the mean round trip of a test, averaged over its tests.
    pub mean: Spread,
    /// A value per device: the longest round trip of a test, averaged over its tests.
    pub maximum: Spread,
    /// Quantiles of all round trips together; a lost probe is longer than all others.
    pub quantiles: Vec<QuantileEstimate>,
    /// Mean over devices of each device's loaded mean minus its idle mean.
    pub above_idle: Option<Interval>,
    /// First and third quartile over devices of each device's median round trip, ms; `None` with
    /// fewer than eight devices, or if a quartile falls on a lost probe.
    pub device_medians: Option<(f64, f64)>,
}

impl CohortSeries {
    /// Returns the median of all round trips, ms, if it is outside the middle half of the devices'
    /// medians by more than a bin: a few devices with many tests then dominate it.
    pub fn disagreeing_median(&self) -> Option<f64> {
        let (low, high) = self.device_medians?;
        let median =
            self.quantiles.iter().find(|quantile| (quantile.share - 0.5).abs() < 1e-9)?.ms?;
        (median < low * 0.98 || median > high * 1.02).then_some(median)
    }
}

/// The distribution over devices of one value per device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    /// Mean over devices, with its interval.
    pub average: Option<Interval>,
    /// Distribution function: value and share of devices at or below it, at most 401 points.
    pub curve: Vec<(f64, f64)>,
    /// Half the height of the 95 % band around the curve.
    pub half_height: f64,
    /// Percent of the devices in each bin of 15 ms, from 0.
    pub histogram: Vec<f64>,
    /// Percent of the devices beyond the last bin.
    pub beyond: f64,
}

/// A number with its confidence interval (95 % in a study).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    /// `None` with too few values, or if the interval has no lower bound.
    pub low: Option<f64>,
    /// `None` with too few values, or if the interval has no upper bound.
    pub high: Option<f64>,
}

impl Estimate {
    /// Returns the estimate as the range of an effect; `None` without both bounds.
    pub fn range(&self, confidence: f64) -> Option<EffectRange> {
        let (low, high, middle) = (self.low?, Some(self.high?), Some(self.value));
        Some(EffectRange { low, high, middle, confidence })
    }
}

/// A quantile with its 95 % interval, by resampling devices.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct QuantileEstimate {
    /// Share of the probes at or below the quantile, 0 to 1.
    pub share: f64,
    /// `None` if the quantile falls on a lost probe.
    pub ms: Option<f64>,
    pub low: Option<f64>,
    /// `None` if the upper end falls on a lost probe.
    pub high: Option<f64>,
}

/// A cohort compared with the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    pub cohort: String,
    pub against: String,
    /// Comparison of the 99th percentiles of the probes that each device sent in scheduled runs,
    /// of which a lost one is longer than every answer.
    pub p99: Option<Compared>,
    /// Comparison of the devices' means.
    pub mean: Option<Compared>,
    /// Comparison of the devices' maxima.
    pub maximum: Option<Compared>,
    /// Comparison of the devices' loaded means minus their idle means.
    pub above_idle: Option<Compared>,
}

/// The comparison of two groups of devices with one value per device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Whether the cohort is lower than the reference, or higher.
    pub verdict: Verdict,
    /// Devices of the cohort and of the reference.
    pub devices: [u64; 2],
    /// The reference's values divided by the cohort's (Hodges and Lehmann on logarithms); `None`
    /// if a value is not positive, or if a lost probe decides the ratio.
    pub ratio: Option<Estimate>,
    /// The reference minus the cohort (Hodges and Lehmann); `None` if a lost probe decides.
    pub shift_ms: Option<Estimate>,
    /// Probability that a device of the cohort is below one of the reference; ties count one half.
    pub less: f64,
}

/// A comparison within strata of similar lines, weighted by the number of devices of both cohorts
/// in each stratum. Strata that one cohort lacks are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stratified {
    /// The property that the lines of a stratum share, for example `model`.
    pub by: String,
    pub cohort: String,
    pub against: String,
    /// Strata with enough devices of both cohorts; the 24 with the largest weights.
    pub strata: Vec<Stratum>,
    /// The reference's geometric mean divided by the cohort's, over all strata.
    pub ratio: Option<Estimate>,
    pub verdict: Verdict,
    /// Devices of the cohort and of the reference that are in no counted stratum.
    pub dropped: [u64; 2],
    /// Strata that were left out.
    pub strata_dropped: u64,
}

/// Lines that share a property.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stratum {
    /// Value of the shared property.
    pub value: String,
    /// Devices of the cohort and of the reference.
    pub devices: [u64; 2],
    /// Share of all devices that are counted.
    pub weight: f64,
    /// The reference's geometric mean divided by the cohort's.
    pub ratio: Estimate,
    pub verdict: Verdict,
}

/// How often runs of a cohort had one outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OutcomeStudy {
    pub cohort: String,
    pub outcome: String,
    pub runs: u64,
    /// Share of all runs of the cohort, percent.
    pub percent: f64,
    /// Difference to the reference's percentage, percentage points, with a 99 % interval: a study
    /// has many outcomes. `None` for the reference.
    pub difference: Option<Estimate>,
    /// Whether the cohort has the outcome more or less often than the reference.
    pub verdict: Verdict,
}

/// Latency of a class in one cohort: by device and day, mean over days, then over devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassStudy {
    pub cohort: String,
    pub step: String,
    pub dscp: u8,
    /// Devices with at least one day.
    pub devices: u64,
    pub days: u64,
    /// Median of the idle round trips.
    pub idle_p50_ms: Option<Interval>,
    /// 99th percentile of all loaded round trips of a day.
    pub loaded_p99_ms: Option<Interval>,
    /// `loaded_p99_ms` minus `idle_p50_ms`, day by day.
    pub lag_ms: Option<Interval>,
    /// Further days, not in the means: p99 under load or idle median fell on a lost probe.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub days_lost: u64,
    /// DSCP of the class to compare with.
    pub against: u8,
    /// Reduction of the lag relative to class `against`, percent, at most 100.
    pub cut_percent: Option<Interval>,
    /// Whether the lag is lower than that of class `against`, or higher.
    pub verdict: Verdict,
}

/// Share of the sold rate of the lines that a load used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TierUse {
    pub cohort: String,
    pub step: String,
    /// Mean over devices of each device's mean over its tests, percent.
    pub percent: Option<Interval>,
    /// Share of the devices whose mean is at least 95 percent, percent.
    pub full: f64,
}

/// Lowest Quality of Outcome of a call, a game and a web page under a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QualityStudy {
    pub cohort: String,
    pub step: String,
    pub devices: u64,
    /// Mean over devices of each device's mean over its tests, percent.
    pub percent: Option<Interval>,
    /// Score above that of the reference, percentage points, by the shift of Hodges and Lehmann;
    /// `None` for the reference.
    pub gain: Option<Estimate>,
}
