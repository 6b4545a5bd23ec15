//! The warning that a run's two clocks differ by more than the path's delay.

use underload_record::schema::{LatencyMeasure, Quantile, RunRecord, VariantLatency};

use crate::words::ms;

/// The warning for a run with a negative one-way delay; `None` where no delay is negative.
pub(crate) fn line(record: &RunRecord, suffix: &str) -> Option<String> {
    let smallest_ns = |measure| {
        let latencies = record.summaries.iter().flat_map(|summary| &summary.latencies);
        let of_measure = latencies.filter(|latency| latency.measure == measure);
        of_measure.filter_map(smallest_known_ns).min().filter(|ns| *ns < 0)
    };
    let words = |(measure, way)| Some(format!("{} ms {way}", ms(smallest_ns(measure)?)));
    let ways = [(LatencyMeasure::OneWayUp, "up"), (LatencyMeasure::OneWayDown, "down")];
    let negative: Vec<String> = ways.into_iter().filter_map(words).collect();
    if negative.is_empty() {
        return None;
    }
    Some(format!(
        "The clocks of the two ends{suffix} differ by more than the path takes: the smallest \
         one-way delay is {}. Round trips, and how much a one-way delay varies, are not affected.",
        negative.join(" and ")
    ))
}

/// Returns the smallest delay; without stored samples the smallest median of a trial.
fn smallest_known_ns(latency: &VariantLatency) -> Option<i64> {
    latency.pooled.map(|all| all.min_ns).or_else(|| latency.value_ns(Quantile::P50))
}
