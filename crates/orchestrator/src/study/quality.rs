//! Quality of Outcome of a device's step, from the numbers that are stored.

use underload_fleet::outcome::{SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_record::quality::{StepConditions, application_scores};
use underload_record::schema::Quantile;

/// Returns the lowest score of the applications whose conditions the step measured, percent;
/// `None` without load. The probes with the lowest DSCP count.
pub(crate) fn lowest_score(step: &StepResult) -> Option<f64> {
    if step.kind == Kind::Latency {
        return None;
    }
    let beside = step.distinct_series().min_by_key(|series| series.dscp)?;
    let p99_ms = |series: &SeriesResult| {
        let is_told = Quantile::P99.is_told_by(series.sent);
        is_told.then(|| series.p99_us.map_or(f64::INFINITY, |us| us as f64 / 1e3))
    };
    let found = StepConditions {
        beside_p99_ms: p99_ms(beside),
        inside_p99_ms: step.inside.as_ref().and_then(p99_ms),
        loss_percent: beside.lost as f64 * 100.0 / beside.sent.max(1) as f64,
        // A run whose lease limited the load is not among those that measured.
        mbit_s: [step.goodput_bit_per_s.map(|rate| (rate as f64 / 1e6, false)), None],
    };
    application_scores(&found).into_iter().map(|it| it.score).reduce(f64::min)
}
