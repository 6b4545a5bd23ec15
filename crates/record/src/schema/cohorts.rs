//! What the cohorts of a plan showed, compared.

use serde::{Deserialize, Serialize};

use super::{Expectation, Interval, is_zero};

/// A study of many lines, collected from their devices. Delays are round trips in ms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CohortStudy {
    /// The plan, by its name.
    pub plan: String,
    /// Its title.
    pub title: String,
    /// The cohort that the others are compared with; empty where there is one only.
    pub reference: String,
    /// Start of the first run that counts, milliseconds since 1970.
    pub first_ms: Option<u64>,
    /// Start of the last one.
    pub last_ms: Option<u64>,
    /// Results that were looked at, whatever became of their runs.
    pub results: u64,
    /// Share of the devices that was looked at, drawn at random; 1 where memory held all of them.
    pub sampled: f64,
    /// Runs that no day counts because they came more than two days after later ones.
    pub late_runs: u64,
    /// Days that are not in it, because only sums of them are kept.
    pub summed_days: u64,
    /// When the last of those ended, milliseconds since 1970.
    pub summed_until_ms: Option<u64>,
    /// Every cohort.
    pub cohorts: Vec<CohortCount>,
    /// Every series of probes.
    pub series: Vec<SeriesStudy>,
    /// What became of the runs.
    pub outcomes: Vec<OutcomeStudy>,
    /// The plan against itself: halves of one cohort.
    pub self_check: Option<SelfCheck>,
    /// Lag by class, from days.
    pub classes: Vec<ClassStudy>,
    /// How much of what is sold the loads filled.
    pub uses: Vec<TierUse>,
    /// Published numbers beside these.
    pub published: Vec<Expectation>,
}

/// How large a cohort is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CohortCount {
    /// Its name.
    pub name: String,
    /// Devices with a run that measured.
    pub devices: u64,
    /// Runs that measured.
    pub tests: u64,
}

/// One series of probes, of all cohorts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesStudy {
    /// The step of the run.
    pub step: String,
    /// What the step loads: `latency` (nothing), `upload`, `download`.
    pub load: String,
    /// The marking.
    pub dscp: u8,
    /// Each cohort that has it.
    pub cohorts: Vec<CohortSeries>,
    /// Each cohort against the reference.
    pub comparisons: Vec<Comparison>,
    /// The same within lines that are alike, put together.
    pub stratified: Vec<Stratified>,
}

/// A series of one cohort.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CohortSeries {
    /// The cohort.
    pub cohort: String,
    /// Devices.
    pub devices: u64,
    /// Tests of them.
    pub tests: u64,
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that no answer came to.
    pub lost: u64,
    /// Of each device, the mean over its tests of a test's mean.
    pub mean: Spread,
    /// Of each device, the mean over its tests of a test's longest.
    pub maximum: Spread,
    /// Quantiles of all round trips together; a lost probe is longer than all others.
    pub quantiles: Vec<QuantileEstimate>,
    /// Of each device, its mean under load less its mean without, over devices.
    pub above_idle: Option<Interval>,
    /// First and third quartile over devices of each device's own median round trip, ms; `None`
    /// with fewer than eight devices, or where a quartile is a lost probe.
    #[serde(default)]
    pub device_medians: Option<(f64, f64)>,
}

impl CohortSeries {
    /// The median of all round trips, ms, if it is outside of the middle half of the devices'
    /// medians by more than a bin: a few devices then weigh more than many others.
    pub fn disagreeing_median(&self) -> Option<f64> {
        let (low, high) = self.device_medians?;
        let median =
            self.quantiles.iter().find(|quantile| (quantile.share - 0.5).abs() < 1e-9)?.ms?;
        (median < low * 0.98 || median > high * 1.02).then_some(median)
    }
}

/// How a value of each device is spread over devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the devices have at most so much.
    pub median: f64,
    /// Mean over devices.
    pub average: Option<Interval>,
    /// Distribution function: values with the share of devices at or below, at most a few hundred.
    pub curve: Vec<(f64, f64)>,
    /// Half the height of the 95 % band around the curve.
    pub half_height: f64,
    /// Percent of the devices in bins of 15 ms from 0.
    pub histogram: Vec<f64>,
    /// Percent beyond the last bin.
    pub beyond: f64,
}

/// A number with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end; `None` where there are too few devices, or none bounds it.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// A quantile with its 95 % interval, by resampling devices.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct QuantileEstimate {
    /// Which, from 0 to 1.
    pub share: f64,
    /// The quantile; `None` where it is a lost probe.
    pub ms: Option<f64>,
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end; `None` where it is a lost probe.
    pub high: Option<f64>,
}

/// A cohort against the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The cohort.
    pub cohort: String,
    /// The reference.
    pub against: String,
    /// By the devices' means.
    pub mean: Option<Compared>,
    /// By the devices' maxima.
    pub maximum: Option<Compared>,
    /// By what load adds to the devices' idle means.
    pub above_idle: Option<Compared>,
}

/// Two groups of devices, one value each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Devices of the cohort and of the reference.
    pub devices: [u64; 2],
    /// How many times the reference's values are the cohort's (Hodges and Lehmann on logarithms).
    pub ratio: Option<Estimate>,
    /// The reference's values less the cohort's (Hodges and Lehmann).
    pub shift_ms: Option<Estimate>,
    /// Probability that a device of the cohort has less than one of the reference, ties by half.
    pub less: f64,
    /// Of Mann and Whitney's test, two-sided.
    pub rank_p_value: f64,
    /// Largest distance of the two distribution functions (Kolmogorov and Smirnov).
    pub distance: f64,
    /// Of that test.
    pub distance_p_value: f64,
}

/// A comparison within groups of like lines, weighted by how many devices of both cohorts are in
/// each. Groups that one cohort lacks are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stratified {
    /// What the lines of a group share, for example `model`.
    pub by: String,
    /// The cohort.
    pub cohort: String,
    /// The reference.
    pub against: String,
    /// Groups with enough devices of both, at most a few dozen are kept.
    pub strata: Vec<Stratum>,
    /// How many times the reference's geometric mean is the cohort's, of all groups together.
    pub ratio: Option<Estimate>,
    /// Devices of the cohort and of the reference that are in no such group.
    pub dropped: [u64; 2],
    /// Groups that were left out.
    pub strata_dropped: u64,
}

/// Lines that are alike.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stratum {
    /// What they share.
    pub value: String,
    /// Devices of the cohort and of the reference.
    pub devices: [u64; 2],
    /// Share of all devices that count.
    pub weight: f64,
    /// How many times the reference's geometric mean is the cohort's.
    pub ratio: Estimate,
}

/// How often runs of a cohort came to one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OutcomeStudy {
    /// The cohort.
    pub cohort: String,
    /// Which end.
    pub outcome: String,
    /// Runs.
    pub runs: u64,
    /// Of all runs of the cohort.
    pub percent: f64,
    /// Less the reference's percentage, points; `None` of the reference itself.
    pub difference: Option<Estimate>,
    /// Chance of such a difference or a larger one between like cohorts.
    pub p_value: Option<f64>,
}

/// Halves of one cohort, at random, compared as cohorts are: nothing ought to be found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SelfCheck {
    /// The cohort.
    pub cohort: String,
    /// Its devices.
    pub devices: u64,
    /// How often it was halved.
    pub splits: u32,
    /// Splits in which the halves differ at the 5 % level, percent.
    pub differ_percent: f64,
    /// In 95 of 100 splits the halves' ratio is at most this, or 1 over it.
    pub ratio_by_chance: f64,
}

/// A class of one cohort: of each device and day, then over the device's days, then over devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassStudy {
    /// The cohort.
    pub cohort: String,
    /// The step that loads.
    pub step: String,
    /// The marking.
    pub dscp: u8,
    /// Devices with a day that counts.
    pub devices: u64,
    /// Their days.
    pub days: u64,
    /// Median without load.
    pub idle_p50_ms: Option<Interval>,
    /// 99th percentile of all loaded round trips of a day.
    pub loaded_p99_ms: Option<Interval>,
    /// The second less the first.
    pub lag_ms: Option<Interval>,
    /// Days beside these whose 99th percentile, or median without load, was a lost probe: they have
    /// no number, and the means are without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub days_lost: u64,
    /// The marking that it is held against.
    pub against: u8,
    /// Share of the other's lag that it does not have, percent.
    pub cut_percent: Option<Interval>,
}

/// How much of what a line is sold a load filled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TierUse {
    /// The cohort.
    pub cohort: String,
    /// The step that loads.
    pub step: String,
    /// Of each device, the mean over its tests, percent; over devices.
    pub percent: Option<Interval>,
    /// Devices whose mean is at least 95 percent, percent.
    pub full: f64,
}
