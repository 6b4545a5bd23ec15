//! Published numbers, and whether the run met them.

use serde::{Deserialize, Serialize};

/// A number that somebody published, as a band, held against an arm of this run.
///
/// `metric` names what is compared:
///
/// | name | meaning | usual unit |
/// |---|---|---|
/// | `PHASE.rtt.STAT` | round trip of the first open-loop probe, pooled | `ms` |
/// | `PHASE.rtt.STAT.within.LOW-HIGH` | trials whose own STAT lies from LOW up to HIGH ms | `%` |
/// | `PHASE.up.STAT`, `PHASE.down.STAT` | its one-way delay | `ms` |
/// | `PHASE.sojourn.up.STAT`, `... .down.STAT` | sojourn in that queue, mean over repeats | `ms` |
/// | `PHASE.loss` | probes lost | `%` |
/// | `goodput.up`, `goodput.down` | payload of all flows | `mbit/s` |
/// | `throughput.up`, `throughput.down` | sent by the bottleneck link | `mbit/s` |
/// | `utilisation.up`, `utilisation.down` | of the link | `%` |
/// | `drops.up`, `marks.up`, ... | of the packets offered, over the widest window recorded | `%` |
/// | `fairness.up`, `fairness.down` | Jain's index | `1` |
/// | `FLOW/METRIC` | an application's metric | its own |
///
/// `PHASE` is `idle` or `load`, `STAT` is `p50`, `p90`, `p95`, `p99`, `p99.9`, `max` or `mean`.
/// A probe other than the first is named in front: `PROBE/load.rtt.p99`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Expectation {
    /// What is compared, see above.
    pub metric: String,
    /// The arm it is expected of.
    pub arm: String,
    /// When given, the metric of `arm` divided by the same metric of this arm is compared instead.
    #[serde(default)]
    pub relative_to: Option<String>,
    /// Least value that meets it, in `unit`; `None` = no lower bound.
    pub low: Option<f64>,
    /// Greatest value that meets it, in `unit`; `None` = no upper bound.
    pub high: Option<f64>,
    /// Unit of `low`, `high` and `measured`, as printed: `ms`, `mbit/s`, `%`, `1`.
    pub unit: String,
    /// Where it was published, for example `Comcast 2021, Figure 3`.
    pub source: String,
    /// What this run measured; `None` when it did not.
    #[serde(default)]
    pub measured: Option<f64>,
    /// The outcome.
    #[serde(default)]
    pub verdict: Verdict,
    /// Why it was missed, or how the number was read off; may be empty.
    #[serde(default)]
    pub note: String,
}

/// Outcome of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Verdict {
    /// The run has no such number.
    #[default]
    NotMeasured,
    /// Inside the band.
    Met,
    /// Outside the band.
    Missed {
        /// Distance to the nearer end of the band, in the expectation's unit; negative when below.
        by: f64,
    },
}

impl Expectation {
    /// Records what was measured and decides. A value that is not finite counts as not measured, a
    /// bound that is not finite as no bound.
    pub fn judge(&mut self, measured: Option<f64>) {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        self.measured = finite(measured);
        self.verdict = match (self.measured, finite(self.low), finite(self.high)) {
            (None, _, _) => Verdict::NotMeasured,
            (Some(value), Some(low), _) if value < low => Verdict::Missed { by: value - low },
            (Some(value), _, Some(high)) if value > high => Verdict::Missed { by: value - high },
            _ => Verdict::Met,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_two_closed_ends() {
        let mut band = Expectation { low: Some(15.0), high: Some(30.0), ..Default::default() };
        for (measured, verdict) in [
            (Some(15.0), Verdict::Met),
            (Some(30.0), Verdict::Met),
            (Some(14.0), Verdict::Missed { by: -1.0 }),
            (Some(32.5), Verdict::Missed { by: 2.5 }),
            (Some(f64::NAN), Verdict::NotMeasured),
            (None, Verdict::NotMeasured),
        ] {
            band.judge(measured);
            assert_eq!(band.verdict, verdict, "{measured:?}");
        }
        band.low = Some(f64::INFINITY);
        band.judge(Some(20.0));
        assert_eq!(band.verdict, Verdict::Met);
    }
}
