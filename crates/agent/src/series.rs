//! Converts samples of probes to results.

use underload_fleet::bins::Bins;
use underload_fleet::outcome::SeriesResult;
use underload_probe::load::RoundTrip;
use underload_probe::measure::MeasurementResult;
use underload_record::schema::{
    Judged, LatencyMeasure, LatencySummary, Phase, PhaseWindow, Quantile, Sample,
};
use underload_record::summarise;

/// Returns a result for each series of probes in a phase. Series are numbered like `classes`.
pub(crate) fn series_of(classes: &[u8], phase: Phase, samples: &[Sample]) -> Vec<SeriesResult> {
    let of_series = |(index, dscp): (usize, &u8)| {
        let is_of = |it: &&Sample| usize::from(it.flow) == index && it.phase == phase;
        one(*dscp, &samples.iter().filter(is_of).copied().collect::<Vec<_>>())
    };
    classes.iter().enumerate().map(of_series).collect()
}

/// Returns the round trips of the loading connections in the load phase; `None` if the sender's
/// system reports none.
pub(crate) fn inside_of(measured: &MeasurementResult) -> Option<SeriesResult> {
    let window = measured.phases.iter().find(|it| it.phase == Phase::Load)?;
    let readings = measured.loads.iter().flat_map(|log| &log.round_trips.readings);
    let in_window = readings.filter(|it| window.contains(it.time_ns));
    let sample = |it: &RoundTrip| Sample {
        scheduled_ns: it.time_ns,
        rtt_ns: Some(u64::from(it.rtt_us) * 1_000),
        ..Sample::default()
    };
    let samples: Vec<Sample> = in_window.map(sample).collect();
    (!samples.is_empty()).then(|| one(0, &samples))
}

fn one(dscp: u8, samples: &[Sample]) -> SeriesResult {
    let all = PhaseWindow { phase: Phase::Whole, start_ns: 0, end_ns: u64::MAX };
    let summary = summarise(samples, "", all, LatencyMeasure::RoundTrip);
    let mut bins = Bins::default();
    samples.iter().filter_map(|it| it.rtt_ns).for_each(|rtt_ns| bins.add(rtt_ns as f64 / 1e3));
    let answered = summary.distribution;
    SeriesResult {
        dscp,
        sent: summary.sent,
        lost: summary.lost,
        bins,
        p50_us: of_sent_us(&summary, Quantile::P50),
        p99_us: of_sent_us(&summary, Quantile::P99),
        mean_us: answered.map(|it| micros(it.mean_ns)),
        max_us: answered.map(|it| micros(it.max_ns)),
    }
}

/// Returns a quantile of all sent probes; `None` if that probe was lost.
fn of_sent_us(summary: &LatencySummary, quantile: Quantile) -> Option<u64> {
    match summary.of_sent(quantile)? {
        Judged::Answered(ns) => Some(micros(ns)),
        Judged::Lost => None,
    }
}

/// Rounds to the nearest microsecond.
fn micros(nanos: i64) -> u64 {
    nanos.max(0).unsigned_abs().saturating_add(500) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(flow: u16, phase: Phase, rtt_ms: Option<u64>) -> Sample {
        let rtt_ns = rtt_ms.map(|rtt| rtt * 1_000_000);
        Sample { flow, phase, rtt_ns, ..Sample::default() }
    }

    #[test]
    fn lost_probes_count_as_longer_than_all_answers_of_a_series() {
        let mut samples: Vec<Sample> =
            (1..=99).map(|rtt| sample(1, Phase::Load, Some(rtt))).collect();
        samples.push(sample(1, Phase::Load, None));
        samples.push(sample(0, Phase::Load, None));
        samples.push(sample(1, Phase::Ramp, Some(9_000)));
        let [none, series] = &series_of(&[0, 45], Phase::Load, &samples)[..] else { panic!() };
        assert_eq!((series.dscp, series.sent, series.lost), (45, 100, 1));
        assert_eq!((series.p50_us, series.p99_us), (Some(50_000), Some(99_000)));
        assert_eq!((series.mean_us, series.max_us), (Some(50_000), Some(99_000)));
        assert_eq!(series.bins.count(), 99);
        assert_eq!((none.sent, none.lost, none.p50_us, none.max_us), (1, 1, None, None));
        samples.extend([sample(1, Phase::Load, None), sample(1, Phase::Load, None)]);
        let series = &series_of(&[0, 45], Phase::Load, &samples)[1];
        assert_eq!((series.lost, series.p99_us), (3, None), "it was lost");
    }
}
